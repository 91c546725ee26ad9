# COPY into inbox and INSERT … SELECT into it: a statement of twice as many rows needs no more memory, its progress can be
# watched (pg_stat_progress_copy; the statistics), and one that is cancelled in its middle leaves nothing behind.
use strict;
use warnings FATAL => 'all';

use PollTally;
use Test::More;

my $rows = deep() ? 250_000 : 20_000;
my $node = new_node('bulk', 'fsync = off', 'max_wal_size = 4GB', 'autovacuum = off', 'log_min_duration_statement = -1');
$node->append_conf('postgresql.conf', 'log_statement = none');
$node->reload;
$node->safe_psql('postgres', 'CREATE EXTENSION poll_tally');

my %result = client($node, 'bulk', $rows);

for my $form ('copy', 'insert')
{
	my ($one, $two) = ($result{"${form}_one_growth"}, $result{"${form}_two_growth"});
	figure(sprintf('%s into inbox: %d rows in %s s, backend grew by %.1f MB; %d rows in %s s, by %.1f MB; cancelled at %d rows',
			uc $form, $rows, $result{"${form}_one_seconds"}, $one / 1024, 2 * $rows, $result{"${form}_two_seconds"},
			$two / 1024, $result{"${form}_cancelled_at"}));
	is($result{"${form}_one_rows"}, $rows, "$form: every row was accepted");
	is($result{"${form}_two_rows"}, 2 * $rows, "$form: of twice as many, too");
	# Less than 16 bytes a row more.
	cmp_ok($two - $one, '<', 1024 + $rows / 64, "$form: twice as many rows need no more memory");
	cmp_ok($two, '<', 32 * 1024, "$form: which is bounded");
	cmp_ok($result{"${form}_two_looks"}, '>', 5, "$form: progress was seen while it ran");
	is($result{"${form}_two_backwards"}, 0, "$form: it moved forwards");
	is($result{"${form}_cancelled"}, 1, "$form: it was cancelled in its middle");
	is($result{"${form}_left"}, 0, "$form: and nothing of it is left");
	is($result{"${form}_again"}, $rows, "$form: sent again, every row is accepted");
}
poll_is_true($node, 'postgres', 'bulk', 'the poll holds together');

$node->stop;
done_testing();
