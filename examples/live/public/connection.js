// The way to the server: server-sent events, and polling while those do not come through.
//
// It tries for ever: a stream; when that ends, a pause that grows with each vain try, in which it polls. What it hears
// it hands on as it is, late and repeated snapshots too: the rule of rule.js is for those that show them.

const POLL_MS = 5000;
const PAUSE_MS = 500; // the first one; each is twice as long as the one before
const LONGEST_PAUSE_MS = 30_000;
const ASK_MS = 8000; // how long an answer to polling may take

export class Connection {
  #stopped = false;
  #known = null; // id of the newest snapshot heard
  #final = false;
  #lastLink = null;
  #wake = () => {};

  // heard({ kind: 'snapshot', snapshot }), heard({ kind: 'link', link }), heard({ kind: 'clock', offset }): link is
  // 'live', 'polling', 'away' (server there, its database not), 'reconnecting', 'final' or 'gone'; offset is how far
  // the server's clock is ahead of ours, in ms.
  constructor(address, { known, beatMs, heard }) {
    Object.assign(this, { address, beatMs, heard });
    this.#known = known;
  }

  async run() {
    for (let tries = 0; !this.#stopped && !this.#final; tries++) {
      const { heardAny, closed } = await this.#stream();
      if (this.#stopped || this.#final) break;
      if (heardAny) tries = 0;
      const pause = Math.min(LONGEST_PAUSE_MS, PAUSE_MS * 2 ** tries) * (0.5 + Math.random());
      if (!(await this.#pollFor(pause, tries > 1 || closed))) return;
    }
  }

  stop() {
    this.#stopped = true;
    this.#wake();
  }

  #link(link) {
    this.#lastLink = link;
    this.heard({ kind: 'link', link });
  }

  #snapshot(text) {
    const snapshot = JSON.parse(text);
    this.#known = `${snapshot.epoch}:${snapshot.revision}`;
    this.heard({ kind: 'snapshot', snapshot });
    if (snapshot.final) {
      this.#final = true;
      this.#link('final');
    }
  }

  // Until the stream ends, is silent for too long, or brings the final snapshot.
  #stream() {
    if (typeof EventSource === 'undefined') return { heardAny: false, closed: true };
    return new Promise((resolve) => {
      const after = this.#known === null ? '' : `?after=${encodeURIComponent(this.#known)}`;
      const source = new EventSource(`${this.address}/stream${after}`);
      let heardAny = false;
      let watchdog;
      const end = () => {
        clearTimeout(watchdog);
        // Our own tries say what we have; the browser's own would come on top of them.
        const closed = source.readyState === EventSource.CLOSED;
        source.close();
        resolve({ heardAny, closed });
      };
      const alive = () => {
        heardAny = true;
        clearTimeout(watchdog);
        watchdog = setTimeout(end, 2.5 * this.beatMs);
      };
      this.#wake = end;
      watchdog = setTimeout(end, 2.5 * this.beatMs);
      source.addEventListener('beat', ({ data }) => {
        alive();
        const { now, database } = JSON.parse(data);
        this.heard({ kind: 'clock', offset: now - Date.now() });
        this.#link(database ? 'live' : 'away');
      });
      source.addEventListener('snapshot', ({ data }) => {
        alive();
        this.#snapshot(data);
        if (this.#final) end();
      });
      source.onerror = end;
    });
  }

  // Polls for that long; shorter when the server is there again. False when the poll is gone.
  async #pollFor(ms, willPoll) {
    const until = Date.now() + ms;
    if (this.#lastLink !== 'polling') this.#link('reconnecting');
    for (let vain = false; !this.#stopped && !this.#final;) {
      if (willPoll) {
        const link = await this.#poll();
        if (this.#stopped || this.#final) break;
        this.#link(link);
        if (link === 'gone') return false;
        if (link === 'reconnecting') vain = true;
        else if (vain) return true;
      }
      const left = until - Date.now();
      if (left <= 0) return true;
      await this.#sleep(Math.min(left, POLL_MS));
    }
    return true;
  }

  // The link as it turned out. The browser's cache asks with the ETag that it has.
  async #poll() {
    try {
      const response = await fetch(`${this.address}/snapshot`, { signal: AbortSignal.timeout(ASK_MS) });
      if (response.status === 404) return 'gone';
      if (!response.ok) return 'reconnecting';
      this.heard({ kind: 'clock', offset: Number(response.headers.get('X-Now')) - Date.now() });
      if (response.status === 200) this.#snapshot(await response.text());
      return response.headers.get('X-Database') === 'away' ? 'away' : 'polling';
    } catch {
      return 'reconnecting'; // refused, cut or too slow
    }
  }

  #sleep(ms) {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, ms);
      this.#wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }
}
