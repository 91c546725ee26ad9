// The gate: takes votes over HTTP and answers with receipts.
//
// In front of poll_tally.accept_json, which reads the body strictly, stand: who is it (a signed token), does it come
// from our own pages, is it the method, type and size that we take, and is there room. A fault leaves open whether the
// event was counted; the answer says so, and the sender sends the same event again. Nothing of an event is kept here.

import express from 'express';
import pg from 'pg';

import { isAway, STATUS_OF } from './outcomes.js';
import { authenticate, isCrossSite } from './principal.js';

const RECEIPT = `
SELECT outcome::text, event_id, "position"::text, attempt, retryable, differs, detail,
       to_char(accepted_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') AS accepted_at
FROM poll_tally.accept_json($1, principal => $2)`;

const NO_TEXT = ['22021', '22P05']; // a NUL, and what the database's encoding does not have
const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

// An answer that is no receipt. `retryAfter`, in seconds, where the same event is to be sent again.
export class Refusal extends Error {
  constructor(status, error, detail, retryAfter) {
    super(detail);
    Object.assign(this, { status, error, retryAfter });
  }
}

// Retries of many senders at once come spread out.
function soon(seconds) {
  return seconds + Math.floor(Math.random() * (seconds + 1));
}

export class Gate {
  #busy = 0;

  constructor(settings, log) {
    this.settings = settings;
    this.log = log;
    this.pool = new pg.Pool({
      user: settings.user,
      application_name: 'poll_tally live gate',
      max: settings.pool,
      connectionTimeoutMillis: settings.statementMs,
      statement_timeout: settings.statementMs,
      query_timeout: settings.statementMs + 2000, // a connection that is dead and does not know it
      keepAlive: true,
    });
    this.pool.on('error', (error) => log(`gate: ${error.message}`)); // an idle connection was cut; the pool makes another
  }

  // Runs one statement, if there is room.
  async query(text, values) {
    if (this.#busy >= this.settings.pool + this.settings.queue) {
      throw new Refusal(429, 'busy', 'Too many requests at once.', soon(1));
    }
    this.#busy++;
    try {
      return await this.pool.query(text, values);
    } catch (error) {
      if (!isAway(error)) throw error;
      this.log(`gate: ${error.message}`);
      throw new Refusal(503, 'away', 'The database did not answer.', soon(2));
    } finally {
      this.#busy--;
    }
  }

  async accept(body, principal) {
    try {
      return (await this.query(RECEIPT, [body, principal])).rows[0];
    } catch (error) {
      if (NO_TEXT.includes(error.code)) throw new Refusal(400, 'invalid', 'The database cannot hold this text.');
      if (error.status === 429) error.message += ' Send the same event again.';
      if (error.status === 503) error.message += ' The vote may be counted or not; send the same event again.';
      throw error;
    }
  }

  end() {
    return this.pool.end();
  }
}

// Who votes, or the refusal.
function principalOf(settings, request) {
  const who = authenticate(settings.secret, request);
  if (who === null) throw new Refusal(401, 'unauthorized', 'A signed cookie or a bearer token must say who votes.');
  if (who.by === 'cookie' && isCrossSite(request)) {
    throw new Refusal(403, 'cross_site', 'The request comes from another site.');
  }
  return who.principal;
}

function text(buffer) {
  try {
    return utf8.decode(buffer);
  } catch {
    throw new Refusal(400, 'invalid', 'The body is not UTF-8.');
  }
}

// Bodies of one type and of bounded size, as bytes.
function bodyOf(type, limit) {
  const parse = express.raw({ type, limit, inflate: false });
  return (request, response, next) => {
    if (!request.is(type)) throw new Refusal(415, 'unsupported_type', `The body must be ${type}.`);
    parse(request, response, next);
  };
}

// The fields of a form as the JSON object that the strict reader takes. It judges names and repetitions too: repeated
// fields are repeated members.
function formToJson(form, poll) {
  const members = [['poll_id', poll], ...new URLSearchParams(form)];
  return `{${members.map(([name, value]) => `${JSON.stringify(name)}: ${JSON.stringify(value)}`).join(', ')}}`;
}

function onlyPost(request) {
  throw Object.assign(new Refusal(405, 'method', `${request.method} is not for this address.`), { allow: 'POST' });
}

// The routes. showReceipt(request, response, poll, receipt) answers a form with a page.
export function gateRoutes(gate, settings, showReceipt) {
  const routes = express.Router();
  const who = (request, response, next) => {
    request.principal = principalOf(settings, request);
    next();
  };

  routes
    .route('/events')
    .post(who, bodyOf('application/json', settings.maxBody), async (request, response) => {
      const receipt = await gate.accept(text(request.body), request.principal);
      response.status(STATUS_OF[receipt.outcome]).set('Cache-Control', 'no-store').json(receipt);
    })
    .all(onlyPost);

  routes.post(
    '/polls/:poll',
    who,
    bodyOf('application/x-www-form-urlencoded', settings.maxBody),
    async (request, response) => {
      const { poll } = request.params;
      const receipt = await gate.accept(formToJson(text(request.body), poll), request.principal);
      await showReceipt(request, response.status(STATUS_OF[receipt.outcome]), poll, receipt);
    },
  );
  return routes;
}
