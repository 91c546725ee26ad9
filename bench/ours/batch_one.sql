-- A batch for one poll.
SELECT ord, outcome FROM poll_tally.accept_events(($2::text[])[1], $1::text[], $3::text[], payloads => $4::jsonb[])
