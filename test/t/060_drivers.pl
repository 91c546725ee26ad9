# The examples of node-postgres, psycopg2, libpq and JDBC. All print the same: alone, and when for each of their events the
# transaction fails (40001, 40P01), the connection is cut before the request and after the commit, and the backend is
# terminated after the commit. What is then in ledger and tally is counted here by plain SELECTs. Watchers are cut off while
# revisions are published, get forged messages and another epoch, and end with the final snapshot. Programs with a mistake
# in their retry, or that forget what they have or count no gap, are caught.
use strict;
use warnings FATAL => 'all';

use Cwd qw(abs_path);
use File::Basename qw(dirname);
use IPC::Run qw(start);
use PollTally;
use PostgreSQL::Test::Utils;
use Test::More;

my @drivers = qw(node python c java);
my @mutants = qw(new-id new-time refusal-counts no-retry no-gaps forgetful);
my $sending_mutants = 4;
my $tree = abs_path(dirname(__FILE__) . '/../..');
my $examples = "$tree/examples/drivers";
my $classes = PostgreSQL::Test::Utils::tempdir();

# --- build, by the commands of the README ---------------------------------------------------------------------------

my %command = (
	node => [ 'npm', 'ci', '--no-audit', '--no-fund', '--prefix', "$examples/node" ],
	c => [ 'make', '-s', '-C', "$examples/c", 'PG_CONFIG=' . ($ENV{PG_CONFIG} // 'pg_config') ],
	java => [ 'javac', '-Xlint:all', '-d', $classes, '-cp', '/usr/share/java/postgresql.jar', glob("$examples/java/*.java"),
		"$tree/test/lib/bind/Bind.java" ]);
my %output = map { $_ => '' } keys %command;
my %build = map { $_ => start($command{$_}, '<', \undef, '>&', \$output{$_}) } keys %command;
for my $driver (sort keys %build)
{
	ok($build{$driver}->finish, "$driver: the example builds") || diag($output{$driver});
	unlike($output{$driver}, qr/\bwarning\b/, "$driver: without a warning");
}

# --- run ------------------------------------------------------------------------------------------------------------

my $node = new_node('drivers', 'fsync = off', 'poll_tally.publish = off');
$node->safe_psql('postgres', <<'SQL');
CREATE EXTENSION poll_tally;
CREATE ROLE sender LOGIN;
CREATE ROLE screen LOGIN;
SELECT poll_tally.grant_submitter('sender'), poll_tally.grant_viewer('screen');

-- Functions whose arguments are bound in each driver; those that no user calls are left out by what the reference says
-- of their names. Then what is read in each driver.
CREATE VIEW calls AS
SELECT p.proname::text AS name, p.proargnames[1:p.pronargs] AS names,
       ARRAY(SELECT format_type(a.type, NULL) FROM unnest(p.proargtypes::oid[]) WITH ORDINALITY AS a (type, place)
             ORDER BY a.place) AS types
FROM pg_proc AS p
WHERE p.pronamespace = 'poll_tally'::regnamespace AND p.prokind = 'f' AND p.pronargs > 0 AND p.proargnames IS NOT NULL
  AND p.proname !~ '^(tally|pending|position|make_position|counts_of|frontier_of|is_wide|epoch_of|total_if_fits)'
  AND NOT p.proargtypes::oid[] && '{internal,cstring,bytea}'::regtype[]::oid[];
CREATE VIEW reads AS
SELECT c.relname::text AS source FROM pg_class AS c WHERE c.relnamespace = 'poll_tally'::regnamespace AND c.relkind = 'v'
UNION ALL SELECT unnest(ARRAY[
    $$accept_event('watched', 'late', 'soup')$$, $$accept_json('no JSON')$$, $$accept_events('watched', '{late}', '{soup}')$$,
    $$retract_event('watched', 'late', 'undo-late')$$, $$event_status('late')$$, $$events_after('watched')$$,
    $$snapshot('watched')$$, $$snapshot_message('watched')$$, $$results_of('watched')$$, $$verify_poll('watched')$$,
    $$publish('watched')$$, $$close_poll('watched')$$, $$stalled()$$, $$version()$$, $$advance_frontier('{1}', '0/2')$$,
    $$each('{"a": 1}')$$, $$make_tally('{a}', '{1}')$$]);
SQL
my %result = client($node, 'drivers', $tree, $classes);

# One row an event: what is in the ledger, times apart.
sub ledger
{
	my ($poll) = @_;
	return $node->safe_psql('postgres', "SELECT principal, attempt, position, votes, payload FROM poll_tally.events"
		  . " WHERE poll = '$poll' AND kind = 'event' ORDER BY position");
}

my $events = <<'EVENTS' =~ s/\n\z//r;
ann|1|0/1|{"soup": 1}|
bob|1|0/2|{"pasta": 1, "soup": 2}|{"note": "no \"salt\" \\ très chaud", "table": 7}
dan|1|0/3|{"salad": 1}|[]
eve|1|0/4|{"salad": 4}|["a \"list\"", null]
EVENTS

my $lost = 0;
for my $driver (@drivers)
{
	is($result{"plain_$driver"}, 1, "$driver: prints what it should");
	is($result{"faults_$driver"}, 1, "$driver: and after every fault the same, each event a duplicate of its lost try");
	is(scalar(() = $result{"faults_done_$driver"} =~ /:[3-9]\b/g), 5, "$driver: every fault happened to several requests")
	  || diag($result{"faults_done_$driver"});
	$lost += $_ for $result{"faults_done_$driver"} =~ /(?:after|terminate):(\d+)/g;
	is($result{"hopeless_$driver"}, 1, "$driver: without any answer it fails, and says nothing of success");
	is($result{"hopeless_tries_$driver"}, 8, "$driver: after a bounded number of tries");
	is(ledger("hopeless-$driver"), 'ann|1|0/1|{"soup": 1}|', "$driver: of which the ledger has one");
	for my $poll ("plain-$driver", "faults-$driver")
	{
		is(ledger($poll), $events, "$poll: the ledger has each event once, as it was sent");
		query_is($node, 'postgres', "SELECT string_agg(choice || ' ' || count, ', ') FROM poll_tally.results WHERE poll = '$poll'",
			'soup 3, salad 5, pasta 1', "$poll: counted once");
		query_is($node, 'postgres', <<SQL, '4|t', "$poll: under UUIDs, and the time is that of the sender");
SELECT count(DISTINCT event_id::uuid), bool_and(occurred_at BETWEEN accepted_at - interval '10 minutes' AND accepted_at)
FROM poll_tally.events WHERE poll = '$poll'
SQL
	}
	is($result{"watch_$driver"}, 1, "$driver: the watcher shows every state, the gap, the other epoch and the end");
}
is($result{watch_missing}, 'nothing', 'no watcher missed anything');

my $calls = $node->safe_psql('postgres', 'SELECT count(*) FROM calls');
cmp_ok($calls, '>=', 40, 'there are functions to bind');
for my $driver (qw(node python java java_untyped))
{
	is($result{"bound_$driver"}, $calls, "$driver: binds every argument of every function");
	cmp_ok($result{"read_$driver"}, '>', 1000, "$driver: and reads every column as text");
}

# --- the test itself ------------------------------------------------------------------------------------------------

for my $mutant (@mutants)
{
	is($result{"caught_" . $mutant =~ tr/-/_/r}, 1, "a program with the mistake '$mutant' is caught");
}
isnt(ledger('faults-new-id'), $events, 'and so is a new event id on a retry, by the ledger');

my @polls = polls_of($node, 'postgres');
is(scalar(@polls), 3 * @drivers + $sending_mutants + 1, 'all polls were there');
poll_is_true($node, 'postgres', $_, "$_ holds together") for @polls;
my @compared = grep { /^(?:plain|faults|watch)_[a-z]+$/ && $_ ne 'watch_missing' } sort keys %result;
my $differ = grep { $result{$_} != 1 } @compared;
my $caught = grep { $result{"caught_" . tr/-/_/r} } @mutants;
figure(@drivers . " drivers, $differ differences in " . @compared . " transcripts; $lost answers lost after the commit and asked "
	  . "for again; $caught of " . @mutants . " mistakes caught; $calls functions bound in each");

$node->stop;
done_testing();
