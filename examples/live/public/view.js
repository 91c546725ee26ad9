// What the page shows: the server's table, kept up to date in place.
//
// Rows stay where they are, whoever leads: nobody loses the line that they are reading. New choices go to the end.

import { barOf, formatter } from './format.js';

const SAY_MS = 10_000; // no more often does the status speak

export const LINK_TEXTS = {
  live: 'Live',
  polling: 'Live, with delay',
  reconnecting: 'Connection lost; trying again',
  away: 'Database away; counts may be behind',
  final: 'Final result',
  gone: 'This poll is gone',
};

function element(id) {
  return document.getElementById(id);
}

// Writes only what is different, so that a selection in the text stays.
function setText(node, text) {
  if (node !== null && node.textContent !== text) node.textContent = text;
}

// The server renders times in UTC; here they become the viewer's.
export function localTimes(locale) {
  const format = formatter(locale, undefined);
  for (const time of document.querySelectorAll('time[datetime]')) {
    const date = new Date(time.dateTime);
    setText(time, time.id === 'as-of' ? format.asOf(date, new Date()) : format.day(date));
  }
}

export class View {
  #snapshot = null;
  #link = null;
  #offset = 0;
  #saidAt = -Infinity;
  #sayTimer = null;

  constructor(main, locale) {
    this.main = main;
    this.format = formatter(locale, undefined);
    this.publishedAt = main.dataset.publishedAt;
    this.rows = new Map([...document.querySelectorAll('#rows tr')].map((row) => [row.dataset.choice, row]));
    this.#showAge();
    setInterval(() => this.#showAge(), 1000);
  }

  clock(offset) {
    this.#offset = offset;
    this.#showAge();
  }

  link(link) {
    if (this.#link === link) return;
    const first = this.#link === null;
    this.#link = link;
    element('link').dataset.link = link;
    setText(element('link'), LINK_TEXTS[link]);
    if (!first) this.#say();
  }

  show(snapshot, gaps) {
    this.#snapshot = snapshot;
    this.publishedAt = snapshot.publishedAt;
    this.main.dataset.id = `${snapshot.epoch}:${snapshot.revision}`;
    this.#reveal();
    for (const [choice, label, count] of snapshot.choices ?? []) this.#showRow(choice, label, count, snapshot.total);
    setText(element('total'), snapshot.total === null ? '–' : this.format.count(snapshot.total));
    setText(element('revision'), this.format.count(String(snapshot.revision)));
    setText(element('position'), this.format.count(snapshot.includedPosition));
    setText(element('gaps'), this.format.count(String(gaps)));
    this.#showTimes();
    this.#say();
    if (snapshot.final) this.#end();
  }

  #end() {
    element('vote')?.remove();
    setText(document.querySelector('.closing'), `Closed ${this.format.day(new Date(this.publishedAt))}`);
  }

  // A hidden poll's page waits with an empty table.
  #reveal() {
    if (!element('counts').hidden) return;
    element('counts').hidden = false;
    element('note').remove();
  }

  #showRow(choice, label, count, total) {
    let row = this.rows.get(choice);
    if (row === undefined) {
      row = element('row').content.firstElementChild.cloneNode(true);
      row.dataset.choice = choice;
      element('rows').append(row);
      this.rows.set(choice, row);
    }
    setText(row.querySelector('bdi'), label ?? choice);
    setText(row.querySelector('.count'), this.format.count(count));
    setText(row.querySelector('.share span'), this.format.share(count, total));
    row.querySelector('rect').setAttribute('width', barOf(count, total));
  }

  #showTimes() {
    if (this.publishedAt === '') return;
    const time = element('as-of');
    time.dateTime = this.publishedAt;
    setText(time, this.format.asOf(new Date(this.publishedAt), new Date(Date.now() + this.#offset)));
    this.#showAge();
  }

  #showAge() {
    if (this.publishedAt === '') return;
    const seconds = Math.floor((Date.now() + this.#offset - Date.parse(this.publishedAt)) / 1000);
    setText(element('age'), this.format.age(Math.max(0, seconds)));
  }

  // --- what screen readers hear, politely and at most every SAY_MS: how it stands by then ------------------------------

  #say() {
    if (this.#sayTimer !== null) return;
    this.#sayTimer = setTimeout(
      () => {
        this.#sayTimer = null;
        this.#saidAt = performance.now();
        setText(element('status'), this.#summary());
      },
      Math.max(0, this.#saidAt + SAY_MS - performance.now()),
    );
  }

  #summary() {
    const parts = this.#link === 'live' || this.#link === null ? [] : [`${LINK_TEXTS[this.#link]}.`];
    if (this.#snapshot !== null) {
      const { total, choices } = this.#snapshot;
      if (total !== null) parts.push(`${this.format.count(total)} votes.`);
      const leading = [...(choices ?? [])].sort(([, , a], [, , b]) => (BigInt(b) > BigInt(a) ? 1 : -1)).slice(0, 3);
      parts.push(leading.map(([choice, label, count]) => `${label ?? choice}: ${this.format.count(count)}`).join(', '));
    }
    return parts.join(' ');
  }
}
