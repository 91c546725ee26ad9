-- What the live page needs in a database that has poll_tally: a role that may send events and read what is published,
-- and two views with what the page shows of a poll besides its counts. A viewer may not read poll_tally.polls, since
-- its accepted_position is live. The page's role gets these views, which leave it out.
--
-- Run it as a superuser, as often as you like. Who lists fewer polls in live.polls serves fewer polls.

BEGIN;

DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = 'live_page') THEN
        CREATE ROLE live_page LOGIN;
    END IF;
END
$$;

SELECT poll_tally.grant_viewer('live_page'), poll_tally.grant_submitter('live_page');

CREATE SCHEMA IF NOT EXISTS live;

CREATE OR REPLACE VIEW live.polls WITH (security_barrier) AS
SELECT poll, title, counting, opens_at, closes_at, closed_at, hidden_until_close,
       -- The page sends one choice at 1. Whether a poll takes that.
       1 BETWEEN min_weight AND max_weight AND NOT open_choices AS takes_one_choice
FROM poll_tally.polls;
COMMENT ON VIEW live.polls IS 'what the live page shows of each poll';

CREATE OR REPLACE VIEW live.choices WITH (security_barrier) AS
SELECT poll, choice, label, ord FROM poll_tally.choices;
COMMENT ON VIEW live.choices IS 'the choices that the live page offers';

GRANT USAGE ON SCHEMA live TO live_page;
GRANT SELECT ON live.polls, live.choices TO live_page;

COMMIT;
