# The checker of random histories can fail: a true history, played without faults, has no violation; each of two dozen
# copies with one lie in a log or in the dump has one, of the kind that the lie is of.
use strict;
use warnings FATAL => 'all';

use History;
use PollTally;
use PostgreSQL::Test::Utils;
use Test::More;

my ($clients, $steps) = (8, 50);
# One plan for all runs: what the lies are about has to be there.
my $seed = $ENV{POLL_TALLY_SEED} || 20260126;
my $node = new_node('checker', 'fsync = off', 'max_prepared_transactions = 50', 'deadlock_timeout = 50ms',
	'log_min_messages = fatal');
$node->safe_psql('postgres', 'CREATE EXTENSION poll_tally');
my ($logs, $dump) = map { PostgreSQL::Test::Utils::tempdir() } 1 .. 2;
play($node, $logs, $seed, $clients, $steps, 1);
dump_polls($node, $dump);
$node->stop;

# Columns, counted from 0; those of logs come after the letter.
my %T = (state => 5, known => 8);
my %A = (undone => 1, sent => 2, form => 4, poll => 5, id => 6, votes => 7, outcome => 12, position => 13, attempt => 14, differs => 16);
my %event = (poll => 0, id => 1, kind => 2, principal => 3, attempt => 4, votes => 5, effect => 6, lane => 8, seq => 9);

sub read_folder
{
	my ($folder) = @_;
	return map { my $file = $_; (split m{/}, $file)[-1] => [ map { [ split /\t/, $_, -1 ] } split /\n/, slurp_file($file) ] } glob "$folder/*";
}

sub write_folder
{
	my (%files) = @_;
	my $folder = PostgreSQL::Test::Utils::tempdir();
	for my $name (keys %files)
	{
		append_to_file("$folder/$name", join '', map { join("\t", @$_) . "\n" } @{ $files{$name} });
	}
	return $folder;
}

# Of the copy at hand: %log and %table, line arrays by file.
our (%log, %table);

sub log_lines_of
{
	my ($letter) = @_;
	return grep { $_->[0] eq $letter } map { @{ $log{$_} } } sort keys %log;
}

# Transactions of a state with their operations: [T line, [operations]].
sub transactions
{
	my ($state) = @_;
	my @transactions;
	for my $name (sort keys %log)
	{
		for my $line (@{ $log{$name} })
		{
			push @transactions, [ $line, [] ] if $line->[0] eq 'T';
			push @{ $transactions[-1][1] }, $line if $line->[0] ne 'T';
		}
	}
	return grep { $_->[0][ $T{state} ] eq $state } @transactions;
}

sub entered
{
	my ($transaction) = @_;
	return grep { $_->[0] eq 'A' && $_->[ $A{outcome} ] eq 'accepted' && $_->[ $A{undone} ] eq '\N' } @{ $transaction->[1] };
}

sub first_of
{
	my ($sub, @list) = @_;
	for (@list)
	{
		return $_ if $sub->();
	}
	return;
}

# An acknowledged event of a poll of this kind, and its row.
sub acknowledged
{
	my ($kind) = @_;
	my $line = first_of(sub { $_->[ $A{poll} ] =~ /^$kind-/ }, map { entered($_) } transactions('ok'));
	return ($line, first_of(sub { $_->[ $event{id} ] eq $line->[ $A{id} ] }, @{ $table{events} }));
}

sub told
{
	my ($outcome, $also) = @_;
	return first_of(sub { $_->[ $A{outcome} ] eq $outcome && (!$also || $also->()) }, log_lines_of('A'));
}

# A duplicate of an event whose transaction was known to have committed before it was sent.
sub late_duplicate
{
	my %known;
	for my $transaction (transactions('ok'))
	{
		$known{ $_->[ $A{id} ] } = $transaction->[0][ $T{known} ] for entered($transaction);
	}
	return told('duplicate', sub { ($known{ $_->[ $A{id} ] } // 'inf') < $_->[ $A{sent} ] });
}

sub remove
{
	my ($row) = @_;
	$table{events} = [ grep { $_ != $row } @{ $table{events} } ];
	return 1;
}

# Two rows of a poll that counts once, whose principals have no other.
sub two_principals
{
	my @rows = grep { $_->[ $event{poll} ] eq 'once-0' } @{ $table{events} };
	my %count;
	$count{ $_->[ $event{principal} ] }++ for @rows;
	return (grep { $count{ $_->[ $event{principal} ] } == 1 } @rows)[ 0, 1 ];
}

# An acknowledged close, and an event that was accepted in its poll before.
sub closed_poll
{
	for my $close (grep { $_->[1][0] && $_->[1][0][0] eq 'C' } transactions('ok'))
	{
		my $line = told('accepted', sub { $_->[ $A{poll} ] eq $close->[1][0][4] });
		return ($close, $line) if $line;
	}
	return;
}

my $position = sub { return "$_[0][ $event{lane} ]/$_[0][ $event{seq} ]" };

# kind of the violation => what the lie is => how it is told; false when there is nothing to lie about.
my @lies = (
	missing => 'an acknowledged entry is not in the ledger' => sub { return remove((acknowledged('every'))[1]) },
	missing => 'an acknowledged entry has other votes' => sub { (acknowledged('once'))[1][ $event{votes} ] = '{"violet": 1}' },
	missing => 'an acknowledged receipt has another position' => sub { (acknowledged('once'))[0][ $A{position} ] = '0/9999' },
	missing => 'a prepared transaction is gone' => sub { (transactions('ok'))[0][0][ $T{state} ] = 'vanished' },
	phantom => 'an entry that nobody sent' => sub {
		my @row = @{ (acknowledged('every'))[1] };
		@row[ @event{qw(id lane)} ] = ('e-nobody', 63);
		push @{ $table{events} }, \@row;
	},
	phantom => 'an entry of a transaction that was rolled back' => sub {
		my $transaction = first_of(sub { entered($_) > 1 }, transactions('ok'));
		$transaction->[0][ $T{state} ] = 'refused';
	},
	half => 'a transaction of which one entry is there' => sub {
		my $transaction = first_of(sub { entered($_) > 1 }, transactions('ok'));
		$transaction->[0][ $T{state} ] = 'unknown';
		my $id = (entered($transaction))[0][ $A{id} ];
		return remove(first_of(sub { $_->[ $event{id} ] eq $id }, @{ $table{events} }));
	},
	double => 'an id that is twice in the ledger' => sub { push @{ $table{events} }, [ @{ $table{events}[0] } ] },
	double => 'an id that was accepted twice' => sub {
		my @kept = grep { $_->[0] eq 'A' && $_->[ $A{undone} ] eq '\N' } map { @{ $_->[1] } } transactions('ok');
		first_of(sub { $_->[ $A{outcome} ] eq 'duplicate' }, @kept)->[ $A{outcome} ] = 'accepted';
	},
	double => 'a principal that responded twice' => sub {
		my ($one, $other) = two_principals();
		$one->[ $event{principal} ] = $other->[ $event{principal} ];
		$one->[ $event{attempt} ] = 2;
	},
	verdict => 'duplicate of an event with other content' => sub { told('duplicate')->[ $A{votes} ] = '{"violet": 1}' },
	verdict => 'duplicate with another receipt' => sub { told('duplicate')->[ $A{position} ] = '5/55' },
	verdict => 'duplicate instead of conflict' => sub { told('conflict')->[ $A{outcome} ] = 'duplicate' },
	verdict => 'conflict instead of duplicate' => sub { told('duplicate')->[ $A{outcome} ] = 'conflict' },
	verdict => 'conflict that names other fields' => sub { told('conflict', sub { $_->[ $A{differs} ] eq 'votes' })->[ $A{differs} ] = 'payload' },
	verdict => 'a retry that is refused' => sub { late_duplicate()->[ $A{outcome} ] = 'already_responded' },
	verdict => 'closed before anybody closed it' => sub {
		my $line = told('accepted');
		$line->[ $A{outcome} ] = 'closed';
		$line->[3] = '1.000000';
	},
	verdict => 'accepted after the close' => sub {
		my ($close, $line) = closed_poll();
		$line->[ $A{sent} ] = $close->[0][ $T{known} ] + 1;
	},
	verdict => 'unknown_choice of a choice that is known' => sub { told('duplicate', sub { $_->[ $A{poll} ] =~ /^once/ })->[ $A{outcome} ] = 'unknown_choice' },
	verdict => 'limit_reached where there is no limit' => sub { told('duplicate', sub { $_->[ $A{poll} ] =~ /^every/ })->[ $A{outcome} ] = 'limit_reached' },
	verdict => 'unknown_poll of a poll that there is' => sub { told('duplicate')->[ $A{outcome} ] = 'unknown_poll' },
	hole => 'a lane without one of its seqs' => sub {
		my $row = (acknowledged('every'))[1];
		$_->[ $event{seq} ]++ for grep { $_->[ $event{poll} ] eq $row->[ $event{poll} ] && $_->[ $event{lane} ] == $row->[ $event{lane} ]
			  && $_->[ $event{seq} ] >= $row->[ $event{seq} ] } @{ $table{events} };
		return 1;
	},
	hole => 'a principal without its first attempt' => sub { (acknowledged('once'))[1][ $event{attempt} ] = 2 },
	disorder => 'a lane in another order than it was acknowledged in' => sub {
		my @rows = sort { $a->[ $event{seq} ] <=> $b->[ $event{seq} ] }
		  grep { $_->[ $event{poll} ] eq 'ordered-0' && $_->[ $event{kind} ] eq 'event' } @{ $table{events} };
		my ($first, $last) = @rows[ 0, -1 ];
		my @ids = ($first->[ $event{id} ], $last->[ $event{id} ]);
		my %line = map { $_->[ $A{id} ] => $_ } map { entered($_) } transactions('ok');
		@{ $line{ $ids[0] } }[ $A{position} ] = $position->($last);
		@{ $line{ $ids[1] } }[ $A{position} ] = $position->($first);
		($first->[ $event{seq} ], $last->[ $event{seq} ]) = ($last->[ $event{seq} ], $first->[ $event{seq} ]);
		return 1;
	},
	disorder => 'a revision that is missing' => sub {
		my %count;
		$count{ $_->[0] }++ for @{ $table{snapshots} };
		my $row = first_of(sub { $count{ $_->[0] } > 2 && $_->[1] == 2 }, @{ $table{snapshots} });
		$table{snapshots} = [ grep { $_ != $row } @{ $table{snapshots} } ];
	},
	recount => 'a result that is one too high' => sub { $table{results}[0][2]++; return 1 },
	recount => 'an effect that is not what the votes do' => sub { (acknowledged('every'))[1][ $event{effect} ] = '{"red": 7}' },
	recount => 'a snapshot with other counts' => sub { first_of(sub { $_->[2] > 0 }, @{ $table{snapshots} })->[4] = '{"red": 100000}' },
	recount => 'a snapshot at another position' => sub { return first_of(sub { $_->[2] > 0 }, @{ $table{snapshots} })->[2]++ },
	recount => 'final counts that changed after the close' => sub { return (closed_poll())[0][1][0][7] = '{"red": 100000}' },
	recount => 'two views that differ within one statement' => sub { first_of(sub { $_->[0] eq 'V' && $_->[3] ne '\N' }, map { @{ $_->[1] } } grep { $_->[0][3] eq '\N' } transactions('ok'))->[4] .= '1' });

my %found = check_history($logs, $dump, \&diag);
my $checks = 0;
for my $kind (history_kinds())
{
	$checks += $found{"checks_$kind"};
	is($found{"violations_$kind"}, 0, "a true history: nothing is $kind");
}
cmp_ok($found{said_accepted}, '>', 100, 'it has accepted events');

my ($told, $caught) = (0, 0);
my %of_kind;
while (my ($kind, $what, $sub) = splice @lies, 0, 3)
{
	local %log = read_folder($logs);
	local %table = read_folder($dump);
	ok($sub->(), "a lie: $what") || next;
	my %lie = check_history(write_folder(%log), write_folder(%table), \&note);
	$told++;
	$of_kind{$kind}++;
	$caught++ if $lie{"violations_$kind"} > 0;
	cmp_ok($lie{"violations_$kind"}, '>', 0, "$kind: $what is found");
}
# No lie: an operation without BEGIN was committed, and its answer did not come. The ledger has it, others were told of it.
for my $case ([ 'A', $A{outcome} ], [ 'R', 9 ])
{
	my ($letter, $outcome) = @$case;
	local %log = read_folder($logs);
	local %table = read_folder($dump);
	my %told;
	$told{ $_->[6] }++ for log_lines_of($letter);
	my @alone = grep { $_->[0][3] eq '\N' && @{ $_->[1] } == 1 && $_->[1][0][0] eq $letter && $_->[1][0][$outcome] eq 'accepted' } transactions('ok');
	my ($lost) = sort { $told{ $b->[1][0][6] } <=> $told{ $a->[1][0][6] } } @alone;
	$lost->[0][ $T{state} ] = 'unknown';
	@{ $lost->[1][0] }[ $outcome .. $outcome + 5 ] = ('?', ('\N') x 5);
	my %true = check_history(write_folder(%log), write_folder(%table), \&diag);
	is(join(' ', grep { $true{"violations_$_"} } history_kinds()), '', "an answer that was lost is no violation: $letter, told $told{ $lost->[1][0][6] } times");
}

is(join(' ', sort keys %of_kind), join(' ', sort(history_kinds())), 'there was a lie of each kind');
figure("checker of histories: a true one of $clients clients, " . $clients * $steps . " transactions, has 0 violations in $checks "
	  . "checks; $caught of $told lies were found");
done_testing();
