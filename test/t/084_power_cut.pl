# A power cut at many moments: a base backup is recovered to the position of one commit in the WAL after another, which is
# what a disk holds that has lost all that came later. At each the ledger holds exactly what was committed up to there, with
# the receipts that were given; the polls hold together; the epoch is another; a retry of everything counts what was lost.
use strict;
use warnings FATAL => 'all';

use IPC::Run qw(run);
use PollTally;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Survival;
use Test::More;
use Time::HiRes qw(time);

my ($points, $transactions) = (long(200, 5), deep() ? 800 : 200);
my $seed = seed();
srand($seed);
my $node = PostgreSQL::Test::Cluster->new('power');
# Small segments: every recovery makes new ones.
$node->init(has_archiving => 1, allows_streaming => 1, extra => ['--wal-segsize=1']);
$node->append_conf('postgresql.conf', "max_connections = 100\nlog_min_messages = log\n");
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION poll_tally; CREATE EXTENSION amcheck');
$node->backup('base');

my $book = PostgreSQL::Test::Utils::tempdir() . '/book';
my $from = $node->safe_psql('postgres', 'SELECT pg_current_wal_insert_lsn()');
my %load = client($node, 'power_cut', $seed, $transactions, $book);
my $epoch = $node->safe_psql('postgres', q{SELECT epoch FROM poll_tally.snapshot('every')});
my @all = lines_of($node, 'postgres', q{SELECT event_id || ' ' || position FROM poll_tally.events ORDER BY event_id COLLATE "C"});
my $segment = $node->safe_psql('postgres', 'SELECT pg_walfile_name(pg_switch_wal())');
ok($node->poll_query_until('postgres', "SELECT last_archived_wal >= '$segment' FROM pg_stat_archiver"), 'all WAL is archived');
$node->stop;

# Commits in the order of the WAL: position and transaction.
my ($out, $err) = ('', '');
# It ends with an error, where the WAL ends.
run([ 'pg_waldump', '-p', $node->archive_dir, '--rmgr=Transaction', '-s', $from ], '>', \$out, '2>', \$err);
my @commits = map { /tx: +(\d+), lsn: ([0-9A-F]+\/[0-9A-F]+),.*desc: COMMIT / ? [ $2, $1 ] : () } split /\n/, $out;
my %entered;
for my $line (split /\n/, slurp_file($book))
{
	my ($xid, @entry) = split / /, $line;
	push @{ $entered{$xid} }, "@entry" if @entry == 2;
}
my %committed = map { $_->[1] => 1 } @commits;
is(scalar(grep { !$committed{$_} } keys %entered), 0, 'each acknowledged transaction has its commit in the WAL');
cmp_ok(scalar(@commits), '>', $points, 'there are enough commits to choose from');

# At the first, at the last, and at others in between; the order is that of the WAL.
my %chosen = (0 => 1, $#commits => 1);
$chosen{ int(rand(@commits)) } = 1 while keys %chosen < $points;

sub recovered
{
	my ($number, $position) = @_;
	my $cut = PostgreSQL::Test::Cluster->new("cut$number");
	$cut->init_from_backup($node, 'base', has_restoring => 1, standby => 0);
	$cut->append_conf('postgresql.conf', "recovery_target_lsn = '$position'\nrecovery_target_action = 'promote'\n"
		  . "fsync = off\npoll_tally.publish = off\narchive_mode = off\n");
	$cut->start;
	$cut->poll_query_until('postgres', 'SELECT NOT pg_is_in_recovery()') || die 'the recovery does not end';
	return $cut;
}

# Everything again, as one batch a poll: what was there is a duplicate, what was lost is counted.
my $again = <<'SQL';
SELECT count(*) FILTER (WHERE a.outcome = 'duplicate'), count(*) FILTER (WHERE a.outcome = 'accepted'), count(*)
FROM (SELECT p.poll, array_agg('again-' || g) AS ids FROM poll_tally.polls AS p, generate_series(1, 3) AS g WHERE p.poll = 'every' GROUP BY 1) AS n,
    poll_tally.accept_events(n.poll, n.ids || ARRAY(SELECT e.event_id FROM poll_tally.events AS e WHERE e.poll = n.poll),
        array_fill('red'::text, ARRAY[3]) || ARRAY(SELECT c.choice FROM poll_tally.events AS e, poll_tally.each(e.votes) AS c WHERE e.poll = n.poll),
        principals => array_fill(NULL::text, ARRAY[3]) || ARRAY(SELECT e.principal::text FROM poll_tally.events AS e WHERE e.poll = n.poll)) AS a
SQL

my ($begun, $wrong, $checked, $number, $recovery, $newest) = (time(), 0, 0, 0, 0, 0);
for my $index (sort { $a <=> $b } keys %chosen)
{
	my ($position) = @{ $commits[$index] };
	my $at = "at $position (commit " . ($index + 1) . ' of ' . @commits . ')';
	my $started = time();
	my $cut = recovered($number++, $position);
	$recovery += time() - $started;
	my @expected = sort map { @{ $entered{ $_->[1] } // [] } } @commits[ 0 .. $index ];
	my @have = lines_of($cut, 'postgres', q{SELECT event_id || ' ' || position FROM poll_tally.events ORDER BY event_id COLLATE "C"});
	$checked += @expected;
	$wrong++ if !is(join("\n", sort @have), join("\n", @expected), "$at: exactly what was committed is there: " . @expected . ' events');
	# The first commits are those that make the polls.
	my @polls = polls_of($cut, 'postgres');
	poll_is_true($cut, 'postgres', $_, "$at: $_ holds together") || $wrong++ for @polls;
	if (grep { $_ eq 'every' } @polls)
	{
		isnt($cut->safe_psql('postgres', q{SELECT epoch FROM poll_tally.snapshot('every')}), $epoch, "$at: the epoch is another") || $wrong++;
		my $revision = $cut->safe_psql('postgres', q{SELECT revision FROM poll_tally.snapshot('every')});
		cmp_ok($revision, '>=', $newest, "$at: no revision is lost that was there before") || $wrong++;
		$newest = $revision;
		my $count = $cut->safe_psql('postgres', q{SELECT count(*) FROM poll_tally.events WHERE poll = 'every'});
		query_is($cut, 'postgres', $again, "$count|3|" . ($count + 3), "$at: a retry of what is there is a duplicate, new events count") || $wrong++;
	}
	amcheck_ok($cut, 'postgres', $at) || $wrong++ if $number % 10 == 1;
	$cut->stop('immediate');
	$cut->clean_node;
}
figure(sprintf('power cut: %d positions out of %d commits, %d entries compared, %.1f s a recovery, %.0f s in all: %d violations',
		$number, scalar(@commits), $checked, $recovery / $number, time() - $begun, $wrong));
is($number, $points, 'as many positions as there should be');
is(join("\n", sort @all), join("\n", sort map { @$_ } values %entered), 'and in the end the ledger had all that was acknowledged');
done_testing();
