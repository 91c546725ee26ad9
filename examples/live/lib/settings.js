// Settings from the environment. Where PostgreSQL is, the PG* variables tell, as for psql.

import os from 'node:os';

function whole(env, name, fallback, low, high) {
  const text = env[name] ?? '';
  if (text === '') return fallback;
  const value = /^\d{1,9}$/.test(text) ? Number(text) : NaN;
  if (!(value >= low && value <= high)) throw new Error(`${name} must be a whole number from ${low} to ${high}`);
  return value;
}

function onOff(env, name) {
  const text = env[name] ?? '';
  if (!['', '0', '1'].includes(text)) throw new Error(`${name} must be 0 or 1`);
  return text === '1';
}

export function readSettings(env = process.env) {
  const secret = env.LIVE_SECRET ?? '';
  if (secret.length < 32) throw new Error('LIVE_SECRET must have at least 32 characters; all processes share it');
  return Object.freeze({
    host: env.LIVE_HOST || '127.0.0.1',
    port: whole(env, 'LIVE_PORT', 8080, 0, 65535), // 0: a free one
    secret,
    // A visitor without a principal gets one: a random name in a signed cookie. Off where a login hands out principals.
    guests: onOff(env, 'LIVE_GUESTS'),
    secureCookies: onOff(env, 'LIVE_SECURE_COOKIES'), // on where the browser comes by https
    trustProxy: onOff(env, 'LIVE_TRUST_PROXY'), // on behind a proxy that sets X-Forwarded-*
    pool: whole(env, 'LIVE_POOL', 10, 1, 1000), // connections that take votes
    queue: whole(env, 'LIVE_QUEUE', 50, 0, 100000), // votes that may wait for one of them; more get 429
    maxBody: whole(env, 'LIVE_MAX_BODY', 4096, 64, 1048576), // as poll_tally.max_body
    streams: whole(env, 'LIVE_STREAMS', 10000, 1, 1000000), // viewers of this process; more are to ask by polling
    rereadMs: whole(env, 'LIVE_REREAD_S', 15, 1, 3600) * 1000,
    beatMs: whole(env, 'LIVE_BEAT_S', 10, 1, 60) * 1000,
    statementMs: whole(env, 'LIVE_STATEMENT_S', 10, 1, 600) * 1000,
    // As libpq has it; pg takes the name from USER alone.
    user: env.PGUSER || os.userInfo().username,
  });
}
