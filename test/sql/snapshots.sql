-- Snapshots: publish, snapshot and its cases, snapshot_message up to its 7,999 bytes, channel, includes, epoch and
-- renew_epoch, hidden polls, pointers, publish_min_events, what is kept, frontiers of several lanes.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS poll_tally;
RESET client_min_messages;
SET search_path = poll_tally, public;

-- Revision 1 comes with the poll. Every poll here is published by hand: its interval is a day, or it is gone before
-- a worker could see it.
SELECT create_poll('snap', '{a,b,c}', publish_every => '1 day');
SELECT poll, revision, included_position, frontier, counts, total, published_at <= clock_timestamp() AS published, final
  FROM snapshot('snap');
-- not due: the interval has not passed, and nothing moved
SELECT outcome FROM accept_event('snap', 'snap-1', 'b', 'ann');
SELECT revision FROM publish('snap');
SELECT poll, revision, included_position, frontier, counts, total, final FROM publish('snap', force => true);
SELECT revision FROM publish('snap', force => true);
-- due: in the transaction that votes, with what it voted so far
BEGIN;
SELECT create_poll('snap-fast', '{a}', counting => 'every', publish_every => '1 microsecond', publish_min_events => 2);
SELECT outcome FROM accept_event('snap-fast', 'fast-1', 'a');
SELECT revision, counts FROM publish('snap-fast');
SELECT outcome FROM accept_event('snap-fast', 'fast-2', 'a');
SELECT revision, counts FROM publish('snap-fast');
SELECT outcome FROM accept_event('snap-fast', 'fast-3', 'a');
SELECT revision, counts FROM publish('snap-fast');
SELECT revision, counts FROM publish('snap-fast', force => true);
SAVEPOINT s1;
SELECT outcome FROM accept_event('snap-fast', 'fast-4', 'a');
SELECT revision, counts FROM publish('snap-fast', force => true);
ROLLBACK TO s1;
SELECT revision, counts FROM snapshot('snap-fast');
SELECT outcome, position FROM accept_event('snap-fast', 'fast-5', 'a');
-- the final snapshot is exempt from publish_min_events
SELECT revision, counts, final FROM close_poll('snap-fast');
ROLLBACK;

-- snapshot: no row when the caller has the newest of this epoch, else the newest
SELECT epoch FROM snapshot('snap') \gset
SELECT c.has, (SELECT s.revision FROM snapshot('snap', c.epoch, c.revision) AS s) AS gets
  FROM (VALUES ('nothing', NULL, NULL::bigint), ('the epoch alone', :'epoch', NULL), ('the newest', :'epoch', 2),
               ('an older one', :'epoch', 1), ('none yet', :'epoch', 0), ('a later one', :'epoch', 3),
               ('the newest of another epoch', 'other', 2), ('an older one of another', 'other', 1),
               ('a later one of another', 'other', 99)) AS c(has, epoch, revision);
SELECT count(*) FROM snapshot('snap-nowhere');
SELECT count(*) FROM snapshot(NULL);

-- the message: every choice, zeros included; nothing but these keys
SELECT jsonb_object_agg(key, CASE WHEN key IN ('epoch', 'publishedAt') THEN to_jsonb(jsonb_typeof(value)) ELSE value END) AS message
  FROM jsonb_each(snapshot_message('snap'));
SELECT m ->> 'epoch' = s.epoch AS epoch, (m ->> 'publishedAt')::timestamptz = s.published_at AS published_at
  FROM snapshot('snap') AS s, snapshot_message('snap') AS m;
SELECT snapshot_message('snap-nowhere') IS NULL AS none, snapshot_message(NULL) IS NULL AS unnamed;
-- as a pointer it has no counts, though the snapshot has
SELECT create_poll('snap-pointer', '{a,b}', notify => 'pointer', publish_every => '1 day');
SELECT outcome FROM accept_event('snap-pointer', 'pointer-1', 'a', 'ann');
SELECT counts FROM publish('snap-pointer', force => true);
SELECT m -> 'counts' AS counts, m -> 'revision' AS revision, m -> 'includedPosition' AS position, m -> 'final' AS final
  FROM snapshot_message('snap-pointer') AS m;
-- of 7,999 bytes it has its counts, of one more it has not: the last choice fills it up
SELECT create_poll('snap-edge', ARRAY(SELECT 'c' || lpad(i::text, 63, '0') FROM generate_series(1, 110) AS i), publish_every => '1 day');
SELECT 7999 - octet_length(snapshot_message('snap-edge')::text) - octet_length(', "": 0') AS spare \gset
SELECT :spare BETWEEN 1 AND 63 AS fits;
BEGIN;
SELECT add_choice('snap-edge', repeat('x', :spare));
SELECT octet_length(m::text) AS bytes, jsonb_typeof(m -> 'counts') AS counts FROM snapshot_message('snap-edge') AS m;
ROLLBACK;
BEGIN;
SELECT add_choice('snap-edge', repeat('x', :spare + 1));
SELECT octet_length(m::text) < 300 AS short, jsonb_typeof(m -> 'counts') AS counts FROM snapshot_message('snap-edge') AS m;
ROLLBACK;

-- 1,000 choices are in a snapshot, 1,001 are not; results_of has them all
SELECT create_poll('snap-1000', ARRAY(SELECT 'c' || i FROM generate_series(1, 1000) AS i), publish_every => '1 day');
SELECT create_poll('snap-1001', ARRAY(SELECT 'c' || i FROM generate_series(1, 1001) AS i), publish_every => '1 day');
SELECT outcome FROM accept_event('snap-1000', 'thousand-1', 'c1000', 'ann');
SELECT outcome FROM accept_event('snap-1001', 'thousand-2', 'c1001', 'ann');
SELECT revision, included_position, frontier, counts FROM publish('snap-1000', force => true);
SELECT revision, included_position, frontier, counts FROM publish('snap-1001', force => true);
SELECT choice, count FROM results_of('snap-1001', '{c1,c1001}');
SELECT jsonb_typeof(snapshot_message('snap-1000') -> 'counts') AS thousand, jsonb_typeof(snapshot_message('snap-1001') -> 'counts') AS more;

-- channel, includes
SELECT channel('snap') = 'poll_tally_' || md5('snap') AS channel, length(channel(repeat('x', 64))) AS length, channel(NULL);
SELECT f.frontier, p.position, includes(f.frontier, p.position)
  FROM (VALUES ('{}'::bigint[]), ('{3}'), ('{0,2}'), ('{3,NULL}')) AS f(frontier), (VALUES ('0/1'::event_position), ('0/3'), ('0/4'), ('1/2'), ('2/1')) AS p(position)
 ORDER BY f.frontier, p.position;
SELECT includes(NULL, '0/1'), includes('{1}', NULL);

-- several lanes: transactions that are prepared hold theirs; frontiers are indexed by lane, and a lane that has
-- nothing yet counts 0
SELECT create_poll('snap-lanes', '{a,b}', counting => 'every', publish_every => '1 day');
BEGIN; SELECT position FROM accept_event('snap-lanes', 'lanes-1', 'a'); PREPARE TRANSACTION 'snap-1';
BEGIN; SELECT position FROM accept_event('snap-lanes', 'lanes-2', 'a'); PREPARE TRANSACTION 'snap-2';
SELECT position FROM accept_event('snap-lanes', 'lanes-3', 'b');
SELECT revision, included_position, frontier, counts FROM publish('snap-lanes', force => true);
COMMIT PREPARED 'snap-2';
SELECT revision, included_position, frontier, counts FROM publish('snap-lanes', force => true);
COMMIT PREPARED 'snap-1';
SELECT revision, included_position, frontier, counts FROM publish('snap-lanes', force => true);
-- each snapshot is the recount of the ledger at its frontier
SELECT s.revision, s.counts = coalesce((SELECT sum(e.effect) FROM events AS e WHERE e.poll = s.poll AND includes(s.frontier, e.position)), '{}') AS exact
  FROM snapshots AS s WHERE poll = 'snap-lanes' ORDER BY s.revision;
SELECT gap, published_position FROM lag WHERE poll = 'snap-lanes';

-- hidden: nothing before the end, forced or not; the final snapshot is revision 1
SELECT create_poll('snap-hidden', '{a,b}', hidden_until_close => true, publish_every => '1 day');
SELECT count(*) FROM snapshot('snap-hidden');
SELECT outcome FROM accept_event('snap-hidden', 'hidden-1', 'b', 'ann');
SELECT revision FROM publish('snap-hidden');
SELECT revision FROM publish('snap-hidden', force => true);
SELECT count(*) FROM snapshots WHERE poll = 'snap-hidden';
SELECT count(*) FROM published WHERE poll = 'snap-hidden';
SELECT snapshot_message('snap-hidden') IS NULL AS silent;
SELECT choice, count FROM results WHERE poll = 'snap-hidden';
SELECT revision, included_position, counts, final FROM close_poll('snap-hidden');
SELECT revision, included_position, counts, final FROM snapshot('snap-hidden');
SELECT choice, count, share FROM published WHERE poll = 'snap-hidden';
SELECT snapshot_message('snap-hidden') -> 'final' AS final, snapshot_message('snap-hidden') -> 'counts' AS counts;

-- the newest 100 are kept, and revisions go on
SELECT create_poll('snap-keep', '{a}', counting => 'every', publish_every => '1 day');
DO $$
BEGIN
    FOR i IN 1 .. 105 LOOP
        PERFORM poll_tally.accept_event_or_raise('snap-keep', 'keep-' || i, 'a');
        PERFORM poll_tally.publish('snap-keep', force => true);
    END LOOP;
END $$;
SELECT count(*), min(revision), max(revision), count(DISTINCT revision), bool_and(included_position = revision - 1) AS right_position
  FROM snapshots WHERE poll = 'snap-keep';
SELECT revision, final FROM close_poll('snap-keep');
SELECT count(*), min(revision), max(revision) FROM snapshots WHERE poll = 'snap-keep';
-- nothing is published after the end
SELECT revision, final FROM publish('snap-keep', force => true);

-- the epoch: one a poll, the same at every reading, until it is renewed
SELECT count(DISTINCT epoch) AS epochs, count(*) AS readings
  FROM (SELECT epoch FROM snapshots WHERE poll = 'snap' UNION ALL SELECT epoch FROM lag WHERE poll = 'snap' UNION ALL SELECT epoch FROM snapshot('snap')) AS e;
SELECT count(DISTINCT s.epoch) FROM (VALUES ('snap'), ('snap-lanes'), ('snap-pointer')) AS p(poll), LATERAL snapshot(p.poll) AS s;
SELECT renew_epoch();
SELECT revision, epoch <> :'epoch' AS renewed FROM snapshot('snap', :'epoch', 2);
BEGIN;
SELECT epoch AS second FROM snapshot('snap') \gset
SELECT renew_epoch();
SELECT epoch NOT IN (:'epoch', :'second') AS renewed_again FROM snapshot('snap');
ROLLBACK;
SELECT epoch = :'second' AS as_before FROM snapshot('snap');

-- errors: unknown poll, above READ COMMITTED, read-only
SELECT publish('snap-nowhere');
\echo :LAST_ERROR_SQLSTATE
SELECT publish(NULL);
\echo :LAST_ERROR_SQLSTATE
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT publish('snap');
\echo :LAST_ERROR_SQLSTATE
ROLLBACK;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT close_poll('snap');
\echo :LAST_ERROR_SQLSTATE
ROLLBACK;
BEGIN READ ONLY;
SELECT publish('snap');
\echo :LAST_ERROR_SQLSTATE
ROLLBACK;
BEGIN READ ONLY;
SELECT renew_epoch();
\echo :LAST_ERROR_SQLSTATE
ROLLBACK;
BEGIN READ ONLY;
SELECT revision FROM snapshot('snap');
COMMIT;
SELECT p.poll, bool_and(v.ok) AS ok FROM polls AS p, LATERAL verify_poll(p.poll) AS v WHERE p.poll LIKE 'snap%' GROUP BY p.poll ORDER BY p.poll;
