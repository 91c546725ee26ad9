// The page of examples/live in headless Chromium. See test/t/071_live_browser.pl.

import { figure, is, ok, run, waited, waitFor } from './check.mjs';
import { faultTests } from './faults.mjs';
import { complaints, openBrowser, Visitor } from './pages.mjs';
import { makePoll, one, publish, published, Site, sql, vote } from './site.mjs';

const HOSTILE = `<script>alert(1)</script><img src=x onerror=alert(2)>"'&`;
const LABELS = { red: 'Red', blue: 'Blue' };
let rules = 0; // that axe applied

async function voteTests(browser, one_, two) {
  await makePoll('show', ['red', 'blue'], ", title => 'Which one?'", LABELS);
  const [ann, bob] = [await Visitor.of(browser), await Visitor.of(browser)];
  const watching = await ann.open(`${one_.address}/polls/show`);
  await watching.linkIs('live', 'a viewer');
  const voting = await bob.open(`${two.address}/polls/show`);
  rules += await watching.accessible('live');
  await voting.vote('Blue');
  await waited(
    async () => (await voting.receipt()) === 'accepted',
    'a vote in another tab, at another process: its receipt',
  );
  const id = await published('show');
  await watching.shows(id, { red: 0, blue: 1 }, 'the viewer');
  await voting.shows(id, { red: 0, blue: 1 }, 'the voter');
  const [event] = await sql(`SELECT event_id, position::text, principal FROM poll_tally.events WHERE poll = 'show'`);
  is(
    [await voting.fact('Event'), await voting.fact('Position')],
    [event.event_id, event.position],
    'the receipt is that of the ledger',
  );
  ok(/^guest-/.test(event.principal), 'the principal is the one of the cookie');
  is(await voting.page.locator('#vote').isVisible(), false, 'who may vote once has no form any more');
  rules += await voting.accessible('after the vote');
  is(
    [await watching.text('#revision'), await watching.text('#position'), await watching.text('#gaps')],
    ['2', '1', '0'],
    'revision, position, and no gap',
  );
  ok(/^\d\d:\d\d:\d\d$/.test(await watching.text('#as-of')), 'as of when');
  await waited(async () => /^[1-9]\d* s ago$/.test(await watching.text('#age')), 'and how long ago');

  await voting.page.reload();
  await voting.vote('Red');
  await waited(
    async () => (await voting.receipt()) === 'already_responded',
    'a second vote of the same visitor is refused',
  );
  await bob.close();
  return { ann, watching };
}

// Rows stay where they are, however the counts change.
async function orderTests(browser, one_, { watching }) {
  const order = async (tab) => (await tab.rows()).map(([choice]) => choice);
  const first = await watching.page.locator('#rows tr').first().elementHandle();
  for (const choice of ['red', 'blue', 'red']) await publish('show', choice, 3);
  const id = await published('show');
  await watching.shows(id, { red: 6, blue: 4 }, 'other leaders');
  is(await order(watching), ['red', 'blue'], 'the rows stay in order');
  ok(await first.evaluate((row) => row.isConnected && row.dataset.choice === 'red'), 'the row is the same one');
  is(
    (await watching.rows()).map(([, , , share]) => share),
    ['60.0%', '40.0%'],
    'shares',
  );
  is(await watching.page.locator('rect').first().getAttribute('width'), '60%', 'a bar as long as its share');

  await sql(`SELECT poll_tally.create_counter('open', publish_every => '100 milliseconds')`);
  await sql(`SELECT poll_tally.accept_event('open', 'o-1', votes => '{"m": 1, "z": 1}')`);
  await published('open');
  const visitor = await Visitor.of(browser);
  const tab = await visitor.open(`${one_.address}/polls/open`);
  await tab.linkIs('live', 'a counter');
  await sql(`SELECT poll_tally.accept_event('open', 'o-2', votes => '{"a": 5}')`);
  await tab.shows(await published('open'), { m: 1, z: 1, a: 5 }, 'a new choice');
  is(await order(tab), ['m', 'z', 'a'], 'a new choice comes last, though the server would sort it first');
  await visitor.close();
}

async function keyboardTests(browser, one_) {
  const visitor = await Visitor.of(browser);
  const tab = await visitor.open(`${one_.address}/polls/show`);
  const focused = () =>
    tab.page.evaluate(() => `${document.activeElement.tagName} ${document.activeElement.value ?? ''}`.trim());
  for (let presses = 0; presses < 5 && !(await focused()).startsWith('INPUT'); presses++)
    await tab.page.keyboard.press('Tab');
  is(await focused(), 'INPUT red', 'keyboard: Tab comes to the choices');
  const outline = await tab.page
    .locator('label.choice')
    .first()
    .evaluate((label) => getComputedStyle(label).outlineStyle);
  is(outline, 'solid', 'keyboard: one sees where the focus is');
  await tab.page.keyboard.press('ArrowDown');
  await tab.page.keyboard.press('Tab');
  is(await focused(), 'BUTTON', 'keyboard: an arrow chooses, Tab goes on to the button');
  await tab.page.keyboard.press('Enter');
  await waited(async () => (await tab.receipt()) === 'accepted', 'keyboard: Enter votes');
  await waited(
    () => tab.page.evaluate(() => document.activeElement.id === 'receipt'),
    'keyboard: the focus is at the answer',
  );
  is(
    await one(`SELECT votes::text FROM poll_tally.events ORDER BY accepted_at DESC LIMIT 1`),
    '{"blue": 1}',
    'keyboard: for what was chosen',
  );
  await visitor.close();
}

async function noScriptTests(browser, one_) {
  const visitor = await Visitor.of(browser, { javaScriptEnabled: false });
  const tab = await visitor.open(`${one_.address}/polls/show`);
  const before = Number((await tab.text('#total')).replace(/\D/g, ''));
  is(
    [before, await tab.link()],
    [await one(`SELECT total::int FROM poll_tally.snapshot('show')`), 'static'],
    'without script: the counts are there',
  );
  ok((await tab.text('noscript')).includes('Load it again'), 'without script: the page says that it stands still');
  await tab.vote('Red');
  await tab.page.waitForLoadState();
  is(await tab.receipt(), 'accepted', 'without script: a vote and its receipt');
  is(await tab.page.locator('#vote').count(), 0, 'without script: who may vote once has no form any more');
  const position = await tab.fact('Position');
  await tab.page.reload();
  is(
    [await tab.receipt(), await tab.fact('Position')],
    ['duplicate', position],
    'without script: sent again by reloading, the same receipt',
  );
  await tab.page.goto(`${one_.address}/polls/show`);
  await tab.vote('Red');
  is(await tab.receipt(), 'already_responded', 'without script: a second vote is refused');
  await visitor.close();
}

async function shapeTests(browser, one_) {
  const address = `${one_.address}/polls/show`;
  // A window at 200 % has half as many CSS pixels; 320 are what 400 % leaves of 1,280.
  for (const [name, options] of [
    ['at 200 %', { viewport: { width: 640, height: 400 }, deviceScaleFactor: 2 }],
    ['at 400 %', { viewport: { width: 320, height: 256 }, deviceScaleFactor: 4 }],
    ['dark', { colorScheme: 'dark' }],
    ['without motion', { reducedMotion: 'reduce' }],
  ]) {
    const visitor = await Visitor.of(browser, options);
    const tab = await visitor.open(address);
    await tab.linkIs('live', name);
    ok((await tab.overflow()) <= 0, `${name}: nothing to scroll sideways`);
    const inside = await tab.page
      .locator('#rows .count, #rows .share span, button, .facts dd')
      .evaluateAll((nodes) =>
        nodes.every(
          (node) => node.getBoundingClientRect().left >= 0 && node.getBoundingClientRect().right <= innerWidth,
        ),
      );
    ok(inside, `${name}: all numbers and the button are in view`);
    const moves = await tab.page
      .locator('rect')
      .first()
      .evaluate((bar) => getComputedStyle(bar).transitionDuration);
    is(
      moves,
      name === 'without motion' ? '0s' : '0.4s',
      `${name}: bars ${name === 'without motion' ? 'do not move' : 'move'}`,
    );
    rules += await tab.accessible(name);
    await visitor.close();
  }
  const visitor = await Visitor.of(browser);
  const tab = await visitor.open(address);
  await tab.page.evaluate(() => {
    document.documentElement.style.fontSize = '200%';
  });
  ok((await tab.overflow()) <= 0, 'text of twice the size: nothing to scroll sideways');
  await visitor.close();
}

async function languageTests(browser, one_) {
  for (const [locale, before, share, after] of [
    ['de-DE', '1.234.567', '100,0\u00a0%', '1.234.568'],
    ['en-IN', '12,34,567', '100.0%', '12,34,568'],
    ['ar-EG', '١٬٢٣٤٬٥٦٧', '١٠٠٫٠٪\u061c', '١٬٢٣٤٬٥٦٨'],
  ]) {
    await sql(
      `SELECT poll_tally.create_poll($1, '{a,b}', counting => 'every', max_weight => 10000000, publish_every => '100 milliseconds')`,
      [locale],
    );
    await sql(`SELECT poll_tally.accept_event($1, $1 || '-1', votes => '{"a": 1234567}', principal => 'p')`, [locale]);
    await published(locale);
    const rendered = await Visitor.of(browser, { locale, javaScriptEnabled: false });
    const still = await rendered.open(`${one_.address}/polls/${locale}`);
    is((await still.rows())[0].slice(2), [before, share], `${locale}: numbers as rendered`);
    await rendered.close();
    const visitor = await Visitor.of(browser, { locale });
    const tab = await visitor.open(`${one_.address}/polls/${locale}`);
    await tab.linkIs('live', locale);
    await vote(locale, 'a');
    await waited(async () => (await tab.rows())[0][2] === after, `${locale}: and as updated`);
    await visitor.close();
  }
}

async function hostileTests(browser, one_) {
  const choice = `<b>x</b>'&`;
  await makePoll('hostile', [choice, 'plain'], '', { [choice]: HOSTILE });
  await sql(`SELECT poll_tally.alter_poll('hostile', title => $1)`, [HOSTILE]);
  const visitor = await Visitor.of(browser);
  const tab = await visitor.open(`${one_.address}/polls/hostile`);
  await tab.linkIs('live', 'hostile texts');
  is([await tab.text('h1'), await tab.page.title()], [HOSTILE, HOSTILE], 'a title is text');
  await tab.vote(HOSTILE);
  await waited(async () => (await tab.receipt()) === 'accepted', 'a choice with markup in its name can be voted for');
  await tab.shows(await published('hostile'), { [choice]: 1, plain: 0 }, 'hostile texts');
  is((await tab.rows())[0].slice(0, 2), [choice, HOSTILE], 'a label is text, rendered and updated');
  is(await tab.page.locator('img, main script, main b').count(), 0, 'and nothing of it is markup');
  rules += await tab.accessible('hostile texts');
  await visitor.close();
}

async function listTests(browser, one_) {
  const visitor = await Visitor.of(browser);
  const list = await visitor.open(`${one_.address}/`);
  rules += await list.accessible('the list of polls');
  await list.page.getByRole('link', { name: 'Which one?' }).click();
  await list.linkIs('live', 'a link leads to the poll');
  const none = await visitor.open(`${one_.address}/polls/none`);
  is([none.status, await none.text('h1')], [404, 'Not found'], 'no such poll: a page that says so');
  rules += await none.accessible('not found');
  await visitor.close();
}

async function endTests(browser, one_, { ann, watching }) {
  await makePoll('secret', ['red', 'blue'], ', hidden_until_close => true', LABELS);
  await waitFor(async () => (await fetch(`${one_.address}/polls/secret`)).ok, 'this process has its database back, too');
  const hidden = await ann.open(`${one_.address}/polls/secret`);
  await hidden.linkIs('live', 'a hidden poll');
  ok(
    (await hidden.text('#note')).includes('hidden') && !(await hidden.page.locator('table').isVisible()),
    'a hidden poll shows no counts',
  );
  rules += await hidden.accessible('hidden');
  await vote('secret', 'blue', 2);
  for (const [poll, tab] of [
    ['secret', hidden],
    ['show', watching],
  ]) {
    await sql('SELECT poll_tally.close_poll($1)', [poll]);
    await tab.linkIs('final', `${poll} is closed`);
    const counts = JSON.parse(await one(`SELECT (poll_tally.snapshot_message($1) -> 'counts')::text`, [poll]));
    is(await tab.counts(), counts, `${poll} is closed: its final counts${poll === 'secret' ? ', revealed' : ''}`);
    is(await tab.page.locator('#vote').count(), 0, `${poll} is closed: no form`);
    rules += await tab.accessible(`${poll}, final`);
  }
  const late = await ann.open(`${one_.address}/polls/show`);
  is([await late.link(), await late.text('#link')], ['final', 'Final result'], 'who comes later sees the final result');
}

async function main() {
  const [one_, two] = await Promise.all([new Site('one').start(), new Site('two').start()]);
  const browser = await openBrowser();
  const watched = await voteTests(browser, one_, two);
  await orderTests(browser, one_, watched);
  await keyboardTests(browser, one_);
  await noScriptTests(browser, one_);
  await shapeTests(browser, one_);
  await languageTests(browser, one_);
  await hostileTests(browser, one_);
  await listTests(browser, one_);
  await faultTests(browser, two);
  await endTests(browser, one_, watched);
  is(complaints, [], 'no uncaught error, no dialog, no violation of the policy');
  is(
    await one('SELECT count(*)::int FROM poll_tally.polls AS p, poll_tally.verify_poll(p.poll) AS v WHERE NOT v.ok'),
    0,
    'verify_poll',
  );
  figure(`live page: axe-core, 0 violations in ${rules} rules applied`);
  await browser.close();
}

run(main);
