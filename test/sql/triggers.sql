-- The view inbox, and accept_rows as a statement trigger: what they accept, what they raise, and what a trigger that is
-- set up wrongly says. In a database of its own, since ids are
-- unique in a database.
\set home :DBNAME
CREATE DATABASE regress_poll_tally_triggers ENCODING 'UTF8' LOCALE 'C' TEMPLATE template0;
\c regress_poll_tally_triggers
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS poll_tally;
RESET client_min_messages;
SET search_path = public, poll_tally;

CREATE FUNCTION pg_temp.raised(statement text)
    RETURNS TABLE (state text, "constraint" text, message text, detail text, hint text)
    LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE statement;
    state := '00000';
    RETURN NEXT;
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, "constraint" = CONSTRAINT_NAME,
        message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
    RETURN NEXT;
END $$;
CREATE VIEW pg_temp.mine AS
  SELECT event_id, principal, attempt, votes, payload, source, source_partition AS part, source_offset AS "offset",
         occurred_at AT TIME ZONE 'UTC' AS occurred, position
    FROM events WHERE poll = 'trig' ORDER BY lane(position), seq(position);

SELECT create_poll('trig', '{a,b}', publish_every => '1 day');
SELECT create_poll('trig-every', '{a,b}', counting => 'every', max_choices => 2, max_weight => 9, publish_every => '1 day');

-- inbox: INSERT, INSERT SELECT, COPY; a repeat passes, and stores nothing
INSERT INTO inbox (poll, event_id, choice, principal) VALUES ('trig', 'i1', 'a', 'ann'), ('trig', 'i2', 'b', 'bob');
INSERT INTO inbox VALUES ('trig', 'i3', NULL, 'cy', '{"a": 1}', '{"n": 1}', 'topic', 1, 7, '2020-01-01 00:00+00');
INSERT INTO inbox (poll, event_id, choice, principal) SELECT 'trig', 'i' || i, 'a', 'p' || i FROM generate_series(4, 6) AS i;
INSERT INTO inbox (poll, event_id, choice, principal) VALUES ('trig', 'i1', 'a', 'ann') RETURNING event_id;
COPY inbox (poll, event_id, principal, choice) FROM stdin;
trig	i7	p7	a
trig	i2	bob	b
trig	i8	p8	b
\.
COPY inbox FROM stdin WITH (FORMAT csv);
trig,i9,,p9,"{""b"": 1}",null,topic,1,8,2020-01-01 00:00+00
\.
SELECT * FROM pg_temp.mine;
SELECT count(*) FROM inbox;

-- a refusal takes the whole statement with it
SELECT o.what, r.* FROM (VALUES
    ('conflict', $$VALUES ('trig', 'j1', 'a', 'jo'), ('trig', 'i1', 'b', 'ann')$$),
    ('already_responded', $$VALUES ('trig', 'j1', 'a', 'jo'), ('trig', 'j2', 'b', 'ann')$$),
    ('unknown_poll', $$VALUES ('trig', 'j1', 'a', 'jo'), ('nowhere', 'j2', 'b', 'ann')$$),
    ('unknown_choice', $$VALUES ('trig', 'j1', 'a', 'jo'), ('trig', 'j2', 'x', 'jim')$$),
    ('invalid', $$VALUES ('trig', 'j1', 'a', 'jo'), ('trig', 'j 2', 'a', 'jim')$$),
    ('invalid', $$VALUES ('trig', 'j1', 'a', 'jo'), (NULL, 'j2', 'a', 'jim')$$)) AS o (what, rows),
  pg_temp.raised('INSERT INTO poll_tally.inbox (poll, event_id, choice, principal) ' || o.rows) AS r;
SELECT * FROM pg_temp.raised($$INSERT INTO poll_tally.inbox (poll, event_id, choice, principal, source, source_partition, source_offset)
                               VALUES ('trig', 'j1', 'a', 'jo', 'topic', 1, 7)$$);
COPY inbox (poll, event_id, principal, choice) FROM stdin;
trig	j1	jo	a
trig	j2	ann	a
\.
SELECT count(*) FROM events WHERE event_id LIKE 'j_';
-- the view takes nothing else
UPDATE inbox SET poll = 'trig';
DELETE FROM inbox;
BEGIN READ ONLY;
INSERT INTO inbox (poll, event_id, choice, principal) VALUES ('trig', 'j1', 'a', 'jo');
ROLLBACK;

-- accept_rows: columns of many types, constants, a dropped column, a generated one
CREATE DOMAIN slug AS varchar(20) CHECK (VALUE <> '');
CREATE TYPE flavour AS ENUM ('a', 'b');
CREATE TABLE answers (gone int, id uuid PRIMARY KEY, poll_slug slug, voter int NOT NULL, gone_too text, option flavour,
                      note jsonb, part smallint, off int, at timestamptz, topic name, twice int GENERATED ALWAYS AS (voter * 2) STORED);
ALTER TABLE answers DROP COLUMN gone, DROP COLUMN gone_too;
CREATE TRIGGER answers_count AFTER INSERT ON answers REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT
  EXECUTE FUNCTION accept_rows('poll=poll_slug', 'event_id=id', 'choice=option', 'principal=twice', 'payload=note', 'source=topic',
                               'source_partition=part', 'source_offset=off', 'occurred_at=at');
INSERT INTO answers VALUES
  ('00000000-0000-0000-0000-00000000000a', 'trig', 11, 'a', '{"n": 2}', 1, 20, '2020-01-02 00:00+00', 'answers'),
  ('00000000-0000-0000-0000-00000000000b', 'trig', 12, 'b', NULL, NULL, NULL, NULL, NULL);
SELECT * FROM pg_temp.mine WHERE event_id LIKE '0%';
-- what is refused is not in the table either
SELECT * FROM pg_temp.raised($$INSERT INTO answers VALUES ('00000000-0000-0000-0000-00000000000c', 'trig', 13, 'a'),
                                                          ('00000000-0000-0000-0000-00000000000d', 'trig', 11, 'b')$$);
SELECT * FROM pg_temp.raised($$INSERT INTO answers VALUES ('00000000-0000-0000-0000-00000000000c', 'nowhere', 13, 'a')$$);
SELECT * FROM pg_temp.raised($$INSERT INTO answers VALUES ('00000000-0000-0000-0000-00000000000c', 'trig', 13, 'a', NULL, 1, 20, NULL, 'answers')$$);
SELECT count(*) FROM answers;
-- nothing inserted is nothing accepted
INSERT INTO answers (id, voter) SELECT id, voter FROM answers WHERE false;
-- ON CONFLICT DO NOTHING: only what was inserted
INSERT INTO answers (id, poll_slug, voter, option) VALUES ('00000000-0000-0000-0000-00000000000b', 'trig', 12, 'a'),
  ('00000000-0000-0000-0000-00000000000e', 'trig', 14, 'a') ON CONFLICT DO NOTHING;
SELECT event_id, votes, position FROM pg_temp.mine WHERE event_id LIKE '0%';

-- constants, also with a quote in them; and the fields of a plain table
CREATE TABLE clicks (n serial, id text, key text, weights jsonb);
CREATE TRIGGER clicks_count AFTER INSERT ON clicks REFERENCING NEW TABLE AS rows FOR EACH STATEMENT
  EXECUTE FUNCTION accept_rows('poll=''trig-every''', 'event_id=id', 'votes=weights', 'principal=''it''''s''', 'source=''clicks''',
                               'source_partition=''4''', 'source_offset=n');
INSERT INTO clicks (id, weights) VALUES ('c1', '{"a": 1}'), ('c2', '{"a": 2, "b": 3}');
SELECT event_id, principal, attempt, votes, source, source_partition, source_offset FROM events WHERE poll = 'trig-every' ORDER BY position;

-- in chunks of max_batch: each size around the chunk's, and a refusal in a later chunk undoes the earlier ones
SET poll_tally.max_batch = 3;
INSERT INTO clicks (id, weights) SELECT 'd' || n || '-' || i, '{"a": 1}' FROM generate_series(1, 7) AS n, generate_series(1, n) AS i;
SELECT count(*), count(DISTINCT lane(position)) AS lanes, sum(total(effect)) FROM events WHERE poll = 'trig-every' AND event_id LIKE 'd%';
DO $$
BEGIN
    FOR n IN 1..7 LOOP
        INSERT INTO clicks (id, weights) SELECT 'f' || n || '-' || i, '{"b": 1}' FROM generate_series(1, n) AS i;
    END LOOP;
END $$;
SELECT count(*), count(DISTINCT lane(position)) AS lanes, sum(total(effect)) FROM events WHERE poll = 'trig-every' AND event_id LIKE 'f%';
-- array order is insertion order
SELECT count(*) AS disorder FROM (SELECT source_offset < lag(source_offset) OVER (ORDER BY position) AS back FROM events
                                  WHERE poll = 'trig-every' AND source = 'clicks') AS o WHERE back;
SELECT state, detail FROM pg_temp.raised($$INSERT INTO clicks (id, weights)
    SELECT 'g' || i, CASE WHEN i = 8 THEN '{"x": 1}' ELSE '{"a": 1}' END::jsonb FROM generate_series(1, 9) AS i$$);
SELECT (SELECT count(*) FROM events WHERE event_id LIKE 'g_') AS events, (SELECT count(*) FROM clicks WHERE id LIKE 'g_') AS rows;
-- a repeat in a later chunk is a repeat
INSERT INTO clicks (id, weights) SELECT 'h' || i % 4, '{"a": 1}' FROM generate_series(0, 9) AS i;
SELECT (SELECT count(*) FROM events WHERE event_id LIKE 'h_') AS events, (SELECT count(*) FROM clicks WHERE id LIKE 'h_') AS rows;
RESET poll_tally.max_batch;
COPY clicks (id, weights) FROM stdin;
kk1	{"a": 1}
kk2	{"a": 1}
\.
SELECT count(*) FROM events WHERE event_id LIKE 'kk_';
SELECT choice, count FROM results WHERE poll = 'trig-every';
SELECT bool_and(ok) FROM verify_poll('trig-every');

-- a partitioned table: one batch a statement, whatever the partitions and the order of their columns
CREATE TABLE parted (id text, region text, option text, voter text) PARTITION BY LIST (region);
CREATE TABLE parted_north PARTITION OF parted FOR VALUES IN ('north');
CREATE TABLE parted_south (junk int, voter text, option text, region text, id text);
ALTER TABLE parted_south DROP COLUMN junk;
ALTER TABLE parted ATTACH PARTITION parted_south FOR VALUES IN ('south');
CREATE TRIGGER parted_count AFTER INSERT ON parted REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT
  EXECUTE FUNCTION accept_rows('poll=''trig''', 'event_id=id', 'choice=option', 'principal=voter');
INSERT INTO parted VALUES ('q1', 'south', 'a', 'quin'), ('q2', 'north', 'b', 'qua'), ('q3', 'south', 'b', 'que');
SELECT event_id, principal, votes FROM pg_temp.mine WHERE event_id LIKE 'q_' ORDER BY event_id;
SELECT state, "constraint", detail FROM pg_temp.raised($$INSERT INTO parted VALUES ('q4', 'north', 'a', 'qui'), ('q5', 'south', 'a', 'qua')$$);
SELECT count(*) FROM parted;

-- A trigger that is set up wrongly says so at the first statement, with its name and a hint, also where no row came.
CREATE TABLE wrong (id text, option text, voter text, weights json, body text, at timestamp, part bigint, off numeric, gone text);
ALTER TABLE wrong DROP COLUMN gone;
CREATE FUNCTION pg_temp.misfire(timing text, arguments text, statement text DEFAULT 'INSERT INTO wrong SELECT * FROM wrong WHERE false')
    RETURNS TABLE (state text, message text, detail text, hint text) LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('CREATE TRIGGER misfire %s EXECUTE FUNCTION poll_tally.accept_rows(%s)', timing, arguments);
    RETURN QUERY SELECT r.state, r.message, r.detail, r.hint FROM pg_temp.raised(statement) AS r;
    DROP TRIGGER misfire ON wrong;
END $$;
SELECT m.* FROM (VALUES
    ('AFTER INSERT ON wrong FOR EACH STATEMENT'), ('BEFORE INSERT ON wrong FOR EACH STATEMENT'),
    ('AFTER INSERT ON wrong REFERENCING NEW TABLE AS n FOR EACH ROW'), ('AFTER INSERT ON wrong FOR EACH ROW'),
    ('BEFORE INSERT ON wrong FOR EACH ROW')) AS t (timing),
  pg_temp.misfire(t.timing, $$'poll=''trig''', 'event_id=id', 'choice=option'$$, $$INSERT INTO wrong (id, option) VALUES ('y1', 'a')$$) AS m;
SELECT m.* FROM pg_temp.misfire('AFTER UPDATE ON wrong REFERENCING NEW TABLE AS n FOR EACH STATEMENT', $$'poll=''trig''', 'event_id=id', 'choice=option'$$,
                                $$UPDATE wrong SET id = id$$) AS m;
SELECT m.* FROM (VALUES
    ($$'poll=''trig''', 'event_id=ident', 'choice=option'$$), ($$'poll=trig', 'event_id=id', 'choice=option'$$),
    ($$'poll=''trig''', 'event_id=gone', 'choice=option'$$), ($$'poll=''trig''', 'event_id=ID', 'choice=option'$$),
    ($$'poll=''trig''', 'event_id=ctid', 'choice=option'$$),
    ($$'poll=''trig''', 'event_id=id', 'votes=weights'$$), ($$'poll=''trig''', 'event_id=id', 'choice=option', 'payload=body'$$),
    ($$'poll=''trig''', 'event_id=id', 'choice=option', 'occurred_at=at'$$),
    ($$'poll=''trig''', 'event_id=id', 'choice=option', 'source_partition=part'$$),
    ($$'poll=''trig''', 'event_id=id', 'choice=option', 'source_offset=off'$$),
    ($$'poll', 'event_id=id'$$), ($$'pol=''trig'''$$), ($$'=id'$$), ($$''$$), ($$'id=id'$$),
    ($$'poll=''trig''', 'event_id=id', 'choice=option', 'payload=''1'''$$),
    ($$'event_id=id', 'event_id=option'$$), ($$'poll=''trig''', 'poll=''trig'''$$),
    ($$'poll=''trig'$$), ($$'poll='''$$), ($$'poll=''tr''ig'''$$), ($$'poll=''trig'' '$$), ($$'poll='''''''$$)) AS t (arguments),
  pg_temp.misfire('AFTER INSERT ON wrong REFERENCING NEW TABLE AS n FOR EACH STATEMENT', t.arguments) AS m;
-- a constant that is no integer, and a field without which no event is valid: whatever is said, it names the trigger
SELECT t.arguments, m.state <> '00000' AS raised, m.message LIKE '%misfire%' AS named, m.hint <> '' AS hinted FROM (VALUES
    ($$'poll=''trig''', 'event_id=id', 'choice=option', 'source_partition=''x'''$$),
    ($$$$), ($$'event_id=id', 'choice=option'$$), ($$'poll=''trig''', 'choice=option'$$), ($$'poll=''trig''', 'event_id=id'$$)) AS t (arguments),
  pg_temp.misfire('AFTER INSERT ON wrong REFERENCING NEW TABLE AS n FOR EACH STATEMENT', t.arguments) AS m;
-- not as triggers
SELECT inbox_insert();
SELECT accept_rows();
CREATE TRIGGER misfire AFTER INSERT ON wrong FOR EACH ROW EXECUTE FUNCTION inbox_insert();
INSERT INTO wrong (id) VALUES ('y1');

SELECT bool_and(v.ok) FROM (VALUES ('trig'), ('trig-every')) AS p (name), verify_poll(p.name) AS v;
DROP TABLE answers, clicks, parted, wrong;
DROP DOMAIN slug;
DROP TYPE flavour;

\c :home
DROP DATABASE regress_poll_tally_triggers;
