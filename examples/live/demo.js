// The demo: the page, and an audience that votes at its gate as any sender would, with bearer tokens. It ends when it
// is interrupted; the votes end when the polls close.

import { spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';

import { issueToken } from './lib/principal.js';

// How likely each choice is, to begin with; the audience's mood drifts.
const AUDIENCE = { encore: { harbour: 5, paper: 3, north: 4, rain: 1 }, prize: { ida: 3, foxes: 4, quartet: 3 } };

function pick(weights) {
  let left = Math.random() * Object.values(weights).reduce((sum, weight) => sum + weight, 0);
  for (const [choice, weight] of Object.entries(weights)) {
    left -= weight;
    if (left <= 0) return choice;
  }
  return Object.keys(weights)[0];
}

// A vote of a new guest, sent again until there is an answer. False once the poll is closed.
async function vote(address, poll, choice) {
  const body = JSON.stringify({ event_id: randomUUID(), poll_id: poll, candidate_id: choice });
  const token = issueToken(process.env.LIVE_SECRET, `audience-${randomUUID()}`, 600);
  for (;;) {
    const response = await fetch(`${address}events`, {
      method: 'POST',
      headers: { 'Content-Type': 'application/json', Authorization: `Bearer ${token}` },
      body,
    });
    const answer = await response.json();
    if (answer.outcome !== undefined) return answer.outcome !== 'closed';
    if (!answer.retryable) throw new Error(`${response.status} ${answer.detail}`);
    await new Promise((resolve) => setTimeout(resolve, 1000 * Number(response.headers.get('Retry-After'))));
  }
}

async function audience(address, poll, weights) {
  while (await vote(address, poll, pick(weights))) {
    const choices = Object.keys(weights);
    const choice = choices[Math.floor(Math.random() * choices.length)];
    weights[choice] = Math.max(1, weights[choice] + Math.random() - 0.5);
    await new Promise((resolve) => setTimeout(resolve, 50 + 400 * Math.random()));
  }
}

const server = spawn(process.execPath, [fileURLToPath(new URL('server.js', import.meta.url))], {
  stdio: ['ignore', 'pipe', 'inherit'],
});
server.on('exit', (code) => process.exit(code ?? 1));
createInterface(server.stdout).on('line', async (line) => {
  console.log(line);
  const address = /^listening on (\S+)$/.exec(line)?.[1];
  if (address === undefined) return;
  await Promise.all(Object.entries(AUDIENCE).map(([poll, weights]) => audience(address, poll, weights)));
  console.log('the polls are closed');
});
