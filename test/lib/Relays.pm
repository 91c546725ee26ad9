# What the tests of the relays share: runs a Python client of test/lib and turns its lines "ok - NAME" into tests.
package Relays;

use strict;
use warnings FATAL => 'all';

use Cwd qw(abs_path);
use Exporter 'import';
use File::Basename qw(dirname);
use IPC::Run qw(run);
use PollTally;
use Test::More;

our @EXPORT = qw(relay_test);

my $folder = dirname(abs_path(__FILE__));

# relay_test(SCRIPT, ARGUMENT...): on a new server; the client restarts it as it likes. Afterwards every poll of every
# database that it made holds together.
sub relay_test
{
	my ($script, @arguments) = @_;
	my $node = new_node($script, 'fsync = off', 'autovacuum = off');
	my ($out, $err) = ('', '');
	my @command = ('/usr/bin/python3', '-B', "$folder/$script.py", $node->connstr('postgres'), $node->data_dir,
		abs_path("$folder/../../examples/relays"), seed(), deep(), @arguments);
	my $ended = run(\@command, '<', \undef, '>', \$out, '2>', \$err);
	for my $line (split /\n/, $out)
	{
		if ($line =~ /^(not )?ok - (.*)$/) { ok(!$1, $2) }
		elsif ($line =~ /^# (violation.*)$/) { diag($1) }
		elsif ($line =~ /^# (.*)$/) { note($1) }
	}
	diag($err) if $err ne '';
	ok($ended, "$script.py came to its end");
	for my $database (lines_of($node, 'postgres', q{SELECT datname FROM pg_database WHERE datname LIKE 'bench_%'}))
	{
		for my $poll (polls_of($node, $database))
		{
			poll_is_true($node, $database, $poll, "$database: $poll holds together");
		}
	}
	$node->stop;
	return;
}

1;
