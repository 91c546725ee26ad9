# The counter of examples/groceries, on its own baskets and, where it is at hand, on the real month of a grocery store:
# exact totals after redelivery, a killed client and returns, and a counter a day that is closed and dropped.
use strict;
use warnings FATAL => 'all';

use Cwd qw(abs_path);
use File::Basename qw(dirname);
use IPC::Run qw(run);
use PollTally;
use Test::More;

my $tree = abs_path(dirname(__FILE__) . '/../..');
# The tree may be a copy; scripts/test says where it comes from.
my ($real) = grep { -r $_ } map { "$_/groceries.csv" } $ENV{POLL_TALLY_DATA} || (),
  map { "$_/../shared/data" } $ENV{POLL_TALLY_ROOT} || (), $tree;
my $node = new_node('groceries', 'fsync = off');

# Runs the example; returns its lines "name: value".
sub groceries
{
	my ($database, @file) = @_;
	my ($out, $err) = ('', '');
	$node->safe_psql('postgres', "CREATE DATABASE $database");
	$node->safe_psql($database, 'CREATE EXTENSION poll_tally');
	my @command = ('/usr/bin/python3', '-B', "$tree/examples/groceries/groceries.py", $node->connstr($database), @file);
	ok(run(\@command, '<', \undef, '>', \$out, '2>', \$err), "$database: the example succeeds") || diag($out, $err);
	return $out =~ /^([a-z ]+): +(.*)$/mg;
}

# What holds for any file: the figures fit together, and the database holds together.
sub check
{
	my ($database, $baskets, $items, $entries, %said) = @_;
	my ($resolved, $unknown, $there) = ($said{'unknown results resolved by retry'} // '') =~ /^(\d+) of (\d+) \((\d+) were there\)$/;
	my $returns = int($baskets / 20);
	figure("groceries ($database): $said{received} events received, $said{'duplicates caught'} duplicates caught, "
		  . "$resolved unknown results resolved by retry ($there were there); recount: $said{recount}");
	is($said{baskets}, $baskets, "$database: every basket was read");
	cmp_ok($unknown, '>', 0, "$database: a client was killed at its batch");
	is($resolved, $unknown, "$database: and a retry told what became of it");
	cmp_ok($said{'duplicates caught'}, '>', 0, "$database: redelivered batches were caught");
	is($said{received} - $said{'duplicates caught'} + $there, $baskets, "$database: each basket was accepted once");
	is($said{returns}, "$returns, sent twice, $returns duplicates caught", "$database: returns were sent twice and counted once");
	is($said{days}, '30 counted, 23 closed and dropped, 7 kept', "$database: a counter a day");
	is($said{recount}, "$items items, $entries entries; differences: 0 sold, 0 after returns, 0 by day", "$database: the recount");
	is($node->safe_psql($database, q{SELECT count(*) FROM poll_tally.events WHERE poll = 'groceries'}), $baskets + $returns,
		"$database: one entry a basket and a return");
	for my $poll (polls_of($node, $database))
	{
		poll_is_true($node, $database, $poll, "$database: $poll holds together");
	}
	return;
}

my %said = groceries('synthetic');
is($said{'before returns'}, 'rye-bread 529, oat-milk 504, apples 489, eggs 451, potatoes 418', 'synthetic: the five best before returns');
is($said{'after returns'}, 'rye-bread 503, oat-milk 478, apples 461, eggs 426, potatoes 395', 'synthetic: the five best after returns');
check('synthetic', 2000, 25, 6809, %said);

SKIP:
{
	skip 'no shared/data/groceries.csv here', 1 if !$real;
	%said = groceries('real', $real);
	is($said{'before returns'}, 'whole-milk 2513, other-vegetables 1903, rolls/buns 1809, soda 1715, yogurt 1372',
		'real: the five best before returns are those of the data set');
	is($said{'after returns'}, 'whole-milk 2396, other-vegetables 1815, rolls/buns 1725, soda 1632, yogurt 1292',
		'real: the five best after returns');
	check('real', 9835, 169, 43367, %said);
}

$node->stop;
done_testing();
