# What has to hold after a crash, whatever came before it.
package Survival;

use strict;
use warnings FATAL => 'all';

use Cwd qw(abs_path);
use Exporter 'import';
use File::Basename qw(dirname);
use IPC::Run qw(run);
use PollTally;
use PostgreSQL::Test::Utils;
use Test::More;

our @EXPORT = qw(survived_ok amcheck_ok strace_lacks faulty_build destination_settings);

# Heap and indexes of our tables, each heap tuple found in each index. The database has the extension amcheck.
sub amcheck_ok
{
	my ($node, $database, $when) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($out, $err) = ('', '');
	my $ok = run([ 'pg_amcheck', '-h', $node->host, '-p', $node->port, '-d', $database, '--heapallindexed', '--rootdescend', '--schema=poll_tally' ],
		'<', \undef, '>', \$out, '2>', \$err);
	return ok($ok && $out eq '', "$when: pg_amcheck has nothing to say") || diag($out, $err);
}

# Every poll holds together, and so do heap and indexes.
sub survived_ok
{
	my ($node, $database, $when) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my @polls = polls_of($node, $database);
	cmp_ok(scalar(@polls), '>', 0, "$when: there are polls");
	poll_is_true($node, $database, $_, "$when: $_ holds together") for @polls;
	return amcheck_ok($node, $database, $when);
}

# Why strace cannot be used on a server here; '' when it can. It has to be another process' child that is traced.
sub strace_lacks
{
	my ($out, $err) = ('', '');
	return 'strace is not installed' if !eval { run([ 'strace', '-V' ], '>', \$out, '2>', \$err) };
	my $ok = run([ 'sh', '-c', 'sleep 60 & p=$!; (setsid timeout 10 strace -p $p -e trace=none -o /dev/null 2>&1 & s=$!; '
			  . 'n=0; while [ $n -lt 500 ] && ! grep -q "^TracerPid:[^0]*[1-9]" /proc/$p/status; do n=$((n+1)); sleep 0.01; done; '
			  . 'kill $s; [ $n -lt 500 ]); r=$?; kill $p; exit $r' ], '<', \undef, '>', \$out, '2>', \$err);
	return $ok ? '' : "strace may not trace another process of this user: $out";
}

my $tree = abs_path(dirname(abs_path(__FILE__)) . '/../..');

# Builds the extension with fault points and installs it below a new folder, which is returned; or why it cannot be used.
# A server finds it there as it finds the one that the other tests use.
sub faulty_build
{
	my $setting = slurp_file($ENV{TEMP_CONFIG}) =~ /^(extension_destdir|extension_control_path) =/m ? $1 : undef;
	return 'this server looks for extensions in its own folder only' if !defined $setting;
	my $folder = PostgreSQL::Test::Utils::tempdir();
	my $log = '';
	my @make = ('make', '-s', '-C', $folder, 'with_llvm=no', 'PG_CONFIG=' . ($ENV{PG_CONFIG} // 'pg_config'));
	run([ 'sh', '-c', 'cd "$0" && tar -cf - Makefile *.control sql/*.sql src/*.[ch] | tar -C "$1" -xf -', $tree, $folder ])
	  || die 'the tree cannot be copied';
	run([ @make, '-j2', 'COPT=-DPOLL_TALLY_FAULTS' ], '>&', \$log) && run([ @make, 'install', "DESTDIR=$folder/dd" ], '>&', \$log)
	  || die "the build with fault points failed: $log";
	return $folder;
}

# The lines of a server's configuration that make it use such a build.
sub destination_settings
{
	my ($folder) = @_;
	my $config = $ENV{PG_CONFIG} // 'pg_config';
	my ($library, $share) = map { my $path = `$config --$_`; chomp $path; $path } qw(pkglibdir sharedir);
	my $control = slurp_file($ENV{TEMP_CONFIG}) =~ /^extension_destdir =/m
	  ? "extension_destdir = '$folder/dd'" : "extension_control_path = '$folder/dd$share:\$system'";
	return ($control, "dynamic_library_path = '$folder/dd$library:\$libdir'");
}

1;
