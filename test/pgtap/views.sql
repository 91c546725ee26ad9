-- The views, their columns in order, and that each is a barrier. As with functions, one that stands nowhere fails.
\ir ../lib/pgtap.sql
BEGIN;
SELECT * FROM no_plan();

CREATE TEMP TABLE contract (name text PRIMARY KEY, columns text);
INSERT INTO contract VALUES
('polls',
 'poll text, title text, counting text, max_attempts int, max_choices int, min_weight bigint, max_weight bigint,'
 ' open_choices boolean, restricted boolean, min_count bigint, max_count bigint, opens_at timestamptz, closes_at timestamptz,'
 ' hidden_until_close boolean, publish_every interval, publish_min_events int, notify text, max_lanes int,'
 ' created_at timestamptz, closed_at timestamptz, accepted_position bigint'),
('choices', 'poll text, choice text, label text, ord int'),
('results', 'poll text, choice text, label text, count bigint, share numeric'),
('published', 'poll text, choice text, label text, count bigint, share numeric'),
('events',
 'poll text, event_id text, kind text, principal text, attempt int, votes tally, effect tally, payload jsonb,'
 ' position event_position, source text, source_partition int, source_offset bigint, occurred_at timestamptz,'
 ' accepted_at timestamptz, retracts text'),
('snapshots',
 'poll text, epoch text, revision bigint, included_position bigint, frontier bigint[], counts tally, total bigint,'
 ' published_at timestamptz, final boolean'),
('lag',
 'poll text, accepted_position bigint, published_position bigint, gap bigint, oldest_unpublished_at timestamptz,'
 ' lag_seconds double precision, epoch text, revision bigint, published_at timestamptz, publish_every interval,'
 ' final boolean, observed_revision bigint'),
('stats', 'name text, value bigint, since timestamptz'),
('sources', 'source text, source_partition int, next_offset bigint, updated_at timestamptz'),
('inbox',
 'poll text, event_id text, choice text, principal text, votes jsonb, payload jsonb, source text, source_partition int,'
 ' source_offset bigint, occurred_at timestamptz'),
('workers',
 'pid int, database text, kind text, state text, started_at timestamptz, heartbeat_at timestamptz, last_error text,'
 ' last_sqlstate text, restarts bigint, library_version text'),
('metrics', 'name text, labels jsonb, value double precision'),
('blockers', 'poll text, lane int, kind text, pid int, gid text, since timestamptz, age interval');

-- What other views are made of.
CREATE TEMP TABLE internal (name text PRIMARY KEY);
INSERT INTO internal VALUES ('poll_key'), ('counted'), ('totals'), ('message'), ('progress');

CREATE TEMP VIEW view AS
SELECT c.relname::text AS name, c.* FROM pg_class AS c
WHERE c.relnamespace = 'poll_tally'::regnamespace AND c.relkind IN ('v', 'm');

SELECT has_view('poll_tally', c.name, c.name || ' is there') FROM contract AS c ORDER BY c.name;
SELECT is(pg_temp.columns_of(v.oid), c.columns, c.name || ': columns')
FROM contract AS c JOIN view AS v USING (name) ORDER BY c.name;
SELECT is_empty($$
    SELECT v.name FROM view AS v
    WHERE v.name NOT IN (SELECT name FROM contract) AND v.name NOT IN (SELECT name FROM internal)
$$, 'every view is in the contract or known to be internal');
SELECT is_empty($$ SELECT v.name FROM view AS v WHERE v.relkind = 'm' $$, 'no view is a stored one');
SELECT is_empty($$
    SELECT v.name FROM view AS v
    WHERE coalesce(array_to_string(v.reloptions, ' '), '') !~ 'security_barrier=(true|on|1)'
$$, 'every view is a security barrier');

-- A column that is compared with plain text must not need a cast or a collation of ours.
SELECT is_empty($$
    SELECT v.name, a.attname FROM view AS v JOIN contract AS c USING (name)
    JOIN pg_attribute AS a ON a.attrelid = v.oid AND a.attnum > 0
    JOIN pg_type AS t ON t.oid = a.atttypid AND t.typtype = 'd'
$$, 'no column shows a domain');

SELECT * FROM finish();
ROLLBACK;
