# 16 writers with long transactions, rollbacks, savepoints and prepared transactions; a reader that follows frontiers,
# kept by advance_source in its own transaction, and is killed again and again, sees every committed entry exactly once
# and each lane in order. The reader is the one of examples/feed.
use strict;
use warnings FATAL => 'all';

use Cwd qw(abs_path);
use File::Basename qw(dirname);
use PollTally;
use Test::More;

my $writers = 16;
my $seconds = deep() ? 60 : 8;
my $reader = abs_path(dirname(__FILE__) . '/../../examples/feed/reader.py');
my $node = new_node('feed', 'fsync = off');
$node->safe_psql('postgres', 'CREATE EXTENSION poll_tally');

my %result = client($node, 'feed', $reader, $writers, $seconds, seed());

is($result{failed}, 0, 'every writer wrote what it wanted');
cmp_ok($result{kills}, '>=', 10, 'readers were killed several times');
cmp_ok($result{many_lanes}, '>', 4, 'the poll had several lanes');
is($result{one_lanes}, 1, 'the other had one');
for my $poll ('many', 'one')
{
	figure("feed of a poll with $result{\"${poll}_lanes\"} lane(s): $result{\"${poll}_entries\"} entries read, "
		  . "$result{\"${poll}_missing\"} missed, $result{\"${poll}_twice\"} read twice, "
		  . "$result{\"${poll}_disorder\"} out of order; $result{kills} readers killed in all");
	cmp_ok($result{"${poll}_entries"}, '>', 0, "$poll: there was something to read");
	is($result{"${poll}_missing"}, 0, "$poll: every committed entry was seen");
	is($result{"${poll}_twice"}, 0, "$poll: once");
	is($result{"${poll}_strange"}, 0, "$poll: and nothing that was not committed");
	is($result{"${poll}_disorder"}, 0, "$poll: each lane in seq order, without a gap");
	poll_is_true($node, 'postgres', "feed-$poll", "$poll: the poll holds together");
}
cmp_ok($result{$_}, '>', 0, "there were transactions of kind $_") for qw(at_once late rollback savepoint prepared);

$node->stop;
done_testing();
