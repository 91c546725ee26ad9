# The relay for RabbitMQ with a real broker: killed -9 at every step of a message's way; the database stopped between
# COMMIT and acknowledgement; a COMMIT whose result is unknown; everything delivered again; competing relays; in the long
# form the broker killed as well. Always: accepted = distinct ids delivered, and what is acknowledged is in the ledger or
# among the dead letters.
use strict;
use warnings FATAL => 'all';

use Relays;
use Test::More;

relay_test('relay_rabbitmq');

done_testing();
