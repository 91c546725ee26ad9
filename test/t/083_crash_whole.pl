# The whole server goes down under load from 16 clients, in turn by kill -9 of the postmaster and by an immediate stop: what
# was acknowledged is there with its receipt, what was rolled back is not, a transaction is there whole or not at all, a retry
# tells the truth of all that was in doubt, and heap and indexes agree.
use strict;
use warnings FATAL => 'all';

use PollTally;
use Survival;
use Test::More;
use Time::HiRes qw(time);

my $rounds = long(20, 2);
my $node = new_node('whole', 'fsync = on', 'recovery_init_sync_method = syncfs', 'log_min_messages = log');
$node->safe_psql('postgres', 'CREATE EXTENSION poll_tally; CREATE EXTENSION amcheck');
my $begun = time();
my %result = client($node, 'crash_whole', $node->data_dir, $node->logfile, $rounds, seed());
figure(sprintf('server down under load: %d times the postmaster killed, %d immediate stops, in %.0f s; %d events in the ledger, %d in '
		  . 'doubt (%d were there, %d were not), %d violations', $result{postmaster}, $result{stop}, time() - $begun, $result{acked},
		$result{open_there} + $result{open_absent}, $result{open_there}, $result{open_absent}, $result{violations}));
is($result{postmaster} + $result{stop}, $rounds, 'every time was followed by a check');
is($result{violations}, 0, 'ledger, results, receipts and retries agree with the books of the clients');
cmp_ok($result{open_there} + $result{open_absent}, '>', 0, 'some events were in doubt');
query_is($node, 'postgres', 'SELECT count(*), count(DISTINCT event_id) FROM poll_tally.events', "$result{acked}|$result{acked}",
	'each event is there once');
for my $poll (polls_of($node, 'postgres'))
{
	ok($node->poll_query_until('postgres', "SELECT gap = 0 FROM poll_tally.lag WHERE poll = '$poll'"), "$poll: the publisher catches up");
}
survived_ok($node, 'postgres', 'after all of them');
$node->stop;
done_testing();
