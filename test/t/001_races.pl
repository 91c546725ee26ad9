# 64 persistent connections send at once, round after round: one event id counts once and every other sender gets the
# original receipt; one principal of a poll that counts once responds once, whatever the ids. Half of the rounds start
# at a gate, so that all sessions vote with a snapshot that is older than the winner.
use strict;
use warnings FATAL => 'all';

use PollTally;
use Test::More;

my $connections = 64;
my $rounds = deep() ? 5000 : 500;
my $node = new_node('races', 'max_connections = 100', 'fsync = off');
$node->safe_psql('postgres', 'CREATE EXTENSION poll_tally');

my %result = client($node, 'races', $connections, $rounds, seed());

for my $kind ('id', 'principal')
{
	figure("one $kind, $connections connections: $result{\"${kind}_rounds\"} rounds, "
		  . "$result{\"${kind}_calls\"} calls, $result{\"${kind}_violations\"} violations");
	is($result{"${kind}_calls"}, $rounds * $connections, "$kind: every call was made");
	is($result{"${kind}_violations"}, 0, "$kind: exactly one accepted in each round");
	is($result{"${kind}_recount_wrong"}, 0, "$kind: the ledger holds what the clients were told");
	query_is($node, 'postgres', "SELECT accepted_position FROM poll_tally.polls WHERE poll = '$kind'", $rounds,
		"$kind: one ledger entry a round");
	poll_is_true($node, 'postgres', $kind, "$kind: the poll holds together");
}

$node->stop;
done_testing();
