-- The limit: a table with the columns and indexes of the ledger, whatever they are, into which rows are put and nothing
-- else is done. Identifiers are text without the check of their form, positions plain bigint, so that none of ours costs
-- it anything.
--
-- It judges nothing, knows no repeat but by an error, and counts nothing.

CREATE SCHEMA bare;

CREATE TABLE bare.ledger (LIKE poll_tally.ledger INCLUDING INDEXES INCLUDING STORAGE);

DO $$
DECLARE
    name text;
BEGIN
    FOR name IN SELECT a.attname FROM pg_attribute AS a
                WHERE a.attrelid = 'bare.ledger'::regclass AND a.atttypid = 'poll_tally.ident'::regtype
    LOOP
        EXECUTE format('ALTER TABLE bare.ledger ALTER COLUMN %I TYPE text COLLATE "C"', name);
    END LOOP;
END
$$;
ALTER TABLE bare.ledger ALTER COLUMN "position" TYPE bigint USING 0;
ALTER TABLE bare.ledger ALTER COLUMN accepted_at SET DEFAULT clock_timestamp();
