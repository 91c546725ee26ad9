# Runs a script of test/lib/live, in node, against a server: its verdicts become tests here, and what it asks for is done.
package Live;

use strict;
use warnings FATAL => 'all';

use Cwd qw(abs_path);
use Exporter 'import';
use File::Basename qw(dirname);
use IPC::Open2;
use PollTally;
use Test::More;

our @EXPORT = qw(live_node run_live);

my $folder = dirname(abs_path(__FILE__));
my $live = "$folder/../../examples/live";

# A server with what the page needs.
sub live_node
{
	my ($name) = @_;
	my $node = new_node($name, 'fsync = off');
	$node->safe_psql('postgres', 'CREATE EXTENSION poll_tally; CREATE ROLE stranger LOGIN');
	$node->command_ok([ 'psql', '-qX', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('postgres'), '-f', "$live/setup.sql" ],
		'setup.sql runs') for 1, 2;
	return $node;
}

my %do = (
	'stop database' => sub { $_[0]->stop('immediate') },
	'start database' => sub { $_[0]->start });

# run_live(NODE, SCRIPT): fails unless the script came to its end.
sub run_live
{
	my ($node, $script) = @_;
	local %ENV = (%ENV, PGHOST => $node->host, PGPORT => $node->port, PGDATABASE => 'postgres', TESTLOGDIR =>
		  $PostgreSQL::Test::Utils::log_path);
	my $pid = open2(my $from, my $to, 'node', "$folder/live/$script.mjs");
	$to->autoflush(1);
	my ($checks, $promised) = (0, 'none');
	while (my $line = <$from>)
	{
		chomp $line;
		if ($line =~ /^(not )?ok - (.*)/) { ok(!$1, $2); $checks++ }
		elsif ($line =~ /^# (.*)/) { diag($1) }
		elsif ($line =~ /^figure: (.*)/) { figure($1) }
		elsif ($line =~ /^checks: (\d+)/) { $promised = $1 }
		elsif ($line =~ /^do: (.*)/) { my $done = eval { $do{$1}->($node); 1 }; print $to $done ? "done\n" : "failed: $@\n" }
		else { diag("$script: $line") }
	}
	waitpid($pid, 0);
	is($promised, $checks, "$script came to its end");
	return;
}

1;
