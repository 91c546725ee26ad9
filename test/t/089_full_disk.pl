# A file system that is really full, of tables and of WAL: four clients vote until there is no room. Without room for tables
# each is refused by 53100 and goes on in its session; without room for WAL the server restarts. What was acknowledged is
# there, what was refused is not, and all that is sent again is counted once. (Where in a write the room ends is in
# 086_resources: at each of them.)
use strict;
use warnings FATAL => 'all';

use File::Path qw(remove_tree);
use PollTally;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Survival;
use Test::More;
use Time::HiRes qw(time);

my $disk = $ENV{POLL_TALLY_SMALL_DISK} // '';
plan skip_all => 'there is no small file system: mounting one takes root, and the right to mount' if $disk eq '';
my $rounds = long(4, 1);

# fill(NODE, WHAT): the clients fill the disk in rounds.
sub fill
{
	my ($node, $what) = @_;
	my $begun = time();
	my %result = client($node, 'full_disk', seed(), $rounds, $disk);
	is($result{violations}, 0, "$what: what was acknowledged is there, what was refused is not, and all is counted once in the end");
	figure(sprintf 'disk full of %s, %d times: %d events acknowledged, %d calls refused by 53100, %d not answered, %d checks, %d violations, %.0f s',
		$what, $rounds, @result{qw(accepted refused unknown checks violations)}, time() - $begun);
	survived_ok($node, 'postgres', $what);
	return %result;
}

# --- tables ---------------------------------------------------------------------------------------------------------

mkdir "$disk/tables" || die "$disk/tables: $!";
my $node = new_node('tables', 'fsync = off', 'shared_buffers = 4MB', 'poll_tally.publish = off', 'temp_tablespaces = pg_default');
$node->safe_psql('template1', "CREATE TABLESPACE small LOCATION '$disk/tables'");
$node->safe_psql('template1', 'ALTER DATABASE postgres SET TABLESPACE small');
$node->safe_psql('postgres', 'CREATE EXTENSION poll_tally; CREATE EXTENSION amcheck');
my %tables = fill($node, 'tables');
is($tables{unknown}, 0, 'tables: each call was answered');
is($tables{refused}, 4 * $rounds, 'tables: each client was refused by 53100 once a round');
unlike(slurp_file($node->logfile), qr/all server processes terminated/, 'tables: no server process went down');
$node->stop;
remove_tree("$disk/tables");

# --- WAL ------------------------------------------------------------------------------------------------------------

$node = PostgreSQL::Test::Cluster->new('wal');
$node->init(extra => [ '--wal-segsize=1', "--waldir=$disk/wal" ]);
$node->append_conf('postgresql.conf', join("\n", 'restart_after_crash = on', 'max_wal_size = 1GB', 'min_wal_size = 2MB', 'poll_tally.publish = off', ''));
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION poll_tally; CREATE EXTENSION amcheck');
my %wal = fill($node, 'WAL');
cmp_ok($wal{unknown}, '>=', $rounds, 'WAL: a full disk of WAL is met by who waits for a commit');
like(slurp_file($node->logfile), qr/PANIC:.*No space left on device/, 'WAL: the server went down for it');
$node->stop;

done_testing();
