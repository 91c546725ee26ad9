-- A batch over many polls.
SELECT ord, outcome FROM poll_tally.accept_events(NULL, $1::text[], $3::text[], payloads => $4::jsonb[], polls => $2::text[])
