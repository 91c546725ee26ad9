-- The ledger's guard: UPDATE, DELETE, TRUNCATE and MERGE are refused, for a superuser, for the owner, for no rows at
-- all and under session_replication_role = replica; only dropping a closed poll passes, and only while it runs.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS poll_tally;
RESET client_min_messages;
SET search_path = poll_tally, public;

SELECT create_poll('guard', '{a,b}', publish_every => '1 day');
SELECT outcome FROM accept_event('guard', 'guard-1', 'a', 'ann');
SELECT outcome FROM accept_event('guard', 'guard-2', 'b', 'bob');

UPDATE ledger SET votes = '{"b": 1}' WHERE event_id = 'guard-1';
\echo :LAST_ERROR_SQLSTATE
CREATE FUNCTION pg_temp.attempts() RETURNS TABLE (statement text, state text) LANGUAGE plpgsql AS $$
BEGIN
    FOREACH statement IN ARRAY ARRAY[
        'UPDATE poll_tally.ledger SET reason = NULL WHERE false',
        'UPDATE ONLY poll_tally.ledger SET reason = NULL',
        'DELETE FROM poll_tally.ledger',
        'DELETE FROM poll_tally.ledger WHERE false',
        'TRUNCATE poll_tally.ledger',
        'TRUNCATE poll_tally.lane, poll_tally.ledger CASCADE',
        'WITH gone AS (DELETE FROM poll_tally.ledger RETURNING *) SELECT count(*) FROM gone',
        'INSERT INTO poll_tally.ledger SELECT * FROM poll_tally.ledger ON CONFLICT (event_id) DO UPDATE SET votes = excluded.votes',
        'MERGE INTO poll_tally.ledger AS l USING (SELECT 1) AS one ON l.event_id = ''guard-1'' WHEN MATCHED THEN DELETE',
        'MERGE INTO poll_tally.ledger AS l USING (SELECT 1) AS one ON l.event_id = ''guard-1'' WHEN MATCHED THEN UPDATE SET reason = NULL'
    ] LOOP
        BEGIN
            EXECUTE statement;
            state := 'passed';
        EXCEPTION WHEN OTHERS THEN
            state := SQLSTATE;
        END;
        RETURN NEXT;
    END LOOP;
END $$;
SELECT * FROM pg_temp.attempts();
SET session_replication_role = replica;
SELECT state, count(*) FROM pg_temp.attempts() GROUP BY state;
-- what is append is not in the way there
SELECT outcome FROM accept_event('guard', 'guard-3', 'b', 'cy');
RESET session_replication_role;
SET session_replication_role = local;
SELECT state, count(*) FROM pg_temp.attempts() GROUP BY state;
RESET session_replication_role;

-- the owner of the table, who need not be a superuser
SET client_min_messages = warning;
DROP ROLE IF EXISTS regress_poll_tally_owner;
RESET client_min_messages;
BEGIN;
CREATE ROLE regress_poll_tally_owner;
GRANT ALL ON SCHEMA poll_tally TO regress_poll_tally_owner;
GRANT EXECUTE ON FUNCTION accept_event TO regress_poll_tally_owner;
ALTER TABLE ledger OWNER TO regress_poll_tally_owner;
GRANT SELECT, UPDATE, DELETE, TRUNCATE ON lane TO regress_poll_tally_owner;
SET ROLE regress_poll_tally_owner;
SELECT state, count(*) FROM pg_temp.attempts() GROUP BY state;
ROLLBACK;

-- the guard is no function to call, and no setting reaches it
SELECT ledger_guard();
SELECT count(*) FROM pg_settings WHERE name LIKE 'poll_tally.%guard%';
SELECT tgenabled FROM pg_trigger WHERE tgrelid = 'ledger'::regclass AND NOT tgisinternal;

-- dropping a closed poll passes, and the guard is back afterwards; also when dropping failed
SELECT create_poll('guard-drop', '{a}', publish_every => '1 day');
SELECT outcome FROM accept_event('guard-drop', 'guard-4', 'a', 'ann');
SELECT final FROM close_poll('guard-drop');
BEGIN;
CREATE FUNCTION pg_temp.fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not this one'; END $$;
CREATE TRIGGER fail BEFORE DELETE ON snapshot EXECUTE FUNCTION pg_temp.fail();
SAVEPOINT s1;
\set VERBOSITY terse
SELECT drop_poll('guard-drop');
\set VERBOSITY default
ROLLBACK TO s1;
SELECT state, count(*) FROM pg_temp.attempts() GROUP BY state;
ROLLBACK;
SELECT outcome FROM accept_event('guard-drop', 'guard-4', 'a', 'ann');
SELECT drop_poll('guard-drop');
SELECT state, count(*) FROM pg_temp.attempts() GROUP BY state;
SELECT event_id, votes FROM events WHERE poll IN ('guard', 'guard-drop') ORDER BY event_id;
SELECT bool_and(ok) AS ok FROM verify_poll('guard');
