# Watching: lag, stalled, workers, blockers, metrics, the bounds of observe_revision, the lines of log_publications, and who
# may see what. An alert must page for a publication that is overdue, and for nothing else.
use strict;
use warnings FATAL => 'all';

use PollTally;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);
use WorkerLife;

seed();
my $node = new_node('watching', 'fsync = off');
$node->safe_psql('postgres', <<'SQL');
CREATE EXTENSION poll_tally;
CREATE ROLE boss; CREATE ROLE eye; CREATE ROLE voter; CREATE ROLE auditor; CREATE ROLE stranger;
SELECT poll_tally.grant_admin('boss'), poll_tally.grant_viewer('eye'), poll_tally.grant_submitter('voter'),
    poll_tally.grant_auditor('auditor');
CREATE ROLE other_boss;
SELECT poll_tally.grant_admin('other_boss');
SQL

sub columns_are
{
	my ($sql, $expected, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $file = PostgreSQL::Test::Utils::tempdir_short() . '/columns';
	return query_is($node, 'postgres', "CREATE TEMP VIEW v AS SELECT * FROM $sql; SELECT string_agg(attname, ',' ORDER BY attnum)"
		  . " FROM pg_attribute WHERE attrelid = 'v'::regclass AND attnum > 0", $expected, $name);
}

my $lag_columns = 'poll,accepted_position,published_position,gap,oldest_unpublished_at,lag_seconds,epoch,revision,published_at,'
  . 'publish_every,final,observed_revision';
columns_are('poll_tally.lag', $lag_columns, 'columns of lag');
columns_are('poll_tally.stalled()', "$lag_columns,due_since,publish_attempts,publish_failures,worker_pid", 'columns of stalled');
columns_are('poll_tally.workers', 'pid,database,kind,state,started_at,heartbeat_at,last_error,last_sqlstate,restarts,'
	  . 'library_version', 'columns of workers');
columns_are('poll_tally.blockers', 'poll,lane,kind,pid,gid,since,age', 'columns of blockers');
columns_are('poll_tally.metrics', 'name,labels,value', 'columns of metrics');
columns_are('poll_tally.stats', 'name,value,since', 'columns of stats');

# --- workers --------------------------------------------------------------------------------------------------------

make_poll($node, 'postgres', 'live');
published_ok($node, 'postgres', 'live', 'watched');
query_is($node, 'postgres', <<'SQL', 'launcher||t|t|t|t|0|t' . "\n" . 'publisher|postgres|t|t|t|t|0|t', 'the launcher and a publisher');
SELECT w.kind, w.database, w.pid > 0, w.state IN ('idle', 'busy'), w.started_at <= w.heartbeat_at,
    w.last_error IS NULL AND w.last_sqlstate IS NULL, w.restarts, w.library_version = (poll_tally.version()).library
FROM poll_tally.workers AS w ORDER BY w.kind
SQL
my $pid = publisher_of($node, 'postgres');
is(worker_value($node, 'pid', 'publisher', 'postgres'), $pid, 'by its process');
my $heartbeat = worker_value($node, 'heartbeat_at', 'publisher', 'postgres');
ok(wait_until(sub { worker_value($node, "heartbeat_at > '$heartbeat'", 'publisher', 'postgres') eq 't' }, 30), 'its heartbeat goes on');
$node->safe_psql('postgres', "SELECT pg_terminate_backend($pid)");
published_ok($node, 'postgres', 'live', 'terminated');
is(worker_value($node, 'restarts', 'publisher', 'postgres'), 1, 'a restart is counted');

# --- polls that are not to be paged for -----------------------------------------------------------------------------

make_poll($node, 'postgres', 'quiet');
make_poll($node, 'postgres', 'hidden', "hidden_until_close => true, publish_every => '100 milliseconds'");
make_poll($node, 'postgres', 'few', "publish_min_events => 5, publish_every => '100 milliseconds'");
make_poll($node, 'postgres', 'hourly', "publish_every => '1 hour'");
make_poll($node, 'postgres', 'over');
make_poll($node, 'postgres', 'ending', "closes_at => now() + interval '1 hour', publish_every => '100 milliseconds'");
$node->safe_psql('postgres', q{SELECT poll_tally.close_poll('over')});
my $t0 = $node->safe_psql('postgres', 'SELECT clock_timestamp()');
set_all($node, 'poll_tally.publish' => 'off');
$node->poll_query_until('postgres', q{SELECT current_setting('poll_tally.publish') = 'off'});
wait_until(sub { vote($node, 'postgres', 'live'); return wait_published($node, 'postgres', 'live', 1.5) eq '' }, 60)
  || die 'the worker goes on publishing';
vote($node, 'postgres', $_, 4) for ('hidden', 'few', 'hourly', 'ending');
my $moved = $node->safe_psql('postgres', q{SELECT min(accepted_at) FROM poll_tally.events WHERE poll = 'ending'});

sub stalled_are
{
	my ($allowance, $expected, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return query_is($node, 'postgres', "SELECT string_agg(poll, ',' ORDER BY poll) FROM poll_tally.stalled('$allowance')", $expected,
		$name);
}

ok($node->poll_query_until('postgres', q{SELECT count(*) = 2 FROM poll_tally.stalled('0')}), 'two polls are overdue');
stalled_are('0 seconds', 'ending,live', 'those that moved; no quiet, hidden, hourly, closed one, and none below publish_min_events');
stalled_are('1 hour', '', 'none for longer than an hour');
vote($node, 'postgres', 'few');
ok($node->poll_query_until('postgres', q{SELECT count(*) = 3 FROM poll_tally.stalled('0')}), 'a fifth event');
stalled_are('0 seconds', 'ending,few,live', 'makes publish_min_events due');
query_is($node, 'postgres', <<'SQL', 't|t|t|t|t|t|t|t|t', 'an alert carries positions, revision, age, owner, attempts and failures');
SELECT s.accepted_position = l.accepted_position AND s.accepted_position > 0, s.published_position = l.published_position,
    s.gap = s.accepted_position - s.published_position AND s.gap >= 1, s.revision = l.revision, s.epoch = l.epoch,
    s.lag_seconds > 0 AND s.oldest_unpublished_at = l.oldest_unpublished_at,
    s.publish_attempts > 0 AND s.publish_failures = 0, s.worker_pid = (SELECT pid FROM poll_tally.workers WHERE kind = 'publisher'),
    s.due_since = greatest(s.published_at + s.publish_every, s.oldest_unpublished_at)
FROM poll_tally.stalled('0') AS s JOIN poll_tally.lag AS l USING (poll) WHERE s.poll = 'live'
SQL
query_is($node, 'postgres', q{SELECT s.due_since = e.accepted_at FROM poll_tally.stalled('0') AS s, poll_tally.events AS e
    WHERE s.poll = 'few' AND e.poll = 'few' ORDER BY e.accepted_at DESC LIMIT 1}, 't', 'due_since: when the fifth event came');
my $due = $node->safe_psql('postgres', q{SELECT due_since FROM poll_tally.stalled('0') WHERE poll = 'ending'});

# --- past its deadline ----------------------------------------------------------------------------------------------

$node->safe_psql('postgres', q{SELECT poll_tally.alter_poll('ending', closes_at => clock_timestamp() + interval '300 milliseconds')});
my $since_deadline = q{SELECT clock_timestamp() > closes_at FROM poll_tally.polls WHERE poll = 'ending'};
ok($node->poll_query_until('postgres', $since_deadline), 'the deadline of a stalled poll passes');
query_is($node, 'postgres', q{SELECT due_since FROM poll_tally.stalled('0') WHERE poll = 'ending'}, $due,
	'it has been due since before, so the alert does not go away');
make_poll($node, 'postgres', 'untouched', "closes_at => now() + interval '300 milliseconds'");
ok($node->poll_query_until('postgres', q{SELECT count(*) = 1 FROM poll_tally.stalled('0') WHERE poll = 'untouched'}),
	'past its deadline, a poll without events is due too: its final snapshot is');
query_is($node, 'postgres', q{SELECT s.due_since = p.closes_at FROM poll_tally.stalled('0') AS s JOIN poll_tally.polls AS p USING (poll)
    WHERE s.poll = 'untouched'}, 't', 'since the deadline');

# --- lag ------------------------------------------------------------------------------------------------------------

query_is($node, 'postgres', <<'SQL', "few|5|0|5|t|t\nhidden|4|0|4|t|t\nquiet|0|0|0|t|t", 'lag: positions, gap and its age');
SELECT l.poll, l.accepted_position, l.published_position, l.gap,
    l.oldest_unpublished_at IS NOT DISTINCT FROM (SELECT min(e.accepted_at) FROM poll_tally.events AS e
        WHERE e.poll = l.poll AND poll_tally.includes(coalesce((SELECT s.frontier FROM poll_tally.snapshots AS s WHERE s.poll = l.poll
            ORDER BY s.revision DESC LIMIT 1), '{}'), e.position) IS NOT TRUE),
    (l.lag_seconds > 0) IS NOT DISTINCT FROM CASE WHEN l.gap > 0 THEN true END
FROM poll_tally.lag AS l WHERE l.poll IN ('few', 'hidden', 'quiet') ORDER BY 1
SQL
query_is($node, 'postgres', q{BEGIN; SELECT outcome FROM poll_tally.accept_event('quiet', 'mine', 'red');
    SELECT gap, oldest_unpublished_at IS NOT NULL FROM poll_tally.lag WHERE poll = 'quiet'; ROLLBACK}, "accepted\n1|t",
	'lag counts what its own transaction did');

# --- observe_revision -----------------------------------------------------------------------------------------------

$node->safe_psql('postgres', q{SELECT poll_tally.publish('live', true)});
my $newest = $node->safe_psql('postgres', q{SELECT revision FROM poll_tally.snapshot('live')});
my %refused = (
	q{'live', 'hall', } . ($newest + 1) => '22023', q{'live', 'hall', 0} => '22023', q{'live', 'hall', -1} => '22023',
	q{'live', 'hall', NULL} => '22023', q{'live', NULL, 1} => '22023', q{'live', '', 1} => '22023', q{'live', 'a b', 1} => '22023',
	q{'nowhere', 'hall', 1} => 'P0002', q{NULL, 'hall', 1} => 'P0002', q{'hidden', 'hall', 1} => '22023');
for my $arguments (sort keys %refused)
{
	sqlstate_is($node, 'postgres', "SET ROLE eye; SELECT poll_tally.observe_revision($arguments)", $refused{$arguments},
		"observe_revision($arguments) raises $refused{$arguments}");
}
my $observed = q{SELECT observed_revision FROM poll_tally.lag WHERE poll = 'live'};
query_is($node, 'postgres', $observed, '', 'nothing was observed');
my @reports = ([ 'hall', $newest, $newest ], [ 'street', 2, 2 ], [ 'street', 1, 2 ], [ 'street', $newest, $newest ], [ 'hall', 1, $newest ]);
for my $report (@reports)
{
	my ($audience, $revision, $expected) = @$report;
	$node->safe_psql('postgres', "SET ROLE eye; SELECT poll_tally.observe_revision('live', '$audience', $revision)");
	query_is($node, 'postgres', $observed, $expected, "after $audience has $revision, the lowest is $expected");
}
$node->safe_psql('postgres', q{SELECT poll_tally.observe_revision('live', 'audience-' || g, 1) FROM generate_series(1, 98) AS g});
sqlstate_is($node, 'postgres', q{SELECT poll_tally.observe_revision('live', 'one-more', 1)}, '54000', 'a 101st audience raises 54000');
sqlstate_is($node, 'postgres', q{SELECT poll_tally.observe_revision('live', 'hall', 1)}, '', 'a known one does not');
sqlstate_is($node, 'postgres', q{SELECT poll_tally.observe_revision('quiet', 'one-more', 1)}, '', 'nor one of another poll');

# --- blockers -------------------------------------------------------------------------------------------------------

make_poll($node, 'postgres', 'dead', "closes_at => now() + interval '3 seconds'");
$node->safe_psql('postgres', q{BEGIN; SELECT outcome FROM poll_tally.accept_event('quiet', 'prep', 'red'); PREPARE TRANSACTION 'forgotten'});
my %session = map { $_ => $node->background_psql('postgres') } ('idle', 'active', 'late');
$session{idle}->query_safe(q{BEGIN; SELECT outcome FROM poll_tally.accept_event('quiet', 'idle', 'red')});
for my $case ([ 'active', 'quiet' ], [ 'late', 'dead' ])
{
	my ($name, $poll) = @$case;
	$session{$name}->query_safe("SET application_name = '$name'; BEGIN; SELECT outcome FROM poll_tally.accept_event('$poll', '$name', 'red')");
	$session{$name}->query_until(qr/started/, "\\echo started\nSELECT pg_sleep(600);\n");
	$node->poll_query_until('postgres', "SELECT count(*) = 1 FROM pg_stat_activity WHERE application_name = '$name' AND state = 'active'"
		  . " AND query LIKE '%pg_sleep(600)%'") || die;
}
my $found = q{SELECT string_agg(format('%s %s', poll, kind), ', ' ORDER BY poll, kind) FROM poll_tally.blockers};
query_is($node, 'postgres', "$found WHERE poll = 'quiet'", 'quiet idle in transaction, quiet prepared', 'prepared and idle ones, not an active one');
ok($node->poll_query_until('postgres', q{SELECT clock_timestamp() > closes_at FROM poll_tally.polls WHERE poll = 'dead'}), 'a deadline passes');
query_is($node, 'postgres', "$found WHERE poll = 'dead'", 'dead active', 'past its deadline, the active one too');
query_is($node, 'postgres', <<'SQL', "idle in transaction||t|t|t\nprepared|forgotten|t|t|t", 'who, and for how long');
SELECT b.kind, b.gid, b.pid IS NOT DISTINCT FROM (SELECT a.pid FROM pg_stat_activity AS a WHERE a.state = 'idle in transaction'
    AND b.kind <> 'prepared'), b.age > '0' AND b.since <= now(), b.lane IS NOT NULL
FROM poll_tally.blockers AS b WHERE b.poll = 'quiet' ORDER BY b.kind
SQL
my $rows = 'SELECT string_agg(row(poll, lane, kind, pid, gid, since)::text, E\'\n\' ORDER BY poll, lane) FROM poll_tally.blockers';
my $all = $node->safe_psql('postgres', $rows);
is(scalar(split /\n/, $all), 3, 'three rows');
for my $role ('boss', 'other_boss')
{
	is($node->safe_psql('postgres', "SET ROLE $role; $rows"), $all, "$role sees the same blockers as a superuser");
}
my $worker_rows = 'SELECT string_agg(row(pid, database, kind, started_at, last_error, restarts)::text, E\'\n\' ORDER BY kind)'
  . ' FROM poll_tally.workers';
$all = $node->safe_psql('postgres', $worker_rows);
for my $role ('boss', 'other_boss')
{
	is($node->safe_psql('postgres', "SET ROLE $role; $worker_rows"), $all, "$role sees the same workers as a superuser");
}
set_all($node, 'poll_tally.publish' => 'on');
published_ok($node, 'postgres', 'live', 'publishing again');
query_is($node, 'postgres', q{SELECT final FROM poll_tally.lag WHERE poll = 'dead'}, 'f', 'a poll with a blocker stays open');
$node->safe_psql('postgres', q{ROLLBACK PREPARED 'forgotten'; SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE application_name IN ('active', 'late') OR state = 'idle in transaction'});
ok($node->poll_query_until('postgres', q{SELECT final FROM poll_tally.lag WHERE poll = 'dead'}), 'without it, it is closed');
query_is($node, 'postgres', 'SELECT count(*) FROM poll_tally.blockers', 0, 'no blocker is left');
$_->{run}->kill_kill for values %session;
ok($node->poll_query_until('postgres', q{SELECT count(*) = 0 FROM poll_tally.stalled('0') WHERE poll <> 'live'}), 'and nothing is stalled');

# --- metrics --------------------------------------------------------------------------------------------------------

query_is($node, 'postgres', <<'SQL', '0|0|0|t', 'metrics: one number for each name and labels, in names that exporters take');
SELECT count(*) - count(DISTINCT (name, labels)), count(*) FILTER (WHERE name !~ '^poll_tally_[a-z0-9_]+$'),
    count(*) FILTER (WHERE value IS NULL), count(*) > 40
FROM poll_tally.metrics
SQL
query_is($node, 'postgres', <<'SQL', 't|t|t', 'metrics agree with what they are made of');
SELECT (SELECT value FROM poll_tally.metrics WHERE name = 'poll_tally_accepted_position' AND labels->>'poll' = 'few') = 5,
    (SELECT value FROM poll_tally.metrics WHERE name = 'poll_tally_events_total' AND labels->>'outcome' = 'accepted')
        = (SELECT value FROM poll_tally.stats WHERE name = 'accepted'),
    (SELECT count(*) FROM poll_tally.metrics WHERE name = 'poll_tally_worker_heartbeat_age_seconds') = 2
SQL
query_is($node, 'postgres', q{SELECT count(*) FROM poll_tally.stats WHERE name::text IN (SELECT unnest(enum_range(NULL::poll_tally.outcome))::text)},
	15, 'stats have a row for each outcome');

# --- the log --------------------------------------------------------------------------------------------------------

my $offset = log_end($node);
vote($node, 'postgres', 'few', 5);
wait_published($node, 'postgres', 'few');
is(scalar(log_lines($node, qr/event=/, $offset)), 0, 'nothing is logged without log_publications');
set_all($node, 'poll_tally.log_publications' => 'on');
$node->poll_query_until('postgres', q{SELECT current_setting('poll_tally.log_publications') = 'on'});
published_ok($node, 'postgres', 'live', 'with log_publications');
$offset = log_end($node);
vote($node, 'postgres', 'few', 5);
my ($revision, $position) = split / /, wait_published($node, 'postgres', 'few');
$node->safe_psql('postgres', q{SELECT poll_tally.close_poll('few'); BEGIN; SELECT poll_tally.publish('hourly', true); ROLLBACK});
my @lines = map { /LOG:\s+(poll_tally: event=.*)/ ? $1 : () } log_lines($node, qr/event=/, $offset);
my @events = map { /event=(\w+)/ } @lines;
is("@events", 'publication_attempted snapshot_committed publication_attempted snapshot_committed poll_closed publication_attempted',
	'a line when a publication is attempted, one when it is committed, one when a poll is closed') || diag(join "\n", @lines);
is(scalar(grep { !/^poll_tally: event=\w+( \w+=\S+)+$/ } @lines), 0, 'each of keys and values');
is(scalar(grep { /\brevision=$revision\b/ && /\bposition=$position\b/ && /final=false/ } @lines), 2, 'with revision and position');
is(scalar(grep { /\brevision=@{[ $revision + 1 ]}\b/ && /final=true/ } @lines), 3, 'and of the close');
is(scalar(log_lines($node, qr/event=.*accept/, $offset)), 0, 'accepted events are not logged');
$offset = log_end($node);
$node->safe_psql('postgres', q{BEGIN; SAVEPOINT a; SELECT poll_tally.publish('hourly', true); ROLLBACK TO a; RELEASE a;
SAVEPOINT b; SELECT poll_tally.publish('hourly', true); RELEASE b; SAVEPOINT c; ROLLBACK TO c; RELEASE c; COMMIT});
@events = map { /event=(\w+) .*\brevision=(\d+)/ ? "$1 $2" : () } log_lines($node, qr/event=/, $offset);
is("@events", 'publication_attempted 2 publication_attempted 2 snapshot_committed 2', 'what a savepoint took back is not committed');

# --- who may see it -------------------------------------------------------------------------------------------------

my @watching = ('poll_tally.workers', 'poll_tally.blockers', 'poll_tally.metrics', 'poll_tally.stats', 'poll_tally.stalled()');
for my $what (@watching, 'poll_tally.lag')
{
	sqlstate_is($node, 'postgres', "SET ROLE boss; SELECT count(*) FROM $what", '', "an admin sees $what");
	for my $role ('eye', 'voter', 'stranger', ($what eq 'poll_tally.lag' ? () : 'auditor'))
	{
		sqlstate_is($node, 'postgres', "SET ROLE $role; SELECT count(*) FROM $what", '42501', "$role does not see $what");
	}
}
sqlstate_is($node, 'postgres', q{SET ROLE auditor; SELECT count(*) FROM poll_tally.lag}, '', 'an auditor sees lag');
for my $role ('voter', 'stranger', 'auditor')
{
	sqlstate_is($node, 'postgres', "SET ROLE $role; SELECT poll_tally.observe_revision('live', 'hall', 1)", '42501',
		"$role has no say in what viewers have");
}

slowest_ok('watching');
$node->stop;

# --- not preloaded --------------------------------------------------------------------------------------------------

$node->append_conf('postgresql.conf', q{shared_preload_libraries = ''});
$node->start;
query_is($node, 'postgres', 'SELECT (SELECT count(*) FROM poll_tally.workers), (SELECT count(value) FROM poll_tally.stats),'
	  . ' (SELECT count(*) > 0 FROM poll_tally.stats)', '0|0|t', 'not preloaded: no worker, and statistics are NULL');
vote($node, 'postgres', 'live');
ok($node->poll_query_until('postgres', q{SELECT count(*) = 1 FROM poll_tally.stalled('0') WHERE poll = 'live' AND worker_pid IS NULL
    AND publish_attempts IS NULL}), 'not preloaded: stalled() works from the tables');
query_is($node, 'postgres', q{SELECT value > 0 FROM poll_tally.metrics WHERE name = 'poll_tally_lag_seconds'
    AND labels->>'poll' = 'live'}, 't', 'and so do metrics');
$node->safe_psql('postgres', q{BEGIN; SELECT outcome FROM poll_tally.accept_event('quiet', 'again', 'red'); PREPARE TRANSACTION 'again'});
query_is($node, 'postgres', $found, 'quiet prepared', 'a prepared transaction is a blocker where no publisher runs');
$node->safe_psql('postgres', q{ROLLBACK PREPARED 'again'});

# --- many polls, of whose tables nothing is known yet ---------------------------------------------------------------

my $rows_read = q{SELECT coalesce(sum(seq_tup_read + idx_tup_fetch), 0) FROM pg_stat_user_tables
    WHERE relname IN ('poll', 'publication', 'lane', 'ledger')};
$node->safe_psql('postgres', 'CREATE DATABASE many');
$node->safe_psql('many', q{CREATE EXTENSION poll_tally;
SELECT poll_tally.create_poll('many-' || n, '{a,b}', counting => 'every') FROM generate_series(1, 300) AS n;
SELECT poll_tally.accept_event('many-' || n, 'event-' || n, 'a') FROM generate_series(1, 300) AS n});
ok($node->poll_query_until('many', q{SELECT count(*) = 300 FROM poll_tally.stalled('0')}), 'all of many polls are stalled');
my $before = $node->safe_psql('many', $rows_read);
$node->safe_psql('many', q{SELECT FROM poll_tally.stalled('0')});
my $each = ($node->safe_psql('many', $rows_read) - $before) / 300;
note "figure: stalled() of 300 polls reads $each rows a poll";
cmp_ok($each, '<', 30, 'stalled() reads a few rows a poll, however many there are');
$node->stop;
done_testing();
