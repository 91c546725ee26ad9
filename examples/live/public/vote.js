// Sends a vote, and keeps the sender's rule: the id is chosen before the first try, and until an answer was seen the
// same event is sent again, after a lost answer, a full server, a reload of the page. The receipt is the same.

import { factsOf, isDone, said } from './said.js';

const LONGEST_PAUSE_MS = 20_000;
const ANSWER_MS = 20_000;

function newId() {
  const bytes = crypto.getRandomValues(new Uint8Array(16)); // randomUUID is for https only
  bytes[6] = (bytes[6] & 0x0f) | 0x40;
  bytes[8] = (bytes[8] & 0x3f) | 0x80;
  const hex = [...bytes].map((byte) => byte.toString(16).padStart(2, '0')).join('');
  return hex.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, '$1-$2-$3-$4-$5');
}

// What must outlive a reload. A browser that stores nothing still votes.
function stored(key) {
  return {
    read() {
      try {
        return JSON.parse(localStorage.getItem(key));
      } catch {
        return null;
      }
    },
    write(value) {
      try {
        if (value === null) localStorage.removeItem(key);
        else localStorage.setItem(key, JSON.stringify(value));
      } catch {
        // Storage is full or forbidden: a reload forgets the event.
      }
    },
  };
}

// The answer, or null and a pause in seconds when the same event is to be sent again.
async function send(event) {
  try {
    const response = await fetch('/events', {
      method: 'POST',
      headers: { 'Content-Type': 'application/json' },
      body: JSON.stringify(event),
      signal: AbortSignal.timeout(ANSWER_MS),
    });
    const answer = await response.json();
    if (answer.outcome === undefined && answer.retryable)
      return { again: Number(response.headers.get('Retry-After')) || 1 };
    return { answer };
  } catch {
    return { again: 1 }; // no answer: nobody knows whether it was counted
  }
}

export class Voting {
  constructor(form, poll, counting) {
    Object.assign(this, { form, poll, counting });
    this.box = document.getElementById('receipt');
    this.pending = stored(`poll_tally live pending ${poll}`);
    form.addEventListener('submit', (event) => {
      event.preventDefault();
      this.#vote(new FormData(form).get('candidate_id'));
    });
    const event = this.pending.read();
    if (event?.poll_id === poll) this.#deliver(event);
  }

  #vote(choice) {
    if (this.form.getAttribute('aria-busy') === 'true') return;
    const event = { event_id: this.form.elements.event_id.value, poll_id: this.poll, candidate_id: choice };
    this.pending.write(event);
    this.#deliver(event);
  }

  async #deliver(event) {
    this.#busy(true);
    this.#say('sending', 'Sending …');
    for (let tries = 0; ; tries++) {
      const { answer, again } = await send(event);
      if (answer !== undefined) return this.#answered(answer);
      const pause = Math.min(LONGEST_PAUSE_MS, again * 1000 * 1.5 ** tries) * (0.75 + Math.random() / 2);
      this.#say('again', 'No answer yet. The same vote is sent again, and is counted once.');
      await new Promise((resolve) => setTimeout(resolve, pause));
    }
  }

  #answered(answer) {
    this.pending.write(null);
    this.#busy(false);
    this.form.elements.event_id.value = newId(); // the next one is another event
    this.#say(answer.outcome ?? answer.error, said(answer.outcome), { outcome: answer.error, ...answer });
    if (!isDone(answer.outcome, this.counting) && answer.outcome !== 'closed') return;
    const focused = this.form.contains(document.activeElement);
    this.form.hidden = true;
    if (focused) this.box.focus(); // whoever works by keyboard stays where the answer is
  }

  #busy(busy) {
    this.form.setAttribute('aria-busy', String(busy));
    this.form.querySelector('button').setAttribute('aria-disabled', String(busy));
  }

  #say(outcome, text, answer = {}) {
    const list = document.createElement('dl');
    for (const [name, value] of factsOf(answer)) {
      const group = document.createElement('div');
      const [term, description] = [document.createElement('dt'), document.createElement('dd')];
      [term.textContent, description.textContent] = [name, value];
      group.append(term, description);
      list.append(group);
    }
    const paragraph = document.createElement('p');
    paragraph.textContent = text;
    this.box.dataset.outcome = outcome;
    this.box.hidden = false;
    this.box.replaceChildren(paragraph, ...(list.children.length > 0 ? [list] : []));
  }
}
