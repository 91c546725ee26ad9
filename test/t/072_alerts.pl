# Alerts for real: PostgreSQL's exporter and the SQL exporter read a server through role poll_watch, Prometheus evaluates
# the shipped rules, and every alert fires and clears; only durations and three thresholds are shortened. Before that,
# nothing fires on a quiet poll. The shipped files as they are pass promtool's unit tests, and what they name is there.
use strict;
use warnings FATAL => 'all';

use IPC::Run qw(run start);
use JSON::PP qw(decode_json);
use Monitoring;
use PollTally;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);
use WorkerLife;

my @missing = grep { my $p = $_; !grep { -x "$_/$p" } split /:/, $ENV{PATH} }
  ('prometheus', 'promtool', 'prometheus-postgres-exporter', 'prometheus-sql-exporter');
plan skip_all => "not installed: @missing" if @missing;

my $began = time();
my $folder = PostgreSQL::Test::Utils::tempdir();
my $root = $ENV{POLL_TALLY_ROOT};

# runs(NAME, COMMAND...): ends with success.
sub runs
{
	my ($name, @command) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $output = '';
	my $ok = run(\@command, '<', \undef, '>&', \$output);
	return ok($ok, $name) || diag($output);
}

# --- the shipped files as they are ----------------------------------------------------------------------------------

runs('promtool: rules.yml and prometheus.yml', 'promtool', 'check', 'config', shipped('prometheus.yml'));
# These take a while, so the server starts meanwhile.
my $unit_output = '';
my $unit_tests = start([ 'promtool', 'test', 'rules', shipped('rules_test.yml') ], '<', \undef, '>&', \$unit_output);

# In the long form: no alert can be made to fire always or never without a unit test that fails.
if (deep())
{
	my @exprs = slurp_file(shipped('rules.yml')) =~ /^( +- alert: \w+\n +expr: (?:>-\n(?: {10}.*\n)+|.*\n))/mg;
	cmp_ok(scalar(@exprs), '>=', 8, 'alerts to change');
	for my $old (@exprs)
	{
		my ($head) = $old =~ /(.*alert: \w+\n)/;
		for my $new ('vector(0) > 1', 'vector(1)')
		{
			my $where = PostgreSQL::Test::Utils::tempdir();
			changed_file('rules.yml', $where, [ qr/\Q$old/, "$head        expr: $new\n", 1 ]);
			changed_file('rules_test.yml', $where);
			ok(!run([ 'promtool', 'test', 'rules', "$where/rules_test.yml" ], '>&', \my $output),
				($head =~ /: (\w+)/)[0] . " as $new fails the unit tests");
		}
	}
}

# --- the server, the exporters and Prometheus -----------------------------------------------------------------------

my $node = new_node('alerts', 'fsync = off');
my @databases = ('postgres', 'second');
$node->safe_psql('postgres', 'CREATE DATABASE second');
for my $database (@databases)
{
	$node->safe_psql($database, 'CREATE EXTENSION poll_tally');
	runs("watch.sql: $_ time, in $database", 'psql', '-X', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr($database), '-f',
		shipped('watch.sql'))
	  for ('first', 'second');
	make_poll($node, $database, 'lunch');
	make_poll($node, $database, 'quiet');
	vote($node, $database, $_, 5) for ('lunch', 'quiet');
	wait_published($node, $database, $_) for ('lunch', 'quiet');
}

ok($unit_tests->finish, 'promtool: the unit tests of the shipped rules') || diag($unit_output);

# What cron, the timer and pg_cron run: this statement, in a session of poll_verify.
my ($statement) = slurp_file(shipped('poll-verify.cron')) =~ /-c "(CALL .*)"$/m;
for my $file ('poll-verify@.service', 'pg_cron.sql')
{
	my $text = slurp_file(shipped($file)) =~ s/''/'/gr;
	like($text, qr/\Q$statement\E/, "$file runs what cron runs");
}

sub verify
{
	my ($database) = @_;
	local $ENV{PGOPTIONS} = '-crole=poll_verify';
	run([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr($database), '-c', $statement ])
	  || die 'the scheduled verification failed';
	return;
}

verify($_) for @databases;
query_is($node, 'postgres', 'SELECT string_agg(poll, \',\' ORDER BY poll), sum(mismatches), bool_and(failed = \'[]\') FROM poll_watch.verified',
	'lunch,quiet|0|t', 'every poll is verified, and true');

for my $sql ('SELECT * FROM poll_tally.metrics', 'SELECT * FROM poll_watch.verified', 'CALL poll_watch.verify()',
	q{SELECT poll_tally.accept_event('lunch', 'x', 'red')})
{
	sqlstate_is($node, 'postgres', "SET ROLE poll_watch; $sql", '42501', "poll_watch may not: $sql");
}
sqlstate_is($node, 'postgres', 'SET ROLE poll_watch; SELECT * FROM poll_watch.metrics()', '', 'poll_watch may read the metrics');
sqlstate_is($node, 'postgres', q{SET ROLE poll_verify; SELECT poll_tally.close_poll('lunch')}, '42501', 'poll_verify may not close');

# Ranges and times that must pass first, and thresholds that would take minutes or gigabytes; all else is as shipped.
my @sooner = (
	[ qr/for: \d+[sm]$/m, 'for: 1s', 5 ],
	[ qr/\[[25]m\]/, '[5s]', 2 ],
	[ qr/poll_tally_stalled > 30$/m, 'poll_tally_stalled > 11', 1 ],
	[ qr/\(poll_tally_blocker_age_seconds\) > 60$/m, '(poll_tally_blocker_age_seconds) > 2', 1 ],
	[ qr/poll_tally_notify_queue_usage > 0\.5$/m, 'poll_tally_notify_queue_usage > 0.0004', 1 ]);
my %exporter = exporters($node, $folder, @databases);
my %running = map { $_ => [ start_exporter($exporter{$_}) ] } keys %exporter;
my @instances = sort map { $_->[0] } values %running;
start_prometheus($folder, \@sooner, @instances);

# The metrics that an exporter must show, as "name database".
sub given
{
	return sort map { my $database = $_; lines_of($node, $database, "SELECT DISTINCT metric || ' $database' FROM poll_watch.metrics()") }
	  @databases;
}

# Every metric of both databases has come to Prometheus through each exporter under its own name.
sub all_arrive
{
	my ($name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $difference = 'nothing was compared';
	my $same = wait_until(sub {
		$difference = '';
		for my $instance (@instances)
		{
			my @seen = sort map { "$_->[0]{__name__} $_->[0]{database}" }
			  prometheus_query(qq({__name__=~"poll_(tally|watch)_.+", instance="$instance"}));
			my %seen = map { $_ => 1 } @seen;
			my @lost = grep { !delete $seen{$_} } given();
			$difference .= "$instance: lost @lost; too many @{[ sort keys %seen ]}\n" if @lost || %seen;
		}
		return $difference eq '';
	});
	return ok($same, $name) || diag($difference);
}

sub await_alerts
{
	my ($name, @expected) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my @firing;
	my $expected = join "\n", sort @expected;
	wait_until(sub { @firing = alerts_now(!@expected); return join("\n", @firing) eq $expected });
	return is(join("\n", @firing), $expected, $name);
}

# The same alerts through both exporters.
sub from_both
{
	my (@alerts) = @_;
	return map { my $alert = $_; map { $alert =~ s/ / $_ /r } @instances } @alerts;
}

# --- quiet ----------------------------------------------------------------------------------------------------------

all_arrive('through both exporters, every metric of both databases has its own name');
await_alerts('nothing fires, and nothing is about to');
ok(wait_until(sub { prometheus_query('min(count_over_time(poll_tally:gap[1m])) > 1') }), 'rules are evaluated');
# Before the first scrape nothing was watched.
is(scalar(() = prometheus_query('count_over_time(ALERTS{alertname!="PollTallyUnwatched"}[10m])')), 0, 'and nothing was about to since the start');

# --- it fires -------------------------------------------------------------------------------------------------------

# One database is no longer published while votes arrive; a vote is prepared and forgotten; somebody spoils a count, which
# the scheduled verification finds; that of the other database has not run for three days; and a listener stays in a
# transaction.
my $listener = $node->background_psql('second');
$listener->query_safe('LISTEN elsewhere');
$listener->query_safe('BEGIN; SELECT 1');
$node->safe_psql('second', q{SELECT count(pg_notify('elsewhere', repeat('x', 7900) || n)) FROM generate_series(1, 600) AS n});
set_all($node, 'poll_tally.publish' => 'off');
$node->poll_query_until('postgres', q{SELECT current_setting('poll_tally.publish') = 'off'}) || die;
my $voter = start_voter($node, 'postgres', 'lunch', 0.1);
$node->safe_psql('second', q{BEGIN; SELECT poll_tally.accept_event('quiet', 'prepared', 'red'); PREPARE TRANSACTION 'forgotten'});
$node->safe_psql('postgres', q{UPDATE poll_tally.lane SET counts = '{"red": 100}' WHERE poll_id = (SELECT poll_id FROM poll_tally.poll WHERE poll = 'quiet')});
verify('postgres');
$node->safe_psql('second', q{UPDATE poll_watch.verified SET verified_at = verified_at - interval '3 days'});

my $queue = 'PollTallyNotifyQueueFilling';
my @ill = from_both('PollTallyLag postgres lunch', 'PollTallyLagGrowing postgres lunch', 'PollTallyBlocker second quiet',
	'PollTallyMismatch postgres quiet', 'PollTallyVerifyOld second', map { "$queue $_" } @databases);
await_alerts('lag, lag growing, blocker, mismatch, an old verification and the NOTIFY queue fire, and no other', @ill);

# What was answered tells the person on call which it is.
ok(wait_until(sub { prometheus_query('min(poll_tally_stalled) > 11') }), 'overdue for longer than the threshold');
query_is($node, 'postgres', q{SELECT failed->0->>'check', failed->0->>'actual' FROM poll_watch.verified WHERE poll = 'quiet'},
	'tallies|{"red": 100}', 'what did not verify is noted');

# Now the publisher goes as well.
set_all($node, 'poll_tally.databases' => 'second');
await_alerts('votes arrive and the publisher is gone: worker silent', @ill, from_both('PollTallyWorkerSilent postgres'));

# --- what the files name is there -----------------------------------------------------------------------------------

# Whatever can be seen is to be seen now.
all_arrive('every metric arrives while all is ill, too');
query_is($node, $_, <<'SQL', 't|t', "$_: the columns of poll_watch.metrics() carry every label, and no two rows have the same")
SELECT (SELECT bool_and(l.name IN ('database', 'poll', 'outcome', 'kind', 'lane'))
        FROM poll_tally.metrics AS m, jsonb_object_keys(m.labels) AS l (name)),
       (SELECT count(*) = count(DISTINCT (metric, database, poll, outcome, kind, lane)) FROM poll_watch.metrics())
SQL
  for @databases;
my %labels;
for my $database (@databases)
{
	for my $line (lines_of($node, $database, 'SELECT DISTINCT metric, l.name FROM poll_watch.metrics() AS m,'
		  . q{ LATERAL (VALUES ('database', database), ('poll', poll), ('outcome', outcome), ('kind', kind), ('lane', lane)) AS l (name, value)}
		  . q{ WHERE l.value <> ''}))
	{
		my ($metric, $label) = split /\|/, $line;
		$labels{$metric}{$label} = 1;
	}
}
append_to_file("$folder/given", join '', map { join(' ', $_, sort keys %{ $labels{$_} }) . "\n" } sort keys %labels);
my ($checked, $complaints) = ('', '');
run([ '/usr/bin/python3', '-B', "$root/test/lib/check_alerts.py", "$folder/given", $root ], '>', \$checked, '2>', \$complaints)
  || die "check_alerts.py: $complaints";
my @checks = $checked =~ /^((?:not )?ok .*\n(?:#.*\n)*)/mg;
for my $check (@checks)
{
	my ($no, $name, $wrong) = $check =~ /^(not )?ok (.*)\n((?:#.*\n)*)/;
	ok(!$no, $name) || diag($wrong);
}
is(scalar(@checks), 7, 'all checks of the files were made');

my $board = decode_json(slurp_file(shipped('dashboard.json')));
# No poll is final here.
my @board = grep { !/poll_tally_final.* == 1/ } map { $_->{expr} =~ s/\$__rate_interval/30s/gr =~ s/\$(database|poll)\b/.*/gr }
  map { @{ $_->{targets} } } @{ $board->{panels} };
my @empty = @board;
wait_until(sub { !(@empty = grep { !prometheus_query($_) } @board) });
is(join("\n", @empty), '', 'each query of the dashboard finds something');

my $text = '';
run([ 'psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', '-U', 'poll_watch', '-d', $node->connstr('second'), '-f', shipped('textfile.sql') ],
	'>', \$text) || die 'textfile.sql failed';
my $lint = '';
ok(run([ 'promtool', 'check', 'metrics' ], '<', \$text, '>&', \$lint), 'textfile.sql writes what promtool takes') || diag($lint);
is(join(' ', sort keys %{ { map { $_ => 1 } $text =~ /^(\w+)\{/mg } }),
	join(' ', lines_of($node, 'second', 'SELECT DISTINCT metric COLLATE "C" FROM poll_watch.metrics() ORDER BY 1')), 'and all of it');

# --- it clears ------------------------------------------------------------------------------------------------------

stop_voter($voter);
set_all($node, 'poll_tally.publish' => undef, 'poll_tally.databases' => undef);
$node->safe_psql('second', q{ROLLBACK PREPARED 'forgotten'});
$node->safe_psql('postgres', q{SELECT poll_tally.rebuild_tallies('quiet')});
verify($_) for @databases;
$node->safe_psql('second', q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE state = 'idle in transaction'});
$listener->{run}->kill_kill;
# The queue is emptied when somebody notifies.
ok(wait_until(sub { $node->safe_psql('second', q{SELECT count(pg_notify('elsewhere', repeat('y', 7900) || n)) FROM generate_series(1, 10) AS n;})
		&& $node->safe_psql('second', 'SELECT pg_notification_queue_usage() < 0.0004') eq 't' }), 'the queue is emptied');
await_alerts('all clear');
poll_is_true($node, $_, 'quiet', "$_: the poll holds together") for @databases;

# --- nobody watches -------------------------------------------------------------------------------------------------

stop_program($_->[1]) for values %running;
await_alerts('the exporters are gone: unwatched', 'PollTallyUnwatched');
start_exporter($exporter{$_}, $running{$_}[0]) for keys %exporter;
await_alerts('and back: all clear');

# In the long form: the walk of docs/operations.md, as it stands there but for the packages, the ports and the socket.
if (deep())
{
	my ($walk) = slurp_file("$root/docs/operations.md") =~ /^### An alert from nothing\n(.*?)^## /ms;
	my @blocks = $walk =~ /^```sh\n(.*?)^```$/msg;
	my @port = map { PostgreSQL::Test::Cluster::get_free_port() } (1, 2);
	my $source = PostgreSQL::Test::Utils::tempdir();
	my $empty = PostgreSQL::Test::Utils::tempdir();
	mkdir "$source/$_" || die for ('examples', 'examples/alerts');
	changed_file($_, "$source/examples/alerts") for ('watch.sql', 'postgres_exporter.yml', 'rules.yml');
	changed_file('prometheus.yml', "$source/examples/alerts", [ qr/:9187/, ":$port[0]", 1 ]);
	my $script = join "echo '# block'\n", @blocks[ 1 .. $#blocks ];
	$script =~ s{:9187}{:$port[0]}g;
	$script =~ s{:9090}{:$port[1]}g;
	$script =~ s{host=/var/run/postgresql}{'host=' . $node->host . ' port=' . $node->port}e || die;
	# No rest of this server shows in what the walk waits for, nor is in the way of dropping its roles.
	$node->safe_psql('postgres', 'DROP DATABASE second WITH (FORCE)');
	$node->safe_psql('postgres', 'DROP EXTENSION poll_tally CASCADE; DROP SCHEMA poll_watch CASCADE; DROP OWNED BY poll_watch, poll_verify');
	local @ENV{qw(POLL_TALLY PGHOST PGPORT)} = ($source, $node->host, $node->port);
	append_to_file("$source/walk", "cd $empty\n$script");
	my $output = '';
	ok(run([ 'bash', '-m', '-e', '-u', '-o', 'pipefail', "$source/walk" ], '<', \undef, '>&', \$output),
		'the walk of docs/operations.md ends') || diag($output);
	like($output, qr/ALERTS\{alertname="PollTallyLag", alertstate="firing"/, 'the alert of the walk fires');
	like($output, qr/2 \|\s+1 \| \{"soup": 1\}/, 'and at its end the vote is published');
}

figure(sprintf '8 alerts fired and cleared through 2 exporters, %d dashboard queries, in %.0f s', scalar(@board), time() - $began);
$node->stop;
done_testing();
