-- Reading: the views, results_of and verify_poll, also of damage done on purpose; what a transaction sees of its own
-- events at once, through savepoints, rollbacks, exceptions, flushes and PREPARE; polls of more choices than a lane's
-- row holds.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS poll_tally;
RESET client_min_messages;
SET search_path = poll_tally, public;

-- One line a poll: recount of the ledger, sum of the live results, accepted position, gap, and the verdict.
-- The verdict comes from a statement of its own, since verify_poll writes what is pending.
CREATE FUNCTION pg_temp.told(name text, OUT recount tally, OUT results tally, OUT entries bigint, OUT accepted bigint, OUT gap bigint)
    LANGUAGE sql AS $$
    SELECT (SELECT poll_tally.sum(e.effect) FROM poll_tally.events AS e WHERE e.poll = name),
           (SELECT poll_tally.make_tally(array_agg(r.choice), array_agg(r.count)) FROM poll_tally.results AS r WHERE r.poll = name),
           (SELECT count(*) FROM poll_tally.events AS e WHERE e.poll = name),
           (SELECT p.accepted_position FROM poll_tally.polls AS p WHERE p.poll = name),
           (SELECT l.gap FROM poll_tally.lag AS l WHERE l.poll = name);
$$;
CREATE FUNCTION pg_temp.verified(name text) RETURNS text
    LANGUAGE sql AS $$
    SELECT coalesce(string_agg(check_name || ': ' || expected || ' <> ' || actual, '; ') FILTER (WHERE ok IS NOT TRUE),
                    CASE WHEN count(*) >= 3 THEN 'ok' ELSE 'unchecked' END) FROM poll_tally.verify_poll(name);
$$;

-- views and results_of; shares are fractions of 4 decimals, and NULL when nothing is counted
SELECT create_poll('read', '{b,a,c}', publish_every => '1 day');
SELECT add_choice('read', 'd', 'The last');
SELECT * FROM results WHERE poll = 'read';
SELECT * FROM published WHERE poll = 'read';
SELECT count(*) FROM (VALUES ('read-1', 'a'), ('read-2', 'a'), ('read-3', 'c')) AS v(id, choice),
       LATERAL accept_event('read', id, choice, id) AS r WHERE r.outcome = 'accepted';
SELECT * FROM results WHERE poll = 'read';
SELECT * FROM published WHERE poll = 'read';
SELECT * FROM results_of('read');
SELECT * FROM results_of('read', '{c,nowhere,a}');
SELECT * FROM results_of('read', '{}');
SELECT * FROM results_of('read-nowhere');
SELECT * FROM results_of(NULL);
SELECT poll, accepted_position, published_position, gap, oldest_unpublished_at = (SELECT min(accepted_at) FROM events WHERE poll = 'read') AS oldest,
       lag_seconds >= 0 AS lagging, revision, publish_every, final, observed_revision FROM lag WHERE poll = 'read';
SELECT revision, counts FROM publish('read', force => true);
SELECT * FROM published WHERE poll = 'read';
SELECT poll, accepted_position, published_position, gap, oldest_unpublished_at, lag_seconds, revision FROM lag WHERE poll = 'read';
SELECT poll, revision, included_position, frontier, counts, total, final FROM snapshots WHERE poll = 'read' ORDER BY revision;
-- results_of is inlined: the plan reads the poll's own rows
CREATE FUNCTION pg_temp.plan(statement text) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
    RETURN QUERY EXECUTE 'EXPLAIN (COSTS OFF) ' || statement;
END $$;
SELECT count(*) > 3 AS shown, count(*) FILTER (WHERE line ~ 'Function Scan on results_of') AS calls
  FROM pg_temp.plan($$SELECT * FROM poll_tally.results_of('read')$$) AS line;

-- visibility: each event is there for the transaction's next statement, in every view, and for no other session
SELECT create_poll('read-own', '{a,b}', publish_every => '1 day');
BEGIN;
SELECT outcome, position FROM accept_event('read-own', 'own-1', 'a', 'u1');
SELECT * FROM pg_temp.told('read-own');
SELECT gap, oldest_unpublished_at IS NOT NULL AS since, lag_seconds >= 0 AS lagging FROM lag WHERE poll = 'read-own';
SELECT status, position FROM event_status('own-1');
SELECT outcome, position FROM accept_event('read-own', 'own-2', 'b', 'u2');
SELECT * FROM pg_temp.told('read-own');
SELECT pg_temp.verified('read-own');
SELECT * FROM pg_temp.told('read-own');
SELECT outcome, position FROM accept_event('read-own', 'own-3', 'b', 'u3');
SELECT * FROM pg_temp.told('read-own');
COMMIT;
SELECT *, pg_temp.verified('read-own') FROM pg_temp.told('read-own');

-- the same when one statement both writes what is pending and reads it: the events of earlier statements are in it
BEGIN;
SELECT outcome FROM accept_event('read-own', 'own-4', 'a', 'u4');
SELECT bool_and(v.ok) AS ok, (SELECT count FROM results WHERE poll = 'read-own' AND choice = 'a') AS a,
       (SELECT share FROM results_of('read-own', '{a}')), (SELECT accepted_position FROM polls WHERE poll = 'read-own') AS accepted
  FROM verify_poll('read-own') AS v;
ROLLBACK;
-- and for a cursor: it sees what came before it was opened
BEGIN;
SELECT outcome FROM accept_event('read-own', 'own-4', 'a', 'u4');
DECLARE before_flush CURSOR FOR SELECT choice, count FROM results WHERE poll = 'read-own';
SELECT pg_temp.verified('read-own');
FETCH ALL FROM before_flush;
ROLLBACK;

-- savepoints: what is rolled back is gone from every view, leaves no hole, and frees the lane if it took it
BEGIN;
SAVEPOINT s1;
SELECT outcome, position FROM accept_event('read-own', 'own-5', 'a', 'u5');
SELECT count(*) AS lanes FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid();
ROLLBACK TO s1;
SELECT count(*) AS lanes FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid();
SELECT * FROM pg_temp.told('read-own');
SELECT outcome, position FROM accept_event('read-own', 'own-5', 'a', 'u5');
RELEASE s1;
SAVEPOINT s2;
SELECT outcome, position FROM accept_event('read-own', 'own-6', 'b', 'u6');
SAVEPOINT s3;
SELECT outcome, position FROM accept_event('read-own', 'own-7', 'b', 'u7');
SELECT * FROM pg_temp.told('read-own');
ROLLBACK TO s3;
SELECT * FROM pg_temp.told('read-own');
RELEASE s2;
SELECT outcome, position FROM accept_event('read-own', 'own-7', 'a', 'u7');
SELECT * FROM pg_temp.told('read-own');
COMMIT;
SELECT *, pg_temp.verified('read-own') FROM pg_temp.told('read-own');

-- What is pending is written in the midst of savepoints, by verify_poll, at any level, and rolled back.
-- After each step, recount, results and positions have to agree.
CREATE FUNCTION pg_temp.play(name text, script text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    step text := left(script, 1);
    rest text := substr(script, 2);
    told record;
BEGIN
    -- v: vote, f: write what is pending, (: enter a block that commits, [: one that is rolled back
    IF step = '' OR step IN (')', ']') THEN
        RETURN script;
    ELSIF step = 'v' THEN
        PERFORM poll_tally.accept_event_or_raise(name, gen_random_uuid()::text, CASE WHEN random() < 0.5 THEN 'narrow' ELSE 'wide' END);
    ELSIF step = 'f' THEN
        IF pg_temp.verified(name) <> 'ok' THEN RAISE 'verify_poll at %: %', script, pg_temp.verified(name); END IF;
    ELSE
        BEGIN
            rest := pg_temp.play(name, rest);
            IF left(rest, 1) = ']' THEN RAISE SQLSTATE 'UNDO0'; END IF;
        EXCEPTION WHEN SQLSTATE 'UNDO0' THEN NULL;
        END;
        rest := substr(rest, 2);
    END IF;
    SELECT * INTO told FROM pg_temp.told(name);
    IF coalesce(told.recount, '{}') <> told.results OR told.entries <> told.accepted OR told.gap <> told.accepted THEN
        RAISE 'at %: %', script, told;
    END IF;
    RETURN pg_temp.play(name, rest);
END $$;
-- The seed is fixed, so that a failure comes again.
SELECT setseed(0.7);
-- 'narrow' has its counts in the lane's row, 'wide' in rows of its own, since the choices between fill the lane's row
SELECT create_poll('read-play', ARRAY['narrow'] || ARRAY(SELECT rpad('fill' || i, 64, '.') FROM generate_series(1, 30) AS i) || ARRAY['wide'],
                   counting => 'every', publish_every => '1 day');
SELECT c.choice, c.narrow FROM choice AS c JOIN poll AS p USING (poll_id) WHERE p.poll = 'read-play' AND choice IN ('narrow', 'wide');
DO $$
DECLARE
    script text;
BEGIN
    FOREACH script IN ARRAY '{v(f)v,v[f]v,v(fv)v,v[fv]v,v(vf)v,v[vf]v,v((f)),v[(f)],v([f]),v[[f]],v(v(fv)v)v,v[v(fv)v]v,v(v[fv]v)v,v[v[fv]v]v,
        (v[f]f)[v],[v(f)]v,[vf]v,(vf)[vf]v,v(v(v(fv))),v(v(v[fv])),v(v[v(fv)]),v[v(v(fv))],v((vf)(vf)),v((vf)[vf]),v([vf](vf)),v[(vf)(vf)],
        (((v)f)v),[[(v)f]v],[((v)f)v]v,v(f(f(f)))v,vf(vf(vf(vf))),vf[vf(vf[vf])],f,vff,v(((f)))f,v(((f)))[f]f}'::text[]
    LOOP
        FOR i IN 1 .. 2 LOOP    -- which of the two choices a vote goes to is random
            IF pg_temp.play('read-play', script) <> '' THEN RAISE 'unbalanced: %', script; END IF;
            IF pg_temp.verified('read-play') <> 'ok' THEN RAISE '%: %', script, pg_temp.verified('read-play'); END IF;
        END LOOP;
    END LOOP;
END $$;
-- all of it was one transaction; and each script in one of its own, without a flush at its end but that of the commit
CREATE PROCEDURE pg_temp.play_each(scripts text[]) LANGUAGE plpgsql AS $$
DECLARE
    script text;
BEGIN
    FOREACH script IN ARRAY scripts LOOP
        PERFORM pg_temp.play('read-play', script);
        COMMIT;
    END LOOP;
END $$;
CALL pg_temp.play_each('{v(v)v,v[v]v,v(f)v,v[f]v,v(fv)v,v[fv]v,v(vf)v,v[vf]v,(v),[v],((v)),([v]),[(v)],v(v(fv)v)v,v[v(fv)v]v,v(v[fv]v)v,v[v[fv]v]v,(v[f]f)[v],[v(f)]v}');
SELECT recount = results AS equal, entries = accepted AS gapless, pg_temp.verified('read-play') FROM pg_temp.told('read-play');
-- drawn at random, with the seed fixed: 60 scripts of up to 14 steps
SELECT setseed(0.42);
CREATE FUNCTION pg_temp.draw(steps int) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    script text := '';
    closers text := '';
    step text;
BEGIN
    FOR i IN 1 .. steps LOOP
        step := substr('vvvvff([))', 1 + floor(random() * 10)::int, 1);
        IF step = ')' THEN
            script := script || left(closers, 1);
            closers := substr(closers, 2);
        ELSE
            script := script || step;
            closers := CASE step WHEN '(' THEN ')' WHEN '[' THEN ']' ELSE '' END || closers;
        END IF;
    END LOOP;
    RETURN script || closers;
END $$;
SELECT array_agg(pg_temp.draw(4 + i % 11)) AS scripts FROM generate_series(1, 60) AS i \gset
CALL pg_temp.play_each(:'scripts');
SELECT recount = results AS equal, entries = accepted AS gapless, pg_temp.verified('read-play') FROM pg_temp.told('read-play');

-- an error inside an exception block takes back its events alone; one without a block takes back the transaction
BEGIN;
SELECT outcome FROM accept_event('read-own', 'own-8', 'a', 'u8');
DO $$
BEGIN
    PERFORM poll_tally.accept_event('read-own', 'own-9', 'b', 'u9');
    PERFORM 1 / 0;
EXCEPTION WHEN division_by_zero THEN
    PERFORM poll_tally.accept_event_or_raise('read-own', 'own-9', 'a', 'u9');
END $$;
SELECT * FROM pg_temp.told('read-own');
SELECT 1 / 0;
COMMIT;
SELECT *, pg_temp.verified('read-own') FROM pg_temp.told('read-own');

-- a transaction that is prepared is seen by nobody until its COMMIT PREPARED, and not after ROLLBACK PREPARED
BEGIN;
SELECT outcome, position FROM accept_event('read-own', 'own-10', 'a', 'u10');
SAVEPOINT s1;
SELECT outcome, position FROM accept_event('read-own', 'own-11', 'b', 'u11');
RELEASE s1;
PREPARE TRANSACTION 'read-own';
SELECT * FROM pg_temp.told('read-own');
-- its lane is taken: this one goes to the next
SELECT outcome, position FROM accept_event('read-own', 'own-12', 'b', 'u12');
COMMIT PREPARED 'read-own';
SELECT *, pg_temp.verified('read-own') FROM pg_temp.told('read-own');
SELECT outcome, position FROM accept_event('read-own', 'own-11', 'b', 'u11');
BEGIN;
SELECT outcome FROM accept_event('read-own', 'own-13', 'a', 'u13');
PREPARE TRANSACTION 'read-own';
ROLLBACK PREPARED 'read-own';
SELECT *, pg_temp.verified('read-own') FROM pg_temp.told('read-own');

-- REPEATABLE READ and SERIALIZABLE: own events are visible at once there too
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT * FROM pg_temp.told('read-own');
SELECT outcome FROM accept_event('read-own', 'own-14', 'a', 'u14');
SELECT * FROM pg_temp.told('read-own');
COMMIT;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT outcome FROM accept_event('read-own', 'own-15', 'a', 'u15');
SELECT * FROM pg_temp.told('read-own');
COMMIT;
SELECT *, pg_temp.verified('read-own') FROM pg_temp.told('read-own');
-- SET TRANSACTION READ ONLY after a vote does not lose it
BEGIN;
SELECT outcome FROM accept_event('read-own', 'own-16', 'a', 'u16');
SET TRANSACTION READ ONLY;
SELECT * FROM pg_temp.told('read-own');
COMMIT;
SELECT *, pg_temp.verified('read-own') FROM pg_temp.told('read-own');

-- many polls in one transaction, and a poll that is made in it
BEGIN;
SELECT count(*) FROM (SELECT create_poll('read-many-' || i, '{a,b}', counting => 'every', publish_every => '1 day') FROM generate_series(1, 50) AS i) AS c;
SELECT count(*), count(DISTINCT position) FROM generate_series(1, 500) AS i,
       LATERAL accept_event('read-many-' || 1 + i % 50, 'read-many-' || i, CASE i % 3 WHEN 0 THEN 'a' ELSE 'b' END) AS r WHERE outcome = 'accepted';
SELECT count(*), sum(count) FROM results WHERE poll LIKE 'read-many-%';
COMMIT;
SELECT count(*), sum(count) FROM results WHERE poll LIKE 'read-many-%';
SELECT count(*) FILTER (WHERE v.ok) = count(*) AS ok FROM generate_series(1, 50) AS i, LATERAL verify_poll('read-many-' || i) AS v;

-- a wide poll: 200 choices with long names, so that most counts have rows of their own
SELECT create_poll('read-wide', ARRAY(SELECT 'choice-' || lpad(i::text, 40, '0') FROM generate_series(1, 200) AS i), counting => 'every', publish_every => '1 day');
SELECT count(*) FILTER (WHERE c.narrow) BETWEEN 1 AND 199 AS both_kinds FROM choice AS c JOIN poll AS p USING (poll_id) WHERE p.poll = 'read-wide';
SELECT count(*) FROM generate_series(1, 600) AS i, LATERAL accept_event('read-wide', 'wide-' || i, 'choice-' || lpad((1 + i % 200)::text, 40, '0')) AS r
 WHERE r.outcome = 'accepted';
SELECT count(*), min(count), max(count), sum(share) FROM results WHERE poll = 'read-wide';
SELECT r.count, r.share FROM results_of('read-wide', ARRAY['choice-' || lpad('200', 40, '0'), 'choice-' || lpad('1', 40, '0')]) AS r;
BEGIN;
SELECT outcome FROM accept_event('read-wide', 'wide-601', 'choice-' || lpad('200', 40, '0'));
SELECT count FROM results_of('read-wide', ARRAY['choice-' || lpad('200', 40, '0')]);
SAVEPOINT s1;
SELECT outcome FROM accept_event('read-wide', 'wide-602', 'choice-' || lpad('200', 40, '0'));
SELECT pg_temp.verified('read-wide');
ROLLBACK TO s1;
SELECT count FROM results_of('read-wide', ARRAY['choice-' || lpad('200', 40, '0')]);
COMMIT;
SELECT recount = results AS equal, entries, accepted, pg_temp.verified('read-wide') FROM pg_temp.told('read-wide');
SELECT total, total(counts), (SELECT count(*) FROM each(counts)) AS choices, counts = (SELECT sum(effect) FROM events WHERE poll = 'read-wide') AS recount
  FROM publish('read-wide', force => true);
SELECT count(*), sum(count) FROM published WHERE poll = 'read-wide';

-- verify_poll finds what a superuser damages, says what it is, and finds nothing once it is undone
SELECT check_name, ok FROM verify_poll('read') WHERE check_name IN ('tallies', 'lanes', 'principals');
SELECT verify_poll('read-nowhere');
\echo :LAST_ERROR_SQLSTATE
BEGIN;
UPDATE lane SET counts = counts + '{"a": 1}' WHERE poll_id = (SELECT poll_id FROM poll WHERE poll = 'read');
SELECT check_name, expected, actual FROM verify_poll('read') WHERE NOT ok AND check_name = 'tallies';
ROLLBACK;
BEGIN;
UPDATE lane SET seq = seq + 1 WHERE poll_id = (SELECT poll_id FROM poll WHERE poll = 'read');
SELECT check_name FROM verify_poll('read') WHERE NOT ok AND check_name <> 'snapshots';
ROLLBACK;
BEGIN;
DELETE FROM lane WHERE poll_id = (SELECT poll_id FROM poll WHERE poll = 'read');
SELECT check_name FROM verify_poll('read') WHERE NOT ok AND check_name <> 'snapshots';
ROLLBACK;
BEGIN;
UPDATE lane_count SET count = count - 1 WHERE poll_id = (SELECT poll_id FROM poll WHERE poll = 'read-wide')
   AND choice = 'choice-' || lpad('200', 40, '0');
SELECT check_name, ok FROM verify_poll('read-wide') WHERE check_name = 'tallies';
ROLLBACK;
BEGIN;
DELETE FROM lane_count WHERE poll_id = (SELECT poll_id FROM poll WHERE poll = 'read-wide');
SELECT check_name, ok FROM verify_poll('read-wide') WHERE check_name = 'tallies';
ROLLBACK;
-- a ledger entry that is not counted, one on a seq that leaves a gap, and a principal that has one too many
BEGIN;
INSERT INTO ledger (poll_id, position, accepted_at, event_id, votes)
SELECT poll_id, '0/5', now(), 'stray', '{"a": 1}' FROM poll WHERE poll = 'read';
SELECT check_name FROM verify_poll('read') WHERE NOT ok AND check_name <> 'snapshots';
ROLLBACK;
BEGIN;
INSERT INTO ledger (poll_id, position, accepted_at, event_id, votes, principal, link, attempt)
SELECT poll_id, '0/4', now(), 'stray', '{"a": 1}', 'read-1', 2, 2 FROM poll WHERE poll = 'read';
UPDATE lane SET seq = 4, counts = counts + '{"a": 1}' WHERE poll_id = (SELECT poll_id FROM poll WHERE poll = 'read');
SELECT check_name FROM verify_poll('read') WHERE NOT ok AND check_name <> 'snapshots';
ROLLBACK;
-- one entry that is gone, with counts and seq as before: deleted behind the guard's back
BEGIN;
ALTER TABLE ledger DISABLE TRIGGER ledger_guard;
DELETE FROM ledger WHERE event_id = 'read-2';
SELECT check_name FROM verify_poll('read') WHERE NOT ok AND check_name <> 'snapshots';
ROLLBACK;
-- as many entries as the lane's seq, and its last one there, but not 1, 2, 3
BEGIN;
ALTER TABLE ledger DISABLE TRIGGER ledger_guard;
UPDATE ledger SET position = '0/0' WHERE event_id = 'read-2';
SELECT check_name FROM verify_poll('read') WHERE NOT ok AND check_name <> 'snapshots';
ROLLBACK;
-- an entry in a lane that no poll can have, which is counted all the same
BEGIN;
INSERT INTO ledger (poll_id, position, accepted_at, event_id, votes)
SELECT poll_id, '64/1', now(), 'stray', '{"a": 1}' FROM poll WHERE poll = 'read';
SELECT check_name, actual FROM verify_poll('read') WHERE NOT ok AND check_name <> 'snapshots';
ROLLBACK;
-- chains of principals: a first entry that says it is a second attempt, one beyond what is allowed, one that begins at 2,
-- one with a hole, and all four at once; two first entries, an entry in no chain, and a chain of nobody
CREATE FUNCTION pg_temp.chains() RETURNS TABLE (damage text, ok boolean, actual text) LANGUAGE plpgsql AS $$
BEGIN
    FOREACH damage IN ARRAY ARRAY[
        '(''one'', 1, 2, 1)', '(''one'', 1, 3, 0)', '(''one'', 2, 1, 0)',
        '(''one'', 1, 1, 0), (''one'', 3, 2, 1), (''two'', 1, 1, 0)',
        '(''one'', 1, 2, 1), (''two'', 1, 3, 0), (''three'', 2, 1, 0), (''four'', 1, 1, 0), (''four'', 3, 2, 1), (''five'', 1, 1, 0)',
        '(''one'', 1, 1, 0), (''one'', 1, 1, 0), (''two'', 1, 1, 0)', '(''one'', NULL::integer, 1, 0)', '(NULL::text, 1, 1, 0)'] LOOP
        EXECUTE format('INSERT INTO ledger (poll_id, position, accepted_at, event_id, votes, principal, link, attempt, granted)
            SELECT p.poll_id, (''0/'' || 3 + row_number() OVER ())::event_position, now(), ''stray-'' || row_number() OVER (), ''{"a": 1}'', d.*
            FROM poll AS p, (VALUES %s) AS d (principal, link, attempt, granted) WHERE p.poll = ''read''', damage);
        SELECT v.ok, v.actual INTO ok, actual FROM verify_poll('read') AS v WHERE check_name = 'principals';
        RETURN NEXT;
        DELETE FROM ledger WHERE event_id LIKE 'stray-%';
    END LOOP;
END $$;
BEGIN;
ALTER TABLE ledger DISABLE TRIGGER ledger_guard;
DROP INDEX ledger_principal_key;
SELECT * FROM pg_temp.chains();
ROLLBACK;
SELECT pg_temp.verified('read'), pg_temp.verified('read-wide');

-- verify_poll above READ COMMITTED would lie, so it refuses; in a read-only transaction it works
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT verify_poll('read');
\echo :LAST_ERROR_SQLSTATE
ROLLBACK;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT verify_poll('read');
\echo :LAST_ERROR_SQLSTATE
ROLLBACK;
BEGIN READ ONLY;
SELECT pg_temp.verified('read');
ROLLBACK;
