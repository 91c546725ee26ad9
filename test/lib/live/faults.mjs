// What goes wrong between the page and its poll, in headless Chromium: late, repeated and missing messages, another epoch,
// a page server and a database that are killed, lost answers, no streams, seven tabs.

import { ask, deep, figure, is, ok, sleep, waited } from './check.mjs';
import { Visitor } from './pages.mjs';
import { makePoll, one, publish, published, Site, sql, vote } from './site.mjs';
import { HttpWire } from './wire.mjs';

const AWAY_MS = deep ? 10_000 : 1000; // how long a server stays away, at least
const LABELS = { red: 'Red', blue: 'Blue' };

function eventOf(snapshot) {
  return `id: ${snapshot.epoch}:${snapshot.revision}\nevent: snapshot\ndata: ${JSON.stringify(snapshot)}\n\n`;
}

async function messageTests(browser, site) {
  const wire = await new HttpWire(site).start();
  const visitor = await Visitor.of(browser);
  await makePoll('wire', ['red', 'blue'], '', LABELS);
  const heard = [];
  wire.filter = (event) => {
    if (event.includes('event: snapshot')) heard.push(event);
    return event;
  };
  const tab = await visitor.open(`${wire.address}/polls/wire`);
  await tab.linkIs('live', 'by a wire');
  for (const [choice, red] of [
    ['red', 1],
    ['red', 2],
    ['blue', 2],
  ]) {
    const id = await publish('wire', choice);
    await tab.shows(id, { red, blue: choice === 'blue' ? 1 : 0 }, 'a message');
  }
  const known = await tab.id();
  // What is injected is heard in order: the beat behind it tells that it was.
  for (const late of heard.slice(1)) {
    wire.inject(`${late}\n\nevent: beat\ndata: {"now": 0, "database": false}\n\n`);
    await tab.linkIs('away', 'a late or repeated message');
    await tab.shows(known, { red: 2, blue: 1 }, 'it is ignored');
    wire.inject(`event: beat\ndata: {"now": ${Date.now()}, "database": true}\n\n`);
    await tab.linkIs('live', 'after it');
  }
  ok(heard.length > 3, 'there were late messages');
  const next = await publish('wire', 'red');
  await tab.shows(next, { red: 3, blue: 1 }, 'the next message');
  is(await tab.text('#gaps'), '0', 'there is no gap');
  is(Number(next.split(':')[1]) - Number(known.split(':')[1]), 1, 'the next revision is shown');

  wire.filter = () => '';
  for (let missed = 0; missed < 3; missed++) await publish('wire', 'blue');
  wire.filter = (event) => event;
  await tab.shows(await publish('wire', 'red'), { red: 4, blue: 4 }, 'after three missed messages');
  is(await tab.text('#gaps'), '1', 'which are one gap');
  await tab.shows(await publish('wire', 'red'), { red: 5, blue: 4 }, 'the next message');
  is(await tab.text('#gaps'), '1', 'is none');

  // Another epoch replaces, though its revision is lower; the old one's messages replace again, being another epoch.
  const snapshot = JSON.parse(heard.at(-1).match(/^data: (.*)$/m)[1]);
  wire.inject(
    eventOf({
      ...snapshot,
      epoch: 'restored',
      revision: 2,
      total: '1',
      choices: [
        ['red', 'Red', '1'],
        ['blue', 'Blue', '0'],
      ],
    }),
  );
  await tab.shows('restored:2', { red: 1, blue: 0 }, 'another epoch with a lower revision');
  is(await tab.text('#gaps'), '1', 'is no gap');
  await sql('SELECT poll_tally.renew_epoch()');
  const renewed = await publish('wire', 'red');
  await tab.shows(renewed, { red: 6, blue: 4 }, 'the epoch of the database is renewed');
  ok(renewed.split(':')[0] !== known.split(':')[0], 'to another one');
  await visitor.close();
  wire.stop();
}

async function serverTests(browser) {
  const [dying, other] = [await new Site('dying').start(), await new Site('other').start()];
  await makePoll('killed', ['red', 'blue'], '', LABELS);
  const visitor = await Visitor.of(browser);
  const tab = await visitor.open(`${dying.address}/polls/killed`);
  await tab.linkIs('live', 'before the page server is killed');
  const before = await publish('killed', 'red');
  await tab.shows(before, { red: 1, blue: 0 }, 'before the page server is killed');
  const killedAt = Date.now();
  await dying.end('SIGKILL');
  await tab.linkIs('reconnecting', 'the page server is killed');
  await tab.shows(before, { red: 1, blue: 0 }, 'what was shown stays');
  await tab.accessible('connection lost');
  await tab.vote('Blue');
  await waited(async () => (await tab.receipt()) === 'again', 'a vote waits for the page server');
  for (let missed = 0; missed < 3; missed++) await publish('killed', 'red');
  ok((await fetch(`${other.address}/polls/killed/snapshot`)).ok, 'the other process goes on');
  await sleep(Math.max(0, killedAt + AWAY_MS - Date.now()));
  await dying.start();
  const backAt = Date.now();
  await tab.linkIs('live', 'the page server is back');
  figure(
    `live page: live again ${Date.now() - backAt} ms after its server was back, which was away for ${backAt - killedAt} ms`,
  );
  await waited(async () => (await tab.receipt()) === 'accepted', 'the vote is counted');
  await tab.shows(await published('killed'), { red: 4, blue: 1 }, 'and shown');
  is(
    await one(`SELECT count(*)::int FROM poll_tally.events WHERE poll = 'killed' AND votes::text = '{"blue": 1}'`),
    1,
    'once',
  );
  is(await tab.text('#gaps'), '1', 'the revisions that were missed are one gap');
  await visitor.close();
  await Promise.all([dying.end('SIGTERM'), other.end('SIGTERM')]);
}

// The page that says that there is no answer: axe-core needs script, so the form is sent past that of the page.
async function formAnswerTests(browser, address) {
  const visitor = await Visitor.of(browser);
  const tab = await visitor.open(address);
  await tab.page.getByLabel('Red').check();
  await Promise.all([tab.page.waitForNavigation(), tab.page.evaluate(() => document.getElementById('vote').submit())]);
  is(await tab.text('h1'), 'Not now', 'a form that gets no answer');
  await tab.accessible('no answer, without script');
  await visitor.close();
}

async function databaseTests(browser, site) {
  await makePoll('base', ['red', 'blue'], '', LABELS);
  const visitor = await Visitor.of(browser);
  const tab = await visitor.open(`${site.address}/polls/base`);
  await tab.linkIs('live', 'before the database is killed');
  const before = await publish('base', 'red');
  await tab.shows(before, { red: 1, blue: 0 }, 'before the database is killed');
  const killedAt = Date.now();
  await ask('stop database');
  await tab.linkIs('away', 'the database is killed');
  is(await tab.text('#link'), 'Database away; counts may be behind', 'the page says so');
  await tab.shows(before, { red: 1, blue: 0 }, 'what was shown stays');
  await tab.vote('Blue');
  await waited(async () => (await tab.receipt()) === 'again', 'a vote waits for the database');
  const late = await visitor.open(`${site.address}/polls/base`);
  await late.linkIs('away', 'who comes now');
  is(await late.counts(), { red: 1, blue: 0 }, 'sees what was read last');
  await late.page.close();
  const plain = await Visitor.of(browser, { javaScriptEnabled: false });
  const still = await plain.open(`${site.address}/polls/base`);
  await still.vote('Red');
  const again = still.page.getByRole('button', { name: 'Send the same vote again' });
  ok(await again.isVisible(), 'without script: a vote that got no answer can be sent again');
  await formAnswerTests(browser, `${site.address}/polls/base`);
  await sleep(Math.max(0, killedAt + AWAY_MS - Date.now()));
  await ask('start database');
  await tab.linkIs('live', 'the database is back');
  await waited(async () => ['accepted', 'duplicate'].includes(await tab.receipt()), 'the vote is counted');
  await tab.shows(await published('base'), { red: 1, blue: 1 }, 'and shown');
  await visitor.close();
  await again.click();
  await waited(
    async () => ['accepted', 'duplicate'].includes(await still.receipt()),
    'without script: sent again, it is counted',
  );
  await plain.close();
}

// The answer to a vote is lost behind the server; the page sends the same event again, also after it was loaded anew.
async function lostAnswerTests(browser, site) {
  const wire = await new HttpWire(site).start();
  await makePoll('lost', ['red', 'blue'], '', LABELS);
  for (const reload of [false, true]) {
    const visitor = await Visitor.of(browser);
    const tab = await visitor.open(`${wire.address}/polls/lost`);
    wire.lose = Infinity; // the browser itself sends a second time
    await tab.vote('Red');
    await waited(async () => (await tab.receipt()) === 'again', 'no answer: the same vote is sent again');
    wire.lose = 0;
    if (reload) await tab.page.reload();
    await waited(
      async () => (await tab.receipt()) === 'duplicate',
      `an answer${reload ? ' after the page was loaded anew' : ''}: the receipt`,
    );
    const [event] = await sql('SELECT position::text, poll FROM poll_tally.events WHERE event_id = $1', [
      await tab.fact('Event'),
    ]);
    is({ position: await tab.fact('Position'), poll: 'lost' }, event, 'of the event that was counted the first time');
    await visitor.close();
  }
  is(await one(`SELECT count(*)::int FROM poll_tally.events WHERE poll = 'lost'`), 2, 'each visitor is counted once');
  wire.stop();
}

async function pollingTests(browser, site) {
  const wire = await new HttpWire(site).start();
  wire.refuse = true;
  await makePoll('poll', ['red', 'blue'], '', LABELS);
  const visitor = await Visitor.of(browser);
  const tab = await visitor.open(`${wire.address}/polls/poll`);
  await tab.linkIs('polling', 'streams do not come through');
  await tab.shows(await publish('poll', 'red'), { red: 1, blue: 0 }, 'by polling');
  wire.refuse = false;
  await tab.linkIs('live', 'streams come through');
  await tab.shows(await publish('poll', 'red'), { red: 2, blue: 0 }, 'by the stream');
  await visitor.close();

  const bare = await Visitor.of(browser, {}, 'delete window.SharedWorker; delete window.EventSource');
  const old = await bare.open(`${wire.address}/polls/poll`);
  await old.linkIs('polling', 'a browser without streams');
  await old.shows(await publish('poll', 'red'), { red: 3, blue: 0 }, 'by polling');
  await bare.close();
  const alone = await Visitor.of(browser, {}, 'delete window.SharedWorker');
  const own = await alone.open(`${wire.address}/polls/poll`);
  await own.linkIs('live', 'a browser without shared workers');
  await own.shows(await publish('poll', 'red'), { red: 4, blue: 0 }, 'by a stream of its own');
  await alone.close();
  wire.stop();
}

// A browser has six connections for a server; seven tabs need one.
async function tabTests(browser, site) {
  const wire = await new HttpWire(site).start();
  await makePoll('tabs', ['red', 'blue'], ", counting => 'latest'", LABELS);
  const visitor = await Visitor.of(browser);
  const tabs = [];
  for (let number = 1; number <= 7; number++) {
    const tab = await visitor.open(`${wire.address}/polls/tabs`);
    await tab.linkIs('live', `tab ${number} of 7`);
    tabs.push(tab);
  }
  is([wire.streams.size, wire.opened], [1, 1], 'one stream for all of them');
  await tabs[6].vote('Red');
  await waited(async () => (await tabs[6].receipt()) === 'accepted', 'the seventh can vote');
  const id = await published('tabs');
  for (const [index, tab] of tabs.entries()) await tab.shows(id, { red: 1, blue: 0 }, `tab ${index + 1}`);
  await tabs[0].page.close();
  await tabs[3].vote('Blue');
  await waited(async () => (await tabs[3].receipt()) === 'accepted', 'the first is closed: the others go on');
  const next = await published('tabs');
  for (const [index, tab] of tabs.slice(1).entries()) await tab.shows(next, { red: 0, blue: 1 }, `tab ${index + 2}`);
  await visitor.close();
  await waited(() => wire.streams.size === 0, 'the last is closed: so is the stream');
  wire.stop();
}

// Screen readers hear of changes, and not of each.
async function politeTests(browser, site) {
  await makePoll('polite', ['red', 'blue'], '', LABELS);
  const visitor = await Visitor.of(browser);
  const tab = await visitor.open(`${site.address}/polls/polite`);
  await tab.linkIs('live', 'a screen reader');
  await tab.page.evaluate(() => {
    window.said = [];
    new MutationObserver(() =>
      window.said.push([performance.now(), document.getElementById('status').textContent]),
    ).observe(document.getElementById('status'), { childList: true, characterData: true, subtree: true });
  });
  const until = Date.now() + (deep ? 45_000 : 3000);
  let updates = 0;
  while (Date.now() < until) {
    await publish('polite', 'red');
    updates++;
  }
  const said = await tab.page.evaluate(() => window.said);
  const pauses = said.slice(1).map(([at], index) => at - said[index][0]);
  ok(
    said.length >= (deep ? 4 : 1) && pauses.every((pause) => pause >= 9990),
    `of ${updates} updates it hears ${said.length}, 10 s apart`,
  );
  ok(/^\d+ votes\. Red: \d+, Blue: 0$/.test(said.at(-1)?.[1]), `such as: ${said.at(-1)?.[1]}`);
  is(await tab.page.locator('#status').getAttribute('role'), 'status', 'politely');
  await visitor.close();
}

export async function faultTests(browser, site) {
  await messageTests(browser, site);
  await lostAnswerTests(browser, site);
  await pollingTests(browser, site);
  await tabTests(browser, site);
  await politeTests(browser, site);
  await serverTests(browser);
  await databaseTests(browser, site);
}
