-- The limit of a retry: a prepared SELECT of such a row by its id. It compares nothing.
\set event_id random(1000000000000000001, 1000000000000000000 + :rows)
SELECT poll_id, "position", attempt, accepted_at FROM bare.ledger WHERE event_id = :event_id;
