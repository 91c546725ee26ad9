// The gate and the stream of examples/live over HTTP, without a browser. See test/t/070_live_gate.pl.

import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import net from 'node:net';

import { deep, figure, is, ok, run, waited, waitFor } from './check.mjs';
import {
  body,
  LIVE,
  makePoll,
  newSession,
  one,
  openStream,
  post,
  SECRET,
  Site,
  sql,
  token,
  vote,
} from './site.mjs';
import { postgrestTests } from './postgrest.mjs';
import { feedTests } from './feed.mjs';
import { viewerTests } from './slow.mjs';

const { STATUS_OF } = await import(`${LIVE}/lib/outcomes.js`);
const { formatter } = await import(`${LIVE}/public/format.js`);
const { issueToken } = await import(`${LIVE}/lib/principal.js`);

// Every outcome that a gate can answer: [outcome, poll, principal, choice or whole body].
const CASES = [
  ['accepted', 'lunch', 'ann', body('lunch', 'soup', 'event-1')],
  ['duplicate', 'lunch', 'ann', body('lunch', 'soup', 'event-1')],
  ['conflict', 'lunch', 'ann', body('lunch', 'salad', 'event-1')],
  ['conflict', 'lunch', 'bob', body('lunch', 'soup', 'event-1')],
  ['already_responded', 'lunch', 'ann', body('lunch', 'salad', 'event-2')],
  ['unknown_poll', 'supper', 'ann', body('supper', 'soup')],
  ['unknown_choice', 'lunch', 'cyd', body('lunch', 'stew')],
  ['closed', 'over', 'ann', body('over', 'a')],
  ['not_open', 'later', 'ann', body('later', 'a')],
  ['not_eligible', 'members', 'ann', body('members', 'a')],
  ['limit_reached', 'seats', 'bob', body('seats', 'a')],
  ['invalid', 'lunch', 'dan', body('lunch', 'so up')],
  ['invalid', 'lunch', 'dan', '{"event_id": "e", "poll_id": "lunch", "candidate_id": "soup", "principal": "eve"}'],
  ['invalid', 'lunch', 'dan', '{"event_id": "e", "event_id": "e", "poll_id": "lunch", "candidate_id": "soup"}'],
  ['invalid', 'lunch', 'dan', '{"event_id": "e", "poll_id": "lunch"}'],
  ['invalid', 'lunch', 'dan', '{"event_id": 7, "poll_id": "lunch", "candidate_id": "soup"}'],
  ['invalid', 'lunch', 'dan', '{"event_id": "e\\u0000", "poll_id": "lunch", "candidate_id": "soup"}'],
  ['invalid', 'lunch', 'dan', '[]'],
  ['invalid', 'lunch', 'dan', ''],
];

async function polls() {
  await makePoll('lunch', ['soup', 'salad']);
  await makePoll('over', ['a']);
  await sql(`SELECT poll_tally.close_poll('over')`);
  await makePoll('later', ['a'], ", opens_at => now() + interval '1 day'");
  await makePoll('members', ['a'], ', restricted => true');
  await makePoll('seats', ['a'], ', max_count => 1');
  await vote('seats', 'a');
}

// The statuses stand in three places.
async function tableTests() {
  const reference = readFileSync(`${LIVE}/../../docs/reference.md`, 'utf8');
  const section = reference.slice(
    reference.indexOf('## Outcomes over HTTP'),
    reference.indexOf('Statuses that are no outcome'),
  );
  const documented = Object.fromEntries(
    [...section.matchAll(/^\| `(\w+)` \| (\d+) \|/gm)].map(([, outcome, status]) => [outcome, Number(status)]),
  );
  is(documented, { ...STATUS_OF }, 'docs/reference.md has the statuses of the gate');
  const known = (await sql(`SELECT unnest(enum_range(NULL::poll_tally.outcome))::text AS outcome`)).map(
    ({ outcome }) => outcome,
  );
  const ofRetractions = ['unknown_event', 'nothing_to_retract'];
  is(
    Object.keys(STATUS_OF).sort(),
    known.filter((outcome) => !ofRetractions.includes(outcome)).sort(),
    'every outcome of an event has one',
  );
}

async function outcomeTests(site) {
  const receipts = [];
  for (const [outcome, , principal, text] of CASES) {
    const { status, answer } = await post(site, text, { principal });
    is(
      [answer.outcome, status],
      [outcome, STATUS_OF[outcome]],
      `${outcome} is ${STATUS_OF[outcome]}: ${text.slice(0, 70)}`,
    );
    receipts.push(answer);
  }
  const [accepted, duplicate, conflict] = receipts;
  is({ ...duplicate, outcome: 'accepted' }, accepted, 'the duplicate has the original receipt');
  is(conflict.differs, ['votes'], 'the conflict says what differs');
  const row = (
    await sql(`SELECT principal, position::text, attempt FROM poll_tally.events WHERE event_id = 'event-1'`)
  )[0];
  is(
    row,
    { principal: 'ann', position: accepted.position, attempt: accepted.attempt },
    'the ledger has what the receipt says',
  );
  is(
    await one(`SELECT count(*)::int FROM poll_tally.events WHERE principal IN ('dan', 'eve')`),
    0,
    'what was invalid is not in it',
  );
}

async function whoTests(site) {
  const text = () => body('lunch', 'soup');
  const origin = { Origin: site.address };
  const refused = async (name, expected, options) => {
    const { status, answer, headers } = await post(site, text(), options);
    is([status, answer.error], expected, name);
    return headers;
  };
  const good = token('eve');
  const as = (value) => ({ principal: null, headers: { Authorization: `Bearer ${value}` } });
  const cookie = (headers = {}) => ({
    principal: null,
    headers: { Cookie: `x=1; live_principal=${token(`eve-${randomUUID()}`)}`, ...headers },
  });
  const headers = await refused('no token', [401, 'unauthorized'], { principal: null });
  is(headers.get('WWW-Authenticate'), 'Bearer', 'says what it wants');
  const last = good.at(-1) === 'A' ? 'B' : 'A';
  await refused('a forged signature', [401, 'unauthorized'], as(good.slice(0, -1) + last));
  await refused(
    'the name of another',
    [401, 'unauthorized'],
    as(good.replace(/^[^.]+/, Buffer.from('ann').toString('base64url'))),
  );
  await refused(
    'a later expiry',
    [401, 'unauthorized'],
    as(good.replace(/\.(\d+)\./, (_, time) => `.${Number(time) + 1}.`)),
  );
  await refused('an expired token', [401, 'unauthorized'], as(token('eve', -1)));
  await refused("another secret's token", [401, 'unauthorized'], as(issueToken(`${SECRET}!`, 'eve', 60)));
  await refused('no token at all', [401, 'unauthorized'], as('x'));
  await refused('a bad token beside a good cookie', [401, 'unauthorized'], {
    principal: null,
    headers: { ...cookie().headers, Authorization: 'Basic x' },
  });
  await refused(
    'a cookie with a request of another site',
    [403, 'cross_site'],
    cookie({ Origin: 'https://elsewhere.example' }),
  );
  await refused('a cookie from nowhere', [403, 'cross_site'], cookie({ Origin: 'null' }));
  await refused('a cookie, cross-site', [403, 'cross_site'], cookie({ 'Sec-Fetch-Site': 'cross-site' }));
  await refused('a cookie from a neighbour', [403, 'cross_site'], cookie({ 'Sec-Fetch-Site': 'same-site', ...origin }));
  is(
    await one(`SELECT count(*)::int FROM poll_tally.events WHERE principal LIKE 'eve%'`),
    0,
    'none of them was counted',
  );
  is(
    (await post(site, text(), cookie({ 'Sec-Fetch-Site': 'same-origin', ...origin }))).status,
    201,
    'a cookie with a request of our page',
  );
  is((await post(site, text(), as(good))).status, 201, 'a good token');
}

async function formTests(site) {
  const refused = async (name, status, options, content = body('lunch', 'soup')) => {
    const answer = await post(site, content, options);
    is(answer.status, status, name);
    return answer;
  };
  for (const method of ['GET', 'PUT', 'DELETE', 'PATCH', 'HEAD']) {
    const { headers } = await refused(`${method} /events`, 405, { method });
    is(headers.get('Allow'), 'POST', 'only POST is allowed');
  }
  for (const type of ['text/plain', 'application/x-www-form-urlencoded', 'multipart/form-data; boundary=x']) {
    await refused(`a body of type ${type}`, 415, { headers: { 'Content-Type': type } });
  }
  await refused('a compressed body', 415, { headers: { 'Content-Encoding': 'gzip' } });
  await refused('a large body', 413, {}, body('lunch', 'soup').padEnd(4097));
  await refused('a body as large as allowed', 201, {}, body('lunch', 'soup').padEnd(4096));
  await refused('bytes that are no UTF-8', 400, {}, Buffer.from([0x7b, 0xff, 0x7d]));
  await refused('a NUL byte', 400, {}, Buffer.from([0x7b, 0x00, 0x7d]));
  const { answer } = await refused('an address that is none', 404, { path: '/nowhere' });
  is(Object.keys(answer), ['error', 'detail', 'retryable'], 'a refusal is JSON');
}

// Votes of a form, as browsers without script send them.
async function formPostTests(site) {
  const id = randomUUID();
  const cookie = `live_principal=${token('nora')}`;
  const send = (fields, headers = {}) =>
    post(site, new URLSearchParams(fields).toString(), {
      path: '/polls/lunch',
      principal: null,
      headers: { 'Content-Type': 'application/x-www-form-urlencoded', Accept: 'text/html', Cookie: cookie, ...headers },
    });
  const first = await send({ event_id: id, candidate_id: 'soup' });
  is(first.status, 201, 'a form is accepted');
  const position = await one('SELECT position::text FROM poll_tally.events WHERE event_id = $1', [id]);
  ok(first.answer.includes(`<dd>${position}</dd>`), 'and answered by a page with the receipt');
  const second = await send({ event_id: id, candidate_id: 'soup' });
  ok(second.status === 200 && second.answer.includes(`<dd>${position}</dd>`), 'sent again: the same receipt');
  is((await send({ event_id: id, candidate_id: 'salad' })).status, 422, 'with another choice: a conflict');
  is(
    (
      await send([
        ['event_id', randomUUID()],
        ['candidate_id', 'soup'],
        ['poll_id', 'over'],
      ])
    ).status,
    400,
    'a form does not choose its poll',
  );
  is((await send({ event_id: randomUUID(), candidate_id: 'soup', principal: 'ann' })).status, 400, 'nor its principal');
  is(
    (await send({ event_id: randomUUID(), candidate_id: 'soup' }, { Origin: 'https://elsewhere.example' })).status,
    403,
    'nor comes from another site',
  );
}

function feeds() {
  return one(`SELECT array_agg(pid ORDER BY pid)::text FROM pg_stat_activity WHERE application_name = 'poll_tally live feed'`);
}

// What cannot be the name of a poll: the database is not asked, since its error would end the session of all viewers.
async function nameTests(site) {
  const before = await feeds();
  for (const name of ['%00', 'a%00b', '%E2%82%AC', '%22', 'x'.repeat(65), '%20', '%0A']) {
    for (const path of [`/polls/${name}`, `/polls/${name}/snapshot`, `/polls/${name}/stream`]) {
      is((await post(site, '', { method: 'GET', path })).status, 404, `GET ${path.slice(0, 30)}`);
    }
    const headers = { 'Content-Type': 'application/x-www-form-urlencoded' };
    const fields = new URLSearchParams({ event_id: randomUUID(), candidate_id: 'soup' }).toString();
    is((await post(site, fields, { path: `/polls/${name}`, headers })).status, 404, `a form for ${name.slice(0, 20)}`);
  }
  is((await post(site, '', { method: 'GET', path: '/polls/lunch' })).status, 200, 'the page of a poll, after them');
  is(await feeds(), before, 'no session was ended');
}

// A database of another encoding: what it cannot hold is invalid there.
async function encodingTests() {
  await sql(`CREATE DATABASE latin TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C'`);
  const session = await newSession({ database: 'latin' });
  await session.query('CREATE EXTENSION poll_tally');
  await session.query(readFileSync(`${LIVE}/setup.sql`, 'utf8'));
  await session.query(`SELECT poll_tally.create_poll('lunch', '{soup}')`);
  await session.end();
  const site = await new Site('latin', { PGDATABASE: 'latin' }).start();
  const { status, answer } = await post(site, body('lunch', 'soup', '\u20ac'));
  is([status, answer.error], [400, 'invalid'], 'a character that the database does not have: 400');
  is((await post(site, body('lunch', 'soup'))).status, 201, 'others are accepted');
  await site.end('SIGTERM');
}

// A poll of one lane whose lane is taken: its votes wait.
async function blockLane(poll) {
  const session = await newSession();
  await session.query('BEGIN');
  await session.query(`SELECT outcome FROM poll_tally.accept_event_or_raise($1, $2, 'a', $2)`, [poll, randomUUID()]);
  return async () => {
    await session.query('COMMIT');
    await session.end();
  };
}

function waitingVotes() {
  return one(
    `SELECT count(*)::int FROM pg_stat_activity WHERE application_name = 'poll_tally live gate' AND wait_event_type = 'Lock'`,
  );
}

async function fullTests(site) {
  await makePoll('narrow', ['a'], ', max_lanes => 1');
  const release = await blockLane('narrow');
  const first = [post(site, body('narrow', 'a')), post(site, body('narrow', 'a'))]; // one connection, one place in the queue
  await waited(async () => (await waitingVotes()) === 1, 'a vote waits');
  const text = body('narrow', 'a');
  const full = await post(site, text, { principal: 'late' });
  is([full.status, full.answer.retryable], [429, true], 'a full pool is 429');
  ok(/^[1-9]\d*$/.test(full.headers.get('Retry-After')), 'with Retry-After in seconds');
  const again = await fullFormTests(site);
  await release();
  is(
    (await Promise.all(first)).map(({ status }) => status),
    [201, 201],
    'those that waited are accepted',
  );
  is((await post(site, text, { principal: 'late' })).status, 201, 'and the refused one, sent again');
  is((await again()).status, 201, 'and that of the form');
  is((await again()).status, 200, 'once');
}

// Without script: the page that says that it is full has the same vote to send again. Returns what sends it.
async function fullFormTests(site) {
  const options = {
    path: '/polls/narrow',
    principal: 'form',
    headers: { 'Content-Type': 'application/x-www-form-urlencoded', Accept: 'text/html' },
  };
  const fields = { event_id: 'of-a-form', candidate_id: `a"'<&>` };
  const { status, answer } = await post(site, new URLSearchParams(fields).toString(), options);
  const hidden = [...answer.matchAll(/<input type="hidden" name="([^"]*)" value="([^"]*)">/g)];
  is(
    [status, hidden.map(([, name, value]) => [name, value])],
    [429, [['event_id', 'of-a-form'], ['candidate_id', 'a&quot;&#39;&lt;&amp;&gt;']]],
    'a form that came to a full pool: the page has its fields',
  );
  ok(answer.includes('<form class="again" method="post" action="">') && !answer.includes('Try again'), 'to be sent again');
  fields.candidate_id = 'a';
  const first = await post(site, new URLSearchParams(fields).toString(), options);
  const said = [...first.answer.matchAll(/<input type="hidden" name="([^"]*)" value="([^"]*)">/g)];
  return () => post(site, new URLSearchParams(said.map(([, name, value]) => [name, value])).toString(), options);
}

// The connection is cut when the vote is counted and the answer not read.
async function lostAnswerTests(site, other) {
  for (let round = 1; round <= (deep ? 50 : 5); round++) {
    const [id, principal] = [randomUUID(), `lost-${round}`];
    const text = body('lunch', 'salad', id);
    const socket = net.connect(site.port, '127.0.0.1');
    socket.on('error', () => {}); // it is cut
    socket.write(
      `POST /events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${token(principal)}\r\n` +
        `Content-Type: application/json\r\nContent-Length: ${text.length}\r\n\r\n${text}`,
    );
    await waitFor(
      () => one('SELECT count(*) > 0 FROM poll_tally.events WHERE event_id = $1', [id]),
      'the vote is counted',
    );
    socket.destroy();
    const ledger = await one(
      `SELECT jsonb_build_array(position::text, to_char(accepted_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'))
       FROM poll_tally.events WHERE event_id = $1`,
      [id],
    );
    const answers = [await post(site, text, { principal }), await post(other, text, { principal })];
    is(
      answers.map(({ status, answer }) => [status, answer.position, answer.accepted_at]),
      [
        [200, ...ledger],
        [200, ...ledger],
      ],
      `answer lost, round ${round}: both processes show the receipt that the ledger has`,
    );
  }
}

// The page server is killed while the database counts the vote.
async function killedGateTests(site, other) {
  const release = await blockLane('narrow');
  const text = body('narrow', 'a', 'killed');
  const lost = post(site, text, { principal: 'kim' }).catch((error) => error);
  await waitFor(async () => (await waitingVotes()) === 1, 'the vote waits');
  await site.end('SIGKILL');
  ok((await lost) instanceof Error, 'killed: nobody answers');
  await release();
  await waitFor(
    () => one(`SELECT count(*) > 0 FROM poll_tally.events WHERE event_id = 'killed'`),
    'the vote is counted',
  );
  is((await post(other, text, { principal: 'kim' })).status, 200, 'the other process has its receipt');
  await site.start();
}

// The one command: a server of its own, polls, and votes of an audience; gone without a trace when it is stopped.
async function demoTests() {
  const site = await new Site('demo', { PGHOST: '', PGPORT: '', PGUSER: '', PGDATABASE: '' }, ['/bin/bash', `${LIVE}/start`, '--demo']).start();
  const stream = openStream(site, 'encore');
  await waited(() => Number(stream.last()?.data.total) > 5, 'the demo has an audience that votes');
  is(await site.end('SIGTERM'), 143, 'and ends when it is told to');
  await waited(() => stream.ended, 'with its page');
}

// The hour of the day makes no difference to how a time looks.
function timeTests() {
  for (const [hour, text] of [
    [0, '00:03:04 UTC'],
    [9, '09:03:04 UTC'],
    [23, '23:03:04 UTC'],
  ]) {
    const date = new Date(Date.UTC(2026, 0, 2, hour, 3, 4));
    const later = new Date(date.getTime() + 13 * 3600 * 1000);
    is(formatter('en-GB', 'UTC').asOf(date, date), text, `the time of day: ${text}`);
    is(formatter('en-GB', 'UTC').asOf(date, later), `2 Jan 2026, ${text}`, `with its day: ${text}`);
  }
}

async function main() {
  timeTests();
  await polls();
  // The first one as everybody starts it.
  const one_ = await new Site('one', { LIVE_POOL: '1', LIVE_QUEUE: '1' }, ['/bin/bash', `${LIVE}/start`]).start();
  const two = await new Site('two').start();
  await tableTests();
  await outcomeTests(one_);
  await whoTests(two);
  await formTests(two);
  await formPostTests(two);
  await nameTests(two);
  await encodingTests();
  await viewerTests();
  await fullTests(one_);
  await lostAnswerTests(two, one_);
  await killedGateTests(one_, two);
  await postgrestTests(CASES, STATUS_OF);
  await feedTests(one_, two);
  if (deep) await demoTests();
  is(
    await one(`SELECT count(*)::int FROM poll_tally.polls AS p, poll_tally.verify_poll(p.poll) AS v WHERE NOT v.ok`),
    0,
    'verify_poll',
  );
  figure(`live gate: ${CASES.length} outcomes over HTTP, ${deep ? 50 : 5} answers lost, 1 process killed in a vote`);
}

run(main);
