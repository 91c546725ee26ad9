-- The type event_position: text form, parts, order, hashing, binary form.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS poll_tally;
RESET client_min_messages;
SET search_path = poll_tally, public;
\set SHOW_CONTEXT never

-- text form, at both ends of the range
SELECT '0/0'::event_position, '3/1842'::event_position,
       '65535/281474976710655'::event_position;

-- lane and seq
SELECT p, lane(p), seq(p)
  FROM unnest('{0/1,3/1842,65535/281474976710655}'::event_position[]) AS p;

-- malformed: 22P02
\set VERBOSITY sqlstate
SELECT ''::event_position;
SELECT '1'::event_position;
SELECT '/'::event_position;
SELECT '1/'::event_position;
SELECT '/1'::event_position;
SELECT '1/2/3'::event_position;
SELECT '01/1'::event_position;
SELECT '1/01'::event_position;
SELECT '00/1'::event_position;
SELECT '-1/1'::event_position;
SELECT '1/+1'::event_position;
SELECT ' 1/1'::event_position;
SELECT '1/1 '::event_position;
SELECT '1 /1'::event_position;
SELECT '1.0/1'::event_position;
SELECT 'x/y'::event_position;
-- out of range: 22003
SELECT '65536/0'::event_position;
SELECT '0/281474976710656'::event_position;
SELECT '18446744073709551617/1'::event_position;
SELECT '1/18446744073709551617'::event_position;
\set VERBOSITY default
SELECT '1-2'::event_position;
SELECT '65536/0'::event_position;

-- order: by lane, then by seq, both as numbers and without sign
SELECT array_agg(p ORDER BY p) AS ascending, array_agg(p ORDER BY p DESC) AS descending
  FROM unnest('{40000/1,9/5,10/1,9/10,0/281474976710655}'::event_position[]) AS p;
SELECT a < b AS lt, a <= b AS le, a = b AS eq, a >= b AS ge, a > b AS gt, a <> b AS ne,
       position_compare(a, b) AS compare
  FROM (VALUES ('1/2'::event_position, '1/3'::event_position),
               ('1/3', '1/3'), ('2/1', '1/3'), ('65535/0', '0/1')) AS v(a, b);

-- equal positions hash alike; operator classes are complete
SELECT position_hash('3/1842') = position_hash('3/1842') AS hash,
       position_hash_extended('3/1842', 7) = position_hash_extended('3/1842', 7) AS extended,
       position_hash_extended('3/1842', 7) = position_hash_extended('3/1842', 8) AS other_seed,
       position_hash('3/1842') = position_hash('3/1843') AS other_position;
SELECT amname, opcname, amvalidate(c.oid)
  FROM pg_opclass AS c JOIN pg_am AS m ON m.oid = opcmethod
 WHERE opcintype = 'event_position'::regtype ORDER BY 1;

-- join, group, sort and index search agree
CREATE TEMP TABLE places AS
  SELECT i, ((i % 4) || '/' || i / 8)::event_position AS place FROM generate_series(0, 7999) AS i;
CREATE INDEX ON places (place);
CREATE INDEX ON places USING hash (place);
ANALYZE places;
SELECT count(DISTINCT place) FROM places;
SET enable_mergejoin = off; SET enable_nestloop = off;
SELECT count(*) FROM places AS a JOIN places AS b USING (place);
SET enable_mergejoin = on; SET enable_hashjoin = off;
SELECT count(*) FROM places AS a JOIN places AS b USING (place);
RESET enable_hashjoin; RESET enable_nestloop;
SET enable_seqscan = off; SET enable_bitmapscan = off;
EXPLAIN (COSTS OFF) SELECT i FROM places WHERE place >= '3/998' ORDER BY place;
SELECT i, place FROM places WHERE place >= '3/998' ORDER BY place, i;
RESET enable_seqscan; RESET enable_bitmapscan;

-- binary form: a round trip, and 8 bytes and no others
SELECT position_send('3/1842');
SELECT current_setting('data_directory') || '/position.bin' AS file \gset
COPY (SELECT place FROM places) TO :'file' (FORMAT binary);
CREATE TEMP TABLE copied (place event_position);
COPY copied FROM :'file' (FORMAT binary);
SELECT count(*) FROM (SELECT place FROM places EXCEPT ALL SELECT place FROM copied) AS missing;
\set VERBOSITY sqlstate
COPY (SELECT '\x0003'::bytea) TO :'file' (FORMAT binary);
COPY copied FROM :'file' (FORMAT binary);
COPY (SELECT '\x000300000000073200'::bytea) TO :'file' (FORMAT binary);
COPY copied FROM :'file' (FORMAT binary);
\set VERBOSITY default

-- NULL in, NULL out
SELECT lane(NULL), seq(NULL), NULL::event_position < '1/1' AS lt;
