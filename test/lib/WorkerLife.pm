# What the tests of publication share: who the workers are, voters that do not stop, a publication that can be held in
# its middle, and the check that a poll is published as it must be.
package WorkerLife;

use strict;
use warnings FATAL => 'all';

use Exporter 'import';
use IPC::Run qw(start);
use PollTally;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

our @EXPORT = qw(
  launcher_of publisher_of worker_value set_all log_lines log_end kill_worker make_poll vote
  wait_published published_ok history_ok start_voter stop_voter hold_publication await_held slowest_ok
);

# Section 7: within its interval and 5 s after the server is up. The intervals of these polls are 0.1 s at most.
my $allowed = 5.1;
my @slowest = (0, 'none');
my $votes = 0;

# --- workers --------------------------------------------------------------------------------------------------------

# worker_value(NODE, COLUMN, KIND, DATABASE): of the view workers; '' when there is no such worker.
sub worker_value
{
	my ($node, $column, $kind, $database) = @_;
	my $where = defined $database ? "database = '$database'" : 'database IS NULL';
	return $node->safe_psql('postgres', "SELECT $column FROM poll_tally.workers WHERE kind = '$kind' AND $where");
}

sub launcher_of
{
	my ($node) = @_;
	return worker_value($node, 'coalesce(pid, 0)', 'launcher') || 0;
}

# The publisher of a database that the server knows of too; 0 when there is none.
sub publisher_of
{
	my ($node, $database) = @_;
	return $node->safe_psql('postgres', 'SELECT coalesce(max(pid), 0) FROM pg_stat_activity'
		  . " WHERE backend_type LIKE 'poll_tally publisher%' AND datname = '$database'");
}

# set_all(NODE, NAME => VALUE, ...): in the server's configuration, and reloaded. undef resets.
sub set_all
{
	my ($node, %values) = @_;
	my $sql = join '', map {
		defined $values{$_} ? "ALTER SYSTEM SET $_ = '$values{$_}';\n" : "ALTER SYSTEM RESET $_;\n"
	} sort keys %values;
	$node->safe_psql('postgres', "$sql SELECT pg_reload_conf()");
	return;
}

sub log_end
{
	my ($node) = @_;
	return -s $node->logfile;
}

# Lines of the server's log that match, from an offset on.
sub log_lines
{
	my ($node, $pattern, $offset) = @_;
	return grep { $_ =~ $pattern } split /\n/, slurp_file($node->logfile, $offset // 0);
}

# Kill a process of the server, and wait until all of it has started anew.
sub kill_worker
{
	my ($node, $pid) = @_;
	my $offset = log_end($node);
	kill('KILL', $pid) == 1 || die "cannot kill process $pid";
	wait_until(sub { log_lines($node, qr/all server processes terminated; reinitializing/, $offset) }, 60)
	  || die 'the server did not notice';
	return $node->poll_query_until('postgres', 'SELECT true') || die 'the server did not come back';
}

# --- polls ----------------------------------------------------------------------------------------------------------

# make_poll(NODE, DATABASE, POLL[, ARGUMENTS]): one that counts every event and is published ten times a second.
sub make_poll
{
	my ($node, $database, $poll, $arguments) = @_;
	$arguments //= "publish_every => '100 milliseconds'";
	return $node->safe_psql($database,
		"SELECT poll_tally.create_poll('$poll', '{red,blue}', counting => 'every', $arguments)");
}

# vote(NODE, DATABASE, POLL[, HOW MANY]): dies unless all are accepted.
sub vote
{
	my ($node, $database, $poll, $count) = @_;
	$count //= 1;
	my $first = $votes + 1;
	$votes += $count;
	my $accepted = $node->safe_psql($database, <<SQL);
SET default_transaction_read_only = off;
SELECT count(*) FROM generate_series($first, $votes) AS g,
    poll_tally.accept_event('$poll', 'vote-$$-' || g, CASE WHEN g % 3 = 0 THEN 'red' ELSE 'blue' END) AS a
WHERE a.outcome = 'accepted'
SQL
	die "$accepted of $count votes accepted" if $accepted != $count;
	return;
}

# Wait until all that is in the ledger is published; returns "revision position", '' when it does not happen.
sub wait_published
{
	my ($node, $database, $poll, $seconds) = @_;
	my $state = '';
	wait_until(sub {
		$state = $node->safe_psql($database,
			"SELECT revision || ' ' || published_position FROM poll_tally.lag WHERE poll = '$poll' AND gap = 0");
		return $state ne '';
	}, $seconds // 30);
	return $state;
}

# What is kept of a poll's revisions has no gap and no fork, each includes more than the one before and came later, and
# each holds what the ledger has up to its frontier.
sub history_ok
{
	my ($node, $database, $poll, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return query_is($node, $database, <<SQL, 't|t|t', $name);
SELECT max(revision) - min(revision) + 1 = count(*), bool_and(more > 0 AND later > '0') IS NOT FALSE,
    (SELECT bool_and(ok) FROM poll_tally.verify_poll('$poll'))
FROM (SELECT revision, included_position - lag(included_position) OVER w AS more, published_at - lag(published_at) OVER w AS later
      FROM poll_tally.snapshots WHERE poll = '$poll' WINDOW w AS (ORDER BY revision)) AS s
SQL
}

# published_ok(NODE, DATABASE, POLL, WHAT): whatever has happened, one more vote is published in time; the next one by
# exactly the next revision; and the history holds together. Returns the seconds that the first one took.
sub published_ok
{
	my ($node, $database, $poll, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $start = time();
	vote($node, $database, $poll);
	my $before = wait_published($node, $database, $poll);
	my $seconds = time() - $start;
	@slowest = ($seconds, $what) if $seconds > $slowest[0];
	ok($before ne '' && $seconds <= $allowed, "$what: a moved poll is published in time") || diag("after $seconds s");
	return $seconds if $before eq '';
	my ($revision, $position) = split / /, $before;
	vote($node, $database, $poll);
	is(wait_published($node, $database, $poll), ($revision + 1) . ' ' . ($position + 1), "$what: the next revision has it");
	history_ok($node, $database, $poll, "$what: one history, and verify_poll");
	return $seconds;
}

# The slowest publication of the file.
sub slowest_ok
{
	my ($name) = @_;
	figure(sprintf('%s: the slowest publication of a moved poll came after %.1f s (%s); %.1f s are promised', $name,
			@slowest, $allowed));
	return;
}

# --- a worker that is busy, and one in mid-publication --------------------------------------------------------------

# A session that votes about a hundred times a second until it is stopped or its server dies.
sub start_voter
{
	my ($node, $database, $poll, $pause) = @_;
	$pause //= 0.01;
	my $file = PostgreSQL::Test::Utils::tempdir_short() . '/voter.sql';
	append_to_file($file, "SELECT outcome FROM poll_tally.accept_event('$poll', gen_random_uuid()::text, 'red')\n\\watch $pause\n");
	return start([ 'psql', '-XAtq', '-d', $node->connstr($database), '-f', $file ], '<', '/dev/null', '>', '/dev/null',
		'2>', '/dev/null');
}

sub stop_voter
{
	my ($voter) = @_;
	$voter->kill_kill;
	return;
}

# Every publication of the database sleeps in its middle, as long as public.delay says: 0 at first.
sub hold_publication
{
	my ($node, $database) = @_;
	$node->safe_psql($database, <<'SQL');
CREATE TABLE IF NOT EXISTS public.delay AS SELECT 0.0 AS seconds;
CREATE OR REPLACE FUNCTION public.slow() RETURNS trigger LANGUAGE plpgsql AS
    'BEGIN PERFORM pg_sleep(d.seconds) FROM public.delay AS d; RETURN NULL; END';
CREATE TRIGGER slow BEFORE INSERT ON poll_tally.snapshot FOR EACH STATEMENT EXECUTE FUNCTION public.slow();
SQL
	return;
}

# await_held(NODE, DATABASE, POLL[, SECONDS]): the worker is in the middle of a publication, for about that long.
sub await_held
{
	my ($node, $database, $poll, $seconds) = @_;
	$seconds //= 1.5;
	$node->safe_psql($database, "UPDATE public.delay SET seconds = $seconds");
	vote($node, $database, $poll);
	wait_until(sub {
		return $node->safe_psql('postgres', "SELECT count(*) FROM pg_stat_activity WHERE datname = '$database'"
			  . " AND backend_type LIKE 'poll_tally publisher%' AND wait_event = 'PgSleep'") == 1;
	}, 30) || die 'no publication came';
	$node->safe_psql($database, 'UPDATE public.delay SET seconds = 0');
	return;
}

1;
