-- The type tally: text, jsonb, json and binary forms, arithmetic, comparison,
-- the aggregate sum, and the text of each error; then the domain ident and the
-- enum outcome.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS poll_tally;
RESET client_min_messages;
SET search_path = poll_tally, public;
\set SHOW_CONTEXT never

-- canonical form: keys sorted bytewise, zeros dropped
SELECT '{}'::tally, '{"b": 2, "a": 1}'::tally, ' { "a" : 0 } '::tally;
SELECT '{"b": 1, "B": 1, "a": 1, "aa": 1, "~": 1, "!": 1, "a-": 1}'::tally;
SELECT ('{"' || repeat('x', 64) || '": 1}')::tally;
-- escapes are decoded before a key is judged
SELECT '{"\u0061\u002Fb": 1, "c\/d": 2}'::tally;
-- a count is any number that is integral
SELECT '{"a": 1.0, "b": 1e2, "c": 10000e-4, "d": 0.5E+1, "e": -0, "f": 0e5}'::tally;
SELECT '{"a": 9223372036854775807, "b": -9223372036854775808, "c": 922337203685477580.7e1}'::tally;

-- not JSON
SELECT ''::tally;
SELECT '{"a": 1'::tally;
SELECT '{"a": 1,}'::tally;
SELECT '{"a": 01}'::tally;
SELECT '{a: 1}'::tally;
SELECT '{"a": 1} {}'::tally;
SELECT '{"a": NaN}'::tally;
SELECT '{"a\u0000b": 1}'::tally;
SELECT '{"\ud800": 1}'::tally;
-- no object of counts
SELECT '[1]'::tally;
SELECT '1'::tally;
SELECT 'null'::tally;
SELECT '"a"'::tally;
SELECT '{"a": "1"}'::tally;
SELECT '{"a": null}'::tally;
SELECT '{"a": 1, "b": true}'::tally;
SELECT '{"a": [1]}'::tally;
SELECT '{"a": {"b": 1}}'::tally;
SELECT '{"a": 1.5}'::tally;
SELECT '{"a": 1e-400}'::tally;
-- nesting cannot exhaust the stack
\set VERBOSITY sqlstate
SELECT repeat('[', 1000000)::tally;
SELECT repeat('{"a":', 1000000)::tally;
\set VERBOSITY default
-- keys that are no identifiers
SELECT '{"": 1}'::tally;
SELECT '{"a": 1 , "b c": 1}'::tally;
SELECT '{"a\"b": 1}'::tally;
SELECT '{"a\\b": 1}'::tally;
SELECT '{"\n": 1}'::tally;
SELECT U&'{"a": 1, "\00E9": 1}'::tally;
SELECT '{"\u007f": 1}'::tally;
SELECT ('{"' || repeat('x', 65) || '": 1}')::tally;
-- keys given twice, also by escapes and at 0
SELECT '{"a": 1, "b": 2, "a": 1}'::tally;
SELECT '{"a": 1, "\u0061": 2}'::tally;
SELECT '{"a": 0, "a": 0}'::tally;
-- counts outside bigint
SELECT '{"a": 9223372036854775808}'::tally;
SELECT '{"a": -9223372036854775809}'::tally;
SELECT '{"a": 1e400}'::tally;
SELECT '{"a": 1e99999999999999999999}'::tally;

-- jsonb: the same rules, both ways
SELECT '{"b": 2, "a": 1.0, "c": 1e2, "d": 0, "ee": -9223372036854775808}'::jsonb::tally;
SELECT '{"b": 2, "a": 1, "aa": -3}'::tally::jsonb, '{}'::tally::jsonb, '{}'::jsonb::tally;
SELECT '[]'::jsonb::tally;
SELECT '"a"'::jsonb::tally;
SELECT 'null'::jsonb::tally;
SELECT '{"a": "1"}'::jsonb::tally;
SELECT '{"a": "NaN"}'::jsonb::tally;
SELECT '{"a": {}}'::jsonb::tally;
SELECT '{"a": []}'::jsonb::tally;
SELECT '{"a": null}'::jsonb::tally;
SELECT '{"a": false}'::jsonb::tally;
SELECT '{"a": 1.5}'::jsonb::tally;
SELECT '{"b c": 1}'::jsonb::tally;
SELECT '{"": 1}'::jsonb::tally;
SELECT '{"a": 9223372036854775808}'::jsonb::tally;
SELECT '{"a": -1e400}'::jsonb::tally;
CREATE TEMP TABLE target (j jsonb, t tally);
INSERT INTO target (j) SELECT '{"a": 1}'::tally;        -- by assignment
INSERT INTO target (t) SELECT '{"a": 1}'::jsonb;        -- explicitly only

SELECT '{"b": 2, "a": 1}'::tally::json, tally_to_json('{"a": 1}'), tally_to_jsonb('{"a": 1}'),
       tally_from_jsonb('{"a": 1}');

-- rows turned into JSON carry an object
SELECT row_to_json(r), to_jsonb(r), json_agg(t), jsonb_build_object('t', t)
  FROM (SELECT '{"a": 1}'::tally AS t) AS r GROUP BY r, t;

-- arithmetic
SELECT '{"a": 1, "b": 2}'::tally + '{"b": 3, "c": 4}' AS sum,
       '{"a": 1, "b": 2}'::tally - '{"b": 3, "c": 4}' AS difference,
       - '{"a": 1, "b": -2}'::tally AS negated;
SELECT '{"a": 1, "b": 2}'::tally + '{"a": -1}' AS dropped, '{"a": 1}'::tally - '{"a": 1}' AS empty,
       - '{}'::tally AS nothing;
SELECT add('{"a": 1}', '{"a": 2}'), subtract('{"a": 1}', '{"a": 2}'), negate('{"a": 1}'),
       equal('{"a": 1}', '{"a": 1.0}'), not_equal('{"a": 1}', '{}'), get('{"a": 1}', 'a');
SELECT '{"a": 9223372036854775806}'::tally + '{"a": 1}', '{"a": -1}'::tally - '{"a": -9223372036854775808}';
SELECT '{"a": 9223372036854775807}'::tally + '{"a": 1}';
SELECT '{"a": -9223372036854775808}'::tally - '{"a": 1}';
SELECT '{"b": 1}'::tally - '{"a": -9223372036854775808}';
SELECT - '{"a": -9223372036854775808}'::tally;

-- look-up
SELECT t -> 'a' AS a, t -> 'b' AS b, t -> 'aa' AS absent, t -> '' AS malformed
  FROM (SELECT '{"a": 1, "b": 2}'::tally AS t) AS v;

-- total
SELECT total('{}'), total('{"a": 1, "b": -3}'),
       total('{"a": 9223372036854775807, "b": 9223372036854775807, "c": -9223372036854775807}');
SELECT total('{"a": -9223372036854775807, "b": -1}');
SELECT total('{"a": 9223372036854775807, "b": 1}');
SELECT total('{"a": -9223372036854775808, "b": -1}');

-- apart and together
SELECT * FROM each('{"b": 1, "a": -2}');
SELECT * FROM each('{}');
SELECT make_tally('{b,a,c}', '{1,-2,0}'), make_tally('{}', '{}'), make_tally(NULL, '{}');
SELECT make_tally(array_agg(choice), array_agg(count)) FROM each('{"b": 1, "a": -2}');
SELECT make_tally('[5:6]={b,a}'::text[], '{1,2}');
SELECT make_tally('{a,b}', '{1}');
SELECT make_tally('{}', '{1}');
SELECT make_tally('{a,NULL}', '{1,2}');
SELECT make_tally('{a,b}', '{1,NULL}');
SELECT make_tally('{{a,b}}', '{1,2}');
SELECT make_tally('{a,b}', '{{1,2}}');
SELECT make_tally('{a,b,a}', '{1,2,3}');
SELECT make_tally('{a,""}', '{1,2}');
SELECT make_tally(ARRAY['a', E'b\t'], '{1,2}');

-- comparison: a total order, in agreement with equality
SELECT array_agg(t ORDER BY t) AS ascending
  FROM unnest('{"{}","{\"b\":1}","{\"a\":1}","{\"a\":-1}","{\"a\":1,\"b\":1}","{\"aa\":1}"}'::tally[]) AS t;
SELECT a < b AS lt, a <= b AS le, a = b AS eq, a >= b AS ge, a > b AS gt, a <> b AS ne,
       tally_compare(a, b) AS compare
  FROM (VALUES ('{"a": -1}'::tally, '{"a": 256}'::tally),
               ('{"a": 1}', '{"a": 1.0, "b": 0}'),
               ('{"a": 1, "b": 1}', '{"a": 1}')) AS v(a, b);
SELECT tally_hash('{"a": 1, "b": 0}') = tally_hash('{"a": 1.0}') AS hash,
       tally_hash('{"a": 1}') = tally_hash('{"a": 2}') AS other,
       tally_hash_extended('{"a": 1}', 7) = tally_hash_extended('{"a": 1}', 7) AS extended,
       tally_hash_extended('{"a": 1}', 7) = tally_hash_extended('{"a": 1}', 8) AS other_seed;
SELECT amname, opcname, amvalidate(c.oid)
  FROM pg_opclass AS c JOIN pg_am AS m ON m.oid = opcmethod
 WHERE opcintype = 'tally'::regtype ORDER BY 1;
CREATE TEMP TABLE counted AS
  SELECT i, make_tally(ARRAY['k' || i % 10, 'z'], ARRAY[i % 100, -1]) AS t FROM generate_series(1, 2000) AS i;
CREATE INDEX ON counted (t);
CREATE INDEX ON counted USING hash (t);
ANALYZE counted;
SET enable_hashagg = off;
SELECT count(*) FROM (SELECT t FROM counted GROUP BY t) AS g;
SET enable_hashagg = on; SET enable_sort = off;
SELECT count(*) FROM (SELECT t FROM counted GROUP BY t) AS g;
RESET enable_sort;
SET enable_mergejoin = off; SET enable_nestloop = off;
SELECT count(*) FROM counted AS a JOIN counted AS b USING (t);
SET enable_mergejoin = on; SET enable_hashjoin = off;
SELECT count(*) FROM counted AS a JOIN counted AS b USING (t);
RESET enable_hashjoin; RESET enable_nestloop;
SET enable_seqscan = off;
SELECT count(*) FROM counted WHERE t = '{"k7": 7, "z": -1}';
SELECT count(*) FROM counted WHERE t >= '{"k9": 9}' AND t < '{"k9": 20}';
RESET enable_seqscan;

-- sum: NULL over no rows, NULLs are skipped, an intermediate result may be anything
SELECT sum(t) FROM (VALUES ('{"a": 1, "b": 1}'::tally), (NULL), ('{"a": 2, "b": -1}')) AS v(t);
SELECT sum(t) FROM counted WHERE false;
SELECT sum(NULL::tally), sum('{}'::tally) FROM generate_series(1, 3);
SELECT sum(t) FROM (VALUES ('{"a": 9223372036854775807}'::tally), ('{"a": 9223372036854775807}'),
                           ('{"a": -9223372036854775808}'), ('{"a": -9223372036854775808}')) AS v(t);
SELECT sum(t) FROM (VALUES ('{"a": 9223372036854775807}'::tally), ('{"a": 1}')) AS v(t);
SELECT sum(t) FROM (VALUES ('{"a": -9223372036854775808}'::tally), ('{"a": -1}')) AS v(t);
SELECT i, sum(t) OVER (ORDER BY i ROWS 1 PRECEDING) FROM counted WHERE i < 5;
SELECT sum(t) = (SELECT make_tally(array_agg(choice), array_agg(n))
                   FROM (SELECT choice, sum(count)::bigint AS n FROM counted, each(t) GROUP BY 1) AS g) AS recount
  FROM counted;
-- the same in parallel, with states that are negative and beyond bigint
CREATE TABLE shared AS
  SELECT make_tally(ARRAY['p', 'n', 'k' || i % 100, 'x'], ARRAY[4611686018427387904, -4611686018427387904, 1, (-1) ^ i]::bigint[]) AS t
    FROM generate_series(1, 20000) AS i;
INSERT INTO shared SELECT make_tally('{p,n}', '{-4611686018427387904,4611686018427387904}') FROM generate_series(1, 20000);
ANALYZE shared;
SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0;
SET max_parallel_workers_per_gather = 2;
EXPLAIN (COSTS OFF) SELECT sum(t) FROM shared;
SELECT t -> 'p' AS p, t -> 'n' AS n, t -> 'x' AS x, t -> 'k7' AS k7, (SELECT count(*) FROM each(t)) AS choices
  FROM (SELECT sum(t) AS t FROM shared) AS s;
SELECT sum(t) FROM shared WHERE t -> 'x' = 2;
SELECT sum(t) FROM shared WHERE t -> 'x' <> 0;
DROP TABLE shared;
-- the same by partitions, some of which have nothing to add
CREATE TABLE parts (part int, t tally) PARTITION BY LIST (part);
CREATE TABLE parts_1 PARTITION OF parts FOR VALUES IN (1);
CREATE TABLE parts_2 PARTITION OF parts FOR VALUES IN (2);
CREATE TABLE parts_3 PARTITION OF parts FOR VALUES IN (3);
CREATE TABLE parts_4 PARTITION OF parts FOR VALUES IN (4);
INSERT INTO parts SELECT 1 + i % 4, CASE WHEN i % 4 = 2 THEN '{"a": 1}'::tally END FROM generate_series(1, 4000) AS i;
ANALYZE parts;
SET max_parallel_workers_per_gather = 0; SET enable_partitionwise_aggregate = on;
EXPLAIN (COSTS OFF) SELECT sum(t) FROM parts WHERE part < 3;
SELECT sum(t) FROM parts WHERE part < 3;
SELECT sum(t) FROM parts WHERE part > 1;
RESET max_parallel_workers_per_gather; RESET enable_partitionwise_aggregate;
DROP TABLE parts;

-- large ones: toasted, found and compared as small ones are
CREATE TEMP TABLE large AS
  SELECT make_tally(array_agg('key-' || i), array_agg(i)) AS t FROM generate_series(1, 100000) AS i;
SELECT pg_column_size(t) < 1000000 AS toasted, total(t), t -> 'key-77777' AS found, t -> 'key-0' AS absent,
       t = t::text::tally AS by_text, t = t::jsonb::tally AS by_jsonb, t - t AS nothing, total(t + t) AS doubled
  FROM large;
SELECT count(*), sum(count) FROM large, each(t);

-- binary form: a round trip
SELECT tally_send('{"a": 1, "bc": -2}'), tally_send('{}');
SELECT current_setting('data_directory') || '/tally.bin' AS file \gset
COPY (SELECT t FROM counted UNION ALL SELECT t FROM large UNION ALL SELECT '{}') TO :'file' (FORMAT binary);
CREATE TEMP TABLE copied (t tally);
COPY copied FROM :'file' (FORMAT binary);
SELECT count(*), count(*) FILTER (WHERE t = '{}') AS empty,
       count(*) FILTER (WHERE t = (SELECT t FROM large)) AS large FROM copied;
-- and what is not canonical is refused
\set bytes 000000
COPY (SELECT decode(:'bytes', 'hex')) TO :'file' (FORMAT binary);
COPY copied FROM :'file' (FORMAT binary);
\set bytes ffffffff
COPY (SELECT decode(:'bytes', 'hex')) TO :'file' (FORMAT binary);
COPY copied FROM :'file' (FORMAT binary);
\set bytes 7fffffff01610000000000000001
COPY (SELECT decode(:'bytes', 'hex')) TO :'file' (FORMAT binary);
COPY copied FROM :'file' (FORMAT binary);
\set bytes 00000001026100000000000001
COPY (SELECT decode(:'bytes', 'hex')) TO :'file' (FORMAT binary);
COPY copied FROM :'file' (FORMAT binary);
\set bytes 000000010361620000000000000001
COPY (SELECT decode(:'bytes', 'hex')) TO :'file' (FORMAT binary);
COPY copied FROM :'file' (FORMAT binary);
\set bytes 0000000100000000000000000001
COPY (SELECT decode(:'bytes', 'hex')) TO :'file' (FORMAT binary);
COPY copied FROM :'file' (FORMAT binary);
\set bytes 0000000101200000000000000001
COPY (SELECT decode(:'bytes', 'hex')) TO :'file' (FORMAT binary);
COPY copied FROM :'file' (FORMAT binary);
\set bytes 0000000101610000000000000000
COPY (SELECT decode(:'bytes', 'hex')) TO :'file' (FORMAT binary);
COPY copied FROM :'file' (FORMAT binary);
\set bytes 00000002016200000000000000010161000000000000000101
COPY (SELECT decode(:'bytes', 'hex')) TO :'file' (FORMAT binary);
COPY copied FROM :'file' (FORMAT binary);
\set bytes 00000002016100000000000000010161000000000000000101
COPY (SELECT decode(:'bytes', 'hex')) TO :'file' (FORMAT binary);
COPY copied FROM :'file' (FORMAT binary);
\set bytes 000000010161000000000000000100
COPY (SELECT decode(:'bytes', 'hex')) TO :'file' (FORMAT binary);
COPY copied FROM :'file' (FORMAT binary);

-- NULL in, NULL out
SELECT NULL::tally + '{}' AS sum, NULL::tally = '{}' AS equal, '{}'::tally -> NULL AS got, total(NULL);

-- identifiers: exactly the visible ASCII characters but two
SELECT string_agg(chr(i), '' ORDER BY i) AS allowed
  FROM generate_series(1, 255) AS i
 WHERE chr(i) ~ substring(pg_get_constraintdef((SELECT oid FROM pg_constraint WHERE conname = 'ident_form')) FROM '''(.*)''');
SELECT length(repeat('x', 64)::ident);
SELECT repeat('x', 65)::ident;
SELECT ''::ident;
SELECT 'a b'::ident;
SELECT E'a\n'::ident;
SELECT 'a' < 'B'::ident AS bytewise;

-- outcomes
SELECT enum_range(NULL::outcome);

-- every object of the types has its comment (array types, members from 16 on, aside)
SELECT pg_describe_object(classid, objid, 0)
  FROM pg_depend
 WHERE refclassid = 'pg_extension'::regclass AND deptype = 'e'
   AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'poll_tally')
   AND (classid IN ('pg_operator'::regclass, 'pg_opclass'::regclass, 'pg_opfamily'::regclass, 'pg_cast'::regclass)
        OR pg_describe_object(classid, objid, 0) ~ '^(function|type) (tally|position|event_position|ident|outcome)')
   AND pg_describe_object(classid, objid, 0) NOT LIKE '%[]'
   AND obj_description(objid, classid::regclass::name) IS NULL;
