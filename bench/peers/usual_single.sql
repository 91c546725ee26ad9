-- The usual SQL in one statement: the event if its id is new, and then the count. What a repeat holds is not compared.
\set poll random(1, :polls)
\set choice random(0, :last)
WITH new AS (
    INSERT INTO usual.event (event_id, poll, choice) VALUES (gen_random_uuid()::text, :poll, :choice)
    ON CONFLICT (event_id) DO NOTHING
    RETURNING poll, choice)
INSERT INTO usual.count AS c (poll, choice, count) SELECT poll, choice, 1 FROM new
ON CONFLICT (poll, choice) DO UPDATE SET count = c.count + 1
RETURNING 'accepted';
