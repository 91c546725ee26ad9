# The life-cycle table: each event that can meet the worker, while it is idle, busy, and in the middle of a publication.
# After each a moved poll is published within its interval and 5 s, by the next revision, with one history, and verify_poll
# agrees. Events are: the server wants its database or another one for itself; the extension comes, goes and is updated; the
# configuration changes; the worker is cancelled, terminated or killed; one poll cannot be published; the NOTIFY queue is
# full; the server is read-only; worker slots are short; binary upgrade. And its memory does not grow.
use strict;
use warnings FATAL => 'all';

use IPC::Run qw(run);
use PollTally;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);
use WorkerLife;

seed();

# --- a version to update to -----------------------------------------------------------------------------------------

my $updatable = extension_with(
	'poll_tally--0.1.0--0.1.1.sql' => "CREATE FUNCTION poll_tally.newer() RETURNS int LANGUAGE sql RETURN 1;\n",
	'poll_tally--0.1.1--0.1.0.sql' => "DROP FUNCTION poll_tally.newer();\n");
my $node = new_node('lifecycle', 'fsync = off', 'allow_in_place_tablespaces = on', 'max_worker_processes = 16',
	'poll_tally.keep_snapshots = 2000', q{test.queue_usage = '0.1'}, $updatable // '');

# --- a second server, on which the worker makes pass after pass meanwhile -------------------------------------------

my $passes = deep() ? 10_000 : 2_000;
my $steady = new_node('steady', 'fsync = off', 'poll_tally.keep_snapshots = 10');
$steady->safe_psql('postgres', 'CREATE EXTENSION poll_tally');
make_poll($steady, 'postgres', 'steady', "publish_every => '1 millisecond'");
make_poll($steady, 'postgres', "quiet-$_") for 1 .. 5;
my $steady_voter = start_voter($steady, 'postgres', 'steady', 0.005);

sub passes_done
{
	return $steady->safe_psql('postgres',
		q{SELECT coalesce(max(value), 0) FROM poll_tally.metrics WHERE name = 'poll_tally_publish_attempts_total'});
}

# kB of its own memory, of a process.
sub memory_of
{
	my ($pid) = @_;
	my ($anonymous) = slurp_file("/proc/$pid/status") =~ /^RssAnon:\s*(\d+) kB/m;
	return $anonymous;
}

# --- databases ------------------------------------------------------------------------------------------------------

# The events meet the worker of home; model is another one.
sub furnish
{
	my ($database) = @_;
	$node->safe_psql($database, 'CREATE EXTENSION poll_tally');
	hold_publication($node, $database);
	make_poll($node, $database, 'life', "publish_every => '20 milliseconds'");
	make_poll($node, $database, 'sick', "publish_every => '20 milliseconds'");
	return;
}

$node->safe_psql('postgres', q{CREATE TABLESPACE elsewhere LOCATION ''});
$node->safe_psql('postgres', 'CREATE EXTENSION poll_tally');
for my $database ('home', 'model')
{
	$node->safe_psql('postgres', "CREATE DATABASE $database");
	furnish($database);
	published_ok($node, $database, 'life', "CREATE EXTENSION in $database");
}

# Caches fill in the first passes.
ok(wait_until(sub { passes_done() >= 300 }, 60), 'steady: 300 passes');
my $steady_from = passes_done();
my %memory_pid = (publisher => publisher_of($steady, 'postgres'), launcher => launcher_of($steady));
my %memory_from = map { $_ => memory_of($memory_pid{$_}) } keys %memory_pid;

# --- states ---------------------------------------------------------------------------------------------------------

# Each brings the worker of home into the state, and returns what ends the state where that is needed.
my %state = (
	idle => sub {
		wait_published($node, 'home', 'life');
		wait_until(sub { worker_value($node, 'state', 'publisher', 'home') eq 'idle' }) || die 'never idle';
		return sub { };
	},
	busy => sub {
		my $voter = start_voter($node, 'home', 'life');
		my $from = $node->safe_psql('home', q{SELECT revision FROM poll_tally.snapshot('life')});
		wait_until(sub { $node->safe_psql('home', q{SELECT revision FROM poll_tally.snapshot('life')}) > $from + 2 }, 60)
		  || die 'never busy';
		return sub { stop_voter($voter) if $voter; $voter = undef };
	},
	middle => sub {
		wait_published($node, 'home', 'life');
		await_held($node, 'home', 'life');
		return sub { };
	});

# --- events ---------------------------------------------------------------------------------------------------------

sub super
{
	my ($sql) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 2;
	return sqlstate_is($node, 'postgres', $sql, '', $sql);
}

my $space = 'pg_default';

sub other_space
{
	$space = $space eq 'pg_default' ? 'elsewhere' : 'pg_default';
	return $space;
}

sub signal_worker
{
	my ($how, $pid) = @_;
	return kill_worker($node, $pid) if $how eq 'kill';
	return $node->safe_psql('postgres', "SELECT pg_${how}_backend($pid)");
}

my $installed = '0.1.0';

sub fail_one_poll
{
	my ($end) = @_;
	my $offset = log_end($node);
	vote($node, 'home', 'sick');
	# Its counts cannot be summed up any more.
	$node->safe_psql('home', <<'SQL');
INSERT INTO poll_tally.lane (poll_id, lane, keys, seq, counts)
SELECT poll_id, 31, 0, 0, '{"red": 9223372036854775807, "blue": 9223372036854775807}' FROM poll_tally.poll WHERE poll = 'sick';
SQL
	my $failures = q{SELECT coalesce(max(publish_failures), 0) FROM poll_tally.stalled('0')};
	my $before = $node->safe_psql('home', $failures);
	vote($node, 'home', 'sick');
	ok(wait_until(sub { $node->safe_psql('home', $failures) >= $before + 2 }), 'the poll is tried again and again');
	$end->();
	published_ok($node, 'home', 'life', 'another poll fails');
	query_is($node, 'home', q{SELECT poll, gap > 0, worker_pid IS NOT NULL FROM poll_tally.stalled('0') WHERE poll = 'sick'},
		'sick|t|t', 'the failing poll is stalled');
	is(worker_value($node, 'last_sqlstate', 'publisher', 'home'), '22003', 'its error is in workers');
	my @lines = log_lines($node, qr/poll_tally could not publish/, $offset);
	is(scalar(@lines), 1, 'and once in the log') || diag(join "\n", @lines);
	$node->safe_psql('home', q{DELETE FROM poll_tally.lane AS l USING poll_tally.poll AS p
	    WHERE p.poll_id = l.poll_id AND p.poll = 'sick' AND l.lane = 31});
	published_ok($node, 'home', 'sick', 'the failing poll is healed');
	return;
}

sub take_off_the_list
{
	set_all($node, 'poll_tally.databases' => 'postgres, model');
	ok(wait_until(sub { publisher_of($node, 'home') == 0 }), 'a database that is off the list loses its publisher');
	my $before = $node->safe_psql('home', q{SELECT revision FROM poll_tally.snapshot('life')});
	vote($node, 'home', 'life');
	published_ok($node, 'model', 'life', 'another database that is on the list');
	query_is($node, 'home', q{SELECT revision FROM poll_tally.snapshot('life')}, $before, 'is not published any more');
	query_is($node, 'home', q{SELECT gap > 0 FROM poll_tally.lag WHERE poll = 'life'}, 't', 'and lag shows it');
	set_all($node, 'poll_tally.databases' => undef);
	return;
}

# The other database: its worker is idle, that of home in the state.
sub want_other
{
	super('CREATE DATABASE copy TEMPLATE model');
	super('ALTER DATABASE model RENAME TO renamed');
	super('ALTER DATABASE renamed RENAME TO model');
	super('ALTER DATABASE model SET TABLESPACE elsewhere');
	super('ALTER DATABASE model SET TABLESPACE pg_default');
	super('DROP DATABASE copy');
	published_ok($node, 'model', 'life', 'the other database');
	return;
}

# Name, what is done, whether it needs all sessions out of the database, and in which states only the long form does it.
my @events = (
	[ 'CREATE DATABASE TEMPLATE', sub { super('CREATE DATABASE copy TEMPLATE home') }, 1 ],
	[ 'ALTER DATABASE RENAME', sub { super('ALTER DATABASE home RENAME TO away'); super('ALTER DATABASE away RENAME TO home') }, 1, 'busy' ],
	[ 'ALTER DATABASE SET TABLESPACE', sub { super('ALTER DATABASE home SET TABLESPACE ' . other_space()) }, 1, 'busy' ],
	[ 'DROP and CREATE DATABASE', sub { super('DROP DATABASE home'); super('CREATE DATABASE home TEMPLATE model') }, 1, 'busy' ],
	[ 'the same four of another database', \&want_other, 0, 'busy' ],
	[ 'DROP and CREATE EXTENSION', sub { $node->safe_psql('home', 'DROP EXTENSION poll_tally'); furnish('home') }, 1 ],
	[ 'ALTER EXTENSION UPDATE', sub {
			$installed = $installed eq '0.1.0' ? '0.1.1' : '0.1.0';
			$node->safe_psql('home', "ALTER EXTENSION poll_tally UPDATE TO '$installed'");
			query_is($node, 'home', 'SELECT script FROM poll_tally.version()', $installed, 'the update is there');
		}, 0 ],
	[ 'SIGHUP with another list', \&take_off_the_list, 0 ],
	[ 'cancel', sub { signal_worker('cancel', publisher_of($node, 'home')) }, 0 ],
	[ 'terminate', sub { signal_worker('terminate', publisher_of($node, 'home')) }, 0 ],
	[ 'kill -9', sub { signal_worker('kill', publisher_of($node, 'home')) }, 0 ],
	[ 'cancel the launcher', sub { signal_worker('cancel', launcher_of($node)) }, 0, 'middle' ],
	[ 'terminate the launcher', sub { signal_worker('terminate', launcher_of($node)) }, 0, 'middle' ],
	[ 'kill -9 of the launcher', sub { signal_worker('kill', launcher_of($node)) }, 0, 'idle busy' ],
	[ 'a failing poll', \&fail_one_poll, 0 ]);

my %table;
for my $event (@events)
{
	my ($name, $do, $alone, $later) = @$event;
	next if $name eq 'ALTER EXTENSION UPDATE' && !defined $updatable;
	for my $state ('idle', 'busy', 'middle')
	{
		next if !deep() && ($later // '') =~ /\b$state\b/;
		my $end = $state{$state}->();
		$end->() if $alone;
		my $start = time();
		$do->($end);
		my $took = time() - $start;
		$end->();
		my $after = published_ok($node, 'home', 'life', "$name, $state");
		published_ok($node, 'copy', 'life', "$name, $state: the copy") if $name =~ /TEMPLATE/;
		super('DROP DATABASE copy') if $name =~ /TEMPLATE/;
		$installed = '0.1.0' if $name =~ /^DROP/;
		$table{$name}{$state} = sprintf('%.1f+%.1f', $took, $after);
	}
}
figure('life cycle, seconds of the event + until the next vote was published; worker idle, busy, in mid-publication:');
for my $event (@events)
{
	figure(sprintf('%-36s %9s %9s %9s', $event->[0], map { $table{ $event->[0] }{$_} // '-' } ('idle', 'busy', 'middle')));
}
my @crashes = log_lines($node, qr/PANIC:|TRAP:|signal 6|signal 11/);
is("@crashes", '', 'nothing crashed by itself');
my @refused = log_lines($node, qr/is being accessed by other users|deadlock detected/);
is("@refused", '', 'no statement met a worker in its way');
poll_is_true($node, 'home', 'life', 'home holds together');
poll_is_true($node, 'model', 'life', 'model holds together');

# --- a read-only server ---------------------------------------------------------------------------------------------

my $offset = log_end($node);
set_all($node, default_transaction_read_only => 'on');
ok($node->poll_query_until('home', q{SELECT current_setting('default_transaction_read_only') = 'on'}), 'read-only by default');
# A pass that began before may still end.
my $calm = 0;
ok(wait_until(sub {
		my $gap = $node->safe_psql('home', q{SELECT gap FROM poll_tally.lag WHERE poll = 'life'});
		$calm = time() if !$calm && $gap > 0;
		vote($node, 'home', 'life') if $gap == 0;
		$calm = 0 if $gap == 0;
		return $calm && time() - $calm > 2.5;
	}), 'read-only: nothing is published, for longer than the worker sleeps');
is(join("\n", log_lines($node, qr/(LOG|WARNING|ERROR|FATAL):\s+(poll_tally|cannot)/, $offset)), '', 'read-only: and nothing is logged');
ok(publisher_of($node, 'home') != 0, 'read-only: the publisher stays');
$node->safe_psql('postgres', q{SET default_transaction_read_only = off; ALTER SYSTEM RESET default_transaction_read_only;
    SELECT pg_reload_conf()});
published_ok($node, 'home', 'life', 'not read-only any more');

# --- a full NOTIFY queue --------------------------------------------------------------------------------------------

# What the server says of its queue is made up here: 8 GB are the long form's. The library asks with a plan of its own, so
# its worker has to start anew.
$node->safe_psql('postgres', 'CREATE DATABASE full_queue');
furnish('full_queue');
published_ok($node, 'full_queue', 'life', 'before the queue fills');
$node->safe_psql('full_queue', <<'SQL');
SET allow_system_table_mods = on;
CREATE OR REPLACE FUNCTION pg_catalog.pg_notification_queue_usage() RETURNS double precision LANGUAGE sql VOLATILE STRICT
    AS $$ SELECT current_setting('test.queue_usage')::double precision $$;
SQL
my $unannounced = 'SELECT revision - announced FROM poll_tally.publication AS b JOIN poll_tally.poll AS p USING (poll_id)'
  . q{ WHERE p.poll = 'life'};
my $missed = q{SELECT value FROM poll_tally.stats WHERE name = 'notify_failures'};
my $announced_to = '';

sub queue_usage
{
	my ($usage) = @_;
	set_all($node, 'test.queue_usage' => $usage);
	return;
}

queue_usage('0.95');
$node->safe_psql('full_queue', 'SELECT pg_terminate_backend(' . publisher_of($node, 'full_queue') . ')');
my $listener = $node->background_psql('full_queue');
$listener->query_safe('LISTEN poll_tally');
vote($node, 'full_queue', 'life');
my ($full_revision) = split / /, wait_published($node, 'full_queue', 'life');
query_is($node, 'full_queue', $unannounced, 1, 'full queue: the revision commits without its message');
my $missed_once = $node->safe_psql('full_queue', $missed);
cmp_ok($missed_once, '>=', 1, 'full queue: which is counted');
vote($node, 'full_queue', 'life');
($full_revision) = split / /, wait_published($node, 'full_queue', 'life');
query_is($node, 'full_queue', $missed, $missed_once + 1, 'full queue: each time');
history_ok($node, 'full_queue', 'life', 'full queue: one history');
queue_usage('0.1');
ok(wait_until(sub { $node->safe_psql('full_queue', $unannounced) == 0 }), 'once there is room, it is announced');
my $heard = '';
ok(wait_until(sub { $heard .= $listener->query_safe('SELECT 1'); return $heard =~ /"revision": $full_revision[,}]/ }),
	'and heard: the newest revision');
is(scalar(() = $heard =~ /"pollId": "life"/g), 1, 'only that one');
published_ok($node, 'full_queue', 'life', 'a queue with room again');

# The queue fills up between the look and the commit: the commit fails, as the server's own does.
$node->safe_psql('full_queue', <<'SQL');
CREATE FUNCTION public.fail_commit() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('test.queue_usage') = '0.7' AND NEW.announced = NEW.revision THEN
        RAISE program_limit_exceeded USING MESSAGE = 'too many notifications in the NOTIFY queue';
    END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER fail_commit AFTER UPDATE ON poll_tally.publication DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION public.fail_commit();
SQL
queue_usage('0.7');
$node->poll_query_until('full_queue', q{SELECT current_setting('test.queue_usage') = '0.7'});
vote($node, 'full_queue', 'life');
($full_revision) = split / /, wait_published($node, 'full_queue', 'life');
query_is($node, 'full_queue', $unannounced, 1, 'a commit that failed for the queue is repeated without a message');
is(worker_value($node, 'last_sqlstate', 'publisher', 'full_queue'), '54000', 'its error is in workers');
history_ok($node, 'full_queue', 'life', 'a failed commit: one history');
queue_usage('0.1');
ok(wait_until(sub { $heard .= $listener->query_safe('SELECT 1'); return $heard =~ /"revision": $full_revision[,}]/ }),
	'and announced later');
published_ok($node, 'full_queue', 'life', 'after the failed commit');
$listener->quit;
figure("full NOTIFY queue (made up): $missed_once and more revisions without message, each newest one announced later");

# --- the real queue, in the long form -------------------------------------------------------------------------------

if (deep())
{
	my $blocker = $node->background_psql('postgres');
	$blocker->set_query_timer_restart;            # filling takes longer than its patience
	$blocker->query_safe('LISTEN something_else');
	$blocker->query_safe('BEGIN');
	$blocker->query_safe('SELECT 1');
	my $start = time();
	my $filled = wait_until(sub {
		my ($status) = $node->psql('postgres', 'SELECT count(pg_notify(' . q{'nothing', repeat(md5(g || clock_timestamp()::text), 249)))}
			  . ' FROM generate_series(1, 5000) AS g', on_error_stop => 1);
		return $status != 0 || $node->safe_psql('postgres', 'SELECT pg_notification_queue_usage()') > 0.95;
	}, 1800);
	ok($filled, 'the real queue is full');
	my $took = time() - $start;
	published_ok($node, 'home', 'life', 'real full queue');
	query_is($node, 'home', $unannounced, 2, 'real full queue: two revisions without a message');
	$blocker->query_safe('COMMIT');
	$blocker->quit;
	ok(wait_until(sub { $node->safe_psql('home', $unannounced) == 0 }, 300), 'real full queue: announced once there is room');
	figure(sprintf('full NOTIFY queue (8 GB, filled in %.0f s): published without messages, announced later', $took));
}

# --- binary upgrade -------------------------------------------------------------------------------------------------

# Votes are waiting, and nobody publishes them.
set_all($node, 'poll_tally.publish' => 'off');
$node->poll_query_until('home', q{SELECT current_setting('poll_tally.publish') = 'off'});
$node->stop;
set_publish_on();

sub set_publish_on
{
	$node->append_conf('postgresql.auto.conf', q{poll_tally.publish = 'on'});
	return;
}

system_or_bail('pg_ctl', '-D', $node->data_dir, '-l', $node->logfile, '-o', '-b', '-w', 'start');
query_is($node, 'postgres', q{SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'poll_tally%'}, 0,
	'binary upgrade: no worker runs');
query_is($node, 'postgres', 'SELECT count(*) FROM poll_tally.workers', 0, 'binary upgrade: none was ever registered');
system_or_bail('pg_ctl', '-D', $node->data_dir, '-w', 'stop');
$node->start;
published_ok($node, 'home', 'life', 'after binary upgrade mode');
slowest_ok('life cycle');
$node->stop;

# --- few worker slots -----------------------------------------------------------------------------------------------

# The server's own launcher takes one, ours another; one is left for three databases.
my $narrow = new_node('narrow', 'fsync = off', 'max_worker_processes = 3', 'max_logical_replication_workers = 1');
my @turns = ('one', 'two', 'three');
for my $database (@turns)
{
	$narrow->safe_psql('postgres', "CREATE DATABASE $database");
	$narrow->safe_psql($database, 'CREATE EXTENSION poll_tally');
	make_poll($narrow, $database, 'life');
}
my @waits;
for my $round (1 .. (deep() ? 10 : 2))
{
	vote($narrow, $_, 'life') for @turns;
	my $start = time();
	for my $database (@turns)
	{
		ok(wait_published($narrow, $database, 'life') ne '', "few slots: $database is published, round $round");
	}
	push @waits, time() - $start;
}
history_ok($narrow, $_, 'life', "few slots: one history in $_") for @turns;
is(scalar(log_lines($narrow, qr/in turn/)), 1, 'few slots: said once in the log');
is(join("\n", log_lines($narrow, qr/ERROR:|FATAL:|could not/)), '', 'few slots: no error');
figure(sprintf('3 databases and one worker slot: all published after %s s', join ', ', map { sprintf '%.1f', $_ } @waits));
$narrow->stop;

# --- memory ---------------------------------------------------------------------------------------------------------

ok(wait_until(sub { passes_done() - $steady_from >= $passes }, 900), "steady: $passes passes more");
kill 'HUP', $memory_pid{launcher} for 1 .. 100;
my $steady_passes = passes_done() - $steady_from;
is(publisher_of($steady, 'postgres'), $memory_pid{publisher}, 'steady: it is still the same publisher');
my %memory_to = map { $_ => memory_of($memory_pid{$_}) } keys %memory_pid;
for my $who (sort keys %memory_pid)
{
	cmp_ok($memory_to{$who} - $memory_from{$who}, '<=', 512, "the memory of the $who does not grow");
}
stop_voter($steady_voter);
published_ok($steady, 'postgres', 'steady', 'steady');
figure(sprintf('memory over %d passes: publisher %d kB, then %d kB; launcher %d kB, then %d kB', $steady_passes,
		map { ($memory_from{$_}, $memory_to{$_}) } ('publisher', 'launcher')));
$steady->stop;
done_testing();
