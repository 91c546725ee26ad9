# Random histories: many clients, with faults or without; a dump of the database; the checker's verdict on both.
package History;

use strict;
use warnings FATAL => 'all';

use Cwd qw(abs_path);
use Exporter 'import';
use File::Basename qw(dirname);
use IPC::Run qw(run start);
use PollTally;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

our @EXPORT = qw(play dump_polls check_history plan_digests logged_digests history_kinds);

my $folder = dirname(abs_path(__FILE__));
my @python = ('/usr/bin/python3', '-B');
my @kinds = qw(missing phantom half double verdict hole disorder recount);

sub history_kinds
{
	return @kinds;
}

# play(NODE, FOLDER, SEED, CLIENTS, STEPS, PROCESSES, FAULT...): plays a history and leaves the logs in the folder.
# Returns what clients and faults have counted, and the seconds.
sub play
{
	my ($node, $logs, $seed, $clients, $steps, $processes, @faults) = @_;
	my @command = (@python, "$folder/history_client.py", $node->connstr('postgres'), $seed, $clients, $steps);
	run([ @command, 'polls' ]) || die 'the polls could not be made';
	my ($begun, $input, %result) = (time(), '');
	my (@running, @outputs, @errors);
	for my $number (0 .. $processes - 1)
	{
		my $count = $clients / $processes;
		push @running, start([ @command, $number * $count, $count, $logs ], '<', \undef, '>', \$outputs[$number], '2>', \$errors[$number]);
	}
	my $faults = @faults
	  ? start([ @python, "$folder/faults.py", $node->connstr('postgres'), $node->data_dir, $node->logfile, $seed, @faults ],
		'<', \$input, '>', \$outputs[$processes], '2>', \$errors[$processes])
	  : undef;
	my $failed = grep { !$_->finish } @running;
	$failed += !$faults->finish if $faults;
	# A server that crashes says so to those who are just connecting.
	die "$failed programs of the history failed: @errors" if $failed;
	for my $output (@outputs)
	{
		$result{$1} += $2 while $output =~ /^(\w+)=(\d+)$/mg;
	}
	$result{seconds} = time() - $begun;
	return %result;
}

# Plain SELECTs, each into a file of its own.
my %dump = (
	polls => q{SELECT p.poll, p.counting, p.max_attempts, p.max_count, p.open_choices, p.closed_at IS NOT NULL, p.accepted_position
    FROM poll_tally.polls AS p},
	choices => q{SELECT c.poll, c.choice FROM poll_tally.choices AS c},
	results => q{SELECT r.poll, r.choice, r.count FROM poll_tally.results AS r},
	snapshots => q{SELECT s.poll, s.revision, s.included_position, s.frontier, s.counts, s.total, s.final FROM poll_tally.snapshots AS s},
	events => q{SELECT e.poll, e.event_id, e.kind, e.principal, e.attempt, e.votes, e.effect, e.payload,
    split_part(e.position::text, '/', 1), split_part(e.position::text, '/', 2), e.source_offset,
    to_char(e.occurred_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"+00"'),
    (extract(epoch FROM e.accepted_at) * 1000000)::bigint, e.retracts FROM poll_tally.events AS e});

sub dump_polls
{
	my ($node, $into) = @_;
	for my $name (keys %dump)
	{
		my $sql = $dump{$name} =~ s/\n\s*/ /gr;
		$node->safe_psql('postgres', "\\copy ($sql) TO '$into/$name'");
	}
	return;
}

# check_history(LOGS, DUMP, TELL): what the checker counted; each of its findings is given to TELL.
sub check_history
{
	my ($logs, $from, $tell) = @_;
	my ($out, $err) = ('', '');
	my $ok = run([ $^X, "$folder/history_check.pl", $logs, $from ], '<', \undef, '>', \$out, '2>', \$err);
	$tell->($1) while $out =~ /^# (.*)$/mg;
	die "the checker failed: $err" if !$ok || $err ne '';
	return $out =~ /^(\w+)=(\d+)$/mg;
}

# Of one client: what it was to do, and what it says it has done.
sub plan_digests
{
	my ($seed, $clients, $steps, $client) = @_;
	my $out = '';
	run([ @python, "$folder/history_plan.py", $seed, $clients, $steps, $client ], '>', \$out) || die 'no plan';
	return split /\n/, $out;
}

sub logged_digests
{
	my ($logs, $client) = @_;
	my %digest = map { my @fields = split /\t/; $fields[0] eq 'T' && $fields[2] >= 0 ? ($fields[2] => $fields[9]) : () }
	  split /\n/, slurp_file("$logs/client-$client");
	return map { $digest{$_} } sort { $a <=> $b } keys %digest;
}

1;
