# Random histories: up to 64 connections, a weighted mix of events, retries, conflicts, batches, replacements,
# retractions, savepoints, two-phase commits, cancels and closes at all isolation levels, while sessions are cancelled
# and terminated, backends and workers killed and the server stopped. A checker in another language, which reads the logs
# of the clients and plain SELECTs, finds nothing missing, phantom, half, double, wrong, out of order or miscounted.
use strict;
use warnings FATAL => 'all';

use History;
use PollTally;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

my ($clients, $processes) = deep() ? (64, 4) : (32, 2);
my $steps = long(500, 100);
my @faults = qw(cancel terminate worker kill stop);
my $seed = seed();
my $node = new_node('histories', 'fsync = ' . (deep() ? 'on' : 'off'), 'recovery_init_sync_method = syncfs', 'max_connections = 120', 'max_prepared_transactions = 300',
	'deadlock_timeout = 50ms', 'log_min_messages = fatal', 'poll_tally.keep_snapshots = 300');
$node->safe_psql('postgres', 'CREATE EXTENSION poll_tally');
my ($logs, $dump) = map { PostgreSQL::Test::Utils::tempdir() } 1 .. 2;

my %played = play($node, $logs, $seed, $clients, $steps, $processes, @faults);
query_is($node, 'postgres', 'SELECT count(*) FROM pg_prepared_xacts', 0, 'no prepared transaction is left');
dump_polls($node, $dump);
my $begun = time();
my %found = check_history($logs, $dump, \&diag);

figure(sprintf('history of seed %d: %d connections, %d transactions in %.0f s (%d acknowledged, %d refused, %d unknown), %d events '
		  . 'in the ledger; checked in %.0f s', $seed, $clients, $clients * $steps, $played{seconds}, $found{state_ok},
		$found{state_refused}, $found{state_unknown} // 0, $found{entries}, time() - $begun));
figure('faults: ' . join(', ', map { "$played{$_} $_" } @faults) . ", $played{lost} connections lost, "
	  . "$played{unknown} events in doubt");
figure('answers: ' . join(', ', map { /^said_(.*)/ ? "$found{$_} $1" : () } sort keys %found));
for my $kind (history_kinds())
{
	figure("$kind: $found{\"violations_$kind\"} violations in $found{\"checks_$kind\"} checks");
	is($found{"violations_$kind"}, 0, "nothing is $kind");
	cmp_ok($found{"checks_$kind"}, '>', 0, "$kind: was looked for");
}

# What did not happen was not tested.
for my $what (
	(map { "said_$_" } qw(accepted duplicate conflict source_conflict unknown_poll closed unknown_choice already_responded
		  limit_reached nothing_to_retract unknown_event)),
	(map { "level_$_" } qw(none READ_COMMITTED REPEATABLE_READ SERIALIZABLE)),
	(map { "end_$_" } qw(commit rollback two_phase two_phase_back two_phase_later)),
	(map { "sqlstate_$_" } qw(40001 57014)),
	(map { "operation_$_" } qw(A R C P V)), 'state_ok', 'state_refused', 'state_unknown')
{
	cmp_ok($found{$what} // 0, '>', 0, "the history has $what");
}
cmp_ok($played{$_}, '>', 0, "it went on under $_") for @faults;
for my $client (0, $clients - 1)
{
	is_deeply([ logged_digests($logs, $client) ], [ plan_digests($seed, $clients, $steps, $client) ],
		"client $client did what the seed says, step by step");
}
for my $poll (polls_of($node, 'postgres'))
{
	poll_is_true($node, 'postgres', $poll, "$poll holds together");
}
$node->stop;
done_testing();
