-- What an exporter and a scheduled verification need in a database that has poll_tally.
--
--     psql -X -v ON_ERROR_STOP=1 -d DATABASE -f watch.sql
--
-- Run it once in each database, as a superuser. Running it again does no harm: it keeps what was verified. It makes
--
--     role poll_watch      logs in for the exporter and may call poll_watch.metrics(), nothing else
--     role poll_verify     logs in for the scheduled verification, with the rights of an auditor
--     poll_watch.verified  the last verification of each poll
--     poll_watch.verify()  verifies the polls, those first whose turn was longest ago
--     poll_watch.metrics() poll_tally.metrics and what was verified, with labels as columns
--
-- The functions' bodies are strings on purpose: so they do not depend on the extension's view, and are in the way
-- neither of ALTER EXTENSION UPDATE nor of DROP EXTENSION.
\set QUIET on
SET client_min_messages = warning;

SELECT format('CREATE ROLE %I LOGIN', r.name)
  FROM (VALUES ('poll_watch'), ('poll_verify')) AS r (name)
 WHERE NOT EXISTS (SELECT FROM pg_roles AS p WHERE p.rolname = r.name) \gexec

BEGIN;

\o /dev/null
SELECT poll_tally.grant_auditor('poll_verify');
\o

CREATE SCHEMA IF NOT EXISTS poll_watch;

CREATE TABLE IF NOT EXISTS poll_watch.verified (
    poll text COLLATE "C" PRIMARY KEY,
    verified_at timestamptz NOT NULL,
    took interval NOT NULL,
    mismatches integer NOT NULL,
    failed jsonb NOT NULL
);
COMMENT ON TABLE poll_watch.verified
    IS 'the last verify_poll of each poll: how many of its checks failed, and what they said';

-- A transaction a poll, so that no snapshot is held for longer than one poll takes. A poll that is dropped meanwhile is
-- passed over; any other error ends the run, and the age of what was verified tells.
CREATE OR REPLACE PROCEDURE poll_watch.verify(only_poll text DEFAULT NULL, budget interval DEFAULT '1 hour')
LANGUAGE plpgsql AS $$
DECLARE
    run_began CONSTANT timestamptz := clock_timestamp();
    poll_began timestamptz;
    name text;
BEGIN
    DELETE FROM poll_watch.verified AS v
     WHERE NOT EXISTS (SELECT FROM poll_tally.polls AS p WHERE p.poll = v.poll);
    COMMIT;
    FOR name IN
        SELECT p.poll
          FROM poll_tally.polls AS p
          LEFT JOIN poll_watch.verified AS v ON v.poll = p.poll
         WHERE verify.only_poll IS NULL OR p.poll = verify.only_poll
         ORDER BY v.verified_at NULLS FIRST, p.poll
    LOOP
        poll_began := clock_timestamp();
        EXIT WHEN poll_began > run_began + verify.budget;
        BEGIN
            INSERT INTO poll_watch.verified AS v (poll, verified_at, took, mismatches, failed)
            SELECT name, clock_timestamp(), clock_timestamp() - poll_began, count(*) FILTER (WHERE c.ok IS NOT TRUE),
                   coalesce(jsonb_agg(jsonb_build_object('check', c.check_name, 'expected', left(c.expected, 1000),
                                                         'actual', left(c.actual, 1000)))
                                FILTER (WHERE c.ok IS NOT TRUE), '[]')
              FROM poll_tally.verify_poll(name) AS c
            ON CONFLICT (poll) DO UPDATE
                SET verified_at = excluded.verified_at, took = excluded.took, mismatches = excluded.mismatches,
                    failed = excluded.failed;
        EXCEPTION WHEN no_data_found THEN
            NULL;
        END;
        COMMIT;
    END LOOP;
END
$$;
COMMENT ON PROCEDURE poll_watch.verify(text, interval)
    IS 'verify the polls and note the results; starts with no further poll once the budget is used up';

-- An exporter's labels are columns, and '' is no label. The workers of all databases are in shared memory: each
-- database shows its own publisher, and the launcher.
CREATE OR REPLACE FUNCTION poll_watch.metrics(OUT metric text, OUT database text, OUT poll text, OUT outcome text,
    OUT kind text, OUT lane text, OUT value double precision)
    RETURNS SETOF record LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT m.name, current_database()::text, coalesce(m.labels ->> 'poll', ''), coalesce(m.labels ->> 'outcome', ''),
           coalesce(m.labels ->> 'kind', ''), coalesce(m.labels ->> 'lane', ''), m.value
      FROM poll_tally.metrics AS m
     WHERE m.value IS NOT NULL
       AND coalesce(m.labels ->> 'database', '') IN ('', current_database())
    UNION ALL
    SELECT 'poll_watch_mismatches', current_database(), v.poll, '', '', '', v.mismatches
      FROM poll_watch.verified AS v
     WHERE EXISTS (SELECT FROM poll_tally.polls AS p WHERE p.poll = v.poll)
    UNION ALL
    SELECT 'poll_watch_verified_age_seconds', current_database(), '', '', '', '',
           EXTRACT(epoch FROM clock_timestamp() - max(v.verified_at))
      FROM poll_watch.verified AS v
    HAVING count(*) > 0
$$;
COMMENT ON FUNCTION poll_watch.metrics()
    IS 'poll_tally.metrics, and what was verified, with labels as columns; '''' where a metric does not have the label';

REVOKE ALL ON FUNCTION poll_watch.metrics() FROM PUBLIC;
REVOKE ALL ON PROCEDURE poll_watch.verify(text, interval) FROM PUBLIC;
GRANT USAGE ON SCHEMA poll_watch TO poll_watch, poll_verify;
GRANT EXECUTE ON FUNCTION poll_watch.metrics() TO poll_watch;
GRANT EXECUTE ON PROCEDURE poll_watch.verify(text, interval) TO poll_verify;
GRANT SELECT, INSERT, UPDATE, DELETE ON poll_watch.verified TO poll_verify;

COMMIT;

RESET client_min_messages;
\set QUIET off
