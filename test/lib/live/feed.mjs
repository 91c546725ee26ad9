// What viewers get over HTTP: the stream, polling, pages; two processes, forged and lost messages, a database that goes.

import { ask, deep, figure, is, ok, waited, waitFor } from './check.mjs';
import {
  body,
  makePoll,
  newSession,
  one,
  openStream,
  post,
  publish,
  published,
  Site,
  sql,
  vote,
} from './site.mjs';
import { PostgresWire } from './wire.mjs';

const HOSTILE = `<script>alert(1)</script><img src=x onerror=alert(2)>"'&\u202e`;

function countsOf(snapshot) {
  return Object.fromEntries(snapshot.choices.map(([choice, , count]) => [choice, Number(count)]));
}

async function streamTests(one_, two) {
  await makePoll('show', ['red', 'blue'], '', { red: 'Red' });
  const first = await publish('show', 'red');
  const streams = [openStream(one_, 'show'), openStream(two, 'show')];
  for (const stream of streams) await waitFor(() => stream.last(), 'a snapshot');
  is(
    streams.map((stream) => stream.last().id),
    [first, first],
    'both processes: the full snapshot on connect, under its epoch and revision',
  );
  is(countsOf(streams[0].last().data), { red: 1, blue: 0 }, 'with every choice');
  is(streams[0].last().data.choices[0][1], 'Red', 'and labels');
  is(streams[0].headers['content-type'], 'text/event-stream; charset=utf-8', 'server-sent events');
  for (let round = 1; round <= 5; round++) {
    const id = await publish('show', 'blue');
    for (const stream of streams) await waitFor(() => stream.last().id === id, id);
  }
  is(streams[0].snapshots(), streams[1].snapshots(), 'what is published later, the same from both');
  is(countsOf(streams[0].last().data), { red: 1, blue: 5 }, 'with the counts of the newest');
  is(
    await one(`SELECT count(*)::int FROM pg_stat_activity WHERE application_name = 'poll_tally live feed'`),
    2,
    'one connection that listens in each of two processes',
  );

  const known = streams[0].last().id;
  const again = openStream(two, 'show', { 'Last-Event-ID': known });
  is(
    (await waitFor(() => again.last(), 'a snapshot')).id,
    known,
    'who comes back gets the newest in full, from the other process too',
  );
  return { streams: [...streams, again], known };
}

async function forgedTests({ streams, known }) {
  const stranger = await newSession({ user: 'stranger' });
  const message = JSON.parse(await one(`SELECT poll_tally.snapshot_message('show')::text`));
  const forged = [
    { ...message, revision: message.revision + 1, counts: { red: 999 } },
    { ...message, revision: 1e6 },
    { ...message, epoch: 'x', revision: 1 },
    { ...message, final: true, revision: message.revision + 1 },
    { ...message, pollId: 'lunch' },
    { ...message, pollId: {} },
    null,
    7,
    [],
    'x',
    {},
  ];
  for (const payload of forged) await stranger.query(`SELECT pg_notify('poll_tally', $1)`, [JSON.stringify(payload)]);
  for (const payload of ['', '{', '\u0001']) await stranger.query(`SELECT pg_notify('poll_tally', $1)`, [payload]);
  const before = streams.map((stream) => stream.snapshots().length);
  const id = await publish('show', 'red');
  for (const stream of streams) await waitFor(() => stream.last().id === id, id);
  is(
    streams.map((stream) => stream.snapshots().length),
    before.map((count) => count + 1),
    'none of 14 forged messages was believed',
  );
  is(countsOf(streams[0].last().data), { red: 2, blue: 5 }, 'the next snapshot is the true one');
  is(
    id.split(':').map((part, index) => (index ? Number(part) - 1 : part)),
    known.split(':').map((part, index) => (index ? Number(part) : part)),
    'and the next revision',
  );
  await stranger.end();
}

async function finalTests({ streams }, one_, two) {
  await sql(`SELECT poll_tally.close_poll('show')`);
  const final = await one(`SELECT epoch || ':' || revision FROM poll_tally.snapshot('show')`);
  for (const stream of streams) await waitFor(() => stream.ended, 'the stream ends');
  is(
    streams.map((stream) => [stream.last().id, stream.last().data.final]),
    streams.map(() => [final, true]),
    'the final snapshot, and the end of the stream',
  );
  const late = openStream(one_, 'show');
  await waitFor(() => late.ended, 'the stream ends');
  is([late.status, late.last().id], [200, final], 'who comes later gets the final snapshot');
  for (const site of [one_, two]) {
    const back = openStream(site, 'show', { 'Last-Event-ID': final });
    await waitFor(() => back.ended, 'an answer');
    is(back.status, 204, 'who has it gets 204 and stays away');
  }
  const page = await post(one_, '', { method: 'GET', path: '/polls/show', headers: { Accept: 'text/html' } });
  ok(
    page.answer.includes('Final result') && !page.answer.includes('<form'),
    'the page says that it is final and has no form',
  );
}

async function pollingTests(one_, two) {
  await makePoll('slow', ['a']);
  const get = (site, etag) =>
    fetch(`${site.address}/polls/slow/snapshot`, { headers: etag ? { 'If-None-Match': etag } : {} });
  const first = await get(one_);
  const etag = first.headers.get('ETag');
  is(
    [first.status, etag],
    [200, `"${await published('slow')}"`],
    'polling: the snapshot, with epoch and revision as its ETag',
  );
  const revisited = await get(two, etag);
  is([revisited.status, await revisited.text()], [304, ''], 'nothing newer: 304, from the other process too');
  const id = await publish('slow', 'a');
  await waited(async () => (await get(two, etag)).status === 200, 'something newer: 200');
  is((await (await get(two, etag)).json()).revision, Number(id.split(':')[1]), 'with the newer revision');
  is((await fetch(`${one_.address}/polls/nothing/snapshot`)).status, 404, 'no such poll: 404');
  is((await fetch(`${one_.address}/polls/nothing/stream`)).status, 404, 'in the stream too');
}

async function hiddenTests(site) {
  await makePoll('secret', ['a', 'b'], ', hidden_until_close => true');
  const stream = openStream(site, 'secret');
  await waitFor(() => stream.events.length > 0, 'a beat');
  await vote('secret', 'a', 3);
  is((await fetch(`${site.address}/polls/secret/snapshot`)).status, 204, 'a hidden poll has no snapshot');
  const page = await (await fetch(`${site.address}/polls/secret`)).text();
  ok(
    page.includes('hidden until it closes') && page.includes('<form') && !page.includes('<tr data-choice="a"'),
    'its page has a form and no counts',
  );
  is(stream.snapshots(), [], 'nothing came by the stream');
  await sql(`SELECT poll_tally.close_poll('secret')`);
  await waitFor(() => stream.ended, 'the stream ends');
  is([stream.last().data.revision, countsOf(stream.last().data)], [1, { a: 3, b: 0 }], 'then its final snapshot does');
}

async function hostileTests(site) {
  const choice = `<b>x</b>'&`;
  await makePoll('h<i>', [choice], '', { [choice]: HOSTILE });
  await sql(`SELECT poll_tally.alter_poll('h<i>', title => $1)`, [HOSTILE]);
  const response = await fetch(
    `${site.address}/polls/${encodeURIComponent('h<i>')}?lang=${encodeURIComponent('"><script>')}`,
  );
  const page = await response.text();
  is([...page.matchAll(/<script[ >]/g)].length, 1, 'the page has no script but its own');
  ok(!/<img|<b>|<i>|onerror=alert\(2\)>"/.test(page), 'no markup of a title, label, name or choice');
  ok(
    page.includes('&lt;script&gt;alert(1)&lt;/script&gt;&lt;img src=x onerror=alert(2)&gt;&quot;&#39;&amp;'),
    'they are shown as they are',
  );
  const csp = response.headers.get('Content-Security-Policy');
  ok(
    /^default-src 'none'/.test(csp) && !/unsafe|\*|data:|http/.test(csp),
    'the policy allows nothing but our own files',
  );
  is(response.headers.get('X-Content-Type-Options'), 'nosniff', 'and no guessing of types');
  ok(
    /^live_principal=[^;]+;.* HttpOnly; SameSite=Lax/.test(response.headers.get('Set-Cookie')),
    'the cookie is for this site alone, and not for scripts',
  );
  const list = await (await fetch(`${site.address}/`)).text();
  ok(!/<img|<i>/.test(list) && list.includes('/polls/h%3Ci%3E"'), 'the list of polls escapes too');
}

// Counts beyond 2^53, and more choices than a snapshot holds.
async function largeTests(site) {
  await sql(`SELECT poll_tally.create_counter('large', publish_every => '100 milliseconds')`);
  await sql(`SELECT poll_tally.accept_event('large', 'large-1', votes => '{"a": 9007199254740993, "b": -5}')`);
  await published('large');
  const text = await (await fetch(`${site.address}/polls/large/snapshot`)).text();
  ok(
    text.includes('["a",null,"9007199254740993"]') && text.includes('["b",null,"-5"]'),
    'counts beyond 2^53 are exact',
  );
  ok(
    (await (await fetch(`${site.address}/polls/large?lang=de`)).text()).includes('9.007.199.254.740.993'),
    'on the page too, in German',
  );
  await sql(`SELECT poll_tally.accept_events('large', array_agg('wide-' || g), votes => array_agg(jsonb_build_object('c' || g, 1)))
    FROM generate_series(1, 1001) AS g`);
  const id = await published('large');
  const wide = await waitFor(async () => {
    const snapshot = await (await fetch(`${site.address}/polls/large/snapshot`)).json();
    return `${snapshot.epoch}:${snapshot.revision}` === id && snapshot;
  }, 'the wide snapshot');
  is([wide.choices, wide.includedPosition], [null, '1002'], 'more than 1,000 choices: position without counts');
  ok((await (await fetch(`${site.address}/polls/large`)).text()).includes('too many choices'), 'and the page says so');
}

// The messages do not come through; the table is read again.
async function lostMessageTests() {
  const wire = await new PostgresWire(`${process.env.PGHOST}/.s.PGSQL.${process.env.PGPORT}`).start();
  const site = await new Site('deaf', { PGHOST: '127.0.0.1', PGPORT: String(wire.port), LIVE_REREAD_S: '1' }).start();
  await makePoll('mute', ['a']);
  const stream = openStream(site, 'mute');
  await waitFor(() => stream.last(), 'a snapshot');
  let id = await publish('mute', 'a');
  await waited(() => stream.last().id === id, 'a message comes through, and a snapshot');
  wire.deaf = true;
  id = await publish('mute', 'a');
  await waited(() => stream.last().id === id, 'no message comes through: the snapshot comes with the next reading');
  ok(wire.lost > 0, 'a message was lost');
  wire.deaf = false;

  const beats = stream.events.length;
  wire.cut();
  await vote('mute', 'a');
  await waited(
    () => stream.events.slice(beats).some(({ event, data }) => event === 'beat' && !data.database),
    'its connections are cut: viewers are told',
  );
  id = await published('mute');
  await waited(() => stream.last().id === id, 'it reads again after it came back');
  await waited(
    () => stream.events.at(-1).event === 'snapshot' || stream.events.at(-1).data.database,
    'and says that the database is there',
  );
  ok(!stream.ended, 'the stream lasted');
  stream.close();
  await site.end('SIGTERM');
  is(await site.exited, 0, 'SIGTERM ends a process in good order');
  wire.stop();
}

async function databaseTests(site) {
  await makePoll('storm', ['a']);
  const stream = openStream(site, 'storm');
  await waitFor(() => stream.last(), 'a snapshot');
  const before = await publish('storm', 'a');
  await waitFor(() => stream.last().id === before, before);
  await ask('stop database');
  const text = body('storm', 'a', 'storm-1');
  const away = await post(site, text, { principal: 'sam' });
  is([away.status, away.answer.retryable], [503, true], 'the database is away: 503');
  ok(/^[1-9]\d*$/.test(away.headers.get('Retry-After')), 'with Retry-After');
  const page = await fetch(`${site.address}/polls/storm`);
  is(
    [page.status, (await page.text()).includes(`data-id="${before}"`)],
    [200, true],
    'what was read last is still shown',
  );
  is((await fetch(`${site.address}/polls/never-asked-for`)).status, 503, 'what was not: 503');
  await ask('start database');
  const back = await waitFor(async () => {
    const answer = await post(site, text, { principal: 'sam' });
    return answer.status !== 503 && answer;
  }, 'the gate is back');
  ok([200, 201].includes(back.status), 'the same event is accepted when it is back');
  is((await post(site, text, { principal: 'sam' })).answer.position, back.answer.position, 'once');
  const id = await published('storm');
  await waited(() => stream.last().id === id, 'and comes by the stream, which lasted');
  stream.close();
}

// A viewer that does not read gets the newest snapshot when it reads again; nothing piles up for it.
async function slowViewerTests(site) {
  const choices = Array.from({ length: 1000 }, (_, index) => `choice-${index}-${'x'.repeat(40)}`);
  await sql(`SELECT poll_tally.create_poll('heavy', $1, counting => 'every', publish_every => '10 milliseconds')`, [
    choices,
  ]);
  await sql(
    `SELECT poll_tally.accept_events('heavy', array_agg('heavy-' || g), array_agg(c), array_agg('p'::text))
    FROM unnest($1::text[]) WITH ORDINALITY AS c (c, g)`,
    [choices],
  );
  await published('heavy');
  const stream = openStream(site, 'heavy');
  await waitFor(() => stream.last(), 'a snapshot');
  stream.pause();
  const rounds = 300;
  for (let round = 0; round < rounds; round++) await publish('heavy', choices[0]);
  const id = await published('heavy');
  stream.resume();
  await waited(() => stream.last().id === id, 'a viewer that was slow gets the newest snapshot');
  ok(stream.snapshots().length < rounds, `and not all in between: ${stream.snapshots().length} of ${rounds}`);
  stream.close();
}

// Many viewers of one process.
async function manyTests(site) {
  const count = 1000;
  await makePoll('crowd', ['a']);
  const streams = Array.from({ length: count }, () => openStream(site, 'crowd'));
  await waitFor(() => streams.every((stream) => stream.last()), 'all have a snapshot');
  const start = Date.now();
  await vote('crowd', 'a');
  await waitFor(() => streams.every((stream) => countsOf(stream.last().data).a === 1), 'all have the vote');
  figure(
    `live page: ${count} viewers of one process have a vote ${Date.now() - start} ms after it was sent, 100 ms of which is the publication interval`,
  );
  for (const stream of streams) stream.close();
}

export async function feedTests(one_, two) {
  const viewers = await streamTests(one_, two);
  await forgedTests(viewers);
  await finalTests(viewers, one_, two);
  await pollingTests(one_, two);
  await hiddenTests(two);
  await hostileTests(two);
  await largeTests(two);
  await lostMessageTests();
  if (deep) await slowViewerTests(two);
  if (deep) await manyTests(two);
  await databaseTests(two);
}
