// Page servers of examples/live, the database behind them as its superuser sees it, and votes over HTTP.

import { spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { createWriteStream } from 'node:fs';
import { createRequire } from 'node:module';
import http from 'node:http';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';

import { note, waitFor } from './check.mjs';

export const LIVE = fileURLToPath(new URL('../../../examples/live', import.meta.url));
export const packages = createRequire(`${LIVE}/package.json`);
const pg = packages('pg');
const { issueToken } = await import(`${LIVE}/lib/principal.js`);

export const SECRET = 'a secret of the tests, long enough to be one';

// --- the database -----------------------------------------------------------------------------------------------------

let admin = null;

// The superuser's connection; a new one after the database was away.
export async function sql(text, values = []) {
  if (admin === null) {
    admin = new pg.Client({ application_name: 'test' });
    admin.on('error', () => {
      admin = null;
    });
    await admin.connect();
  }
  return (await admin.query(text, values)).rows;
}

export async function one(text, values = []) {
  return Object.values((await sql(text, values))[0] ?? {})[0];
}

export async function newSession(options = {}) {
  const client = new pg.Client(options);
  client.on('error', (error) => note(`session: ${error.message}`));
  await client.connect();
  return client;
}

export async function makePoll(poll, choices, options = '', labels = {}) {
  await sql(`SELECT poll_tally.create_poll($1, publish_every => '100 milliseconds'${options})`, [poll]);
  for (const choice of choices)
    await sql('SELECT poll_tally.add_choice($1, $2, $3)', [poll, choice, labels[choice] ?? null]);
}

// Votes past the gate.
export async function vote(poll, choice, count = 1) {
  const accepted = await one(
    `SELECT count(*)::int FROM generate_series(1, $3) AS g,
     poll_tally.accept_event($1, g || '-' || gen_random_uuid(), $2, gen_random_uuid()::text) AS a WHERE a.outcome = 'accepted'`,
    [poll, choice, count],
  );
  if (accepted !== count) throw new Error(`${accepted} of ${count} votes accepted`);
}

// Votes, and waits until they are published; the newest snapshot's id.
export async function publish(poll, choice, count = 1) {
  await vote(poll, choice, count);
  return published(poll);
}

export async function published(poll) {
  await waitFor(() => one('SELECT gap = 0 FROM poll_tally.lag WHERE poll = $1', [poll]), `${poll} is published`);
  return one(`SELECT epoch || ':' || revision FROM poll_tally.snapshot($1)`, [poll]);
}

// --- page servers -----------------------------------------------------------------------------------------------------

export class Site {
  static all = [];

  constructor(name, env = {}, command = [process.execPath, `${LIVE}/server.js`]) {
    Object.assign(this, { name, command, port: 0 });
    // Nothing is read again by the hour: what viewers get, messages and new connections brought about.
    this.env = { LIVE_SECRET: SECRET, LIVE_GUESTS: '1', LIVE_REREAD_S: '3600', PGUSER: 'live_page', ...env };
    Site.all.push(this);
  }

  // On a free port the first time, on the same one after that.
  async start() {
    const [program, ...args] = this.command;
    const log = createWriteStream(`${process.env.TESTLOGDIR ?? '/tmp'}/live_${this.name}.log`, { flags: 'a' });
    const env = { ...process.env, ...this.env, LIVE_PORT: String(this.port) };
    this.child = spawn(program, args, { stdio: ['ignore', 'pipe', 'pipe'], env });
    this.child.stderr.pipe(log);
    this.exited = new Promise((resolve) => this.child.on('exit', (code, signal) => resolve(signal ?? code)));
    const lines = createInterface(this.child.stdout);
    const listening = new Promise((resolve) => {
      lines.on('line', (line) => {
        const address = /^listening on (\S+)\/$/.exec(line)?.[1];
        if (address !== undefined) resolve(address);
      });
    });
    const address = await Promise.race([listening, this.exited]);
    if (typeof address !== 'string' || !address.startsWith('http'))
      throw new Error(`${this.name} did not start: ${address}`);
    this.address = address;
    this.port = Number(new URL(address).port);
    return this;
  }

  async end(signal) {
    this.child.kill(signal);
    return this.exited;
  }
}

// However this process ends.
process.on('exit', () => {
  for (const { child } of Site.all) child?.kill('SIGKILL');
});

// --- requests ---------------------------------------------------------------------------------------------------------

export function token(principal, seconds = 600) {
  return issueToken(SECRET, principal, seconds);
}

export function body(poll, choice, id = randomUUID()) {
  return JSON.stringify({ event_id: id, poll_id: poll, candidate_id: choice });
}

// A vote as a program sends it; { status, answer, headers }.
export async function post(
  site,
  text,
  { principal = `voter-${randomUUID()}`, headers = {}, path = '/events', method = 'POST' } = {},
) {
  const response = await fetch(site.address + path, {
    method,
    headers: {
      'Content-Type': 'application/json',
      ...(principal === null ? {} : { Authorization: `Bearer ${token(principal)}` }),
      ...headers,
    },
    body: method === 'GET' || method === 'HEAD' ? undefined : text,
  });
  const content = await response.text();
  const isJson = (response.headers.get('Content-Type') ?? '').includes('json');
  return {
    status: response.status,
    headers: response.headers,
    answer: isJson && content !== '' ? JSON.parse(content) : content,
  };
}

// Server-sent events, as they come: { status, events: [{ event, id, data }], ended, close() }.
export function openStream(site, poll, headers = {}) {
  const stream = { events: [], ended: false, status: null };
  const request = http.get(
    `${site.address}/polls/${encodeURIComponent(poll)}/stream`,
    { headers, agent: false },
    (response) => {
      stream.status = response.statusCode;
      stream.headers = response.headers;
      stream.pause = () => response.pause();
      stream.resume = () => response.resume();
      let text = '';
      response.setEncoding('utf8');
      response.on('data', (chunk) => {
        text += chunk;
        const blocks = text.split('\n\n');
        text = blocks.pop();
        for (const block of blocks) {
          const fields = Object.fromEntries(block.split('\n').map((line) => line.split(/: (.*)/s, 2)));
          if (fields.data !== undefined) stream.events.push({ ...fields, data: JSON.parse(fields.data) });
        }
      });
      response.on('close', () => {
        stream.ended = true;
      });
      response.on('error', () => {}); // cut: it has ended
    },
  );
  request.on('error', () => {
    stream.ended = true;
  });
  stream.close = () => request.destroy();
  stream.snapshots = () => stream.events.filter(({ event }) => event === 'snapshot');
  stream.last = () => stream.snapshots().at(-1);
  return stream;
}
