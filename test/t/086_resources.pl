# Resources that run short: the disk for tables and for WAL, memory, connections, time to wait for a lock; and a clock that
# is moved by a day. Each is refused with its SQLSTATE or is survived by a restart, nothing is half done, and votes go on.
# (EIO on a flush is in 081, worker slots in 050, storms of batches without a deadlock in 040.)
use strict;
use warnings FATAL => 'all';

use Cwd qw(abs_path);
use File::Basename qw(dirname);
use IPC::Run qw(run);
use PollTally;
use PostgreSQL::Test::Utils;
use Survival;
use Test::More;
use Time::HiRes qw(time);
use WorkerLife;

my $seed = seed();
my $folder = abs_path(dirname(__FILE__) . '/../lib');

# --- disk, memory, locks --------------------------------------------------------------------------------------------

# Few buffers, so that the session itself writes what it extends; and nobody else writes WAL.
my $node = new_node('short', 'fsync = off', 'shared_buffers = 1MB', 'wal_writer_delay = 10s', 'bgwriter_lru_maxpages = 0',
	'max_wal_size = 1GB', 'poll_tally.max_batch = 200000', 'log_min_messages = log', 'poll_tally.publish = off');
$node->safe_psql('postgres', 'CREATE EXTENSION poll_tally; CREATE EXTENSION amcheck');

sub resources
{
	my ($what, $size) = @_;
	my $begun = time();
	my %result = client($node, 'resources', $seed, $what, $size);
	is($result{violations}, 0, "$what: what was acknowledged is there, and nothing else is");
	$result{seconds} = sprintf '%.0f', time() - $begun;
	return %result;
}

SKIP:
{
	my $lacks = strace_lacks();
	skip($lacks, 5) if $lacks ne '';
	my %disk = resources('disk', long(15, 2));
	figure("disk full for tables (ENOSPC by strace): $disk{full} times, $disk{refused} refused by 53100, $disk{checks} checks, "
		  . "$disk{violations} violations, $disk{seconds} s");
	cmp_ok($disk{refused}, '>', 0, 'a full disk refuses with 53100, and the session goes on');
	my %wal = resources('wal', long(6, 1));
	figure("disk full for WAL: $wal{full} times, $wal{crashed} restarts, $wal{checks} checks, $wal{violations} violations, $wal{seconds} s");
	cmp_ok($wal{crashed}, '>', 0, 'no room for WAL restarts the server, which goes on');
	$node->poll_query_until('postgres', 'SELECT true') || die 'the server did not come back';
}
my %memory = resources('memory', long(8, 2));
figure("memory limited: $memory{refused} batches of 100000 refused by 53200, $memory{checks} checks, $memory{violations} violations, $memory{seconds} s");
cmp_ok($memory{refused}, '>', 0, 'too little memory refuses with 53200, and the session goes on');
my %locks = resources('locks', long(30, 2));
figure("lock timeouts of 1 to 20 ms, 32 connections, 3 polls of one lane, $locks{seconds} s: $locks{refused} times 55P03, $locks{accepted} accepted, "
	  . "$locks{violations} violations");
cmp_ok($locks{refused}, '>', 0, 'there were lock timeouts');
cmp_ok($locks{accepted}, '>', 0, 'and others got through');
survived_ok($node, 'postgres', 'in the end');
$node->stop;

# --- connections ----------------------------------------------------------------------------------------------------

$node = new_node('crowded', 'fsync = off', 'max_connections = 12', 'superuser_reserved_connections = 1', 'log_min_messages = log');
$node->safe_psql('postgres', 'CREATE EXTENSION poll_tally; CREATE ROLE voter LOGIN; SELECT poll_tally.grant_submitter($$voter$$)');
make_poll($node, 'postgres', 'crowded');
published_ok($node, 'postgres', 'crowded', 'before the crowd');
my @sessions;
my $refused = '';
for my $number (1 .. 20)
{
	my ($out, $err) = ('', '');
	my $handle = IPC::Run::start([ 'psql', '-XAtq', '-U', 'voter', '-d', $node->connstr('postgres') ], '<', \my $input, '>', \$out, '2>', \$err);
	push @sessions, { handle => $handle, input => \$input, out => \$out, err => \$err };
	$input .= "SELECT outcome FROM poll_tally.accept_event('crowded', 'crowd-$number', 'red');\n";
	wait_until(sub { $handle->pump_nb; return $out =~ /accepted/ || $err ne '' }, 60) || die 'no answer';
	$refused .= $err;
	last if $err ne '';
}
like($refused, qr/(sorry, too many clients|remaining connection slots are reserved)/, 'one too many is refused');
my $crowd = grep { ${ $_->{out} } =~ /accepted/ } @sessions;
cmp_ok($crowd, '>', 5, 'the others have voted');
ok(wait_until(sub { $node->safe_psql('postgres', q{SELECT gap = 0 FROM poll_tally.lag WHERE poll = 'crowded'}) eq 't' }, 30),
	'and the worker, which has a slot of its own, publishes what they said');
query_is($node, 'postgres', q{SELECT count(*) FROM poll_tally.events WHERE event_id LIKE 'crowd-%'}, $crowd, 'each is counted, the refused one is not');
$_->{handle}->kill_kill for @sessions;
poll_is_true($node, 'postgres', 'crowded', 'the poll holds together');
figure("too many connections: $crowd voted, one was refused by 53300, all that was accepted was published");
$node->stop;

# --- the clock ------------------------------------------------------------------------------------------------------

my $temporary = PostgreSQL::Test::Utils::tempdir();
my $log = '';
run([ 'gcc', '-O2', '-shared', '-fPIC', '-o', "$temporary/clock.so", "$folder/clock.c", '-ldl' ], '>&', \$log) || die "clock.c: $log";

sub set_clock
{
	my ($seconds) = @_;
	open my $file, '+>', "$temporary/clock" or die $!;
	syswrite $file, sprintf('%-16d', $seconds);
	close $file;
	return;
}

# In place: servers have the file mapped.
sub move_clock
{
	my ($seconds) = @_;
	open my $file, '+<', "$temporary/clock" or die $!;
	syswrite $file, sprintf('%-16d', $seconds);
	close $file;
	return;
}

set_clock(0);
{
	local $ENV{LD_PRELOAD} = "$temporary/clock.so";
	local $ENV{POLL_TALLY_CLOCK} = "$temporary/clock";
	$node = new_node('clock', 'fsync = off', 'log_min_messages = log');
}
my $day = 86400;
$node->safe_psql('postgres', 'CREATE EXTENSION poll_tally');
my $true = $node->safe_psql('postgres', 'SELECT extract(epoch FROM clock_timestamp())::bigint');
move_clock($day);
cmp_ok($node->safe_psql('postgres', 'SELECT extract(epoch FROM clock_timestamp())::bigint') - $true, '>=', $day, 'the clock of the server can be moved');
move_clock(0);
make_poll($node, 'postgres', 'today', "publish_every => '100 milliseconds', closes_at => now() + interval '12 hours'");
make_poll($node, 'postgres', 'tomorrow', "publish_every => '100 milliseconds', opens_at => now() + interval '12 hours'");
make_poll($node, 'postgres', 'always');

# vote_is(POLL, ID, OUTCOME, NAME)
sub vote_is
{
	my ($poll, $id, $outcome, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return query_is($node, 'postgres', "SELECT outcome FROM poll_tally.accept_event('$poll', '$id', 'red')", $outcome, $name);
}

vote_is('today', 'today-1', 'accepted', 'before the deadline');
vote_is('tomorrow', 'tomorrow-1', 'not_open', 'before the opening');
published_ok($node, 'postgres', 'always', 'in time');

# Back by a day: what is due is due by the interval, not when the clock has caught up.
move_clock(-$day);
vote_is('today', 'today-2', 'accepted', 'a day back: still before the deadline');
vote_is('always', 'always-back', 'accepted', 'a day back: votes go on');
query_is($node, 'postgres', q{SELECT (SELECT accepted_at FROM poll_tally.events WHERE event_id = 'today-2') < (SELECT accepted_at
	FROM poll_tally.events WHERE event_id = 'today-1')}, 't', 'a day back: the receipt has the time of the server');
my $behind = time();
my $published = $node->poll_query_until('postgres', q{SELECT gap = 0 FROM poll_tally.lag WHERE poll = 'always'}) ? time() - $behind : undef;
ok(defined $published, 'a day back: a poll that moved is published');
poll_is_true($node, 'postgres', 'always', 'a day back: the poll holds together');

# A day ahead: the deadline has passed, the worker closes; the opening has come.
move_clock($day);
vote_is('today', 'today-3', 'closed', 'a day ahead: the deadline has passed');
vote_is('today', 'today-1', 'duplicate', 'a day ahead: a retry is told the truth');
vote_is('tomorrow', 'tomorrow-1', 'accepted', 'a day ahead: it is open');
ok($node->poll_query_until('postgres', q{SELECT final FROM poll_tally.lag WHERE poll = 'today'}), 'a day ahead: the worker closes it');
query_is($node, 'postgres', q{SELECT total FROM poll_tally.snapshot('today')}, 2, 'a day ahead: with what was judged in time');

# And back: closed stays closed.
move_clock(0);
vote_is('today', 'today-4', 'closed', 'back again: what was closed stays closed');
vote_is('tomorrow', 'tomorrow-2', 'not_open', 'back again: not open by the clock of the server');
poll_is_true($node, 'postgres', $_, "back again: $_ holds together") for qw(today tomorrow always);
figure(sprintf('clock moved a day back, two ahead, one back: deadline and opening follow the server\'s clock, a closed poll stays closed; a poll '
		  . 'that moved was published %s after the clock went back', defined $published ? sprintf('%.1f s', $published) : 'not within 180 s'));
$node->stop;
done_testing();
