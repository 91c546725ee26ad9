// What the database says of polls, as the page and the stream want it.
//
// A state is { poll, title, counting, ..., choices: [[choice, label]], snapshot, id }. Its snapshot is null while the
// poll is hidden; its id is epoch:revision then and now, "-:0" without a snapshot. Counts are strings of digits:
// bigint does not fit into a number.

export const MAX_CHOICES = 1000; // of snapshots with counts

// One row a poll that is there. No newer snapshot: the columns of s are NULL.
const READ = `
SELECT p.*, s.epoch, s.revision, s.included_position, s.final, s.total, s.counts::jsonb::text AS counts,
       to_char(s.published_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS published_at,
       (SELECT json_agg(json_build_array(c.choice, c.label))
        FROM (SELECT c.choice, c.label FROM live.choices AS c WHERE c.poll = k.poll
              ORDER BY c.ord, c.choice LIMIT ${MAX_CHOICES}) AS c) AS choices
FROM unnest($1::text[], $2::text[], $3::bigint[]) AS k (poll, epoch, revision)
JOIN live.polls AS p ON p.poll = k.poll
LEFT JOIN LATERAL poll_tally.snapshot(k.poll, k.epoch, k.revision) AS s ON true`;

export const NO_SNAPSHOT = '-:0';

// { choice: count } with the counts as strings: JSON.parse would round those above 2^53. Keys are identifiers and have
// neither quotes nor backslashes in them, so the text has nothing to unescape.
function parseCounts(text) {
  return new Map([...text.matchAll(/"([^"]*)": (-?\d+)/g)].map(([, choice, count]) => [choice, count]));
}

function snapshotOf(row, choices) {
  const counts = row.counts === null ? null : parseCounts(row.counts);
  const named = new Map(choices);
  const rows = choices.map(([choice, label]) => [choice, label, counts?.get(choice) ?? '0']);
  for (const [choice, count] of counts ?? []) if (!named.has(choice)) rows.push([choice, null, count]);
  return {
    pollId: row.poll,
    epoch: row.epoch,
    revision: Number(row.revision),
    includedPosition: row.included_position,
    publishedAt: row.published_at,
    final: row.final,
    total: row.total,
    choices: counts === null ? null : rows,
  };
}

// A standby that is behind tells of the same epoch and a lower revision: ours stays.
function newerOf(row, choices, known) {
  if (row.epoch === null) return known;
  return row.epoch === known?.epoch && Number(row.revision) < known.revision ? known : snapshotOf(row, choices);
}

function stateOf(row, known) {
  const choices = row.choices ?? [];
  const snapshot = newerOf(row, choices, known.snapshot ?? null);
  const { poll, title, counting, opens_at, closes_at, closed_at, hidden_until_close, takes_one_choice } = row;
  const state = { poll, title, counting, opens_at, closes_at, closed_at, hidden_until_close, takes_one_choice };
  const id = snapshot === null ? NO_SNAPSHOT : `${snapshot.epoch}:${snapshot.revision}`;
  return { ...state, choices, snapshot, id, json: snapshot === null ? null : JSON.stringify(snapshot) };
}

// The present states of polls whose known states, or just { poll }, are given: a Map from poll to state, without those
// that do not exist.
export async function readStates(client, known) {
  const byName = new Map(known.map((state) => [state.poll, state]));
  const result = await client.query(READ, [
    known.map((state) => state.poll),
    known.map((state) => state.snapshot?.epoch ?? null),
    known.map((state) => state.snapshot?.revision ?? null),
  ]);
  return new Map(result.rows.map((row) => [row.poll, stateOf(row, byName.get(row.poll))]));
}
