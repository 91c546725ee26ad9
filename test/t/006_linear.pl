# 20,000 events in one transaction cost at most twice as much each as 2,000 do, by the best of three, and each is visible
# at once to the next statement: as one SELECT, as a loop, as statements of their own, with every view read after every
# event, in exception blocks and between savepoints with every tenth event taken back and sent again, in a poll that is too
# wide for its lane's row, and where each event brings a key that is new to a poll of as many choices.
use strict;
use warnings FATAL => 'all';

use PollTally;
use Test::More;

my ($few, $many) = deep() ? (5000, 50_000) : (2000, 20_000);
my @forms = (
	[ select => 'one SELECT' ],
	[ loop => 'one DO loop' ],
	[ statements => 'separate statements' ],
	[ reads => 'call, six reads and a repeat, in a loop' ],
	[ blocks => 'exception blocks, every tenth undone' ],
	[ savepoints => 'savepoints, every tenth undone' ],
	[ wide => 'one SELECT, 1,500 choices' ],
	[ keys => 'one SELECT, new keys beside as many given ones' ]);
my $node = new_node('linear', 'fsync = off', 'poll_tally.publish = off', 'autovacuum = off', 'max_wal_size = 4GB');
$node->append_conf('postgresql.conf', 'log_statement = none');
$node->reload;
$node->safe_psql('postgres', 'CREATE EXTENSION poll_tally');

# Savepoints are many round trips, so there a quarter of it has to do.
my %part = (savepoints => 4, keys => 2);
my %result = map { client($node, 'linear', $few / ($part{ $_->[0] } // 1), $many / ($part{ $_->[0] } // 1), 3, $_->[0]) } @forms;

for my $form (@forms)
{
	my ($name, $title) = @$form;
	my $part = $part{$name} // 1;
	my $ratio = $result{"${name}_many"} / $result{"${name}_few"};
	figure(sprintf('%s: %d events cost %.2f times as much each as %d do (%.0f us, %.0f us)',
			$title, $many / $part, $ratio, $few / $part, $result{"${name}_many"}, $result{"${name}_few"}));
	cmp_ok($ratio, '<=', 2, "$title: linear");
	is($result{"${name}_wrong"}, 0, "$title: each event is visible at once, and counted once in the end");
}

$node->stop;
done_testing();
