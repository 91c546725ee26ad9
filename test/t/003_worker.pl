# The life of the worker. A moved poll is published by itself: after kill -9, terminate and cancel of the publisher,
# after the launcher was terminated, after restarts, in a database that gets the extension later or anew. With the worker
# off or absent votes go on and the gap shows; once it is back it continues from what is stored. Through all of it
# revisions grow by one, each snapshot equals the ledger at its frontier, and each is announced once on both channels.
# The worker is never in the way of DROP, RENAME or TEMPLATE of the database it serves.
use strict;
use warnings FATAL => 'all';

use PollTally;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time usleep);

my $seed = seed();
srand($seed);
my $node = new_node('worker', "poll_tally.databases = 'postgres, later, served, moved'", 'fsync = off');
my $events = 0;
my @slowest = (0, '');

sub vote
{
	my ($database, $poll) = @_;
	$events++;
	return $node->safe_psql($database,
		"SELECT outcome FROM poll_tally.accept_event('$poll', 'event-$events', '" . (rand() < 0.5 ? 'red' : 'blue') . "')");
}

sub create_poll
{
	my ($database, $poll) = @_;
	return $node->safe_psql($database,
		"SELECT poll_tally.create_poll('$poll', '{red,blue}', counting => 'every', publish_every => '100 milliseconds')");
}

# The publisher that serves a database; 0 when there is none.
sub publisher_of
{
	my ($database) = @_;
	return $node->safe_psql('postgres', 'SELECT coalesce(max(pid), 0) FROM pg_stat_activity'
		  . " WHERE backend_type LIKE 'poll_tally%' AND datname = '$database'");
}

# A child of the postmaster, by its title: a launcher that is connected to no database is in no view.
sub launcher
{
	my $postmaster = (split /\n/, slurp_file($node->data_dir . '/postmaster.pid'))[0];
	for my $folder (glob '/proc/[0-9]*')
	{
		my ($stat, $title) = map {
			my $text = '';
			if (open my $file, '<', "$folder/$_") { local $/ = undef; $text = readline($file) // ''; close $file; }
			$text;
		} ('stat', 'cmdline');
		next unless $stat =~ /^(\d+) \(.*\) \S (\d+) /s && $2 == $postmaster;
		my $pid = $1;
		return $pid if $title =~ /poll_tally launcher/;
	}
	return 0;
}

# Lines of the server's log, from an offset on.
sub log_lines
{
	my ($pattern, $offset) = @_;
	return join("\n", grep { $_ =~ $pattern } split /\n/, slurp_file($node->logfile, $offset // 0));
}

my $state = "SELECT revision || ' ' || included_position FROM poll_tally.snapshot";

# vote_and_wait(DATABASE, POLL, WHAT): one vote is published, as a newer revision; returns the revision.
sub vote_and_wait
{
	my ($database, $poll, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($before) = split / /, $node->safe_psql($database, "$state('$poll')");
	is(vote($database, $poll), 'accepted', "$what: a vote is accepted");
	my $start = time();
	ok($node->poll_query_until($database, "SELECT gap = 0 FROM poll_tally.lag WHERE poll = '$poll'"),
		"$what: the vote is published");
	my $seconds = time() - $start;
	note(sprintf('%s: published after %.1f s', $what, $seconds));
	@slowest = ($seconds, $what) if $seconds > $slowest[0];
	my ($after) = split / /, $node->safe_psql($database, "$state('$poll')");
	cmp_ok($after, '>', $before, "$what: as a newer revision");
	return $after;
}

sub server_is_back
{
	return $node->poll_query_until('postgres', 'SELECT true');
}

# --- a database without the extension -------------------------------------------------------------------------------

$node->safe_psql('postgres', 'CREATE DATABASE later');
ok(wait_until(sub { launcher() != 0 }), 'the launcher runs');
$node->safe_psql('postgres', 'CREATE EXTENSION poll_tally');
create_poll('postgres', 'life');
query_is($node, 'postgres', "$state('life')", '1 0', 'revision 1 is there at creation');
vote_and_wait('postgres', 'life', 'extension created while the worker runs');

$node->safe_psql('later', 'CREATE EXTENSION poll_tally');
create_poll('later', 'late');
vote_and_wait('later', 'late', 'second database');
is(log_lines(qr/ERROR:|FATAL:|PANIC:/), '', 'databases without the extension are no error');

# --- messages -------------------------------------------------------------------------------------------------------

my $channel = $node->safe_psql('postgres', "SELECT poll_tally.channel('life')");
my $listener = $node->background_psql('postgres');
$listener->query_safe("LISTEN poll_tally; LISTEN $channel");
my ($heard_from) = split / /, $node->safe_psql('postgres', "$state('life')");
vote_and_wait('postgres', 'life', "listener vote $_") for 1 .. 4;
my ($heard_to) = split / /, $node->safe_psql('postgres', "$state('life')");
my $output = '';
my $heard = wait_until(sub {
	$output .= $listener->query_safe('SELECT 1') . "\n";
	my @all = $output =~ /"revision": $heard_to[,}]/g;
	return @all >= 2;
}, 20);
ok($heard, 'the newest revision is announced on both channels');
for my $name ('poll_tally', $channel)
{
	my @revisions = map { /"revision": (\d+)/ ? $1 : () } grep { /notification "\Q$name\E" / } split /\n/, $output;
	is("@revisions", join(' ', $heard_from + 1 .. $heard_to), "$name: each revision once and in order");
}
my ($message) = $output =~ /notification "poll_tally" with payload "(\{.*?"revision": $heard_to[,}].*?\})" received/;
true_ok($node, 'postgres', "SELECT '" . ($message // '{}') . "'::jsonb = poll_tally.snapshot_message('life')",
	'the message is what snapshot_message() gives');
$listener->quit;

# --- the publisher is ended -----------------------------------------------------------------------------------------

for my $signal ('terminate', 'cancel', 'terminate', 'cancel')
{
	ok(wait_until(sub { publisher_of('postgres') != 0 }), "a publisher runs before $signal");
	my $pid = publisher_of('postgres');
	is($node->safe_psql('postgres', "SELECT pg_${signal}_backend($pid)"), 't', "$signal reaches the publisher");
	vote_and_wait('postgres', 'life', "publisher: $signal");
}
for my $round (1 .. (deep() ? 20 : 2))
{
	ok(wait_until(sub { publisher_of('postgres') != 0 }), "a publisher runs before kill -9, $round");
	my $pid = publisher_of('postgres');
	vote('postgres', 'life') for 1 .. int(rand(5));
	kill 'KILL', $pid;
	ok(wait_until(sub { !-d "/proc/$pid" }), "kill -9 of the publisher, $round");
	server_is_back();
	vote_and_wait('postgres', 'life', "publisher: kill -9, $round");
}

# --- the launcher is ended ------------------------------------------------------------------------------------------

my $launcher = launcher();
kill 'TERM', $launcher;
ok(wait_until(sub { !-d "/proc/$launcher" }), 'the launcher is terminated');
vote_and_wait('postgres', 'life', 'launcher: terminate');
ok(wait_until(sub { launcher() != 0 && launcher() != $launcher }), 'there is a new launcher');
kill 'TERM', publisher_of('later');
vote_and_wait('later', 'late', 'launcher: terminate, other database');
$launcher = launcher();
kill 'KILL', $launcher;
ok(wait_until(sub { !-d "/proc/$launcher" }), 'the launcher is killed');
server_is_back();
vote_and_wait('postgres', 'life', 'launcher: kill -9');

# --- the server is restarted, with votes that were not published ----------------------------------------------------

for my $mode ('fast', 'immediate')
{
	vote('postgres', 'life');
	vote('later', 'late');
	$node->stop($mode);
	$node->start;
	for my $place ([ 'postgres', 'life' ], [ 'later', 'late' ])
	{
		my ($database, $poll) = @$place;
		ok($node->poll_query_until($database, "SELECT gap = 0 FROM poll_tally.lag WHERE poll = '$poll'"),
			"$mode restart: what was not published in $database is, without another vote");
	}
	vote_and_wait('postgres', 'life', "$mode restart");
}

# --- the worker is off, and on again --------------------------------------------------------------------------------

# Nothing may be published for as long as we look: 20 intervals of the poll.
sub quiet_ok
{
	my ($what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $before = $node->safe_psql('postgres', "$state('life')");
	is(vote('postgres', 'life'), 'accepted', "$what: votes go on");
	my $moved = wait_until(sub { $node->safe_psql('postgres', "$state('life')") ne $before }, 2);
	ok(!$moved, "$what: nothing is published");
	true_ok($node, 'postgres', "SELECT gap > 0 AND oldest_unpublished_at IS NOT NULL AND lag_seconds > 1"
		  . " FROM poll_tally.lag WHERE poll = 'life'", "$what: lag shows the gap");
	return;
}

sub setting
{
	my ($name, $value) = @_;
	$node->append_conf('postgresql.conf', "$name = $value");
	return;
}

setting('poll_tally.publish', 'off');
$node->reload;
$node->poll_query_until('postgres', q{SELECT current_setting('poll_tally.publish') = 'off'});
# A pass that began before the reload may still end: the vote that it would publish comes first.
vote('postgres', 'life');
my $quiet_since = time();
my $last = '';
wait_until(sub {
	my $now = $node->safe_psql('postgres', "$state('life')");
	$quiet_since = time() if $now ne $last;
	$last = $now;
	return time() - $quiet_since > 1;
}, 20);
quiet_ok('publish = off');
is($node->safe_psql('postgres', q{SELECT (poll_tally.publish('life', true)).final}), 'f', 'publish() by hand works');
setting('poll_tally.publish', 'on');
$node->reload;
vote_and_wait('postgres', 'life', 'publish = on again');

setting('shared_preload_libraries', q{''});
$node->restart;
quiet_ok('not preloaded');
is(launcher(), 0, 'not preloaded: there is no worker');
query_is($node, 'postgres', 'SELECT count(*) FROM poll_tally.stats WHERE value IS NOT NULL', 0,
	'not preloaded: the statistics read NULL');
sqlstate_is($node, 'postgres', 'SELECT poll_tally.reset_stats()', '55000', 'not preloaded: they cannot be reset');
setting('shared_preload_libraries', q{'poll_tally'});
$node->restart;
vote_and_wait('postgres', 'life', 'preloaded again');

# --- the database is wanted for something else ----------------------------------------------------------------------

# The server waits 5 s for others to leave a database, and then gives up.
sub wanted_ok
{
	my ($sql, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	ok(wait_until(sub { publisher_of('served') != 0 }), "$what: the database is being served");
	my $start = time();
	sqlstate_is($node, 'postgres', $sql, '', "$what: it works");
	figure(sprintf('%s of a served database: %.1f s', $what, time() - $start));
	return;
}

$node->safe_psql('postgres', 'CREATE DATABASE served');
$node->safe_psql('served', 'CREATE EXTENSION poll_tally');
create_poll('served', 'here');
vote_and_wait('served', 'here', 'third database');
wanted_ok('CREATE DATABASE copy TEMPLATE served', 'TEMPLATE');
true_ok($node, 'copy', q{SELECT bool_and(ok) FROM poll_tally.verify_poll('here')}, 'the copy holds together');
my ($old, $new) = map { $node->safe_psql($_, q{SELECT epoch FROM poll_tally.snapshot('here')}) } ('served', 'copy');
isnt($new, $old, 'the copy has another epoch');
vote_and_wait('served', 'here', 'after TEMPLATE');
wanted_ok('ALTER DATABASE served RENAME TO moved', 'RENAME');
vote_and_wait('moved', 'here', 'after RENAME');
$node->safe_psql('postgres', 'ALTER DATABASE moved RENAME TO served');
vote_and_wait('served', 'here', 'after RENAME back');
wanted_ok('DROP DATABASE served', 'DROP');

# --- the extension is dropped and made anew -------------------------------------------------------------------------

my $epoch = $node->safe_psql('later', q{SELECT epoch FROM poll_tally.snapshot('late')});
ok(wait_until(sub { publisher_of('later') != 0 }), 'a publisher serves the database whose extension is dropped');
my $offset = -s $node->logfile;
$node->safe_psql('later', 'DROP EXTENSION poll_tally');
$node->safe_psql('later', 'CREATE EXTENSION poll_tally');
create_poll('later', 'late');
isnt($node->safe_psql('later', q{SELECT epoch FROM poll_tally.snapshot('late')}), $epoch,
	'a poll of a new extension has another epoch');
vote_and_wait('later', 'late', 'extension made anew');
is(log_lines(qr/PANIC:|TRAP:|was terminated by signal/, $offset), '', 'nothing crashed meanwhile');

# --- a poll that waits for its day, and one that is quick and idle --------------------------------------------------

$node->safe_psql('later', <<'SQL');
SELECT poll_tally.create_poll('slow', '{red,blue}', counting => 'every', publish_every => '1 day'),
       poll_tally.create_poll('quick', '{red,blue}', counting => 'every', publish_every => '1 millisecond');
SQL
vote('later', 'slow');
vote_and_wait('later', 'quick', 'beside a poll that waits');
my $looks = 0;
my $beat = '';
my $begun = time();
wait_until(sub {
		my $heartbeat = $node->safe_psql('later', q{SELECT heartbeat_at FROM poll_tally.workers WHERE database = 'later'});
		$looks++ if $heartbeat ne $beat;
		$beat = $heartbeat;
		return $looks == 4;
}) || die 'the worker looks no more';
cmp_ok(time() - $begun, '>', 1, 'while nothing moves, the quick one makes the worker look no more often');
vote_and_wait('later', 'quick', 'and is published at once when it moves');
query_is($node, 'later', q{SELECT gap FROM poll_tally.lag WHERE poll = 'slow'}, 1, 'while the slow one waits');

# --- the history ----------------------------------------------------------------------------------------------------

query_is($node, 'postgres', 'SELECT count(*) = max(revision) AND min(revision) = 1 AND bool_and(published_at IS NOT NULL)'
	  . " FROM poll_tally.snapshots WHERE poll = 'life'", 't', 'revisions grew by one from 1 on');
true_ok($node, 'postgres', <<'SQL', 'later revisions include more, and came later');
SELECT count(*) = 0
FROM (SELECT included_position - lag(included_position) OVER w AS more, published_at - lag(published_at) OVER w AS after
      FROM poll_tally.snapshots WHERE poll = 'life' WINDOW w AS (ORDER BY revision)) AS s
WHERE s.more <= 0 OR s.after <= '0'
SQL
poll_is_true($node, 'postgres', 'life', 'the poll holds together');
figure('worker: ' . $node->safe_psql('postgres', "SELECT count(*) FROM poll_tally.snapshots WHERE poll = 'life'")
	  . " revisions without a gap, $events votes; the slowest publication came "
	  . sprintf('%.1f s after its vote (%s)', @slowest));

$node->stop;
done_testing();
