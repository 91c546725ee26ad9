# Who may do what, and what comes out although nobody may. The privilege matrix is tried in full: seven roles, each logged in
# for itself, every object, every verb. A search path full of traps, temporary relations and casts of a stranger change no
# answer, nor does a search path of the database change what the worker does. No string gets out of its argument. A schema
# made beforehand is refused. The reference viewer stands a hundred forged messages a second. Principals and payloads are in
# no message, no line of the log and no statistics; what leaks nevertheless leaks as SECURITY.md says.
use strict;
use warnings FATAL => 'all';

use Cwd qw(abs_path);
use IPC::Run qw(run start);
use JSON::PP;
use PollTally;
use PostgreSQL::Test::Utils;
use Test::More;
use WorkerLife;

my $seed = seed();
my $node = new_node('roles', 'fsync = off', q{shared_preload_libraries = 'poll_tally, pg_stat_statements'},
	'log_statement = none', 'log_min_messages = debug1', 'log_error_verbosity = verbose', 'log_lock_waits = on', q{deadlock_timeout = '10ms'});

# probe(SCRIPT, ARGUMENT...): runs it on a database of that name, and returns its NAME=VALUE lines.
sub probe
{
	my ($script, @arguments) = @_;
	my ($out, $err) = ('', '');
	$node->safe_psql('postgres', "CREATE DATABASE $script");
	my $ok = run([ '/usr/bin/python3', '-B', "test/lib/$script.py", $node->connstr($script), @arguments ], '<', \undef, '>', \$out,
		'2>', \$err);
	note($1) while $out =~ /^# (.*)$/mg;
	diag($err) if $err ne '';
	die "$script.py failed: $?\n$out" if !$ok;
	return $out =~ /^(\w+)=(.*)$/mg;
}

# --- principals and payloads ----------------------------------------------------------------------------------------

my %mark = probe('markers', $node->logfile);
is($mark{found}, 0, 'principals and payloads are nowhere but in the ledger');
cmp_ok($mark{ledger}, '>', 0, 'where they are');
cmp_ok($mark{errors}, '>=', 20, 'many kinds of errors were provoked');
is($mark{races}, '00000 40001 40P01 55P03 57014 lost', 'and every end of a wait');
is($mark{leaks_shown}, $mark{leaks}, 'what leaks, leaks as SECURITY.md says');
figure("principals and payloads: $mark{searched} texts of $mark{places} kinds searched ($mark{views} views of statistics, the log, messages, errors), "
	  . "$mark{errors} different errors provoked, found $mark{found}; $mark{leaks} documented leaks are so");
$node->append_conf('postgresql.conf', "log_min_messages = warning\nlog_error_verbosity = default\ndeadlock_timeout = '1s'\n");
$node->reload;

# --- the matrix -----------------------------------------------------------------------------------------------------

set_all($node, 'poll_tally.publish' => 'off');
my %matrix = probe('roles');
is($matrix{wrong}, 0, 'every attempt ends as the table says');
cmp_ok($matrix{attempts}, '>', 4000, 'there were many');
cmp_ok($matrix{allowed}, '>', 700, 'of which some were allowed');
is($matrix{ledger}, '55000 55000 55000', 'even its owner cannot change the ledger');
is($matrix{slips_noticed}, $matrix{slips}, 'a grant too many or too few would be noticed');
figure("privileges: $matrix{attempts} attempts by $matrix{roles} roles on $matrix{objects} objects ($matrix{allowed} allowed), $matrix{by_catalog} more by the catalog, "
	  . "wrong $matrix{wrong}; $matrix{slips_noticed} of $matrix{slips} planted slips noticed");

# --- hostile surroundings -------------------------------------------------------------------------------------------

my %hostile = probe('hostile');
is($hostile{wrong}, 0, 'under a hostile search path every answer is the same');
is($hostile{baits_taken}, $hostile{baits}, 'its traps do spring');
is($hostile{errors}, 0, 'every question had an answer');
is($hostile{casts_refused}, 5, 'casts over our types are refused');
figure("hostile search path: $hostile{traps} traps, $hostile{asked} calls of every function and view as a user and as a superuser, answers that differ $hostile{wrong}");

# The database's own search path is the worker's too.
$node->safe_psql('postgres', 'ALTER DATABASE hostile SET search_path = evil, pg_catalog, public');
set_all($node, 'poll_tally.publish' => undef);
my $offset = log_end($node);
# The worker has the setting once it starts anew.
my $publisher = 0;
wait_until(sub { $publisher = publisher_of($node, 'hostile') }) || die 'no publisher';
$node->safe_psql('postgres', "SELECT pg_terminate_backend($publisher)");
wait_until(sub { (publisher_of($node, 'hostile') || $publisher) != $publisher }) || die 'no new publisher';
$node->safe_psql('hostile', q{SET search_path = pg_catalog; SELECT poll_tally.alter_poll('p', publish_every => '50 milliseconds');
    SELECT outcome FROM poll_tally.accept_event('p', 'for-the-worker', 'b', 'olga')});
ok(wait_until(sub { $node->safe_psql('hostile', q{SET search_path = pg_catalog;
	    SELECT gap = 0 AND revision > 1 FROM poll_tally.lag WHERE poll = 'p'}) eq 't' }), 'the worker publishes under it');
is(join("\n", log_lines($node, qr/trap|could not publish/, $offset)), '', 'and no trap sprang');

# --- strings that are no names --------------------------------------------------------------------------------------

my %strings = probe('injection', deep() ? 1 : 4, $seed);
is($strings{wrong}, 0, 'no string does anything but what a string does');
is($strings{careless_caught}, 1, 'a careless function would be caught');
figure("injection: $strings{strings} strings through $strings{arguments} textual arguments, $strings{calls} calls, $strings{names} whole lives under such names, wrong $strings{wrong}");

# --- the schema made beforehand -------------------------------------------------------------------------------------

$node->safe_psql('postgres', 'CREATE DATABASE early; GRANT CREATE ON DATABASE early TO mallory');
my @planted = (
	'CREATE TABLE poll_tally.ledger (i int)', 'CREATE VIEW poll_tally.results AS SELECT 1', 'CREATE TYPE poll_tally.tally AS ENUM ()',
	'CREATE FUNCTION poll_tally.accept_event() RETURNS int LANGUAGE sql RETURN 1', 'CREATE SEQUENCE poll_tally.poll_id_seq',
	'CREATE OPERATOR poll_tally.+ (FUNCTION = int4pl, LEFTARG = int4, RIGHTARG = int4)', 'CREATE DOMAIN poll_tally.ident AS text',
	'CREATE COLLATION poll_tally.c FROM "C"', 'CREATE TEXT SEARCH DICTIONARY poll_tally.d (TEMPLATE = simple)', 'SELECT 1');
for my $planted (@planted)
{
	$node->safe_psql('early', "SET SESSION AUTHORIZATION mallory; CREATE SCHEMA poll_tally; $planted;");
	sqlstate_is($node, 'early', 'CREATE EXTENSION poll_tally', '55000', "a schema of another role is refused: $planted");
	sqlstate_is($node, 'early', 'CREATE EXTENSION poll_tally CASCADE', '55000', 'also with CASCADE');
	query_is($node, 'early', 'SELECT count(*) FROM pg_extension WHERE extname = \'poll_tally\'', 0, 'nothing is installed');
	$node->safe_psql('early', 'DROP SCHEMA poll_tally CASCADE');
}
$node->safe_psql('early', 'CREATE EXTENSION poll_tally');
figure(scalar(@planted) . ' schemas made beforehand by another role, each refused');

# --- forged messages ------------------------------------------------------------------------------------------------

my $seconds = deep() ? 60 : 4;
my $rate = 100;
$node->safe_psql('postgres', 'CREATE EXTENSION poll_tally');
$node->safe_psql('postgres', q{SELECT poll_tally.grant_viewer('screen')});
make_poll($node, 'postgres', 'show');
my $folder = PostgreSQL::Test::Utils::tempdir_short();
my $viewer = start([ '/usr/bin/python3', '-B', abs_path('examples/viewer/viewer.py'), $node->connstr('postgres') . ' user=screen', 'show' ],
	'<', '/dev/null', '>', "$folder/shown", '2>', "$folder/complaints");

sub shown
{
	return map { decode_json($_) } grep { /\}$/ } split /\n/, (-e "$folder/shown" ? slurp_file("$folder/shown") : '');
}

my $truth = q{SELECT jsonb_build_object('epoch', epoch, 'revision', revision, 'includedPosition', included_position,
    'counts', counts::jsonb, 'total', total, 'final', final) FROM poll_tally.snapshots WHERE poll = 'show'};

sub viewer_is_ahead
{
	my ($revision) = @_;
	return wait_until(sub { my $last = (shown())[-1] // {}; return ($last->{revision} // 0) >= $revision });
}

ok(viewer_is_ahead(1), 'the viewer has begun');
my $backend = $node->safe_psql('postgres', q{SELECT pid FROM pg_stat_activity WHERE usename = 'screen'});
my ($sent, $complaint) = ('', '');
my $forger = start([ '/usr/bin/python3', '-B', 'test/lib/forger.py', $node->connstr('postgres') . ' user=outsider', 'show', $seconds, $rate, $seed ],
	'<', \undef, '>', \$sent, '2>', \$complaint);
my $rounds = 0;
while ($forger->pumpable)
{
	vote($node, 'postgres', 'show', 5);
	my ($revision) = split / /, wait_published($node, 'postgres', 'show');
	viewer_is_ahead($revision) || last;
	$rounds++;
	$forger->pump_nb;
}
ok($forger->finish, 'the forger did its work') || diag($complaint);
my %forged = $sent =~ /^(\w+)=(.*)$/mg;
note($1) while $sent =~ /^# (.*)$/mg;
my $final = decode_json($node->safe_psql('postgres', q{SELECT to_jsonb(s) FROM poll_tally.close_poll('show') AS s}));
ok(viewer_is_ahead($final->{revision}), 'the viewer shows the final snapshot');
my %true = map { my $state = decode_json($_); ($state->{revision} => $state) } lines_of($node, 'postgres', $truth);
my ($states, $wrong, $before) = (0, 0, 0);
for my $state (shown())
{
	delete $state->{gaps};
	$states++;
	# Of those that are still kept.
	my $there = $true{ $state->{revision} };
	$wrong++ if $state->{revision} <= $before || $there && JSON::PP->new->canonical->encode($state) ne JSON::PP->new->canonical->encode($there);
	$before = $state->{revision};
}
is($wrong, 0, 'every state it showed was true');
cmp_ok($rounds, '>', 0, 'true snapshots came through meanwhile');
is($node->safe_psql('postgres', q{SELECT pid FROM pg_stat_activity WHERE usename = 'screen'}), $backend, 'it kept its connection');
is(slurp_file("$folder/complaints"), '', 'and had nothing to complain about');
cmp_ok($forged{sent}, '>=', $seconds * $rate * 0.5, 'as many messages were forged as were meant');
$viewer->kill_kill;
figure("forged messages: $forged{sent} of $forged{kinds} kinds ($forged{distinct} different) at $forged{rate} a second, $states states shown in $rounds rounds of votes, wrong $wrong");

is(join("\n", log_lines($node, qr/PANIC:|TRAP:|signal 6|signal 11/)), '', 'nothing crashed');
$node->stop;
done_testing();
