# What the TAP tests share: a server with the extension, Python clients, SQLSTATEs, and the recount of a poll.
package PollTally;

use strict;
use warnings FATAL => 'all';

use Cwd qw(abs_path);
use Exporter 'import';
use File::Basename qw(basename dirname);
use File::Path qw(make_path);
use IPC::Run qw(run);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time usleep);

our @EXPORT = qw(
  deep long figure seed new_node client sqlstate_is lines_of polls_of true_ok wait_until
  query_is poll_is_true ledger_digest extension_with
);

my $folder = dirname(abs_path(__FILE__));

# The seed of all that is random; POLL_TALLY_SEED repeats a run.
my $seed = $ENV{POLL_TALLY_SEED} || (time() * 1000) % 2**31;

sub deep
{
	return $ENV{POLL_TALLY_DEEP} ? 1 : 0;
}

# long(SIZE, SHORT): the size in the long form, or a share of it for POLL_TALLY_DEEP=0.25; the other one in the short form.
sub long
{
	my ($size, $short) = @_;
	return $short if !deep();
	return $ENV{POLL_TALLY_DEEP} < 1 ? int($size * $ENV{POLL_TALLY_DEEP} + 1) : $size;
}

sub figure
{
	my ($text) = @_;
	note("figure: $text");
	return;
}

sub seed
{
	note("seed: $seed (repeat with POLL_TALLY_SEED=$seed)");
	return $seed;
}

# new_node(NAME, LINE...): a running server with these settings. Of Cluster's own settings, max_connections and
# restart_after_crash do not suit us.
sub new_node
{
	my ($name, @lines) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name);
	$node->init(allows_streaming => 1);
	$node->append_conf('postgresql.conf', join("\n", 'max_connections = 100', 'restart_after_crash = on',
			'max_prepared_transactions = 20', @lines, ''));
	$node->start;
	return $node;
}

# Where the server looks for extensions, as the configuration file of the tests says: a setting and its path.
sub destination
{
	my $config = slurp_file($ENV{TEMP_CONFIG});
	return ($1, $2) if $config =~ /^(extension_destdir) = '(.*)'/m;
	return ($1, $2) if $config =~ m{^(extension_control_path) = '([^':]*):}m;
	return;
}

# extension_with(NAME => TEXT...): a copy of what is installed, with these scripts beside the others; returns the setting
# that makes it visible, or undef where the server has none.
sub extension_with
{
	my (%scripts) = @_;
	my ($setting, $path) = destination();
	return if !defined $setting;
	$ENV{PG_CONFIG} //= 'pg_config';
	my $share = $setting eq 'extension_destdir' ? `$ENV{PG_CONFIG} --sharedir` =~ s/\n//r : '';
	my $copy = PostgreSQL::Test::Utils::tempdir;
	make_path("$copy$share/extension");
	symlink abs_path($_), "$copy$share/extension/" . basename($_) for glob "$path$share/extension/*";
	append_to_file("$copy$share/extension/$_", $scripts{$_}) for sort keys %scripts;
	if ($share ne '')
	{
		my $library = `$ENV{PG_CONFIG} --pkglibdir` =~ s/\n//r;
		make_path($copy . dirname($library));
		symlink "$path$library", "$copy$library";
	}
	return $setting eq 'extension_destdir' ? "$setting = '$copy'" : "$setting = '$copy:\$system'";
}

# client(NODE, SCRIPT, ARGUMENT...): runs a Python client of test/lib on database postgres. Its lines NAME=VALUE come
# back as a hash, its lines "# ..." are notes. Dies when it fails.
sub client
{
	my ($node, $script, @arguments) = @_;
	my ($out, $err) = ('', '');
	my @command = ('/usr/bin/python3', '-B', "$folder/$script.py", $node->connstr('postgres'), @arguments);
	my $ok = run(\@command, '<', \undef, '>', \$out, '2>', \$err);
	note($1) while $out =~ /^# (.*)$/mg;
	diag($err) if $err ne '';
	die "$script.py failed: $?\n$out" if !$ok;
	return $out =~ /^(\w+)=(.*)$/mg;
}

# sqlstate_is(NODE, DATABASE, SQL, SQLSTATE, NAME): the last statement of SQL fails with it ('' for not at all).
sub sqlstate_is
{
	my ($node, $database, $sql, $expected, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($out, $err) = ('', '');
	$node->psql($database, $sql, stdout => \$out, stderr => \$err, on_error_stop => 1,
		extra_params => [ '-v', 'VERBOSITY=sqlstate' ]);
	my ($state) = $err =~ /(?:ERROR|FATAL):\s+(\w{5})/;
	return is($state // '', $expected, $name) || diag("output: $out\nerror: $err");
}

sub lines_of
{
	my ($node, $database, $sql) = @_;
	return split /\n/, $node->safe_psql($database, $sql);
}

sub query_is
{
	my ($node, $database, $sql, $expected, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is($node->safe_psql($database, $sql), $expected, $name);
}

sub true_ok
{
	my ($node, $database, $sql, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return query_is($node, $database, $sql, 't', $name);
}

# wait_until(CONDITION, SECONDS): true once CONDITION is, false when it is not by then. Most conditions start a program:
# asked more and more seldom, so that the waiting does not slow down what is waited for.
sub wait_until
{
	my ($condition, $seconds) = @_;
	my $nap = 20_000;
	my $deadline = time() + ($seconds // $PostgreSQL::Test::Utils::timeout_default);
	while (!$condition->())
	{
		return 0 if time() > $deadline;
		usleep($nap);
		$nap *= 1.5 if $nap < 80_000;
	}
	return 1;
}

sub polls_of
{
	my ($node, $database) = @_;
	return lines_of($node, $database, 'SELECT poll FROM poll_tally.polls ORDER BY poll');
}

# poll_is_true(NODE, DATABASE, POLL, NAME): the poll holds together. Two judges: verify_poll, and plain SQL that counts
# the ledger choice by choice and knows nothing of tallies or lanes but their text.
sub poll_is_true
{
	my ($node, $database, $poll, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $verdict = $node->safe_psql($database, <<SQL);
SELECT 'verify_poll: ' || v.check_name || ' expected ' || v.expected || ' actual ' || v.actual
FROM poll_tally.verify_poll('$poll') AS v WHERE v.ok IS NOT TRUE;

SELECT 'verify_poll made too few checks: ' || count(*)
FROM poll_tally.verify_poll('$poll') AS v
WHERE v.check_name IN ('tallies', 'lanes', 'principals') HAVING count(*) <> 3;

WITH effect AS (
    SELECT j.key AS choice, sum(j.value::numeric) AS count
    FROM poll_tally.events AS e CROSS JOIN LATERAL json_each_text(e.effect::text::json) AS j (key, value)
    WHERE e.poll = '$poll' GROUP BY j.key)
SELECT 'recount of ' || coalesce(r.choice, e.choice) || ': ledger ' || coalesce(e.count, 0)::text || ', results '
       || coalesce(r.count::text, 'none')
FROM effect AS e
FULL JOIN (SELECT * FROM poll_tally.results WHERE poll = '$poll') AS r ON r.choice = e.choice
WHERE coalesce(e.count, 0) IS DISTINCT FROM r.count;

WITH lane AS (
    SELECT split_part(e.position::text, '/', 1)::int AS lane, split_part(e.position::text, '/', 2)::bigint AS seq
    FROM poll_tally.events AS e WHERE e.poll = '$poll')
SELECT 'lane ' || lane || ' has ' || count(*) || ' entries, ' || count(DISTINCT seq) || ' seqs, ' || min(seq) || ' to '
       || max(seq)
FROM lane GROUP BY lane HAVING count(*) <> max(seq) OR count(DISTINCT seq) <> count(*) OR min(seq) <> 1;

SELECT 'revisions have gaps: ' || count(*) || ' from ' || min(s.revision) || ' to ' || max(s.revision)
FROM poll_tally.snapshots AS s WHERE s.poll = '$poll'
HAVING count(*) <> max(s.revision) - min(s.revision) + 1;

WITH snapshot AS (SELECT s.* FROM poll_tally.snapshots AS s WHERE s.poll = '$poll' AND s.counts IS NOT NULL),
included AS (
    SELECT s.revision, j.key AS choice, sum(j.value::numeric) AS count
    FROM snapshot AS s
    JOIN poll_tally.events AS e ON e.poll = s.poll
     AND split_part(e.position::text, '/', 2)::bigint <= s.frontier[split_part(e.position::text, '/', 1)::int + 1]
    CROSS JOIN LATERAL json_each_text(e.effect::text::json) AS j (key, value)
    GROUP BY s.revision, j.key),
published AS (
    SELECT s.revision, j.key AS choice, j.value::numeric AS count
    FROM snapshot AS s CROSS JOIN LATERAL json_each_text(s.counts::text::json) AS j (key, value))
SELECT 'revision ' || coalesce(i.revision, p.revision) || ', choice ' || coalesce(i.choice, p.choice) || ': ledger '
       || coalesce(i.count, 0) || ', snapshot ' || coalesce(p.count, 0)
FROM included AS i
FULL JOIN published AS p ON p.revision = i.revision AND p.choice = i.choice
WHERE coalesce(i.count, 0) <> coalesce(p.count, 0);
SQL
	return is($verdict, '', $name);
}

# One value for all that the views show of every poll, epoch apart: equal digests, equal content. $before comes first.
sub ledger_digest
{
	my ($node, $database, $before) = @_;
	return $node->safe_psql($database, ($before // '') . <<'SQL');
SET timezone = 'UTC';
SELECT 'polls ' || count(*) || ' ' || md5(string_agg(p::text, E'\n' ORDER BY p.poll COLLATE "C"))
FROM poll_tally.polls AS p;
SELECT 'choices ' || count(*) || ' ' || md5(string_agg(c::text, E'\n' ORDER BY c.poll COLLATE "C", c.ord, c.choice COLLATE "C"))
FROM poll_tally.choices AS c;
SELECT 'results ' || count(*) || ' '
       || md5(string_agg(r::text, E'\n' ORDER BY r.poll COLLATE "C", r.choice COLLATE "C"))
FROM poll_tally.results AS r;
SELECT 'published ' || count(*) || ' '
       || md5(string_agg(r::text, E'\n' ORDER BY r.poll COLLATE "C", r.choice COLLATE "C"))
FROM poll_tally.published AS r;
SELECT 'events ' || count(*) || ' ' || md5(string_agg(e::text, E'\n' ORDER BY e.event_id COLLATE "C"))
FROM poll_tally.events AS e;
SELECT 'snapshots ' || count(*) || ' '
       || md5(string_agg((to_jsonb(s) - 'epoch')::text, E'\n' ORDER BY s.poll COLLATE "C", s.revision))
FROM poll_tally.snapshots AS s;
SQL
}

1;
