# The epoch of a poll: another one after whatever could make revisions run backwards, the same one after anything else,
# and equal on primary and standby. No two of all that are seen here are equal.
use strict;
use warnings FATAL => 'all';

use PollTally;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use WorkerLife;

seed();
my $folder = PostgreSQL::Test::Utils::tempdir;
my $primary = PostgreSQL::Test::Cluster->new('primary');
$primary->init(allows_streaming => 1, has_archiving => 1);
$primary->append_conf('postgresql.conf', "max_connections = 100\nrestart_after_crash = on\nfsync = off\n"
	  . "allow_in_place_tablespaces = on\n");
$primary->start;
$primary->safe_psql('postgres', 'CREATE EXTENSION poll_tally');
make_poll($primary, 'postgres', 'life');
make_poll($primary, 'postgres', 'over');
vote($primary, 'postgres', 'over', 10);
$primary->safe_psql('postgres', q{SELECT poll_tally.close_poll('over')});

# --- every epoch that was seen --------------------------------------------------------------------------------------

my %seen;
my ($changes, $stays) = (0, 0);

sub epoch_of
{
	my ($node, $database, $poll) = @_;
	return $node->safe_psql($database // 'postgres', q{SELECT epoch FROM poll_tally.snapshot('} . ($poll // 'life') . q{')});
}

# new_epoch_ok(EPOCH, WHAT): one that was never seen before.
sub new_epoch_ok
{
	my ($epoch, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$changes++;
	ok($epoch =~ /^\S{1,64}$/ && !exists $seen{$epoch}, "$what: another epoch")
	  || diag("'$epoch' was that of: " . ($seen{$epoch} // 'none'));
	$seen{$epoch} = $what;
	return $epoch;
}

sub same_epoch_ok
{
	my ($epoch, $expected, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$stays++;
	return is($epoch, $expected, "$what: the same epoch");
}

my $epoch = new_epoch_ok(epoch_of($primary), 'a poll');
new_epoch_ok(epoch_of($primary, 'postgres', 'over'), 'another poll');

# --- primary and standby --------------------------------------------------------------------------------------------

$primary->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'base', has_streaming => 1);
$standby->start;

sub standby_agrees_ok
{
	my ($what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$primary->wait_for_catchup($standby, 'replay', $primary->lsn('write'));
	$stays++;
	my @all = map { $_->safe_psql('postgres', q{SELECT string_agg(poll || '=' || epoch, ' ' ORDER BY poll) FROM poll_tally.lag}) }
	  ($primary, $standby);
	return is($all[1], $all[0], "$what: the standby agrees");
}

standby_agrees_ok('a new standby');

# --- what does not change it ----------------------------------------------------------------------------------------

my $tables = q{SELECT format('VACUUM FULL %s', c.oid::regclass) FROM pg_class AS c
    WHERE c.relnamespace = 'poll_tally'::regnamespace AND c.relkind = 'r' \gexec
};
my @harmless = (
	[ 'VACUUM FULL of every table', sub { $primary->safe_psql('postgres', $tables) } ],
	[ 'CLUSTER', sub { $primary->safe_psql('postgres', 'CLUSTER poll_tally.poll USING poll_pkey') } ],
	[ 'REINDEX', sub { $primary->safe_psql('postgres', 'REINDEX SCHEMA poll_tally') } ],
	[ 'another publisher', sub {
			$primary->safe_psql('postgres', 'SELECT pg_terminate_backend(' . publisher_of($primary, 'postgres') . ')');
		} ],
	[ 'another launcher', sub { kill 'TERM', launcher_of($primary) } ],
	[ 'publishing by hand', sub {
			set_all($primary, 'poll_tally.publish' => 'off');
			vote($primary, 'postgres', 'life');
			$primary->safe_psql('postgres', q{SELECT poll_tally.publish('life', true)});
			set_all($primary, 'poll_tally.publish' => undef);
		} ],
	[ 'kill -9 of the publisher', sub { kill_worker($primary, publisher_of($primary, 'postgres')) } ],
	[ 'restart', sub { $primary->restart } ],
	[ 'crash recovery', sub { $primary->stop('immediate'); $primary->start } ],
	[ 'restart of the standby', sub { $standby->restart } ],
	[ 'crash of the standby', sub { $standby->stop('immediate'); $standby->start } ],
	[ 'other polls made and dropped', sub {
			$primary->safe_psql('postgres', q{SELECT poll_tally.create_poll('short'); SELECT poll_tally.close_poll('short');
			    SELECT poll_tally.drop_poll('short')});
		} ]);
for my $case (@harmless)
{
	my ($name, $do) = @$case;
	wait_until(sub { publisher_of($primary, 'postgres') != 0 }) || die 'no publisher';
	$do->();
	same_epoch_ok(epoch_of($primary), $epoch, $name);
	standby_agrees_ok($name);
}
published_ok($primary, 'postgres', 'life', 'after all that');

# Revisions of one epoch go on, whatever happened.
query_is($primary, 'postgres', q{SELECT min(revision), max(revision) = count(*), count(DISTINCT epoch) FROM poll_tally.snapshots
    WHERE poll = 'life'}, '1|t|1', 'one epoch, all of its revisions');

# Of a database: its name and place are not its identity.
$primary->safe_psql('postgres', q{CREATE TABLESPACE elsewhere LOCATION ''; CREATE DATABASE other});
$primary->safe_psql('other', 'CREATE EXTENSION poll_tally');
make_poll($primary, 'other', 'life');
my $other = new_epoch_ok(epoch_of($primary, 'other'), 'the same poll in another database');
$primary->safe_psql('postgres', 'ALTER DATABASE other RENAME TO renamed');
same_epoch_ok(epoch_of($primary, 'renamed'), $other, 'ALTER DATABASE RENAME');
$primary->safe_psql('postgres', 'ALTER DATABASE renamed SET TABLESPACE elsewhere');
same_epoch_ok(epoch_of($primary, 'renamed'), $other, 'ALTER DATABASE SET TABLESPACE');
$primary->safe_psql('postgres', 'CREATE DATABASE copy TEMPLATE renamed');
new_epoch_ok(epoch_of($primary, 'copy'), 'CREATE DATABASE TEMPLATE');

# --- what changes it, by its own hand -------------------------------------------------------------------------------

$primary->safe_psql('postgres', 'SELECT poll_tally.renew_epoch()');
$epoch = new_epoch_ok(epoch_of($primary), 'renew_epoch()');
standby_agrees_ok('renew_epoch()');
new_epoch_ok(epoch_of($primary, 'postgres', 'over'), 'renew_epoch(), another poll');
$primary->safe_psql('postgres', 'BEGIN; SELECT poll_tally.renew_epoch(); ROLLBACK');
same_epoch_ok(epoch_of($primary), $epoch, 'renew_epoch() rolled back');
$primary->restart;
same_epoch_ok(epoch_of($primary), $epoch, 'restart after renew_epoch()');
published_ok($primary, 'postgres', 'life', 'after renew_epoch()');

$primary->safe_psql('postgres', q{SELECT poll_tally.drop_poll('over')});
make_poll($primary, 'postgres', 'over');
new_epoch_ok(epoch_of($primary, 'postgres', 'over'), 'a poll dropped and created anew');
same_epoch_ok(epoch_of($primary), $epoch, 'another poll dropped');
standby_agrees_ok('a poll dropped and created anew');

my $copied = epoch_of($primary, 'copy');
$primary->safe_psql('copy', 'DROP EXTENSION poll_tally; CREATE EXTENSION poll_tally');
make_poll($primary, 'copy', 'life');
isnt(new_epoch_ok(epoch_of($primary, 'copy'), 'the extension dropped and created anew'), $copied, 'not the one before');
$primary->safe_psql('postgres', 'DROP DATABASE copy; CREATE DATABASE copy TEMPLATE renamed');
new_epoch_ok(epoch_of($primary, 'copy'), 'a database dropped and created anew');

# --- dumps ----------------------------------------------------------------------------------------------------------

my $dump = "$folder/dump.sql";
system_or_bail('pg_dump', '-f', $dump, '-d', $primary->connstr('postgres'));
my $foreign = new_node('foreign', 'fsync = off');
for my $place ([ $primary, 'the same server' ], [ $foreign, 'another server' ])
{
	my ($node, $where) = @$place;
	$node->safe_psql('postgres', 'CREATE DATABASE restored');
	system_or_bail('psql', '-Xqo', '/dev/null', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('restored'), '-f', $dump);
	new_epoch_ok(epoch_of($node, 'restored'), "a dump restored into another database of $where");
	published_ok($node, 'restored', 'life', "a dump restored into $where");
}
# In place: the tables go, and come back with the dump.
$primary->safe_psql('restored', 'DROP EXTENSION poll_tally; DROP SCHEMA IF EXISTS poll_tally');
system_or_bail('psql', '-Xqo', '/dev/null', '-v', 'ON_ERROR_STOP=1', '-d', $primary->connstr('restored'), '-f', $dump);
new_epoch_ok(epoch_of($primary, 'restored'), 'a dump restored into the same database');
same_epoch_ok(epoch_of($primary), $epoch, 'the database that was dumped');

# --- point-in-time recovery -----------------------------------------------------------------------------------------

$primary->backup('pitr');
vote($primary, 'postgres', 'life', 5);
my ($at_revision) = split / /, wait_published($primary, 'postgres', 'life');
$primary->safe_psql('postgres', q{SELECT pg_create_restore_point('here')});
published_ok($primary, 'postgres', 'life', 'after the restore point');
$primary->safe_psql('postgres', 'SELECT pg_switch_wal()');
my $segments = $primary->archive_dir;
my $last = $primary->safe_psql('postgres', 'SELECT pg_walfile_name(pg_current_wal_lsn())');
ok($primary->poll_query_until('postgres', "SELECT last_archived_wal >= '$last' OR (SELECT count(*) FROM pg_ls_dir('$segments')) > 0"
	  . ' AND last_failed_wal IS NULL FROM pg_stat_archiver'), 'the log is archived');
my $past = PostgreSQL::Test::Cluster->new('past');
$past->init_from_backup($primary, 'pitr', has_restoring => 1, standby => 0);
$past->append_conf('postgresql.conf', "archive_mode = off\nrecovery_target_name = 'here'\nrecovery_target_action = promote\n");
$past->start;
$past->poll_query_until('postgres', 'SELECT NOT pg_is_in_recovery()') || die 'recovery does not end';
my $past_epoch = new_epoch_ok(epoch_of($past), 'point-in-time recovery');
published_ok($past, 'postgres', 'life', 'point-in-time recovery');
cmp_ok($past->safe_psql('postgres', q{SELECT min(revision) FROM poll_tally.snapshots WHERE poll = 'life' AND revision > }
	  . $at_revision), '==', $at_revision + 1, 'a revision that the primary has too, with other content, is of another epoch');
$past->restart;
same_epoch_ok(epoch_of($past), $past_epoch, 'restart after the recovery');
$past->stop;
# A timeline is a number. Two servers that leave it at different points, and do not share an archive, both come to the
# next number; docs/operations.md says what to do. So this one is forgotten before the other leaves.
delete $seen{$past_epoch};

# --- promotion ------------------------------------------------------------------------------------------------------

standby_agrees_ok('before promotion');
$primary->stop;
$standby->promote;
my $promoted = new_epoch_ok(epoch_of($standby), 'promotion');
published_ok($standby, 'postgres', 'life', 'promotion');
same_epoch_ok(epoch_of($standby), $promoted, 'the new primary');
$standby->safe_psql('postgres', 'CHECKPOINT');
same_epoch_ok(epoch_of($standby), $promoted, 'checkpoint after promotion');
$standby->stop('immediate');
$standby->start;
same_epoch_ok(epoch_of($standby), $promoted, 'crash after promotion');
$standby->backup('second');
my $second = PostgreSQL::Test::Cluster->new('second');
$second->init_from_backup($standby, 'second', has_streaming => 1);
$second->start;
$standby->wait_for_catchup($second, 'replay', $standby->lsn('write'));
same_epoch_ok(epoch_of($second), $promoted, 'a standby of the new primary');
$standby->stop;
$second->promote;
new_epoch_ok(epoch_of($second), 'a second promotion');
published_ok($second, 'postgres', 'life', 'a second promotion');

# --- pg_upgrade -----------------------------------------------------------------------------------------------------

my $before = epoch_of($second);
my $digest = ledger_digest($second, 'postgres');
my $revision = $second->safe_psql('postgres', q{SELECT revision FROM poll_tally.snapshot('life')});
$second->stop;
my $upgraded = PostgreSQL::Test::Cluster->new('upgraded');
$upgraded->init;
$upgraded->append_conf('postgresql.conf', "fsync = off\nallow_in_place_tablespaces = on\n");
# In-place tablespaces are for tests, and pg_upgrade does not know them.
$second->start;
$second->safe_psql('postgres', 'DROP DATABASE copy; ALTER DATABASE renamed SET TABLESPACE pg_default;'
	  . ' DROP TABLESPACE elsewhere');
$second->stop;
my $bin = `${\($ENV{PG_CONFIG} // 'pg_config')} --bindir` =~ s/\n//r;
chdir $folder;
my $sockets = PostgreSQL::Test::Utils::tempdir_short();
my $done = system_log('pg_upgrade', '--no-sync', '-b', $bin, '-B', $bin, '-d', $second->data_dir, '-D', $upgraded->data_dir,
	'-p', $second->port, '-P', $upgraded->port, '-s', $sockets) == 0;
ok($done, 'pg_upgrade');
SKIP:
{
	skip('pg_upgrade failed', 6) if !$done;
	$upgraded->start;
	new_epoch_ok(epoch_of($upgraded), 'pg_upgrade');
	is(ledger_digest($upgraded, 'postgres'), $digest, 'pg_upgrade loses nothing');
	query_is($upgraded, 'postgres', q{SELECT revision FROM poll_tally.snapshot('life', '} . $before . qq{', $revision)}, $revision,
		'a viewer of the old server gets the snapshot again, of the new epoch');
	published_ok($upgraded, 'postgres', 'life', 'pg_upgrade');
	$upgraded->stop;
}

figure("epochs: $changes changes, no two epochs equal; $stays times the same, " . scalar(@harmless)
	  . ' kinds of harmless events; standby = primary each time');
$foreign->stop;
done_testing();
