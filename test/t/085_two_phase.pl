# Savepoints and two-phase commit. Trees of savepoints and of PL/pgSQL exception blocks to a depth of 70: exactly the
# branches that were not rolled back count. Votes that are prepared outlive kill -9, a promotion and a close that waits for
# them; what they hold shows in blockers, with the transaction's name and age, and each is counted once or leaves no trace.
use strict;
use warnings FATAL => 'all';

use PollTally;
use PostgreSQL::Test::Cluster;
use Survival;
use Test::More;
use Time::HiRes qw(time);
use WorkerLife;

my $seed = seed();
my ($trees, $prepared) = (long(300, 8), deep() ? 60 : 12);
my $depth = 70;
my $node = new_node('phases', 'fsync = off', 'max_prepared_transactions = 100', "poll_tally.databases = 'postgres'", 'log_min_messages = log');
$node->safe_psql('postgres', 'CREATE EXTENSION poll_tally; CREATE EXTENSION amcheck');

# --- trees ----------------------------------------------------------------------------------------------------------

my $begun = time();
my %result = client($node, 'savepoints', $seed, $trees, $depth);
figure(sprintf('trees of savepoints to depth %d: %d trees, %d by exception blocks, %d branches rolled back and %d released, %d entries, '
		  . '%d comparisons, %.0f s, %d violations', $result{deepest}, $trees, @result{qw(blocks undone released entries compared)},
		time() - $begun, $result{violations}));
is($result{violations}, 0, 'ledger and counts are what the model says');
is($result{compared}, $trees, 'after each tree');
is($result{deepest}, $depth, 'as deep as it should be');
cmp_ok($result{$_}, '>', 0, "there was $_") for qw(undone released blocks looks entries);

# --- prepared votes -------------------------------------------------------------------------------------------------

# A hundred lanes would do; each prepared transaction holds one of each of two polls.
$node->safe_psql('postgres', <<'SQL');
SELECT poll_tally.create_poll('held', '{red,blue}', counting => 'every', max_lanes => 64, publish_every => '100 milliseconds');
SELECT poll_tally.create_poll('once', '{red,blue}', max_lanes => 64, publish_every => '100 milliseconds');
SQL

sub vote_sql
{
	my ($poll, $id, $principal) = @_;
	return "SELECT outcome FROM poll_tally.accept_event('$poll', '$id', 'red', " . ($principal ? "'$principal'" : 'NULL') . ')';
}

sub prepare
{
	my ($name) = @_;
	my @statements = ('BEGIN', vote_sql('held', "$name-1"), 'SAVEPOINT here', vote_sql('held', "$name-back"), 'ROLLBACK TO here',
		vote_sql('held', "$name-2"), vote_sql('once', "$name-3", "voter-$name"), "PREPARE TRANSACTION '$name'");
	return $node->safe_psql('postgres', join ';', @statements);
}

# Each of these holds one lane of both polls, and says so.
sub blockers_ok
{
	my ($when, @names) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $expected = join "\n", map { ("held|$_|prepared", "once|$_|prepared") } sort @names;
	query_is($node, 'postgres', q{SELECT poll, gid, kind FROM poll_tally.blockers WHERE poll IN ('held', 'once')
		AND since <= clock_timestamp() AND age >= '0' ORDER BY gid COLLATE "C", poll}, $expected, "$when: " . @names . ' orphans are among the blockers');
	query_is($node, 'postgres', "SELECT count(DISTINCT lane) = count(*) FROM poll_tally.blockers WHERE poll = 'held'", 't',
		"$when: each holds a lane of its own") if @names;
	return;
}

my @names = map { sprintf 'orphan-%03d', $_ } 1 .. $prepared;
prepare($_) for @names;
blockers_ok('prepared', @names);
query_is($node, 'postgres', q{SELECT count(*) FROM poll_tally.events WHERE event_id LIKE 'orphan-%'}, 0, 'nothing of them shows');

my ($kills, $decided, %committed) = (0, 0);
srand($seed);
my @rest = @names;
my $rounds = deep() ? 5 : 2;
for my $kill (1 .. $rounds)
{
	kill_worker($node, $node->safe_psql('postgres',
			q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'checkpointer' OR backend_type LIKE 'poll_tally%' ORDER BY random() LIMIT 1}));
	$kills++;
	blockers_ok("after kill $kill", @rest);
	for my $number (1 .. @names / 8)
	{
		my $name = splice @rest, int(rand(@rest)), 1;
		$committed{$name} = rand() < 0.5;
		$node->safe_psql('postgres', ($committed{$name} ? 'COMMIT' : 'ROLLBACK') . " PREPARED '$name'");
		$decided++;
	}
	blockers_ok("some decided after kill $kill", @rest);
}

# --- promotion ------------------------------------------------------------------------------------------------------

$node->backup('phases');
my $standby = PostgreSQL::Test::Cluster->new('phases_standby');
$standby->init_from_backup($node, 'phases', has_streaming => 1);
$standby->start;
prepare('streamed');
$node->wait_for_catchup($standby, 'replay', $node->lsn('insert'));
my $epoch = $node->safe_psql('postgres', q{SELECT epoch FROM poll_tally.snapshot('held')});
$node->stop('immediate');
$standby->promote;
$node = $standby;
$node->poll_query_until('postgres', 'SELECT NOT pg_is_in_recovery()') || die 'no promotion';
push @rest, 'streamed';
blockers_ok('promoted', @rest);
isnt($node->safe_psql('postgres', q{SELECT epoch FROM poll_tally.snapshot('held')}), $epoch, 'promoted: the epoch is another');
sqlstate_is($node, 'postgres', q{SET lock_timeout = '200ms'; } . vote_sql('held', "$rest[0]-1"), '55P03', 'promoted: an id is still held');

# --- close ----------------------------------------------------------------------------------------------------------

my ($out, $err) = ('', '');
$node->psql('postgres', q{SET lock_timeout = '200ms'; SELECT * FROM poll_tally.close_poll('held')}, stderr => \$err);
like($err, qr/lock timeout/, 'a close waits for the prepared votes');
like($err, qr/prepared transaction "$rest[0]"/, 'and names them');
query_is($node, 'postgres', q{SELECT closed_at IS NULL FROM poll_tally.polls WHERE poll = 'held'}, 't', 'the poll stays open');

# At the deadline the worker does not close over a prepared vote, and shows it; once that is decided it closes by itself.
$node->safe_psql('postgres', <<'SQL');
SELECT poll_tally.create_poll('soon', '{red,blue}', counting => 'every', closes_at => now() + interval '4 seconds');
BEGIN;
SELECT poll_tally.accept_event('soon', 'soon-1', 'red');
PREPARE TRANSACTION 'late';
SQL
$node->poll_query_until('postgres', q{SELECT closes_at < clock_timestamp() FROM poll_tally.polls WHERE poll = 'soon'}) || die 'no deadline';
query_is($node, 'postgres', q{SELECT outcome FROM poll_tally.accept_event('soon', 'soon-2', 'blue')}, 'closed', 'past its deadline a poll takes no votes');
query_is($node, 'postgres', q{SELECT gid, kind FROM poll_tally.blockers WHERE poll = 'soon'}, 'late|prepared',
	'past its deadline, the prepared vote is what keeps a poll from being closed');
query_is($node, 'postgres', q{SELECT final FROM poll_tally.lag WHERE poll = 'soon'}, 'f', 'it is not closed');
$node->safe_psql('postgres', q{COMMIT PREPARED 'late'});
ok($node->poll_query_until('postgres', q{SELECT final FROM poll_tally.lag WHERE poll = 'soon'}), 'once that is decided, the worker closes it');
query_is($node, 'postgres', q{SELECT total FROM poll_tally.snapshot('soon')}, 1, 'with the vote that was judged in time');

for my $name (@rest)
{
	$committed{$name} = rand() < 0.5;
	$node->safe_psql('postgres', ($committed{$name} ? 'COMMIT' : 'ROLLBACK') . " PREPARED '$name'");
	$decided++;
}
blockers_ok('all decided');
my $count = grep { $committed{$_} } keys %committed;
query_is($node, 'postgres', q{SELECT included_position, final FROM poll_tally.close_poll('held')}, 2 * $count . '|t',
	'then it closes, with the votes that were committed');
query_is($node, 'postgres', q{SELECT included_position, final FROM poll_tally.close_poll('once')}, "$count|t", 'and so does the other');
my $wrong = 0;
for my $name (sort keys %committed)
{
	my $there = $node->safe_psql('postgres', "SELECT count(*) FROM poll_tally.events WHERE event_id IN ('$name-1', '$name-2', '$name-3', '$name-back')");
	$wrong++ if $there != ($committed{$name} ? 3 : 0);
	my $said = $node->safe_psql('postgres', vote_sql('held', "$name-1"));
	$wrong++ if $said ne ($committed{$name} ? 'duplicate' : 'closed');
}
is($wrong, 0, 'each is there as a whole or not at all, and a retry says so');
figure("prepared votes: $prepared prepared, $kills times kill -9, one promotion, a close that waited; $decided decided, $count of them "
	  . "committed, $wrong violations in " . 2 * keys(%committed) . ' checks');
survived_ok($node, 'postgres', 'in the end');
$node->stop;
done_testing();
