'use strict';
// Sends events to a poll with node-postgres, and gets each counted once, whatever is lost on the way.
//
// usage: node send.js POLL        the server is that of PGHOST, PGPORT, PGUSER, PGPASSWORD and PGDATABASE
//
// An event is made once, id and time included, and sent with the same content until there is an answer. When the
// answer to a COMMIT is lost, nobody knows whether it happened; the retry knows: it gets `duplicate`, and the same
// receipt.

const { randomUUID } = require('node:crypto');
const { setTimeout: sleep } = require('node:timers/promises');
const pg = require('pg');

const TRIES = 8;
const FIRST_PAUSE_MS = 50;
const LONGEST_PAUSE_MS = 2000;
const TRANSACTION_LOST = ['40001', '40P01']; // serialization failure, deadlock
const COUNTED = ['accepted', 'duplicate']; // now, or by an earlier try; whatever else the outcome is, it is not

// Parameters have no type of their own here, so no cast is needed: they take the type of the argument.
const ACCEPT_EVENT = `
  SELECT * FROM poll_tally.accept_event(poll => $1, event_id => $2, choice => $3, principal => $4, votes => $5,
                                        payload => $6, occurred_at => $7)`;
const ACCEPT_EVENTS = `
  SELECT * FROM poll_tally.accept_events(poll => $1, event_ids => $2, principals => $3, votes => $4, payloads => $5,
                                         occurred_ats => $6)`;

// An event is not counted.
class Refused extends Error {
  constructor(receipt) {
    super(`${receipt.outcome}: ${receipt.detail}`);
    this.receipt = receipt;
  }
}

const pool = new pg.Pool();
// A lost connection is an 'error' event too, and one that nobody listens to ends the process.
pool.on('error', () => {});
pool.on('connect', (client) => client.on('error', () => {}));

// A JavaScript array would be sent as an array of PostgreSQL; as JSON text, any value is jsonb.
function json(value) {
  return value === undefined ? null : JSON.stringify(value);
}

// Rolls back and gives the client back; false when its connection is lost.
async function giveBack(client) {
  try {
    await client.query('ROLLBACK');
    client.release();
    return true;
  } catch (error) {
    client.release(error);
    return false;
  }
}

// Commits work(client) and returns what it returned; after a lost transaction, all of it is done again.
async function transaction(work) {
  for (let failures = 1; ; failures++) {
    let client;
    try {
      client = await pool.connect();
      await client.query('BEGIN');
      const result = await work(client);
      await client.query('COMMIT');
      client.release();
      return result;
    } catch (error) {
      const lost = client === undefined || !(await giveBack(client));
      if (error instanceof Refused) throw error;
      if (failures === TRIES || !(lost || TRANSACTION_LOST.includes(error.code))) throw error;
    }
    // Full jitter: those who failed together do not come back together.
    await sleep(Math.random() * Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** (failures - 1)));
  }
}

// The receipt of an event that is counted, now or by an earlier try. Throws Refused.
async function accept({ poll, eventId, choice, principal, votes, payload, occurredAt }) {
  const values = [poll, eventId, choice, principal, json(votes), json(payload), occurredAt];
  return transaction(async (client) => {
    const [receipt] = (await client.query(ACCEPT_EVENT, values)).rows;
    // Leaving by an exception rolls back what else the transaction did.
    if (!COUNTED.includes(receipt.outcome)) throw new Refused(receipt);
    return receipt;
  });
}

// One receipt an event, in their order. Each has its own outcome: look at every one.
async function acceptAll(poll, events) {
  const column = (of) => events.map(of);
  const values = [poll, column((e) => e.eventId), column((e) => e.principal), column((e) => json(e.votes)),
    column((e) => json(e.payload)), column((e) => e.occurredAt)];
  return transaction(async (client) => (await client.query(ACCEPT_EVENTS, values)).rows);
}

// choice, or votes: counts per choice. In a real system, the sender stores this before it sends it.
function newEvent(poll, principal, { choice, votes, payload }) {
  return { poll, eventId: randomUUID(), principal, choice, votes, payload, occurredAt: new Date() };
}

function countedText(receipt) {
  return `${receipt.outcome} at ${receipt.position}, attempt ${receipt.attempt}`;
}

function refusedText(receipt) {
  let text = `refused, ${receipt.retryable ? 'try later' : 'for good'}: ${receipt.outcome}`;
  if (receipt.differs) text += ` of ${receipt.differs}`;
  if (receipt.detail) text += ` (${receipt.detail})`;
  return text;
}

async function send(name, event) {
  try {
    console.log(`${name}: ${countedText(await accept(event))}`);
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    console.log(`${name}: ${refusedText(error.receipt)}`);
  }
}

async function main(poll) {
  const ann = newEvent(poll, 'ann', { choice: 'soup' });
  const bob = newEvent(poll, 'bob', { votes: { soup: 2, pasta: 1 }, payload: { table: 7, note: 'no "salt" \\ très chaud' } });
  await send('one choice', ann);
  await send('the same again', ann);
  await send('votes and payload', bob);
  await send('other votes, same id', { ...bob, votes: { pasta: 3 } });
  await send('unknown choice', newEvent(poll, 'cyd', { choice: 'stew' }));
  await send('unknown poll', newEvent(`no-${poll}`, 'cyd', { choice: 'soup' }));
  const dan = newEvent(poll, 'dan', { votes: { salad: 1 }, payload: [] });
  const eve = newEvent(poll, 'eve', { votes: { salad: 4 }, payload: ['a "list"', null] });
  const batch = [dan, eve, dan, newEvent(poll, 'eve', { votes: { salad: 11 } })];
  for (const receipt of await acceptAll(poll, batch)) {
    const text = COUNTED.includes(receipt.outcome) ? countedText(receipt) : refusedText(receipt);
    console.log(`batch ${receipt.ord}: ${text}`);
  }
}

main(...process.argv.slice(2)).finally(() => pool.end()).catch((error) => {
  console.error(`send: ${error.message}`);
  process.exitCode = 1;
});
