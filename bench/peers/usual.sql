-- The usual SQL: what an application without the extension would have. Ids are varchar and tables are tied by foreign
-- keys; counts are a row a choice, that the statement which inserts the event moves too.
--
-- At its best: the database's collation is C, and pages of counts have room for new versions of their rows.
-- It keeps no position, attempt, source or occurred_at, and has no rules; the second index stands for ours by poll and
-- position.

CREATE SCHEMA usual;

CREATE TABLE usual.poll (
    poll varchar(64) PRIMARY KEY,
    title text
);

CREATE TABLE usual.choice (
    poll varchar(64) NOT NULL REFERENCES usual.poll,
    choice varchar(64) NOT NULL,
    PRIMARY KEY (poll, choice)
);

CREATE TABLE usual.event (
    event_id varchar(64) PRIMARY KEY,
    poll varchar(64) NOT NULL,
    choice varchar(64) NOT NULL,
    principal varchar(64),
    payload jsonb,
    accepted_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    FOREIGN KEY (poll, choice) REFERENCES usual.choice
);
CREATE INDEX event_poll ON usual.event (poll, accepted_at);

CREATE TABLE usual.count (
    poll varchar(64) NOT NULL,
    choice varchar(64) NOT NULL,
    count bigint NOT NULL,
    seats bigint,
    PRIMARY KEY (poll, choice),
    FOREIGN KEY (poll, choice) REFERENCES usual.choice,
    CONSTRAINT seats_left CHECK (count <= seats)
) WITH (fillfactor = 40);
