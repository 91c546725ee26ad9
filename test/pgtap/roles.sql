-- Roles: each grant function gives what its role needs for its whole job and nothing beyond it, revoke_from takes all of
-- it back, and a role without grants can do nothing. All of it is tried, as that role.
\ir ../lib/pgtap.sql
BEGIN;
SELECT * FROM no_plan();

CREATE ROLE "t-nobody";
CREATE ROLE "t-submitter";
CREATE ROLE "t-viewer";
CREATE ROLE "t-auditor";
CREATE ROLE "t-admin";
DO $$
BEGIN
    PERFORM poll_tally.create_poll('p', '{a,b}');
    PERFORM poll_tally.create_poll('hidden', '{a,b}', hidden_until_close => true);
    PERFORM poll_tally.create_poll('roll', '{a,b}', restricted => true);
    PERFORM poll_tally.create_poll('closed', '{a,b}');
    PERFORM poll_tally.close_poll('closed');
    PERFORM poll_tally.accept_event('p', 'e', 'a', 'anne', payload => '{"secret": 1}');
    PERFORM poll_tally.accept_event('hidden', 'h', 'a', 'anne');
END
$$;
-- The acls before anything is granted.
CREATE TEMP VIEW acl AS
SELECT 'schema' AS kind, nspname::text AS name, nspacl::text AS acl FROM pg_namespace WHERE nspname = 'poll_tally'
UNION ALL SELECT 'relation', relname, relacl::text FROM pg_class WHERE relnamespace = 'poll_tally'::regnamespace
UNION ALL SELECT 'function', proname, proacl::text FROM pg_proc WHERE pronamespace = 'poll_tally'::regnamespace
UNION ALL SELECT 'type', typname, typacl::text FROM pg_type WHERE typnamespace = 'poll_tally'::regnamespace;
CREATE TEMP TABLE acl_before AS SELECT * FROM acl;

SELECT lives_ok(format('SELECT poll_tally.grant_%s(%L)', r, format('%I', 't-' || r)), 'grant_' || r)
FROM unnest(ARRAY['submitter', 'viewer', 'auditor', 'admin']) AS r;

-- Which roles may do a thing; the others get 42501, but for those with a question mark, of whom nothing is said.
CREATE TEMP TABLE deed (roles text, statement text);
INSERT INTO deed VALUES
('submitter', 'poll_tally.accept_event(''p'', ''new'', ''a'', ''otto'')'),
('submitter', 'poll_tally.accept_event_or_raise(''p'', ''new'', ''a'', ''otto'')'),
('submitter', 'poll_tally.accept_json(''{"event_id": "new", "poll_id": "p", "candidate_id": "a"}'', ''otto'')'),
('submitter', 'poll_tally.accept_events(''p'', ''{new,newer}'', ''{a,b}'', ''{otto,olga}'')'),
('submitter', 'poll_tally.advance_source(''s'', 0, 1)'),
('submitter auditor admin', 'poll_tally.event_status(''e'')'),
('viewer auditor admin', 'poll_tally.published'),
('viewer auditor admin', 'poll_tally.snapshots'),
('viewer auditor admin', 'poll_tally.snapshot(''p'')'),
('viewer auditor admin', 'poll_tally.snapshot_message(''p'')'),
('viewer auditor admin', 'poll_tally.channel(''p'')'),
('viewer auditor admin', 'poll_tally.includes(''{1}'', ''0/1'')'),
('auditor admin', 'poll_tally.results'),
('auditor admin', 'poll_tally.results_of(''p'')'),
('auditor admin', 'poll_tally.events'),
('auditor admin', 'poll_tally.polls'),
('auditor admin', 'poll_tally.choices'),
('auditor admin', 'poll_tally.verify_poll(''p'')'),
('auditor admin', 'poll_tally.events_after(''p'')'),
('?auditor admin', 'poll_tally.lag'),
('?auditor admin', 'poll_tally.stalled()'),
('?auditor admin', 'poll_tally.workers'),
('?auditor admin', 'poll_tally.blockers'),
('?auditor admin', 'poll_tally.metrics'),
('?auditor admin', 'poll_tally.stats'),
('auditor admin', '(SELECT poll_tally.sum(effect) FROM poll_tally.events WHERE poll = ''p'') AS s'),
('admin', 'poll_tally.create_poll(''n'', ''{a}'')'),
('admin', 'poll_tally.create_counter(''n'')'),
('admin', 'poll_tally.alter_poll(''p'', title => ''t'')'),
('admin', 'poll_tally.add_choice(''p'', ''c'')'),
('admin', 'poll_tally.set_eligible(''roll'', ''{p}'')'),
('admin', 'poll_tally.close_poll(''p'')'),
('admin', 'poll_tally.drop_poll(''closed'')'),
('admin', 'poll_tally.publish(''p'')'),
('admin', 'poll_tally.retract_event(''p'', ''e'', ''r'')'),
('admin', 'poll_tally.rebuild_tallies(''p'')'),
('admin', 'poll_tally.renew_epoch()'),
('submitter viewer auditor admin', 'poll_tally.version()'),
('submitter viewer auditor admin', 'poll_tally.each(''{"a": 1}'')');

SELECT is(tried.state, CASE WHEN r = ANY (string_to_array(d.roles, ' ')) THEN '00000' ELSE '42501' END,
    r || ': ' || d.statement)
FROM deed AS d, unnest(ARRAY['nobody', 'submitter', 'viewer', 'auditor', 'admin']) AS r,
    LATERAL (SELECT state FROM pg_temp.raised('SELECT * FROM ' || d.statement, 't-' || r)) AS tried
WHERE '?' || r <> ALL (string_to_array(d.roles, ' '));
SELECT is(tried.state, CASE r WHEN 'submitter' THEN '00000' ELSE '42501' END, r || ': INSERT INTO inbox')
FROM unnest(ARRAY['nobody', 'submitter', 'viewer', 'auditor', 'admin']) AS r, LATERAL (SELECT state FROM pg_temp.raised(
    'INSERT INTO poll_tally.inbox (poll, event_id, choice, principal) VALUES (''p'', ''new'', ''a'', ''otto'')', 't-' || r))
    AS tried;

-- What a role may read it can keep, in tables and views of its own.
SELECT is(tried.state, '00000', r || ' keeps what it read: ' || s.statement)
FROM (VALUES ('submitter', 'CREATE TEMP TABLE kept AS SELECT * FROM poll_tally.accept_event(''p'', ''e'', ''a'', ''anne'')'),
             ('submitter', 'CREATE TEMP TABLE kept AS SELECT * FROM poll_tally.accept_events(''p'', ''{e}'', ''{a}'')'),
             ('submitter', 'CREATE TEMP TABLE kept (outcome poll_tally.outcome)'),
             ('viewer', 'CREATE TEMP TABLE kept AS SELECT * FROM poll_tally.snapshots'),
             ('auditor', 'CREATE TEMP TABLE kept AS SELECT * FROM poll_tally.events'),
             ('auditor', 'CREATE TEMP VIEW kept AS SELECT * FROM poll_tally.events'),
             ('admin', 'CREATE TEMP TABLE kept AS SELECT * FROM poll_tally.retract_event(''p'', ''nothing'', ''r'')')) AS s (r, statement),
     LATERAL (SELECT state FROM pg_temp.raised(s.statement, 't-' || r)) AS tried;
SELECT is(tried.state, '42501', r || ' makes no column of ' || t)
FROM unnest(ARRAY['submitter', 'viewer', 'auditor', 'admin']) AS r, unnest(ARRAY['ident', 'receipt', 'batch_receipt']) AS t,
     LATERAL (SELECT state FROM pg_temp.raised('CREATE TEMP TABLE kept (c poll_tally.' || t || ')', 't-' || r)) AS tried;

-- Tables are for nobody; lag is not for submitters and viewers.
SELECT is_empty($$
    SELECT r, c.relname, privilege
    FROM unnest(ARRAY['nobody', 'submitter', 'viewer', 'auditor', 'admin']) AS r,
         unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE', 'TRUNCATE', 'REFERENCES', 'TRIGGER']) AS privilege,
         pg_class AS c
    WHERE c.relnamespace = 'poll_tally'::regnamespace AND c.relkind = 'r'
      AND has_table_privilege('t-' || r, c.oid, privilege)
$$, 'no role has a privilege on a table');
SELECT is_empty($$
    SELECT r, c.relname FROM unnest(ARRAY['nobody', 'submitter', 'viewer', 'auditor', 'admin']) AS r, pg_class AS c
    WHERE c.relnamespace = 'poll_tally'::regnamespace AND c.relkind = 'S'
      AND has_sequence_privilege('t-' || r, c.oid, 'USAGE, SELECT, UPDATE')
$$, 'nor on a sequence');
SELECT is_empty($$
    SELECT r, c.relname FROM unnest(ARRAY['nobody', 'submitter', 'viewer', 'auditor', 'admin']) AS r, pg_class AS c
    WHERE c.relnamespace = 'poll_tally'::regnamespace AND c.relkind = 'v' AND c.relname <> 'inbox'
      AND has_table_privilege('t-' || r, c.oid, 'INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER')
$$, 'views are for reading');
SELECT is_empty($$
    SELECT r FROM unnest(ARRAY['nobody', 'submitter', 'viewer']) AS r
    WHERE has_table_privilege('t-' || r, 'poll_tally.lag', 'SELECT')
$$, 'submitters and viewers see no lag');
SELECT is_empty($$
    SELECT r, p.proname FROM unnest(ARRAY['submitter', 'viewer', 'auditor', 'admin']) AS r, pg_proc AS p
    WHERE p.pronamespace = 'poll_tally'::regnamespace AND has_function_privilege('t-' || r, p.oid, 'EXECUTE WITH GRANT OPTION')
$$, 'no role can pass its privileges on');
SELECT is_empty($$
    SELECT r, p.proname FROM unnest(ARRAY['submitter', 'viewer', 'auditor', 'admin']) AS r, pg_proc AS p
    WHERE p.pronamespace = 'poll_tally'::regnamespace AND p.proname ~ '^(grant_|revoke_)'
      AND has_function_privilege('t-' || r, p.oid, 'EXECUTE')
$$, 'no role can give roles');

-- What a viewer must not learn: the live counts, and a hidden poll before its end.
SELECT is_empty($$
    SELECT p.proname FROM pg_proc AS p
    WHERE p.pronamespace = 'poll_tally'::regnamespace AND has_function_privilege('t-viewer', p.oid, 'EXECUTE')
      AND p.proname ~ '^(accept|retract|pending|results|counts|frontier|event|verify|publish|close|create|alter|stats)'
$$, 'viewers can execute nothing that reads live counts, or writes');
SET LOCAL ROLE "t-viewer";
SELECT count(*) AS hidden_rows FROM (
    SELECT poll FROM poll_tally.published WHERE poll = 'hidden'
    UNION ALL SELECT poll FROM poll_tally.snapshots WHERE poll = 'hidden'
    UNION ALL SELECT poll FROM poll_tally.snapshot('hidden')
    UNION ALL SELECT 'hidden' WHERE poll_tally.snapshot_message('hidden') IS NOT NULL) AS h
\gset
RESET ROLE;
SELECT is(:hidden_rows, 0, 'a hidden poll shows viewers nothing before its end');

-- Repeating does no harm, and taking back leaves nothing.
SELECT lives_ok(format('SELECT poll_tally.grant_%s(%L)', r, format('%I', 't-' || r)), 'grant_' || r || ' again')
FROM unnest(ARRAY['submitter', 'viewer', 'auditor', 'admin']) AS r;
SELECT lives_ok(format('SELECT poll_tally.revoke_from(%L)', format('%I', 't-' || r)), 'revoke_from ' || r)
FROM unnest(ARRAY['nobody', 'submitter', 'viewer', 'auditor', 'admin']) AS r;
SELECT is_empty($$
    SELECT kind, name FROM acl WHERE acl LIKE '%t-%'
$$, 'no trace of any of them is left');
SELECT is_empty($$
    SELECT a.kind, a.name, n.item FROM acl AS a JOIN acl_before AS b USING (kind, name)
    CROSS JOIN LATERAL (SELECT unnest(b.acl::aclitem[])::text EXCEPT SELECT unnest(a.acl::aclitem[])::text) AS n (item)
$$, 'and nobody else lost anything');

-- Who may not grant, cannot; a role that does not exist is an error.
SELECT is(r.state, '42501', 'a role without grants cannot grant')
FROM pg_temp.raised('SELECT poll_tally.grant_admin(''"t-nobody"'')', 't-nobody') AS r;
SELECT throws_ok('SELECT poll_tally.grant_viewer(''t-nowhere'')', '42704', NULL, 'a role that does not exist');

SELECT * FROM finish();
ROLLBACK;
