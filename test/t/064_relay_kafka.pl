# The relay for Kafka against a peer that speaks its protocol: killed -9 at every step of a message's way; the database
# stopped between COMMIT and acknowledgement; a COMMIT whose result is unknown; rebalances; a broker that refuses commits
# and dead letters; everything delivered again. Always: accepted = distinct ids delivered, and what is acknowledged is in
# the ledger or among the dead letters.
use strict;
use warnings FATAL => 'all';

use Cwd qw(abs_path);
use File::Basename qw(dirname);
use PostgreSQL::Test::Utils;
use Relays;
use Test::More;

my $source = abs_path(dirname(__FILE__) . '/../lib/kafka_peer.c');
my $peer = PostgreSQL::Test::Utils::tempdir() . '/kafka_peer';
system_or_bail('gcc', '-Wall', '-Wextra', '-Werror', '-O2', '-o', $peer, $source, '-lrdkafka');
relay_test('relay_kafka', $peer);

done_testing();
