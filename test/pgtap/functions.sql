-- Every function that people call: its arguments by name, type and default, its result, and how the planner may treat
-- it. A function of the extension that stands neither here nor among the internal ones fails, and so does one that
-- stands here and does not exist; one that is not built yet has to be right once it exists.
\ir ../lib/pgtap.sql
BEGIN;
SELECT * FROM no_plan();

CREATE TEMP TABLE contract (name text PRIMARY KEY, arguments text, result text, volatility "char", there boolean DEFAULT true);

-- Types
INSERT INTO contract VALUES
('add', 'a tally, b tally', 'tally', 'i'),
('subtract', 'a tally, b tally', 'tally', 'i'),
('equal', 'a tally, b tally', 'boolean', 'i'),
('get', 'tally tally, choice text', 'bigint', 'i'),
('total', 'tally tally', 'bigint', 'i'),
('each', 'tally tally', 'SETOF (choice text, count bigint)', 'i'),
('make_tally', 'choices text[], counts bigint[]', 'tally', 'i'),
('sum', 'tally tally', 'tally', 'i'),
('lane', 'at_position event_position', 'int', 'i'),
('seq', 'at_position event_position', 'bigint', 'i'),
('version', '', '(library text, script text)', 's');

-- Polls
INSERT INTO contract VALUES
('create_poll',
 'poll text, choices text[] DEFAULT ''{}'', title text DEFAULT NULL, counting text DEFAULT ''once'','
 ' max_attempts int DEFAULT NULL, max_choices int DEFAULT 1, min_weight bigint DEFAULT 1, max_weight bigint DEFAULT 1,'
 ' open_choices boolean DEFAULT false, restricted boolean DEFAULT false,'
 ' min_count bigint DEFAULT NULL, max_count bigint DEFAULT NULL,'
 ' opens_at timestamptz DEFAULT NULL, closes_at timestamptz DEFAULT NULL,'
 ' hidden_until_close boolean DEFAULT false, publish_every interval DEFAULT ''00:00:01'', publish_min_events int DEFAULT 1,'
 ' notify text DEFAULT ''snapshot'', max_lanes int DEFAULT NULL', 'void', 'v'),
('create_counter',
 'poll text, title text DEFAULT NULL, hidden_until_close boolean DEFAULT false, publish_every interval DEFAULT ''00:00:01'','
 ' publish_min_events int DEFAULT 1, notify text DEFAULT ''snapshot''', 'void', 'v'),
('alter_poll',
 'poll text, title text DEFAULT NULL, closes_at timestamptz DEFAULT NULL, opens_at timestamptz DEFAULT NULL,'
 ' publish_every interval DEFAULT NULL, publish_min_events int DEFAULT NULL, notify text DEFAULT NULL,'
 ' max_attempts int DEFAULT NULL', 'void', 'v'),
('add_choice', 'poll text, choice text, label text DEFAULT NULL', 'void', 'v'),
('set_eligible', 'poll text, principals text[], eligible boolean DEFAULT true', 'bigint', 'v'),
('drop_poll', 'poll text', 'void', 'v');

-- Events
INSERT INTO contract
SELECT name, arguments, '(outcome outcome, event_id text, position event_position, attempt int, accepted_at timestamptz,'
       ' retryable boolean, differs text[], detail text)', 'v'
FROM (VALUES
    ('accept_event',
     'poll text, event_id text, choice text DEFAULT NULL, principal text DEFAULT NULL, votes jsonb DEFAULT NULL,'
     ' payload jsonb DEFAULT NULL, source text DEFAULT NULL, source_partition int DEFAULT NULL,'
     ' source_offset bigint DEFAULT NULL, occurred_at timestamptz DEFAULT NULL'),
    ('accept_event_or_raise',
     'poll text, event_id text, choice text DEFAULT NULL, principal text DEFAULT NULL, votes jsonb DEFAULT NULL,'
     ' payload jsonb DEFAULT NULL, source text DEFAULT NULL, source_partition int DEFAULT NULL,'
     ' source_offset bigint DEFAULT NULL, occurred_at timestamptz DEFAULT NULL'),
    ('accept_json', 'body text, principal text DEFAULT NULL'),
    ('retract_event',
     'poll text, event_id text, retraction_id text, reason text DEFAULT NULL, may_respond_again boolean DEFAULT true')
) AS f (name, arguments);
INSERT INTO contract VALUES
('accept_events',
 'poll text, event_ids text[], choices text[] DEFAULT NULL, principals text[] DEFAULT NULL, votes jsonb[] DEFAULT NULL,'
 ' payloads jsonb[] DEFAULT NULL, source text DEFAULT NULL, source_partition int DEFAULT NULL,'
 ' source_offsets bigint[] DEFAULT NULL, occurred_ats timestamptz[] DEFAULT NULL, polls text[] DEFAULT NULL,'
 ' all_or_nothing boolean DEFAULT false',
 'SETOF (ord int, outcome outcome, event_id text, position event_position, attempt int, accepted_at timestamptz,'
 ' retryable boolean, differs text[], detail text)', 'v'),
('event_status', 'event_id text',
 '(status text, outcome outcome, poll text, position event_position, accepted_at timestamptz, attempts int, detail text)',
 's'),
('events_after', 'poll text, frontier bigint[] DEFAULT NULL, max_events int DEFAULT 1000',
 'SETOF (poll text, event_id text, kind text, principal text, attempt int, votes tally, effect tally, payload jsonb,'
 ' position event_position, source text, source_partition int, source_offset bigint, occurred_at timestamptz,'
 ' accepted_at timestamptz, retracts text)', 's'),
('advance_frontier', 'frontier bigint[], at_position event_position', 'bigint[]', 'i');

-- Reading and snapshots
INSERT INTO contract VALUES
('results_of', 'poll text, choices text[] DEFAULT NULL', 'SETOF (choice text, label text, count bigint, share numeric)', 's'),
('snapshot_message', 'poll text', 'jsonb', 's'),
('includes', 'frontier bigint[], at_position event_position', 'boolean', 'i'),
('channel', 'poll text', 'text', 'i'),
('observe_revision', 'poll text, audience text, revision bigint', 'void', 'v'),
('renew_epoch', '', 'void', 'v');
INSERT INTO contract
SELECT name, arguments, prefix || '(poll text, epoch text, revision bigint, included_position bigint, frontier bigint[],'
       ' counts tally, total bigint, published_at timestamptz, final boolean)', volatility
FROM (VALUES
    ('snapshot', 'poll text, epoch text DEFAULT NULL, after_revision bigint DEFAULT NULL', 'SETOF ', 's'::"char"),
    ('publish', 'poll text, force boolean DEFAULT false', '', 'v'),
    ('close_poll', 'poll text', '', 'v')
) AS f (name, arguments, prefix, volatility);

-- Watching, truth-keeping, consumers, roles
INSERT INTO contract VALUES
('stalled', 'allowance interval DEFAULT ''00:00:10''',
 'SETOF (poll text, accepted_position bigint, published_position bigint, gap bigint, oldest_unpublished_at timestamptz,'
 ' lag_seconds double precision, epoch text, revision bigint, published_at timestamptz, publish_every interval,'
 ' final boolean, observed_revision bigint, due_since timestamptz, publish_attempts bigint, publish_failures bigint,'
 ' worker_pid int)', 's'),
('verify_poll', 'poll text', 'SETOF (check_name text, ok boolean, expected text, actual text)', 'v'),
('rebuild_tallies', 'poll text', 'bigint', 'v'),
('reset_stats', '', 'void', 'v'),
('prune_events', 'poll text, before timestamptz, max_events int DEFAULT 10000, force boolean DEFAULT false', 'bigint', 'v'),
('advance_source', 'source text, source_partition int, next_offset bigint', 'bigint', 'v'),
('source_position', 'source text, source_partition int', 'bigint', 's'),
('accept_rows', '', 'trigger', 'v'),
('grant_submitter', 'role regrole', 'void', 'v'),
('grant_viewer', 'role regrole', 'void', 'v'),
('grant_auditor', 'role regrole', 'void', 'v'),
('grant_admin', 'role regrole', 'void', 'v'),
('revoke_from', 'role regrole', 'void', 'v');

-- Not built yet.
UPDATE contract SET there = false WHERE name IN ('prune_events');

-- What the types, the views and the functions above are made of; nobody calls these by name.
CREATE TEMP TABLE internal (name text PRIMARY KEY);
INSERT INTO internal SELECT unnest(string_to_array(
    'tally_in tally_out tally_recv tally_send negate not_equal tally_lt tally_le tally_ge tally_gt tally_compare tally_hash'
    ' tally_hash_extended tally_sum_transition tally_sum_combine tally_sum_serialize tally_sum_deserialize tally_sum_final'
    ' tally_sum_add_part sum_part sum_parts'
    ' tally_to_jsonb tally_from_jsonb tally_to_json position_in position_out position_recv position_send position_eq'
    ' position_ne position_lt position_le position_ge position_gt position_compare position_hash position_hash_extended'
    ' make_position library_version ledger_guard inbox_insert pending_count pending_counts pending_entries frontier_of'
    ' counts_of is_wide epoch_of stats_counters blocker_rows pending_lane publisher_counts total_if_fits'
    ' worker_rows', ' '));

CREATE TEMP VIEW function AS
SELECT p.proname::text AS name, p.* FROM pg_proc AS p WHERE p.pronamespace = 'poll_tally'::regnamespace;

SELECT has_function('poll_tally', c.name, c.name || ' is there') FROM contract AS c WHERE c.there ORDER BY c.name;
SELECT is(pg_temp.arguments_of(f.oid), c.arguments, c.name || ': arguments')
FROM contract AS c JOIN function AS f USING (name) ORDER BY c.name;
SELECT is(pg_temp.result_of(f.oid), c.result, c.name || ': result')
FROM contract AS c JOIN function AS f USING (name) ORDER BY c.name;
SELECT is(f.provolatile, c.volatility, c.name || ': volatility')
FROM contract AS c JOIN function AS f USING (name) ORDER BY c.name;
SELECT is_empty($$
    SELECT f.name FROM function AS f
    WHERE f.name NOT IN (SELECT name FROM contract) AND f.name NOT IN (SELECT name FROM internal)
$$, 'every function is in the contract or known to be internal');

-- Rules for all of them
SELECT is_empty($$ SELECT f.name FROM function AS f GROUP BY f.name HAVING count(*) > 1 $$, 'no function is overloaded');
SELECT is_empty($$
    SELECT f.name FROM function AS f JOIN contract AS c USING (name)
    WHERE f.pronargs > 0 AND (f.proargnames IS NULL OR '' = ANY (f.proargnames[1:f.pronargs]))
$$, 'every argument that a caller gives has a name');
SELECT is_empty($$
    SELECT f.name FROM function AS f, unnest(f.proargtypes) AS a (type)
    JOIN pg_type AS t ON t.oid = a.type
    WHERE f.name IN (SELECT name FROM contract) AND t.typnamespace = 'poll_tally'::regnamespace
      AND f.name NOT IN ('add', 'subtract', 'equal', 'get', 'total', 'each', 'sum', 'lane', 'seq', 'includes',
                         'advance_frontier')
$$, 'but for those that handle our types, callers bind nothing of ours');
SELECT is_empty($$
    SELECT f.name, f.provolatile, f.proparallel FROM function AS f
    WHERE f.provolatile = 'i' AND f.proparallel <> 's'
       OR f.provolatile = 's' AND f.proparallel NOT IN ('s', 'r')
       OR f.provolatile = 'v' AND f.proparallel = 's'
$$, 'immutable functions are parallel safe, stable ones run in a leader at least, volatile ones are never safe');
SELECT is_empty($$
    SELECT f.name, f.proparallel FROM function AS f JOIN contract AS c USING (name)
    WHERE c.volatility = 'v' AND c.result <> 'trigger' AND f.proparallel <> 'u'
$$, 'what writes is parallel unsafe');
-- A worker process sees nothing of what its leader has counted and not yet written.
SELECT is_empty($$
    SELECT f.name FROM function AS f
    WHERE f.proparallel = 's' AND (f.name LIKE 'pending%' OR f.name IN ('results_of', 'event_status', 'snapshot', 'epoch_of',
                                                                        'snapshot_message', 'stalled'))
$$, 'what may read unwritten counts is not run by parallel workers');
SELECT is_empty($$
    SELECT f.name FROM function AS f JOIN pg_language AS l ON l.oid = f.prolang
    WHERE l.lanname NOT IN ('c', 'sql', 'internal')
$$, 'functions are in C or SQL');
SELECT is_empty($$
    SELECT f.name, f.probin FROM function AS f JOIN pg_language AS l ON l.oid = f.prolang AND l.lanname = 'c'
    WHERE f.probin <> 'poll_tally'
$$, 'C functions are in our library');
SELECT is_empty($$
    SELECT f.name FROM function AS f JOIN pg_language AS l ON l.oid = f.prolang AND l.lanname = 'sql'
    WHERE f.prosqlbody IS NULL
$$, 'SQL functions bound their names when they were made, so that no search_path matters');
SELECT is_empty($$
    SELECT f.name FROM function AS f JOIN pg_language AS l ON l.oid = f.prolang AND l.lanname = 'sql'
    WHERE f.proconfig IS NOT NULL
$$, 'and have no SET, which would keep them from being inlined');
SELECT is_empty($$
    SELECT f.name FROM function AS f JOIN contract AS c USING (name)
    WHERE f.prosecdef AND c.volatility = 'v'
$$, 'no function that writes is SECURITY DEFINER');
SELECT is_empty($$
    SELECT f.name FROM function AS f JOIN contract AS c USING (name)
    WHERE f.proisstrict AND c.volatility = 'v' AND f.name !~ '^(grant_|revoke_)'
$$, 'no function that writes is STRICT: a NULL gets a verdict or an error, not silence');

-- What drivers bind and read. Their parameters have no type of their own (libpq, node-postgres), or that of a typed
-- interface, with the cast that the reference names (JDBC: a string is varchar).
CREATE TEMP TABLE bound (type regtype PRIMARY KEY, parameter text, written text DEFAULT '');
INSERT INTO bound VALUES
('text', 'varchar'), ('int', 'int'), ('bigint', 'bigint'), ('boolean', 'boolean'), ('timestamptz', 'timestamptz'),
('text[]', 'text[]'), ('bigint[]', 'bigint[]'), ('jsonb[]', 'jsonb[]'), ('timestamptz[]', 'timestamptz[]');
INSERT INTO bound VALUES
('jsonb', 'varchar', '::jsonb'), ('interval', 'varchar', '::interval'), ('regrole', 'varchar', '::regrole'),
('poll_tally.event_position', 'varchar', '::poll_tally.event_position'), ('poll_tally.tally', 'varchar', '::poll_tally.tally');

CREATE TEMP VIEW argument AS
SELECT f.oid AS function, f.name AS function_name, a.name, a.type::regtype, a.place
FROM function AS f JOIN contract AS c USING (name),
     unnest(f.proargnames[1:f.pronargs], f.proargtypes::oid[]) WITH ORDINALITY AS a (name, type, place)
WHERE f.prokind = 'f';          -- an aggregate takes no argument by name

-- prepared(typed) -> the types that the server gives the parameters of each function, or why it finds no function.
CREATE FUNCTION pg_temp.prepared(typed boolean) RETURNS TABLE (name text, wanted text, got text) LANGUAGE plpgsql AS $$
DECLARE
    f record;
BEGIN
    FOR f IN SELECT a.function_name, string_agg(format('%I => $%s%s', a.name, a.place, CASE WHEN typed THEN b.written END), ', ') AS call,
                    '(' || string_agg(b.parameter, ', ' ORDER BY a.place) || ')' AS parameters,
                    string_agg(CASE WHEN typed THEN b.parameter::regtype ELSE a.type END::text, ', ' ORDER BY a.place) AS wanted
             FROM argument AS a JOIN bound AS b ON b.type = a.type GROUP BY 1 LOOP
        name := f.function_name;
        wanted := f.wanted;
        BEGIN
            EXECUTE format('PREPARE call_%s %s AS SELECT poll_tally.%1$I(%3$s)', name, CASE WHEN typed THEN f.parameters END, f.call);
            SELECT array_to_string(p.parameter_types, ', ') INTO got FROM pg_prepared_statements AS p WHERE p.name = 'call_' || f.function_name;
            EXECUTE 'DEALLOCATE call_' || name;
        EXCEPTION WHEN undefined_function OR datatype_mismatch OR indeterminate_datatype THEN
            got := SQLERRM;
        END;
        RETURN NEXT;
    END LOOP;
END $$;

SELECT cmp_ok((SELECT count(*)::int FROM argument), '>', 120, 'there are arguments to look at');
SELECT is_empty($$ SELECT function_name, name, type FROM argument WHERE type NOT IN (SELECT type FROM bound) $$,
    'every argument binds as text, a number, jsonb, a time or an array of these');
SELECT is(p.got, p.wanted, p.name || ': found under parameters without types') FROM pg_temp.prepared(typed => false) AS p ORDER BY p.name;
SELECT is(p.got, p.wanted, p.name || ': found under typed parameters') FROM pg_temp.prepared(typed => true) AS p ORDER BY p.name;
SELECT is_empty($$
    SELECT f.name, r.type::regtype
    FROM function AS f JOIN contract AS c USING (name) JOIN pg_type AS t ON t.oid = f.prorettype,
         LATERAL (SELECT a.atttypid FROM pg_attribute AS a WHERE a.attrelid = t.typrelid AND a.attnum > 0
                  UNION ALL SELECT a.type FROM unnest(f.proallargtypes, f.proargmodes) AS a (type, mode) WHERE a.mode IN ('o', 't')
                  UNION ALL SELECT t.oid WHERE t.typtype <> 'c' AND t.oid <> 'record'::regtype) AS r (type)
    WHERE r.type NOT IN (SELECT type FROM bound)
      AND r.type <> ALL ('{numeric,double precision,void,trigger,poll_tally.outcome}'::regtype[])
$$, 'and every result column is one of these, a fraction or an outcome');

SELECT * FROM finish();
ROLLBACK;
