-- The worker publishes what was accepted.
DO $$
BEGIN
    FOR i IN 1 .. 1800 LOOP
        EXIT WHEN EXISTS (SELECT FROM poll_tally.snapshots AS s WHERE s.poll = 'smoke' AND s.included_position = 1);
        PERFORM pg_sleep(0.1);
    END LOOP;
    ASSERT (SELECT s.counts::text FROM poll_tally.snapshots AS s WHERE s.poll = 'smoke' ORDER BY s.revision DESC LIMIT 1)
        = '{"a": 1}', 'the worker published the poll';
END $$;
