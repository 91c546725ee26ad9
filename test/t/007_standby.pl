# A streaming standby: everything readable reads there and shows what the primary shows, with the same epoch; whatever
# writes raises 25006, whatever the event. After a promotion the epoch is another one, nothing that was replayed is lost,
# retries are told the truth, votes go on in their lanes, the worker publishes, and closing works.
use strict;
use warnings FATAL => 'all';

use PollTally;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

seed();
my $primary = new_node('primary', 'fsync = off', "poll_tally.databases = 'postgres'");
$primary->safe_psql('postgres', <<'SQL');
CREATE EXTENSION poll_tally;
SELECT poll_tally.create_poll('live', '{red,blue}', publish_every => '100 milliseconds');
SELECT poll_tally.create_poll('clicks', '{red,blue}', counting => 'every', publish_every => '100 milliseconds');
SELECT poll_tally.create_poll('over', '{yes,no}');
SELECT poll_tally.create_poll('idle', '{a}');
SELECT outcome FROM poll_tally.accept_event('over', 'over-1', 'yes', 'anne');
SELECT (poll_tally.close_poll('over')).revision;
SQL
$primary->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'base', has_streaming => 1);
$standby->start;
$primary->safe_psql('postgres', <<'SQL');
SELECT count(*) FROM generate_series(1, 100) AS g,
    poll_tally.accept_event('live', 'live-' || g, CASE WHEN g % 3 = 0 THEN 'red' ELSE 'blue' END, 'voter-' || g);
SELECT count(*) FROM generate_series(1, 100) AS g,
    poll_tally.accept_event('clicks', 'click-' || g, CASE WHEN g % 3 = 0 THEN 'red' ELSE 'blue' END);
SQL
ok($primary->poll_query_until('postgres', 'SELECT sum(gap) = 0 FROM poll_tally.lag'), 'the primary publishes');
$primary->wait_for_catchup($standby, 'replay', $primary->lsn('write'));

# --- the standby reads ----------------------------------------------------------------------------------------------

my @reads = (
	'SELECT * FROM poll_tally.polls ORDER BY poll',
	'SELECT * FROM poll_tally.choices ORDER BY poll, ord',
	'SELECT * FROM poll_tally.results ORDER BY poll, choice',
	'SELECT * FROM poll_tally.published ORDER BY poll, choice',
	'SELECT * FROM poll_tally.events ORDER BY poll, position',
	'SELECT * FROM poll_tally.snapshots ORDER BY poll, revision',
	'SELECT * FROM poll_tally.lag ORDER BY poll',
	q{SELECT * FROM poll_tally.snapshot('live')},
	q{SELECT count(*) FROM poll_tally.snapshot('live', (SELECT epoch FROM poll_tally.snapshot('live')),
	      (SELECT revision FROM poll_tally.snapshot('live')))},
	q{SELECT poll_tally.snapshot_message('live')},
	q{SELECT poll_tally.channel('live')},
	q{SELECT * FROM poll_tally.results_of('clicks', '{red}')},
	q{SELECT * FROM poll_tally.event_status('live-7')},
	q{SELECT * FROM poll_tally.event_status('nobody')},
	q{SELECT * FROM poll_tally.verify_poll('live')},
	'SELECT * FROM poll_tally.version()',
	q{SELECT poll_tally.sum(effect) FROM poll_tally.events WHERE poll = 'clicks'});
for my $sql (@reads)
{
	my ($what) = $sql =~ /poll_tally\.(\w+)/;
	my ($status, $out, $err) = $standby->psql('postgres', $sql);
	is("$out$err", $primary->safe_psql('postgres', $sql), "$what reads the same on the standby");
}
my $epochs = q{SELECT string_agg(poll || '=' || epoch, ' ' ORDER BY poll) FROM poll_tally.lag};
my $before = $primary->safe_psql('postgres', $epochs);
query_is($standby, 'postgres', $epochs, $before, 'the epochs are equal');
poll_is_true($standby, 'postgres', 'clicks', 'the poll holds together on the standby');

# --- the standby refuses to write -----------------------------------------------------------------------------------

my %writes = (
	'a new event' => q{SELECT * FROM poll_tally.accept_event('clicks', 'new', 'red')},
	'a known event' => q{SELECT * FROM poll_tally.accept_event('clicks', 'click-1', 'blue')},
	'an invalid event' => q{SELECT * FROM poll_tally.accept_event('clicks', NULL, 'blue')},
	'an unknown poll' => q{SELECT * FROM poll_tally.accept_event('nowhere', 'new', 'blue')},
	'accept_event_or_raise' => q{SELECT * FROM poll_tally.accept_event_or_raise('nowhere', 'new', 'blue')},
	'create_poll' => q{SELECT poll_tally.create_poll('more')},
	'add_choice' => q{SELECT poll_tally.add_choice('live', 'green')},
	'publish' => q{SELECT poll_tally.publish('live')},
	'publish with force' => q{SELECT poll_tally.publish('live', true)},
	'close_poll' => q{SELECT poll_tally.close_poll('live')},
	'drop_poll' => q{SELECT poll_tally.drop_poll('over')},
	'renew_epoch' => q{SELECT poll_tally.renew_epoch()});
sqlstate_is($standby, 'postgres', $writes{$_}, '25006', "$_ raises 25006") for sort keys %writes;
sqlstate_is($primary, 'postgres', "SET default_transaction_read_only = on; $writes{$_}", '25006',
	"$_ raises 25006 in a read-only transaction of the primary") for sort keys %writes;
query_is($standby, 'postgres', "SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'poll_tally%' AND datname <> ''",
	0, 'no publisher runs on the standby');

# --- promotion ------------------------------------------------------------------------------------------------------

# Votes that the primary has not published yet go with it.
$primary->append_conf('postgresql.conf', 'poll_tally.publish = off');
$primary->restart;
$primary->safe_psql('postgres', <<'SQL');
SELECT outcome FROM poll_tally.accept_event('live', 'last', 'red', 'last');
BEGIN; SELECT outcome FROM poll_tally.accept_event('clicks', 'prepared', 'red'); PREPARE TRANSACTION 'prepared';
SQL
my $position = $primary->safe_psql('postgres', q{SELECT position FROM poll_tally.event_status('last')});
my $revision = $primary->safe_psql('postgres', q{SELECT revision FROM poll_tally.snapshot('live')});
my $ledger = $primary->safe_psql('postgres', 'SELECT md5(string_agg(e::text, E\'\n\' ORDER BY event_id)) FROM poll_tally.events AS e');
$primary->wait_for_catchup($standby, 'replay', $primary->lsn('write'));
$primary->stop('immediate');
$standby->promote;

query_is($standby, 'postgres', 'SELECT md5(string_agg(e::text, E\'\n\' ORDER BY event_id)) FROM poll_tally.events AS e', $ledger,
	'the ledger is the same');
my $after = $standby->safe_psql('postgres', $epochs);
my %old = map { split /=/ } split / /, $before;
my %new = map { split /=/ } split / /, $after;
is_deeply([ sort keys %new ], [ sort keys %old ], 'every poll has an epoch');
is_deeply([ grep { $old{$_} eq $new{$_} } keys %new ], [], 'and a new one');
ok($standby->poll_query_until('postgres', "SELECT gap = 0 FROM poll_tally.lag WHERE poll = 'live'"),
	'the worker publishes what the primary did not');
query_is($standby, 'postgres', q{SELECT revision FROM poll_tally.snapshot('live')}, $revision + 1, 'as the next revision');
query_is($standby, 'postgres', q{SELECT outcome, position FROM poll_tally.accept_event('live', 'last', 'red', 'last')},
	"duplicate|$position", 'a retry gets the original receipt');
query_is($standby, 'postgres', q{SELECT outcome FROM poll_tally.accept_event('live', 'live-1', 'red', 'voter-1')}, 'conflict',
	'another answer is a conflict');
query_is($standby, 'postgres', q{SELECT outcome, position FROM poll_tally.accept_event('live', 'after', 'red', 'after')},
	'accepted|0/102', 'votes go on in the lane');
sqlstate_is($standby, 'postgres', q{SET lock_timeout = '100ms'; SELECT * FROM poll_tally.accept_event('clicks', 'prepared', 'red')},
	'55P03', 'a prepared vote is still held');
query_is($standby, 'postgres', q{SELECT outcome, position FROM poll_tally.accept_event('clicks', 'beside', 'red')},
	'accepted|1/1', 'with its lane');
$standby->safe_psql('postgres', q{COMMIT PREPARED 'prepared'});
ok($standby->poll_query_until('postgres', 'SELECT sum(gap) = 0 FROM poll_tally.lag'), 'the worker publishes new votes');
query_is($standby, 'postgres', q{SELECT count(*) FROM poll_tally.snapshot('live', '} . $old{live} . q{', 1000000)}, 1,
	'a viewer with the old epoch gets the newest snapshot, even if it is ahead');
query_is($standby, 'postgres', q{SELECT (poll_tally.close_poll('clicks')).final}, 't', 'a poll can be closed');
poll_is_true($standby, 'postgres', $_, "$_ holds together") for polls_of($standby, 'postgres');

# --- a second standby, of the new primary ---------------------------------------------------------------------------

$standby->backup('second');
my $second = PostgreSQL::Test::Cluster->new('second');
$second->init_from_backup($standby, 'second', has_streaming => 1);
$second->start;
$standby->wait_for_catchup($second, 'replay', $standby->lsn('write'));
query_is($second, 'postgres', $epochs, $after, 'its standby has the epochs of the new primary');
$standby->safe_psql('postgres', q{SELECT poll_tally.renew_epoch()});
my $renewed = $standby->safe_psql('postgres', $epochs);
isnt($renewed, $after, 'renew_epoch() changes them');
$standby->wait_for_catchup($second, 'replay', $standby->lsn('write'));
query_is($second, 'postgres', $epochs, $renewed, 'on the standby too');

figure(scalar(@reads) . ' reads and ' . scalar(keys %writes) . ' writes on a standby; promotion: '
	  . $standby->safe_psql('postgres', 'SELECT count(*) FROM poll_tally.events') . ' ledger entries kept, '
	  . scalar(keys %new) . ' epochs changed');
$second->stop;
$standby->stop;
done_testing();
