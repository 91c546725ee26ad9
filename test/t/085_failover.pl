# A standby is promoted under load, again and again: each round the primary goes (stopped at once, killed, or shut down)
# while 16 clients vote and a session reads on its standby, which becomes the next primary. Behind a synchronous standby
# nothing that was acknowledged is lost; behind an asynchronous one what is lost is counted, and is the end of what was
# committed. Every epoch is new, retries of what is in doubt tell the truth, and the reference viewer, which lives through
# all of it, ends in the newest snapshot each time.
use strict;
use warnings FATAL => 'all';

use Cwd qw(abs_path);
use IPC::Run qw(start);
use JSON::PP;
use PollTally;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);
use WorkerLife;

my $each = deep() ? 10 : 1;
my $acks = deep() ? 2000 : 500;
my $seed = seed();

# Behind an asynchronous standby every other round starves it first, so that something is lost for certain.
my @rounds = map { ([ 'synchronous', (qw(kill immediate fast))[ $_ % 3 ] ], [ 'asynchronous', (qw(starved kill fast starved immediate))[ $_ % 5 ] ]) }
  0 .. $each - 1;
my @nodes = (new_node('node0', 'fsync = off', 'wal_keep_size = 256MB', 'hot_standby_feedback = on',
		'max_standby_streaming_delay = -1'), map { PostgreSQL::Test::Cluster->new("node$_") } 1 .. @rounds);
my $primary = $nodes[0];
$primary->safe_psql('postgres', 'CREATE EXTENSION poll_tally');
$primary->safe_psql('postgres', "SELECT poll_tally.create_poll('$_', '{red,green,blue,white}', publish_every => '200 milliseconds',"
	  . ($_ eq 'ordered' ? ' max_lanes => 1,' : '') . ($_ eq 'survey' ? " counting => 'once')" : " counting => 'every')"))
  for ('survey', 'clicks', 'ordered');

# --- clients and the viewer -----------------------------------------------------------------------------------------

my ($orders, $answers, $complaints) = ('', '', '');
my $clients = start([ '/usr/bin/python3', '-B', abs_path('test/lib/failover.py'), $seed ], '<', \$orders, '>', \$answers, '2>',
	\$complaints);

# order(DO, ARGUMENT => VALUE...): what the clients answer.
sub order
{
	my ($do, %arguments) = @_;
	$orders .= encode_json({ do => $do, %arguments }) . "\n";
	$clients->pump while $answers !~ /\n/ && $clients->pumpable;
	die "the clients have gone: $complaints" if $answers !~ s/^(.*)\n//;
	return decode_json($1);
}

# One viewer for all rounds: it knows every server there will be, and looks for the one that writes.
my $folder = PostgreSQL::Test::Utils::tempdir_short();
my $everywhere = sprintf 'host=%s port=%s dbname=postgres target_session_attrs=read-write',
  join(',', map { $_->host } @nodes), join(',', map { $_->port } @nodes);
my $viewer = start([ '/usr/bin/python3', '-B', abs_path('examples/viewer/viewer.py'), $everywhere, 'clicks' ],
	'<', '/dev/null', '>', "$folder/shown", '2>', "$folder/complaints");

sub shown
{
	return map { decode_json($_) } grep { /\}$/ } split /\n/, slurp_file("$folder/shown");
}

# --- a round --------------------------------------------------------------------------------------------------------

my %seen;

sub new_epochs_ok
{
	my ($node, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my @epochs = lines_of($node, 'postgres', 'SELECT epoch FROM poll_tally.lag');
	return is_deeply([ scalar(@epochs), grep { $seen{$_}++ } @epochs ], [3], "$what: three epochs that were never there before");
}

# Backups carry the configuration, so what makes the standby synchronous is set after the backup.
sub new_standby
{
	my ($node, $mode) = @_;
	$primary->backup($node->name);
	$node->init_from_backup($primary, $node->name, has_streaming => 1);
	$node->start;
	set_all($primary, synchronous_standby_names => '*', synchronous_commit => 'remote_apply') if $mode eq 'synchronous';
	my $state = $mode eq 'synchronous' ? 'sync' : 'async';
	$primary->poll_query_until('postgres',
		"SELECT count(*) = 1 FROM pg_stat_replication WHERE state = 'streaming' AND sync_state = '$state'")
	  || die 'the standby does not follow';
	return;
}

# The primary goes; all its sessions are gone when this returns.
sub end_primary
{
	my ($way) = @_;
	if ($way eq 'starved')
	{
		my $sender = $primary->safe_psql('postgres', 'SELECT pid FROM pg_stat_replication');
		kill('STOP', $sender) == 1 || die "cannot stop $sender";
		order('more', acks => 200);
		$primary->kill9;
		kill('KILL', $sender) == 1 || die "cannot kill $sender";
	}
	elsif ($way eq 'kill') { $primary->kill9 }
	else { $primary->stop($way) }
	order('join');
	return;
}

sub viewer_converges_ok
{
	my ($what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	wait_published($primary, 'postgres', 'clicks');
	my $truth = decode_json($primary->safe_psql('postgres', q{SELECT jsonb_build_object('epoch', epoch, 'revision', revision,
	    'includedPosition', included_position, 'counts', counts::jsonb, 'total', total, 'final', final)
	    FROM poll_tally.snapshot('clicks')}));
	my $last = {};
	wait_until(sub {
		$last = (shown())[-1] // {};
		return ($last->{epoch} // '') eq $truth->{epoch} && $last->{revision} == $truth->{revision};
	});
	delete $last->{gaps};
	return is_deeply($last, $truth, "$what: the viewer has the newest snapshot");
}

my %total;

for my $number (1 .. @rounds)
{
	my ($mode, $way) = @{ $rounds[ $number - 1 ] };
	my $what = "round $number, $mode, $way";
	my $standby = $nodes[$number];
	new_epochs_ok($primary, $what) if $number == 1;
	new_standby($standby, $mode);
	order('load', primary => $primary->connstr('postgres'), standby => $standby->connstr('postgres'), acks => $acks,
		at_once => $mode eq 'synchronous' ? JSON::PP::true : JSON::PP::false);
	end_primary($way);
	my $start = time();
	$standby->promote;
	my $took = time() - $start;
	my $result = order('check', primary => $standby->connstr('postgres'),
		may_lose => $mode eq 'synchronous' ? JSON::PP::false : JSON::PP::true);
	is_deeply($result->{violations}, [], "$what: ledger, receipts, counts and retries agree with the books");
	cmp_ok($result->{standby_revisions} // 0, '>', 0, "$what: snapshots were read on the standby meanwhile");
	cmp_ok($result->{read_at_once}, '>', 0, "$what: what was acknowledged was looked for on the standby") if $mode eq 'synchronous';
	cmp_ok($result->{lost}, '>', 0, "$what: a starved standby loses the end") if $way eq 'starved';
	is($result->{lost}, 0, "$what: nothing is lost") if $mode eq 'synchronous' || $way eq 'fast';
	$primary->clean_node;
	$primary = $standby;
	new_epochs_ok($primary, $what);
	poll_is_true($primary, 'postgres', $_, "$what: $_ holds together") for ('survey', 'clicks', 'ordered');
	viewer_converges_ok($what);
	my $sum = $total{$mode} //= { rounds => 0 };
	$sum->{rounds}++;
	$sum->{$_} += $result->{$_} // 0 for qw(lost in_doubt there reads read_at_once standby_revisions conflicts_with_recovery);
	$sum->{acked} = $result->{acked};
	$sum->{slowest} = $took if $took > ($sum->{slowest} // 0);
	push @{ $sum->{losses} }, "$way $result->{lost}";
}

# --- the whole life of the viewer -----------------------------------------------------------------------------------

my ($backwards, $incomplete, $before) = (0, 0, {});
for my $state (shown())
{
	$backwards++ if ($before->{epoch} // '') eq $state->{epoch} && $state->{revision} <= $before->{revision};
	$incomplete++ if $state->{total} != $state->{includedPosition};
	$before = $state;
}
is($backwards, 0, 'the viewer never went back within an epoch');
is($incomplete, 0, 'and every state it showed was complete');
order('end');
$clients->finish || die "the clients ended with $?: $complaints";
$viewer->kill_kill;
is(slurp_file("$folder/complaints"), '', 'the viewer had nothing to complain about');

for my $mode ('synchronous', 'asynchronous')
{
	my $sum = $total{$mode};
	figure(sprintf('%s standby promoted under load of 16 clients: %d rounds, %d acknowledged events lost (%s), %d in doubt retried (%d were there), '
		  . '%d reads on the standby, %d of them of an event just acknowledged; slowest promotion %.1f s',
			$mode, $sum->{rounds}, $sum->{lost}, join(', ', @{ $sum->{losses} }), @$sum{qw(in_doubt there reads read_at_once)},
			$sum->{slowest}));
}
figure(sprintf '%d events in the end, %d epochs, no two equal; the viewer showed %d states over %d servers', $total{asynchronous}{acked},
	scalar(keys %seen), scalar(shown()), scalar(@nodes));
$primary->stop;
done_testing();
