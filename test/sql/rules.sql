-- The rules of a poll from opening to the last event: modes, weights, choices, keys, rolls, limits, alter_poll, retracting,
-- accept_json, statistics, and repair after damage done on purpose. In a database of its own, since ids are
-- unique in a database.
\set home :DBNAME
CREATE DATABASE regress_poll_tally_rules ENCODING 'UTF8' LOCALE 'C' TEMPLATE template0;
\c regress_poll_tally_rules
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS poll_tally;
RESET client_min_messages;
SET search_path = poll_tally, public;

CREATE FUNCTION pg_temp.raised(statement text) RETURNS TABLE (state text, message text, detail text) LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE statement;
    state := 'none';
    RETURN NEXT;
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL;
    RETURN NEXT;
END $$;
-- The receipt without the time, which has to be there for the outcomes that name a stored event and for no other.
CREATE FUNCTION pg_temp.shown(r receipt, OUT outcome text, OUT pos text, OUT attempt int, OUT retryable boolean, OUT differs text[], OUT detail text)
    LANGUAGE sql AS $$
    SELECT r.outcome || CASE WHEN (r.accepted_at IS NOT NULL) <> (r.outcome IN ('accepted', 'duplicate')) THEN ' with a wrong time' ELSE '' END,
           r.position, r.attempt, r.retryable, r.differs, r.detail $$;
CREATE FUNCTION pg_temp.vote(poll text, event_id text, choice text, principal text DEFAULT NULL, votes jsonb DEFAULT NULL, payload jsonb DEFAULT NULL)
    RETURNS TABLE (outcome text, pos text, attempt int, retryable boolean, differs text[], detail text) LANGUAGE sql AS
    $$ SELECT s.* FROM poll_tally.accept_event($1, $2, $3, $4, $5, $6) AS r, pg_temp.shown(r) AS s $$;
CREATE FUNCTION pg_temp.retract(poll text, event_id text, retraction_id text, reason text DEFAULT NULL, may_respond_again boolean DEFAULT true)
    RETURNS TABLE (outcome text, pos text, attempt int, retryable boolean, differs text[], detail text) LANGUAGE sql AS
    $$ SELECT s.* FROM poll_tally.retract_event($1, $2, $3, $4, $5) AS r, pg_temp.shown(r) AS s $$;
-- The poll holds together: what the ledger says, what the views say, and the checks that fail.
CREATE FUNCTION pg_temp.told(name text, OUT recount tally, OUT equal boolean, OUT entries bigint, OUT failed text) LANGUAGE sql AS $$
    SELECT e.recount, e.recount = (SELECT poll_tally.make_tally(array_agg(r.choice), array_agg(r.count)) FROM poll_tally.results AS r WHERE r.poll = name),
           (SELECT p.accepted_position FROM poll_tally.polls AS p WHERE p.poll = name),
           (SELECT string_agg(v.check_name || ': expected ' || v.expected || ', actual ' || v.actual, E'\n') FROM poll_tally.verify_poll(name) AS v WHERE NOT v.ok)
    FROM (SELECT poll_tally.sum(effect) FROM poll_tally.events WHERE poll = name) AS e(recount) $$;

--
-- once: one response per principal, which is needed
--
SELECT create_poll('once', '{a,b}', publish_every => '1 day');
SELECT v.* FROM pg_temp.vote('once', 'once-1', 'a', 'ann') AS v;
SELECT v.* FROM pg_temp.vote('once', 'once-2', 'a', 'ann') AS v;
SELECT v.* FROM pg_temp.vote('once', 'once-2', 'b', 'bob') AS v;
SELECT v.* FROM pg_temp.vote('once', 'once-3', 'b') AS v;
-- a retraction gives the attempt back; numbers go on
SELECT v.* FROM pg_temp.retract('once', 'once-1', 'once-back-1', 'typo') AS v;
SELECT v.* FROM pg_temp.vote('once', 'once-1', 'a', 'ann') AS v;
SELECT v.* FROM pg_temp.vote('once', 'once-4', 'b', 'ann') AS v;
SELECT v.* FROM pg_temp.vote('once', 'once-5', 'b', 'ann') AS v;
-- or bars the principal
SELECT v.* FROM pg_temp.retract('once', 'once-4', 'once-back-4', may_respond_again => false) AS v;
SELECT v.* FROM pg_temp.vote('once', 'once-6', 'b', 'ann') AS v;
SELECT event_id, kind, principal, attempt, votes, effect, position, retracts FROM events WHERE poll = 'once' ORDER BY position;
SELECT t.* FROM pg_temp.told('once') AS t;

--
-- latest: a new event replaces the current vote
--
SELECT create_poll('latest', '{a,b,c}', counting => 'latest', max_choices => 2, max_weight => 3, publish_every => '1 day');
SELECT v.* FROM pg_temp.vote('latest', 'latest-1', 'a', 'ann') AS v;
SELECT v.* FROM pg_temp.vote('latest', 'latest-2', 'b', 'ann') AS v;
SELECT v.* FROM pg_temp.vote('latest', 'latest-3', 'b', 'ann') AS v;
SELECT v.* FROM pg_temp.vote('latest', 'latest-4', NULL, 'ann', '{"b": 3, "c": 1}') AS v;
SELECT v.* FROM pg_temp.vote('latest', 'latest-5', 'a', 'bob') AS v;
SELECT v.* FROM pg_temp.vote('latest', 'latest-6', 'a') AS v;
-- only the current vote can be taken back; the one before does not revive
SELECT v.* FROM pg_temp.retract('latest', 'latest-2', 'latest-back-2') AS v;
SELECT v.* FROM pg_temp.retract('latest', 'latest-4', 'latest-back-4') AS v;
SELECT v.* FROM pg_temp.retract('latest', 'latest-4', 'latest-back-4') AS v;
SELECT v.* FROM pg_temp.retract('latest', 'latest-4', 'latest-back-5') AS v;
SELECT v.* FROM pg_temp.retract('latest', 'latest-1', 'latest-back-1') AS v;
SELECT v.* FROM pg_temp.vote('latest', 'latest-7', 'c', 'ann') AS v;
-- unbounded, but barred
SELECT v.* FROM pg_temp.retract('latest', 'latest-5', 'latest-back-6', NULL, false) AS v;
SELECT v.* FROM pg_temp.vote('latest', 'latest-8', 'c', 'bob') AS v;
SELECT event_id, principal, attempt, votes, effect, retracts FROM events WHERE poll = 'latest' ORDER BY position;
SELECT t.* FROM pg_temp.told('latest') AS t;
-- arrival decides, not occurred_at
SELECT outcome, attempt FROM accept_event('latest', 'latest-9', 'a', 'cy', occurred_at => '2020-01-02 00:00+00');
SELECT outcome, attempt FROM accept_event('latest', 'latest-10', 'b', 'cy', occurred_at => '2020-01-01 00:00+00');
SELECT effect FROM events WHERE event_id = 'latest-10';
-- bounded
SELECT create_poll('latest-2', '{a,b}', counting => 'latest', max_attempts => 2, publish_every => '1 day');
SELECT outcome, attempt FROM accept_event('latest-2', 'latest2-1', 'a', 'ann');
SELECT outcome, attempt FROM accept_event('latest-2', 'latest2-2', 'b', 'ann');
SELECT v.* FROM pg_temp.vote('latest-2', 'latest2-3', 'a', 'ann') AS v;
SELECT v.* FROM pg_temp.retract('latest-2', 'latest2-2', 'latest2-back') AS v;
SELECT outcome, attempt FROM accept_event('latest-2', 'latest2-4', 'a', 'ann');
SELECT v.* FROM pg_temp.vote('latest-2', 'latest2-5', 'b', 'ann') AS v;
SELECT t.* FROM pg_temp.told('latest-2') AS t;

--
-- every: each event counts; a principal is needed only where attempts are bounded
--
SELECT create_poll('every', '{a,b}', counting => 'every', publish_every => '1 day');
SELECT v.* FROM pg_temp.vote('every', 'every-1', 'a') AS v;
SELECT v.* FROM pg_temp.vote('every', 'every-2', 'a', 'ann') AS v;
SELECT v.* FROM pg_temp.vote('every', 'every-3', 'b', 'ann') AS v;
SELECT v.* FROM pg_temp.retract('every', 'every-1', 'every-back-1') AS v;
SELECT v.* FROM pg_temp.retract('every', 'every-2', 'every-back-2', NULL, false) AS v;
SELECT v.* FROM pg_temp.vote('every', 'every-4', 'b', 'ann') AS v;
-- an earlier event of somebody who is barred can still be taken back; that lifts nothing
SELECT v.* FROM pg_temp.retract('every', 'every-3', 'every-back-3') AS v;
SELECT v.* FROM pg_temp.vote('every', 'every-4', 'b', 'ann') AS v;
SELECT t.* FROM pg_temp.told('every') AS t;
SELECT create_poll('every-2', '{a,b}', counting => 'every', max_attempts => 2, publish_every => '1 day');
SELECT v.* FROM pg_temp.vote('every-2', 'every2-1', 'a') AS v;
SELECT outcome, attempt FROM accept_event('every-2', 'every2-1', 'a', 'ann');
SELECT outcome, attempt FROM accept_event('every-2', 'every2-2', 'a', 'ann');
SELECT v.* FROM pg_temp.vote('every-2', 'every2-3', 'a', 'ann') AS v;
SELECT v.* FROM pg_temp.retract('every-2', 'every2-1', 'every2-back') AS v;
SELECT outcome, attempt FROM accept_event('every-2', 'every2-3', 'a', 'ann');
SELECT v.* FROM pg_temp.vote('every-2', 'every2-4', 'a', 'ann') AS v;
SELECT t.* FROM pg_temp.told('every-2') AS t;

--
-- retract_event: its own outcomes
--
SELECT v.* FROM pg_temp.retract('nowhere', 'every-1', 'retract-1') AS v;
SELECT v.* FROM pg_temp.retract('every', 'nothing', 'retract-1') AS v;
SELECT v.* FROM pg_temp.retract('every', 'once-1', 'retract-1') AS v;
SELECT v.* FROM pg_temp.retract('every', 'every-back-1', 'retract-1') AS v;
SELECT v.* FROM pg_temp.retract('every', 'every-1', 'retract-1') AS v;
SELECT v.* FROM pg_temp.retract('every', 'every-1', 'every-1') AS v;
SELECT v.* FROM pg_temp.retract('every', 'every-1', 'every-2') AS v;
SELECT v.* FROM pg_temp.vote('every', 'every-back-1', 'a') AS v;
SELECT v.* FROM pg_temp.retract('every', NULL, 'retract-1') AS v;
SELECT v.* FROM pg_temp.retract('every', 'every-1', NULL) AS v;
SELECT v.* FROM pg_temp.retract(NULL, 'every-1', 'retract-1') AS v;
SELECT v.* FROM pg_temp.retract('every', 'every-1', 'two words') AS v;
-- the same id with other content
SELECT v.* FROM pg_temp.retract('every-2', 'every-1', 'every-back-1') AS v;
SELECT v.* FROM pg_temp.retract('every', 'every-2', 'every-back-1') AS v;
SELECT v.* FROM pg_temp.retract('every', 'every-1', 'every-back-1', 'because') AS v;
SELECT v.* FROM pg_temp.retract('every', 'every-1', 'every-back-1', NULL, false) AS v;
SELECT v.* FROM pg_temp.retract('every', 'every-1', 'every-back-1') AS v;
-- what became of them
SELECT status, outcome, poll, position, detail FROM event_status('every-1');
SELECT status, outcome, poll, position, detail FROM event_status('every-back-1');
-- after the close
SELECT counts FROM close_poll('every-2');
SELECT v.* FROM pg_temp.retract('every-2', 'every2-2', 'retract-2') AS v;
SELECT v.* FROM pg_temp.retract('every-2', 'every2-1', 'every2-back') AS v;
-- taken back with its transaction or its savepoint
BEGIN;
SAVEPOINT before;
SELECT outcome, position FROM accept_event('every', 'every-5', 'b', 'bob');
SELECT outcome, position FROM retract_event('every', 'every-5', 'every-back-5');
ROLLBACK TO before;
SELECT outcome, position FROM accept_event('every', 'every-back-5', 'b', 'bob');
SELECT outcome, position FROM retract_event('every', 'every-back-5', 'every-5');
COMMIT;
SELECT t.* FROM pg_temp.told('every') AS t;

--
-- votes: several choices, weights, negative and large counts
--
SELECT create_poll('weights', '{a,b,c}', counting => 'every', max_choices => 2, min_weight => -2, max_weight => 5, publish_every => '1 day');
SELECT v.votes, r.* FROM (VALUES (1, '{"a": 5, "b": -2}'), (2, '{"a": 6}'), (3, '{"b": -3}'), (4, '{"a": 1, "b": 1, "c": 1}'),
                                 (5, '{"a": 1, "b": 1, "c": 0}'), (6, '{"a": 0}'), (7, '{"d": 1}'), (8, '{"d": 6}'), (9, '{"a": 1, "d": 1}')) AS v(n, votes),
     LATERAL pg_temp.vote('weights', 'weights-' || v.n, NULL, NULL, v.votes::jsonb) AS r;
SELECT t.* FROM pg_temp.told('weights') AS t;
-- a count that would overflow raises, and changes nothing
SELECT create_poll('large', '{a,b}', counting => 'every', max_choices => 2, min_weight => -9223372036854775808, max_weight => 9223372036854775807, publish_every => '1 day');
SELECT v.* FROM pg_temp.vote('large', 'large-1', NULL, NULL, '{"a": 9223372036854775807}') AS v;
SELECT r.* FROM pg_temp.raised($$SELECT poll_tally.accept_event('large', 'large-2', votes => '{"a": 1, "b": 1}')$$) AS r;
SELECT r.* FROM pg_temp.raised($$SELECT poll_tally.accept_event('large', 'large-2', votes => '{"b": -9223372036854775808}'),
                                        poll_tally.accept_event('large', 'large-3', votes => '{"b": -1}')$$) AS r;
SELECT v.* FROM pg_temp.vote('large', 'large-2', NULL, NULL, '{"a": -9223372036854775808}') AS v;
SELECT v.* FROM pg_temp.vote('large', 'large-3', NULL, NULL, '{"a": 2, "b": 7}') AS v;
SELECT t.* FROM pg_temp.told('large') AS t;
SELECT r.* FROM pg_temp.raised($$SELECT poll_tally.retract_event('large', 'large-2', 'large-back-2')$$) AS r;
SELECT t.* FROM pg_temp.told('large') AS t;

--
-- open choices and counters
--
SELECT create_poll('open', '{a}', counting => 'every', open_choices => true, publish_every => '1 day');
SELECT v.* FROM pg_temp.vote('open', 'open-1', 'z') AS v;
SELECT v.* FROM pg_temp.vote('open', 'open-2', 'm') AS v;
SELECT choice, ord FROM choices WHERE poll = 'open' ORDER BY ord, choice;
SELECT choice, count, share FROM results WHERE poll = 'open';
-- a key stays when its count is 0 again; add_choice gives one a label
SELECT outcome FROM retract_event('open', 'open-2', 'open-back-2');
SELECT add_choice('open', 'm', 'The letter m');
SELECT choice, label, count FROM results WHERE poll = 'open';
-- at most max_keys, those that were named included; the known ones go on
SET poll_tally.max_keys = 4;
SELECT v.* FROM pg_temp.vote('open', 'open-3', 'x') AS v;
SELECT v.* FROM pg_temp.vote('open', 'open-4', 'y') AS v;
SELECT v.* FROM pg_temp.vote('open', 'open-5', 'x') AS v;
SELECT v.* FROM pg_temp.vote('open', 'open-6', 'a') AS v;
SET poll_tally.max_keys = 5;
SELECT v.* FROM pg_temp.vote('open', 'open-4', 'y') AS v;
-- a key that was taken back with its transaction is none
BEGIN;
SET LOCAL poll_tally.max_keys = 6;
SELECT outcome FROM accept_event('open', 'open-7', 'w');
SELECT outcome FROM accept_event('open', 'open-8', 'v');
ROLLBACK;
BEGIN;
SET LOCAL poll_tally.max_keys = 6;
SAVEPOINT before;
SELECT outcome FROM accept_event('open', 'open-7', 'w');
ROLLBACK TO before;
SELECT outcome FROM accept_event('open', 'open-8', 'v');
SELECT outcome FROM accept_event('open', 'open-9', 'u');
COMMIT;
RESET poll_tally.max_keys;
SELECT t.* FROM pg_temp.told('open') AS t;
-- VACUUM FULL can put the poll's row where an earlier version of the same transaction stood: its choices are counted anew
VACUUM FULL poll;
SELECT create_poll(unnest, '{}', counting => 'every', open_choices => true) FROM unnest(ARRAY['moved-away', 'moved']);
DO $$ BEGIN PERFORM close_poll('moved-away'); PERFORM drop_poll('moved-away'); END $$;
VACUUM poll;
SET poll_tally.max_keys = 4;
BEGIN;
SELECT add_choice('moved', 'a');
SELECT v.* FROM pg_temp.vote('moved', 'moved-1', 'z') AS v;
SELECT add_choice('moved', 'b'), add_choice('moved', 'c');
COMMIT;
VACUUM FULL poll;
SELECT v.* FROM pg_temp.vote('moved', 'moved-2', 'y') AS v;
RESET poll_tally.max_keys;
SELECT t.* FROM pg_temp.told('moved') AS t;
SELECT create_counter('counter', 'Stock', publish_every => '1 day');
SELECT title, counting, max_attempts, max_choices, min_weight, max_weight, open_choices, restricted, max_lanes FROM polls WHERE poll = 'counter';
SELECT v.* FROM pg_temp.vote('counter', 'counter-1', NULL, NULL, '{"shelf-1": 40, "shelf-2": -3}') AS v;
SELECT v.* FROM pg_temp.vote('counter', 'counter-2', NULL, NULL, '{"shelf-1": -41}') AS v;
SELECT v.* FROM pg_temp.vote('counter', 'counter-3', NULL, 'scanner', (SELECT jsonb_object_agg('k' || g, g) FROM generate_series(1, 1000) AS g)) AS v;
SELECT v.* FROM pg_temp.vote('counter', 'counter-4', NULL, NULL, (SELECT jsonb_object_agg('k' || g, g) FROM generate_series(1, 1001) AS g)) AS v;
SELECT choice, count FROM results_of('counter', '{shelf-1,shelf-2,k1000,nothing}');
SELECT total(t.recount), t.equal, t.entries, t.failed FROM pg_temp.told('counter') AS t;
SELECT r.* FROM pg_temp.raised($$SELECT poll_tally.create_counter('counter')$$) AS r;

--
-- restricted and set_eligible
--
SELECT create_poll('roll', '{a}', counting => 'every', restricted => true, publish_every => '1 day');
SELECT v.* FROM pg_temp.vote('roll', 'roll-1', 'a', 'ann') AS v;
SELECT set_eligible('roll', '{ann,bob,ann}');
SELECT set_eligible('roll', '{ann,cy}', true);
SELECT v.* FROM pg_temp.vote('roll', 'roll-1', 'a', 'ann') AS v;
SELECT v.* FROM pg_temp.vote('roll', 'roll-2', 'a', 'Ann') AS v;
SELECT v.* FROM pg_temp.vote('roll', 'roll-2', 'a') AS v;
SELECT set_eligible('roll', '{ann,dan}', false);
SELECT v.* FROM pg_temp.vote('roll', 'roll-3', 'a', 'ann') AS v;
-- a retry is judged by its id first
SELECT v.* FROM pg_temp.vote('roll', 'roll-1', 'a', 'ann') AS v;
SELECT v.* FROM pg_temp.vote('roll', 'roll-3', 'a', 'bob') AS v;
SELECT a.call, r.* FROM (VALUES ($$'once', '{ann}'$$), ($$'nowhere', '{ann}'$$), ($$NULL, '{ann}'$$), ($$'roll', NULL$$), ($$'roll', '{ann,NULL}'$$),
                                ($$'roll', '{""}'$$), ($$'roll', '{"a b"}'$$), ($$'roll', '{ann}', NULL$$)) AS a(call),
     LATERAL pg_temp.raised('SELECT poll_tally.set_eligible(' || a.call || ')') AS r;
SELECT counts FROM close_poll('roll');
SELECT r.* FROM pg_temp.raised($$SELECT poll_tally.set_eligible('roll', '{dan}')$$) AS r;

--
-- limits
--
SELECT create_poll('limits', '{a,b}', counting => 'every', max_choices => 2, min_weight => -5, max_weight => 5, min_count => -1, max_count => 3, publish_every => '1 day');
SELECT v.votes, r.* FROM (VALUES (1, '{"a": 3}'), (2, '{"a": 1}'), (3, '{"a": -5}'), (4, '{"a": -4, "b": 3}'), (5, '{"b": 1}'), (6, '{"a": 1, "b": 1}'), (7, '{"b": -4}'), (8, '{"b": -1}')) AS v(n, votes),
     LATERAL pg_temp.vote('limits', 'limits-' || v.n, NULL, NULL, v.votes::jsonb) AS r;
SELECT t.* FROM pg_temp.told('limits') AS t;
-- a retraction respects them too
SELECT v.* FROM pg_temp.retract('limits', 'limits-1', 'limits-back-1') AS v;
SELECT v.* FROM pg_temp.retract('limits', 'limits-4', 'limits-back-4') AS v;
SELECT t.* FROM pg_temp.told('limits') AS t;
-- one side only; under latest the change counts, not the vote
SELECT create_poll('limits-latest', '{a,b}', counting => 'latest', max_count => 1, publish_every => '1 day');
SELECT outcome FROM accept_event('limits-latest', 'latest-a', 'a', 'ann');
SELECT v.* FROM pg_temp.vote('limits-latest', 'latest-b', 'a', 'bob') AS v;
SELECT outcome FROM accept_event('limits-latest', 'latest-c', 'a', 'ann');
SELECT outcome FROM accept_event('limits-latest', 'latest-d', 'b', 'ann');
SELECT outcome FROM accept_event('limits-latest', 'latest-b', 'a', 'bob');
SELECT t.* FROM pg_temp.told('limits-latest') AS t;
SELECT create_poll('limits-min', '{a}', counting => 'every', min_weight => -1, min_count => 0, publish_every => '1 day');
SELECT v.* FROM pg_temp.vote('limits-min', 'min-1', NULL, NULL, '{"a": -1}') AS v;

--
-- alter_poll: each setting, and each refusal
--
SELECT create_poll('alter', '{a}', counting => 'every', max_attempts => 1, closes_at => '2999-01-01 00:00+00', publish_every => '1 day');
CREATE VIEW pg_temp.altered AS
SELECT title, opens_at AT TIME ZONE 'UTC' AS opens_at, closes_at AT TIME ZONE 'UTC' AS closes_at, publish_every, publish_min_events, notify, max_attempts
  FROM poll_tally.polls WHERE poll = 'alter';
SELECT alter_poll('alter');
SELECT * FROM pg_temp.altered;
SELECT alter_poll('alter', title => 'Änderbar', closes_at => '2999-02-01 00:00+00', opens_at => '2020-01-01 00:00+00', publish_every => '2 days',
                  publish_min_events => 3, notify => 'pointer', max_attempts => 2);
SELECT * FROM pg_temp.altered;
SELECT alter_poll('alter', NULL, NULL, NULL, NULL, NULL, NULL, NULL);
SELECT * FROM pg_temp.altered;
SELECT alter_poll('alter', max_attempts => 2);
SELECT alter_poll('alter', opens_at => 'infinity', closes_at => 'infinity');
SELECT * FROM pg_temp.altered;
SELECT alter_poll('alter', closes_at => '2999-03-01 00:00+00', title => '');
SELECT * FROM pg_temp.altered;
SELECT create_poll('alter-free', '{a}', counting => 'every', publish_every => '1 day');
SELECT a.call, r.* FROM (VALUES ($$'nowhere'$$), ($$NULL$$), ($$'alter', closes_at => '2020-01-01'$$), ($$'alter', closes_at => '-infinity'$$),
                                ($$'alter', opens_at => '2999-03-01 00:00+00'$$), ($$'alter', opens_at => '2999-02-01 00:00+00', closes_at => '2999-01-01 00:00+00'$$),
                                ($$'alter', publish_every => '0'$$), ($$'alter', publish_every => '-1 second'$$), ($$'alter', publish_min_events => 0$$),
                                ($$'alter', notify => 'all'$$), ($$'alter', max_attempts => 1$$), ($$'alter', max_attempts => 0$$), ($$'alter', max_attempts => -1$$),
                                ($$'alter-free', max_attempts => 5$$), ($$'once', max_attempts => 2$$), ($$'once', max_attempts => 1$$)) AS a(call),
     LATERAL pg_temp.raised('SELECT poll_tally.alter_poll(' || a.call || ')') AS r;
-- what cannot be altered is no argument of it
SELECT r.state FROM unnest(ARRAY['counting => ''every''', 'min_weight => 0', 'max_weight => 2', 'max_choices => 2', 'open_choices => true', 'restricted => true',
                                 'min_count => 0', 'max_count => 5', 'max_lanes => 2', 'hidden_until_close => true']) AS a(argument),
     LATERAL pg_temp.raised('SELECT poll_tally.alter_poll(''alter'', ' || a.argument || ')') AS r GROUP BY r.state;
-- it takes effect at once: attempts, opening, and a deadline
SELECT outcome, attempt FROM accept_event('alter', 'alter-1', 'a', 'ann');
SELECT outcome, attempt FROM accept_event('alter', 'alter-2', 'a', 'ann');
SELECT outcome, attempt FROM accept_event('alter', 'alter-3', 'a', 'ann');
SELECT alter_poll('alter', max_attempts => 3);
SELECT outcome, attempt FROM accept_event('alter', 'alter-3', 'a', 'ann');
SELECT alter_poll('alter', opens_at => '2999-01-01 00:00+00');
SELECT outcome, retryable FROM accept_event('alter', 'alter-4', 'a', 'bob');
SELECT outcome, retryable FROM accept_event('alter', 'alter-3', 'a', 'ann');
SELECT alter_poll('alter', opens_at => 'infinity');
SELECT outcome, retryable FROM accept_event('alter', 'alter-4', 'a', 'bob');
BEGIN;
SELECT alter_poll('alter', closes_at => clock_timestamp() + interval '200 milliseconds');
SELECT pg_sleep(0.25);
SELECT outcome, retryable FROM accept_event('alter', 'alter-5', 'a', 'cy');
SELECT outcome, retryable FROM accept_event('alter', 'alter-4', 'a', 'bob');
SELECT r.state, r.message FROM pg_temp.raised($$SELECT poll_tally.alter_poll('alter', closes_at => '2999-01-01')$$) AS r;
SELECT r.state, r.message FROM pg_temp.raised($$SELECT poll_tally.alter_poll('alter', title => 'late')$$) AS r;
ROLLBACK;
SELECT outcome FROM accept_event('alter', 'alter-5', 'a', 'cy');
SELECT counts FROM close_poll('alter');
SELECT r.* FROM pg_temp.raised($$SELECT poll_tally.alter_poll('alter', title => 'late')$$) AS r;

--
-- payload: compared as jsonb, at most max_payload
--
SELECT create_poll('payload', '{a}', counting => 'every', publish_every => '1 day');
SELECT v.* FROM pg_temp.vote('payload', 'payload-1', 'a', NULL, NULL, '{"n": 1, "list": [1, 2], "text": "ü"}') AS v;
SELECT p.payload, r.outcome, r.differs
  FROM (VALUES ('{"list":[1,2],"n":1.0,"text":"\u00fc"}'), ('{"n": 1, "list": [2, 1], "text": "ü"}'), ('{"n": "1", "list": [1, 2], "text": "ü"}'), ('null'), (NULL)) AS p(payload),
       LATERAL pg_temp.vote('payload', 'payload-1', 'a', NULL, NULL, p.payload::jsonb) AS r;
SET poll_tally.max_payload = 30;
SELECT r.outcome, r.differs FROM pg_temp.vote('payload', 'payload-1', 'a', NULL, NULL, '{"n": 1, "list": [1, 2], "text": "ü"}') AS r;
SELECT r.outcome, r.detail FROM pg_temp.vote('payload', 'payload-2', 'a', NULL, NULL, '{"n": 1, "list": [1, 2], "text": "ü"}') AS r;
SELECT r.outcome, r.detail FROM pg_temp.vote('payload', 'payload-2', 'a', NULL, NULL, '{"n": 1}') AS r;
RESET poll_tally.max_payload;
SELECT create_poll('payload-1mb', '{a}', counting => 'every', publish_every => '1 day');
SELECT p.label, r.outcome, r.differs
  FROM (VALUES (1, 'first', to_jsonb(repeat('answer ', 140000))), (2, 'again', to_jsonb(repeat('answer ', 140000))),
               (3, 'one letter more', to_jsonb(repeat('answer ', 140000) || '.')), (4, 'too large', to_jsonb(repeat('answer ', 150000)))) AS p(n, label, payload),
       LATERAL pg_temp.vote('payload-1mb', 'payload-' || least(p.n, 3) / 4 || CASE p.n WHEN 4 THEN 'x' ELSE '' END, 'a', NULL, NULL, p.payload) AS r ORDER BY p.n;

--
-- accept_json
--
SELECT create_poll('json', '{a,b}', publish_every => '1 day');
SELECT s.* FROM accept_json('{"event_id": "json-1", "poll_id": "json", "candidate_id": "a"}', 'ann') AS r, pg_temp.shown(r) AS s;
SELECT s.* FROM accept_json('{"candidate_id":"\u0061","poll_id":"js\u006fn","event_id":"json\u002d1"}', 'ann') AS r, pg_temp.shown(r) AS s;
SELECT s.* FROM accept_json('{"event_id": "json-1", "poll_id": "json", "candidate_id": "b"}', 'ann') AS r, pg_temp.shown(r) AS s;
SELECT s.* FROM accept_json('{"event_id": "json-2", "poll_id": "json", "candidate_id": "b"}') AS r, pg_temp.shown(r) AS s;
SELECT s.* FROM accept_json('{"event_id": "json-2", "poll_id": "json", "candidate_id": "c"}', 'bob') AS r, pg_temp.shown(r) AS s;
SELECT s.* FROM accept_json('{"event_id": "json-2", "poll_id": "json", "candidate_id": "b", "principal": "eve"}', 'bob') AS r, pg_temp.shown(r) AS s;
SELECT s.* FROM accept_json('{"event_id": "json-2", "poll_id": "json", "candidate_id": "b", "candidate_id": "b"}', 'bob') AS r, pg_temp.shown(r) AS s;
SELECT s.* FROM accept_json('{"event_id": "json-2", "poll_id": "json"}', 'bob') AS r, pg_temp.shown(r) AS s;
SELECT s.* FROM accept_json('{"event_id": 2, "poll_id": "json", "candidate_id": "b"}', 'bob') AS r, pg_temp.shown(r) AS s;
SELECT s.* FROM accept_json('["event_id", "poll_id", "candidate_id"]', 'bob') AS r, pg_temp.shown(r) AS s;
SELECT s.* FROM accept_json('{"event_id": "json 2", "poll_id": "json", "candidate_id": "b"}', 'bob') AS r, pg_temp.shown(r) AS s;
SELECT s.* FROM accept_json(NULL, 'bob') AS r, pg_temp.shown(r) AS s;
SET poll_tally.max_body = 64;
SELECT s.* FROM accept_json('{"event_id":"json-2","poll_id":"json","candidate_id":"b"}       ', 'bob') AS r, pg_temp.shown(r) AS s;
SELECT s.* FROM accept_json('{"event_id":"json-3","poll_id":"json","candidate_id":"b"}        ', 'cy') AS r, pg_temp.shown(r) AS s;
RESET poll_tally.max_body;
SELECT event_id, principal, votes FROM events WHERE poll = 'json' ORDER BY position;
BEGIN READ ONLY;
SELECT r.* FROM pg_temp.raised($$SELECT poll_tally.accept_json('{}')$$) AS r;
SELECT r.* FROM pg_temp.raised($$SELECT poll_tally.retract_event('json', 'json-1', 'json-back')$$) AS r;
COMMIT;

--
-- statistics: what was answered counts, whatever becomes of the transaction
--
SELECT reset_stats();
SELECT create_poll('stats', '{a}', publish_every => '1 day');
SELECT outcome FROM accept_event('stats', 'stats-1', 'a', 'ann');
SELECT outcome FROM accept_event('stats', 'stats-1', 'a', 'ann');
SELECT outcome FROM accept_event('stats', 'stats-1', 'b', 'ann');
SELECT outcome FROM accept_event('stats', 'stats-2', 'a', 'ann');
SELECT outcome FROM accept_event('stats', '', 'a', 'ann');
SELECT outcome FROM accept_json('{}');
BEGIN;
SELECT outcome FROM accept_event('stats', 'stats-3', 'a', 'bob');
ROLLBACK;
SELECT outcome FROM retract_event('stats', 'nothing', 'stats-4');
SELECT name, value, since <= clock_timestamp() AS since FROM stats WHERE value > 0 AND name NOT IN ('lanes_opened', 'publications') ORDER BY name;
SELECT count(DISTINCT since) FROM stats;
SELECT reset_stats();
SELECT sum(value) FROM stats WHERE name NOT IN ('lanes_opened', 'publications');

--
-- damage done on purpose, seen by verify_poll and repaired by rebuild_tallies
--
-- "w" is not narrow: too many choices stand before it
SELECT create_poll('damage', array(SELECT 'long-name-of-choice-' || g FROM generate_series(1, 1200) AS g) || '{w}', counting => 'every', max_choices => 3, max_lanes => 4, publish_every => '1 day');
SELECT poll_id AS damage_id FROM poll WHERE poll = 'damage' \gset
SELECT create_poll('damage-open', '{a}', counting => 'every', open_choices => true, publish_every => '1 day');
SELECT poll_id AS open_id FROM poll WHERE poll = 'damage-open' \gset
SELECT outcome, position FROM accept_event('damage', 'damage-1', votes => '{"long-name-of-choice-1": 1, "w": 1}');
SELECT outcome, position FROM accept_event('damage', 'damage-2', 'w');
SELECT outcome FROM accept_event('damage-open', 'damage-3', 'a');
SELECT outcome FROM accept_event('damage-open', 'damage-4', 'k');
SELECT revision FROM publish('damage', true);
SELECT check_name, ok FROM verify_poll('damage');
SELECT rebuild_tallies('damage'), rebuild_tallies('damage-open');
SELECT max(revision) AS still FROM snapshots WHERE poll = 'damage';
-- what verify_poll says of the damage, how many were wrong, and what it says afterwards
CREATE FUNCTION pg_temp.repair(poll text, damage text, OUT seen text, OUT wrong text, OUT left_over text, OUT published boolean) LANGUAGE plpgsql AS $$
DECLARE
    revision_before bigint := (SELECT max(s.revision) FROM poll_tally.snapshots AS s WHERE s.poll = repair.poll);
BEGIN
    EXECUTE damage;
    seen := (SELECT string_agg(v.check_name, ', ') FROM poll_tally.verify_poll(repair.poll) AS v WHERE NOT v.ok);
    wrong := poll_tally.rebuild_tallies(repair.poll);
    left_over := (SELECT string_agg(v.check_name, ', ') FROM poll_tally.verify_poll(repair.poll) AS v WHERE NOT v.ok);
    published := (SELECT max(s.revision) FROM poll_tally.snapshots AS s WHERE s.poll = repair.poll) > revision_before;
END $$;
SELECT d.damage, r.*
  FROM (VALUES ('UPDATE poll_tally.lane SET seq = seq + 1 WHERE poll_id = :damage_id'),
               ('UPDATE poll_tally.lane SET seq = 1 WHERE poll_id = :damage_id'),
               ('UPDATE poll_tally.lane SET seq = 0 WHERE poll_id = :damage_id'),
               ('UPDATE poll_tally.lane SET counts = ''{}'' WHERE poll_id = :damage_id'),
               ('UPDATE poll_tally.lane SET counts = ''{"long-name-of-choice-1": 7, "long-name-of-choice-2": -1}'' WHERE poll_id = :damage_id'),
               ('DELETE FROM poll_tally.lane WHERE poll_id = :damage_id'),
               ('INSERT INTO poll_tally.lane (poll_id, lane, keys, seq, counts) VALUES (:damage_id, 3, 0, 5, ''{}'')'),
               ('INSERT INTO poll_tally.lane (poll_id, lane, keys, seq, counts) VALUES (:damage_id, 2, 0, 0, ''{"long-name-of-choice-1": 1}'')'),
               ('UPDATE poll_tally.lane_count SET count = count + 1 WHERE poll_id = :damage_id'),
               ('DELETE FROM poll_tally.lane_count WHERE poll_id = :damage_id'),
               ('INSERT INTO poll_tally.lane_count (poll_id, lane, choice, count) VALUES (:damage_id, 0, ''long-name-of-choice-1200'', 3)'),
               ('INSERT INTO poll_tally.lane_count (poll_id, lane, choice, count) VALUES (:damage_id, 1, ''w'', -2)'),
               ('UPDATE poll_tally.lane SET counts = ''{"long-name-of-choice-1": 2}'' WHERE poll_id = :damage_id; UPDATE poll_tally.lane_count SET count = 1 WHERE poll_id = :damage_id')) AS d(damage),
       LATERAL pg_temp.repair('damage', replace(d.damage, ':damage_id', :'damage_id')) AS r;
SELECT d.damage, r.*
  FROM (VALUES ('DELETE FROM poll_tally.lane_count WHERE poll_id = :open_id'), ('UPDATE poll_tally.lane_count SET choice = ''j'' WHERE poll_id = :open_id'),
               ('INSERT INTO poll_tally.lane_count (poll_id, lane, choice, count) VALUES (:open_id, 0, ''extra'', 1)')) AS d(damage),
       LATERAL pg_temp.repair('damage-open', replace(d.damage, ':open_id', :'open_id')) AS r;
SELECT count(*) = max(revision) AND min(revision) = 1 AS gapless FROM snapshots WHERE poll = 'damage';
SELECT choice, count FROM results WHERE poll = 'damage-open';
SELECT t.* FROM pg_temp.told('damage-open') AS t;
-- voting goes on where the ledger ends
SELECT outcome, position FROM accept_event('damage', 'damage-5', 'w');
SELECT outcome, position FROM accept_event('damage-open', 'damage-6', 'k');
-- a snapshot that was tampered with cannot be repaired, but is seen
BEGIN;
UPDATE snapshot SET counts = '{"a": 99}', total = 99 WHERE poll_id = :open_id AND revision = 2;
SELECT check_name, expected, actual FROM verify_poll('damage-open') WHERE NOT ok;
ROLLBACK;
BEGIN;
UPDATE snapshot SET included_position = included_position + 1 WHERE poll_id = :open_id AND revision = 2;
SELECT check_name, expected, actual FROM verify_poll('damage-open') WHERE NOT ok;
ROLLBACK;
-- a chain of a principal that was tampered with
BEGIN;
ALTER TABLE ledger DISABLE TRIGGER ledger_guard;
UPDATE ledger SET attempt = 3 WHERE event_id = 'every-3';
SELECT check_name, expected, actual FROM verify_poll('every') WHERE NOT ok;
ROLLBACK;
-- a chain of a principal that cannot go on
BEGIN;
SELECT create_poll('long', '{a}', counting => 'every', publish_every => '1 day');
SELECT outcome FROM accept_event('long', 'long-1', 'a', 'ann');
ALTER TABLE ledger DISABLE TRIGGER ledger_guard;
UPDATE ledger SET link = 2147483647 WHERE event_id = 'long-1';
SELECT r.state, r.message FROM (VALUES ($$accept_event('long', 'long-2', 'a', 'ann')$$), ($$accept_events('long', '{long-3}', '{a}', '{ann}')$$),
                                       ($$retract_event('long', 'long-1', 'long-4', 'none')$$)) AS c(call),
     LATERAL pg_temp.raised('SELECT poll_tally.' || c.call) AS r;
SELECT outcome FROM accept_event('long', 'long-1', 'a', 'ann');
SELECT outcome FROM accept_event('long', 'long-5', 'a', 'bob');
ROLLBACK;
-- a closed poll: its final counts come back, without a revision; where the ledger is not what it was, nothing is done
SELECT revision, final, counts IS NULL AS wide FROM close_poll('damage');
SELECT revision, counts FROM close_poll('damage-open');
SELECT r.* FROM pg_temp.repair('damage-open', 'UPDATE poll_tally.lane SET counts = ''{"a": 5}'' WHERE poll_id = ' || :'open_id') AS r;
SELECT r.* FROM pg_temp.repair('damage', 'UPDATE poll_tally.lane_count SET count = 100 WHERE poll_id = ' || :'damage_id') AS r;
BEGIN;
ALTER TABLE ledger DISABLE TRIGGER ledger_guard;
DELETE FROM ledger WHERE event_id = 'damage-6';
SAVEPOINT damaged;
SELECT check_name, expected, actual FROM verify_poll('damage-open') WHERE NOT ok;
SELECT rebuild_tallies('damage-open');
\echo :LAST_ERROR_SQLSTATE
ROLLBACK TO damaged;
SELECT counts, final FROM snapshot('damage-open');
ROLLBACK;
-- what was counted after the final snapshot, by whoever opened the poll again
BEGIN;
UPDATE poll SET closed_at = NULL WHERE poll = 'damage-open';
SELECT outcome FROM accept_event('damage-open', 'damage-late', 'k');
UPDATE poll SET closed_at = clock_timestamp() WHERE poll = 'damage-open';
SELECT check_name, expected, actual FROM verify_poll('damage-open') WHERE NOT ok;
ROLLBACK;
-- unknown polls, and levels above READ COMMITTED
SELECT c.call, r.state, r.message FROM (VALUES ($$verify_poll('nowhere')$$), ('verify_poll(NULL)'), ($$rebuild_tallies('nowhere')$$), ('rebuild_tallies(NULL)')) AS c(call),
     LATERAL pg_temp.raised('SELECT poll_tally.' || c.call) AS r;
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT c.call, r.state, r.message FROM (VALUES ($$verify_poll('open')$$), ($$rebuild_tallies('open')$$), ($$close_poll('open')$$)) AS c(call),
     LATERAL pg_temp.raised('SELECT poll_tally.' || c.call) AS r;
COMMIT;
BEGIN READ ONLY;
SELECT r.state, r.message FROM pg_temp.raised($$SELECT poll_tally.rebuild_tallies('open')$$) AS r;
SELECT bool_and(ok) FROM verify_poll('open');
COMMIT;

--
-- closing names the prepared transaction that is in its way, and leaves the poll open
--
SELECT create_poll('prepared', '{a,b}', counting => 'every', max_lanes => 2, publish_every => '1 day');
BEGIN;
SELECT outcome FROM accept_event('prepared', 'prepared-1', 'a');
PREPARE TRANSACTION 'rules "prepared"';
SET lock_timeout = '100ms';
SELECT close_poll('prepared');
\echo :LAST_ERROR_SQLSTATE
SELECT r.state FROM pg_temp.raised($$SELECT poll_tally.rebuild_tallies('prepared')$$) AS r;
SELECT r.state FROM pg_temp.raised($$SELECT poll_tally.alter_poll('prepared', closes_at => '2999-01-01')$$) AS r;
RESET lock_timeout;
SET statement_timeout = '100ms';
SELECT close_poll('prepared');
\echo :LAST_ERROR_SQLSTATE
RESET statement_timeout;
SELECT closed_at FROM polls WHERE poll = 'prepared';
SELECT outcome FROM accept_event('prepared', 'prepared-2', 'b');
COMMIT PREPARED 'rules "prepared"';
SELECT counts, final FROM close_poll('prepared');
SELECT t.* FROM pg_temp.told('prepared') AS t;

\c :home
DROP DATABASE regress_poll_tally_rules;
