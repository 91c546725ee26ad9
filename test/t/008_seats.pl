# Polls with one lane: seats are given out exactly, whatever transactions do that wait for the lane or hold it, and nobody is
# left waiting; a deadlock over two such polls is found; lock_timeout and cancelling are honoured while waiting.
use strict;
use warnings FATAL => 'all';

use PollTally;
use Test::More;
use Time::HiRes qw(time);

my ($connections, $seats) = deep() ? (64, 5000) : (32, 300);
my $node = new_node('seats', 'max_connections = 100', 'fsync = off', q{deadlock_timeout = '100ms'});
$node->safe_psql('postgres', 'CREATE EXTENSION poll_tally');

my %result = client($node, 'seats', $connections, $seats, seed());
figure("seats: $connections connections, $result{calls} calls, $result{cancelled} cancelled, $result{died} terminated; "
	  . "of 2 x $seats seats $result{count_a} + $result{count_b} were given, $result{missing} missing, $result{phantom} phantoms");
is("$result{missing} $result{phantom}", '0 0', 'what was accepted is there, and nothing else');
cmp_ok($result{$_}, '<=', $seats, "no seat of $_ is given twice") for qw(count_a count_b);
cmp_ok($result{count_a} + $result{count_b}, '==', $result{stored}, 'each entry has a seat');
# Each client stops at its first refusal, so one of the two choices has run out.
ok($result{count_a} == $seats || $result{count_b} == $seats, 'seats run out exactly');
poll_is_true($node, 'postgres', 'seats', 'the poll holds together');

# --- what a wait honours --------------------------------------------------------------------------------------------

$node->safe_psql('postgres', "SELECT poll_tally.create_poll(p, '{a}', counting => 'every', max_lanes => 1) FROM unnest('{p,q}'::text[]) AS p");
my $holder = $node->background_psql('postgres', on_error_stop => 0);
$holder->query_safe(q{BEGIN; SELECT outcome FROM poll_tally.accept_event('p', 'held', 'a')});
sqlstate_is($node, 'postgres', q{SET lock_timeout = '50ms'; SELECT outcome FROM poll_tally.accept_event('p', 'w-1', 'a')}, '55P03',
	'lock_timeout ends a wait for a lane');
sqlstate_is($node, 'postgres', q{SET statement_timeout = '50ms'; SELECT outcome FROM poll_tally.accept_event('p', 'w-2', 'a')}, '57014',
	'statement_timeout ends it beside the queue');
sqlstate_is($node, 'postgres', q{SET statement_timeout = '400ms'; SELECT outcome FROM poll_tally.accept_event('p', 'w-3', 'a')}, '57014',
	'and in the queue');

# a rollback wakes nobody, but nobody sleeps on
my $waiter = $node->background_psql('postgres', on_error_stop => 0);
$waiter->query_until(qr/^ready$/m, qq{\\echo ready\nSELECT outcome FROM poll_tally.accept_event('p', 'w-4', 'a');\n});
ok($node->poll_query_until('postgres', q{SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event_type IN ('Extension', 'Lock')
    AND query LIKE '%w-4%' AND pid <> pg_backend_pid()}), 'a session waits for the lane');
$holder->query_safe('ROLLBACK');
ok($node->poll_query_until('postgres', q{SELECT status = 'accepted' FROM poll_tally.event_status('w-4')}), 'and gets it after a rollback');
$waiter->quit;

# two polls with one lane each, crossed
$holder->query_safe(q{BEGIN; SELECT outcome FROM poll_tally.accept_event('p', 'x-1', 'a')});
my $other = $node->background_psql('postgres', on_error_stop => 0);
$other->query_safe(q{BEGIN; SELECT outcome FROM poll_tally.accept_event('q', 'x-2', 'a')});
$holder->query_until(qr/^ready$/m, qq{\\echo ready\nSELECT outcome FROM poll_tally.accept_event('q', 'x-3', 'a');\n});
my $answer = $other->query(q{SELECT outcome FROM poll_tally.accept_event('p', 'x-4', 'a')});
$other->query('COMMIT');
$holder->query('COMMIT');
query_is($node, 'postgres', q{SELECT deadlocks > 0 FROM pg_stat_database WHERE datname = 'postgres'}, 't',
	'a deadlock over two polls is found')
	if $node->poll_query_until('postgres', q{SELECT deadlocks > 0 FROM pg_stat_database WHERE datname = 'postgres'});
query_is($node, 'postgres', q{SELECT count(*) FROM poll_tally.events WHERE event_id LIKE 'x-%'}, '2',
	'one of the two transactions was rolled back, the other not');
$_->quit for $holder, $other;
poll_is_true($node, 'postgres', $_, "$_ holds together") for qw(p q);

$node->stop;
done_testing();
