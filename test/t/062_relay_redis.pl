# The relay for Redis Streams with a real redis-server: killed -9 at every step of a message's way; the database stopped
# between COMMIT and acknowledgement; a COMMIT whose result is unknown; redis-server killed under appendfsync always, and
# under everysec with the end of its file lost, dead letters and the group too; everything delivered again; consumers that
# die and linger; trimming.
# Always: accepted = distinct ids delivered, and what is acknowledged is in the ledger or among the dead letters.
use strict;
use warnings FATAL => 'all';

use Relays;
use Test::More;

relay_test('relay_redis');

done_testing();
