# The page of examples/live in headless Chromium: live updates from votes in other tabs, at another process; keyboard, zoom,
# motion, no script, languages, hostile titles; messages late, repeated and missing, another epoch, lost answers, no
# streams, seven tabs, page server and database killed; hidden and final polls; axe-core.
use strict;
use warnings FATAL => 'all';

use Live;
use Test::More;

my $node = live_node('live_browser');
run_live($node, 'browser');
$node->stop;
done_testing();
