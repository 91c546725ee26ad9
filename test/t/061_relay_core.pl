# The core of the relays by itself, without queue, database and real time: when a batch is flushed, what is
# acknowledged and in which order, where each outcome and fault leads, and random rounds of all of it.
use strict;
use warnings FATAL => 'all';

use Cwd qw(abs_path);
use File::Basename qw(dirname);
use IPC::Run qw(run);
use PollTally;
use Test::More;

my $tree = abs_path(dirname(__FILE__) . '/../..');
my ($out, $err) = ('', '');
my $ended = run([ '/usr/bin/python3', '-B', "$tree/test/lib/relay_core.py", "$tree/examples/relays", deep() ? 2000 : 60, seed() ],
	'<', \undef, '>', \$out, '2>', \$err);
for my $line (split /\n/, $out)
{
	if ($line =~ /^(not )?ok \d+ - (.*)$/) { ok(!$1, $2) }
	elsif ($line =~ /^# (.*)$/) { note($1) }
}
ok($ended, 'the tests came to their end') || diag($out, $err);

done_testing();
