# What is believed for speed and may be wrong: that a batch's events are new, and that a table is written as it was last. A
# repeat in a batch is answered as such whatever it would lead to if it were new; an index that is built concurrently,
# while a session works out how to write, has every entry; cancelling that work leaves the session sound.
use strict;
use warnings FATAL => 'all';

use PollTally;
use Test::More;

my $node = new_node('beliefs', 'fsync = off', 'autovacuum = off');
$node->safe_psql('postgres', 'CREATE EXTENSION poll_tally');

# --- repeats that would be refused if they were new -------------------------------------------------------------------

sub outcomes
{
	my ($arguments) = @_;
	return "SELECT string_agg(outcome::text, ',' ORDER BY ord) FROM poll_tally.accept_events($arguments)";
}

$node->safe_psql('postgres', q{
	SELECT poll_tally.create_poll('few', '{a}', counting => 'every', max_count => 3);
	SELECT poll_tally.create_poll('large', '{a}', counting => 'every', max_weight => 9223372036854775807, max_lanes => 1);
	SELECT poll_tally.create_poll('once', '{a}');
	SELECT poll_tally.create_poll('free', '{a}', counting => 'every');
	SELECT poll_tally.accept_event('few', 'few-1', 'a');
	SELECT poll_tally.accept_event('large', 'large-1', votes => '{"a": 9223372036854775000}');
	SELECT poll_tally.accept_event('once', 'once-1', 'a', 'p');
	SELECT poll_tally.accept_event('free', 'free-1', 'a', payload => '{"k": 1}')});

query_is($node, 'postgres', outcomes(q{'few', '{few-1,few-2,few-3}', '{a,a,a}', all_or_nothing => true}),
	'duplicate,accepted,accepted', 'a repeat takes up no room below a limit of a batch of all or nothing');
sqlstate_is($node, 'postgres', outcomes(q{'few', '{few-1,few-4}', '{a,a}', all_or_nothing => true}), '23514',
	'and the limit is still a limit');
query_is($node, 'postgres', q{SELECT value FROM poll_tally.stats WHERE name = 'limit_reached'}, '1', 'which is counted once');
query_is($node, 'postgres', outcomes(q{'large', '{large-1}', votes => '{"{\"a\": 9223372036854775000}"}'}),
	'duplicate', 'a repeat is one where its count would not fit a second time');
sqlstate_is($node, 'postgres', outcomes(q{'large', '{large-2}', votes => '{"{\"a\": 9223372036854775000}"}'}), '22003',
	'a new event that does not fit raises');
sqlstate_is($node, 'postgres', outcomes(q{'once', '{once-1,once-2}', '{a,a}', '{q,p}', all_or_nothing => true}), '23505',
	'a conflict in front of a second response');
like(($node->psql('postgres', outcomes(q{'once', '{once-1,once-2}', '{a,a}', '{q,p}', all_or_nothing => true})))[2],
	qr/conflict: ord 1/, 'is what is raised');

# An index that somebody added, and that comes before ours in the order of their numbers.
$node->safe_psql('postgres', $_)
  for q{CREATE UNIQUE INDEX added ON poll_tally.ledger ((payload->>'k'))},
  'REINDEX INDEX CONCURRENTLY poll_tally.ledger_event_id_key';
query_is($node, 'postgres', outcomes(q{'free', '{free-1}', '{a}', payloads => '{"{\"k\": 1}"}'}), 'duplicate',
	'a repeat is one where an added index would refuse it');
sqlstate_is($node, 'postgres', outcomes(q{'free', '{free-2}', '{a}', payloads => '{"{\"k\": 1}"}'}), '23505',
	'which refuses a new event');
$node->safe_psql('postgres', $_)
  for 'DROP INDEX poll_tally.added', 'CREATE INDEX ledger_event_id_key_more ON poll_tally.ledger (event_id, position)';
query_is($node, 'postgres', "SET statement_timeout = '180s'; " . outcomes(q{'free', '{free-3}', '{a}'}), 'accepted',
	'an added index may be called like one of ours');
$node->safe_psql('postgres', 'DROP INDEX poll_tally.ledger_event_id_key_more');

# --- plans ------------------------------------------------------------------------------------------------------------

# The lock on an index alone, which stops a session while it works out how to write into the ledger.
my $locker = $node->background_psql('postgres', on_error_stop => 0);
my $lock = 'BEGIN; ALTER INDEX poll_tally.ledger_retracts_key SET TABLESPACE pg_default';

sub accept_one
{
	my ($id) = @_;
	return "SELECT outcome FROM poll_tally.accept_event('free', '$id', 'a');";
}

sub waits
{
	my ($what, $condition) = @_;
	ok($node->poll_query_until('postgres', "SELECT count(*) > 0 FROM $condition"), $what);
	return;
}

my $writer = $node->background_psql('postgres', on_error_stop => 0);
$locker->query_safe($lock);
$writer->query(q{SET statement_timeout = '100ms'});
$writer->query(accept_one("cancelled-$_")) for 1 .. 3;
$writer->query(q{SET statement_timeout = 0});
$locker->query_safe('ROLLBACK');
# Work that makes and drops small contexts of memory.
for my $round (1 .. 3)
{
	is($writer->query(accept_one("sound-$round")), 'accepted', 'a session that was cancelled in making a plan goes on');
	$writer->query("CREATE INDEX passing ON poll_tally.ledger (accepted_at); SELECT count(*) FROM pg_stats; DROP INDEX poll_tally.passing");
}
$writer->quit;

$writer = $node->background_psql('postgres', on_error_stop => 0);
my $builder = $node->background_psql('postgres', on_error_stop => 0);
my $reader = $node->background_psql('postgres', on_error_stop => 0);
$locker->query_safe($lock);
$writer->query_until(qr/^ready$/m, "\\echo ready\n" . accept_one('made-1') . "\n");
waits('a session is stopped in making a plan', q{pg_locks WHERE NOT granted AND relation = 'poll_tally.ledger_retracts_key'::regclass});
$builder->query_until(qr/^ready$/m, "\\echo ready\nCREATE UNIQUE INDEX CONCURRENTLY late ON poll_tally.ledger (accepted_at, event_id);\n");
waits('an index is begun meanwhile', q{pg_stat_progress_create_index WHERE phase = 'waiting for writers before build'});
$reader->query_safe(q{BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1});
$locker->query_safe('ROLLBACK');
# It now holds all entries that were there, and waits for the old snapshot.
waits('and is built but for old snapshots', q{pg_stat_progress_create_index WHERE phase = 'waiting for old snapshots'});
$writer->query_safe(accept_one("made-$_")) for 2 .. 3;
$writer->query_safe(outcomes(q{'free', '{made-4,made-5}', '{a,a}'}));
$reader->query_safe('COMMIT');
waits('then it is done', q{pg_index WHERE indexrelid = 'poll_tally.late'::regclass AND indisvalid});
$node->safe_psql('postgres', 'CREATE EXTENSION amcheck');
query_is($node, 'postgres', q{SELECT count(*) FROM poll_tally.ledger WHERE event_id LIKE 'made-%'}, '5', 'all events are in the ledger');
is($node->psql('postgres', q{SELECT bt_index_check('poll_tally.late', true)}), 0, 'and in the index');
$_->quit for $locker, $writer, $builder, $reader;

poll_is_true($node, 'postgres', $_, "$_ holds together") for qw(few large once free);
$node->stop;
done_testing();
