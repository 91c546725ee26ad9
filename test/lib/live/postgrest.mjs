// examples/live/postgrest.sql, called as PostgREST calls it: in a transaction, as the token's role, with its claims set.

import { readFileSync } from 'node:fs';

import { is } from './check.mjs';
import { LIVE, newSession, one, sql } from './site.mjs';

async function call(session, claims, text) {
  await session.query('BEGIN');
  try {
    await session.query(`SELECT set_config('role', $1, true), set_config('request.jwt.claims', $2, true)`, [
      claims.role,
      JSON.stringify(claims),
    ]);
    const { rows } = await session.query('SELECT api.events($1::json) AS receipt', [text]);
    const {
      rows: [{ status }],
    } = await session.query(`SELECT current_setting('response.status', true) AS status`);
    return { status: Number(status), receipt: rows[0].receipt };
  } catch (error) {
    // PostgREST's own mapping of SQLSTATEs.
    const status =
      { 42501: 401, '22P02': 400, '22P05': 400 }[error.code] ?? (/^PT(\d{3})$/.exec(error.code)?.[1] || error.code);
    return { status: Number(status), receipt: null };
  } finally {
    await session.query('COMMIT');
  }
}

export async function postgrestTests(cases, statusOf) {
  await sql(readFileSync(`${LIVE}/postgrest.sql`, 'utf8'));
  const session = await newSession();
  const rows =
    await sql(`SELECT o::text AS outcome, api.status_of(o) AS status FROM unnest(enum_range(NULL::poll_tally.outcome)) AS o
    WHERE api.status_of(o) IS NOT NULL`);
  is(
    Object.fromEntries(rows.map(({ outcome, status }) => [outcome, status])),
    { ...statusOf },
    'postgrest.sql has the statuses of the gate',
  );

  const before = await one('SELECT count(*)::int FROM poll_tally.events');
  for (const [outcome, , principal, text] of cases) {
    // The event is in the ledger by now.
    const expected = outcome === 'accepted' ? 'duplicate' : outcome;
    const { status } = await call(session, { role: 'web_voter', sub: principal }, text);
    is(status, statusOf[expected], `PostgREST: ${expected} is ${statusOf[expected]}: ${text.slice(0, 60)}`);
  }
  is(await one('SELECT count(*)::int FROM poll_tally.events'), before, 'PostgREST: nothing was counted twice');
  const fresh = '{"event_id": "rest-1", "poll_id": "lunch", "candidate_id": "soup"}';
  const { status, receipt } = await call(session, { role: 'web_voter', sub: 'rita' }, fresh);
  is(
    [status, receipt.outcome, receipt.event_id],
    [201, 'accepted', 'rest-1'],
    'PostgREST: a new event is 201, with its receipt',
  );
  is(
    await one(`SELECT principal FROM poll_tally.events WHERE event_id = 'rest-1'`),
    'rita',
    'PostgREST: the principal is the token\'s "sub"',
  );
  is((await call(session, { role: 'web_voter' }, fresh)).status, 401, 'PostgREST: a token without "sub" is 401');
  is((await call(session, { role: 'web_anon' }, fresh)).status, 401, 'PostgREST: no token is 401');
  await session.end();
}
