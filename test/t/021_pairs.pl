# Every pair of reasons that can hold at once against the order of DESIGN section 4: the earlier row wins. Pairs that
# cannot hold are listed with why.
use strict;
use warnings FATAL => 'all';

use PollTally;
use Test::More;

my $node = new_node('pairs', 'fsync = off', 'poll_tally.publish = off');
$node->safe_psql('postgres', 'CREATE EXTENSION poll_tally');

my %result = client($node, 'pairs');

figure("pairs of reasons: $result{pairs} run, $result{impossible} impossible, $result{wrong} in which the later row won");
cmp_ok($result{alone}, '>=', 20, 'each reason was tried alone');
cmp_ok($result{pairs}, '>', 150, 'the pairs were run');
is($result{wrong}, 0, 'the earlier row wins');

$node->stop;
done_testing();
