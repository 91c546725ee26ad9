-- The limit of a batch. It judges nothing, counts nothing and answers nothing.
COPY bare.ledger (poll_id, "position", event_id, votes, payload) FROM STDIN
