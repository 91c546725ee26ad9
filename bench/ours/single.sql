-- One event, one transaction. :polls is how many polls there are, named 1, 2, 3 ..., and :last the last of
-- their choices 0, 1 ...
\set poll random(1, :polls)
\set choice random(0, :last)
SELECT outcome FROM poll_tally.accept_event(:poll, gen_random_uuid()::text, :choice);
