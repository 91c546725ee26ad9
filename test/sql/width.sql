-- An entry takes no room for what it does not have: how many rows of each kind fit on a page of the ledger, written one
-- by one and as a batch; and what was not stored reads as it should. In a database of its own.
\set home :DBNAME
CREATE DATABASE regress_poll_tally_width ENCODING 'UTF8' LOCALE 'C' TEMPLATE template0;
\c regress_poll_tally_width
CREATE EXTENSION poll_tally;
SELECT poll_tally.create_poll('every', '{a,b}', counting => 'every', max_lanes => 1);
SELECT poll_tally.create_poll('latest', '{a,b}', counting => 'latest', max_lanes => 1);

-- Of the pages that hold rows of this prefix alone, the fullest.
CREATE FUNCTION pg_temp.rows_a_page(prefix text) RETURNS bigint LANGUAGE sql AS $$
    SELECT max(p.here) FROM (
        SELECT count(*) AS here FROM poll_tally.ledger AS l
        GROUP BY (l.ctid::text::point)[0] HAVING bool_and(l.event_id LIKE rows_a_page.prefix || '%')) AS p
$$;

SELECT count(*) FROM generate_series(1, 500) AS g, poll_tally.accept_event('every', 'plain-' || lpad(g::text, 20, '0'), 'a');
SELECT count(*) FROM poll_tally.accept_events('every', array(SELECT 'many-' || lpad(g::text, 21, '0') FROM generate_series(1, 500) AS g),
    array(SELECT 'a' FROM generate_series(1, 500)));
SELECT count(*) FROM generate_series(1, 500) AS g,
    poll_tally.accept_event('latest', 'known-' || lpad(g::text, 20, '0'), 'a', principal => 'voter-' || lpad(g::text, 20, '0'));
SELECT count(*) FROM generate_series(1, 500) AS g,
    poll_tally.accept_event('latest', 'again-' || lpad(g::text, 20, '0'), 'b', principal => 'voter-' || lpad(g::text, 20, '0'));
SELECT count(*) FROM generate_series(1, 500) AS g,
    poll_tally.accept_event('every', 'dated-' || lpad(g::text, 20, '0'), 'a', occurred_at => '2026-01-01 00:00+00');
SELECT k.prefix, pg_temp.rows_a_page(k.prefix) FROM unnest('{plain,many,known,again,dated}'::text[]) AS k (prefix);

-- The attempt is stored where a retraction has set it apart from the link of the chain.
SELECT outcome FROM poll_tally.retract_event('latest', 'again-' || lpad('1', 20, '0'), 'undo-1', 'a mistake');
SELECT outcome, attempt FROM poll_tally.accept_event('latest', 'third', 'a', principal => 'voter-' || lpad('1', 20, '0'));
SELECT event_id, kind, attempt, votes, effect FROM poll_tally.events WHERE principal = 'voter-' || lpad('1', 20, '0') ORDER BY "position";
SELECT event_id, attempt FROM poll_tally.events_after('latest', '{}', 2000) WHERE principal = 'voter-' || lpad('1', 20, '0');
SELECT l.event_id::text, l.link, l.attempt FROM poll_tally.ledger AS l WHERE l.principal = ('voter-' || lpad('1', 20, '0'))::poll_tally.ident ORDER BY l.link;
SELECT poll, bool_and(v.ok) FROM unnest('{every,latest}'::text[]) AS poll, poll_tally.verify_poll(poll) AS v GROUP BY poll ORDER BY poll;

\c :home
DROP DATABASE regress_poll_tally_width;
