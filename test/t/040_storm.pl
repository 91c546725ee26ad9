# A storm of overlapping batches: 32 connections over 16 polls, one batch a transaction, in random order, some rolled
# back, cancelled, timed out or all_or_nothing. No deadlock, no wrong verdict, no difference in any recount.
use strict;
use warnings FATAL => 'all';

use PollTally;
use Test::More;

my $connections = 32;
my $seconds = deep() ? 60 : 5;
my $node = new_node('storm', 'fsync = off', 'log_min_error_statement = panic');
$node->safe_psql('postgres', 'CREATE EXTENSION poll_tally');

my %result = client($node, 'storm', $connections, $seconds, seed());

figure(sprintf('storm of batches: %d connections, %d s, %d batches (%.0f a second) and %d single events committed, '
		  . '%d events judged, %d entries in the ledger',
		$connections, $seconds, $result{batches}, $result{batches} / $seconds, $result{singles}, $result{events},
		$result{entries}));
figure("storm of batches: $result{rollbacks} rolled back, $result{cancelled} cancelled, $result{refused_whole} refused as "
	  . "a whole, $result{not_serializable} times 40001, $result{deadlocks} deadlocks, $result{wrong} wrong verdicts, "
	  . "$result{recount_wrong} recount differences");
is($result{deadlocks}, 0, 'no client was told of a deadlock');
is($result{server_deadlocks}, 0, 'the server saw none');
is($result{wrong}, 0, 'every verdict agrees with the ledger, each id was accepted once');
is($result{recount_wrong}, 0, 'results are what the ledger adds up to');
cmp_ok($result{entries} - $result{said_accepted}, '<=', $result{doubt} * 40, 'nothing else is in the ledger');
for my $what (qw(batches singles rollbacks cancelled refused_whole not_serializable))
{
	cmp_ok($result{$what}, '>', 0, "the storm had $what");
}
for my $outcome (qw(duplicate conflict source_conflict already_responded limit_reached))
{
	cmp_ok($result{"said_$outcome"}, '>', 0, "somebody was told $outcome");
}
for my $poll (polls_of($node, 'postgres'))
{
	poll_is_true($node, 'postgres', $poll, "$poll: the poll holds together");
}

$node->stop;
done_testing();
