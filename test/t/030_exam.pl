# The worked example of an exam's last two minutes: 2,000 hand-ins of 100 kB, with fsync on and the worker running. Each
# check of the example's own judge is a test here, and the poll holds together afterwards.
use strict;
use warnings FATAL => 'all';

use Cwd qw(abs_path);
use File::Basename qw(dirname);
use IPC::Run qw(run);
use PollTally;
use Test::More;

my $exam = dirname(abs_path(__FILE__)) . '/../../examples/exam/exam.py';
my $node = new_node('exam', 'fsync = on', 'max_wal_size = 4GB');
$node->safe_psql('postgres', 'CREATE EXTENSION poll_tally');
# What a large payload costs is compressing it; a server that was built without lz4 refuses, and takes pglz.
$node->psql('postgres', 'ALTER SYSTEM SET default_toast_compression = lz4', stderr => \my $refused);
$node->reload;

my ($out, $err) = ('', '');
my $seed = seed();
my $passed = run([ '/usr/bin/python3', '-B', $exam, '--seed', $seed, $node->connstr('postgres') ],
	'<', \undef, '>', \$out, '2>', \$err);
diag($err) if $err ne '';

figure($1) while $out =~ /^figure: (.*)$/mg;
my $checks = 0;
while ($out =~ /^(ok|WRONG) +(.*)$/mg)
{
	ok($1 eq 'ok', $2);
	$checks++;
}
is($checks, 11, 'the example made all of its checks');
ok($passed, 'the example passed');
query_is($node, 'postgres', q(SELECT count(*) FROM pg_roles WHERE rolname LIKE 'exam%'), 0, 'it left no role behind');
poll_is_true($node, 'postgres', 'exam', 'the poll holds together');
query_is($node, 'postgres', q(SELECT poll_tally.drop_poll('exam'); SELECT count(*) FROM poll_tally.events), "\n0",
	'and can be dropped');

$node->stop;
done_testing();
