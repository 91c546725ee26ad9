// The newest snapshot of each poll that somebody looks at, and who is to hear of the next one.
//
// One connection a process, which listens and reads. A NOTIFY is a hint that asking is worth while: any role can send
// one. What is shown comes from the table alone, so that any number of processes show the same and none is needed to
// tell the others. Everything is read again after a reconnect and every rereadMs, should a message be lost.
//
// Invariant: at most one read is under way; whatever is wanted meanwhile goes into the next one.

import { EventEmitter } from 'node:events';
import pg from 'pg';

import { isIdentifier } from './identifier.js';
import { readStates } from './states.js';

const KEEP_MS = 60_000; // a poll that nobody asked for that long is forgotten
const BATCH = 500; // polls in one read
const MIN_READ_MS = 20; // between two reads, however many messages come
const STANDBY_READ_MS = 1000; // a standby cannot LISTEN

export class Away extends Error {}

export class Feed extends EventEmitter {
  #client = null;
  #entries = new Map(); // poll -> { state, readAt, usedAt, listeners }
  #wanted = new Map(); // poll -> functions to call once it has been read
  #reading = false;
  #stopped = false;
  #wake = () => {};

  constructor({ user, rereadMs, log }) {
    super();
    Object.assign(this, { user, rereadMs, log, connected: false });
  }

  // Resolves once it is known whether the database is there.
  start() {
    return new Promise((resolve) => {
      this.running = this.#run(resolve);
    });
  }

  async stop() {
    this.#stopped = true;
    this.#wake();
    this.#client?.end().catch(() => {}); // it may be broken already
    await this.running;
  }

  // The state of a poll, read not longer than maxAgeMs ago; null when there is no such poll. While the database is
  // away it is what was read last; without that, Away. What cannot be a name is not asked for: an error of the server
  // would end the session, for all viewers.
  async newest(poll, maxAgeMs) {
    if (!isIdentifier(poll)) return null;
    const entry = this.#entries.get(poll);
    if (entry !== undefined) {
      entry.usedAt = Date.now();
      if (!this.connected || Date.now() - entry.readAt <= maxAgeMs) return entry.state;
    }
    if (!this.connected) throw new Away('the database is away');
    try {
      await new Promise((resolve, reject) => this.#want(poll, { resolve, reject }));
    } catch (error) {
      if (entry === undefined) throw error;
    }
    return this.#entries.get(poll)?.state ?? null;
  }

  // listener(state) is called with each newer state, and with null when the poll is gone. Returns what ends that.
  subscribe(poll, listener) {
    const entry = this.#entries.get(poll);
    if (entry === undefined) {
      listener(null);
      return () => {};
    }
    entry.listeners.add(listener);
    return () => entry.listeners.delete(listener);
  }

  // --- reading ------------------------------------------------------------------------------------------------------

  #want(poll, waiter) {
    const waiters = this.#wanted.get(poll) ?? [];
    if (waiter !== undefined) waiters.push(waiter);
    this.#wanted.set(poll, waiters);
    this.#read();
  }

  async #read() {
    if (this.#reading || this.#client === null) return;
    this.#reading = true;
    while (this.#wanted.size > 0 && this.#client !== null) {
      const batch = [...this.#wanted].slice(0, BATCH);
      for (const [poll] of batch) this.#wanted.delete(poll);
      await this.#readBatch(batch);
      await new Promise((resolve) => setTimeout(resolve, MIN_READ_MS));
    }
    this.#reading = false;
  }

  async #readBatch(batch) {
    const client = this.#client;
    const known = batch.map(([poll]) => this.#entries.get(poll)?.state ?? { poll });
    try {
      const states = await readStates(client, known);
      for (const [poll, waiters] of batch) {
        this.#store(poll, states.get(poll), waiters.length > 0);
        for (const waiter of waiters) waiter.resolve();
      }
    } catch (error) {
      for (const [, waiters] of batch) for (const waiter of waiters) waiter.reject(new Away(error.message));
      client.emit('error', error); // ends the session; the next one reads all of it again
    }
  }

  #store(poll, state, asked) {
    const entry = this.#entries.get(poll);
    const now = Date.now();
    if (state === undefined) {
      this.#entries.delete(poll);
      for (const listener of entry?.listeners ?? []) listener(null);
    } else if (entry === undefined) {
      this.#entries.set(poll, { state, readAt: now, usedAt: now, listeners: new Set() });
    } else {
      const moved = state.id !== entry.state.id;
      Object.assign(entry, { state, readAt: now, usedAt: asked ? now : entry.usedAt });
      if (moved) for (const listener of entry.listeners) listener(state);
    }
  }

  #rereadAll() {
    for (const [poll, entry] of this.#entries) {
      const forgotten = entry.listeners.size === 0 && Date.now() - entry.usedAt > KEEP_MS;
      if (forgotten) this.#entries.delete(poll);
      else this.#want(poll);
    }
  }

  // A message; whoever sent it. It is worth a read when it tells of a poll that is watched and of a snapshot that is
  // newer than ours, or of another epoch.
  #hear(payload) {
    let message;
    try {
      message = JSON.parse(payload);
    } catch {
      return; // no message of the worker's
    }
    const snapshot = this.#entries.get(message?.pollId)?.state.snapshot;
    if (snapshot === undefined) return;
    if (snapshot === null || message.epoch !== snapshot.epoch || message.revision > snapshot.revision) {
      this.#want(message.pollId);
    }
  }

  // --- the connection -----------------------------------------------------------------------------------------------

  #setConnected(connected) {
    if (this.connected === connected) return;
    this.connected = connected;
    this.emit('connected', connected);
  }

  async #run(tried) {
    for (let tries = 0; !this.#stopped; tries++) {
      try {
        await this.#session(() => {
          tries = 0;
          tried();
        });
      } catch (error) {
        if (!this.#stopped) this.log(`feed: ${error.message}`);
      }
      tried();
      this.#setConnected(false);
      if (!this.#stopped) await this.#pause(Math.min(5000, 100 * 2 ** tries) * (0.5 + Math.random()));
    }
  }

  #pause(ms) {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, ms);
      this.#wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }

  async #session(established) {
    const client = new pg.Client({
      user: this.user,
      application_name: 'poll_tally live feed',
      connectionTimeoutMillis: 5000,
      query_timeout: 10_000, // a connection that is dead and does not know it
      keepAlive: true,
    });
    const ended = new Promise((resolve, reject) => {
      client.on('error', reject);
      client.on('end', () => reject(new Error('the connection ended')));
    });
    ended.catch(() => {}); // it may end before it is awaited
    let timer;
    try {
      await client.connect();
      client.on('notification', ({ payload }) => this.#hear(payload));
      const listens = await this.#listen(client);
      this.#client = client;
      this.#setConnected(true);
      established();
      // Listen first, then ask: what comes in between is heard.
      this.#rereadAll();
      timer = setInterval(() => this.#rereadAll(), listens ? this.rereadMs : STANDBY_READ_MS);
      await ended;
    } finally {
      clearInterval(timer);
      this.#client = null;
      this.#refuseWaiters();
      client.end().catch(() => {}); // it may be broken already
    }
  }

  async #listen(client) {
    try {
      await client.query('LISTEN poll_tally');
      return true;
    } catch (error) {
      if (error.code !== '25006') throw error;
      return false;
    }
  }

  #refuseWaiters() {
    for (const waiters of this.#wanted.values())
      for (const waiter of waiters) waiter.reject(new Away('the database is away'));
    this.#wanted.clear();
  }
}
