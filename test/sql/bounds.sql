-- Counts near the bounds of bigint, which are judged over all lanes of a poll: in batches, in savepoints, by retractions, of
-- choices that have rows of their own, in a poll of one lane; and totals that do not fit. In a database of its own, since ids
-- are unique in a database.
\set home :DBNAME
CREATE DATABASE regress_poll_tally_bounds ENCODING 'UTF8' LOCALE 'C' TEMPLATE template0;
\c regress_poll_tally_bounds
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS poll_tally;
RESET client_min_messages;
SET search_path = poll_tally, public;

CREATE FUNCTION pg_temp.batch(poll text, ids text[], counts jsonb[]) RETURNS TABLE (event_id text, outcome outcome)
    LANGUAGE sql AS 'SELECT b.event_id, b.outcome FROM poll_tally.accept_events($1, $2, votes => $3) AS b ORDER BY b.ord';
CREATE FUNCTION pg_temp.raised(statement text) RETURNS TABLE (state text, message text, detail text) LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE statement;
    state := '00000';
    RETURN NEXT;
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL;
    RETURN NEXT;
END $$;
CREATE FUNCTION pg_temp.lanes_held() RETURNS bigint LANGUAGE sql AS
    $$ SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 7 AND classid <> 0 AND objid < 64 AND pid = pg_backend_pid() $$;
CREATE FUNCTION pg_temp.told(name text, OUT entries bigint, OUT recount tally, OUT equal boolean, OUT verified boolean)
    LANGUAGE sql AS $$
    SELECT (SELECT p.accepted_position FROM poll_tally.polls AS p WHERE p.poll = name), e.recount,
           poll_tally.equal(e.recount, (SELECT poll_tally.make_tally(array_agg(r.choice), array_agg(r.count))
                                        FROM poll_tally.results AS r WHERE r.poll = name)),
           (SELECT bool_and(v.ok) FROM poll_tally.verify_poll(name) AS v)
    FROM (SELECT poll_tally.sum(effect) FROM poll_tally.events WHERE poll = name) AS e (recount)
$$;

-- a batch that comes near a bound takes all lanes, and is judged anew under them
SELECT create_poll('batch', '{a,b}', counting => 'every', max_choices => 2, min_weight => -9223372036854775808,
                   max_weight => 9223372036854775807, max_lanes => 4, publish_every => '1 day');
BEGIN;
SELECT * FROM pg_temp.batch('batch', '{b1,b2}', ARRAY['{"a": 1}', '{"b": 1}']::jsonb[]);
SELECT pg_temp.lanes_held();
SELECT * FROM pg_temp.batch('batch', '{b3,b4}', ARRAY['{"a": 9223372036854775805}', '{"a": 1, "b": 1}']::jsonb[]);
SELECT pg_temp.lanes_held();
COMMIT;
SELECT t.* FROM pg_temp.told('batch') AS t;
SELECT r.* FROM pg_temp.raised($$SELECT * FROM pg_temp.batch('batch', '{b5,b6}', ARRAY['{"b": 1}', '{"a": 1}']::jsonb[])$$) AS r;
SELECT * FROM pg_temp.batch('batch', '{b5,b6}', ARRAY['{"a": -1}', '{"a": 1}']::jsonb[]);
SELECT t.* FROM pg_temp.told('batch') AS t;

-- all lanes belong to the savepoint that took them, or to those around it once it is released
SELECT create_poll('savepoint', '{a}', counting => 'every', max_weight => 9223372036854775807, max_lanes => 4, publish_every => '1 day');
BEGIN;
SAVEPOINT outer_one;
SAVEPOINT inner_one;
SELECT outcome FROM accept_event('savepoint', 's1', votes => '{"a": 9223372036854775807}');
RELEASE inner_one;
SELECT pg_temp.lanes_held();
SAVEPOINT another;
ROLLBACK TO another;
SELECT pg_temp.lanes_held();
ROLLBACK TO outer_one;
SELECT pg_temp.lanes_held();
SELECT outcome FROM accept_event('savepoint', 's2', votes => '{"a": 9223372036854775806}');
SELECT pg_temp.lanes_held();
SELECT outcome FROM accept_event('savepoint', 's3', 'a');
SELECT r.* FROM pg_temp.raised($$SELECT poll_tally.accept_event('savepoint', 's4', 'a')$$) AS r;
COMMIT;
SELECT t.* FROM pg_temp.told('savepoint') AS t;

-- retractions: one that needs all lanes, one that does not fit
SELECT create_poll('retract', '{a}', counting => 'every', min_weight => -9223372036854775807, max_weight => 9223372036854775807,
                   max_lanes => 4, publish_every => '1 day');
SELECT outcome FROM accept_event('retract', 'r1', votes => '{"a": -5}');
SELECT outcome FROM accept_event('retract', 'r2', votes => '{"a": 5}');
SELECT outcome FROM accept_event('retract', 'r3', votes => '{"a": 9223372036854775807}');
SELECT r.* FROM pg_temp.raised($$SELECT poll_tally.retract_event('retract', 'r1', 'back-1')$$) AS r;
BEGIN;
SELECT outcome FROM retract_event('retract', 'r2', 'back-2');
SELECT pg_temp.lanes_held();
COMMIT;
SELECT outcome FROM retract_event('retract', 'r1', 'back-1');
SELECT t.* FROM pg_temp.told('retract') AS t;

-- a vote whose difference from the one that it replaces does not fit, and one that does
SELECT create_poll('latest', '{a}', counting => 'latest', min_weight => -9223372036854775807, max_weight => 9223372036854775807,
                   max_lanes => 4, publish_every => '1 day');
SELECT outcome FROM accept_event('latest', 'l1', principal => 'ann', votes => '{"a": -5}');
SELECT r.* FROM pg_temp.raised($$SELECT poll_tally.accept_event('latest', 'l2', principal => 'ann', votes => '{"a": 9223372036854775803}')$$) AS r;
SELECT outcome FROM accept_event('latest', 'l3', principal => 'ann', votes => '{"a": 9223372036854775802}');
SELECT t.* FROM pg_temp.told('latest') AS t;

-- choices with rows of their own, in two lanes
SELECT create_counter('own-rows', publish_every => '1 day');
BEGIN;
SELECT outcome, lane("position") FROM accept_event('own-rows', 'o1', votes => '{"x": 5}');
PREPARE TRANSACTION 'bounds';
SELECT outcome, lane("position") FROM accept_event('own-rows', 'o2', votes => '{"x": 7}');
COMMIT PREPARED 'bounds';
SELECT outcome FROM accept_event('own-rows', 'o3', votes => '{"x": 9223372036854775794}');
SELECT r.* FROM pg_temp.raised($$SELECT poll_tally.accept_event('own-rows', 'o4', votes => '{"x": 2}')$$) AS r;
SELECT outcome FROM accept_event('own-rows', 'o5', votes => '{"x": 1}');
SELECT t.* FROM pg_temp.told('own-rows') AS t;
-- the two rows are of one key
SET poll_tally.max_keys = 2;
SELECT outcome FROM accept_event('own-rows', 'o6', 'y');
SELECT outcome FROM accept_event('own-rows', 'o7', 'z');
RESET poll_tally.max_keys;

-- more counts than are kept in memory: a batch writes some of them in its midst, and a savepoint takes them back
SELECT create_counter('many', publish_every => '1 day');
CREATE TEMP TABLE many AS
  SELECT 'many-' || e AS id, jsonb_object_agg('key-' || e || '-' || i, 1) AS votes
    FROM generate_series(1, 101) AS e, generate_series(1, 1000) AS i GROUP BY e;
BEGIN;
SELECT outcome FROM accept_event('many', 'many-0', votes => '{"key-1-1": 1, "key-0": 1}');
SAVEPOINT before;
SELECT b.outcome, count(*) FROM accept_events('many', (SELECT array_agg(id) FROM many), votes => (SELECT array_agg(votes) FROM many)) AS b GROUP BY 1;
SELECT choice, count FROM results_of('many', '{key-0,key-1-1,key-101-1000}');
SELECT total FROM totals WHERE poll = 'many';
ROLLBACK TO before;
SELECT outcome FROM accept_event('many', 'many-1', votes => '{"key-1-1": 1}');
COMMIT;
SELECT choice, count FROM results WHERE poll = 'many';
SELECT bool_and(ok) AS verified FROM verify_poll('many');

-- one lane: nothing to be taken beside it
SELECT create_poll('one', '{a}', counting => 'every', max_weight => 9223372036854775807, max_lanes => 1, publish_every => '1 day');
SELECT outcome FROM accept_event('one', 'one-1', votes => '{"a": 9223372036854775807}');
SELECT r.* FROM pg_temp.raised($$SELECT poll_tally.accept_event('one', 'one-2', 'a')$$) AS r;
SELECT t.* FROM pg_temp.told('one') AS t;

-- a total that does not fit is NULL, and the counts are published all the same
SELECT outcome FROM accept_event('batch', 'b7', votes => '{"b": 9223372036854775805}');
SELECT counts, total FROM publish('batch', force => true);

-- what came between two snapshots is more than a bigint holds, though each of them, and what there is now, fits
SELECT create_counter('between', publish_every => '1 day');
SELECT outcome FROM accept_event('between', 'between-1', votes => '{"x": -9000000000000000000}');
SELECT counts FROM publish('between', force => true);
SELECT outcome FROM accept_event('between', 'between-2', votes => '{"x": 9000000000000000000}');
SELECT outcome FROM accept_event('between', 'between-3', votes => '{"x": 9000000000000000000}');
SELECT counts FROM publish('between', force => true);
SELECT * FROM verify_poll('between');

-- a row of a choice that a superuser takes away in the midst of a transaction: what comes after is counted, and rebuilding
-- brings back the rest
SELECT create_counter('taken', publish_every => '1 day');
SELECT outcome FROM accept_event('taken', 't1', votes => '{"x": 5}');
BEGIN;
SELECT outcome FROM accept_event('taken', 't2', votes => '{"x": 2}');
DELETE FROM lane_count WHERE poll_id = (SELECT poll_id FROM poll WHERE poll = 'taken');
COMMIT;
SELECT count FROM results WHERE poll = 'taken';
SELECT check_name, expected, actual FROM verify_poll('taken') WHERE NOT ok;
SELECT rebuild_tallies('taken');
SELECT t.* FROM pg_temp.told('taken') AS t;

\c :home
DROP DATABASE regress_poll_tally_bounds;
