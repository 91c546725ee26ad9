-- The identical repeat of one of :rows events that are in the ledger.
\set event_id random(1000000000000000001, 1000000000000000000 + :rows)
SELECT outcome, "position", attempt, accepted_at FROM poll_tally.accept_event('1', :event_id, '0');
