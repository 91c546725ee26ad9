# Random and exhaustive sequences of operations, against a model of polls that shares no code with the extension: every
# answer, every ledger entry and every count is as the model says, and verify_poll agrees at the end of each sequence.
use strict;
use warnings FATAL => 'all';

use PollTally;
use Test::More;

my ($exhaustive, $sampled) = deep() ? (3, 6000) : (2, 2000);
my $node = new_node('model', 'fsync = off', 'poll_tally.publish = off', 'max_wal_size = 4GB');
$node->append_conf('postgresql.conf', 'log_statement = none');
$node->reload;
$node->safe_psql('postgres', 'CREATE EXTENSION poll_tally');

my %result = client($node, 'model_check', $exhaustive, $sampled, seed());

my @rules = map { /^sequences_(\w+)/ ? $1 : () } sort keys %result;
is("@rules", 'bounded_every every latest limited_every limited_latest once', 'all rules were played');
for my $rules (@rules)
{
	figure("$rules: $result{\"sequences_$rules\"} sequences, $result{\"mismatches_$rules\"} mismatches");
	my $expected = $sampled + ($rules =~ /_/ ? 0 : $result{letters}**2 * 0.9);
	cmp_ok($result{"sequences_$rules"}, '>=', $expected, "$rules: as many sequences as there should be");
	is($result{"mismatches_$rules"}, 0, "$rules: the server agrees with the model");
}
is($result{recounts_wrong}, 0, 'each recount of a ledger equals the results');

# A check that never meets an outcome says nothing of it.
my @said = map { /^said_(\w+)/ ? $1 : () } sort keys %result;
figure('answers: ' . join(', ', map { "$result{\"said_$_\"} $_" } @said));
is("@said", 'accepted already_responded altered_00000 altered_22023 altered_55000 closed conflict duplicate final'
	  . ' limit_reached nothing_to_retract unknown_event', 'every answer of these operations was met');
figure('sequences committed as one transaction: ' . $result{way_commit} . ", rolled back: $result{way_rollback}, "
	  . "each operation a transaction: $result{way_each}");
cmp_ok($result{way_commit}, '>', $result{way_rollback} / 2, 'a good share of the sequences was committed');

$node->stop;
done_testing();
