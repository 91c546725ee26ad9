# Polls are changed, closed, dropped and made anew, and their tables rewritten, while many vote in them: every look at a
# poll finds that it holds together, a closed one beyond its final snapshot counts nothing, and of a dropped one nothing is
# left.
use strict;
use warnings FATAL => 'all';

use PollTally;
use Test::More;

my $clients = 6;
my $seconds = deep() ? 60 : 8;
my $node = new_node('changes', 'fsync = off', 'log_min_error_statement = panic', q{deadlock_timeout = '20ms'});
$node->safe_psql('postgres', 'CREATE EXTENSION poll_tally');

my %result = client($node, 'changes', $clients, $seconds, seed());
$result{$_} //= 0 for qw(batches replace tables_moved deadline repair retraction_accepted accepted closed unknown_poll limit_reached);

figure("polls under change: $clients clients, $seconds s, $result{batches} batches, $result{accepted} events accepted; "
	  . "$result{replace} times a poll closed, verified, dropped and made anew, $result{deadline} deadlines put off, "
	  . "$result{repair} repairs, $result{tables_moved} tables and indexes rewritten; $result{checks} checks, wrong $result{wrong}");
is($result{wrong}, 0, 'every check held, and nobody was told what nobody should be told');
is($result{left_over}, 0, 'nothing is left of dropped polls');
cmp_ok($result{$_}, '>', 0, "there was: $_")
  for qw(batches replace tables_moved deadline repair retraction_accepted accepted closed unknown_poll limit_reached);
is($node->safe_psql('postgres', 'SELECT count(*) FROM poll_tally.workers WHERE last_sqlstate IS NOT NULL'), 0, 'the worker met no error');

$node->stop;
done_testing();
