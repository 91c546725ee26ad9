-- Sources and the feed: cursors that never move back, coordinates, events_after over several lanes, advance_frontier,
-- and who may use them. In a database of its own, since ids are
-- unique in a database.
\set home :DBNAME
CREATE DATABASE regress_poll_tally_feed ENCODING 'UTF8' LOCALE 'C' TEMPLATE template0;
\c regress_poll_tally_feed
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS poll_tally;
RESET client_min_messages;
SET search_path = public, poll_tally;

CREATE FUNCTION pg_temp.raised(statement text) RETURNS TABLE (state text, message text, detail text) LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE statement;
    state := '00000';
    RETURN NEXT;
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL;
    RETURN NEXT;
END $$;

-- cursors
SELECT source_position('feed-topic', 0) IS NULL AS unknown;
SELECT advance_source('feed-topic', 0, 100);
SELECT advance_source('feed-topic', 0, 50) AS not_back, advance_source('feed-topic', 0, 100) AS same;
SELECT advance_source('feed-topic', 0, 101) AS on, advance_source('feed-topic', 1, -5) AS other, advance_source('feed-topic', -1, 9223372036854775807) AS last;
SELECT source, source_partition, next_offset, updated_at <= clock_timestamp() AS updated FROM sources WHERE source LIKE 'feed-%' ORDER BY 1, 2;
-- the time is that of the last move
SELECT updated_at AS before FROM sources WHERE source = 'feed-topic' AND source_partition = 0 \gset
SELECT advance_source('feed-topic', 0, 7);
SELECT updated_at = :'before' AS unmoved FROM sources WHERE source = 'feed-topic' AND source_partition = 0;
-- with its transaction, or not at all
BEGIN;
SELECT advance_source('feed-topic', 0, 200);
SAVEPOINT s;
SELECT advance_source('feed-topic', 0, 300);
ROLLBACK TO s;
SELECT source_position('feed-topic', 0);
ROLLBACK;
SELECT source_position('feed-topic', 0);
SELECT source_position('feed-topic', NULL), source_position(NULL, 0), source_position('Feed-topic', 0);
SELECT r.* FROM (VALUES ($$NULL, 0, 1$$), ($$'', 0, 1$$), ($$'a b', 0, 1$$), ($$repeat('x', 65), 0, 1$$), ($$'feed-topic', NULL, 1$$),
                        ($$'feed-topic', 0, NULL$$)) AS a (arguments),
  pg_temp.raised('SELECT poll_tally.advance_source(' || a.arguments || ')') AS r;
BEGIN READ ONLY;
SELECT advance_source('feed-topic', 0, 400);
ROLLBACK;

-- coordinates: of one event, for ever; the event itself may come again on another
SELECT create_poll('feed', '{a,b}', counting => 'every', publish_every => '1 day');
SELECT r.outcome, r.position, r.detail FROM (VALUES ('feed-1', 0, 0), ('feed-2', 0, 0), ('feed-1', 0, 1), ('feed-2', 0, 1), ('feed-3', 1, 0),
                                                    ('feed-4', 1, 0), ('feed-2', 1, 0)) AS e (id, part, off),
  accept_event('feed', e.id, 'a', source => 'feed-topic', source_partition => e.part, source_offset => e.off) AS r;
-- the same offset of another source
SELECT outcome, position FROM accept_event('feed', 'feed-4', 'a', source => 'feed-topic-2', source_partition => 0, source_offset => 0);
-- batch and cursor in one transaction; redelivery answers duplicate, and the cursor stays
BEGIN;
SELECT ord, outcome FROM accept_events('feed', '{feed-5,feed-6}', '{a,b}', source => 'feed-batch', source_partition => 0, source_offsets => '{0,1}');
SELECT advance_source('feed-batch', 0, 2);
COMMIT;
BEGIN;
SELECT ord, outcome FROM accept_events('feed', '{feed-6,feed-7}', '{b,b}', source => 'feed-batch', source_partition => 0, source_offsets => '{1,2}');
SELECT advance_source('feed-batch', 0, 3);
COMMIT;
SELECT source_position('feed-batch', 0);
SELECT event_id, source, source_partition, source_offset FROM events_after('feed') ORDER BY position;

-- several lanes: prepared transactions hold the ones before
SELECT create_poll('feed-lanes', '{a,b}', counting => 'every', publish_every => '1 day');
BEGIN; SELECT position FROM accept_events('feed-lanes', '{f-00,f-01,f-02}', '{a,a,a}'); PREPARE TRANSACTION 'feed-0';
BEGIN; SELECT position FROM accept_events('feed-lanes', '{f-10,f-11}', '{b,b}'); PREPARE TRANSACTION 'feed-1';
SELECT position FROM accept_event('feed-lanes', 'f-20', 'a');
-- what is not committed is not there, and a frontier that was read stays safe when it commits
SELECT event_id, position FROM events_after('feed-lanes');
SELECT advance_frontier(NULL, '2/1') AS frontier \gset
COMMIT PREPARED 'feed-1';
SELECT event_id, position FROM events_after('feed-lanes', :'frontier');
COMMIT PREPARED 'feed-0';
SELECT event_id, kind, votes, effect, position FROM events_after('feed-lanes', :'frontier');
-- lanes in turn, each in seq order, max_events in all
SELECT event_id, position FROM events_after('feed-lanes', max_events => 1);
SELECT event_id, position FROM events_after('feed-lanes', max_events => 4);
SELECT count(*) FROM events_after('feed-lanes', max_events => 0);
SELECT count(*) FROM events_after('feed-lanes', max_events => -1);
SELECT event_id, position FROM events_after('feed-lanes', '{2,0,1}');
SELECT event_id, position FROM events_after('feed-lanes', '{2,NULL}', 2);
SELECT count(*) FROM events_after('feed-lanes', '{3,2,1}');
SELECT count(*) FROM events_after('feed-lanes', '{300,200,100,50}');
SELECT count(*) FROM events_after('feed-lanes', '{}');
-- a frontier beyond every seq that there can be, whatever the plan
SET enable_indexscan = off;
SELECT count(*) FROM events_after('feed-lanes', '{9223372036854775807,281474976710655,-9223372036854775808}');
SET enable_bitmapscan = off;
SELECT count(*) FROM events_after('feed-lanes', '{9223372036854775807,281474976710655,-9223372036854775808}');
RESET enable_indexscan;
RESET enable_bitmapscan;
SELECT count(*) FROM events_after('feed-lanes', '{9223372036854775807,281474976710655,-9223372036854775808}');
SELECT count(*) FROM events_after('nowhere');
SELECT count(*) FROM events_after(NULL);
-- of every size of step, a walk along the frontiers sees each entry once and each lane in order
SELECT outcome, position FROM retract_event('feed-lanes', 'f-11', 'f-11-back');
CREATE FUNCTION pg_temp.walk(name text, step int, OUT entries bigint, OUT twice bigint, OUT disorder bigint, OUT at bigint[]) LANGUAGE plpgsql AS $$
DECLARE
    e record;
    found boolean := true;
    seen event_position[] := '{}';
BEGIN
    disorder := 0;
    WHILE found LOOP
        found := false;
        FOR e IN SELECT * FROM poll_tally.events_after(name, at, step) LOOP
            found := true;
            disorder := disorder + (poll_tally.seq(e.position) <> coalesce(at[poll_tally.lane(e.position) + 1], 0) + 1)::int;
            seen := seen || e.position;
            at := poll_tally.advance_frontier(at, e.position);
        END LOOP;
    END LOOP;
    SELECT count(DISTINCT s), count(*) - count(DISTINCT s) INTO entries, twice FROM unnest(seen) AS s;
END $$;
SELECT step, w.* FROM generate_series(1, 8) AS step, pg_temp.walk('feed-lanes', step) AS w;
SELECT frontier FROM publish('feed-lanes', true);
-- all 64 lanes
SELECT create_poll('feed-wide', '{a}', counting => 'every', max_lanes => 64, publish_every => '1 day');
SELECT count(*) FROM accept_events('feed-wide', (SELECT array_agg('f-w' || i) FROM generate_series(1, 1500) AS i),
                                   (SELECT array_agg('a'::text) FROM generate_series(1, 1500)));
SELECT count(*), max(seq(position)) FROM events_after('feed-wide');
SELECT count(*), max(seq(position)) FROM events_after('feed-wide', max_events => 10000);

-- advance_frontier
SELECT a.frontier, a.at_position, advance_frontier(a.frontier, a.at_position)
  FROM (VALUES (NULL::bigint[], '0/1'::event_position), ('{}', '0/1'), ('{}', '2/7'), ('{3}', '0/4'), ('{3}', '0/2'), ('{3,4}', '1/9'), ('{3}', '3/1'),
               ('{NULL,4}', '0/2'), ('{3,NULL}', '0/4'), (NULL, '63/1')) AS a (frontier, at_position);
SELECT includes(advance_frontier('{3,4}', '2/7'), '2/7') AS covered, includes(advance_frontier('{3,4}', '2/7'), '2/8') AS beyond;

-- roles: submitters advance cursors, auditors read the feed, viewers neither
CREATE ROLE feed_submitter;
CREATE ROLE feed_auditor;
CREATE ROLE feed_viewer;
CREATE ROLE feed_nobody;
SELECT grant_submitter('feed_submitter'), grant_auditor('feed_auditor'), grant_viewer('feed_viewer');
GRANT feed_submitter, feed_auditor, feed_viewer, feed_nobody TO CURRENT_USER;
CREATE FUNCTION pg_temp.may(role text, statement text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('SET LOCAL ROLE %I', role);
    EXECUTE statement;
    RESET ROLE;
    RETURN true;
EXCEPTION WHEN insufficient_privilege THEN
    RETURN false;
END $$;
SELECT s.statement, pg_temp.may('feed_submitter', s.statement) AS submitter, pg_temp.may('feed_auditor', s.statement) AS auditor,
       pg_temp.may('feed_viewer', s.statement) AS viewer, pg_temp.may('feed_nobody', s.statement) AS nobody
  FROM (VALUES ($$SELECT poll_tally.accept_events('feed', '{feed-1}', '{a}')$$),
               ($$SELECT poll_tally.advance_source('feed-topic', 0, 1)$$), ($$SELECT poll_tally.source_position('feed-topic', 0)$$),
               ($$SELECT * FROM poll_tally.sources$$), ($$SELECT * FROM poll_tally.events_after('feed')$$),
               ($$SELECT poll_tally.advance_frontier(NULL, '0/1')$$),
               ($$SELECT * FROM poll_tally.source$$)) AS s (statement);
-- the inbox takes an INSERT of a submitter, and shows nothing
SET ROLE feed_submitter;
INSERT INTO poll_tally.inbox (poll, event_id, choice) VALUES ('feed', 'feed-8', 'b');
SELECT * FROM poll_tally.inbox;
RESET ROLE;
SET ROLE feed_auditor;
INSERT INTO poll_tally.inbox (poll, event_id, choice) VALUES ('feed', 'feed-9', 'b');
RESET ROLE;
-- whoever may insert into a table with accept_rows needs no grant of ours
CREATE TABLE feed_answers (id text, option text);
CREATE TRIGGER feed_count AFTER INSERT ON feed_answers REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT
  EXECUTE FUNCTION accept_rows('poll=''feed''', 'event_id=id', 'choice=option');
GRANT INSERT ON feed_answers TO feed_nobody;
SET ROLE feed_nobody;
INSERT INTO public.feed_answers VALUES ('feed-10', 'a');
RESET ROLE;
SELECT count(*) FROM events WHERE event_id IN ('feed-8', 'feed-9', 'feed-10');
-- but a trigger is made by one who may execute its function
GRANT CREATE ON SCHEMA public TO feed_nobody;
SET ROLE feed_nobody;
CREATE TABLE public.feed_mine (id text);
CREATE TRIGGER feed_mine AFTER INSERT ON public.feed_mine REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT
  EXECUTE FUNCTION poll_tally.accept_rows('poll=''feed''', 'event_id=id', 'choice=id');
RESET ROLE;
DROP TABLE feed_answers;
SELECT revoke_from('feed_submitter'), revoke_from('feed_auditor'), revoke_from('feed_viewer');
DROP OWNED BY feed_submitter, feed_auditor, feed_viewer, feed_nobody;
DROP ROLE feed_submitter, feed_auditor, feed_viewer, feed_nobody;

\c :home
DROP DATABASE regress_poll_tally_feed;
