-- accept_event and accept_event_or_raise: each outcome with its whole row, the order of reasons, the SQLSTATE,
-- constraint and DETAIL of what is raised; duplicates and refusals write nothing and get no transaction id.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS poll_tally;
RESET client_min_messages;
SET search_path = poll_tally, public;

-- The row without its time: whether accepted_at is there says enough.
CREATE FUNCTION pg_temp.accept(VARIADIC arguments text[])
    RETURNS TABLE (outcome outcome, event_id text, pos event_position, attempt int, at boolean,
                   retryable boolean, differs text[], detail text)
    LANGUAGE plpgsql AS $$
BEGIN
    RETURN QUERY EXECUTE format(
        'SELECT r.outcome, r.event_id, r."position", r.attempt, r.accepted_at IS NOT NULL, r.retryable, r.differs, r.detail
         FROM poll_tally.accept_event(%s) AS r', array_to_string(arguments, ', '));
END $$;

SELECT create_poll('accept', '{a,b}', publish_every => '1 day');
SELECT create_poll('accept-every', '{a,b}', counting => 'every', publish_every => '1 day');

-- accepted, and exactly one row
SELECT * FROM pg_temp.accept($$'accept', 'acc-1', 'a', 'ann'$$);
SELECT * FROM pg_temp.accept($$'accept', 'acc-2', 'b', 'bob', payload => '{"n": 1.0, "t": [true, null]}'$$,
                             $$occurred_at => '2020-01-01 00:00+00'$$);
SELECT * FROM pg_temp.accept($$'accept', 'acc-3', votes => '{"a": 1, "b": 0}', principal => 'cy'$$,
                             $$source => 'topic', source_partition => -1, source_offset => 7$$);
SELECT count(*) FROM accept_event('accept', 'acc-3', 'a', 'cy');
SELECT poll, event_id, kind, principal, attempt, votes, effect, payload, position, source, source_partition,
       source_offset, occurred_at AT TIME ZONE 'UTC' AS occurred_at, retracts
  FROM events WHERE poll = 'accept' ORDER BY position;
-- without a principal there is no attempt; with one, attempts count up
SELECT * FROM pg_temp.accept($$'accept-every', 'eve-1', 'a'$$);
SELECT * FROM pg_temp.accept($$'accept-every', 'eve-2', 'a', 'ann'$$);
SELECT * FROM pg_temp.accept($$'accept-every', 'eve-3', 'b', 'ann'$$);

-- duplicate: the original receipt, whatever the spelling and the source
SELECT * FROM pg_temp.accept($$'accept', 'acc-1', 'a', 'ann'$$);
SELECT * FROM pg_temp.accept($$'accept', 'acc-1', votes => '{"b": 0, "a": 1.0}', principal => 'ann'$$,
                             $$source => 'other', source_partition => 0, source_offset => 0$$);
SELECT count(*) AS stored FROM events WHERE source = 'other';
SELECT * FROM pg_temp.accept($$'accept', 'acc-2', 'b', 'bob', payload => '{"t":[true,null],"n":1}'$$,
                             $$occurred_at => '2020-01-01 01:00+01'$$);
SELECT * FROM pg_temp.accept($$'accept-every', 'eve-3', 'b', 'ann'$$);
SELECT r.accepted_at = e.accepted_at AS same_time
  FROM accept_event('accept', 'acc-1', 'a', 'ann') AS r, events AS e WHERE e.event_id = 'acc-1';

-- conflict: the fields in their order; SQL NULL differs from every value
SELECT * FROM pg_temp.accept($$'accept', 'acc-1', 'b', 'ann'$$);
SELECT * FROM pg_temp.accept($$'accept', 'acc-1', 'a', 'Ann'$$);
SELECT * FROM pg_temp.accept($$'accept', 'acc-1', 'a'$$);
SELECT * FROM pg_temp.accept($$'accept', 'acc-1', 'a', 'ann', payload => 'null'$$);
SELECT * FROM pg_temp.accept($$'accept', 'acc-1', 'a', 'ann', occurred_at => '-infinity'$$);
SELECT * FROM pg_temp.accept($$'accept', 'acc-2', 'b', 'bob', payload => '{"n": 1, "t": [null, true]}'$$,
                             $$occurred_at => '2020-01-01 00:00+00'$$);
SELECT * FROM pg_temp.accept($$'accept', 'acc-2', 'b', 'bob'$$);
SELECT * FROM pg_temp.accept($$'accept-every', 'acc-1', votes => '{"a": 2}', principal => 'x', payload => '1'$$,
                             $$occurred_at => now()$$);
SELECT * FROM pg_temp.accept($$'accept-nowhere', 'acc-1', 'a', 'ann'$$);
SELECT * FROM pg_temp.accept($$'Accept', 'acc-1', 'a', 'ann'$$);

-- source_conflict
SELECT * FROM pg_temp.accept($$'accept', 'src-1', 'a', 'dan', source => 'topic', source_partition => -1, source_offset => 7$$);
SELECT * FROM pg_temp.accept($$'accept', 'acc-4', 'a', 'dan', source => 'topic', source_partition => 0, source_offset => 7$$);

-- unknown_poll, unknown_choice, already_responded
SELECT * FROM pg_temp.accept($$'accept-nowhere', 'ref-1', 'a', 'eve'$$);
SELECT * FROM pg_temp.accept($$'accept', 'ref-1', 'c', 'eve'$$);
SELECT * FROM pg_temp.accept($$'accept', 'ref-1', 'A', 'eve'$$);
SELECT * FROM pg_temp.accept($$'accept', 'ref-1', 'a', 'ann'$$);
-- a refusal binds nothing
SELECT * FROM pg_temp.accept($$'accept', 'ref-1', 'b', 'eve'$$);

-- not_open, closed; the detail tells times, so it is not shown
SELECT create_poll('accept-later', '{a}', opens_at => '2999-01-01 00:00+00', publish_every => '1 day');
SELECT create_poll('accept-past', '{a}', closes_at => '2020-01-01 00:00+00', publish_every => '1 day');
SELECT outcome, event_id, pos, attempt, at, retryable, differs, detail IS NOT NULL AS detailed
  FROM pg_temp.accept($$'accept-later', 'ref-2', 'a', 'ann'$$);
SELECT outcome, event_id, pos, attempt, at, retryable, differs, detail IS NOT NULL AS detailed
  FROM pg_temp.accept($$'accept-past', 'ref-2', 'a', 'ann'$$);
-- a poll can be closed before it opens, and closed comes first
SELECT revision, final FROM close_poll('accept-later');
SELECT * FROM pg_temp.accept($$'accept-later', 'ref-2', 'a', 'ann'$$);

-- invalid, row 1: the event is malformed, whatever the poll
SELECT a.arguments, r.outcome, r.event_id, r.pos, r.attempt, r.at, r.retryable, r.detail
  FROM (VALUES ($$NULL, NULL$$), ($$NULL, 'inv-1', 'a'$$), ($$'accept', NULL, 'a'$$), ($$'accept', '', 'a'$$),
               ($$'', 'inv-1', 'a'$$), ($$'accept', 'inv 1', 'a'$$), ($$'accept', 'inv"1', 'a'$$),
               ($$'accept', 'inv\1', 'a'$$), ($$'accept', E'inv\t1', 'a'$$), ($$'accept', E'inv\u00E9', 'a'$$),
               ($$'accept', E'inv\u007F', 'a'$$), ($$'accept', repeat('x', 65), 'a'$$),
               ($$'accept', 'inv-1', 'a', ''$$), ($$'accept', 'inv-1', 'a', 'a b'$$),
               ($$'accept', 'inv-1'$$), ($$'accept', 'inv-1', 'a', votes => '{"a": 1}'$$), ($$'accept', 'inv-1', ''$$),
               ($$'accept', 'inv-1', 'a b'$$), ($$'accept', 'inv-1', votes => '[]'$$),
               ($$'accept', 'inv-1', votes => '"a"'$$), ($$'accept', 'inv-1', votes => 'null'$$),
               ($$'accept', 'inv-1', votes => '1'$$),
               ($$'accept', 'inv-1', votes => '{}'$$), ($$'accept', 'inv-1', votes => '{"a": 0, "b": -0}'$$),
               ($$'accept', 'inv-1', votes => '{"a": "1"}'$$), ($$'accept', 'inv-1', votes => '{"a": 1.5}'$$),
               ($$'accept', 'inv-1', votes => '{"a": null}'$$), ($$'accept', 'inv-1', votes => '{"a": true}'$$),
               ($$'accept', 'inv-1', votes => '{"a": [1]}'$$), ($$'accept', 'inv-1', votes => '{"a": {}}'$$),
               ($$'accept', 'inv-1', votes => '{"a b": 1}'$$), ($$'accept', 'inv-1', votes => '{"": 1}'$$),
               ($$'accept', 'inv-1', votes => '{"a": 9223372036854775808}'$$),
               ($$'accept', 'inv-1', votes => '{"a": -1e400}'$$),
               ($$'accept', 'inv-1', 'a', source => 's'$$), ($$'accept', 'inv-1', 'a', source_partition => 1$$),
               ($$'accept', 'inv-1', 'a', source_offset => 1, source_partition => 1$$),
               ($$'accept', 'inv-1', 'a', source => 's', source_offset => 1$$),
               ($$'accept', 'inv-1', 'a', source => '', source_offset => 1, source_partition => 1$$)) AS a(arguments),
       LATERAL pg_temp.accept(a.arguments) AS r;
-- the longest identifier, and each character that one may have
SELECT * FROM pg_temp.accept($$'accept-every', repeat('x', 64), 'a'$$);
SELECT outcome, event_id FROM accept_event('accept-every',
    (SELECT string_agg(chr(i), '') FROM generate_series(33, 79) AS i WHERE chr(i) NOT IN ('"', '\')), 'a', '''');
SELECT outcome, event_id FROM accept_event('accept-every',
    (SELECT string_agg(chr(i), '') FROM generate_series(80, 126) AS i WHERE chr(i) NOT IN ('"', '\')), 'a', '~');

-- invalid, row 9: the poll's own rules
SELECT * FROM pg_temp.accept($$'accept', 'inv-2', 'a'$$);
SELECT * FROM pg_temp.accept($$'accept', 'inv-2', votes => '{"a": 1, "b": 1}', principal => 'fay'$$);
SELECT * FROM pg_temp.accept($$'accept', 'inv-2', votes => '{"a": 2}', principal => 'fay'$$);
SELECT * FROM pg_temp.accept($$'accept', 'inv-2', votes => '{"a": -1}', principal => 'fay'$$);
SELECT * FROM pg_temp.accept($$'accept', 'inv-2', 'a', 'fay', occurred_at => now() + interval '6 minutes'$$);
SELECT * FROM pg_temp.accept($$'accept', 'inv-2', 'a', 'fay', occurred_at => 'infinity'$$);
SELECT outcome FROM pg_temp.accept($$'accept', 'acc-5', 'a', 'fay', occurred_at => clock_timestamp() + interval '4 minutes'$$);
SET poll_tally.max_payload = 16;
SELECT outcome, event_id, retryable FROM pg_temp.accept($$'accept', 'inv-2', 'a', 'gil', payload => '{"text": "longer than that"}'$$);
SELECT outcome FROM pg_temp.accept($$'accept', 'acc-6', 'a', 'gil', payload => '1'$$);
RESET poll_tally.max_payload;

-- A payload of any kind is stored and compared as jsonb, also one that is stored out of line.
CREATE TEMP TABLE large AS
  SELECT jsonb_object_agg('k' || i, md5(i::text) || md5((i * 7)::text)) AS payload FROM generate_series(1, 3000) AS i;
SELECT r.outcome, r.position FROM large, accept_event('accept', 'acc-7', 'a', 'hal', payload => payload) AS r;
SELECT r.outcome, r.differs FROM large, accept_event('accept', 'acc-7', 'a', 'hal', payload => payload) AS r;
SELECT r.outcome, r.differs FROM large, accept_event('accept', 'acc-7', 'a', 'hal', payload => payload || '{"k2999": ""}') AS r;
SELECT r.outcome, r.differs FROM large, accept_event('accept', 'acc-7', 'a', 'hal', payload => payload - 'k1') AS r;
SELECT octet_length(e.payload::text) > 100000 AS whole, e.payload = l.payload AS same
  FROM events AS e, large AS l WHERE e.event_id = 'acc-7';

-- The order of reasons: an event to which two of them apply gets the first.
-- Each line names the rows of the table of outcomes that hold.
SELECT create_poll('accept-shut', '{a}', publish_every => '1 day');
SELECT outcome FROM accept_event('accept-shut', 'ord-1', 'a', 'ann', source => 'ord', source_partition => 0, source_offset => 1);
SELECT final FROM close_poll('accept-shut');
SELECT create_poll('accept-soon', '{a}', opens_at => '2999-01-01', restricted => true, publish_every => '1 day');
SELECT create_poll('accept-few', '{a}', restricted => true, publish_every => '1 day');
SELECT o.rows, r.outcome, r.differs
  FROM (VALUES ('1 2', $$'accept-shut', 'ord-1', 'a b', 'ann'$$), ('1 5', $$'nowhere', 'ord-2', votes => '{}'$$),
               ('1 6', $$'accept-shut', 'ord-2', 'a', 'a b'$$),
               ('2 3', $$'accept-shut', 'ord-1', 'b', 'ann', source => 'topic', source_partition => -1, source_offset => 7$$),
               ('2 3 dup', $$'accept-shut', 'ord-1', 'a', 'ann', source => 'topic', source_partition => -1, source_offset => 7$$),
               ('2 5', $$'nowhere', 'ord-1', 'a', 'ann'$$), ('2 6', $$'accept-shut', 'ord-1', 'a', 'bob'$$),
               ('2 6 dup', $$'accept-shut', 'ord-1', 'a', 'ann'$$), ('2 7', $$'accept-soon', 'ord-1', 'a', 'ann'$$),
               ('2 9', $$'accept', 'ord-1', 'a', 'ann', occurred_at => 'infinity'$$),
               ('2 10', $$'accept-shut', 'ord-1', 'zz', 'ann'$$), ('2 11', $$'accept', 'ord-1', 'a', 'ann'$$),
               ('3 5', $$'nowhere', 'ord-2', 'a', 'ann', source => 'ord', source_partition => 0, source_offset => 1$$),
               ('3 6', $$'accept-shut', 'ord-2', 'a', 'ann', source => 'ord', source_partition => 0, source_offset => 1$$),
               ('3 7', $$'accept-soon', 'ord-2', 'a', 'ann', source => 'ord', source_partition => 0, source_offset => 1$$),
               ('3 9', $$'accept', 'ord-2', 'a', source => 'ord', source_partition => 0, source_offset => 1$$),
               ('3 10', $$'accept', 'ord-2', 'zz', 'zoe', source => 'ord', source_partition => 0, source_offset => 1$$),
               ('3 11', $$'accept', 'ord-2', 'a', 'ann', source => 'ord', source_partition => 0, source_offset => 1$$),
               ('6 9', $$'accept-shut', 'ord-2', 'a'$$), ('6 10', $$'accept-shut', 'ord-2', 'zz', 'zoe'$$),
               ('6 11', $$'accept-shut', 'ord-2', 'a', 'ann'$$),
               ('7 8', $$'accept-soon', 'ord-2', 'a', 'ann'$$), ('7 9', $$'accept-soon', 'ord-2', 'a'$$),
               ('7 10', $$'accept-soon', 'ord-2', 'zz', 'ann'$$), ('8 9', $$'accept-few', 'ord-2', 'a'$$),
               ('8 10', $$'accept-few', 'ord-2', 'zz', 'ann'$$),
               ('9 10', $$'accept', 'ord-2', votes => '{"a": 1, "zz": 1}', principal => 'zoe'$$),
               ('9 11', $$'accept', 'ord-2', votes => '{"a": 2}', principal => 'ann'$$),
               ('10 11', $$'accept', 'ord-2', 'zz', 'ann'$$)) AS o(rows, arguments),
       LATERAL pg_temp.accept(o.arguments) AS r;

-- Duplicates, conflicts and refusals write nothing: there is no transaction id after them, and no lane is held.
BEGIN;
SELECT outcome FROM accept_event('accept', 'acc-1', 'a', 'ann');
SELECT outcome FROM accept_event('accept', 'acc-1', 'b', 'ann');
SELECT outcome FROM accept_event('accept', 'xid-1', 'a', 'zoe', source => 'ord', source_partition => 0, source_offset => 1);
SELECT outcome FROM accept_event('nowhere', 'xid-1', 'a', 'zoe');
SELECT outcome FROM accept_event('accept-shut', 'xid-1', 'a', 'zoe');
SELECT outcome FROM accept_event('accept-soon', 'xid-1', 'a', 'zoe');
SELECT outcome FROM accept_event('accept-few', 'xid-1', 'a', 'zoe');
SELECT outcome FROM accept_event('accept', 'xid-1', 'a');
SELECT outcome FROM accept_event('accept', 'xid-1', 'zz', 'zoe');
SELECT outcome FROM accept_event('accept', 'xid-1', 'a', 'ann');
SELECT outcome FROM accept_event_or_raise('accept', 'acc-1', 'a', 'ann');
SELECT status, outcome, poll, position, attempts, detail FROM event_status('acc-1');
SELECT pg_current_xact_id_if_assigned() IS NULL AS no_xid,
       (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()) AS lanes;
SELECT outcome FROM accept_event('accept', 'xid-1', 'a', 'zoe');
SELECT pg_current_xact_id_if_assigned() IS NULL AS no_xid,
       (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()) AS lanes;
ROLLBACK;

-- At SERIALIZABLE, none of the look-ups takes a predicate lock: they add no conflict of their own.
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT o.holds, r.outcome
  FROM (VALUES ('nothing', $$'accept', 'siread-1', 'a', 'zoe', source => 'siread', source_partition => 0, source_offset => 1$$),
               ('the id', $$'accept', 'acc-1', 'a', 'ann'$$),
               ('other content', $$'accept', 'acc-1', 'b', 'ann'$$),
               ('the source', $$'accept', 'siread-2', 'a', 'yve', source => 'ord', source_partition => 0, source_offset => 1$$),
               ('no poll', $$'nowhere', 'siread-2', 'a', 'yve'$$),
               ('no roll', $$'accept-few', 'siread-2', 'a', 'yve'$$),
               ('no choice', $$'accept', 'siread-2', 'zz', 'yve'$$),
               ('the principal', $$'accept', 'siread-2', 'a', 'ann'$$)) AS o(holds, arguments),
       LATERAL pg_temp.accept(o.arguments) AS r;
SELECT relation::regclass, count(*) FROM pg_locks WHERE mode = 'SIReadLock' AND pid = pg_backend_pid() GROUP BY relation;
ROLLBACK;

-- Inside one transaction, and one statement, a repeat is a repeat.
BEGIN;
SELECT * FROM pg_temp.accept($$'accept', 'twice-1', 'a', 'ida'$$);
SELECT * FROM pg_temp.accept($$'accept', 'twice-1', 'a', 'ida'$$);
SELECT * FROM pg_temp.accept($$'accept', 'twice-1', 'b', 'ida'$$);
SELECT * FROM pg_temp.accept($$'accept', 'twice-2', 'b', 'ida'$$);
ROLLBACK;
SELECT i, r.outcome, r.position, r.attempt
  FROM generate_series(1, 3) AS i, LATERAL accept_event('accept-every', 'once-' || i / 2, 'a', 'jim') AS r;

-- accept_event_or_raise: the same row, or an error
SELECT outcome, event_id, position, attempt, retryable, differs, detail FROM accept_event_or_raise('accept', 'raise-1', 'b', 'kay');
SELECT outcome, event_id, position, attempt, retryable, differs, detail FROM accept_event_or_raise('accept', 'raise-1', 'b', 'kay');
SELECT accept_event_or_raise('accept', 'raise-1', 'a', 'kay');
SELECT accept_event_or_raise('nowhere', 'raise-2', 'a', 'kay');
CREATE FUNCTION pg_temp.raised(arguments text)
    RETURNS TABLE (state text, "constraint" text, message text, detail text, hint text)
    LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE 'SELECT poll_tally.accept_event_or_raise(' || arguments || ')';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, "constraint" = CONSTRAINT_NAME,
        message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
    RETURN NEXT;
END $$;
SELECT r.*
  FROM (VALUES ($$'accept', NULL, 'a'$$), ($$'accept', 'raise-2', 'a'$$), ($$'accept', 'raise-1', 'a', 'x'$$),
               ($$'accept', 'raise-2', 'a', 'x', source => 'topic', source_partition => -1, source_offset => 7$$),
               ($$'nowhere', 'raise-2', 'a', 'x'$$), ($$'accept-shut', 'raise-2', 'a', 'x'$$),
               ($$'accept-few', 'raise-2', 'a', 'x'$$), ($$'accept', 'raise-2', 'zz', 'x'$$),
               ($$'accept', 'raise-2', 'a', 'kay'$$)) AS a(arguments), LATERAL pg_temp.raised(a.arguments) AS r;
SELECT state, "constraint", message, split_part(detail, ':', 1) AS detail, hint
  FROM pg_temp.raised($$'accept-soon', 'raise-2', 'a', 'x'$$);
SELECT state, "constraint", message, split_part(detail, ':', 1) AS detail, hint
  FROM pg_temp.raised($$'accept-past', 'raise-2', 'a', 'x'$$);

-- event_status
SELECT status, outcome, poll, position, accepted_at IS NOT NULL AS at, attempts, detail FROM event_status('raise-1');
SELECT status, outcome, poll, position, accepted_at IS NOT NULL AS at, attempts, detail FROM event_status('raise-2');
SELECT status, outcome, poll, position, accepted_at IS NOT NULL AS at, detail FROM event_status(NULL);
SELECT status, outcome, poll, position, accepted_at IS NOT NULL AS at, detail FROM event_status('a b');

-- what is no jsonb or timestamp at all is an error, and a read-only transaction is one before all else
\set VERBOSITY sqlstate
SELECT accept_event('accept', 'bad-1', votes => '{a}');
SELECT accept_event('accept', 'bad-1', 'a', occurred_at => 'yesterdayish');
\set VERBOSITY default
BEGIN READ ONLY;
SELECT accept_event(NULL, NULL);
\echo :LAST_ERROR_SQLSTATE
ROLLBACK;
BEGIN READ ONLY;
SELECT accept_event_or_raise('accept', 'acc-1', 'a', 'ann');
\echo :LAST_ERROR_SQLSTATE
ROLLBACK;
BEGIN READ ONLY;
SELECT status FROM event_status('acc-1');
COMMIT;

-- After all of that, the recount is what the views say.
SELECT poll, count(*) >= 3 AS checked, bool_and(ok) AS ok, (SELECT sum(effect) FROM events AS e WHERE e.poll = p.poll) AS recount,
       (SELECT make_tally(array_agg(choice), array_agg(count)) FROM results_of(p.poll)) AS results
  FROM (VALUES ('accept'), ('accept-every')) AS p(poll), LATERAL verify_poll(p.poll) GROUP BY poll ORDER BY poll;
