-- The usual SQL with a limit on the count. The constraint of usual.count refuses the event together with its count; an
-- upsert would not do, since the event would stay.
\set poll random(1, :polls)
\set choice random(0, :last)
WITH new AS (
    INSERT INTO usual.event (event_id, poll, choice) VALUES (gen_random_uuid()::text, :poll, :choice)
    ON CONFLICT (event_id) DO NOTHING
    RETURNING poll, choice)
UPDATE usual.count AS c SET count = c.count + 1 FROM new
WHERE c.poll = new.poll AND c.choice = new.choice
RETURNING 'accepted';
