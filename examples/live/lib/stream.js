// The way to viewers: server-sent events, and polling with ETag for those who cannot have them.
//
//   GET /polls/NAME/stream     event: snapshot, id: epoch:revision; event: beat, every beatMs and when the database
//                              comes or goes. Full snapshot on connect; after the final one the stream ends, and who
//                              comes back with its id gets 204 and stays away
//   GET /polls/NAME/snapshot   the same JSON, ETag "epoch:revision"
//
// A snapshot is complete. So a viewer that does not read fast enough gets the newest one when it reads again, and
// nothing piles up for it here.

import express from 'express';

import { Refusal } from './gate.js';
import { NO_SNAPSHOT } from './states.js';

const BLOCKED_MS = 30_000; // a viewer that reads nothing for that long is cut off
const FRESH_MS = 1000;

function eventOf(state) {
  return `id: ${state.id}\nevent: snapshot\ndata: ${state.json}\n\n`;
}

// request.fresh would not do: fetch() adds Cache-Control: no-cache to a request with a tag of its caller's, and what we
// answer is the newest in any case.
function hasTag(header, tag) {
  return (header ?? '').split(',').some((part) => part.trim().replace(/^W\//, '') === tag);
}

class Stream {
  #blockedSince = null;
  #skipped = null; // the newest state that did not fit

  constructor(response) {
    this.response = response;
    response.on('drain', () => this.#drained());
  }

  // The stream ends behind a final snapshot.
  send(state) {
    if (state === null) return this.end();
    if (state.snapshot === null) return undefined; // hidden
    if (this.#blockedSince !== null) {
      this.#skipped = state;
      return undefined;
    }
    this.#write(eventOf(state));
    return state.snapshot.final ? this.end() : undefined;
  }

  beat(text) {
    if (this.#blockedSince === null) this.#write(text);
    else if (Date.now() - this.#blockedSince > BLOCKED_MS) this.response.destroy();
  }

  // Whoever is slow may have much to read before the end comes; until then there is nothing more to write.
  end() {
    this.#blockedSince ??= Date.now();
    this.response.end();
  }

  #write(text) {
    if (!this.response.writableEnded && !this.response.write(text)) this.#blockedSince = Date.now();
  }

  #drained() {
    if (this.response.writableEnded) return;
    this.#blockedSince = null;
    const state = this.#skipped;
    this.#skipped = null;
    if (state !== null) this.send(state);
  }
}

export class Streams {
  #open = new Set();

  constructor(feed, settings) {
    this.feed = feed;
    this.settings = settings;
    this.timer = setInterval(() => this.#beatAll(), settings.beatMs);
    feed.on('connected', () => this.#beatAll());
  }

  get count() {
    return this.#open.size;
  }

  end() {
    clearInterval(this.timer);
    for (const stream of this.#open) stream.end();
  }

  #beat() {
    return `event: beat\ndata: {"now": ${Date.now()}, "database": ${this.feed.connected}}\n\n`;
  }

  #beatAll() {
    const text = this.#beat();
    for (const stream of this.#open) stream.beat(text);
  }

  async connect(request, response) {
    const { poll } = request.params;
    const state = await this.feed.newest(poll, FRESH_MS);
    if (response.destroyed) return; // it has gone meanwhile, and nothing would tell us again
    if (state === null) throw new Refusal(404, 'unknown_poll', 'There is no poll of this name.');
    // EventSource sends the id of what it saw last; who opens a new one says so in the address.
    const last = request.get('Last-Event-ID') ?? request.query.after;
    response.set('Cache-Control', 'no-store');
    if (request.method === 'HEAD') {
      response.type('text/event-stream').end();
      return;
    }
    if (state.snapshot?.final && last === state.id) {
      response.status(204).end();
      return;
    }
    if (this.#open.size >= this.settings.streams) throw new Refusal(503, 'full', 'No room for one more stream.', 30);
    this.#begin(poll, state, response);
  }

  #begin(poll, state, response) {
    response.set({ 'Content-Type': 'text/event-stream', 'X-Accel-Buffering': 'no' });
    response.socket.setNoDelay(true);
    const stream = new Stream(response);
    this.#open.add(stream);
    // Comes back in 1 to 3 s: not all at once after a restart.
    response.write(`retry: ${1000 + Math.floor(Math.random() * 2000)}\n\n${this.#beat()}`);
    stream.send(state);
    const unsubscribe = state.snapshot?.final ? () => {} : this.feed.subscribe(poll, (newer) => stream.send(newer));
    response.on('close', () => {
      unsubscribe();
      this.#open.delete(stream);
    });
  }

  async poll(request, response) {
    const state = await this.feed.newest(request.params.poll, FRESH_MS);
    if (state === null) throw new Refusal(404, 'unknown_poll', 'There is no poll of this name.');
    response.set({
      'Cache-Control': 'no-cache',
      'X-Now': String(Date.now()),
      'X-Database': this.feed.connected ? 'here' : 'away',
    });
    if (state.id === NO_SNAPSHOT) {
      response.status(204).end(); // hidden
      return;
    }
    const tag = `"${state.id}"`;
    response.set('ETag', tag);
    if (hasTag(request.get('If-None-Match'), tag)) response.status(304).end();
    else response.type('json').send(state.json);
  }
}

export function streamRoutes(streams) {
  const routes = express.Router();
  routes.get('/polls/:poll/stream', (request, response) => streams.connect(request, response));
  routes.get('/polls/:poll/snapshot', (request, response) => streams.poll(request, response));
  return routes;
}
