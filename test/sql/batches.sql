-- accept_events: one receipt an element in input order, judged as if one after the other; all_or_nothing; what is wrong
-- with the arrays themselves; and a batch is the same as its events one by one. In a database of its own, since ids are
-- unique in a database.
\set home :DBNAME
CREATE DATABASE regress_poll_tally_batches ENCODING 'UTF8' LOCALE 'C' TEMPLATE template0;
\c regress_poll_tally_batches
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS poll_tally;
RESET client_min_messages;
SET search_path = poll_tally, public;

-- The rows without their time: whether accepted_at is there says enough.
CREATE FUNCTION pg_temp.accept(VARIADIC arguments text[])
    RETURNS TABLE (ord int, outcome outcome, event_id text, pos event_position, attempt int, at boolean,
                   retryable boolean, differs text[], detail text)
    LANGUAGE plpgsql AS $$
BEGIN
    RETURN QUERY EXECUTE format(
        'SELECT r.ord, r.outcome, r.event_id, r."position", r.attempt, r.accepted_at IS NOT NULL, r.retryable, r.differs, r.detail
         FROM poll_tally.accept_events(%s) AS r', array_to_string(arguments, ', '));
END $$;
CREATE FUNCTION pg_temp.raised(VARIADIC arguments text[])
    RETURNS TABLE (state text, "constraint" text, message text, detail text, hint text)
    LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('SELECT FROM poll_tally.accept_events(%s)', array_to_string(arguments, ', '));
    state := '00000';
    RETURN NEXT;
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, "constraint" = CONSTRAINT_NAME,
        message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
    RETURN NEXT;
END $$;
-- The recount of the ledger is what results show, and verify_poll finds nothing.
CREATE FUNCTION pg_temp.told(name text, OUT entries bigint, OUT recount tally, OUT equal boolean, OUT verified boolean)
    LANGUAGE sql AS $$
    SELECT (SELECT p.accepted_position FROM poll_tally.polls AS p WHERE p.poll = name), e.recount,
           poll_tally.equal(e.recount, (SELECT poll_tally.make_tally(array_agg(r.choice), array_agg(r.count))
                                        FROM poll_tally.results AS r WHERE r.poll = name)),
           (SELECT bool_and(v.ok) FROM poll_tally.verify_poll(name) AS v)
    FROM (SELECT poll_tally.sum(effect) FROM poll_tally.events WHERE poll = name) AS e (recount)
$$;

SELECT create_poll('batches', '{a,b}', publish_every => '1 day');
SELECT create_poll('batches-latest', '{a,b}', counting => 'latest', publish_every => '1 day');
SELECT create_poll('batches-every', '{a,b}', counting => 'every', max_choices => 2, min_weight => -5, max_weight => 5, publish_every => '1 day');
SELECT create_poll('batches-limit', '{a,b}', counting => 'every', max_count => 2, publish_every => '1 day');

-- one batch with everything in it: a repeat, a conflict, the same principal, each kind of refusal; the first one wins
SELECT * FROM pg_temp.accept($$'batches', '{b1,b2,b1,b1,b3,b4,b5,NULL,"b 6",b2,b7}', '{a,b,a,b,a,c,a,a,a,b,NULL}',
                             '{ann,bob,ann,ann,ann,cy,NULL,dan,eve,bob,fay}'$$);
SELECT event_id, principal, votes, position FROM events WHERE poll = 'batches' ORDER BY position;
SELECT * FROM pg_temp.told('batches');
-- the same batch again: what was accepted is duplicate, and the receipts are the original ones
SELECT ord, r.outcome, r.event_id, r."position", r.accepted_at = e.accepted_at AS same_time
  FROM accept_events('batches', '{b1,b2,b1}', '{a,b,a}', '{ann,bob,ann}') AS r JOIN events AS e USING (event_id) ORDER BY ord;

-- latest: each replaces the one before it, also inside one batch
SELECT * FROM pg_temp.accept($$'batches-latest', '{l1,l2,l3,l1,l4}', '{a,b,a,a,b}', '{ann,ann,bob,ann,ann}'$$);
SELECT event_id, attempt, votes, effect FROM events WHERE poll = 'batches-latest' ORDER BY position;
SELECT * FROM pg_temp.told('batches-latest');

-- votes, payloads, times and source coordinates; NULL elements are NULL arguments
SELECT * FROM pg_temp.accept($$'batches-every', '{e1,e2,e3,e4,e5}', '{a,NULL,NULL,b,NULL}',
    votes => ARRAY[NULL, '{"a": 2, "b": -3}', '{"a": 6}', '{"a": 1}', '{}']::jsonb[]$$);
SELECT * FROM pg_temp.accept($$'batches-every', '{e6,e7,e8}', '{a,a,a}', payloads => ARRAY['{"n": 1}', NULL, 'null']::jsonb[]$$,
                             $$occurred_ats => ARRAY['2020-01-01 00:00+00', NULL, 'infinity']::timestamptz[]$$);
SELECT event_id, payload, occurred_at AT TIME ZONE 'UTC' AS occurred_at FROM events WHERE event_id IN ('e6', 'e7') ORDER BY 1;
SELECT * FROM pg_temp.accept($$'batches-every', '{s1,s2,s3,s1,s4}', '{a,a,a,a,a}', source => 'batches', source_partition => 3$$,
                             $$source_offsets => '{10,10,11,12,NULL}'$$);
SELECT event_id, source, source_partition, source_offset FROM events WHERE source = 'batches' ORDER BY source_offset;
SELECT * FROM pg_temp.accept($$'batches-every', '{s5}', '{a}', source => 'batches'$$);
SELECT * FROM pg_temp.accept($$'batches-every', '{s5}', '{a}', source_offsets => '{13}'$$);

-- a limit: exact within the batch, and a refusal in between changes nothing
SELECT * FROM pg_temp.accept($$'batches-limit', '{m1,m2,m3,m4,m5}', '{a,a,a,b,a}'$$);
SELECT * FROM pg_temp.told('batches-limit');
SET poll_tally.max_keys = 3;
SELECT create_counter('batches-keys', publish_every => '1 day');
SELECT * FROM pg_temp.accept($$'batches-keys', '{k1,k2,k3,k4}', votes => ARRAY['{"x": 1, "y": 1}', '{"x": 1, "z": 1}', '{"w": 1}', '{"z": 5}']::jsonb[]$$);
SELECT * FROM pg_temp.told('batches-keys');
RESET poll_tally.max_keys;

-- counts near the bounds of bigint: the poll is marked so once, not once an event
SELECT create_counter('batches-near', publish_every => '1 day');
BEGIN;
SELECT outcome, count(*) FROM accept_events('batches-near', ARRAY(SELECT 'near-' || i FROM generate_series(1, 50) AS i),
    votes => ARRAY(SELECT jsonb_build_object('x', 1000000000000000000 * (i % 2 * 2 - 1)) FROM generate_series(1, 50) AS i)) GROUP BY 1;
SELECT n_tup_upd FROM pg_stat_xact_user_tables WHERE schemaname = 'poll_tally' AND relname = 'poll';
COMMIT;
SELECT * FROM pg_temp.told('batches-near');

-- several polls: polls instead of poll, one lane each, positions in array order
SELECT * FROM pg_temp.accept($$NULL, '{p1,p2,p3,p4,p5,p1,p6}', '{a,a,b,a,b,a,a}', '{pia,pia,pia,NULL,pip,pia,pia}',
    polls => '{batches,batches-latest,batches-latest,batches-every,batches,batches-every,nowhere}'$$);
SELECT * FROM pg_temp.accept($$NULL, '{p7,p8}', '{a,a}', polls => ARRAY[NULL, 'a b']$$);
SELECT count(*), count(DISTINCT lane("position")) AS lanes, min(seq("position")), max(seq("position")),
       bool_and(seq("position") = 4 + ord) AS in_order
  FROM accept_events('batches', (SELECT array_agg('many-' || i) FROM generate_series(1, 2000) AS i),
                     (SELECT array_agg('a'::text) FROM generate_series(1, 2000)),
                     (SELECT array_agg('p-' || i) FROM generate_series(1, 2000) AS i));
SELECT * FROM pg_temp.told('batches');

-- nothing is no batch
SELECT * FROM pg_temp.accept($$'batches', '{}'$$);
SELECT * FROM pg_temp.accept($$'batches', '{}', '{}', '{}'$$);
-- subscripts that begin elsewhere
SELECT * FROM pg_temp.accept($$'batches', '[5:6]={z1,z2}', '[0:1]={a,b}', '{zoe,zac}'$$);

-- all_or_nothing: accepted and duplicate pass
SELECT * FROM pg_temp.accept($$'batches', '{n1,b1,n2}', '{a,a,b}', '{nan,ann,ned}', all_or_nothing => true$$);
-- anything else is raised, as the first offender has it, with its ord
SELECT pg_temp.raised($$'batches', '{n3,b1,n4}', '{a,b,x}', '{nia,ann,nik}', all_or_nothing => true$$);
SELECT o.what, r.* FROM (VALUES
    ('conflict', $$'batches', '{n3,b1}', '{a,b}', '{nia,ann}'$$),
    ('conflict inside', $$'batches', '{n3,n3}', '{a,b}', '{nia,nia}'$$),
    ('source_conflict', $$'batches-every', '{n3,n4}', '{a,b}', source => 'batches', source_partition => 3, source_offsets => '{20,10}'$$),
    ('unknown_poll', $$NULL, '{n3,n4}', '{a,b}', '{nia,nik}', polls => '{batches,nowhere}'$$),
    ('unknown_choice', $$'batches', '{n3,n4}', '{a,x}', '{nia,nik}'$$),
    ('already_responded', $$'batches', '{n3,n4}', '{a,a}', '{nia,ann}'$$),
    ('already_responded inside', $$'batches', '{n3,n4}', '{a,a}', '{nia,nia}'$$),
    ('limit_reached', $$NULL, '{n3,n4}', '{a,a}', '{nia,NULL}', polls => '{batches,batches-limit}'$$),
    ('invalid', $$'batches', '{n3,NULL}', '{a,a}', '{nia,nik}'$$),
    ('invalid by the poll', $$'batches', '{n3,n4}', '{a,a}', '{nia,NULL}'$$)) AS o (what, arguments),
  pg_temp.raised(o.arguments, 'all_or_nothing => true') AS r;
-- nothing of any of them remains, no lane and no row, and the poll goes on without a hole
SELECT count(*) FROM events WHERE event_id IN ('n3', 'n4');
BEGIN;
SELECT state FROM pg_temp.raised($$'batches', '{n3,b1}', '{a,b}', '{nia,ann}', all_or_nothing => true$$);
SELECT count(*) AS lanes FROM pg_locks WHERE locktype = 'advisory' AND classid <> 0 AND pid = pg_backend_pid();
COMMIT;
SELECT outcome, pos FROM pg_temp.accept($$'batches', '{n3}', '{a}', '{nia}'$$);
SELECT * FROM pg_temp.told('batches');
-- false and NULL are the same
SELECT outcome FROM pg_temp.accept($$'batches', '{n4}', '{x}', '{nik}', all_or_nothing => NULL$$);

-- what is wrong with the arrays is said before anything is read
SELECT r.* FROM (VALUES
    ($$'batches', '{w1,w2}', '{a}', '{wim,wes}'$$), ($$'batches', '{w1}', '{a}', '{wim,wes}'$$),
    ($$'batches', '{w1}', '{}', '{wim}'$$), ($$'batches', '{}', '{a}'$$),
    ($$'batches', '{w1}', votes => '{}'$$), ($$'batches', '{w1}', '{a}', payloads => ARRAY[NULL, NULL]::jsonb[]$$),
    ($$'batches', '{w1}', '{a}', source_offsets => '{1,2}'$$), ($$'batches', '{w1}', '{a}', occurred_ats => '{}'$$),
    ($$NULL, '{w1}', '{a}', polls => '{batches,batches}'$$),
    ($$'batches', '{{w1,w2}}', '{{a,a}}'$$), ($$'batches', '{w1,w2}', '{{a,a}}'$$),
    ($$'batches', NULL, '{a}'$$), ($$'batches', NULL$$),
    ($$NULL, '{w1}', '{a}'$$), ($$'batches', '{w1}', '{a}', polls => '{batches}'$$),
    ($$NULL, '{}'$$)) AS o (arguments), pg_temp.raised(o.arguments) AS r;
-- a length is said before a number, and before what an element has
SELECT state, message FROM pg_temp.raised($$NULL, '{w1,w2}', '{a}'$$);
SELECT state, message FROM pg_temp.raised($$'batches', '{w1," "}', '{a}', votes => ARRAY['[]', '{}', '1']::jsonb[]$$);
SET poll_tally.max_batch = 3;
SELECT r.* FROM pg_temp.raised($$'batches', '{w1,w2,w3,w4}', '{a,a,a,a}', '{w1,w2,w3,w4}'$$) AS r;
SELECT r.state FROM pg_temp.raised($$'batches', '{w1,w2,w3,w4}', '{a,a,a,a}', '{w1,w2,w3}'$$) AS r;
SELECT outcome FROM pg_temp.accept($$'batches', '{b1,b2,b1}', '{a,b,a}', '{ann,bob,ann}'$$);
RESET poll_tally.max_batch;
SELECT count(*) FROM events WHERE event_id LIKE 'w_';
-- read-only
BEGIN READ ONLY;
SELECT accept_events('batches', '{}');
ROLLBACK;

-- Duplicates, conflicts and refusals write nothing: no transaction id, and no lane of a poll.
BEGIN;
SELECT outcome, count(*) FROM pg_temp.accept($$NULL, '{b1,b2,b1,b3,w1,e1}', '{a,b,b,a,x,a}', '{ann,bob,ann,ann,wim,NULL}',
    polls => '{batches,batches,batches,batches,batches,batches-every}'$$) GROUP BY outcome ORDER BY outcome;
SELECT pg_current_xact_id_if_assigned() IS NULL AS no_xid,
       (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND classid <> 0 AND pid = pg_backend_pid()) AS lanes;
SELECT outcome FROM pg_temp.accept($$NULL, '{w1,w2}', '{a,a}', '{wim,NULL}', polls => '{batches,batches-every}'$$);
SELECT pg_current_xact_id_if_assigned() IS NULL AS no_xid,
       (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND classid <> 0 AND pid = pg_backend_pid()) AS lanes;
-- what a batch did is there for the next statement, and gone with the savepoint
SAVEPOINT s;
SELECT outcome FROM pg_temp.accept($$'batches-every', '{w3,w5}', '{a,a}'$$);
SELECT choice, count FROM results WHERE poll = 'batches-every';
ROLLBACK TO s;
SELECT outcome, pos FROM pg_temp.accept($$'batches-every', '{w4}', '{a}'$$);
SELECT choice, count FROM results WHERE poll = 'batches-every';
ROLLBACK;

-- A batch is its events one by one: random batches in one poll of each kind, the same events singly in its twin. Ids,
-- principals and coordinates are few, so that most batches hold repeats, conflicts and refusals.
CREATE FUNCTION pg_temp.twins(rules text, batches int, seed double precision)
    RETURNS TABLE (events bigint, outcomes bigint, differences bigint, effects_differ bigint, counts_equal boolean, verified boolean)
    LANGUAGE plpgsql AS $$
DECLARE
    size int;
    told record;
BEGIN
    EXECUTE format('SELECT poll_tally.create_poll(%L, %L, publish_every => %L, max_lanes => 1, %s)', 'twin-batch', '{a,b,c}', '1 day', rules);
    EXECUTE format('SELECT poll_tally.create_poll(%L, %L, publish_every => %L, max_lanes => 1, %s)', 'twin-single', '{a,b,c}', '1 day', rules);
    PERFORM setseed(seed);
    CREATE TEMP TABLE sent (batch int, ord int, id text, choice text, principal text, coordinate bigint,
                            batched text, single text) ON COMMIT DROP;
    FOR n IN 1..batches LOOP
        size := 1 + (random() * 12)::int;
        INSERT INTO sent
        SELECT n, i, 'e' || (random() * batches * 4)::int, chr(97 + (random() * 3)::int),
               CASE WHEN random() < 0.9 THEN 'p' || (random() * batches)::int END, (random() * batches * 8)::int
          FROM generate_series(1, size) AS i;
        -- most ids keep their content
        UPDATE sent AS s SET choice = f.choice, principal = f.principal
          FROM (SELECT DISTINCT ON (id) id, choice, principal FROM sent ORDER BY id, batch, ord) AS f
         WHERE f.id = s.id AND s.batch = n AND random() < 0.8;
        -- the receipts but for poll, id, time and the ids in details, which the twins cannot share
        UPDATE sent AS s SET batched = r.told
          FROM (SELECT a.ord, concat_ws(' ', a.outcome, a.position, a.attempt, a.differs, replace(a.detail, '"b-', '"')) AS told
                  FROM (SELECT array_agg('b-' || id ORDER BY ord) AS ids, array_agg(choice ORDER BY ord) AS choices,
                               array_agg(principal ORDER BY ord) AS principals, array_agg(coordinate ORDER BY ord) AS offsets
                          FROM sent WHERE batch = n) AS b,
                       poll_tally.accept_events('twin-batch', b.ids, b.choices, b.principals, source => 'twin-batch',
                                                source_partition => 0, source_offsets => b.offsets) AS a) AS r
         WHERE s.batch = n AND s.ord = r.ord;
    END LOOP;
    FOR told IN SELECT * FROM sent ORDER BY batch, ord LOOP
        UPDATE sent AS s SET single = concat_ws(' ', a.outcome, a.position, a.attempt, a.differs, replace(a.detail, '"s-', '"'))
          FROM poll_tally.accept_event('twin-single', 's-' || told.id, told.choice, told.principal, source => 'twin-single',
                                       source_partition => 0, source_offset => told.coordinate) AS a
         WHERE s.batch = told.batch AND s.ord = told.ord;
    END LOOP;
    SELECT count(*), count(DISTINCT split_part(s.single, ' ', 1)), count(*) FILTER (WHERE s.batched IS DISTINCT FROM s.single)
      INTO events, outcomes, differences FROM sent AS s;
    SELECT count(*) INTO effects_differ
      FROM (SELECT substr(event_id, 3) AS id, position, attempt, votes, effect FROM poll_tally.events WHERE poll = 'twin-batch') AS b
      FULL JOIN (SELECT substr(event_id, 3) AS id, position, attempt, votes, effect FROM poll_tally.events WHERE poll = 'twin-single') AS s
        USING (id, position)
     WHERE (b.attempt, b.votes::text, b.effect::text) IS DISTINCT FROM (s.attempt, s.votes::text, s.effect::text);
    counts_equal := NOT EXISTS (SELECT choice, count FROM poll_tally.results WHERE poll = 'twin-batch'
                                EXCEPT SELECT choice, count FROM poll_tally.results WHERE poll = 'twin-single');
    verified := (SELECT bool_and(v.ok) FROM (VALUES ('twin-batch'), ('twin-single')) AS t (poll), poll_tally.verify_poll(t.poll) AS v);
    PERFORM poll_tally.close_poll(t.poll), poll_tally.drop_poll(t.poll) FROM (VALUES ('twin-batch'), ('twin-single')) AS t (poll);
    RETURN NEXT;
END $$;
SELECT events > 1000 AS many, outcomes, differences, effects_differ, counts_equal, verified
  FROM pg_temp.twins($$counting => 'once'$$, 200, 0.1);
SELECT events > 1000 AS many, outcomes, differences, effects_differ, counts_equal, verified
  FROM pg_temp.twins($$counting => 'latest'$$, 200, 0.2);
SELECT events > 1000 AS many, outcomes, differences, effects_differ, counts_equal, verified
  FROM pg_temp.twins($$counting => 'latest', max_attempts => 2$$, 200, 0.3);
SELECT events > 1000 AS many, outcomes, differences, effects_differ, counts_equal, verified
  FROM pg_temp.twins($$counting => 'every', max_count => 60$$, 200, 0.4);
SELECT events > 1000 AS many, outcomes, differences, effects_differ, counts_equal, verified
  FROM pg_temp.twins($$counting => 'every', max_attempts => 3$$, 200, 0.5);

SELECT poll, final FROM (VALUES ('batches'), ('batches-latest'), ('batches-every'), ('batches-limit'), ('batches-keys'),
                         ('batches-near')) AS p (name), close_poll(p.name);
SELECT outcome FROM pg_temp.accept($$'batches', '{b1,b2,y1}', '{a,a,a}', '{ann,bob,yve}'$$);

\c :home
DROP DATABASE regress_poll_tally_batches;
