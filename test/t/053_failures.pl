# The named failures of publication, each with its counts and positions: the publisher killed between a snapshot's commit
# and its delivery; revision 42 after 43; the same event twice; a viewer that resumes with 39 while 43 is current; more than
# one publisher; a listener killed, 100 votes, back; an old viewer that knows fewer keys. And those that do not stand in the
# way of others: a poll that waits, one with a far deadline, one with an interval beyond all time, a thousand that close at
# once, a voter that does not end.
use strict;
use warnings FATAL => 'all';

use Cwd qw(abs_path);
use IPC::Run qw(start);
use JSON::PP;
use PollTally;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);
use WorkerLife;

seed();
my $node = new_node('failures', 'fsync = off', 'poll_tally.keep_snapshots = 100000', 'max_locks_per_transaction = 64');
$node->safe_psql('postgres', 'CREATE EXTENSION poll_tally');
my $program = abs_path('examples/viewer/viewer.py');
my $folder = PostgreSQL::Test::Utils::tempdir_short();

sub start_viewer
{
	my ($poll, $name) = @_;
	return start([ '/usr/bin/python3', '-B', $program, $node->connstr('postgres') . " application_name=$name", $poll ],
		'<', '/dev/null', '>', "$folder/$name", '2>', "$folder/$name.err");
}

sub shown
{
	my ($name) = @_;
	return map { decode_json($_) } grep { /\}$/ } split /\n/, (-e "$folder/$name" ? slurp_file("$folder/$name") : '');
}

# The revisions that a viewer showed, once it has shown this one.
sub shown_until
{
	my ($name, $revision) = @_;
	wait_until(sub { return ((shown($name))[-1] // { revision => 0 })->{revision} >= $revision }, 30);
	return map { $_->{revision} } shown($name);
}

sub publish_on
{
	my ($on) = @_;
	set_all($node, 'poll_tally.publish' => $on ? 'on' : 'off');
	my $value = $on ? 'on' : 'off';
	$node->poll_query_until('postgres', "SELECT current_setting('poll_tally.publish') = '$value'");
	# A worker that took the setting in has slept since.
	my $seen = worker_value($node, 'heartbeat_at', 'publisher', 'postgres');
	wait_until(sub { worker_value($node, "heartbeat_at > '$seen' AND state = 'idle'", 'publisher', 'postgres') eq 't' }, 30)
	  if $seen ne '';
	return;
}

# publish_next(POLL, HOW MANY): as many votes and revisions, by hand; returns their messages.
sub publish_next
{
	my ($poll, $count) = @_;
	return lines_of($node, 'postgres', join '', map { <<SQL } 1 .. $count);
DO \$\$ BEGIN PERFORM poll_tally.accept_event('$poll', gen_random_uuid()::text, 'red'); END \$\$;
DO \$\$ BEGIN PERFORM poll_tally.publish('$poll', true); END \$\$;
SELECT poll_tally.snapshot_message('$poll');
SQL
}

sub row_is
{
	my ($poll, $revision, $position, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return query_is($node, 'postgres', "SELECT revision, included_position, total FROM poll_tally.snapshot('$poll')",
		"$revision|$position|$position", $name);
}

# --- killed after the commit, before the delivery -------------------------------------------------------------------

make_poll($node, 'postgres', 'lost');
published_ok($node, 'postgres', 'lost', 'before the crash');
my $listener = $node->background_psql('postgres', on_error_stop => 0);
# A session in a transaction is not delivered to.
$listener->query_safe("LISTEN poll_tally; BEGIN; SELECT 1");
vote($node, 'postgres', 'lost', 7);
my ($revision, $position) = split / /, wait_published($node, 'postgres', 'lost');
is($position, 9, 'the snapshot has all 9 votes');
set_all($node, 'poll_tally.publish' => 'off');
my $epoch = $node->safe_psql('postgres', q{SELECT epoch FROM poll_tally.snapshot('lost')});
kill_worker($node, publisher_of($node, 'postgres') || launcher_of($node));
$listener->{run}->finish;
my $new = $node->background_psql('postgres');
$new->query_safe('LISTEN poll_tally');
query_is($node, 'postgres', "SELECT revision, included_position, total FROM poll_tally.snapshot('lost', '$epoch', " . ($revision - 1) . ')',
	"$revision|9|9", 'who resumes with the one before gets it from the table: the same epoch, revision and counts');
query_is($node, 'postgres', "SELECT count(*) FROM poll_tally.snapshot('lost', '$epoch', $revision)", 0, 'who has it gets nothing');
set_all($node, 'poll_tally.publish' => 'on');
my $heard = '';
ok(wait_until(sub { $heard .= $new->query_safe('SELECT 1'); return $heard =~ /"revision": $revision[,}]/ }, 30),
	'and the worker announces it once more');
my ($again) = $heard =~ /"poll_tally" with payload "(\{.*?\})" received/;
$again = decode_json($again // '{}');
is_deeply([ @$again{ 'epoch', 'revision', 'includedPosition', 'counts' } ], [ $epoch, $revision, 9,
		decode_json($node->safe_psql('postgres', q{SELECT counts::jsonb FROM poll_tally.snapshot('lost')})) ],
	'with the same content');
published_ok($node, 'postgres', 'lost', 'after the crash');
$new->quit;
figure("publisher killed between commit and delivery: revision $revision at position 9 was there after the crash, and announced again");

# --- 42 after 43 ----------------------------------------------------------------------------------------------------

publish_on(0);
make_poll($node, 'postgres', 'old');
my $viewer = start_viewer('old', 'late');
my $message_42 = (publish_next('old', 42))[-2];
like($message_42, qr/"revision": 42[,}]/, 'a message of revision 42');
my @revisions = shown_until('late', 43);
is($revisions[-1], 43, 'the viewer has revision 43');
my $channel = $node->safe_psql('postgres', q{SELECT poll_tally.channel('old')});
$node->safe_psql('postgres', "SELECT pg_notify('$channel', '$message_42')") for 1 .. 2;
publish_next('old', 1);
my @then = shown_until('late', 44);
is("@then[$#revisions + 1 .. $#then]", 44, 'revision 42 after 43 is not shown: the next one is 44');
is((shown('late'))[-1]{includedPosition}, 43, 'with 43 votes');
is((shown('late'))[-1]{total}, 43, 'counted');

# --- the same event twice -------------------------------------------------------------------------------------------

my $receipt = $node->safe_psql('postgres', q{SELECT outcome, position FROM poll_tally.accept_event('old', 'twice', 'red')});
is($receipt, 'accepted|0/44', 'an event at position 44');
query_is($node, 'postgres', q{SELECT revision, included_position FROM poll_tally.publish('old', true)}, '45|44', 'is revision 45');
query_is($node, 'postgres', q{SELECT outcome, position FROM poll_tally.accept_event('old', 'twice', 'red')}, 'duplicate|0/44',
	'sent again it is a duplicate, at the same position');
query_is($node, 'postgres', q{SELECT revision, included_position FROM poll_tally.publish('old', true)}, '45|44',
	'and there is nothing to publish');
row_is('old', 45, 44, 'the counts are those of one');
query_is($node, 'postgres', q{SELECT gap FROM poll_tally.lag WHERE poll = 'old'}, 0, 'no gap');
shown_until('late', 45);
is((shown('late'))[-1]{includedPosition}, 44, 'the viewer has 44');

# --- a viewer away for three intervals ------------------------------------------------------------------------------

make_poll($node, 'postgres', 'away');
publish_next('away', 38);
$epoch = $node->safe_psql('postgres', q{SELECT epoch FROM poll_tally.snapshot('away')});
query_is($node, 'postgres', "SELECT count(*) FROM poll_tally.snapshot('away', '$epoch', 39)", 0, 'at 39 a viewer is up to date');
publish_next('away', 4);
query_is($node, 'postgres', "SELECT revision, included_position, total, final FROM poll_tally.snapshot('away', '$epoch', 39)",
	'43|42|42|f', 'it resumes with 39 and gets 43, complete, in one row');
query_is($node, 'postgres', "SELECT count(*) FROM poll_tally.snapshot('away', '$epoch', 43)", 0, 'after which it is up to date');
query_is($node, 'postgres', "SELECT revision FROM poll_tally.snapshot('away', '$epoch', 44)", 43, 'who says to be ahead gets 43');
query_is($node, 'postgres', q{SELECT revision FROM poll_tally.snapshot('away', 'other', 43)}, 43, 'who is of another epoch gets 43');
publish_on(1);

# --- more than one publisher ----------------------------------------------------------------------------------------

my $seconds = deep() ? 30 : 3;
my %race = client($node, 'publishers', 3, $seconds);
is($race{failed}, 0, 'nobody failed');
is($race{revision_gaps}, 0, 'revisions grew by one');
is($race{empty_revisions}, 0, 'each included more than the one before');
is($race{newest_position}, $race{events}, 'the newest has every vote');
is($race{newest}, $race{kept}, 'all are kept');
is($race{heard}, $race{newest} - 1, 'each was announced once, but for the first, which came with the poll');
is($race{heard_out_of_order}, 0, 'in order');
is($race{forked}, 0, 'with the content that the table has');
cmp_ok($race{newest}, '>', 20, 'there was something to see');
history_ok($node, 'postgres', 'race', 'one history, and verify_poll');
figure("three sessions publishing beside the worker, $seconds s: $race{newest} revisions of $race{events} votes, $race{heard} "
	  . "announced, $race{heard_out_of_order} out of order, $race{forked} forked");

# --- a listener killed, 100 votes, back -----------------------------------------------------------------------------

make_poll($node, 'postgres', 'cut');
my $cut = start_viewer('cut', 'cut');
vote($node, 'postgres', 'cut', 5);
($revision, $position) = split / /, wait_published($node, 'postgres', 'cut');
shown_until('cut', $revision);
is((shown('cut'))[-1]{includedPosition}, 5, 'a viewer has 5 votes');
my $backend = q{SELECT pid FROM pg_stat_activity WHERE application_name = 'cut'};
my $gone = $node->safe_psql('postgres', $backend);
# Its program is stopped meanwhile, so that it cannot come back before the votes are published.
$cut->signal('STOP');
$node->safe_psql('postgres', "SELECT pg_terminate_backend($gone)");
vote($node, 'postgres', 'cut', 50);
wait_published($node, 'postgres', 'cut');
vote($node, 'postgres', 'cut', 50);
my ($later) = split / /, wait_published($node, 'postgres', 'cut');
$cut->signal('CONT');
shown_until('cut', $later);
my $last = (shown('cut'))[-1];
is_deeply([ @$last{ 'revision', 'includedPosition', 'total', 'gaps' } ], [ $later, 105, 105, ($later > $revision + 1) + 0 ],
	'back, it has all 105 votes, and knows that it missed something');
isnt($node->safe_psql('postgres', $backend), $gone, 'by another connection');
figure("a listener killed, 100 votes, back: revision $revision at 5, then $later at 105, $last->{gaps} gap");
$_->kill_kill for ($viewer, $cut);

# --- an old viewer that knows fewer keys ----------------------------------------------------------------------------

# It knows red and blue; there is green now. And messages have got keys that it has never heard of.
make_poll($node, 'postgres', 'grown');
my $old_viewer = start_viewer('grown', 'grown');
vote($node, 'postgres', 'grown', 3);
wait_published($node, 'postgres', 'grown');
$node->safe_psql('postgres', q{SELECT poll_tally.add_choice('grown', 'green');
    SELECT poll_tally.accept_event('grown', 'green-' || g, 'green') FROM generate_series(1, 4) AS g});
($revision, $position) = split / /, wait_published($node, 'postgres', 'grown');
shown_until('grown', $revision);
$last = (shown('grown'))[-1];
is_deeply([ $last->{includedPosition}, $last->{counts}{red} + $last->{counts}{blue}, $last->{counts}{green} ], [ 7, 3, 4 ],
	'what it knows is right, and the rest is there');
$channel = $node->safe_psql('postgres', q{SELECT poll_tally.channel('grown')});
$node->safe_psql('postgres', 'SELECT pg_notify(' . "'$channel', (poll_tally.snapshot_message('grown')"
	  . q{ || '{"sinceVersion9": {"a": [1]}, "revision": 99}')::text)});
vote($node, 'postgres', 'grown');
($revision) = split / /, wait_published($node, 'postgres', 'grown');
shown_until('grown', $revision);
is((shown('grown'))[-1]{includedPosition}, 8, 'a message with unknown keys does it no harm');
$old_viewer->kill_kill;
is(slurp_file("$folder/$_.err"), '', "viewer $_ had nothing to complain about") for ('late', 'cut', 'grown');

# --- a poll that does not slow the others down ----------------------------------------------------------------------

# Section 7: published when it has moved enough and publish_every has passed. The others are not due for a day, or ever.
sub seconds_each
{
	my ($poll) = @_;
	my @seconds;
	for (1 .. 5)
	{
		my $start = time();
		vote($node, 'postgres', $poll);
		wait_published($node, 'postgres', $poll);
		push @seconds, time() - $start;
	}
	return (sort { $a <=> $b } @seconds)[2];
}

make_poll($node, 'postgres', 'brisk');
my $alone = seconds_each('brisk');
make_poll($node, 'postgres', 'deadline', "closes_at => now() + interval '1 day'");
my $beside_deadline = seconds_each('brisk');
make_poll($node, 'postgres', 'slow', "publish_every => '1 day'");
vote($node, 'postgres', 'slow');
my $beside_slow = seconds_each('brisk');
figure(sprintf('a poll with an interval of 0.1 s, median of 5 single votes until published: alone %.2f s, beside one that closes '
		  . 'tomorrow %.2f s, beside one whose interval is a day %.2f s', $alone, $beside_deadline, $beside_slow));
cmp_ok($beside_deadline, '<', 1 + $alone, 'a deadline of another poll does not slow it down');
cmp_ok($beside_slow, '<', 1 + $alone, 'nor does a long interval of another poll');
# An interval that leads beyond the end of time: refused, or never due.
$node->psql('postgres', q{SELECT poll_tally.create_poll('never', '{red,blue}', counting => 'every', publish_every => '300000 years');
    SELECT outcome FROM poll_tally.accept_event('never', 'never-1', 'red')});
published_ok($node, 'postgres', 'brisk', 'beside a poll with an interval of 300,000 years');
sqlstate_is($node, 'postgres', 'SELECT * FROM poll_tally.stalled()', '', 'stalled() works beside it');
sqlstate_is($node, 'postgres', 'SELECT * FROM poll_tally.metrics', '', 'metrics work beside it');
$node->psql('postgres', q{SELECT poll_tally.alter_poll('never', publish_every => '1 day')});

# --- a look that comes to nothing -----------------------------------------------------------------------------------

# The worker has seen that something moved, and is cancelled before it knows what. In a database where nothing else does.
$node->safe_psql('postgres', 'CREATE DATABASE calm');
$node->safe_psql('calm', 'CREATE EXTENSION poll_tally');
make_poll($node, 'calm', 'calm');
published_ok($node, 'calm', 'calm', 'calm');
my $looked = worker_value($node, 'heartbeat_at', 'publisher', 'calm');
wait_until(sub { worker_value($node, "heartbeat_at > '$looked' AND state = 'idle'", 'publisher', 'calm') eq 't' }, 30);
my $locker = $node->background_psql('calm');
$locker->query_safe('BEGIN; LOCK TABLE poll_tally.publication IN ACCESS EXCLUSIVE MODE');
vote($node, 'calm', 'calm');
$node->poll_query_until('postgres', q{SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type LIKE 'poll_tally publisher%'
    AND datname = 'calm' AND wait_event_type = 'Lock'}) || die 'the worker does not look';
$node->safe_psql('postgres', 'SELECT pg_cancel_backend(' . publisher_of($node, 'calm') . ')');
ok(wait_until(sub { worker_value($node, 'last_sqlstate', 'publisher', 'calm') eq '57014' }, 30), 'a look is cancelled');
$locker->query_safe('COMMIT');
my $released = time();
my $found = wait_published($node, 'calm', 'calm');
my $after = time() - $released;
ok($found ne '' && $after <= 5.1, 'what it would have found is published in time') || diag("after $after s");
$locker->quit;

# --- what makes a poll due without moving it, or moves it and looks as if it did not --------------------------------

# The worker has looked twice and found nothing, and rests on that.
sub rested
{
	my ($database) = @_;
	$database //= 'calm';
	for (1 .. 2)
	{
		my $beat = worker_value($node, 'heartbeat_at', 'publisher', $database);
		wait_until(sub { worker_value($node, "heartbeat_at > '$beat' AND state = 'idle'", 'publisher', $database) eq 't' }, 30)
		  || die 'the worker does not look';
	}
	return;
}

sub in_time_ok
{
	my ($poll, $name, $database) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $begun = time();
	my $published = wait_published($node, $database // 'calm', $poll);
	my $took = time() - $begun;
	return ok($published ne '' && $took <= 5.1, "$name is published in time") || diag("after $took s");
}

make_poll($node, 'calm', 'again');
vote($node, 'calm', 'again');
$node->safe_psql('calm', q{SELECT poll_tally.close_poll('again')});
rested();
$node->safe_psql('calm', q{SELECT poll_tally.drop_poll('again');
    SELECT poll_tally.create_poll('again', '{red,blue}', counting => 'every', publish_every => '100 milliseconds')});
vote($node, 'calm', 'again');
in_time_ok('again', 'a poll that was made anew, with as many votes as the one before,');
make_poll($node, 'calm', 'few', q{publish_every => '100 milliseconds', publish_min_events => 5});
vote($node, 'calm', 'few');
rested();
$node->safe_psql('calm', q{SELECT poll_tally.alter_poll('few', publish_min_events => 1)});
in_time_ok('few', 'what enough has come of, by another setting,');
make_poll($node, 'calm', 'daily', q{publish_every => '1 day'});
vote($node, 'calm', 'daily');
rested();
$node->safe_psql('calm', q{SELECT poll_tally.alter_poll('daily', publish_every => '1 second')});
in_time_ok('daily', 'what has waited for long enough, by another setting,');

$node->safe_psql('postgres', 'CREATE DATABASE anew');
$node->safe_psql('anew', 'CREATE EXTENSION poll_tally');
make_poll($node, 'anew', 'first');
vote($node, 'anew', 'first');
wait_published($node, 'anew', 'first');
rested('anew');
$node->safe_psql('anew', q{BEGIN; DROP EXTENSION poll_tally; CREATE EXTENSION poll_tally; COMMIT;
    SELECT poll_tally.create_poll('first', '{red,blue}', counting => 'every', publish_every => '100 milliseconds')});
vote($node, 'anew', 'first');
in_time_ok('first', 'the first poll of an extension that was made anew', 'anew');
$node->safe_psql('postgres', 'DROP DATABASE anew');

# --- a poll that cannot be published --------------------------------------------------------------------------------

# The log says so once, and again when it was published meanwhile, by whomever.
my $begin_log = log_end($node);
make_poll($node, 'calm', 'bad');
$node->safe_psql('calm', <<'SQL');
CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('public.allow', true) IS DISTINCT FROM 'on' THEN RAISE 'refused'; END IF;
    RETURN NEW;
END $$;
DO $$ BEGIN EXECUTE (SELECT 'CREATE TRIGGER refuse BEFORE INSERT ON poll_tally.snapshot FOR EACH ROW WHEN (NEW.poll_id = '
    || poll_id || ') EXECUTE FUNCTION public.refuse()' FROM poll_tally.poll WHERE poll = 'bad'); END $$;
SQL
sub refusals { return scalar(log_lines($node, qr/could not publish poll number \d+: refused/, $begin_log)); }
for my $round (1 .. 2)
{
	my $failures = q{SELECT sum(failures) FROM poll_tally.publisher_counts()};
	my $failed = $node->safe_psql('calm', $failures);
	vote($node, 'calm', 'bad');
	vote($node, 'calm', 'calm');
	in_time_ok('calm', "beside a poll that cannot be published, $round: another one");
	ok($node->poll_query_until('calm', "SELECT ($failures) > $failed + 2"), "$round: it is tried again and again");
	is(refusals(), $round, "$round: and the log says so once");
	$node->safe_psql('calm', q{SET public.allow = on; SELECT poll_tally.publish('bad', true)});
	rested();
}
$node->safe_psql('calm', 'DROP TRIGGER refuse ON poll_tally.snapshot');
published_ok($node, 'calm', 'bad', 'once it can be');

# --- a database with timeouts ---------------------------------------------------------------------------------------

# They are for those who vote; a publication waits and takes as long as it does.
hold_publication($node, 'calm');
$locker = $node->background_psql('calm');
my @timeouts = qw(statement_timeout lock_timeout idle_in_transaction_session_timeout);
push @timeouts, 'transaction_timeout' if $node->pg_version >= 17;
$node->safe_psql('calm', join '', map { "ALTER DATABASE calm SET $_ = '1s';" } @timeouts);
my $before = publisher_of($node, 'calm');
$node->safe_psql('calm', "SELECT pg_terminate_backend($before)");
ok(wait_until(sub { publisher_of($node, 'calm') !~ /^(0|$before)$/ }), 'a publisher that comes into a database with timeouts');
$locker->query_safe('BEGIN; LOCK TABLE poll_tally.publication IN ACCESS EXCLUSIVE MODE');
vote($node, 'calm', 'calm');
ok($node->poll_query_until('postgres', q{SELECT count(*) = 1 FROM pg_locks AS l JOIN pg_stat_activity AS a USING (pid)
    WHERE a.datname = 'calm' AND a.backend_type LIKE 'poll_tally publisher%' AND NOT l.granted
      AND l.waitstart < clock_timestamp() - interval '1.2 seconds'}), 'waits for longer than they allow');
$locker->query_safe('UPDATE public.delay SET seconds = 1.5; COMMIT');
isnt(wait_published($node, 'calm', 'calm'), '', 'and publishes for longer');
$locker->quit;
$node->safe_psql('calm', 'UPDATE public.delay SET seconds = 0;' . join '', map { "ALTER DATABASE calm RESET $_;" } @timeouts);

# --- many polls close at once ---------------------------------------------------------------------------------------

# Each has 32 lanes; all of them at once are more locks than the server has. Voters of other polls must not notice.
my $count = deep() ? 3000 : 1000;
my $offset = log_end($node);
$node->safe_psql('postgres', "SELECT poll_tally.create_poll('exam-' || g, '{red,blue}', counting => 'every',"
	  . " closes_at => now() + interval '3 seconds') FROM generate_series(1, $count) AS g");
my @voters = map { start_voter($node, 'postgres', 'brisk', 0.002) } 1 .. 2;
my $start = time();
ok($node->poll_query_until('postgres', q{SELECT bool_and(final) FROM poll_tally.lag WHERE poll LIKE 'exam-%'}), 'all are closed');
my $closed = $node->safe_psql('postgres', q{SELECT round(extract(epoch FROM max(closed_at - closes_at)), 1) FROM poll_tally.polls
    WHERE poll LIKE 'exam-%'});
stop_voter($_) for @voters;
my @short = log_lines($node, qr/out of shared memory/, $offset);
is(scalar(@short), 0, 'and nobody ran out of locks') || diag($short[0]);
published_ok($node, 'postgres', 'brisk', 'after they closed');
query_is($node, 'postgres', q{SELECT count(*) FROM poll_tally.snapshots WHERE poll LIKE 'exam-%' AND final AND revision = 2}, $count,
	'each has its final snapshot, once');
figure("$count polls with the same deadline: the last one closed $closed s after it");

# --- a voter that does not end --------------------------------------------------------------------------------------

# The worker does not wait for it: others are published and closed, however many polls it holds.
my $held = 150;
$node->safe_psql('postgres', "SELECT poll_tally.create_poll('held-' || g, '{red,blue}', counting => 'every',"
	  . " closes_at => now() + interval '3 seconds') FROM generate_series(1, $held) AS g");
make_poll($node, 'postgres', 'free', "closes_at => now() + interval '3 seconds'");
my $holder = $node->background_psql('postgres');
$holder->query_safe("BEGIN; SELECT count(*) FROM generate_series(1, $held) AS g,"
	  . q{ poll_tally.accept_event('held-' || g, 'held-' || g, 'red') AS a WHERE a.outcome = 'accepted'});
ok(wait_until(sub { $node->safe_psql('postgres', q{SELECT final FROM poll_tally.lag WHERE poll = 'free'}) eq 't' }, 30),
	'another poll is closed');
query_is($node, 'postgres', 'SELECT count(*) FROM poll_tally.blockers', $held, 'the voter is a blocker, of each of its polls');
published_ok($node, 'postgres', 'brisk', 'beside polls that cannot be closed');
query_is($node, 'postgres', q{SELECT count(*) FROM poll_tally.lag WHERE poll LIKE 'held-%' AND final}, 0, 'they are still open');
query_is($node, 'postgres', q{SELECT outcome FROM poll_tally.accept_event('held-1', 'late', 'red')}, 'closed', 'but take no vote');
$holder->query_safe('COMMIT');
ok($node->poll_query_until('postgres', q{SELECT bool_and(final) FROM poll_tally.lag WHERE poll LIKE 'held-%'}),
	'once the voter ends they are closed');
query_is($node, 'postgres', q{SELECT count(*) FROM poll_tally.snapshots WHERE poll LIKE 'held-%' AND final AND total = 1
    AND included_position = 1}, $held, 'and the votes that were judged in time count');

# --- a poll that somebody changes -----------------------------------------------------------------------------------

# Its lanes are free, and its row is not: the worker gives the lanes back, and closes it once the change is there.
my $attempts = q{SELECT publish_attempts FROM poll_tally.stalled('0') WHERE poll = 'changed'};
make_poll($node, 'postgres', 'changed', "closes_at => now() + interval '1 second', max_lanes => 4");
$holder->query_safe(q{BEGIN; SELECT poll_tally.alter_poll('changed', title => 'Another')});
ok($node->poll_query_until('postgres', q{SELECT count(*) = 1 FROM poll_tally.stalled('0') WHERE poll = 'changed'}), 'its deadline has passed');
my $tried = $node->safe_psql('postgres', $attempts);
ok(wait_until(sub { $node->safe_psql('postgres', $attempts) >= $tried + 3 }, 30), 'the worker tries to close it');
query_is($node, 'postgres', q{SELECT kind, lane FROM poll_tally.blockers WHERE poll = 'changed'}, 'idle in transaction|',
	'and the view blockers has who is in its way');
query_is($node, 'postgres', q{SELECT final FROM poll_tally.lag WHERE poll = 'changed'}, 'f', 'which it cannot yet');
ok($node->poll_query_until('postgres', q{SELECT count(*) = 0 FROM pg_locks AS l JOIN poll_tally.poll AS p ON p.poll_id = l.classid::bigint
    WHERE p.poll = 'changed' AND l.locktype = 'advisory' AND l.objsubid = 7 AND l.objid < 64}), 'it holds none of its lanes');
$holder->query_safe('COMMIT');
ok($node->poll_query_until('postgres', q{SELECT final FROM poll_tally.lag WHERE poll = 'changed'}), 'then it does');
query_is($node, 'postgres', q{SELECT title FROM poll_tally.polls WHERE poll = 'changed'}, 'Another', 'with the change');
$holder->quit;

slowest_ok('failures');
$node->stop;
done_testing();
