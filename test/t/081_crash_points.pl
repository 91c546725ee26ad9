# kill -9 and EIO at each Nth pwrite64, fdatasync and sendto of an event, a batch, a publication and a close: what was
# acknowledged is there, what was refused is not, what was not answered is there as a whole or not at all and a retry tells
# which; verify_poll and pg_amcheck agree. Small buffers make the session itself write, in the middle of its work too.
use strict;
use warnings FATAL => 'all';

use PollTally;
use Survival;
use Test::More;
use Time::HiRes qw(time);

my ($most, $step) = (long(20, 1), deep() ? 4 : 1);
plan(skip_all => $_) for grep { $_ } strace_lacks();
my $node = new_node('points', 'fsync = on', 'wal_buffers = 32kB', 'shared_buffers = 1MB', 'wal_writer_delay = 10s', 'recovery_init_sync_method = syncfs',
	'bgwriter_lru_maxpages = 0', 'log_min_messages = fatal', 'poll_tally.publish = off', 'restart_after_crash = on');
$node->safe_psql('postgres', 'CREATE EXTENSION poll_tally; CREATE EXTENSION amcheck');

my $begun = time();
my %result = client($node, 'crash_points', seed(), $most, $step);
my $fired = 0;
$fired += $result{$_} for grep { /^fired_/ } keys %result;
figure(sprintf('crash points: %d faults in %.0f s, of which %d were acknowledged, %d refused, %d not answered; afterwards %d were '
		  . 'there and %d not; %d violations', $fired, time() - $begun, $result{acknowledged}, $result{refused}, $result{unanswered},
		$result{there}, $result{absent}, $result{violations}));
is($result{violations}, 0, 'ledger, retries, revisions and closes agree with what was said');
for my $case (sort grep { /^fired_/ } keys %result)
{
	cmp_ok($result{$case}, '>', 0, $case =~ s/_/ /gr);
}
cmp_ok($result{$_}, '>', 0, "some were $_") for qw(unanswered there absent);
survived_ok($node, 'postgres', 'after all of them');
$node->stop;
done_testing();
