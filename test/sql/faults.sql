-- Faults that were found by attack, each in its smallest form: none may come back. In a database of its own.
\set home :DBNAME
\set SHOW_CONTEXT never
CREATE DATABASE regress_poll_tally_faults ENCODING 'UTF8' LOCALE 'C' TEMPLATE template0;
\c regress_poll_tally_faults
SET client_min_messages = warning;
CREATE EXTENSION poll_tally;
RESET client_min_messages;
SET search_path = poll_tally, public;

-- Another trigger has read the same transition table: all rows are counted all the same.
SELECT create_poll('shared', '{a,b}', counting => 'every', publish_every => '1 day');
CREATE TABLE v (id text PRIMARY KEY, opt text);
CREATE FUNCTION public.look() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM count(*) FROM n; RETURN NULL; END $$;
CREATE TRIGGER a0 AFTER INSERT ON v REFERENCING NEW TABLE AS n FOR EACH STATEMENT EXECUTE FUNCTION public.look();
CREATE TRIGGER t1 AFTER INSERT ON v REFERENCING NEW TABLE AS n FOR EACH STATEMENT
    EXECUTE FUNCTION accept_rows('poll=''shared''', 'event_id=id', 'choice=opt');
INSERT INTO v VALUES ('shared-1', 'a'), ('shared-2', 'b'), ('shared-3', 'b');
SELECT choice, count FROM results WHERE poll = 'shared';

-- A cursor that fails in a savepoint takes back its savepoint, not the lane of what it counted before.
SELECT create_poll('cursor', '{a}', counting => 'every', publish_every => '1 day');
BEGIN;
DECLARE c CURSOR FOR
    SELECT (accept_event('cursor', 'cursor-' || g, CASE WHEN g = 2 THEN (1 / (g - 2))::text ELSE 'a' END)).outcome FROM generate_series(1, 5) AS g;
FETCH 1 FROM c;
SAVEPOINT s;
FETCH 1 FROM c;
ROLLBACK TO s;
SELECT count(*) AS lanes_held FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 7 AND pid = pg_backend_pid();
COMMIT;
SELECT count FROM results WHERE poll = 'cursor';

-- A key that was counted before it is added as a choice keeps its count.
SELECT create_poll('late', '{}', counting => 'every', open_choices => true, publish_every => '1 day');
SELECT outcome FROM accept_event('late', 'late-1', 'k');
SELECT add_choice('late', 'k', 'K');
SELECT outcome FROM accept_event('late', 'late-2', 'k');
SELECT choice, label, count FROM results WHERE poll = 'late';
SELECT bool_and(ok) AS ok FROM verify_poll('late');

-- A choice that is added after it was refused is known to the same transaction.
SELECT create_poll('added', '{a}', counting => 'every', publish_every => '1 day');
BEGIN;
SELECT outcome FROM accept_event('added', 'added-1', 'a');
SELECT outcome FROM accept_event('added', 'added-2', 'z');
SELECT add_choice('added', 'z');
SELECT outcome FROM accept_event('added', 'added-2', 'z');
COMMIT;
SELECT choice, count FROM results WHERE poll = 'added';

-- An interval that would take every look of the worker beyond the calendar is refused.
SELECT create_poll('slow', '{a}', publish_every => '300000 years');

-- An index that somebody adds raises; it does not make us try for ever.
CREATE UNIQUE INDEX mine ON ledger (poll_id, (payload ->> 'email')) WHERE payload IS NOT NULL;
SELECT outcome FROM accept_event('shared', 'index-1', 'a', payload => '{"email": "x"}');
SELECT outcome FROM accept_event('shared', 'index-2', 'a', payload => '{"email": "x"}');
DROP INDEX mine;

-- Renaming the tables away between a vote and its commit is an error, not a lost count.
BEGIN;
SELECT outcome FROM accept_event('shared', 'rename-1', 'a');
ALTER SCHEMA poll_tally RENAME TO elsewhere;
COMMIT;
SELECT count(*) FROM events WHERE event_id = 'rename-1';

-- A vote and DROP EXTENSION in one transaction.
DROP TABLE v;
BEGIN;
SELECT outcome FROM accept_event('shared', 'drop-1', 'a');
DROP EXTENSION poll_tally;
COMMIT;

\c :home
DROP DATABASE regress_poll_tally_faults;
