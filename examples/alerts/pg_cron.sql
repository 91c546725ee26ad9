-- Verifies the polls of a database every night, by pg_cron. Run it in the database in which pg_cron is installed, as a
-- superuser: psql -X -v database=DATABASE -f pg_cron.sql
SELECT cron.schedule_in_database('poll_verify of ' || :'database', '17 3 * * *', 'CALL poll_watch.verify(budget => ''1 hour'')',
                                 :'database', username => 'poll_verify');
