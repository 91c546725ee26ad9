-- The types: what they are, their operators, operator classes and casts, the labels of the enum in their order, and the
-- aggregate.
\ir ../lib/pgtap.sql
BEGIN;
SELECT * FROM no_plan();

SELECT enum_has_labels('poll_tally', 'outcome', ARRAY[
    'invalid', 'duplicate', 'conflict', 'source_conflict', 'expired', 'unknown_poll', 'closed', 'not_open', 'not_eligible',
    'unknown_choice', 'already_responded', 'limit_reached', 'accepted', 'unknown_event', 'nothing_to_retract'],
    'outcome has the 13 values in the order of judging, and those of retractions');
SELECT domain_type_is('poll_tally', 'ident', 'pg_catalog', 'text', 'ident is a domain over text');
SELECT is((SELECT collname::text FROM pg_type AS t JOIN pg_collation AS c ON c.oid = t.typcollation
           WHERE t.oid = 'poll_tally.ident'::regtype), 'C', 'ident compares byte by byte');
SELECT bag_eq($$
    SELECT t.typname::text, t.typlen::int, t.typbyval, t.typreceive <> 0 AND t.typsend <> 0
    FROM pg_type AS t WHERE t.oid IN ('poll_tally.tally'::regtype, 'poll_tally.event_position'::regtype)
$$, $$ VALUES ('event_position', 8, true, true), ('tally', -1, false, true) $$,
    'event_position is 8 bytes by value, tally a varlena; both have a binary form');
SELECT is((SELECT typstorage FROM pg_type WHERE oid = 'poll_tally.tally'::regtype), 'x', 'tally can be toasted');

-- Which values are identifiers: 1 to 64 visible ASCII characters other than " and \.
SELECT lives_ok(format('SELECT %L::poll_tally.ident', v), 'an identifier: ' || left(v, 10))
FROM unnest(ARRAY['a', '!', '~', '[]', '''', repeat('x', 64), '3/1842']) AS v;
SELECT throws_ok(format('SELECT %L::poll_tally.ident', v), '23514', NULL, 'no identifier: ' || left(to_json(v)::text, 10))
FROM unnest(ARRAY['', ' ', 'a b', '"', '\', 'ä', E'\x7f', E'\t', E'a\n', repeat('x', 65)]) AS v;
SELECT lives_ok(format('SELECT %L::poll_tally.ident', chr(c)), 'an identifier: character ' || c)
FROM generate_series(33, 126) AS c WHERE c NOT IN (34, 92);

SELECT bag_eq($$
    SELECT concat_ws(' ', pg_temp.type_name(nullif(o.oprleft, 0)), o.oprname, pg_temp.type_name(o.oprright), '=',
                     pg_temp.type_name(o.oprresult)) AS operator
    FROM pg_operator AS o WHERE o.oprnamespace = 'poll_tally'::regnamespace
$$, $$
    SELECT v AS operator FROM unnest(ARRAY[
        'tally + tally = tally', 'tally - tally = tally', '- tally = tally', 'tally = tally = boolean',
        'tally <> tally = boolean', 'tally < tally = boolean', 'tally <= tally = boolean', 'tally > tally = boolean',
        'tally >= tally = boolean', 'tally -> text = bigint', 'event_position = event_position = boolean',
        'event_position <> event_position = boolean', 'event_position < event_position = boolean',
        'event_position <= event_position = boolean', 'event_position > event_position = boolean',
        'event_position >= event_position = boolean']) AS v
$$, 'operators');
SELECT is_empty($$
    SELECT o.oid::regoperator FROM pg_operator AS o WHERE o.oprnamespace = 'poll_tally'::regnamespace
    AND (o.oprresult = 'bool'::regtype AND (o.oprcom = 0 OR o.oprnegate = 0 OR o.oprrest = 0 OR o.oprjoin = 0)
         OR o.oprname = '=' AND NOT (o.oprcanhash AND o.oprcanmerge))
$$, 'comparisons have commutator, negator and estimators, equality hashes and merges');
SELECT bag_eq($$
    SELECT pg_temp.type_name(c.opcintype), m.amname::text, c.opcdefault
    FROM pg_opclass AS c JOIN pg_am AS m ON m.oid = c.opcmethod
    WHERE c.opcnamespace = 'poll_tally'::regnamespace
$$, $$ VALUES ('event_position', 'btree', true), ('event_position', 'hash', true), ('tally', 'btree', true),
              ('tally', 'hash', true) $$, 'a default btree and hash operator class each');
SELECT is_empty($$
    SELECT c.opcname, m.amname FROM pg_opclass AS c JOIN pg_am AS m ON m.oid = c.opcmethod
    WHERE c.opcnamespace = 'poll_tally'::regnamespace AND NOT amvalidate(c.oid)
$$, 'which the server finds valid');
SELECT bag_eq($$
    SELECT pg_temp.type_name(c.castsource) AS source, pg_temp.type_name(c.casttarget) AS target, c.castmethod
    FROM pg_cast AS c WHERE 'poll_tally.tally'::regtype IN (c.castsource, c.casttarget)
$$, $$ VALUES ('jsonb', 'tally', 'f'::"char"), ('tally', 'json', 'f'), ('tally', 'jsonb', 'f') $$, 'casts, by functions');
SELECT is((SELECT a.aggcombinefn <> 0 AND a.aggserialfn <> 0 AND a.aggdeserialfn <> 0 AND p.proparallel = 's'
           FROM pg_aggregate AS a JOIN pg_proc AS p ON p.oid = a.aggfnoid WHERE p.oid = 'poll_tally.sum'::regproc), true,
    'sum can be computed in parallel');

-- A row that is turned into JSON carries an object.
SELECT is(to_jsonb(r)::text, '{"counts": {"a": 1}}', 'to_jsonb of a row') FROM (SELECT '{"a": 1}'::poll_tally.tally AS counts) AS r;
SELECT is(row_to_json(r)::text, '{"counts":{"a": 1}}', 'row_to_json of a row')
FROM (SELECT '{"a": 1}'::poll_tally.tally AS counts) AS r;

-- As the design words them.
SELECT is('{"b": 2, "a": -1, "c": 0}'::poll_tally.tally::text, '{"a": -1, "b": 2}', 'canonical: keys sorted, zeros dropped');
SELECT is(poll_tally.get('{"a": 5}', 'b'), 0::bigint, 'a choice that is absent counts 0');
SELECT is((SELECT poll_tally.sum(t) FROM (SELECT NULL::poll_tally.tally) AS n (t) WHERE false)::text, NULL,
    'sum over no rows is NULL');
SELECT is((SELECT poll_tally.sum(t)::text
           FROM (VALUES ('{"a": 9223372036854775807}'::poll_tally.tally), ('{"a": 1}'), ('{"a": -1}')) AS v (t)),
    '{"a": 9223372036854775807}', 'a sum that fits never fails for an intermediate one');
SELECT is(poll_tally.lane('3/1842') || ' ' || poll_tally.seq('3/1842'), '3 1842', 'lane and seq of a position');
SELECT is((SELECT string_agg(p::text, ' ' ORDER BY p) FROM unnest('{0/10,1/1,0/9}'::poll_tally.event_position[]) AS p),
    '0/9 0/10 1/1', 'positions sort by lane, then seq');

-- Soft errors: what is no value is answered, not raised.
SELECT CASE WHEN current_setting('server_version_num')::integer < 160000
    THEN skip('soft errors of input came with 16', 1)
    ELSE results_eq($$
        SELECT v.input, pg_input_is_valid(v.input, v.type)
        FROM (VALUES (1, '{"a": 1}', 'poll_tally.tally'), (2, '{"a": 1.5}', 'poll_tally.tally'),
                     (3, '{"a": [1]}', 'poll_tally.tally'), (4, '{"a": {"b": 1}}', 'poll_tally.tally'),
                     (5, '[]', 'poll_tally.tally'), (6, '{"a b": 1}', 'poll_tally.tally'),
                     (7, '{"a": 1, "a": 2}', 'poll_tally.tally'), (8, '{"a": 99999999999999999999}', 'poll_tally.tally'),
                     (9, '{"a": 1', 'poll_tally.tally'), (10, '1/2', 'poll_tally.event_position'),
                     (11, '01/2', 'poll_tally.event_position'), (12, '65536/1', 'poll_tally.event_position'))
             AS v (number, input, type) ORDER BY v.number $$,
        $$ VALUES ('{"a": 1}', true), ('{"a": 1.5}', false), ('{"a": [1]}', false), ('{"a": {"b": 1}}', false),
                  ('[]', false), ('{"a b": 1}', false), ('{"a": 1, "a": 2}', false),
                  ('{"a": 99999999999999999999}', false), ('{"a": 1', false), ('1/2', true), ('01/2', false),
                  ('65536/1', false) $$,
        'input functions report softly')
    END;

SELECT * FROM finish();
ROLLBACK;
