-- PUBLIC gets nothing even where the default privileges of the installing role give everything to everybody; nor does a role
-- that they name.
\ir ../lib/pgtap.sql
BEGIN;
SELECT * FROM no_plan();
DROP EXTENSION poll_tally;
DROP SCHEMA IF EXISTS poll_tally;
CREATE ROLE "Named role";
ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO PUBLIC, "Named role";
ALTER DEFAULT PRIVILEGES GRANT ALL ON SEQUENCES TO PUBLIC, "Named role";
ALTER DEFAULT PRIVILEGES GRANT ALL ON ROUTINES TO PUBLIC, "Named role";
ALTER DEFAULT PRIVILEGES GRANT ALL ON TYPES TO PUBLIC, "Named role";
ALTER DEFAULT PRIVILEGES GRANT ALL ON SCHEMAS TO PUBLIC, "Named role";
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

SELECT is((SELECT string_agg(DISTINCT o.name, ' ')
           FROM (SELECT n.nspname, n.nspacl FROM pg_namespace AS n WHERE n.nspname = 'poll_tally'
                 UNION ALL SELECT c.relname, c.relacl FROM pg_class AS c WHERE c.relnamespace = 'poll_tally'::regnamespace
                 UNION ALL SELECT p.proname, p.proacl FROM pg_proc AS p WHERE p.pronamespace = 'poll_tally'::regnamespace
                 UNION ALL SELECT t.typname, t.typacl FROM pg_type AS t WHERE t.typnamespace = 'poll_tally'::regnamespace) AS o (name, acl),
                aclexplode(o.acl) AS a
           WHERE a.grantee = '"Named role"'::regrole),
    NULL, 'a role that they name has no privilege on anything');
SELECT lives_ok($$ SELECT poll_tally.grant_submitter('"Named role"') $$, 'it can be a submitter');
SELECT is((SELECT string_agg(c.relname, ' ' ORDER BY c.relname) FROM pg_class AS c
           WHERE c.relnamespace = 'poll_tally'::regnamespace AND c.relkind = 'r'
             AND has_table_privilege('Named role', c.oid, 'SELECT, INSERT, UPDATE, DELETE')),
    NULL, 'and reaches no table then');

SELECT * FROM finish();
ROLLBACK;
