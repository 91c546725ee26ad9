-- As single.sql; ids begin with the time, as those of UUID version 7, and are behind all ids that begin with a digit.
\set poll random(1, :polls)
\set choice random(0, :last)
SELECT outcome FROM poll_tally.accept_event(:poll,
    't' || to_hex((extract(epoch FROM clock_timestamp()) * 1000000)::bigint) || '-' || left(gen_random_uuid()::text, 20), :choice);
