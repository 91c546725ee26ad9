-- Bad input: 300 nasty strings for every text argument of every function (found in the catalog, so that a new function
-- is met too), then arrays, votes and JSON of every bad kind. Each call ends in an outcome or an SQLSTATE, never in
-- XX000 and never in a crash. Calls are taken back, one by one. In a database of its own, since ids are
-- unique in a database.
\set home :DBNAME
CREATE DATABASE regress_poll_tally_nasty ENCODING 'UTF8' LOCALE 'C' TEMPLATE template0;
\c regress_poll_tally_nasty
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS poll_tally;
RESET client_min_messages;
SET search_path = poll_tally, public;

CREATE TEMP TABLE nasty AS
SELECT row_number() OVER (ORDER BY octet_length(s.string), s.string COLLATE "C") AS n, s.string
FROM (
    SELECT NULL::text AS string
    UNION SELECT repeat('x', length) FROM unnest(ARRAY[0, 1, 63, 64, 65, 127, 128, 255, 256, 8191, 1048576]) AS length
    -- each ASCII character, in the middle and alone where it could end something
    UNION SELECT 'a' || chr(c) || 'b' FROM generate_series(1, 127) AS c
    UNION SELECT chr(c) FROM unnest(ARRAY[1, 9, 10, 13, 27, 32, 34, 36, 37, 39, 47, 58, 91, 92, 93, 123, 125, 127]) AS c
    -- beyond ASCII: two, three and four bytes, bidirectional, zero width, combining, not characters
    UNION SELECT 'a' || chr(c) FROM generate_series(128, 255, 4) AS c
    UNION SELECT chr(c) FROM unnest(ARRAY[x'153', x'200b', x'200d', x'202e', x'2028', x'301', x'feff', x'fffd', x'ffff', x'e000',
                                              x'd7ff', x'1f4a9', x'1f1e9', x'10ffff', x'10000', x'3000', x'660', x'ff11'])
              AS bits, LATERAL (SELECT bits::bit(32) >> (32 - length(bits))) AS wide(b), LATERAL (SELECT wide.b::int) AS code(c)
    UNION SELECT repeat(chr(233), 32) UNION SELECT repeat(chr(233), 33) UNION SELECT repeat('x', 63) || chr(233)
    -- quoting, formats, injection, literals of other types
    UNION SELECT * FROM unnest(ARRAY[
        '''', '''''', '"', '""', '\', '\\', '\''', '$$', '$1', '$x$', '--', '/*', '*/', ';', '; DROP TABLE poll_tally.ledger; --',
        ''' OR ''''=''', '%s', '%n%n%n%n', '%1$s', '%x%x%x%x', '%99999999s', '%*d', '%%', '%', '{', '}', '{}', '{a,b}', '{"a":1}',
        '{NULL}', '[]', '[', ']', '(', ')', '(,)', 'NULL', 'null', 'true', '0', '-1', '1e999', 'NaN', 'infinity', '0x1F',
        '9223372036854775808', '1970-01-01', '../../etc/passwd', '/dev/null', 'C:\', '${HOME}', '`id`', '$(id)', '<script>', '&amp;',
        'a b', ' a', 'a ', E'a\tb', E'a\nb', E'a\r\nb', '\u0000', '\x00', '\000', '%00', '&#0;', '"a"', '''a''', 'a"b', 'a\b', 'a,b',
        '-infinity', 'now', 'epoch', 'SELECT', '1e5', '+1', '1.', '.5',
        'poll', 'public', 'pg_catalog', 'poll_tally', '0/1', '0/0', '-1/1', '/', '{0}', '@', '#', '~', '!', '*', '?', '=', '|', '^'])
    UNION SELECT repeat(part, 1048576 / octet_length(part)) FROM unnest(ARRAY['%s', '"', '\', '[', '{"a":', chr(233), ' ', '1'])
                     AS part) AS s;
SELECT count(*) AS strings, count(DISTINCT string) AS different, max(octet_length(string)) AS longest FROM nasty;

-- A poll and an event for all arguments but the one that is tried.
SELECT create_poll('nasty', '{a,b}', counting => 'every', restricted => true, max_choices => 2, publish_every => '1 day');
SELECT set_eligible('nasty', '{ann,bob}');
SELECT outcome FROM accept_event('nasty', 'nasty-1', 'a', 'ann');

-- What a call comes to: an outcome, 'returned', 'no row', or an SQLSTATE. It is rolled back.
CREATE FUNCTION pg_temp.try(call text, argument text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    result text;
BEGIN
    EXECUTE 'SELECT coalesce(to_jsonb(r) ->> ''outcome'', ''returned'') FROM ' || call || ' AS r LIMIT 1' INTO result USING argument;
    RAISE EXCEPTION USING ERRCODE = 'PT000', MESSAGE = coalesce(result, 'no row');
EXCEPTION WHEN OTHERS THEN
    RETURN CASE SQLSTATE WHEN 'PT000' THEN SQLERRM ELSE SQLSTATE END;
END $$;

-- A good value for each argument that has no default or is needed for the call to get far.
CREATE TEMP TABLE good (argument text PRIMARY KEY, value text);
INSERT INTO good VALUES
    ('poll', '''nasty'''), ('event_id', '''nasty-2'''), ('choice', '''a'''), ('principal', '''bob'''), ('event_ids', '''{nasty-2}'''),
    ('choices', '''{a}'''), ('principals', '''{bob}'''), ('body', '''{"event_id":"nasty-2","poll_id":"nasty","candidate_id":"a"}'''),
    ('retraction_id', '''nasty-3'''), ('tally', '''{"a": 1}'''), ('counts', '''{1}'''), ('poll_id', '1'), ('source_partition', '0'),
    ('next_offset', '7'), ('audience', '''all'''), ('revision', '1');

-- How a string becomes an argument of its type: as it is, in an array, as a JSON string, and as a JSON key.
CREATE TEMP TABLE form (type regtype, form text);
INSERT INTO form VALUES
    ('text', '$1'), ('text[]', 'ARRAY[$1]'), ('text[]', 'ARRAY[''a'', $1, $1, NULL]'), ('jsonb', 'to_jsonb($1)'),
    ('jsonb', 'jsonb_build_object(coalesce($1, ''null''), 1)'), ('jsonb[]', 'ARRAY[to_jsonb($1)]'),
    ('jsonb[]', 'ARRAY[jsonb_build_object(coalesce($1, ''null''), 1)]');

CREATE TEMP TABLE argument AS
SELECT p.oid AS function, p.proname AS name, a.ord, a.argument, a.type,
       CASE WHEN p.proname LIKE 'create%' AND a.argument = 'poll' THEN '''nasty-new'''
            WHEN p.proname = 'add_choice' AND a.argument = 'choice' THEN '''c''' ELSE g.value END AS value,
       a.ord <= p.pronargs - p.pronargdefaults AS needed
FROM pg_depend AS d
JOIN pg_proc AS p ON p.oid = d.objid AND d.classid = 'pg_proc'::regclass AND d.refclassid = 'pg_extension'::regclass
                 AND d.refobjid = (SELECT e.oid FROM pg_extension AS e WHERE e.extname = 'poll_tally')
CROSS JOIN LATERAL (SELECT o.ord, p.proargnames[o.ord], p.proargtypes[o.ord - 1] FROM generate_series(1, p.pronargs) AS o(ord))
                   AS a(ord, argument, type)
LEFT JOIN good AS g ON g.argument = a.argument
WHERE p.proargnames IS NOT NULL;

-- One call for each text argument and each form: the other arguments are good, or left to their defaults. Where the
-- event has a choice it has no votes, and the reverse; source coordinates come together; a batch names one poll or many.
CREATE TEMP TABLE call AS
SELECT a.name, a.argument, format('poll_tally.%I(%s)', a.name, string_agg(
           format('%I => %s', o.argument, CASE WHEN o.ord = a.ord THEN f.form
                                               WHEN o.argument = 'poll' AND a.argument = 'polls' THEN 'NULL'
                                               ELSE coalesce(o.value, v.value) END), ', ' ORDER BY o.ord)) AS call
FROM argument AS a
JOIN form AS f ON f.type = a.type
JOIN argument AS o ON o.function = a.function
LEFT JOIN (VALUES ('source_partition', '0'), ('source_offset', '7'), ('source_offsets', '''{7}''')) AS v(argument, value)
       ON v.argument = o.argument AND a.argument = 'source'
WHERE (o.ord = a.ord OR o.needed OR v.value IS NOT NULL
       OR o.argument IN ('poll', 'choice', 'principal', 'choices', 'principals', 'event_ids') AND a.name LIKE 'accept%')
  AND NOT (o.ord <> a.ord AND o.argument IN ('choice', 'choices') AND a.argument = 'votes')
  AND NOT (o.ord <> a.ord AND o.argument = 'source_partition' AND a.argument <> 'source' AND a.name LIKE 'accept%')
GROUP BY a.function, a.name, a.ord, a.argument, f.form;
INSERT INTO call
SELECT 'accept_json', 'body', format('poll_tally.accept_json(%s, ''bob'')', body)
FROM (VALUES ('''{"event_id":'' || to_jsonb($1)::text || '',"poll_id":"nasty","candidate_id":"a"}'''),
             ('''{"event_id":"nasty-2","poll_id":'' || to_jsonb($1)::text || '',"candidate_id":"a"}'''),
             ('''{"event_id":"nasty-2","poll_id":"nasty","candidate_id":'' || to_jsonb($1)::text || ''}'''),
             ('''{"event_id":"nasty-2","poll_id":"nasty","candidate_id":"a",'' || to_jsonb($1)::text || '':"x"}'''),
             ('''{"event_id":"'' || $1 || ''","poll_id":"nasty","candidate_id":"a"}'''),
             ('''{"event_id":"nasty-2","poll_id":"nasty","candidate_id":"a"}'' || $1'),
             ('$1 || ''{"event_id":"nasty-2","poll_id":"nasty","candidate_id":"a"}''')) AS v(body);
SELECT count(*) AS calls, count(DISTINCT name) AS functions FROM call;

CREATE TEMP TABLE result AS
SELECT c.name, c.argument, n.n, pg_temp.try(c.call, n.string) AS result FROM call AS c CROSS JOIN nasty AS n;
SELECT name, argument, string_agg(result || ' ' || times, ', ' ORDER BY result) AS results
FROM (SELECT name, argument, result, count(*) AS times FROM result GROUP BY 1, 2, 3) AS r
GROUP BY name, argument ORDER BY name COLLATE "C", argument COLLATE "C";
SELECT count(*) AS calls, count(*) FILTER (WHERE result LIKE 'XX%') AS internal_errors FROM result;
-- Identifiers that are taken are those of the rule, and no other.
SELECT count(*) AS wrong FROM result AS r JOIN nasty AS n USING (n)
WHERE r.name = 'accept_event' AND r.argument = 'event_id'
  AND (r.result = 'accepted') IS DISTINCT FROM coalesce(n.string ~ '^[!#-[\]-~]{1,64}$', false);

-- Votes: no object, no integers, fractions, huge counts, huge and deep documents.
SELECT v.votes, r.outcome, r.detail
FROM (VALUES ('{}'), ('[]'), ('1'), ('"a"'), ('null'), ('true'), ('[{"a": 1}]'), ('{"a": 1.5}'), ('{"a": 0.1}'), ('{"a": 1.0}'),
             ('{"a": 1e0}'), ('{"a": 10e-1}'), ('{"a": 1e-1}'), ('{"a": -1}'), ('{"a": 0}'), ('{"a": 0, "b": 0}'), ('{"a": 1, "b": 0}'),
             ('{"a": 9223372036854775807}'), ('{"a": 9223372036854775808}'), ('{"a": -9223372036854775808}'),
             ('{"a": -9223372036854775809}'), ('{"a": 1e18}'), ('{"a": 1e19}'), ('{"a": 1e400}'), ('{"a": 1e-400}'),
             ('{"a": 1.00000000000000000000000000000000000001}'), ('{"a": "1"}'), ('{"a": true}'), ('{"a": null}'), ('{"a": []}'),
             ('{"a": {"b": 1}}'), ('{"": 1}'), ('{" ": 1}'), ('{"\"": 1}'), ('{"\\": 1}'), ('{"\u00e9": 1}'), ('{"\u0001": 1}'),
             ('{"a": 1, "a": 2}'), ('{"a": 1, "b": 1, "c": 1}')) AS v(votes),
     LATERAL accept_event('nasty', 'nasty-4', principal => 'nobody', votes => v.votes::jsonb) AS r;
CREATE TEMP TABLE huge (label text, votes jsonb);
INSERT INTO huge
SELECT 'a number of 100,000 digits', ('{"a": ' || repeat('9', 100000) || '}')::jsonb
UNION ALL SELECT 'a fraction of 16,000 digits', ('{"a": 0.' || repeat('9', 16000) || '}')::jsonb
UNION ALL SELECT '1 and 16,000 zeros behind the point', ('{"a": 1.' || repeat('0', 16000) || '}')::jsonb
UNION ALL SELECT 'a key of 1 MB', jsonb_build_object(repeat('k', 1048576), 1)
UNION ALL SELECT '1,000 choices', (SELECT jsonb_object_agg('k' || g, 1) FROM generate_series(1, 1000) AS g)
UNION ALL SELECT '1,001 choices', (SELECT jsonb_object_agg('k' || g, 1) FROM generate_series(1, 1001) AS g)
UNION ALL SELECT '200,000 choices', (SELECT jsonb_object_agg('k' || g, 1) FROM generate_series(1, 200000) AS g)
UNION ALL SELECT '200,000 zeros', (SELECT jsonb_object_agg('k' || g, 0) FROM generate_series(1, 200000) AS g)
UNION ALL SELECT 'an array of 1,000,000', (SELECT jsonb_agg(g) FROM generate_series(1, 1000000) AS g)
UNION ALL SELECT '1,000 deep', ('{"a": ' || repeat('[', 1000) || repeat(']', 1000) || '}')::jsonb;
SELECT create_counter('nasty-counter');
SELECT h.label, f.outcome AS in_a_poll, f.detail, c.outcome AS in_a_counter, c.detail
FROM huge AS h, LATERAL accept_event('nasty', replace('poll-' || h.label, ' ', '-'), principal => 'ann', votes => h.votes) AS f,
     LATERAL accept_event('nasty-counter', replace('counter-' || h.label, ' ', '-'), votes => h.votes) AS c;

-- Bodies of accept_json.
-- What the server's parser has to say is its own.
CREATE FUNCTION pg_temp.body(body text) RETURNS TABLE (outcome text, event_id text, detail text) LANGUAGE sql AS
    $$ SELECT r.outcome, r.event_id, regexp_replace(r.detail, '(no JSON): .*', '\1')
       FROM poll_tally.accept_json(body, 'nobody') AS r $$;
-- (psql's majors disagree about the width of an invisible character)
SELECT replace(v.body, chr(65279), '<U+FEFF>') AS body, r.*
FROM (VALUES (NULL), (''), (' '), ('null'), ('1'), ('"a"'), ('[]'), ('{}'), ('{"event_id":"n"}'), ('{"event_id":"n","poll_id":"nasty"}'),
             ('{"event_id":"n","poll_id":"nasty","candidate_id":"a"}'), (E' \t\r\n{"event_id" : "n" ,\n"candidate_id":"a","poll_id":"nasty"} '),
             ('{"event_id":"n","poll_id":"nasty","candidate_id":"a"} {}'), ('{"event_id":"n","poll_id":"nasty","candidate_id":"a"},'),
             ('{"event_id":"n","poll_id":"nasty","candidate_id":"a",}'), ('{"event_id":"n","poll_id":"nasty","candidate_id":1}'),
             ('{"event_id":"n","poll_id":"nasty","candidate_id":null}'), ('{"event_id":"n","poll_id":"nasty","candidate_id":true}'),
             ('{"event_id":"n","poll_id":"nasty","candidate_id":["a"]}'), ('{"event_id":"n","poll_id":"nasty","candidate_id":{"a":"a"}}'),
             ('{"event_id":"n","event_id":"n","poll_id":"nasty","candidate_id":"a"}'),
             ('{"event_id":"n","poll_id":"nasty","candidate_id":"a","principal":"ann"}'), ('{"Event_id":"n","poll_id":"nasty","candidate_id":"a"}'),
             ('{"event_id":"n","poll_id":"nasty","candidate_id":"a","":""}'), ('[{"event_id":"n","poll_id":"nasty","candidate_id":"a"}]'),
             ('{"event\u005fid":"\u006e","poll_id":"n\u0061sty","candidate_id":"\u0061"}'), ('{"event_id":"n","poll_id":"nasty","candidate_id":"\u0000"}'),
             ('{"event_id":"n","poll_id":"nasty","candidate_id":"\ud83d\ude00"}'),
             ('{"event_id":"n","poll_id":"nasty","candidate_id":"\ud83d"}'), ('{"event_id":"n","poll_id":"nasty","candidate_id":"\uZZZZ"}'),
             ('{"event_id":"n","poll_id":"nasty","candidate_id":"\u00"}'), ('{"event_id":"n","poll_id":"nasty","candidate_id":"\q"}'),
             ('{"event_id":"n","poll_id":"nasty","candidate_id":"\"a"}'), ('{"event_id":"n","poll_id":"nasty","candidate_id":"\\"}'),
             ('{"event_id":"n","poll_id":"nasty","candidate_id":"a b"}'), ('{"event_id":"","poll_id":"nasty","candidate_id":"a"}'),
             (E'{"event_id":"n","poll_id":"nasty","candidate_id":"a\u0001"}'), ('{event_id:"n","poll_id":"nasty","candidate_id":"a"}'),
             ('{''event_id'':"n","poll_id":"nasty","candidate_id":"a"}'), ('{"event_id":"n","poll_id":"nasty","candidate_id":"a"'),
             ('{"event_id":"n","poll_id":"nasty","candidate_id":"a}'), ('/**/{"event_id":"n","poll_id":"nasty","candidate_id":"a"}'),
             (chr(65279) || '{"event_id":"n","poll_id":"nasty","candidate_id":"a"}'), ('\'), ('"\'), ('{"\'), ('{"event_id":"\u')) AS v(body),
     LATERAL pg_temp.body(v.body) AS r;
-- its size is looked at first, in bytes
SELECT v.label, r.*
FROM (VALUES ('4096 bytes', '{"event_id":"n","poll_id":"nasty","candidate_id":"a"}' || repeat(' ', 4096 - 53)),
             ('4097 bytes', '{"event_id":"n","poll_id":"nasty","candidate_id":"a"}' || repeat(' ', 4097 - 53)),
             ('2,100 characters in 4,104 bytes', repeat(chr(233), 2052)),
             ('1 MB', repeat('{"event_id":', 87381)), ('64 MB', repeat('[', 67108864))) AS v(label, body), LATERAL pg_temp.body(v.body) AS r;
SET poll_tally.max_body = 1048576;
SELECT v.label, r.outcome, r.event_id, left(r.detail, 60) AS detail
FROM (VALUES ('500,000 deep', repeat('[', 500000)), ('150,000 objects deep', repeat('{"a":', 150000)), ('1 MB of one string', '"' || repeat('a', 1048000) || '"'),
             ('1 MB of backslashes', '{"event_id":"' || repeat('\\', 500000) || '","poll_id":"nasty","candidate_id":"a"}'),
             ('100,000 members', '{' || repeat('"event_id":"n",', 70000) || '"poll_id":"nasty","candidate_id":"a"}'),
             ('1 MB that is right but for its length', '{"event_id":"' || repeat('n', 1048000) || '","poll_id":"nasty","candidate_id":"a"}')) AS v(label, body),
     LATERAL pg_temp.body(v.body) AS r;
RESET poll_tally.max_body;

-- Huge arrays, and arrays of shapes that nobody expects.
SELECT v.label, pg_temp.try(v.call, NULL) AS result
FROM (VALUES
    ('100,000 choices', 'poll_tally.create_poll(''nasty-wide'', ARRAY(SELECT ''k'' || g FROM generate_series(1, 100000) AS g))'),
    ('100,000 times one choice', 'poll_tally.create_poll(''nasty-wide'', array_fill(''k''::text, ARRAY[100000]))'),
    ('100,000 NULL choices', 'poll_tally.create_poll(''nasty-wide'', array_fill(NULL::text, ARRAY[100000]))'),
    ('choices of three dimensions', 'poll_tally.create_poll(''nasty-wide'', array_fill(''k''::text, ARRAY[3, 3, 3]))'),
    ('choices from index -5 on', 'poll_tally.create_poll(''nasty-wide'', ''[-5:-4]={a,b}'')'),
    ('100,000 principals', 'poll_tally.set_eligible(''nasty'', ARRAY(SELECT ''p'' || g FROM generate_series(1, 100000) AS g))'),
    ('100,000 times one principal', 'poll_tally.set_eligible(''nasty'', array_fill(''p''::text, ARRAY[100000]))'),
    ('principals of two dimensions', 'poll_tally.set_eligible(''nasty'', ''{{p,q},{r,s}}'')'),
    ('no principals', 'poll_tally.set_eligible(''nasty'', ''{}'')'),
    ('100,000 choices asked for', 'poll_tally.results_of(''nasty'', array_fill(''a''::text, ARRAY[100000]))'),
    ('choices asked for in two dimensions', 'poll_tally.results_of(''nasty'', ''{{a,b},{c,d}}'')'),
    ('1,000,000 counts of one choice', 'poll_tally.make_tally(array_fill(''a''::text, ARRAY[1000000]), array_fill(1::bigint, ARRAY[1000000]))'),
    ('unequal arrays', 'poll_tally.make_tally(''{a}'', ''{1,2}'')'),
    ('tally of NULLs', 'poll_tally.make_tally(''{NULL}'', ''{NULL}'')'),
    ('frontier of 100,000 lanes', 'poll_tally.includes(array_fill(1::bigint, ARRAY[100000]), ''3/1'')'),
    ('frontier of two dimensions', 'poll_tally.includes(''{{1,2},{3,4}}'', ''1/1'')'),
    ('frontier of NULLs', 'poll_tally.includes(''{NULL,NULL}'', ''1/1'')')) AS v(label, call);

-- An escape that the database's encoding has no character for.
SELECT :'DBNAME' AS database \gset
CREATE DATABASE nasty_latin2 ENCODING 'LATIN2' TEMPLATE template0 LOCALE 'C';
\c nasty_latin2
CREATE EXTENSION poll_tally;
SELECT outcome FROM (VALUES ('\u00f0'), ('\u00e9'), ('\u0153'), ('\ud83d\ude00')) AS v(escape),
     LATERAL poll_tally.accept_json('{"event_id":"n","poll_id":"nasty","candidate_id":"' || v.escape || '"}');
\c :database
DROP DATABASE nasty_latin2;
SET search_path = poll_tally, public;

-- Nothing was left behind.
SELECT count(*) AS events FROM events WHERE poll = 'nasty';
SELECT check_name, ok FROM verify_poll('nasty') UNION ALL SELECT check_name, ok FROM verify_poll('nasty-counter');
SELECT count(*) AS polls FROM polls WHERE poll LIKE 'nasty%';

\c :home
DROP DATABASE regress_poll_tally_nasty;
