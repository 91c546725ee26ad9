-- The limit: one prepared INSERT. Positions grow within a client, as ours do within a lane; the votes are a constant.
\set poll random(1, :polls)
\set seq :seq + 1
\set position (:slot << 50) + (:client_id << 40) + :seq
INSERT INTO bare.ledger (poll_id, "position", event_id, votes)
VALUES (:poll, :position, gen_random_uuid()::text, '{"0": 1}');
