-- Shows: the first batch of a session trusts its events to be new; whatever of them is not is judged as ever. And rows
-- reach whatever indexes somebody has added to the ledger. In a database of its own, since ids are unique in a database.
\set home :DBNAME
CREATE DATABASE regress_poll_tally_trust ENCODING 'UTF8' LOCALE 'C' TEMPLATE template0;
\c regress_poll_tally_trust
CREATE EXTENSION poll_tally;
SELECT poll_tally.create_poll('once', '{a,b}');
SELECT poll_tally.create_poll('latest', '{a,b}', counting => 'latest');
SELECT poll_tally.create_poll('every', '{a,b}', counting => 'every');
SELECT outcome FROM poll_tally.accept_event('once', 'known', 'a', principal => 'ann');
SELECT outcome FROM poll_tally.accept_event('latest', 'current', 'a', principal => 'ann');
SELECT outcome FROM poll_tally.accept_event('every', 'at-7', 'a', source => 's', source_partition => 0, source_offset => 7);
SELECT outcome FROM poll_tally.accept_event('every', 'taken-back', 'a');
SELECT outcome FROM poll_tally.retract_event('every', 'taken-back', 'retraction-1');

-- each kind of repeat, in the first batch of a session
\c -
SELECT ord, outcome, event_id, position, differs, detail
FROM poll_tally.accept_events('once', '{n-1,known,n-2}', '{a,a,b}', '{p-1,ann,p-2}');
\c -
SELECT ord, outcome, event_id, position, differs, detail
FROM poll_tally.accept_events('once', '{n-3,known,n-4}', '{a,b,b}', '{p-3,ann,p-4}');
\c -
SELECT ord, outcome, event_id, position, detail
FROM poll_tally.accept_events('once', '{n-5,n-6,n-7}', '{a,b,b}', '{p-5,ann,p-5}');
\c -
SELECT ord, outcome, event_id, position, detail
FROM poll_tally.accept_events('latest', '{l-1,l-2,l-3}', '{b,b,a}', '{ann,bob,bob}');
\c -
SELECT ord, outcome, event_id, position, detail
FROM poll_tally.accept_events('every', '{at-7,at-8,at-9}', '{a,b,b}', source => 's', source_partition => 0,
                              source_offsets => '{7,7,9}');
\c -
SELECT ord, outcome, event_id, position, differs, detail
FROM poll_tally.accept_events('every', '{taken-back,retraction-1,n-8}', '{a,b,b}');
\c -
SELECT ord, outcome, event_id, position, differs
FROM poll_tally.accept_events('every', '{n-9,n-9,n-9}', '{a,a,b}');
\c -
SELECT ord, outcome, event_id
FROM poll_tally.accept_events('every', '{n-10,n-11}', '{a,nobody}');

-- a refusal rests on the ledger, also where an earlier reason is a repeat
\c -
SELECT ord, outcome, event_id
FROM poll_tally.accept_events(NULL, '{known,n-12}', '{a,a}', '{ann,ann}', polls => '{once,no-such-poll}');
\c -
SELECT ord, outcome, detail FROM poll_tally.accept_events('every', '{n-13}', '{nobody}', source => 's',
                                                          source_partition => 0, source_offsets => '{7}');

-- all or nothing
\c -
SELECT * FROM poll_tally.accept_events('once', '{n-14,n-15}', '{a,b}', '{p-14,ann}', all_or_nothing => true);
SELECT status FROM poll_tally.event_status('n-14');

-- repeats of this very transaction
\c -
BEGIN;
SELECT ord, outcome FROM poll_tally.accept_events('once', '{n-16,n-17}', '{a,b}', '{p-16,p-17}');
SELECT ord, outcome, detail FROM poll_tally.accept_events('once', '{n-16,n-18,n-19}', '{a,b,b}', '{p-16,p-17,p-19}');
COMMIT;

-- a session that has met a repeat looks everything up for a while, and is right all the same
SELECT n, outcome, count(*)
FROM generate_series(1, 20) AS n,
    LATERAL poll_tally.accept_events('every', ARRAY['w-' || n, 'w-' || n - 1], '{a,a}') AS a
GROUP BY n, outcome HAVING count(*) <> 1 ORDER BY n, outcome;

-- more than what is written at once
SELECT outcome, count(*), min(ord), max(ord)
FROM poll_tally.accept_events('every', ARRAY(SELECT 'm-' || n % 9000 FROM generate_series(0, 9999) AS n),
                              ARRAY(SELECT 'a' FROM generate_series(0, 9999)),
                              payloads => ARRAY(SELECT to_jsonb(repeat('x', 2000)) FROM generate_series(0, 9999)))
GROUP BY outcome ORDER BY outcome;

-- indexes that somebody has added
CREATE INDEX by_choice ON poll_tally.ledger ((votes::text));
CREATE INDEX by_hash ON poll_tally.ledger USING hash (event_id);
CREATE INDEX by_reason ON poll_tally.ledger (reason) WHERE reason IS NOT NULL;
\c -
SELECT outcome, count(*) FROM poll_tally.accept_events('every', '{i-1,i-2}', '{a,b}') GROUP BY outcome;
SELECT outcome FROM poll_tally.accept_event('every', 'i-3', 'b');
ALTER TABLE poll_tally.ledger ADD CONSTRAINT whole EXCLUDE USING hash (event_id WITH =);
SELECT outcome, count(*) FROM poll_tally.accept_events('every', '{i-4,i-8}', '{a,b}') GROUP BY outcome ORDER BY outcome;
SELECT outcome FROM poll_tally.accept_event('every', 'i-5', 'b');
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SELECT count(*) FROM poll_tally.ledger WHERE event_id = 'i-4';
SELECT count(*) FROM poll_tally.ledger WHERE votes::text = '{"b": 1}' AND event_id LIKE 'i-%';
RESET enable_seqscan;
RESET enable_bitmapscan;
ALTER TABLE poll_tally.ledger DROP CONSTRAINT whole;
DROP INDEX poll_tally.by_choice, poll_tally.by_hash, poll_tally.by_reason;
SELECT outcome, count(*) FROM poll_tally.accept_events('every', '{i-6,i-7}', '{a,b}') GROUP BY outcome;

-- and everything holds together
SELECT poll, bool_and(ok) FROM poll_tally.polls, poll_tally.verify_poll(poll) GROUP BY poll ORDER BY poll;
SELECT count(*) FROM poll_tally.ledger WHERE event_id LIKE 'm-%' HAVING count(*) = 9000;
\c :home
DROP DATABASE regress_poll_tally_trust;
