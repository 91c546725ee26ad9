-- The extension at work; psql stops at the first error.
CREATE EXTENSION poll_tally;
SELECT * FROM poll_tally.version();
SELECT poll_tally.create_poll('smoke', ARRAY['a', 'b'], publish_every => '100 milliseconds');
SELECT outcome FROM poll_tally.accept_event('smoke', 'event-1', 'a', 'ann');
SELECT outcome FROM poll_tally.accept_event('smoke', 'event-1', 'a', 'ann');
SELECT outcome FROM poll_tally.accept_event('smoke', 'event-1', 'b', 'ann');
DO $$
BEGIN
    ASSERT (SELECT array_agg(r.count ORDER BY r.choice) FROM poll_tally.results AS r WHERE r.poll = 'smoke')
        = ARRAY[1, 0]::bigint[], 'the event counts once';
    ASSERT (SELECT bool_and(v.ok) FROM poll_tally.verify_poll('smoke') AS v), 'the poll holds together';
END $$;
