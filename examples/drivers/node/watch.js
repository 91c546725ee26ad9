'use strict';
// Watches a poll with node-postgres: prints each state that it sees, and ends with the final one.
//
// usage: node watch.js POLL        the server is that of PGHOST, PGPORT, PGUSER, PGPASSWORD and PGDATABASE
//
// Any role can send on a channel and any message can be lost, so a notification only says that it is worth asking;
// snapshot() tells what is true, after a notification as after a lost connection.

const { setTimeout: sleep } = require('node:timers/promises');
const pg = require('pg');

const ASK_MS = 10000; // ask at least so often, should the connection be dead and not know it
const FIRST_PAUSE_MS = 50;
const LONGEST_PAUSE_MS = 2000;

const SNAPSHOT = 'SELECT * FROM poll_tally.snapshot(poll => $1, epoch => $2, after_revision => $3)';

// What we have. A bigint comes as text, since a JavaScript number holds only 53 bits.
const state = { epoch: null, revision: null, gaps: 0, final: false };
let failures = 0;

// The client rule. True when there is another state to show.
function apply(snapshot) {
  const revision = BigInt(snapshot.revision);
  if (snapshot.epoch === state.epoch) {
    if (revision <= state.revision) return false; // lower: late; equal: known
    if (revision > state.revision + 1n) state.gaps += 1; // counts are complete each time, so a gap is no loss
  }
  Object.assign(state, { epoch: snapshot.epoch, revision, final: snapshot.final });
  return true;
}

async function ask(client, poll) {
  const { rows } = await client.query(SNAPSHOT, [poll, state.epoch, state.revision]);
  failures = 0;
  if (rows.length === 0 || !apply(rows[0])) return; // no row: we have the newest
  const s = rows[0];
  console.log(`revision ${s.revision}, position ${s.included_position}: ${s.counts}, total ${s.total}`
    + `${state.final ? ', final' : ''}, gaps ${state.gaps}`);
}

// Until the final snapshot; throws when the connection is lost.
async function follow(client, poll) {
  let wake = () => {};
  let heard = false;
  let lost = null;
  client.on('notification', () => { heard = true; wake(); });
  client.on('error', (error) => { lost = error; wake(); });
  await client.connect();
  const { rows: [{ channel }] } = await client.query('SELECT poll_tally.channel($1)', [poll]);
  await client.query(`LISTEN ${channel}`); // a name that needs no quoting
  // Listen first, then ask: what is published in between is heard.
  await ask(client, poll);
  while (!state.final) {
    if (!heard && !lost) {
      const timer = setTimeout(() => wake(), ASK_MS);
      await new Promise((resolve) => { wake = resolve; });
      clearTimeout(timer);
    }
    if (lost) throw lost;
    heard = false; // one question answers all that were heard
    await ask(client, poll);
  }
}

async function main(poll) {
  while (!state.final) {
    const client = new pg.Client({ keepAlive: true });
    try {
      await follow(client, poll);
    } catch (error) {
      if (error instanceof pg.DatabaseError && error.severity === 'ERROR') throw error; // not of the connection
      console.error(`watch: ${error.message}`);
      failures = Math.min(failures + 1, 10);
      await sleep(Math.random() * Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** (failures - 1)));
    } finally {
      client.end().catch(() => {});
    }
  }
}

main(...process.argv.slice(2)).catch((error) => {
  console.error(`watch: ${error.message}`);
  process.exitCode = 1;
});
