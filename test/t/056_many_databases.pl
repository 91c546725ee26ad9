# The places of databases. There are more databases than places: the worker says so once; a database beyond them takes votes, counts no statistics
# and is published by hand; and once there is room, it is served. Most of the databases are rows of pg_database alone,
# without files: whoever looks into one fails, as with one that is dropped at that moment.
use strict;
use warnings FATAL => 'all';

use PollTally;
use PostgreSQL::Test::Utils;
use Test::More;
use WorkerLife;

my $places = 128;
my $node = new_node('many', 'fsync = off', 'autovacuum = off', 'log_min_messages = log');
$node->safe_psql('postgres', 'CREATE EXTENSION poll_tally');
make_poll($node, 'postgres', 'served');
vote($node, 'postgres', 'served');
published_ok($node, 'postgres', 'served', 'one database');

$node->safe_psql('postgres', <<"SQL");
INSERT INTO pg_database
SELECT (jsonb_populate_record(d, jsonb_build_object('oid', 4000000 + g, 'datname', 'empty_' || g))).*
FROM pg_database AS d, generate_series(1, $places) AS g WHERE d.datname = 'postgres'
SQL
ok(wait_until(sub { log_lines($node, qr/poll_tally has no publisher for database "empty_\d+"/) }), 'a database without a place is said in the log');

$node->safe_psql('postgres', 'CREATE DATABASE beyond TEMPLATE template0');
$node->safe_psql('beyond', 'CREATE EXTENSION poll_tally');
make_poll($node, 'beyond', 'late');
vote($node, 'beyond', 'late', 3);
query_is($node, 'beyond', 'SELECT count(*) > 0, count(value), count(since) FROM poll_tally.stats', 't|0|0', 'beyond: no statistics');
sqlstate_is($node, 'beyond', 'SELECT poll_tally.reset_stats()', '55000', 'beyond: and none to be reset');
query_is($node, 'beyond', q{SELECT gap, worker_pid IS NULL, publish_attempts IS NULL FROM poll_tally.stalled('0')}, '3|t|t',
	'beyond: nobody publishes');
query_is($node, 'beyond', q{SELECT included_position FROM poll_tally.publish('late', force => true)}, 3, 'beyond: published by hand');
vote($node, 'beyond', 'late', 2);
vote($node, 'postgres', 'served');
published_ok($node, 'postgres', 'served', 'the first database is served as before');
query_is($node, 'beyond', q{SELECT gap FROM poll_tally.lag WHERE poll = 'late'}, 2, 'beyond: it is still by hand alone');
is(scalar(log_lines($node, qr/has no publisher for database/)), 1, 'it was said once');

$node->safe_psql('postgres', q{DELETE FROM pg_database WHERE datname LIKE 'empty_%'});
ok(wait_until(sub { $node->safe_psql('beyond', q{SELECT gap = 0 FROM poll_tally.lag WHERE poll = 'late'}) eq 't' }), 'with room it is served');
vote($node, 'beyond', 'late');
published_ok($node, 'beyond', 'late', 'and goes on');
query_is($node, 'beyond', q{SELECT value > 0 FROM poll_tally.stats WHERE name = 'accepted'}, 't', 'it has its statistics');
history_ok($node, 'beyond', 'late', 'one history');

# --- a place that is taken --------------------------------------------------------------------------------------------

# The publisher does not notice that its launcher ends, and that the next one starts others: they find its place taken, and
# leave it alone.
published_ok($node, 'postgres', 'served', 'before the launcher ends');
my ($old, $launcher) = (publisher_of($node, 'postgres'), launcher_of($node));
kill('STOP', $old) == 1 || die "cannot stop $old";
$node->safe_psql('postgres', "SELECT pg_terminate_backend($launcher)");
ok(wait_until(sub { launcher_of($node) !~ /^(0|$launcher)$/ }), 'another launcher comes');
my %starts;
ok(wait_until(sub { $starts{ worker_value($node, 'started_at', 'publisher', 'postgres') }++; return keys %starts > 3 }), 'it tries again and again');
is(worker_value($node, 'pid', 'publisher', 'postgres'), $old, 'the place is still that of the first one');
vote($node, 'postgres', 'served');
query_is($node, 'postgres', q{SELECT gap FROM poll_tally.lag WHERE poll = 'served'}, 1, 'in which nobody else publishes');
kill('CONT', $old) == 1 || die "cannot go on with $old";
ok(wait_until(sub { publisher_of($node, 'postgres') !~ /^(0|$old)$/ }), 'once it goes on, it ends, and another takes its place');
published_ok($node, 'postgres', 'served', 'another publisher');
is(worker_value($node, 'pid', 'publisher', 'postgres'), publisher_of($node, 'postgres'), 'which is where it says to be');
$node->stop;
done_testing();
