-- PUBLIC gets nothing even where the default privileges of the installing role give everything to everybody.
\ir ../lib/pgtap.sql
BEGIN;
SELECT * FROM no_plan();
DROP EXTENSION poll_tally;
DROP SCHEMA IF EXISTS poll_tally;
ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO PUBLIC;
ALTER DEFAULT PRIVILEGES GRANT ALL ON SEQUENCES TO PUBLIC;
ALTER DEFAULT PRIVILEGES GRANT ALL ON ROUTINES TO PUBLIC;
ALTER DEFAULT PRIVILEGES GRANT ALL ON TYPES TO PUBLIC;
ALTER DEFAULT PRIVILEGES GRANT ALL ON SCHEMAS TO PUBLIC;
CREATE EXTENSION poll_tally;

SELECT is((SELECT string_agg(DISTINCT c.relname, ' ') FROM pg_class AS c, aclexplode(c.relacl) AS a
           WHERE c.relnamespace = 'poll_tally'::regnamespace AND a.grantee = 0),
    NULL, 'PUBLIC has no privilege on a table, view or sequence');
SELECT is((SELECT string_agg(p.proname, ' ') FROM pg_proc AS p
           WHERE p.pronamespace = 'poll_tally'::regnamespace AND has_function_privilege('public', p.oid, 'EXECUTE')),
    NULL, 'PUBLIC may execute no function');
SELECT is((SELECT string_agg(m.object, ' ') FROM pg_temp.members() AS m
           WHERE m.classid = 'pg_type'::regclass AND has_type_privilege('public', m.objid, 'USAGE')),
    NULL, 'PUBLIC may use no type');
SELECT is(has_schema_privilege('public', 'poll_tally', 'USAGE') OR has_schema_privilege('public', 'poll_tally', 'CREATE'),
    false, 'PUBLIC may not use the schema');

SELECT * FROM finish();
ROLLBACK;
