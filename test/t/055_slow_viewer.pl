# A viewer that listens and does not read: its own session waits for it, and nobody else does. Votes, publications and
# another viewer go on at once while it is stuck, its messages keep, and when it reads again it has the newest revision.
use strict;
use warnings FATAL => 'all';

use PollTally;
use Test::More;

seed();
# A message carries about 7 kB of counts, so a few hundred are more than socket and pipe hold.
my $node = new_node('slow_viewer', 'fsync = off', 'poll_tally.publish = off');
$node->safe_psql('postgres', <<'SQL');
CREATE EXTENSION poll_tally;
SELECT poll_tally.create_poll('wide', array(SELECT lpad(g::text, 60, 'x') FROM generate_series(1, 90) AS g), counting => 'every');
SELECT count(*) FROM (SELECT poll_tally.accept_event('wide', 'first-' || g, lpad(g::text, 60, 'x')) FROM generate_series(1, 90) AS g) AS v;
SQL

my $stuck = $node->background_psql('postgres');
$stuck->query_safe('LISTEN poll_tally');
my $pid = $stuck->query_safe('SELECT pg_backend_pid()');

my ($revision, $votes) = (0, 0);

# Every statement has five seconds; whoever waited for the viewer would wait for ever.
sub vote_and_publish
{
	my $out = $node->safe_psql('postgres', <<SQL);
SET statement_timeout = '5s';
SELECT outcome FROM poll_tally.accept_event('wide', 'vote-$votes', lpad('1', 60, 'x'));
SELECT revision FROM poll_tally.publish('wide', force => true);
SQL
	my ($outcome, $next) = split /\n/, $out;
	die "vote $votes: $out" if $outcome ne 'accepted' || ($revision && $next != $revision + 1);
	($revision, $votes) = ($next, $votes + 1);
	return;
}

my $waits = "SELECT coalesce(wait_event, '') = 'ClientWrite' FROM pg_stat_activity WHERE pid = $pid";
ok(wait_until(sub { vote_and_publish(); $node->safe_psql('postgres', $waits) eq 't' }), 'the viewer does not read, and its session is stuck');
my $until_stuck = $votes;
vote_and_publish() for 1 .. 50;
query_is($node, 'postgres', $waits, 't', 'after 50 votes and 50 publications it still is');
pass('none of them waited for it');
query_is($node, 'postgres', 'SELECT count(*) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND cardinality(pg_blocking_pids(pid)) > 0',
	0, 'and nobody waits for a lock');
my $kept = $node->safe_psql('postgres', 'SELECT pg_notification_queue_usage()');
cmp_ok($kept, '>', 0, 'its messages are kept for it');

my $other = $node->background_psql('postgres');
$other->query_safe('LISTEN poll_tally');
vote_and_publish();
my $heard = '';
ok(wait_until(sub { $heard .= $other->query_safe('SELECT 1'); $heard =~ /"revision": ?$revision\b/ }), 'another viewer hears the newest at once');

my $read = '';
ok(wait_until(sub { $read .= $stuck->query_safe('SELECT 1'); $read =~ /"revision": ?$revision\b/ }), 'when it reads again it has the newest');
my @revisions = $read =~ /"revision": ?(\d+)/g;
is_deeply([ grep { $revisions[$_] != $revisions[ $_ - 1 ] + 1 } 1 .. $#revisions ], [], 'and all of them in their order');
is(scalar(@revisions), $votes, 'each once');
ok(wait_until(sub { $node->safe_psql('postgres', 'SELECT pg_notification_queue_usage()') < $kept }), 'the queue is free again');
figure("slow viewer: stuck after $until_stuck messages; 51 votes and publications beside it within 5 s each, "
	  . scalar(@revisions) . ' messages read in order afterwards');
poll_is_true($node, 'postgres', 'wide', 'the poll holds together');

$_->quit for $stuck, $other;
$node->stop;
done_testing();
