# A logical dump loses nothing: plain, as schema and data in two steps, and as an archive restored by two jobs, into
# another database of the server and into a fresh cluster. The copy shows the same polls, events, results and snapshots;
# a retry of an old event is a duplicate with its original receipt, a new one goes on in its lane, revisions go on where
# they were, but under another epoch; guards and grants are there. The same for a dump of the copy.
use strict;
use warnings FATAL => 'all';

use PollTally;
use PostgreSQL::Test::Utils;
use Test::More;

seed();
my @settings = ('fsync = off', 'poll_tally.publish = off', "poll_tally.databases = 'plain'");
my $old = new_node('old', @settings);
my $new = new_node('new', @settings);
my $folder = PostgreSQL::Test::Utils::tempdir;
$_->safe_psql('postgres', 'CREATE ROLE anne; CREATE ROLE otto') for ($old, $new);

# --- what is dumped -------------------------------------------------------------------------------------------------

$old->safe_psql('postgres', 'CREATE DATABASE source');
$old->safe_psql('source', <<'SQL');
CREATE EXTENSION poll_tally;
SELECT poll_tally.create_poll('hand-ins', '{A,B}', title => E'Prüfung \\ "1"\n\t2', counting => 'once',
                              opens_at => '2020-01-01', closes_at => '2999-12-31 23:59:59.123456+00', max_lanes => 3,
                              publish_every => '1 month 2 days 03:04:05.678');
SELECT poll_tally.create_poll('clicks', '{red,green,blue}', counting => 'every', max_lanes => 4);
SELECT poll_tally.create_poll('wide', array(SELECT 'choice-' || g FROM generate_series(1, 1500) AS g), counting => 'every');
SELECT poll_tally.create_poll('closed', '{yes,no}');
SELECT poll_tally.create_poll('empty');
SELECT poll_tally.create_poll('dropped', '{red}');
SELECT poll_tally.close_poll('dropped');
SELECT poll_tally.drop_poll('dropped');
SELECT poll_tally.add_choice('hand-ins', 'C', 'gewählt');
SELECT count(*) FROM generate_series(1, 200) AS g, poll_tally.accept_event('hand-ins', 'hand-in-' || g,
    (ARRAY['A', 'B', 'C'])[g % 3 + 1], 'student-' || g,
    payload => CASE WHEN g % 2 = 0 THEN jsonb_build_object('text', repeat('ß', g * 20), 'n', g / 7.0) END,
    occurred_at => CASE WHEN g % 5 = 0 THEN '2020-01-01 00:00:00.000001+00'::timestamptz + g * interval '1 us' END);
SELECT count(*) FROM generate_series(1, 2000) AS g, poll_tally.accept_event('wide', 'wide-' || g,
    'choice-' || g * 7 % 1500 + 1);
SELECT count(*) FROM generate_series(1, 20) AS g, poll_tally.accept_event('closed', 'closed-' || g,
    (ARRAY['yes', 'no'])[g % 2 + 1], 'voter-' || g);
SELECT count(*) FROM generate_series(1, 50) AS g, poll_tally.accept_event('clicks', 'source-' || g, 'red',
    source => 'stream', source_partition => g % 2, source_offset => 9007199254740993 + g);
SELECT (poll_tally.publish('hand-ins', true)).revision;
SELECT (poll_tally.publish('clicks', true)).revision;
SELECT (poll_tally.close_poll('closed')).revision;
SELECT poll_tally.create_poll('roll', '{yes,no}', restricted => true);
SELECT poll_tally.set_eligible('roll', '{anne,otto}');
SELECT poll_tally.renew_epoch();
SELECT poll_tally.advance_source('stream', 1, 9007199254740993);
SELECT poll_tally.observe_revision('clicks', 'screen', 1);
SELECT poll_tally.grant_submitter('anne');
SELECT poll_tally.grant_viewer('otto');
CREATE TABLE mine AS SELECT position, votes, 'accepted'::poll_tally.outcome AS outcome FROM poll_tally.events;
CREATE INDEX ON mine (position);
CREATE INDEX ON mine USING hash (votes);
CREATE VIEW mine_too AS SELECT poll, poll_tally.sum(effect) AS counts FROM poll_tally.events GROUP BY poll;
SQL
# Lanes 0, 1 and 2 of a poll, by transactions that overlap.
$old->safe_psql('source', "BEGIN; SELECT outcome FROM poll_tally.accept_event('clicks', 'lane-$_', 'blue');"
	  . " PREPARE TRANSACTION 'lane-$_'") for 1 .. 3;
$old->safe_psql('source', "COMMIT PREPARED 'lane-$_'") for 1 .. 3;
query_is($old, 'source', 'SELECT array_agg(DISTINCT poll_tally.lane(position)) FROM poll_tally.events', '{0,1,2}',
	'the source has entries in three lanes');

# The extension's tables, row by row: what is in none of the views has to be there too.
sub table_digest
{
	my ($node, $database) = @_;
	return join '', map { "$_ " . $node->safe_psql($database, "SELECT count(*), md5(string_agg(t::text, E'\\n'"
			  . " ORDER BY t::text COLLATE \"C\")) FROM poll_tally.$_ AS t") . "\n" }
	  lines_of($node, $database, "SELECT relname FROM pg_class WHERE relkind = 'r'"
		  . " AND relnamespace = 'poll_tally'::regnamespace ORDER BY relname");
}

my $digest = ledger_digest($old, 'source');
my $tables = table_digest($old, 'source');
note($digest, "\n", $tables);
unlike($tables, qr/^\w+ 0\|/m, 'every table of the extension holds something');
my %epoch = map { split /\|/ } lines_of($old, 'source', 'SELECT DISTINCT poll, epoch FROM poll_tally.snapshots');
my $receipts = "SELECT md5(string_agg(event_id || ' ' || position || ' ' || coalesce(attempt, 0) || ' ' || accepted_at, ','"
  . " ORDER BY event_id COLLATE \"C\")) FROM ";
my $original = $old->safe_psql('source', $receipts . 'poll_tally.events');

# --- what has to be there after a restore ---------------------------------------------------------------------------

# Every event once more, as it was sent.
my $retries = "(SELECT a.* FROM poll_tally.events AS e, poll_tally.accept_event(e.poll, e.event_id, NULL, e.principal,"
  . " e.votes::jsonb, e.payload, e.source, e.source_partition, e.source_offset, e.occurred_at) AS a"
  . " WHERE e.kind = 'event') AS r";

sub polls_are_true
{
	my ($node, $database, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	for my $poll (polls_of($node, $database))
	{
		poll_is_true($node, $database, $poll, "$what: $poll holds together");
	}
	return;
}

sub guards_ok
{
	my ($node, $database, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	for my $sql ('UPDATE poll_tally.ledger SET reason = NULL', 'DELETE FROM poll_tally.ledger', 'TRUNCATE poll_tally.ledger')
	{
		my ($verb) = $sql =~ /^(\w+)/;
		sqlstate_is($node, $database, $sql, '55000', "$what: $verb of the ledger is refused");
		sqlstate_is($node, $database, "SET session_replication_role = replica; $sql", '55000',
			"$what: $verb as a replica is refused");
	}
	true_ok($node, $database, <<'SQL', "$what: grants are there, and no more");
SELECT has_function_privilege('anne', f, 'EXECUTE') AND NOT has_function_privilege('otto', f, 'EXECUTE')
   AND has_table_privilege('otto', 'poll_tally.published', 'SELECT')
   AND NOT has_table_privilege('anne', 'poll_tally.events', 'SELECT')
   AND NOT has_table_privilege('otto', 'poll_tally.ledger', 'SELECT')
   AND has_schema_privilege('anne', 'poll_tally', 'USAGE') AND NOT has_schema_privilege('public', 'poll_tally', 'USAGE')
   AND NOT has_function_privilege('public', f, 'EXECUTE')
FROM to_regproc('poll_tally.accept_event') AS f
SQL
	return;
}

sub goes_on_ok
{
	my ($node, $database, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	query_is($node, $database, "SELECT outcome, count(*) FROM $retries GROUP BY outcome", 'duplicate|2273',
		"$what: every retry is a duplicate");
	query_is($node, $database, $receipts . $retries, $original, "$what: with the original receipt");
	query_is($node, $database, "SELECT outcome FROM poll_tally.accept_event('hand-ins', 'hand-in-1', 'A', 'student-1')",
		'conflict', "$what: another answer is a conflict");
	query_is($node, $database, "SELECT outcome FROM poll_tally.accept_event('hand-ins', 'again', 'A', 'student-1')",
		'already_responded', "$what: a principal that has responded has");
	query_is($node, $database, "SELECT outcome FROM poll_tally.accept_event('clicks', 'again', 'red',"
		  . " source => 'stream', source_partition => 1, source_offset => 9007199254740994)", 'source_conflict',
		"$what: a source coordinate belongs to its event");
	query_is($node, $database, "SELECT outcome FROM poll_tally.accept_event('closed', 'late', 'yes', 'late')", 'closed',
		"$what: a closed poll is closed");
	my ($seq) = $node->safe_psql($database,
		"SELECT max(poll_tally.seq(position)) FROM poll_tally.events WHERE poll = 'clicks' AND poll_tally.lane(position) = 0");
	query_is($node, $database, "SELECT outcome, position FROM poll_tally.accept_event('clicks', 'new', 'red')",
		'accepted|0/' . ($seq + 1), "$what: a new event goes on in the lane");
	query_is($node, $database, "SELECT (poll_tally.publish('clicks', true)).revision", 3, "$what: revisions go on");
	query_is($node, $database, "SELECT poll_tally.create_poll('new', '{a}');"
		  . " SELECT outcome, position FROM poll_tally.accept_event('new', 'new-1', 'a', 'p')", "\naccepted|0/1",
		"$what: a new poll can be made");
	return;
}

sub copy_ok
{
	my ($node, $database, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is(ledger_digest($node, $database), $digest, "$what: polls, choices, results, events and snapshots are the same");
	is(table_digest($node, $database), $tables, "$what: so is every row of every table");
	polls_are_true($node, $database, $what);
	my %now = map { split /\|/ } lines_of($node, $database, 'SELECT DISTINCT poll, epoch FROM poll_tally.snapshots');
	is_deeply([ sort keys %now ], [ sort keys %epoch ], "$what: every poll has its snapshots");
	is_deeply([ grep { $now{$_} eq $epoch{$_} } keys %now ], [], "$what: and another epoch");
	query_is($node, $database, 'SELECT count(*), count(DISTINCT position) > 1 FROM mine', '2270|t',
		"$what: a table with our types is there");
	query_is($node, $database, "SELECT counts FROM mine_too WHERE poll = 'closed'", '{"no": 10, "yes": 10}',
		"$what: a view over ours works");
	guards_ok($node, $database, $what);
	goes_on_ok($node, $database, $what);
	polls_are_true($node, $database, "$what, after new events");
	return;
}

# --- the ways ------------------------------------------------------------------------------------------------------

# Nothing is said, least of all on standard error.
sub quiet_ok
{
	my ($command, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($stdout, $stderr) = run_command($command);
	return is($stderr, '', $what);
}

sub dump_ok
{
	my ($node, $database, $file, @options) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return quiet_ok([ 'pg_dump', @options, '-f', "$folder/$file", '-d', $node->connstr($database) ], "pg_dump of $file");
}

sub psql_ok
{
	my ($node, $database, $file) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return quiet_ok([ 'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr($database), '-f', "$folder/$file" ],
		"psql runs $file");
}

dump_ok($old, 'source', 'plain.sql');
dump_ok($old, 'source', 'schema.sql', '--schema-only');
dump_ok($old, 'source', 'data.sql', '--data-only');
dump_ok($old, 'source', 'archive', '-Fc');

my %way = (
	plain => sub { my ($node, $database) = @_; psql_ok($node, $database, 'plain.sql') },
	steps => sub { my ($node, $database) = @_; psql_ok($node, $database, $_) for ('schema.sql', 'data.sql') },
	archive => sub {
		my ($node, $database) = @_;
		quiet_ok([ 'pg_restore', '-j', 2, '--exit-on-error', '-d', $node->connstr($database), "$folder/archive" ],
			'pg_restore with two jobs');
	});

for my $place ([ $old, 'another database' ], [ $new, 'a fresh cluster' ])
{
	my ($node, $where) = @$place;
	for my $way (sort keys %way)
	{
		$node->safe_psql('postgres', "CREATE DATABASE $way");
		$way{$way}->($node, $way);
		copy_ok($node, $way, "$way, $where");
	}
}
is(ledger_digest($old, 'source'), $digest, 'the source is as it was');

# --- a copy is as good as the original ------------------------------------------------------------------------------

my $second = ledger_digest($new, 'archive');
dump_ok($new, 'archive', 'second.sql');
$new->safe_psql('postgres', 'CREATE DATABASE second');
psql_ok($new, 'second', 'second.sql');
is(ledger_digest($new, 'second'), $second, 'a dump of the copy loses nothing');
polls_are_true($new, 'second', 'second dump');

# The worker takes a restored database over.
$new->safe_psql('plain', q{SELECT outcome FROM poll_tally.accept_event('clicks', 'for-the-worker', 'red')});
$new->append_conf('postgresql.conf', 'poll_tally.publish = on');
$new->reload;
ok($new->poll_query_until('plain', "SELECT gap = 0 AND revision = 4 FROM poll_tally.lag WHERE poll = 'clicks'"),
	'the worker publishes the next revision of a restored poll');

figure("dump and restore: 6 restores of $1 events, each the same, each retried in full") if $digest =~ /^events (\d+)/m;
$_->stop for ($old, $new);
done_testing();
