# pg_upgrade from an older major version, by copy and by link: the same polls, events, results and snapshots, every retry a
# duplicate, the next revision of every poll, other epochs; a trigger, a table and a view of the user's over ours go on.
# Needs another server with the extension beside this one: POLL_TALLY_OLD_SERVER names its folder, with bin in it
# (scripts/upgrade-leg makes one).
use strict;
use warnings FATAL => 'all';

use File::Copy;
use PollTally;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use WorkerLife;

my $place = $ENV{POLL_TALLY_OLD_SERVER};
plan(skip_all => 'there is no older server') if !$place;

seed();
my $own = `$ENV{PG_CONFIG} --bindir` =~ s/\n//r;
my ($major) = `$ENV{PG_CONFIG} --version` =~ /(\d+)/;
my ($old_major) = `env LD_LIBRARY_PATH=$place/lib $place/bin/postgres --version` =~ /(\d+)/;
cmp_ok($old_major, '<', $major, "from $old_major to $major");

# From 18 on pg_upgrade looks for our library where the server's own are; it must be the one that is preloaded.
my $home = `$ENV{PG_CONFIG} --pkglibdir` =~ s/\n//r;
my ($built) = slurp_file($ENV{TEMP_CONFIG}) =~ /^dynamic_library_path = '([^:']*)/m;
copy("$built/poll_tally.so", $home) || die "cannot copy to $home: $!" if $major >= 18 && !-e "$home/poll_tally.so";

# The settings of this server's extension are none of the old one's.
my $config = delete $ENV{TEMP_CONFIG};
my $old = PostgreSQL::Test::Cluster->new('old', install_path => $place);
$old->init;
$old->append_conf('postgresql.conf', "fsync = off\nmax_connections = 100\nshared_preload_libraries = 'poll_tally'\nmax_worker_processes = 16\n"
	  . "max_prepared_transactions = 20\nlog_statement = none\n");
$old->start;
$ENV{TEMP_CONFIG} = $config;
$old->safe_psql('postgres', <<'SQL');
CREATE EXTENSION poll_tally;
CREATE ROLE anne; CREATE ROLE otto;
SELECT poll_tally.create_poll('busy', '{red,blue}', counting => 'every', publish_every => '20 milliseconds');
SELECT poll_tally.create_poll('still', '{red,blue}', title => 'Prüfung', publish_every => '1 day');
SELECT poll_tally.create_poll('latest', '{red,blue}', counting => 'latest', publish_every => '1 day');
SELECT poll_tally.create_counter('usage');
SELECT poll_tally.create_poll('over', '{red}');
SELECT count(*) FROM generate_series(1, 1000) AS g, poll_tally.accept_event('still', 'still-' || g, (ARRAY['red', 'blue'])[g % 2 + 1],
    'voter-' || g, payload => jsonb_build_object('n', g, 'text', repeat('ß', g)));
SELECT count(*) FROM generate_series(1, 100) AS g, poll_tally.accept_event('latest', 'latest-' || g, (ARRAY['red', 'blue'])[g % 2 + 1], 'voter-' || g % 30);
SELECT count(*) FROM generate_series(1, 100) AS g, poll_tally.accept_event('usage', 'usage-' || g,
    votes => (SELECT jsonb_object_agg('key-' || g * 40 + n, n) FROM generate_series(1, 40) AS n), source => 'stream', source_partition => 0, source_offset => g);
SELECT outcome FROM poll_tally.accept_event('over', 'over-1', 'red', 'voter');
SELECT outcome FROM poll_tally.retract_event('still', 'still-1', 'back-1');
SELECT (poll_tally.close_poll('over')).revision, poll_tally.advance_source('stream', 0, 101);
SELECT poll_tally.grant_submitter('anne'), poll_tally.grant_auditor('otto');
CREATE TABLE mine AS SELECT position, votes, 'accepted'::text AS outcome FROM poll_tally.events;
CREATE INDEX ON mine (position);
CREATE INDEX ON mine USING hash (votes);
CREATE VIEW mine_too AS SELECT poll, poll_tally.sum(effect) AS counts FROM poll_tally.events GROUP BY poll;
CREATE TABLE responses (id text, who text, choice text);
CREATE TRIGGER count AFTER INSERT ON responses REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT
    EXECUTE FUNCTION poll_tally.accept_rows('poll=''still''', 'event_id=id', 'principal=who', 'choice=choice');
INSERT INTO responses VALUES ('by-trigger', 'trigger-voter', 'red');
SQL
vote($old, 'postgres', 'busy', 100);
wait_published($old, 'postgres', 'busy');
set_all($old, 'poll_tally.publish' => 'off');
$old->safe_psql('postgres', q{SELECT (poll_tally.publish('still', true)).revision});
vote($old, 'postgres', 'busy', 5);
my $digest = ledger_digest($old, 'postgres');
my %revision = map { split /\|/ } lines_of($old, 'postgres', 'SELECT poll, max(revision) FROM poll_tally.snapshots GROUP BY poll');
my %epoch = map { split /\|/ } lines_of($old, 'postgres', 'SELECT DISTINCT poll, epoch FROM poll_tally.snapshots');
$old->safe_psql('postgres', q{BEGIN; SELECT outcome FROM poll_tally.accept_event('busy', 'prepared', 'red'); PREPARE TRANSACTION 'prepared'});
$old->stop;

my $folder = PostgreSQL::Test::Utils::tempdir;

sub new_server
{
	my ($name) = @_;
	my $new = PostgreSQL::Test::Cluster->new($name);
	$new->init($major >= 18 ? (extra => ['--no-data-checksums']) : ());
	$new->append_conf('postgresql.conf', "fsync = off\nmax_connections = 100\nlog_statement = none\npoll_tally.publish = off\n"
		  . ($major >= 18 ? "dynamic_library_path = '\$libdir'\n" : ''));
	return $new;
}

sub upgrade
{
	my ($new, @options) = @_;
	chdir $folder;
	local $ENV{LD_LIBRARY_PATH} = "$place/lib";
	my $done = system_log("$own/pg_upgrade", '--no-sync', '-b', "$place/bin", '-B', $own, '-d', $old->data_dir, '-D', $new->data_dir,
		'-p', $old->port, '-P', $new->port, '-s', PostgreSQL::Test::Utils::tempdir_short(), @options) == 0;
	chdir $ENV{TESTDIR};
	# What it found wrong is in files of its own.
	for my $file ($done ? () : glob($new->data_dir . '/pg_upgrade_output.d/*/{*.txt,log/pg_upgrade_dump_*.log}'))
	{
		note($_) for "$file:", grep { /rror:|could not/ } split /\n/, slurp_file($file);
	}
	return $done;
}

my $retries = "(SELECT a.outcome FROM poll_tally.events AS e, poll_tally.accept_event(e.poll, e.event_id, NULL, e.principal,"
  . " e.votes::jsonb, e.payload, e.source, e.source_partition, e.source_offset, e.occurred_at) AS a WHERE e.kind = 'event') AS r";

sub upgraded_ok
{
	my ($new, $what) = @_;
	$new->start;
	is(ledger_digest($new, 'postgres'), $digest, "$what: polls, choices, results, published, events and snapshots are the same");
	my %now = map { split /\|/ } lines_of($new, 'postgres', 'SELECT DISTINCT poll, epoch FROM poll_tally.snapshots');
	is_deeply([ grep { ($now{$_} // $epoch{$_}) eq $epoch{$_} } keys %epoch ], [], "$what: every epoch is another one");
	query_is($new, 'postgres', "SELECT outcome, count(*) > 1000 FROM $retries GROUP BY outcome", 'duplicate|t', "$what: every retry is a duplicate");
	query_is($new, 'postgres', q{SELECT counts FROM mine_too WHERE poll = 'over'}, '{"red": 1}', "$what: a view over ours works");
	query_is($new, 'postgres', q{SET enable_seqscan = off; SELECT count(*) FROM mine WHERE position OPERATOR(poll_tally.=) '0/1'}, 4, "$what: an index of positions works");
	$new->safe_psql('postgres', q{INSERT INTO responses VALUES ('by-trigger', 'trigger-voter', 'red'), ('by-trigger-2', 'trigger-voter-2', 'red')});
	query_is($new, 'postgres', q{SELECT count(*) FROM poll_tally.events WHERE event_id LIKE 'by-trigger%'}, 2, "$what: a trigger goes on, and knows what it sent");
	query_is($new, 'postgres', q{SELECT has_function_privilege('anne', f, 'EXECUTE') AND NOT has_function_privilege('otto', f, 'EXECUTE')
	    AND NOT has_function_privilege('public', f, 'EXECUTE') FROM to_regproc('poll_tally.accept_event') AS f}, 't', "$what: grants are there");
	query_is($new, 'postgres', q{SELECT outcome FROM poll_tally.accept_event('over', 'late', 'red', 'late')}, 'closed', "$what: what is closed is closed");
	query_is($new, 'postgres', q{SELECT poll_tally.source_position('stream', 0)}, 101, "$what: cursors are there");
	sqlstate_is($new, 'postgres', 'DELETE FROM poll_tally.ledger', '55000', "$what: the guard is there");
	$new->append_conf('postgresql.conf', 'poll_tally.publish = on');
	$new->reload;
	ok($new->poll_query_until('postgres', q{SELECT gap = 0 FROM poll_tally.lag WHERE poll = 'busy'}), "$what: the worker publishes what was not");
	query_is($new, 'postgres', q{SELECT revision FROM poll_tally.snapshot('busy')}, $revision{busy} + 1, "$what: as the next revision");
	published_ok($new, 'postgres', 'busy', $what);
	poll_is_true($new, 'postgres', $_, "$what: $_ holds together") for polls_of($new, 'postgres');
	$new->safe_psql('postgres', 'DROP EXTENSION poll_tally CASCADE');
	$new->stop;
	return;
}

my %new = map { $_ => new_server($_) } ('copied', 'linked');
ok(!upgrade($new{copied}, '--check'), 'pg_upgrade refuses while a transaction is prepared');
$old->start;
$old->safe_psql('postgres', q{ROLLBACK PREPARED 'prepared'});
# Some minor releases mark every column with an option that older ones of the next major do not know, whatever the table:
# no upgrade between two such servers passes. It is no matter of ours.
if (slurp_file("$place/bin/postgres") =~ /pg_attver/ && slurp_file("$own/postgres") !~ /pg_attver/)
{
	note('the new server does not know pg_attver: taken off');
	$old->safe_psql($_, q{UPDATE pg_attribute SET attoptions = NULL WHERE attoptions::text LIKE '%pg_attver%'}) for ('postgres', 'template1');
}
$old->stop;
ok(upgrade($new{copied}, '-j', 2), 'pg_upgrade by copy, two jobs') && upgraded_ok($new{copied}, "$old_major to $major, by copy");
ok(upgrade($new{linked}, '--link'), 'pg_upgrade by link') && upgraded_ok($new{linked}, "$old_major to $major, by link");
my ($events) = $digest =~ /^events (\d+)/m;
figure("pg_upgrade from $old_major to $major, by copy with two jobs and by link: $events ledger entries the same, every retry a duplicate, "
	  . scalar(keys %epoch) . ' epochs others');
done_testing();
