# The benchmark's instrument, on sizes too small to say anything of speed: every scenario runs and gives a figure for
# each of its rows, every side is recounted, polls are verified, and a database in which something is wrong is refused.
use strict;
use warnings FATAL => 'all';

use Cwd qw(abs_path);
use File::Basename qw(dirname);
use IPC::Run qw(run);
use JSON::PP;
use PollTally;
use PostgreSQL::Test::Utils;
use Test::More;

my $tree = abs_path(dirname(__FILE__) . '/../..');
my $tools = PostgreSQL::Test::Utils::tempdir;
my $slow_disk = "$tools/slow_disk";

sub output_of
{
	my (@command) = @_;
	my ($out, $err) = ('', '');
	run(\@command, '<', \undef, '>', \$out, '2>', \$err) or die "@command failed: $err$out";
	return $out;
}

# The numbers that a preloaded library and the benchmark share: nothing is slow yet.
append_to_file($slow_disk, "\0" x 24);
chomp(my $include = output_of('pg_config', '--includedir'));
chomp(my $library = output_of('pg_config', '--libdir'));
output_of('gcc', '-O2', '-Wall', '-Wextra', '-Werror', '-shared', '-fPIC', '-o', "$tools/slow_disk.so",
	"$tree/bench/slow_disk.c");
output_of('gcc', '-O2', '-Wall', '-Wextra', '-Werror', "-I$include", '-o', "$tools/batches", "$tree/bench/batches.c",
	"-L$library", '-lpq', '-pthread');

my $node;
{
	local @ENV{qw(LD_PRELOAD SLOW_DISK)} = ("$tools/slow_disk.so", $slow_disk);
	$node = new_node('bench', 'fsync = on', 'max_connections = 150', 'autovacuum = off', 'poll_tally.publish = off');
}
my @place = ('--host', $node->host, '--port', $node->port, '--disk-port', $node->port, '--tools', $tools, '--fast', $tools);

my $table = output_of('/usr/bin/python3', '-B', "$tree/bench/bench.py", '--form', 'smoke', @place, '--json', "$tools/run.json");
my $results = decode_json(slurp_file("$tools/run.json"));
my %scenarios;
for my $row (@{ $results->{rows} })
{
	my $name = "$row->{scenario}: $row->{what} ($row->{peer})";
	my @figures = @$row{ defined $row->{ratio} ? qw(ours theirs ratio lowest highest) : qw(ours lowest highest) };
	$scenarios{ $row->{scenario} }++;
	ok(!(grep { !defined || !/^[0-9.e+-]+$/ || $_ < 0 } @figures), "$name has numbers");
	like($table, qr/^$row->{scenario} +\Q$row->{what}\E/m, "$name is in the table");
}
is(join(' ', sort { $a <=> $b } keys %scenarios), join(' ', 1 .. 17), 'all scenarios ran');
is($results->{machine}{revision}, 'unknown', 'a run says what was measured, if it knows');

my $verified = $results->{verified};
my ($checks, $polls, $events) = (0, 0, 0);
for my $one (@$verified)
{
	ok($one->{polls} > 0 && $one->{checks} >= 3 * $one->{polls}, "scenario $one->{scenario}: $one->{polls} polls were verified");
	$checks += $one->{checks};
	$polls += $one->{polls};
	$events += $one->{events};
}
like($table, qr/^verify_poll: .* 0 violations$/m, 'the table says so');
figure("benchmark: $checks checks of $polls polls with $events events in " . @$verified . ' databases, 0 violations');

# What is recorded: the table in a README, and a picture.
mkdir $_ or die $! for "$tools/tree", "$tools/tree/bench";
append_to_file("$tools/tree/README.md", slurp_file("$tree/README.md"));
output_of('/usr/bin/python3', '-B', "$tree/bench/record.py", "$tools/run.json", "$tools/tree") for 1 .. 2;
my $readme = slurp_file("$tools/tree/README.md");
my $picture = slurp_file("$tools/tree/bench/results/latest.svg");
is(scalar(() = $readme =~ /^\| 9 \| batches/mg), 1, 'README.md has the rows once, recorded once or twice');
is(scalar(() = $picture =~ /<rect x=/g), scalar(grep { defined $_->{ratio} } @{ $results->{rows} }),
	'the picture has a bar for each ratio');
output_of('/usr/bin/python3', '-c', 'import sys, xml.dom.minidom as m; m.parse(sys.argv[1])',
	"$tools/tree/bench/results/latest.svg");

my %said = client_lines('/usr/bin/python3', '-B', "$tree/test/lib/bench_check.py", $node->host, $node->port, $tools, $tools);
is(delete $said{nothing}, 'not noticed', 'a database in order passes');
is(scalar(keys %said), 4, 'all wrongs were done');
unlike($said{$_}, qr/^not noticed/, "refused: $_") for sort keys %said;

sub client_lines
{
	return output_of(@_) =~ /^(\w+)=(.*)$/mg;
}

$node->stop;
done_testing();
