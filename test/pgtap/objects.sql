-- What holds for every object of the extension: a comment, nothing for PUBLIC, a primary key for every table, and a
-- place in dumps for all data.
\ir ../lib/pgtap.sql
BEGIN;
SELECT * FROM no_plan();

SELECT is((SELECT (e.extnamespace::regnamespace || ' ' || e.extrelocatable) FROM pg_extension AS e
           WHERE e.extname = 'poll_tally'), 'poll_tally false', 'the schema is fixed');
SELECT is((SELECT library = script FROM poll_tally.version()), true, 'library and script are of one version');
SELECT cmp_ok((SELECT count(*)::int FROM pg_temp.members()), '>', 100, 'members are found');

-- Comments
SELECT is_empty($$
    SELECT m.object FROM pg_temp.members() AS m
    WHERE coalesce(obj_description(m.objid, m.classid::text), '') = '' ORDER BY 1
$$, 'every member has a comment');
SELECT is_empty($$
    SELECT pg_describe_object(d.classid, d.objid, 0) FROM pg_depend AS d
    JOIN pg_class AS c ON c.oid = d.refobjid AND c.relnamespace = 'poll_tally'::regnamespace
    WHERE d.refclassid = 'pg_class'::regclass AND d.classid = 'pg_trigger'::regclass
      AND obj_description(d.objid, 'pg_trigger') IS NULL
$$, 'every trigger has a comment');
SELECT is_empty($$
    SELECT m.object FROM pg_temp.members() AS m GROUP BY m.object HAVING count(*) > 1
$$, 'no member is listed twice');
SELECT is_empty($$
    SELECT pg_describe_object(d.classid, d.objid, d.objsubid) FROM pg_depend AS d
    WHERE d.refclassid = 'pg_namespace'::regclass AND d.refobjid = 'poll_tally'::regnamespace
      AND d.classid <> 'pg_extension'::regclass
      AND NOT EXISTS (SELECT FROM pg_depend AS e WHERE e.classid = d.classid AND e.objid = d.objid AND e.deptype = 'e')
$$, 'nothing else lies in the schema');

-- Tables
SELECT is_empty($$
    SELECT c.relname FROM pg_class AS c
    WHERE c.relnamespace = 'poll_tally'::regnamespace AND c.relkind IN ('r', 'p')
      AND NOT EXISTS (SELECT FROM pg_constraint AS k WHERE k.conrelid = c.oid AND k.contype = 'p')
$$, 'every table has a primary key');
SELECT is_empty($$
    SELECT c.relname FROM pg_class AS c
    WHERE c.relnamespace = 'poll_tally'::regnamespace AND c.relkind IN ('r', 'p')
      AND (c.relpersistence <> 'p' OR c.relrowsecurity)
$$, 'every table is logged and without row security, which dumps would lose');
SELECT is_empty($$
    SELECT k.conrelid::regclass, k.conname FROM pg_constraint AS k
    WHERE k.connamespace = 'poll_tally'::regnamespace AND k.contype = 'f'
$$, 'no foreign key, whose triggers would run on the accept path');
SELECT bag_eq($$
    SELECT t.tgrelid::regclass::text, t.tgname::text, t.tgenabled FROM pg_trigger AS t
    JOIN pg_class AS c ON c.oid = t.tgrelid AND c.relnamespace = 'poll_tally'::regnamespace AND c.relkind = 'r'
$$, $$ VALUES ('poll_tally.ledger', 'ledger_guard', 'A'::"char") $$,
    'the guard of the ledger is the only trigger of a table, and always on');
SELECT is_empty($$
    SELECT c.relname FROM pg_class AS c
    WHERE c.relnamespace = 'poll_tally'::regnamespace AND c.relkind IN ('r', 'p', 'S')
      AND c.oid NOT IN (SELECT unnest(e.extconfig) FROM pg_extension AS e WHERE e.extname = 'poll_tally')
$$, 'dumps carry every table and sequence');
SELECT is_empty($$
    SELECT condition FROM pg_extension AS e, unnest(e.extcondition) AS condition
    WHERE e.extname = 'poll_tally' AND condition <> ''
$$, 'and every row');

-- PUBLIC
SELECT is(has_schema_privilege('public', 'poll_tally', 'USAGE') OR has_schema_privilege('public', 'poll_tally', 'CREATE'),
    false, 'PUBLIC may not use the schema');
SELECT is_empty($$
    SELECT p.oid::regprocedure FROM pg_proc AS p
    WHERE p.pronamespace = 'poll_tally'::regnamespace AND has_function_privilege('public', p.oid, 'EXECUTE')
$$, 'PUBLIC may execute no function');
SELECT is_empty($$
    SELECT m.object FROM pg_temp.members() AS m
    WHERE m.classid = 'pg_type'::regclass AND has_type_privilege('public', m.objid, 'USAGE')
$$, 'PUBLIC may use no type');
SELECT is_empty($$
    SELECT c.oid::regclass, a.privilege_type
    FROM pg_class AS c, aclexplode(coalesce(c.relacl, acldefault(CASE c.relkind WHEN 'S' THEN 's' ELSE 'r' END::"char", c.relowner))) AS a
    WHERE c.relnamespace = 'poll_tally'::regnamespace AND a.grantee = 0
$$, 'PUBLIC has no privilege on a table, view or sequence');
SELECT is_empty($$
    SELECT a.attrelid::regclass, a.attname FROM pg_attribute AS a
    JOIN pg_class AS c ON c.oid = a.attrelid AND c.relnamespace = 'poll_tally'::regnamespace
    WHERE a.attacl IS NOT NULL
$$, 'no column has privileges of its own');

SELECT * FROM finish();
ROLLBACK;
