# The life of an installation. A dump in every format, by a superuser and by an owner that is none, while clients vote and the
# worker publishes, restored for the same owner and for another. pg_upgrade, by copy and by link. Every released script updated
# to the present one ends as a fresh installation, and the new library serves the old script until then. Single-user mode. The
# extension dropped and created anew under load. (Elsewhere: not preloaded, 003 and 054; hot standby, 007 and 085.)
use strict;
use warnings FATAL => 'all';

use File::Basename qw(basename);
use IPC::Run qw(run);
use PollTally;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use WorkerLife;

my $seed = seed();
my $folder = PostgreSQL::Test::Utils::tempdir;
my $node = new_node('life', 'fsync = off', q{deadlock_timeout = '50ms'});

# Two databases: of a superuser, and of a keeper that was one when it installed.
$node->safe_psql('postgres', 'CREATE ROLE keeper SUPERUSER LOGIN; CREATE ROLE anne; CREATE ROLE otto');
my %owner = (plain_life => 'postgres', kept_life => 'keeper');
for my $database (sort keys %owner)
{
	$node->safe_psql('postgres', "CREATE DATABASE $database OWNER $owner{$database}");
	$node->safe_psql($database, "SET SESSION AUTHORIZATION $owner{$database}; " . <<'SQL');
CREATE EXTENSION poll_tally;
SELECT poll_tally.create_poll('busy', '{red,blue}', counting => 'every', publish_every => '20 milliseconds');
SELECT poll_tally.create_poll('still', '{red,blue}', title => 'a title', publish_every => '1 day');
SELECT poll_tally.create_counter('wide');
SELECT poll_tally.create_poll('over', '{red}');
SELECT count(*) FROM generate_series(1, 500) AS g,
    poll_tally.accept_event('still', 'still-' || g, (ARRAY['red', 'blue'])[g % 2 + 1], 'voter-' || g, payload => jsonb_build_object('n', g));
SELECT count(*) FROM generate_series(1, 20) AS g, poll_tally.accept_event('wide', 'wide-' || g,
    votes => (SELECT jsonb_object_agg('key-' || g * 40 + n, n) FROM generate_series(1, 40) AS n));
SELECT outcome FROM poll_tally.accept_event('over', 'over-1', 'red', 'voter');
SELECT (poll_tally.close_poll('over')).revision;
SELECT poll_tally.grant_submitter('anne'), poll_tally.grant_auditor('otto');
SQL
}
$node->safe_psql('postgres', 'ALTER ROLE keeper NOSUPERUSER');

# --- dumps ----------------------------------------------------------------------------------------------------------

my $retries = "(SELECT a.outcome FROM poll_tally.events AS e, poll_tally.accept_event(e.poll, e.event_id, NULL, e.principal,"
  . " e.votes::jsonb, e.payload, e.source, e.source_partition, e.source_offset, e.occurred_at) AS a WHERE e.kind = 'event') AS r";
my %dump = (
	plain => [ ['-Fp'], sub { ('psql', '-Xq', '-o', '/dev/null', '-v', 'ON_ERROR_STOP=1', '-f', $_[0]) } ],
	custom => [ ['-Fc'], sub { ('pg_restore', '--exit-on-error', $_[0]) } ],
	directory => [ [ '-Fd', '-j', 2 ], sub { ('pg_restore', '--exit-on-error', $_[0]) } ],
	tar => [ ['-Ft'], sub { ('pg_restore', '--exit-on-error', $_[0]) } ],
	# The same archive as custom, in one transaction.
	whole => [ ['-Fc'], sub { ('pg_restore', '--exit-on-error', '--single-transaction', $_[0]) } ]);
my $restores = 0;

sub quiet_ok
{
	my ($what, @command) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($out, $err) = run_command(\@command);
	return is($err, '', "$what: $command[0] has nothing to say");
}

# A restored database is as the original was in the dump's snapshot; then its worker, its voters and its owner go on.
sub restored_ok
{
	my ($database, $digest, $owner, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	# The worker may have published what was moved; nothing else may differ.
	my @differ = grep { $digest !~ /^\Q$_\E$/m } grep { !/^(published|snapshots) / } split /\n/, ledger_digest($node, $database);
	is_deeply(\@differ, [], "$what: polls, choices, results and events are the same");
	query_is($node, $database, q{SELECT relowner::regrole FROM pg_class WHERE oid = 'poll_tally.ledger'::regclass}, $owner, "$what: it belongs to $owner");
	poll_is_true($node, $database, $_, "$what: $_ holds together") for ('busy', 'still', 'wide', 'over');
	query_is($node, $database, "SELECT outcome, count(*) = (SELECT count(*) FROM poll_tally.events) FROM $retries GROUP BY outcome", 'duplicate|t',
		"$what: every retry is a duplicate");
	true_ok($node, $database, <<'SQL', "$what: grants are there");
SELECT has_function_privilege('anne', f, 'EXECUTE') AND NOT has_function_privilege('otto', f, 'EXECUTE')
   AND has_table_privilege('otto', 'poll_tally.events', 'SELECT') AND NOT has_table_privilege('anne', 'poll_tally.events', 'SELECT')
   AND NOT has_function_privilege('public', f, 'EXECUTE')
FROM to_regproc('poll_tally.accept_event') AS f
SQL
	published_ok($node, $database, 'busy', $what);
	query_is($node, $database, q{SELECT outcome FROM poll_tally.accept_event('over', 'late', 'red', 'late')}, 'closed', "$what: what is closed is closed");
	return;
}

my @voters = map { start_voter($node, $_, 'busy', 0.02) } sort keys %owner;
$node->safe_psql('postgres', 'CREATE ROLE steward SUPERUSER LOGIN');
for my $source (sort keys %owner)
{
	wait_until(sub { $node->safe_psql($source, q{SELECT revision > 3 FROM poll_tally.snapshot('busy')}) eq 't' }) || die 'no votes are published';
	# One snapshot for all formats, taken while votes come in.
	my $holder = $node->background_psql($source);
	my $snapshot = $holder->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT pg_export_snapshot()');
	my $digest = ledger_digest($node, $source, "BEGIN ISOLATION LEVEL REPEATABLE READ; SET TRANSACTION SNAPSHOT '$snapshot';");
	my @as = $owner{$source} eq 'postgres' ? () : ('--no-owner');
	my $new = $owner{$source} eq 'postgres' ? 'postgres' : 'steward';
	# The short form tries each format once.
	my @formats = deep() ? sort keys %dump : $owner{$source} eq 'postgres' ? ('custom', 'whole') : ('directory', 'plain', 'tar');
	for my $format (@formats)
	{
		my $what = "$format dump by $owner{$source}" . ($owner{$source} eq 'postgres' ? '' : ", who is no superuser, restored by $new");
		quiet_ok($what, 'pg_dump', @{ $dump{$format}[0] }, @as, "--snapshot=$snapshot", '-f', "$folder/$source.$format", '-d',
			$node->connstr($source) . " user=$owner{$source}");
		my $database = "${source}_$format";
		$node->safe_psql('postgres', "CREATE DATABASE $database");
		my ($program, @arguments) = $dump{$format}[1]->("$folder/$source.$format");
		quiet_ok($what, $program, ($program eq 'psql' ? () : @as), '-d', $node->connstr($database) . " user=$new", @arguments);
		restored_ok($database, $digest, $new, $what);
		$restores++;
	}
	$holder->query_safe('COMMIT');
	$holder->quit;
}

# Jobs restore tables in any order, and the worker looks in between: what it publishes, and what it closes since a deadline
# has passed meanwhile, has to wait for the rest. Here the order is the worst, and the worker has time to look: a session
# that has the name of pg_restore stands for the one that takes long.
set_all($node, 'poll_tally.publish' => 'off');
$node->safe_psql('postgres', 'CREATE DATABASE jobs');
$node->safe_psql('jobs', <<'SQL');
CREATE EXTENSION poll_tally;
SELECT poll_tally.create_counter('usage');
SELECT poll_tally.create_poll('late', counting => 'every', open_choices => true, closes_at => clock_timestamp() + interval '500 ms');
SELECT count(*) FROM generate_series(1, 50) AS g, poll_tally.accept_event('usage', 'usage-' || g, 'key-' || g % 9);
SELECT count(*) FROM generate_series(1, 50) AS g, poll_tally.accept_event('late', 'late-' || g, 'key-' || g % 9, 'voter-' || g);
SQL
$node->poll_query_until('jobs', q{SELECT closes_at < clock_timestamp() FROM poll_tally.polls WHERE poll = 'late'});
quiet_ok('jobs', 'pg_dump', '-Fd', '-j', 2, '-f', "$folder/jobs", '-d', $node->connstr('jobs'));
set_all($node, 'poll_tally.publish' => undef);
my @entries = grep { !/^;/ } split /\n/, (run_command([ 'pg_restore', '-l', "$folder/jobs" ]))[0];
my @last = grep { /TABLE DATA poll_tally (lane_count|snapshot|roll) / } @entries;
is(scalar(@last), 3, 'jobs: three tables come late');
append_to_file("$folder/jobs.first", join("\n", grep { my $entry = $_; !grep { $_ eq $entry } @last } @entries) . "\n");
append_to_file("$folder/jobs.last", join("\n", @last) . "\n");
$node->safe_psql('postgres', 'CREATE DATABASE jobs_restored');
my $restoring = do { local $ENV{PGAPPNAME} = 'pg_restore'; $node->background_psql('jobs_restored') };
quiet_ok('jobs, most of it', 'pg_restore', '-j', 2, '--exit-on-error', '-L', "$folder/jobs.first", '-d', $node->connstr('jobs_restored'), "$folder/jobs");
query_is($node, 'jobs_restored', q{SELECT count(*) FROM poll_tally.polls WHERE poll = 'late' AND closes_at < clock_timestamp()}, '1', 'jobs: a deadline has passed');
my $heartbeat = q{SELECT coalesce(max(heartbeat_at), '-infinity') FROM poll_tally.workers WHERE database = 'jobs_restored' AND state = 'idle'};
for (1 .. 3)
{
	my $seen = $node->safe_psql('jobs_restored', $heartbeat);
	ok(wait_until(sub { $node->safe_psql('jobs_restored', $heartbeat) gt $seen }), 'the worker looks');
}
query_is($node, 'jobs_restored', 'SELECT count(*) FROM poll_tally.polls WHERE closed_at IS NOT NULL', '0', 'and leaves what may not be whole');
quiet_ok('jobs, the rest', 'pg_restore', '-j', 2, '--exit-on-error', '-L', "$folder/jobs.last", '-d', $node->connstr('jobs_restored'), "$folder/jobs");
$restoring->quit;
ok($node->poll_query_until('jobs_restored', 'SELECT bool_and(gap = 0) AND bool_or(final) FROM poll_tally.lag'), 'and goes on');
$restores++;
poll_is_true($node, 'jobs_restored', $_, "a restore by jobs: $_ holds together") for ('usage', 'late');
stop_voter($_) for @voters;
figure("dumps while clients vote and the worker publishes: $restores restores in 6 ways, 2 owners, each the same, each retried in full");

# --- scripts of other versions --------------------------------------------------------------------------------------

my $present = slurp_file('sql/poll_tally.sql');
my ($version) = slurp_file('poll_tally.control') =~ /^default_version = '(.*)'/m;
my %script = map { basename($_) => slurp_file($_) } glob('test/released/poll_tally--*.sql');
my @released = map { /^poll_tally--(.*)\.sql$/ } sort keys %script;
my @steps = map { basename($_) } glob('sql/poll_tally--*--*.sql');

# What a release before this one could have been: without one function; and a step from there, once right and once without
# its last line.
my $function = qr/^CREATE FUNCTION poll_tally\.reset_stats\(\).*?;\nCOMMENT ON FUNCTION poll_tally\.reset_stats\(\).*?';\n/ms;
my ($step) = $present =~ /($function)/ or die 'no function to leave out';
my $revoke = "REVOKE ALL ON FUNCTION poll_tally.reset_stats() FROM PUBLIC;\n";
$script{'poll_tally--0.0.8.sql'} = $script{'poll_tally--0.0.9.sql'} = $present =~ s/$function//r;
$script{"poll_tally--0.0.9--$version.sql"} = $step . $revoke;
$script{"poll_tally--0.0.8--$version.sql"} = $step;
my $setting = extension_with(%script);

sub catalog
{
	my ($node, $database) = @_;
	return $node->safe_psql($database, slurp_file('test/lib/catalog.sql'));
}

SKIP:
{
	skip('this server finds extensions in one place only', 1) if !defined $setting;
	my $old = new_node('old', 'fsync = off', $setting);
	$old->safe_psql('postgres', 'CREATE DATABASE fresh');
	$old->safe_psql('fresh', 'CREATE EXTENSION poll_tally');
	my $fresh = catalog($old, 'fresh');
	my $objects = () = $fresh =~ /^/mg;
	cmp_ok($objects, '>', 150, 'a fresh installation has its objects');
	for my $from ('0.0.8', '0.0.9', @released)
	{
		next if $from eq $version;
		my $database = "from_$from" =~ tr/./_/r;
		$old->safe_psql('postgres', "CREATE DATABASE $database");
		$old->safe_psql($database, "CREATE EXTENSION poll_tally VERSION '$from'");
		# The new library with the old script.
		query_is($old, $database, 'SELECT library, script FROM poll_tally.version()', "$version|$from", "$from: the library is new, the script old");
		make_poll($old, $database, 'life');
		published_ok($old, $database, 'life', "$from with the new library");
		isnt(catalog($old, $database), $fresh, "$from: it differs from a fresh installation");
		my $digest = ledger_digest($old, $database);
		$old->safe_psql($database, "ALTER EXTENSION poll_tally UPDATE TO '$version'");
		is(ledger_digest($old, $database), $digest, "$from: the update loses nothing");
		query_is($old, $database, 'SELECT library = script FROM poll_tally.version()', 't', "$from: script and library agree");
		if ($from eq '0.0.8') { isnt(catalog($old, $database), $fresh, "$from: an update that forgets a line is noticed") }
		else { is(catalog($old, $database), $fresh, "$from: after the update it is a fresh installation") }
		published_ok($old, $database, 'life', "$from updated");
	}
	figure(scalar(@released) . ' released scripts and ' . scalar(@steps) . " steps found, each updated to $version and compared in $objects objects with a fresh installation; "
		  . 'two made up ones beside them, of which the one with a fault was noticed');
	$old->stop;
}
for my $from (map { /^poll_tally--(.*)--/ } @steps)
{
	ok((grep { $_ eq $from } @released), "the released script of $from is in test/released");
}

# --- the extension comes and goes under load ------------------------------------------------------------------------

my $rounds = deep() ? 50 : 5;
$node->safe_psql('postgres', 'CREATE DATABASE replaced');
my $offset = log_end($node);
my ($out, $err) = ('', '');
run([ '/usr/bin/python3', '-B', 'test/lib/replace.py', $node->connstr('replaced'), $rounds, $seed ], '<', \undef, '>', \$out, '2>', \$err)
  || die "replace.py failed: $err$out";
note($1) while $out =~ /^# (.*)$/mg;
my %result = $out =~ /^(\w+)=(.*)$/mg;
is($result{rounds}, $rounds, 'the extension was dropped and created as often as was meant');
is($result{wrong}, 0, 'clients were told what may be told, and what was acknowledged was there');
my ($last) = "gen-$rounds";
ok($node->poll_query_until('replaced', "SELECT gap = 0 FROM poll_tally.lag WHERE poll = '$last'"), 'the worker publishes the last one');
poll_is_true($node, 'replaced', $last, 'it holds together');
my @crashes = log_lines($node, qr/PANIC:|TRAP:|signal 6|signal 11|could not publish/, $offset);
is("@crashes", '', 'nothing crashed, and no publication failed');
query_is($node, 'replaced', q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'}, 0, 'no lane is left locked');
figure("DROP and CREATE EXTENSION under load of 8 voters and 2 readers: $rounds times, $result{acked} events acknowledged, wrong $result{wrong}; "
	  . "the last one holds $result{last_there} events, $result{last_acked} of them acknowledged");
$node->safe_psql('postgres', 'DROP DATABASE replaced');

# --- single-user mode -----------------------------------------------------------------------------------------------

my $single = new_node('single', 'fsync = off');
$single->safe_psql('postgres', 'CREATE EXTENSION poll_tally');
make_poll($single, 'postgres', 'life');
vote($single, 'postgres', 'life', 3);
wait_published($single, 'postgres', 'life');
$single->stop;
my @statements = (
	q{SELECT outcome FROM poll_tally.accept_event('life', 'alone', 'red')},
	q{SELECT outcome FROM poll_tally.accept_event('life', 'alone', 'red')},
	q{SELECT a.outcome FROM poll_tally.accept_events('life', '{alone,too}', '{blue,blue}') AS a},
	q{SELECT r.choice || '=' || r.count AS result FROM poll_tally.results AS r WHERE r.poll = 'life'},
	q{SELECT 'verified ' || bool_and(v.ok) AS verdict FROM poll_tally.verify_poll('life') AS v},
	q{SELECT 'workers ' || count(*) AS n FROM poll_tally.workers WHERE pid IS NOT NULL},
	q{SELECT 'revision ' || (poll_tally.publish('life', true)).revision AS revision},
	q{SELECT poll_tally.create_poll('made-alone', '{a}', publish_every => '100 milliseconds')},
	q{SELECT outcome FROM poll_tally.accept_event('made-alone', 'alone-2', 'a', 'me')});
my $input = join("\n", @statements) . "\n";
($out, $err) = ('', '');
run([ 'postgres', '--single', '-D', $single->data_dir, 'postgres' ], '<', \$input, '>', \$out, '2>', \$err) || die "single-user mode failed: $err";
unlike($err, qr/ERROR|FATAL|PANIC|WARNING/, 'single-user mode: no complaint') || diag($err);
my @answers = $out =~ /^\s*1: \w+ = "(.*?)"/mg;
is_deeply([ grep { !/^$/ } @answers ], [ 'accepted', 'duplicate', 'conflict', 'accepted', 'red=2', 'blue=3', 'verified true', 'workers 0', 'revision 3', 'accepted' ],
	'single-user mode: events are judged, counted, verified and published') || diag($out);
$single->start;
query_is($single, 'postgres', q{SELECT count(*) FROM poll_tally.events}, 6, 'the server has what was sent');
published_ok($single, 'postgres', $_, "after single-user mode, $_") for ('life');
ok($single->poll_query_until('postgres', q{SELECT gap = 0 FROM poll_tally.lag WHERE poll = 'made-alone'}), 'and publishes what was not');
poll_is_true($single, 'postgres', $_, "after single-user mode: $_ holds together") for polls_of($single, 'postgres');
figure('single-user mode: ' . scalar(@statements) . ' statements answered as with a server');
$single->stop;

# --- pg_upgrade -----------------------------------------------------------------------------------------------------

# Databases of both owners, one with votes that are not published yet; by link at the end, since that takes the old files.
$node->safe_psql('postgres', "DROP DATABASE $_") for grep { !$owner{$_} && $_ !~ /^(postgres|template)/ } lines_of($node, 'postgres', 'SELECT datname FROM pg_database');
set_all($node, 'poll_tally.publish' => 'off');
vote($node, $_, 'busy', 10) for sort keys %owner;
my %before = map { $_ => ledger_digest($node, $_) } sort keys %owner;
my %epoch = map { $_ => $node->safe_psql($_, 'SELECT string_agg(epoch, \' \' ORDER BY epoch) FROM poll_tally.lag') } sort keys %owner;
$node->safe_psql('kept_life', q{BEGIN; SELECT outcome FROM poll_tally.accept_event('busy', 'prepared', 'red'); PREPARE TRANSACTION 'prepared'});
$node->stop;
my $own = `$ENV{PG_CONFIG} --bindir` =~ s/\n//r;

# upgrade(NEW, BINDIR, OPTION...): true when pg_upgrade ended well.
sub upgrade
{
	my ($new, $bin, @options) = @_;
	chdir $folder;
	my $sockets = PostgreSQL::Test::Utils::tempdir_short();
	my $done = system_log("$bin/pg_upgrade", ($bin eq $own ? '--no-sync' : ()), '-b', $own, '-B', $bin, '-d', $node->data_dir, '-D', $new->data_dir, '-p', $node->port, '-P',
		$new->port, '-s', $sockets, @options) == 0;
	chdir $ENV{TESTDIR};
	return $done;
}

sub upgraded_ok
{
	my ($new, $what) = @_;
	$new->append_conf('postgresql.conf', 'poll_tally.publish = on');
	$new->start;
	for my $database (sort keys %owner)
	{
		my @differ = grep { $before{$database} !~ /^\Q$_\E$/m } grep { !/^(published|snapshots) / } split /\n/, ledger_digest($new, $database);
		is_deeply(\@differ, [], "$what, $database: polls, choices, results and events are the same");
		query_is($new, $database, q{SELECT relowner::regrole FROM pg_class WHERE oid = 'poll_tally.ledger'::regclass}, $owner{$database}, "$what, $database: the owner is the same");
		published_ok($new, $database, 'busy', "$what, $database");
		my $retried = 'SELECT count(*), count(*) FILTER (WHERE outcome <> \'duplicate\') FROM ' . $retries;
		like($new->safe_psql($database, $retried), qr/^\d{3,}\|0$/, "$what, $database: every retry is a duplicate");
		poll_is_true($new, $database, $_, "$what, $database: $_ holds together") for polls_of($new, $database);
		isnt($new->safe_psql($database, 'SELECT string_agg(epoch, \' \' ORDER BY epoch) FROM poll_tally.lag'), $epoch{$database}, "$what, $database: epochs are others");
	}
	$new->stop;
	return;
}

my $copied = PostgreSQL::Test::Cluster->new('copied');
$copied->init;
$copied->append_conf('postgresql.conf', "fsync = off\nmax_connections = 100\n");
ok(!upgrade($copied, $own, '--check'), 'pg_upgrade refuses while a transaction is prepared');
$node->start;
$node->safe_psql('kept_life', q{ROLLBACK PREPARED 'prepared'});
$node->stop;
if (deep())
{
	ok(upgrade($copied, $own, '-j', 2), 'pg_upgrade by copy, two jobs') && upgraded_ok($copied, 'copied');
}
my $linked = PostgreSQL::Test::Cluster->new('linked');
$linked->init;
$linked->append_conf('postgresql.conf', "fsync = off\nmax_connections = 100\n");
ok(upgrade($linked, $own, '--link'), 'pg_upgrade by link') && upgraded_ok($linked, 'linked');
figure('pg_upgrade ' . (deep() ? 'by copy with two jobs and ' : '') . 'by link, ' . scalar(keys %owner)
	  . ' databases of two owners: the same events, every retry a duplicate, other epochs');
done_testing();
