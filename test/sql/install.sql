-- CREATE EXTENSION: its schema has to be empty and trustworthy; it is fixed. In a database of its own.
\set home :DBNAME
\set SHOW_CONTEXT never
CREATE DATABASE regress_poll_tally_install;
\c regress_poll_tally_install
CREATE ROLE regress_pt_stranger;
CREATE ROLE regress_pt_super SUPERUSER;

-- a schema that holds anything at all
CREATE SCHEMA poll_tally;
CREATE TABLE poll_tally.ledger ();
CREATE EXTENSION poll_tally;
\echo :LAST_ERROR_SQLSTATE
DROP TABLE poll_tally.ledger;
CREATE FUNCTION poll_tally.add(integer, integer) RETURNS integer LANGUAGE sql RETURN $1;
CREATE EXTENSION poll_tally;
DROP FUNCTION poll_tally.add;
CREATE DOMAIN poll_tally.ident AS text;
CREATE EXTENSION poll_tally;
DROP DOMAIN poll_tally.ident;
CREATE OPERATOR poll_tally.@@@ (FUNCTION = int4eq, LEFTARG = integer, RIGHTARG = integer);
CREATE EXTENSION poll_tally;
DROP OPERATOR poll_tally.@@@ (integer, integer);
CREATE COLLATION poll_tally.c FROM "C";
CREATE EXTENSION poll_tally;
DROP COLLATION poll_tally.c;
CREATE SEQUENCE poll_tally.poll_id_seq;
CREATE EXTENSION poll_tally;
DROP SEQUENCE poll_tally.poll_id_seq;
ALTER DEFAULT PRIVILEGES IN SCHEMA poll_tally GRANT SELECT ON TABLES TO PUBLIC;
\set VERBOSITY terse
CREATE EXTENSION poll_tally;
\set VERBOSITY default
ALTER DEFAULT PRIVILEGES IN SCHEMA poll_tally REVOKE SELECT ON TABLES FROM PUBLIC;
SELECT count(*) FROM pg_extension WHERE extname = 'poll_tally';

-- one whose owner is neither the installing role nor a superuser
ALTER SCHEMA poll_tally OWNER TO regress_pt_stranger;
CREATE EXTENSION poll_tally;
\echo :LAST_ERROR_SQLSTATE
-- an empty one of a superuser's, or one's own: that is how a dump is restored
ALTER SCHEMA poll_tally OWNER TO regress_pt_super;
CREATE EXTENSION poll_tally;
SELECT library = script AS same_version FROM poll_tally.version();
DROP EXTENSION poll_tally;
SELECT count(*) FROM pg_namespace WHERE nspname = 'poll_tally';
ALTER SCHEMA poll_tally OWNER TO CURRENT_USER;
CREATE EXTENSION poll_tally;
DROP EXTENSION poll_tally;
-- what stands elsewhere may name it
CREATE VIEW public.functions AS SELECT proname FROM pg_proc WHERE pronamespace = 'poll_tally'::regnamespace;
CREATE EXTENSION poll_tally;
DROP EXTENSION poll_tally;
DROP VIEW public.functions;
DROP SCHEMA poll_tally;
-- none at all, and no other
CREATE EXTENSION poll_tally SCHEMA public;
CREATE EXTENSION poll_tally;
ALTER EXTENSION poll_tally SET SCHEMA public;
SELECT extnamespace::regnamespace, extrelocatable FROM pg_extension WHERE extname = 'poll_tally';

-- who is no superuser cannot install it
DROP EXTENSION poll_tally;
GRANT CREATE ON DATABASE regress_poll_tally_install TO regress_pt_stranger;
SET ROLE regress_pt_stranger;
CREATE EXTENSION poll_tally;
RESET ROLE;
REVOKE CREATE ON DATABASE regress_poll_tally_install FROM regress_pt_stranger;

-- what was pending for a poll dies with the extension: a new one in the same transaction begins at nothing
CREATE EXTENSION poll_tally;
SELECT poll_tally.create_poll('install', '{a}', counting => 'every', publish_every => '1 day');
BEGIN;
SELECT outcome FROM poll_tally.accept_event('install', 'install-1', 'a');
SAVEPOINT s1;
DROP EXTENSION poll_tally;
CREATE EXTENSION poll_tally;
SELECT poll_tally.create_poll('install', '{a}', counting => 'every', publish_every => '1 day');
SELECT count FROM poll_tally.results WHERE poll = 'install';
SELECT outcome, "position" FROM poll_tally.accept_event('install', 'install-1', 'a');
COMMIT;
SELECT count FROM poll_tally.results WHERE poll = 'install';
SELECT bool_and(ok) AS ok FROM poll_tally.verify_poll('install');
-- and when the drop is rolled back, it is counted after all
BEGIN;
SELECT outcome FROM poll_tally.accept_event('install', 'install-2', 'a');
SAVEPOINT s1;
DROP EXTENSION poll_tally;
ROLLBACK TO s1;
COMMIT;
SELECT count FROM poll_tally.results WHERE poll = 'install';
SELECT bool_and(ok) AS ok FROM poll_tally.verify_poll('install');

-- the library without the extension
DROP EXTENSION poll_tally;
CREATE FUNCTION public.advance(text, integer, bigint) RETURNS bigint LANGUAGE c AS '$libdir/poll_tally', 'advance_source';
SELECT public.advance('source', 0, 1);
DROP FUNCTION public.advance;

-- the databases that the worker serves are a list of names
ALTER SYSTEM SET poll_tally.databases = 'one,,two';
ALTER SYSTEM SET poll_tally.databases = '"one';
SHOW poll_tally.databases;

\c :home
DROP DATABASE regress_poll_tally_install;
DROP ROLE regress_pt_stranger, regress_pt_super;
