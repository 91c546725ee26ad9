-- Roles: PUBLIC has nothing; grant_submitter, grant_viewer, grant_auditor and grant_admin give what a role needs to do
-- its whole job, and no more; revoke_from takes it back; role names are quoted.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS poll_tally;
DROP ROLE IF EXISTS regress_pt_submitter, regress_pt_viewer, regress_pt_auditor, regress_pt_admin, regress_pt_nobody,
    "regress pt ""x"", 'ÿ'; DROP";
RESET client_min_messages;
CREATE ROLE regress_pt_submitter;
CREATE ROLE regress_pt_viewer;
CREATE ROLE regress_pt_auditor;
CREATE ROLE regress_pt_admin;
CREATE ROLE regress_pt_nobody;
CREATE ROLE "regress pt ""x"", 'ÿ'; DROP";

-- What each statement raises, one line a statement.
CREATE FUNCTION pg_temp.refused(VARIADIC statements text[]) RETURNS TABLE (statement text, state text) LANGUAGE plpgsql AS $$
BEGIN
    FOREACH statement IN ARRAY statements LOOP
        BEGIN
            EXECUTE statement;
            state := 'passed';
        EXCEPTION WHEN OTHERS THEN
            state := SQLSTATE;
        END;
        RETURN NEXT;
    END LOOP;
END $$;

SELECT poll_tally.create_poll('roles', '{a,b}', publish_every => '1 day');
SELECT poll_tally.create_poll('roles-hidden', '{a,b}', hidden_until_close => true, publish_every => '1 day');

-- PUBLIC, and so a role without grants, has no privilege on anything: schema, tables, views, sequences, functions
CREATE VIEW pg_temp.privilege AS
SELECT r.rolname, 'schema' AS kind, 'poll_tally' AS name
  FROM pg_roles AS r WHERE has_schema_privilege(r.oid, 'poll_tally', 'USAGE') OR has_schema_privilege(r.oid, 'poll_tally', 'CREATE')
UNION ALL
SELECT r.rolname, 'relation', c.relname
  FROM pg_roles AS r, pg_class AS c
 WHERE c.relnamespace = 'poll_tally'::regnamespace AND c.relkind IN ('r', 'v', 'm', 'p')
   AND (has_table_privilege(r.oid, c.oid, 'SELECT, INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER')
        OR has_any_column_privilege(r.oid, c.oid, 'SELECT, INSERT, UPDATE, REFERENCES'))
UNION ALL
SELECT r.rolname, 'sequence', c.relname
  FROM pg_roles AS r, pg_class AS c
 WHERE c.relnamespace = 'poll_tally'::regnamespace AND c.relkind = 'S' AND has_sequence_privilege(r.oid, c.oid, 'USAGE, SELECT, UPDATE')
UNION ALL
SELECT r.rolname, 'function', p.proname
  FROM pg_roles AS r, pg_proc AS p
 WHERE p.pronamespace = 'poll_tally'::regnamespace AND has_function_privilege(r.oid, p.oid, 'EXECUTE');
SELECT kind, name FROM pg_temp.privilege WHERE rolname = 'regress_pt_nobody';
SET ROLE regress_pt_nobody;
SELECT poll_tally.accept_event('roles', 'roles-0', 'a', 'ann');
SELECT * FROM poll_tally.published;
RESET ROLE;
-- with the schema alone, each function, view and table is refused by itself
GRANT USAGE ON SCHEMA poll_tally TO regress_pt_nobody;
SET ROLE regress_pt_nobody;
SELECT poll_tally.accept_event('roles', 'roles-0', 'a', 'ann');
SELECT * FROM poll_tally.published;
SELECT * FROM poll_tally.ledger;
SELECT poll_tally.grant_admin('regress_pt_nobody');
RESET ROLE;
REVOKE USAGE ON SCHEMA poll_tally FROM regress_pt_nobody;

SELECT poll_tally.grant_submitter('regress_pt_submitter');
SELECT poll_tally.grant_viewer('regress_pt_viewer');
SELECT poll_tally.grant_auditor('regress_pt_auditor');
SELECT poll_tally.grant_admin('regress_pt_admin');
-- nobody may touch a table, a sequence, or grant; S submitter, V viewer, A auditor, D admin
SELECT count(*) FROM pg_temp.privilege AS p, pg_class AS c
 WHERE p.rolname LIKE 'regress_pt_%' AND p.kind IN ('relation', 'sequence') AND c.relname = p.name AND c.relnamespace = 'poll_tally'::regnamespace
   AND c.relkind <> 'v';
SELECT o.kind, o.name, string_agg(CASE p.rolname WHEN 'regress_pt_submitter' THEN 'S' WHEN 'regress_pt_viewer' THEN 'V'
                                       WHEN 'regress_pt_auditor' THEN 'A' WHEN 'regress_pt_admin' THEN 'D' END, '' ORDER BY p.rolname DESC) AS roles
  FROM (VALUES ('function', 'accept_event'), ('function', 'accept_event_or_raise'), ('function', 'event_status'),
               ('function', 'create_poll'), ('function', 'add_choice'), ('function', 'close_poll'), ('function', 'drop_poll'),
               ('function', 'publish'), ('function', 'renew_epoch'), ('function', 'verify_poll'), ('function', 'results_of'),
               ('function', 'snapshot'), ('function', 'snapshot_message'), ('function', 'channel'), ('function', 'includes'),
               ('function', 'version'), ('function', 'make_tally'), ('function', 'ledger_guard'),
               ('function', 'grant_submitter'), ('function', 'grant_viewer'), ('function', 'grant_auditor'), ('function', 'grant_admin'),
               ('function', 'revoke_from'),
               ('relation', 'polls'), ('relation', 'choices'), ('relation', 'results'), ('relation', 'published'),
               ('relation', 'events'), ('relation', 'snapshots')) AS o(kind, name)
  LEFT JOIN pg_temp.privilege AS p ON p.kind = o.kind AND p.name = o.name AND p.rolname LIKE 'regress\_pt\_%'
 GROUP BY o.kind, o.name ORDER BY roles, o.kind, o.name;
SELECT count(*) FROM pg_temp.privilege WHERE rolname IN ('regress_pt_viewer', 'regress_pt_submitter') AND name IN ('lag', 'results', 'events', 'pending_count', 'pending_entries');

-- a submitter votes, and asks what became of it; it sees nothing else, and changes no rule
SET ROLE regress_pt_submitter;
SELECT outcome, "position" FROM poll_tally.accept_event('roles', 'roles-1', 'a', 'ann', payload => '{"secret": 1}');
SELECT outcome, "position" FROM poll_tally.accept_event_or_raise('roles', 'roles-1', 'a', 'ann', payload => '{"secret": 1}');
SELECT outcome FROM poll_tally.accept_event('roles-hidden', 'roles-2', votes => '{"b": 1}', principal => 'ann');
SELECT status, poll FROM poll_tally.event_status('roles-1');
SELECT * FROM pg_temp.refused('SELECT * FROM poll_tally.events', 'SELECT * FROM poll_tally.ledger', 'SELECT * FROM poll_tally.results',
    'SELECT * FROM poll_tally.published', 'SELECT * FROM poll_tally.snapshot(''roles'')', 'SELECT * FROM poll_tally.polls',
    'SELECT poll_tally.close_poll(''roles'')', 'SELECT poll_tally.add_choice(''roles'', ''c'')', 'SELECT poll_tally.publish(''roles'')',
    'SELECT poll_tally.verify_poll(''roles'')', 'SELECT poll_tally.pending_count(1, ''a'')', 'SELECT nextval(''poll_tally.poll_id_seq'')',
    'INSERT INTO poll_tally.ledger DEFAULT VALUES', 'UPDATE poll_tally.poll SET closed_at = now()', 'DELETE FROM poll_tally.lane',
    'SELECT poll_tally.grant_admin(''regress_pt_submitter'')', 'SET poll_tally.max_payload = 1');
RESET ROLE;
SELECT revision FROM poll_tally.publish('roles', force => true);

-- a viewer sees what is published, and nothing of a hidden poll before its end
SET ROLE regress_pt_viewer;
SELECT poll, choice, count, share FROM poll_tally.published WHERE poll LIKE 'roles%';
SELECT poll, revision, counts, total, final FROM poll_tally.snapshot('roles');
SELECT revision, counts, poll_tally.get(counts, 'a'), poll_tally.total(counts) FROM poll_tally.snapshots WHERE poll LIKE 'roles%' ORDER BY revision;
SELECT m -> 'revision' AS revision, m -> 'counts' AS counts FROM poll_tally.snapshot_message('roles') AS m;
SELECT poll_tally.includes(frontier, '0/1') FROM poll_tally.snapshot('roles');
SELECT poll_tally.channel('roles') = 'poll_tally_' || md5('roles') AS channel;
SELECT count(*) FROM poll_tally.snapshot('roles-hidden');
SELECT poll_tally.snapshot_message('roles-hidden');
SELECT to_jsonb(s) -> 'counts' AS counts, s.counts::jsonb FROM poll_tally.snapshot('roles') AS s;
SELECT * FROM pg_temp.refused('SELECT * FROM poll_tally.events', 'SELECT * FROM poll_tally.results', 'SELECT * FROM poll_tally.results_of(''roles'')',
    'SELECT * FROM poll_tally.polls', 'SELECT * FROM poll_tally.choices', 'SELECT * FROM poll_tally.lag', 'SELECT * FROM poll_tally.lane',
    'SELECT * FROM poll_tally.snapshot', 'SELECT poll_tally.accept_event(''roles'', ''roles-3'', ''a'', ''bob'')', 'SELECT poll_tally.publish(''roles'')',
    'SELECT poll_tally.close_poll(''roles-hidden'')', 'SELECT poll_tally.verify_poll(''roles'')', 'SELECT poll_tally.event_status(''roles-1'')',
    'SELECT poll_tally.counts_of(1)', 'SELECT poll_tally.renew_epoch()');
RESET ROLE;

-- an auditor reads ledger and results, and verifies; it changes nothing
SET ROLE regress_pt_auditor;
SELECT poll, event_id, principal, votes, effect, payload, position FROM poll_tally.events WHERE poll LIKE 'roles%' ORDER BY event_id;
SELECT poll, choice, count FROM poll_tally.results WHERE poll LIKE 'roles%' ORDER BY poll, choice;
SELECT choice, count FROM poll_tally.results_of('roles-hidden');
SELECT poll_tally.sum(effect) FROM poll_tally.events WHERE poll = 'roles';
SELECT bool_and(ok) FROM poll_tally.verify_poll('roles');
SELECT poll, accepted_position FROM poll_tally.polls WHERE poll LIKE 'roles%' ORDER BY poll;
SELECT choice FROM poll_tally.published WHERE poll = 'roles';
SELECT * FROM pg_temp.refused('SELECT poll_tally.accept_event(''roles'', ''roles-3'', ''a'', ''bob'')', 'SELECT poll_tally.close_poll(''roles'')',
    'SELECT poll_tally.create_poll(''roles-x'')', 'SELECT poll_tally.publish(''roles'')', 'SELECT poll_tally.drop_poll(''roles'')',
    'DELETE FROM poll_tally.ledger', 'INSERT INTO poll_tally.polls DEFAULT VALUES');
RESET ROLE;

-- an admin has the life of polls in its hands, and reads all
SET ROLE regress_pt_admin;
SELECT poll_tally.create_poll('roles-admin', '{a}', publish_every => '1 day');
SELECT poll_tally.add_choice('roles-admin', 'b');
SELECT revision FROM poll_tally.publish('roles-admin', force => true);
SELECT poll, gap FROM poll_tally.lag WHERE poll LIKE 'roles%' ORDER BY poll;
SELECT count(*) FROM poll_tally.events WHERE poll = 'roles' AND principal = 'ann';
SELECT bool_and(ok) FROM poll_tally.verify_poll('roles-admin');
SELECT final FROM poll_tally.close_poll('roles-admin');
SELECT poll_tally.drop_poll('roles-admin');
SELECT counts, final FROM poll_tally.close_poll('roles-hidden');
SELECT poll_tally.renew_epoch();
SELECT * FROM pg_temp.refused('SELECT poll_tally.grant_admin(''regress_pt_nobody'')', 'SELECT poll_tally.revoke_from(''regress_pt_viewer'')',
    'DELETE FROM poll_tally.ledger', 'UPDATE poll_tally.poll SET closed_at = NULL', 'TRUNCATE poll_tally.lane', 'SET poll_tally.max_payload = 1');
RESET ROLE;
SET ROLE regress_pt_viewer;
SELECT choice, count FROM poll_tally.published WHERE poll = 'roles-hidden';
RESET ROLE;

-- quoted names, granting twice, several at once; what is revoked is gone and leaves nothing behind
SELECT poll_tally.grant_viewer('"regress pt ""x"", ''ÿ''; DROP"');
SELECT poll_tally.grant_viewer('"regress pt ""x"", ''ÿ''; DROP"');
SELECT poll_tally.grant_submitter('"regress pt ""x"", ''ÿ''; DROP"');
SET ROLE "regress pt ""x"", 'ÿ'; DROP";
SELECT revision FROM poll_tally.snapshot('roles');
SELECT outcome FROM poll_tally.accept_event('roles', 'roles-4', 'b', 'dan');
RESET ROLE;
SELECT poll_tally.revoke_from('"regress pt ""x"", ''ÿ''; DROP"');
SELECT poll_tally.revoke_from('regress_pt_submitter');
SELECT poll_tally.revoke_from('regress_pt_viewer');
SELECT poll_tally.revoke_from('regress_pt_auditor');
SELECT poll_tally.revoke_from('regress_pt_admin');
SELECT poll_tally.revoke_from('regress_pt_nobody');
SELECT rolname, kind, name FROM pg_temp.privilege WHERE rolname LIKE 'regress%pt%';
SET ROLE regress_pt_submitter;
SELECT poll_tally.accept_event('roles', 'roles-5', 'b', 'eve');
RESET ROLE;

-- the grants are issued as the caller, who needs the right to grant
GRANT USAGE ON SCHEMA poll_tally TO regress_pt_nobody;
GRANT EXECUTE ON FUNCTION poll_tally.grant_viewer, poll_tally.revoke_from TO regress_pt_nobody;
SET ROLE regress_pt_nobody;
SET client_min_messages = error;
SELECT * FROM pg_temp.refused('SELECT poll_tally.grant_viewer(''regress_pt_nobody'')');
RESET client_min_messages;
RESET ROLE;
SELECT count(*) FROM pg_temp.privilege WHERE rolname = 'regress_pt_nobody' AND name NOT IN ('poll_tally', 'grant_viewer', 'revoke_from');
SELECT poll_tally.revoke_from('regress_pt_nobody');
-- no such role
SELECT * FROM pg_temp.refused('SELECT poll_tally.grant_viewer(''regress_pt_absent'')', 'SELECT poll_tally.grant_admin(''public'')',
    'SELECT poll_tally.grant_viewer(0::oid::regrole)', 'SELECT poll_tally.revoke_from(''-'')');
DROP ROLE regress_pt_submitter, regress_pt_viewer, regress_pt_auditor, regress_pt_admin, regress_pt_nobody, "regress pt ""x"", 'ÿ'; DROP";
