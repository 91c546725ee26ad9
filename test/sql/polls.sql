-- create_poll with every argument and each of its errors, add_choice, close_poll and drop_poll.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS poll_tally;
RESET client_min_messages;
SET search_path = poll_tally, public;

CREATE FUNCTION pg_temp.raised(statement text)
    RETURNS TABLE (state text, message text, detail text, hint text)
    LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE statement;
    state := 'none';
    RETURN NEXT;
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT,
        detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
    RETURN NEXT;
END $$;

-- defaults, and every argument
\x on
SELECT create_poll('polls-plain');
SELECT poll, title, counting, max_attempts, max_choices, min_weight, max_weight, open_choices, restricted, min_count,
       max_count, opens_at, closes_at, hidden_until_close, publish_every, publish_min_events, notify, max_lanes,
       created_at <= clock_timestamp() AS created, closed_at, accepted_position
  FROM polls WHERE poll = 'polls-plain';
SELECT create_poll(poll => 'polls-full', choices => '{b,a,c}', title => 'Füll', counting => 'every', max_attempts => 3,
                   max_choices => 2, min_weight => -5, max_weight => 10, open_choices => false, restricted => true,
                   min_count => -100, max_count => 100, opens_at => '2020-01-01 00:00+00', closes_at => '2999-01-01 00:00+00',
                   hidden_until_close => true, publish_every => '2 minutes', publish_min_events => 7, notify => 'pointer',
                   max_lanes => 1);
SELECT poll, title, counting, max_attempts, max_choices, min_weight, max_weight, open_choices, restricted, min_count,
       max_count, opens_at AT TIME ZONE 'UTC' AS opens_at, closes_at AT TIME ZONE 'UTC' AS closes_at, hidden_until_close,
       publish_every, publish_min_events, notify, max_lanes, closed_at, accepted_position
  FROM polls WHERE poll = 'polls-full';
\x off
SELECT * FROM choices WHERE poll = 'polls-full' ORDER BY ord;
-- what NULL stands for: one attempt under once, no bound otherwise; 32 lanes, or 1 with a limit
SELECT create_poll('polls-lanes', counting => 'every', max_lanes => NULL);
SELECT create_poll('polls-limit', max_count => 10);
SELECT create_poll('polls-once', counting => 'once', max_attempts => 1, max_lanes => 64, opens_at => '-infinity', closes_at => 'infinity');
SELECT poll, counting, max_attempts, min_count, max_count, max_lanes, opens_at, closes_at FROM polls
 WHERE poll IN ('polls-lanes', 'polls-limit', 'polls-once') ORDER BY poll;

-- a name that is taken; names are case-sensitive
SELECT r.* FROM pg_temp.raised($$SELECT create_poll('polls-plain')$$) AS r;
SELECT r.* FROM pg_temp.raised($$SELECT create_poll('Polls-plain')$$) AS r;
-- bad arguments and combinations
SELECT a.arguments, r.*
  FROM (VALUES ('poll => NULL'), ($$''$$), ($$'a b'$$), ($$repeat('x', 65)$$), ($$E'\u00E9'$$), ($$'"'$$), ($$'\'$$),
               ('choices => NULL'), ($$choices => '{a,NULL}'$$), ($$choices => '{a,b,a}'$$), ($$choices => '{a,""}'$$),
               ($$choices => '{"a b"}'$$), ($$choices => '{{a},{b}}'$$), ($$choices => ARRAY[repeat('x', 65)]$$),
               ('counting => NULL'), ($$counting => 'twice'$$), ($$counting => ''$$), ($$counting => 'Once'$$),
               ('max_attempts => 0'), ('max_attempts => -1'), ('max_attempts => 2'), ($$counting => 'every', max_attempts => 0$$),
               ('max_choices => NULL'), ('max_choices => 0'), ('max_choices => 1001'),
               ('min_weight => NULL'), ('max_weight => NULL'), ('min_weight => 2'), ('max_weight => 0'),
               ('min_weight => 0, max_weight => 0'), ('open_choices => NULL'), ('restricted => NULL'),
               ('min_count => 1'), ('max_count => -1'), ('min_count => 0, max_lanes => 2'), ('max_count => 5, max_lanes => 32'),
               ($$opens_at => 'infinity'$$), ($$closes_at => '-infinity'$$),
               ($$opens_at => '2020-01-02', closes_at => '2020-01-01'$$), ($$opens_at => '2020-01-01', closes_at => '2020-01-01'$$),
               ('hidden_until_close => NULL'), ('publish_every => NULL'), ($$publish_every => '0'$$),
               ($$publish_every => '-1 second'$$), ($$publish_every => '1 day -1 second'$$),
               ('publish_min_events => NULL'), ('publish_min_events => 0'),
               ('notify => NULL'), ($$notify => 'all'$$), ('max_lanes => 0'), ('max_lanes => 65'), ('max_lanes => -1')) AS a(arguments),
       LATERAL pg_temp.raised('SELECT poll_tally.create_poll(' ||
           CASE WHEN a.arguments LIKE 'poll =>%' OR a.arguments NOT LIKE '%=>%' THEN a.arguments ELSE '''polls-bad'', ' || a.arguments END || ')') AS r;
SELECT count(*) FROM polls WHERE poll = 'polls-bad';
-- the ends of the ranges are allowed
SELECT a.arguments, r.state
  FROM (VALUES ($$repeat('x', 64)$$), ($$'polls-end1', max_choices => 1000, publish_min_events => 2147483647, max_lanes => 1$$),
               ($$'polls-end2', min_weight => -9223372036854775808, max_weight => 9223372036854775807, max_lanes => 64$$),
               ($$'polls-end3', min_count => 0, max_count => 0, max_lanes => 1$$),
               ($$'polls-end4', publish_every => '1 microsecond'$$)) AS a(arguments),
       LATERAL pg_temp.raised('SELECT poll_tally.create_poll(' || a.arguments || ')') AS r;

-- add_choice
SELECT create_poll('polls-add', '{z}', publish_every => '1 day');
SELECT add_choice('polls-add', 'y');
SELECT add_choice('polls-add', 'x', 'The letter x: ü');
SELECT * FROM choices WHERE poll = 'polls-add' ORDER BY ord;
SELECT * FROM results WHERE poll = 'polls-add';
SELECT outcome FROM accept_event('polls-add', 'polls-1', 'x', 'ann');
SELECT * FROM results WHERE poll = 'polls-add';
SELECT a.arguments, r.state, r.message, r.hint
  FROM (VALUES ($$'polls-add', 'x'$$), ($$'polls-add', 'x', 'other'$$), ($$'polls-add', NULL$$), ($$'polls-add', ''$$),
               ($$'polls-add', 'a b'$$), ($$'polls-add', repeat('x', 65)$$), ($$'polls-none', 'x'$$), ($$NULL, 'x'$$)) AS a(arguments),
       LATERAL pg_temp.raised('SELECT poll_tally.add_choice(' || a.arguments || ')') AS r;
-- after the deadline; in one transaction, so that no worker closes the poll meanwhile
BEGIN;
SELECT create_poll('polls-gone', '{a}', closes_at => '2020-01-01 00:00+00');
SELECT r.state, r.message FROM pg_temp.raised($$SELECT add_choice('polls-gone', 'b')$$) AS r;
COMMIT;
-- taken back with its transaction, votes and all
BEGIN;
SELECT add_choice('polls-add', 'w');
SELECT outcome FROM accept_event('polls-add', 'polls-2', 'w', 'bob');
ROLLBACK;
SELECT outcome FROM accept_event('polls-add', 'polls-2', 'w', 'bob');

-- close_poll: the final snapshot, and the same one again; nothing is accepted after it
SELECT poll, revision, included_position, frontier, counts, total, final FROM close_poll('polls-add');
SELECT poll, revision, included_position, frontier, counts, total, final FROM close_poll('polls-add');
SELECT closed_at <= clock_timestamp() AS closed FROM polls WHERE poll = 'polls-add';
SELECT outcome FROM accept_event('polls-add', 'polls-3', 'x', 'cy');
SELECT outcome FROM accept_event('polls-add', 'polls-1', 'x', 'ann');
SELECT r.state, r.message FROM pg_temp.raised($$SELECT add_choice('polls-add', 'v')$$) AS r;
-- of a poll without an event, and of one whose deadline has passed
SELECT revision, included_position, frontier, counts, total, final FROM close_poll('polls-plain');
SELECT revision, included_position, frontier, counts, total, final FROM close_poll('polls-gone');
-- one transaction: vote, close, and after a rollback to the savepoint it is open again
SELECT create_poll('polls-undo', '{a}', publish_every => '1 day');
BEGIN;
SELECT outcome FROM accept_event('polls-undo', 'polls-4', 'a', 'ann');
SAVEPOINT before_close;
SELECT outcome FROM accept_event('polls-undo', 'polls-5', 'a', 'bob');
SELECT revision, frontier, counts, final FROM close_poll('polls-undo');
SELECT outcome FROM accept_event('polls-undo', 'polls-6', 'a', 'cy');
ROLLBACK TO before_close;
SELECT outcome, position FROM accept_event('polls-undo', 'polls-6', 'a', 'cy');
COMMIT;
SELECT bool_and(ok) AS ok FROM verify_poll('polls-undo');
SELECT revision, frontier, counts, final FROM close_poll('polls-undo');
SELECT r.* FROM pg_temp.raised($$SELECT close_poll('polls-none')$$) AS r;
SELECT r.* FROM pg_temp.raised($$SELECT close_poll(NULL)$$) AS r;

-- drop_poll: only a closed one; its events go with it, and its ids are free again
SELECT create_poll('polls-drop', '{a}', publish_every => '1 day');
SELECT outcome FROM accept_event('polls-drop', 'polls-7', 'a', 'ann');
SELECT r.* FROM pg_temp.raised($$SELECT drop_poll('polls-drop')$$) AS r;
SELECT r.* FROM pg_temp.raised($$SELECT drop_poll('polls-none')$$) AS r;
SELECT r.* FROM pg_temp.raised($$SELECT drop_poll(NULL)$$) AS r;
SELECT final FROM close_poll('polls-drop');
SELECT epoch AS dropped_epoch FROM snapshot('polls-drop') \gset
SELECT drop_poll('polls-drop');
SELECT status FROM event_status('polls-7');
SELECT count(*) FROM snapshot('polls-drop');
SELECT create_poll('polls-drop', '{b}', publish_every => '1 day');
SELECT revision, included_position, frontier, counts, epoch <> :'dropped_epoch' AS other_epoch FROM snapshot('polls-drop');
SELECT outcome, position, attempt FROM accept_event('polls-drop', 'polls-7', 'b', 'ann');
-- vote, close and drop in one transaction, also when savepoints come between
BEGIN;
SELECT outcome FROM accept_event('polls-drop', 'polls-8', 'b', 'bob');
SAVEPOINT before_close;
SELECT counts FROM close_poll('polls-drop');
SELECT drop_poll('polls-drop');
SAVEPOINT after_drop;
ROLLBACK TO after_drop;
COMMIT;
SELECT outcome FROM accept_event('polls-drop', 'polls-8', 'b', 'bob');
-- nothing of a dropped poll stays anywhere
SELECT table_name, n FROM (
    SELECT 'choice' AS table_name, count(*) AS n FROM choice WHERE poll_id NOT IN (SELECT poll_id FROM poll)
    UNION ALL SELECT 'roll', count(*) FROM roll WHERE poll_id NOT IN (SELECT poll_id FROM poll)
    UNION ALL SELECT 'lane', count(*) FROM lane WHERE poll_id NOT IN (SELECT poll_id FROM poll)
    UNION ALL SELECT 'lane_count', count(*) FROM lane_count WHERE poll_id NOT IN (SELECT poll_id FROM poll)
    UNION ALL SELECT 'ledger', count(*) FROM ledger WHERE poll_id NOT IN (SELECT poll_id FROM poll)
    UNION ALL SELECT 'publication', count(*) FROM publication WHERE poll_id NOT IN (SELECT poll_id FROM poll)
    UNION ALL SELECT 'snapshot', count(*) FROM snapshot WHERE poll_id NOT IN (SELECT poll_id FROM poll)) AS t ORDER BY table_name;

-- read-only transactions, and levels above READ COMMITTED
SELECT create_poll('polls-mode', '{a}', publish_every => '1 day');
BEGIN READ ONLY;
SELECT a.call, r.state, r.message
  FROM (VALUES ($$create_poll('polls-x')$$), ($$add_choice('polls-mode', 'b')$$), ($$close_poll('polls-mode')$$),
               ($$drop_poll('polls-add')$$)) AS a(call), LATERAL pg_temp.raised('SELECT ' || a.call) AS r;
SELECT final FROM close_poll('polls-add');
ROLLBACK;
-- a poll that is dropped within savepoints that have counted in it, and then something is written
BEGIN;
SELECT create_poll('polls-away', '{a}', counting => 'every', publish_every => '1 day'), create_poll('polls-stays', '{a}', counting => 'every', publish_every => '1 day');
SELECT outcome FROM accept_event('polls-away', 'polls-away-1', 'a');
SAVEPOINT one;
SELECT outcome FROM accept_event('polls-away', 'polls-away-2', 'a');
SELECT outcome FROM accept_event('polls-stays', 'polls-stays-1', 'a');
SAVEPOINT two;
SELECT final FROM close_poll('polls-away');
SELECT drop_poll('polls-away');
SELECT revision, counts FROM publish('polls-stays', true);
SELECT outcome FROM accept_event('polls-stays', 'polls-stays-2', 'a');
RELEASE two;
SELECT outcome FROM accept_event('polls-stays', 'polls-stays-3', 'a');
COMMIT;
SELECT bool_and(ok) FROM verify_poll('polls-stays');
SELECT counts FROM close_poll('polls-stays');
SELECT drop_poll('polls-stays');
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT r.* FROM pg_temp.raised($$SELECT close_poll('polls-mode')$$) AS r;
SELECT create_poll('polls-repeatable', '{a}', publish_every => '1 day');
SELECT add_choice('polls-repeatable', 'b');
SELECT outcome FROM accept_event('polls-repeatable', 'polls-9', 'b', 'ann');
COMMIT;
SELECT choice, count FROM results WHERE poll = 'polls-repeatable';
