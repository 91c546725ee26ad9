// What the tests of examples/live share: verdicts that test/lib/Live.pm reads from standard output, waits on conditions,
// and what only the test around us can do: stop and start the database.

import { createInterface } from 'node:readline';
import { isDeepStrictEqual } from 'node:util';

const WAIT_MS = Number(process.env.LIVE_WAIT_MS ?? 180_000);
const answers = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
let checks = 0;

export const deep = Boolean(process.env.POLL_TALLY_DEEP);

function print(line) {
  process.stdout.write(`${line.replaceAll('\n', ' ')}\n`);
}

export function note(text) {
  print(`# ${text}`);
}

export function figure(text) {
  print(`figure: ${text}`);
}

export function ok(condition, name) {
  checks++;
  print(`${condition ? 'ok' : 'not ok'} - ${name}`);
  return Boolean(condition);
}

export function is(actual, expected, name) {
  if (!ok(isDeepStrictEqual(actual, expected), name)) {
    note(`   is ${JSON.stringify(actual)}`);
    note(`   should be ${JSON.stringify(expected)}`);
  }
}

export function sleep(ms) {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

// What condition() answers once that is true; an error when it never is.
export async function waitFor(condition, name, ms = WAIT_MS) {
  const until = Date.now() + ms;
  for (;;) {
    const value = await condition();
    if (value) return value;
    if (Date.now() > until) throw new Error(`waited in vain: ${name}`);
    await sleep(20);
  }
}

// waited(condition, name): a check that the condition comes true.
export async function waited(condition, name) {
  let last;
  try {
    await waitFor(async () => (last = await condition()), name);
    ok(true, name);
  } catch (error) {
    if (!error.message.startsWith('waited in vain')) throw error;
    ok(false, name);
  }
  return last;
}

// Asks the test around us to do something, such as `stop database`, and waits until it is done.
export async function ask(what) {
  print(`do: ${what}`);
  const { value } = await answers.next();
  if (value !== 'done') throw new Error(`${what}: ${value}`);
}

// The last line is how many checks were made: a script that ends early is found out.
export async function run(main) {
  try {
    await main();
    print(`checks: ${checks}`);
    process.exit(0);
  } catch (error) {
    note(error.stack);
    ok(false, `ran to its end: ${error.message}`);
    process.exit(1);
  }
}
