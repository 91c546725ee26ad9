-- The usual SQL for a batch, set by set: the new events, their counts, and a verdict on each, for which what is stored
-- is compared. Counts are moved in one order, so that two batches do not deadlock.
WITH input AS (
    SELECT i.* FROM unnest($1::text[], $2::text[], $3::text[], $4::jsonb[])
        WITH ORDINALITY AS i (event_id, poll, choice, payload, ord)),
first AS (
    SELECT DISTINCT ON (i.event_id) i.* FROM input AS i ORDER BY i.event_id, i.ord),
new AS (
    INSERT INTO usual.event (event_id, poll, choice, payload)
    SELECT f.event_id, f.poll, f.choice, f.payload FROM first AS f
    ON CONFLICT (event_id) DO NOTHING
    RETURNING event_id, poll, choice),
counted AS (
    INSERT INTO usual.count AS c (poll, choice, count)
    SELECT n.poll, n.choice, count(*) FROM new AS n GROUP BY n.poll, n.choice ORDER BY n.poll, n.choice
    ON CONFLICT (poll, choice) DO UPDATE SET count = c.count + excluded.count)
SELECT i.ord,
       CASE WHEN n.event_id IS NOT NULL AND f.ord = i.ord THEN 'accepted'
            WHEN (i.poll, i.choice) = (coalesce(e.poll, f.poll), coalesce(e.choice, f.choice))
                 AND i.payload IS NOT DISTINCT FROM CASE WHEN e.event_id IS NULL THEN f.payload ELSE e.payload END
            THEN 'duplicate'
            ELSE 'conflict' END AS verdict
FROM input AS i
JOIN first AS f ON f.event_id = i.event_id
LEFT JOIN new AS n ON n.event_id = i.event_id
LEFT JOIN LATERAL (  -- looked up only where the event is not new; OFFSET keeps the planner from looking up all
    SELECT o.* FROM usual.event AS o WHERE n.event_id IS NULL AND o.event_id = i.event_id OFFSET 0) AS e ON true
ORDER BY i.ord
