-- Errors: the SQLSTATE of each fault, and how accept_event_or_raise turns outcomes into errors: SQLSTATE, the constraint
-- field, and the outcome's name first in the detail.
\ir ../lib/pgtap.sql
BEGIN;
SELECT * FROM no_plan();

DO $$
BEGIN
    PERFORM poll_tally.create_poll('open', '{a,b}');
    PERFORM poll_tally.create_poll('every', '{a,b}', counting => 'every');
    PERFORM poll_tally.create_poll('later', '{a,b}', opens_at => '2999-01-01');
    PERFORM poll_tally.create_poll('past', '{a,b}', closes_at => '2000-01-01');
    PERFORM poll_tally.create_poll('roll', '{a,b}', restricted => true);
    PERFORM poll_tally.create_poll('stock', '{a,b}', counting => 'every', max_count => 1);
    PERFORM poll_tally.create_poll('bounded', '{a,b}', counting => 'every', max_attempts => 2);
    PERFORM poll_tally.create_poll('heavy', '{a,b}', counting => 'every', max_weight => 9223372036854775807);
    PERFORM poll_tally.create_poll('shut', '{a,b}');
    PERFORM poll_tally.accept_event('shut', 'shut-1', 'a', 'p');
    PERFORM poll_tally.close_poll('shut');
    PERFORM poll_tally.accept_event('open', 'known', 'a', 'anne', source => 's', source_partition => 0, source_offset => 1);
    PERFORM poll_tally.accept_event('stock', 'sold', 'a');
    PERFORM poll_tally.accept_event('heavy', 'full', votes => '{"a": 9223372036854775807}');
END
$$;

CREATE TEMP TABLE fault (state text, statement text);

INSERT INTO fault VALUES
-- Values out of range
('22003', 'poll_tally.make_position(65536, 1)'),
('22003', 'poll_tally.make_position(0, 281474976710656)'),
('22023', $q$ poll_tally.observe_revision('shut', 'screen', NULL) $q$),
('22023', $q$ poll_tally.observe_revision('shut', 'screen', 99) $q$),
-- Polls: an argument or a combination of arguments that is bad
('22023', 'poll_tally.create_poll(NULL)'),
('22023', 'poll_tally.create_poll('''')'),
('22023', 'poll_tally.create_poll(''a b'')'),
('22023', 'poll_tally.create_poll(''ä'')'),
('22023', 'poll_tally.create_poll(''a"b'')'),
('22023', 'poll_tally.create_poll(''a\b'')'),
('22023', 'poll_tally.create_poll(repeat(''x'', 65))'),
('22023', 'poll_tally.create_poll(''n'', NULL)'),
('22023', 'poll_tally.create_poll(''n'', ''{a,a}'')'),
('22023', 'poll_tally.create_poll(''n'', ''{a,NULL}'')'),
('22023', 'poll_tally.create_poll(''n'', ''{a,""}'')'),
('22023', 'poll_tally.create_poll(''n'', ''{{a,b},{c,d}}'')'),
('22023', 'poll_tally.create_poll(''n'', counting => ''twice'')'),
('22023', 'poll_tally.create_poll(''n'', counting => NULL)'),
('22023', 'poll_tally.create_poll(''n'', max_attempts => 0)'),
('22023', 'poll_tally.create_poll(''n'', max_attempts => 2)'),
('22023', 'poll_tally.create_poll(''n'', max_choices => 0)'),
('22023', 'poll_tally.create_poll(''n'', max_choices => 1001)'),
('22023', 'poll_tally.create_poll(''n'', min_weight => 2)'),
('22023', 'poll_tally.create_poll(''n'', min_weight => 0, max_weight => 0)'),
('22023', 'poll_tally.create_poll(''n'', min_count => 1)'),
('22023', 'poll_tally.create_poll(''n'', max_count => -1)'),
('22023', 'poll_tally.create_poll(''n'', max_count => 1, max_lanes => 2)'),
('22023', 'poll_tally.create_poll(''n'', max_lanes => 0)'),
('22023', 'poll_tally.create_poll(''n'', max_lanes => 65)'),
('22023', 'poll_tally.create_poll(''n'', publish_every => ''0'')'),
('22023', 'poll_tally.create_poll(''n'', publish_every => ''-1 s'')'),
('22023', 'poll_tally.create_poll(''n'', publish_min_events => 0)'),
('22023', 'poll_tally.create_poll(''n'', notify => ''loud'')'),
('22023', 'poll_tally.create_poll(''n'', opens_at => ''2030-01-01'', closes_at => ''2030-01-01'')'),
('42710', 'poll_tally.create_poll(''open'')'),
('42710', 'poll_tally.create_counter(''open'')'),
('22023', 'poll_tally.create_counter(''a b'')'),
-- Polls: their life
('P0002', 'poll_tally.alter_poll(''nowhere'', title => ''t'')'),
('55000', 'poll_tally.alter_poll(''shut'', title => ''t'')'),
('55000', 'poll_tally.alter_poll(''past'', closes_at => ''2999-01-01'')'),
('22023', 'poll_tally.alter_poll(''bounded'', max_attempts => 1)'),
('22023', 'poll_tally.alter_poll(''open'', max_attempts => 2)'),
('22023', 'poll_tally.alter_poll(''open'', notify => ''loud'')'),
('22023', 'poll_tally.alter_poll(''open'', publish_every => ''0'')'),
('P0002', 'poll_tally.add_choice(''nowhere'', ''c'')'),
('55000', 'poll_tally.add_choice(''shut'', ''c'')'),
('55000', 'poll_tally.add_choice(''past'', ''c'')'),
('22023', 'poll_tally.add_choice(''open'', ''a b'')'),
('22023', 'poll_tally.add_choice(''open'', NULL)'),
('42710', 'poll_tally.add_choice(''open'', ''a'')'),
('P0002', 'poll_tally.set_eligible(''nowhere'', ''{p}'')'),
('22023', 'poll_tally.set_eligible(''roll'', ''{p,""}'')'),
('22023', 'poll_tally.set_eligible(''roll'', ''{p,NULL}'')'),
('P0002', 'poll_tally.close_poll(''nowhere'')'),
('P0002', 'poll_tally.close_poll(NULL)'),
('P0002', 'poll_tally.drop_poll(''nowhere'')'),
('55000', 'poll_tally.drop_poll(''open'')'),
('P0002', 'poll_tally.publish(''nowhere'')'),
('P0002', 'poll_tally.verify_poll(''nowhere'')'),
('P0002', 'poll_tally.rebuild_tallies(''nowhere'')'),
-- Events: faults are few
('22003', 'poll_tally.accept_event(''heavy'', ''too-much'', ''a'')'),
('22P02', 'poll_tally.accept_event(''open'', ''e'', votes => ''{'')'),
('22007', 'poll_tally.accept_event(''open'', ''e'', ''a'', occurred_at => ''yesterday-ish'')'),
('22003', 'poll_tally.accept_event(''open'', ''e'', ''a'', source_partition => ''2147483648'')'),
-- Batches
('2202E', 'poll_tally.accept_events(''open'', ''{x,y}'', ''{a}'')'),
('2202E', 'poll_tally.accept_events(''open'', ''{x}'', ''{a}'', principals => ''{p,q}'')'),
('2202E', 'poll_tally.accept_events(''nowhere'', ''{x}'', ''{a,b}'')'),
-- Types
('22P02', '''''::poll_tally.tally'),
('22P02', '''{''::poll_tally.tally'),
('22P02', '''[]''::poll_tally.tally'),
('22P02', '''{"a": 1} x''::poll_tally.tally'),
('22P02', '''{"a": 1, "a": 1}''::poll_tally.tally'),
('22P02', '''{"a b": 1}''::poll_tally.tally'),
('22P02', '''{"": 1}''::poll_tally.tally'),
('22P02', '''{"a": "1"}''::poll_tally.tally'),
('22P02', '''{"a": 1.5}''::poll_tally.tally'),
('22P02', '''{"a": null}''::poll_tally.tally'),
('22003', '''{"a": 9223372036854775808}''::poll_tally.tally'),
('22003', '''{"a": -9223372036854775809}''::poll_tally.tally'),
('22023', '''[]''::jsonb::poll_tally.tally'),
('22023', '''1''::jsonb::poll_tally.tally'),
('22023', '''{"a": "1"}''::jsonb::poll_tally.tally'),
('22023', '''{"a": 1.5}''::jsonb::poll_tally.tally'),
('2202E', 'poll_tally.make_tally(''{a,b}'', ''{1}'')'),
('22003', 'poll_tally.add(''{"a": 9223372036854775807}'', ''{"a": 1}'')'),
('22003', 'poll_tally.subtract(''{"a": -9223372036854775808}'', ''{"a": 1}'')'),
('22003', 'poll_tally.negate(''{"a": -9223372036854775808}'')'),
('22003', 'poll_tally.total(''{"a": 9223372036854775807, "b": 1}'')'),
('22P02', '''''::poll_tally.event_position'),
('22P02', '''1''::poll_tally.event_position'),
('22P02', '''1/''::poll_tally.event_position'),
('22P02', '''/1''::poll_tally.event_position'),
('22P02', '''-1/1''::poll_tally.event_position'),
('22P02', '''1/1 x''::poll_tally.event_position'),
('22P02', '''acepted''::poll_tally.outcome'),
('23514', '''a b''::poll_tally.ident');

SELECT throws_ok('SELECT ' || statement, state::char(5), NULL, state || ' ' || statement) FROM fault;

SELECT throws_ok('SET LOCAL poll_tally.max_batch = 1; SELECT poll_tally.accept_events(''open'', ''{x,y}'', ''{a,b}'', ''{p,q}'')',
    '54000', NULL, '54000 a batch of more than max_batch');

SELECT lives_ok('SELECT poll_tally.observe_revision(''shut'', ''screen-'' || i, 1) FROM generate_series(1, 100) AS i', 'a hundred audiences');
SELECT throws_ok('SELECT poll_tally.observe_revision(''shut'', ''one-more'', 1)', '54000', NULL, '54000 one more audience');
SELECT lives_ok('SELECT poll_tally.observe_revision(''shut'', ''screen-100'', 1)', 'those that are known go on');
SELECT is(count(*), 100::bigint, 'and are a hundred') FROM poll_tally.audience;

-- The ledger is append-only, for a superuser and as a replica too.
SELECT throws_ok(prefix || statement, '55000', NULL, '55000 ' || prefix || statement)
FROM unnest(ARRAY['', 'SET LOCAL session_replication_role = replica; ']) AS prefix,
     unnest(ARRAY['UPDATE poll_tally.ledger SET reason = NULL', 'DELETE FROM poll_tally.ledger',
                  'TRUNCATE poll_tally.ledger', 'DELETE FROM poll_tally.ledger WHERE false']) AS statement;
SELECT isnt(r.hint, '', 'with a hint') FROM pg_temp.raised('DELETE FROM poll_tally.ledger') AS r;

-- A read-only transaction: whatever the event, 25006 comes first.
SELECT throws_ok('SET LOCAL transaction_read_only = on; SELECT * FROM ' || statement, '25006', NULL, '25006 ' || statement)
FROM unnest(ARRAY[
    'poll_tally.accept_event(''open'', ''new'', ''a'', ''p'')', 'poll_tally.accept_event(''open'', ''known'', ''a'', ''anne'')',
    'poll_tally.accept_event(NULL, NULL)', 'poll_tally.accept_event_or_raise(''nowhere'', ''new'', ''a'')',
    'poll_tally.accept_json(''no json'')', 'poll_tally.retract_event(''open'', ''known'', ''r'')',
    'poll_tally.accept_events(''open'', ''{x}'', ''{a}'')', 'poll_tally.advance_source(''s'', 0, 1)',
    'poll_tally.create_poll(''n'')', 'poll_tally.create_counter(''n'')', 'poll_tally.alter_poll(''open'', title => ''t'')',
    'poll_tally.add_choice(''open'', ''c'')', 'poll_tally.set_eligible(''roll'', ''{p}'')', 'poll_tally.close_poll(''open'')',
    'poll_tally.drop_poll(''shut'')', 'poll_tally.publish(''open'')', 'poll_tally.rebuild_tallies(''open'')',
    'poll_tally.renew_epoch()']) AS statement;

-- Outcomes as errors. A client reads the outcome's name from the detail and the field from the constraint.
CREATE TEMP TABLE refusal (outcome text, state text, constraint_field text, arguments text);
INSERT INTO refusal VALUES
('invalid', '22023', '', '''open'', ''no good'', ''a'', ''p'''),
('invalid', '22023', '', 'NULL, NULL'),
('invalid', '22023', '', '''open'', ''new'', ''a'''),
('conflict', '23505', 'event_id', '''open'', ''known'', ''b'', ''anne'''),
('source_conflict', '23505', 'source',
 '''open'', ''new'', ''a'', ''p'', source => ''s'', source_partition => 0, source_offset => 1'),
('unknown_poll', 'P0002', '', '''nowhere'', ''new'', ''a'', ''p'''),
('closed', '55000', '', '''shut'', ''new'', ''a'', ''new'''),
('closed', '55000', '', '''past'', ''new'', ''a'', ''new'''),
('not_open', '55000', '', '''later'', ''new'', ''a'', ''new'''),
('not_eligible', '42501', '', '''roll'', ''new'', ''a'', ''new'''),
('unknown_choice', 'P0002', '', '''open'', ''new'', ''c'', ''new'''),
('already_responded', '23505', 'principal', '''open'', ''new'', ''a'', ''anne'''),
('limit_reached', '23514', '', '''stock'', ''new'', ''a''');

CREATE FUNCTION pg_temp.outcome_of(arguments text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    verdict text;
BEGIN
    EXECUTE 'SELECT outcome::text FROM poll_tally.accept_event(' || arguments || ')' INTO STRICT verdict;
    RETURN verdict;
END
$$;
SELECT is(pg_temp.outcome_of(r.arguments), r.outcome, r.outcome || ': accept_event returns it') FROM refusal AS r;
SELECT is(e.state, r.state, r.outcome || ': accept_event_or_raise raises ' || r.state)
FROM refusal AS r, pg_temp.raised('SELECT poll_tally.accept_event_or_raise(' || r.arguments || ')') AS e;
SELECT is(e.constraint_field, r.constraint_field, r.outcome || ': the constraint field')
FROM refusal AS r, pg_temp.raised('SELECT poll_tally.accept_event_or_raise(' || r.arguments || ')') AS e;
SELECT matches(e.detail, '^' || r.outcome || '\M', r.outcome || ': the detail begins with it')
FROM refusal AS r, pg_temp.raised('SELECT poll_tally.accept_event_or_raise(' || r.arguments || ')') AS e;
SELECT is((SELECT outcome::text FROM poll_tally.accept_event_or_raise('open', 'known', 'a', 'anne')), 'duplicate',
    'a duplicate is no error');
SELECT is((SELECT outcome::text FROM poll_tally.accept_event_or_raise('open', 'fine', 'a', 'fine')), 'accepted',
    'nor is what is accepted');

SELECT is((SELECT count(*)::int FROM poll_tally.events WHERE event_id IN ('new', 'too-much', 'e', 'n', 'x', 'y')), 0,
    'no fault and no refusal left a trace');
SELECT is_empty($$ SELECT p.poll, v.* FROM poll_tally.polls AS p, poll_tally.verify_poll(p.poll) AS v WHERE NOT v.ok $$,
    'and every poll holds together');

SELECT * FROM finish();
ROLLBACK;
