# A vote in a prepared transaction survives a restart, an immediate one too, and until it is decided it holds what it
# holds: its lane, its event id, its principal. COMMIT PREPARED counts it once, ROLLBACK PREPARED leaves no trace and no
# hole in the lane; either way the poll holds together and a retry is told the truth.
use strict;
use warnings FATAL => 'all';

use PollTally;
use Test::More;

seed();
my $node = new_node('prepared', 'fsync = off', "poll_tally.databases = 'postgres'");
$node->safe_psql('postgres', <<'SQL');
CREATE EXTENSION poll_tally;
SELECT poll_tally.create_poll('lanes', '{red,blue}', max_lanes => 2, publish_every => '100 milliseconds');
SELECT poll_tally.create_poll('strict', '{red,blue}', counting => 'every', max_lanes => 1);
SELECT poll_tally.create_poll('wide', array(SELECT 'choice-' || g FROM generate_series(1, 1500) AS g), counting => 'every');
SQL
my @polls = polls_of($node, 'postgres');

sub vote
{
	my ($poll, $id, $choice, $principal) = @_;
	return "poll_tally.accept_event('$poll', '$id', '$choice', " . ($principal ? "'$principal'" : 'NULL') . ')';
}

# Votes in three polls, one of them taken back by a savepoint; two votes for one lane row.
sub prepare
{
	my ($name) = @_;
	my ($lanes, $back, $strict, $again, $wide) = (
		vote('lanes', "$name-lanes", 'red', "voter-$name"),
		vote('strict', "$name-back", 'blue'),
		vote('strict', "$name-strict", 'blue'),
		vote('strict', "$name-again", 'red'),
		vote('wide', "$name-wide", 'choice-1499'));
	my $out = $node->safe_psql('postgres', <<SQL);
BEGIN;
SELECT outcome || ' ' || position FROM $lanes;
SAVEPOINT here;
SELECT outcome || ' ' || position FROM $back;
ROLLBACK TO SAVEPOINT here;
SELECT outcome || ' ' || position FROM $strict;
SELECT outcome || ' ' || position FROM $again;
SELECT outcome || ' ' || position FROM $wide;
PREPARE TRANSACTION '$name';
SQL
	return join(', ', split(/\n/, $out));
}

sub restart
{
	my ($mode) = @_;
	$node->stop($mode);
	$node->start;
	return;
}

# What the prepared transaction holds is waited for (55P03 under a lock_timeout), and nothing of it shows.
sub holds_ok
{
	my ($name, $when) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $timeout = "SET lock_timeout = '100ms'; SELECT * FROM ";
	my %waiting = (
		'its event id' => vote('lanes', "$name-lanes", 'red', "voter-$name"),
		'its event id in another poll' => vote('wide', "$name-strict", 'choice-1'),
		'its principal' => vote('lanes', "$name-other", 'red', "voter-$name"),
		'its lane, where there is only one' => vote('strict', "$name-late", 'red'));
	for my $what (sort keys %waiting)
	{
		sqlstate_is($node, 'postgres', $timeout . $waiting{$what}, '55P03', "$when: $what is held");
	}
	for my $poll (@polls)
	{
		sqlstate_is($node, 'postgres', "${timeout}poll_tally.close_poll('$poll')", '55P03', "$when: $poll cannot be closed");
	}
	query_is($node, 'postgres', 'SELECT count(*) FROM poll_tally.polls WHERE closed_at IS NOT NULL', 0,
		"$when: no poll is closed");
	query_is($node, 'postgres', "SELECT count(*) FROM poll_tally.events WHERE event_id LIKE '$name-%'", 0,
		"$when: it does not show");
	query_is($node, 'postgres', "SELECT status FROM poll_tally.event_status('$name-lanes')", 'unknown',
		"$when: nor does its status");
	return;
}

sub polls_ok
{
	my ($when) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	for my $poll (@polls)
	{
		poll_is_true($node, 'postgres', $poll, "$when: $poll holds together");
	}
	return;
}

# --- committed, after an immediate restart --------------------------------------------------------------------------

is(prepare('one'), 'accepted 0/1, accepted 0/1, accepted 0/1, accepted 0/2, accepted 0/1',
	'votes are accepted and can be prepared');
holds_ok('one', 'prepared');
restart('immediate');
holds_ok('one', 'after an immediate restart');
restart('fast');
holds_ok('one', 'after a fast restart');
query_is($node, 'postgres', 'SELECT outcome, position FROM ' . vote('lanes', 'beside', 'blue', 'other'), 'accepted|1/1',
	'a second lane is opened beside the one that is held');
ok($node->poll_query_until('postgres', "SELECT gap = 0 FROM poll_tally.lag WHERE poll = 'lanes'"),
	'the vote beside is published meanwhile');
query_is($node, 'postgres', "SELECT frontier, counts FROM poll_tally.snapshot('lanes')", '{0,1}|{"blue": 1}',
	'the snapshot holds that vote and no other');
polls_ok('while prepared');

$node->safe_psql('postgres', q{COMMIT PREPARED 'one'});
polls_ok('committed');
query_is($node, 'postgres', 'SELECT poll, choice, count FROM poll_tally.results WHERE count > 0 ORDER BY 1, 2',
	"lanes|blue|1\nlanes|red|1\nstrict|blue|1\nstrict|red|1\nwide|choice-1499|1", 'each of its votes is counted once');
query_is($node, 'postgres', 'SELECT outcome, position, attempt FROM ' . vote('lanes', 'one-lanes', 'red', 'voter-one'),
	'duplicate|0/1|1', 'a retry gets the original receipt');
query_is($node, 'postgres', 'SELECT outcome FROM ' . vote('lanes', 'one-lanes', 'blue', 'voter-one'), 'conflict',
	'another answer under its id is a conflict');
query_is($node, 'postgres', 'SELECT outcome FROM ' . vote('lanes', 'one-other', 'red', 'voter-one'), 'already_responded',
	'its principal has responded');
query_is($node, 'postgres', 'SELECT outcome, position FROM ' . vote('strict', 'one-back', 'blue'), 'accepted|0/3',
	'what the savepoint took back was not counted, and the lane goes on');

# --- rolled back, after an immediate restart ------------------------------------------------------------------------

is(prepare('two'), 'accepted 0/2, accepted 0/4, accepted 0/4, accepted 0/5, accepted 0/2', 'a second one is prepared');
restart('immediate');
holds_ok('two', 'second, after an immediate restart');
$node->safe_psql('postgres', q{ROLLBACK PREPARED 'two'});
polls_ok('rolled back');
query_is($node, 'postgres', q{SELECT count(*) FROM poll_tally.events WHERE event_id LIKE 'two-%'}, 0, 'no trace of it');
query_is($node, 'postgres', 'SELECT outcome, position FROM ' . vote('strict', 'two-strict', 'blue'), 'accepted|0/4',
	'no hole in the lane, and its id is free');
query_is($node, 'postgres', 'SELECT outcome, attempt FROM ' . vote('lanes', 'two-other', 'blue', 'voter-two'), 'accepted|1',
	'its principal is free');

# --- two of one poll at once ----------------------------------------------------------------------------------------

for my $number (1, 2)
{
	my $vote = vote('lanes', "pair-$number", 'red', "pair-$number");
	$node->safe_psql('postgres', "BEGIN; SELECT * FROM $vote; PREPARE TRANSACTION 'pair-$number'");
}
sqlstate_is($node, 'postgres', q{SET lock_timeout = '100ms'; SELECT * FROM } . vote('lanes', 'pair-3', 'red', 'pair-3'),
	'55P03', 'both lanes of the poll are held');
restart('immediate');
$node->safe_psql('postgres', q{COMMIT PREPARED 'pair-2'; ROLLBACK PREPARED 'pair-1'});
polls_ok('one of two committed');
query_is($node, 'postgres', q{SELECT string_agg(event_id, ' ') FROM poll_tally.events WHERE event_id LIKE 'pair-%'}, 'pair-2',
	'that one is counted');

# --- the end --------------------------------------------------------------------------------------------------------

query_is($node, 'postgres', "SELECT (poll_tally.close_poll('$_')).final", 't', "$_ can be closed") for @polls;
polls_ok('closed');

$node->stop;
done_testing();
