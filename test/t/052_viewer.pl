# The reference viewer, examples/viewer/viewer.py. On 10,000 seeded streams with messages dropped, repeated, reordered and
# forged, and epochs changed, it never ends in a wrong state, and counts exactly the gaps that were put in. Against a server:
# forged messages, lost connections, a renewed epoch, a crash, the final snapshot.
use strict;
use warnings FATAL => 'all';

use Cwd qw(abs_path);
use IPC::Run qw(start);
use JSON::PP;
use PollTally;
use PostgreSQL::Test::Utils;
use Test::More;
use WorkerLife;

my $program = abs_path('examples/viewer/viewer.py');
my $streams = deep() ? 100_000 : 10_000;
my $node = new_node('viewer', 'fsync = off');

# --- streams --------------------------------------------------------------------------------------------------------

my %result = client($node, 'streams', $program, $streams, seed());
is($result{streams}, $streams, 'all streams ran');
is($result{wrong_end}, 0, 'no stream ends in a wrong state');
is($result{wrong}, 0, 'and none is in one on the way');
is($result{gaps_differ}, 0, 'every viewer counts the gaps that its stream had');
is($result{gaps_recorded}, $result{gaps_injected}, 'gaps recorded = gaps injected');
cmp_ok($result{gaps_injected}, '>', $streams, 'there were gaps');
my @steps = qw(clean dropped repeated late swapped slow away unknown_keys epoch forged);
cmp_ok($result{"did_$_"}, '>', $streams / 10, "streams had $_") for @steps;
is($result{caught}, $result{mutants}, 'viewers with a mistake are caught');
figure("viewer: $streams streams, wrong final states $result{wrong_end}, gaps injected $result{gaps_injected}, recorded "
	  . "$result{gaps_recorded}; " . join(', ', map { "$_ $result{\"did_$_\"}" } @steps)
	  . "; $result{caught} of $result{mutants} viewers with a mistake caught");

# --- a server -------------------------------------------------------------------------------------------------------

$node->safe_psql('postgres', 'CREATE EXTENSION poll_tally; CREATE ROLE screen LOGIN; CREATE ROLE stranger LOGIN;'
	  . q{ SELECT poll_tally.grant_viewer('screen')});
make_poll($node, 'postgres', 'show');
make_poll($node, 'postgres', 'secret', 'hidden_until_close => true');
my $folder = PostgreSQL::Test::Utils::tempdir_short();
my %viewer = map { $_ => start([ '/usr/bin/python3', '-B', $program, $node->connstr('postgres') . ' user=screen', $_ ],
		'<', '/dev/null', '>', "$folder/$_", '2>', "$folder/$_.err") } ('show', 'secret');

# What it has shown of a poll so far.
sub shown
{
	my ($poll) = @_;
	return map { decode_json($_) } grep { /\}$/ } split /\n/, (-e "$folder/$poll" ? slurp_file("$folder/$poll") : '');
}

# Wait until it shows the poll's newest snapshot, and compare the two.
sub shows_ok
{
	my ($poll, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $truth = decode_json($node->safe_psql('postgres', q{SELECT jsonb_build_object('epoch', epoch, 'revision', revision,
	    'includedPosition', included_position, 'counts', counts::jsonb, 'total', total, 'final', final)
	    FROM poll_tally.snapshot('} . $poll . q{')}));
	my $last = {};
	wait_until(sub {
		$last = (shown($poll))[-1] // {};
		return ($last->{epoch} // '') eq $truth->{epoch} && $last->{revision} == $truth->{revision};
	}, 30);
	delete $last->{gaps};
	return is_deeply($last, $truth, $name);
}

# The viewer's backend, known by its LISTEN.
sub backend_of_viewers
{
	return $node->safe_psql('postgres', q{SELECT string_agg(pid::text, ',') FROM pg_stat_activity WHERE usename = 'screen'});
}

shows_ok('show', 'the first snapshot');
for my $round (1 .. 5)
{
	vote($node, 'postgres', 'show', 10);
	wait_published($node, 'postgres', 'show');
	shows_ok('show', "votes, round $round");
}
# A role without any grant of ours can send, and gets nowhere.
my $channel = $node->safe_psql('postgres', q{SELECT poll_tally.channel('show')});
my $message = $node->safe_psql('postgres', q{SELECT poll_tally.snapshot_message('show')});
my $lines = scalar(shown('show'));
for my $forged (q{|| '{"revision": 1}'}, q{|| '{"revision": 1000000, "counts": {"red": 9}}'}, q{|| '{"counts": {"red": 9}}'},
	q{|| '{"epoch": "0000000000000000", "revision": 1}'}, q{- 'epoch'}, q{|| '{"revision": "x"}'})
{
	$node->safe_psql('postgres', "SET ROLE stranger; SELECT pg_notify('$channel', ('$message'::jsonb $forged)::text)");
}
$node->safe_psql('postgres', "SET ROLE stranger; SELECT pg_notify('$channel', 'no message at all')");
vote($node, 'postgres', 'show');
wait_published($node, 'postgres', 'show');
shows_ok('show', 'after forged messages');
is(scalar(shown('show')), $lines + 1, 'none of which was shown');

# Away: its connection is cut; votes are published; it comes back by itself.
my $backends = backend_of_viewers();
$node->safe_psql('postgres', "SELECT pg_terminate_backend(pid) FROM unnest('{$backends}'::int[]) AS pid");
vote($node, 'postgres', 'show', 100);
wait_published($node, 'postgres', 'show');
shows_ok('show', 'after a cut connection');
ok(wait_until(sub { my $now = backend_of_viewers(); return $now ne '' && $now ne $backends }, 30), 'by a new one');
$node->safe_psql('postgres', 'SELECT poll_tally.renew_epoch()');
vote($node, 'postgres', 'show');
wait_published($node, 'postgres', 'show');
shows_ok('show', 'another epoch');
kill_worker($node, publisher_of($node, 'postgres'));
vote($node, 'postgres', 'show', 3);
wait_published($node, 'postgres', 'show');
shows_ok('show', 'after a crash');

vote($node, 'postgres', 'secret', 3);
is(scalar(shown('secret')), 0, 'nothing of a hidden poll is shown');
$node->safe_psql('postgres', "SELECT poll_tally.close_poll('$_')") for ('show', 'secret');
shows_ok($_, "the final snapshot of $_") for ('show', 'secret');
is((shown('secret'))[-1]{total}, 3, 'with its counts');
$_->kill_kill for values %viewer;
is(slurp_file("$folder/$_.err"), '', "the viewer of $_ had nothing to complain about") for ('show', 'secret');
figure('viewer against a server: ' . scalar(shown('show')) . ' states shown, ' . (shown('show'))[-1]{gaps} . ' gaps counted');
$node->stop;
done_testing();
