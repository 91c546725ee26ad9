-- Above READ COMMITTED, what would have to read a mix of old and new raises 25001; voting and reading do not.
DO $$ BEGIN PERFORM poll_tally.create_poll('level', '{a,b}'); END $$;

BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT * FROM no_plan();
SELECT throws_ok('SELECT * FROM poll_tally.' || f || '(''level'')', '25001', NULL, 'repeatable read: ' || f)
FROM unnest(ARRAY['verify_poll', 'publish', 'close_poll', 'rebuild_tallies']) AS f;
SELECT is((SELECT outcome::text FROM poll_tally.accept_event('level', 'level-1', 'a', 'p')), 'accepted', 'a vote is accepted');
SELECT is((SELECT sum(count)::int FROM poll_tally.results WHERE poll = 'level'), 1, 'and seen');
SELECT is((SELECT status FROM poll_tally.event_status('level-1')), 'accepted', 'by its status too');
SELECT * FROM finish();
ROLLBACK;

DO $$
BEGIN
    PERFORM poll_tally.close_poll('level');
    PERFORM poll_tally.drop_poll('level');
END
$$;
