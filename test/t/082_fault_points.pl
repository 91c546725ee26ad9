# Named points within accepting, retracting, batches, flushing, PREPARE, publishing, closing and repairing, in a build that
# can fail there: by an error, FATAL and kill -9. Nothing that was not sealed is there, all that was is, nobody is left
# waiting, and doing it again does it. The worker, hit in the middle of a publication or a close, does it again by itself.
use strict;
use warnings FATAL => 'all';

use PollTally;
use PostgreSQL::Test::Utils;
use Survival;
use Test::More;
use Time::HiRes qw(time);
use WorkerLife;

my $built = faulty_build();
plan(skip_all => "the build with fault points cannot be used: $built") if $built !~ m{^/};
my ($fatals, $kills) = deep() ? (1, 1) : (3, 9);
my $node = new_node('faulty', 'fsync = off', 'log_min_messages = log', 'restart_after_crash = on', 'poll_tally.publish = off',
	destination_settings($built));
$node->safe_psql('postgres', 'CREATE EXTENSION poll_tally; CREATE EXTENSION amcheck');

# --- sessions -------------------------------------------------------------------------------------------------------

my $begun = time();
my %result = client($node, 'fault_points', seed(), $fatals, $kills);
figure(sprintf('fault points: %d errors, %d FATAL, %d kills in %.0f s; afterwards %d were there and %d not, %d sessions went on; '
		  . '%d violations', @result{qw(error fatal kill)}, time() - $begun, @result{qw(there absent went_on violations)}));
is($result{violations}, 0, 'what was sealed is there, nothing else is, and again means again');
cmp_ok($result{$_}, '>', 0, "there was $_") for qw(error fatal kill there absent went_on);

# --- the worker -----------------------------------------------------------------------------------------------------

sub arm
{
	my ($fault) = @_;
	$node->adjust_conf('postgresql.conf', 'poll_tally.fault', defined $fault ? "'$fault'" : undef);
	$node->reload;
	return;
}

my $hits = 0;
set_all($node, 'poll_tally.publish' => 'on');
my @points = deep() ? qw(publish-inserted publish-announced publish-pruned close-marked close-published) : qw(publish-announced close-marked);
for my $point (@points)
{
	for my $action (qw(error fatal kill))
	{
		my $poll = "worker-$point-$action";
		my $closing = $point =~ /^close/;
		make_poll($node, 'postgres', $poll,
			"publish_every => '100 milliseconds'" . ($closing ? ", closes_at => now() + interval '1 hour'" : ''));
		vote($node, 'postgres', $poll, 5);
		my $offset = log_end($node);
		$node->append_conf('postgresql.conf', "poll_tally.fault = '$point $action'");
		$node->reload;
		$node->safe_psql('postgres', "SELECT poll_tally.alter_poll('$poll', closes_at => now() + interval '1 second')") if $closing;
		my $hit = wait_until(sub {
			$node->psql('postgres', "SELECT poll_tally.accept_event('$poll', gen_random_uuid()::text, 'red')") if !$closing;
			return log_lines($node, $action eq 'kill' ? qr/terminated by signal 9/ : qr/fault at point "$point"/, $offset);
		});
		ok($hit, "$point: the worker is hit by $action");
		$hits++ if $hit;
		arm(undef);
		my $wanted = $closing ? 'final' : 'gap = 0 AND revision > 1';
		ok($node->poll_query_until('postgres', "SELECT $wanted FROM poll_tally.lag WHERE poll = '$poll'"),
			"$point, $action: once it can, it does it");
		# The final snapshot of a poll that was published before includes no more than that one.
		if ($closing) { poll_is_true($node, 'postgres', $poll, "$point, $action: the poll holds together") }
		else { history_ok($node, 'postgres', $poll, "$point, $action: one history") }
	}
}
figure("fault points of the worker: $hits hits, each made up for by itself");
survived_ok($node, 'postgres', 'after all of them');
$node->stop;
done_testing();
