# kill -9 of a random backend, ten times under load from 16 clients, with fsync on: every acknowledged event is in the
# ledger with the receipt that was given, nothing that was rolled back is, a transaction is there whole or not at all,
# the clients' own count equals results and ledger, and each event whose commit was in doubt gets the truth by a retry.
use strict;
use warnings FATAL => 'all';

use PollTally;
use Test::More;

my $kills = deep() ? 50 : 10;
my $node = new_node('crash', 'fsync = on');
$node->safe_psql('postgres', 'CREATE EXTENSION poll_tally');

my %result = client($node, 'crash', $kills, seed());

figure("kill -9 of a backend under load: $result{kills} kills, $result{acked} events in the ledger, $result{open} in doubt "
	  . "($result{open_there} were there, $result{open_absent} were not), $result{violations} violations");
is($result{kills}, $kills, 'every kill was followed by a check');
is($result{violations}, 0, 'ledger, results, receipts and retries agree with the books of the clients');
cmp_ok($result{open}, '>', 0, 'some events were in doubt');
query_is($node, 'postgres', 'SELECT count(*), count(DISTINCT event_id) FROM poll_tally.events',
	"$result{acked}|$result{acked}", 'each event is there once');

# The publisher died with every crash; its history goes on without a gap.
for my $poll (polls_of($node, 'postgres'))
{
	ok($node->poll_query_until('postgres', "SELECT gap = 0 FROM poll_tally.lag WHERE poll = '$poll'"),
		"$poll: the publisher catches up");
	poll_is_true($node, 'postgres', $poll, "$poll: the poll holds together");
}

$node->stop;
done_testing();
