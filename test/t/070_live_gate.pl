# The gate and the stream of examples/live over HTTP: the status of every outcome, who may vote and what is taken, a full
# pool, lost answers, a killed process, the same by postgrest.sql; what viewers get from two processes side by side, forged
# and lost messages, hostile titles, a database that goes and comes back.
use strict;
use warnings FATAL => 'all';

use Live;
use Test::More;

my $node = live_node('live_gate');
run_live($node, 'gate');
$node->stop;
done_testing();
