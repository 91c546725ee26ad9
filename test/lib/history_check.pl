# Judges a history: reads the logs of the clients (see history_client.py for their form) and a dump of the database made
# by plain SELECTs, and nothing else. It knows the rules of the polls from the dump, and shares no code with the clients.
#
# usage: history_check.pl LOGS DUMP
#
#   missing   an acknowledged entry is not in the ledger, or not as it was acknowledged
#   phantom   an entry of the ledger that nobody was told of, or that was rolled back
#   half      a transaction is there in part
#   double    an id accepted twice, a principal with more attempts than the rules allow
#   verdict   an answer that contradicts the ledger, the polls, or what had been acknowledged before it was asked for
#   hole      seqs of a lane or attempts of a principal are not 1, 2, 3 ...
#   disorder  entries of a lane stand in another order than they were sent and acknowledged in
#   recount   effects, results, snapshots or final counts differ from what the votes add up to
#
# It is longer than 500 lines, since it stands alone: all that it knows is to be read in one place.
# Prints NAME=NUMBER lines: checks and violations of each kind, what was told how often, and as "# ..." the first
# violations of each kind.
use strict;
use warnings FATAL => 'all';

use List::Util qw(all any first max min sum0);

my ($logs, $dump) = @ARGV;
my @kinds = qw(missing phantom half double verdict hole disorder recount);
my (%checks, %violations, %told);

my (%event, %poll, %choice, %result, @snapshots, %principal, %retracted, %source, %lane);
my (%acknowledged, %doubtful, %asked, %first_known, %closed_known, %close_begun, %retraction, %interval);

# --- judging --------------------------------------------------------------------------------------------------------

sub expect
{
	my ($ok, $kind, @text) = @_;
	$checks{$kind}++;
	return 1 if $ok;
	print '# ', $kind, ': ', join(' ', map { $_ // 'NULL' } @text), "\n" if ++$violations{$kind} <= 5;
	return 0;
}

sub same
{
	my ($left, $right) = @_;
	return defined $left ? defined $right && $left eq $right : !defined $right;
}

# --- reading --------------------------------------------------------------------------------------------------------

# each_row(FILE, SUB): the fields of each line; \N is undef.
sub each_row
{
	my ($file, $sub) = @_;
	open my $handle, '<', $file or die "$file: $!";
	while (my $line = <$handle>)
	{
		chomp $line;
		$sub->(map { $_ eq '\N' ? undef : $_ } split /\t/, $line, -1);
	}
	close $handle;
	return;
}

sub counts_of
{
	my ($text) = @_;
	my %counts;
	$counts{$1} = $2 while ($text // '') =~ /"([^"]+)": (-?\d+)/g;
	return \%counts;
}

sub read_dump
{
	each_row("$dump/polls", sub {
		my ($name, @fields) = @_;
		@{ $poll{$name} }{qw(counting attempts limit open closed position)} = @fields;
	});
	each_row("$dump/choices", sub { $choice{ $_[0] }{ $_[1] } = 1 });
	each_row("$dump/results", sub { $result{ $_[0] }{ $_[1] } = $_[2] });
	each_row("$dump/snapshots", sub {
		my %snapshot;
		@snapshot{qw(poll revision position frontier counts total final)} = @_;
		push @snapshots, \%snapshot;
	});
	each_row("$dump/events", sub {
		my %row;
		@row{qw(poll id kind principal attempt votes effect payload lane seq source occurred at retracts)} = @_;
		expect(!$event{ $row{id} }, 'double', "$row{id} is in the ledger twice");
		$row{position} = "$row{lane}/$row{seq}";
		$event{ $row{id} } = \%row;
		push @{ $lane{ $row{poll} }{ $row{lane} } }, \%row;
		push @{ $principal{ $row{poll} }{ $row{principal} } }, \%row if defined $row{principal};
		$source{ $row{source} } = $row{id} if defined $row{source};
		return if !defined $row{retracts};
		expect(!$retracted{ $row{retracts} }, 'double', "$row{retracts} was retracted twice");
		$retracted{ $row{retracts} } = \%row;
	});
	return;
}

my %fields = (
	A => [qw(undone sent told form poll id votes principal payload occurred source outcome position attempt at differs detail)],
	R => [qw(undone sent told poll event id reason again outcome position attempt at differs detail)],
	C => [qw(undone sent told poll revision position counts)],
	P => [qw(undone sent told poll revision position counts)],
	V => [qw(undone poll ledger results published)]);

# each_transaction(SUB): of all logs, with its operations.
sub each_transaction
{
	my ($sub) = @_;
	for my $file (glob "$logs/client-*")
	{
		my $transaction;
		each_row($file, sub {
			my ($letter, @values) = @_;
			if ($letter ne 'T')
			{
				my %operation = (letter => $letter);
				@operation{ @{ $fields{$letter} } } = @values;
				push @{ $transaction->{operations} }, \%operation;
				return;
			}
			$sub->($transaction) if $transaction;
			$transaction = { operations => [] };
			@$transaction{qw(client step level end state sqlstate begun known digest)} = @values;
		});
		$sub->($transaction) if $transaction;
	}
	return;
}

# --- the first pass: what was acknowledged, and when ----------------------------------------------------------------

sub is_entered
{
	my ($operation) = @_;
	return $operation->{letter} =~ /[AR]/ && $operation->{outcome} eq 'accepted' && !defined $operation->{undone};
}

sub note_close
{
	my ($transaction, $operation) = @_;
	my $name = $operation->{poll};
	$close_begun{$name} = min($operation->{sent}, $close_begun{$name} // $operation->{sent});
	return if $transaction->{state} ne 'ok';
	$closed_known{$name} = min($transaction->{known}, $closed_known{$name} // $transaction->{known});
	return;
}

sub note_transaction
{
	my ($transaction) = @_;
	my $state = $transaction->{state};
	$told{"state_$state"}++;
	$told{ 'level_' . ($transaction->{level} // 'none') =~ tr/ /_/r }++;
	$told{ 'end_' . ($transaction->{end} // 'none') =~ tr/-/_/r }++;
	$told{"sqlstate_$transaction->{sqlstate}"}++ if defined $transaction->{sqlstate};
	expect($state ne 'vanished', 'missing', "client $transaction->{client} step $transaction->{step}: a prepared transaction is gone");
	for my $operation (@{ $transaction->{operations} })
	{
		my $letter = $operation->{letter};
		$told{"said_$operation->{outcome}"}++ if $letter =~ /[AR]/ && $operation->{outcome} ne '?';
		$told{"operation_$letter"}++;
		note_close($transaction, $operation) if $letter eq 'C' && $state ne 'refused';
		next if $letter !~ /[AR]/ || $state eq 'refused';
		push @{ $asked{ $operation->{id} } }, $operation if $operation->{outcome} eq '?' && $state eq 'unknown';
		next if !is_entered($operation);
		$retraction{ $operation->{id} } = $operation if $letter eq 'R' && same($operation->{position}, ($event{ $operation->{id} } // {})->{position});
		$operation->{known} = $transaction->{known};
		push @{ ($state eq 'ok' ? \%acknowledged : \%doubtful)->{ $operation->{id} } }, $operation;
	}
	return;
}

# A retraction whose answer was lost, and that is in the ledger: the ledger shows its target, what else it said the log.
sub note_lost_retractions
{
	for my $id (grep { $event{$_} && !$retraction{$_} } keys %asked)
	{
		my $operation = first { $_->{letter} eq 'R' && $_->{event} eq ($event{$id}{retracts} // '') } @{ $asked{$id} };
		$retraction{$id} = { %$operation, map { $_ => $event{$id}{$_} } qw(position at) } if $operation;
	}
	return;
}

# --- the ledger against what was acknowledged -----------------------------------------------------------------------

# The fields of an event that differ from what was stored, as conflict names them.
sub differences
{
	my ($operation, $stored) = @_;
	my @differs = grep { !same($operation->{$_}, $stored->{$_}) } qw(poll votes principal payload occurred);
	return join ',', map { $_ eq 'occurred' ? 'occurred_at' : $_ } @differs;
}

sub same_receipt
{
	my ($operation, $stored) = @_;
	return same($operation->{position}, $stored->{position}) && same($operation->{at}, $stored->{at})
	  && ($operation->{letter} eq 'R' || same($operation->{attempt}, $stored->{attempt}));
}

sub same_entry
{
	my ($operation, $stored) = @_;
	return 0 if !$stored || !same_receipt($operation, $stored);
	return differences($operation, $stored) eq '' && $stored->{kind} eq 'event' if $operation->{letter} eq 'A';
	return same($operation->{event}, $stored->{retracts}) && $operation->{poll} eq $stored->{poll} && $stored->{kind} eq 'retraction';
}

sub check_acknowledged
{
	for my $id (keys %acknowledged)
	{
		my @receipts = @{ $acknowledged{$id} };
		$first_known{$id} = min(map { $_->{known} } @receipts);
		expect(@receipts == 1, 'double', "$id was accepted " . scalar(@receipts) . ' times');
		expect(same_entry($_, $event{$id}), 'missing', "$id was acknowledged at", $_->{position}, 'and the ledger has',
			$event{$id} ? @{ $event{$id} }{qw(poll position votes)} : 'nothing')
		  for @receipts;
	}
	for my $row (values %event)
	{
		my $id = $row->{id};
		my $known = any { same_entry($_, $row) } @{ $acknowledged{$id} // [] }, @{ $doubtful{$id} // [] };
		my $asked = any { $_->{letter} eq 'R' ? $_->{event} eq ($row->{retracts} // '') : differences($_, $row) eq '' } @{ $asked{$id} // [] };
		expect($known || $asked, 'phantom', "$id at $row->{position} of $row->{poll}: nobody was told that it was accepted");
	}
	return;
}

# --- the second pass: each answer -----------------------------------------------------------------------------------

# The entry that an operation is compared with: one of its own transaction that it could see, or the ledger's.
sub original
{
	my ($operation, $earlier) = @_;
	my $own = first { $_->{id} eq $operation->{id} } @$earlier;
	return $own // ($operation->{letter} eq 'R' ? $retraction{ $operation->{id} } : $event{ $operation->{id} });
}

sub retraction_differences
{
	my ($operation, $stored) = @_;
	my %names = (event => 'event_id', again => 'may_respond_again');
	return join ',', map { $names{$_} // $_ } grep { !same($operation->{$_}, $stored->{$_}) } qw(poll event reason again);
}

sub is_duplicate
{
	my ($operation, $earlier) = @_;
	my $stored = original($operation, $earlier);
	return 0 if !$stored || !same_receipt($operation, $stored);
	return retraction_differences($operation, $stored) eq '' if $operation->{letter} eq 'R';
	return 0 if differences($operation, $stored) ne '';
	return 1 if ($operation->{detail} // '') !~ /retracted by "([^"]+)"/;
	return ($retracted{ $operation->{id} }{id} // '') eq $1 || any { $_->{id} eq $1 } @$earlier;
}

sub is_conflict
{
	my ($operation, $earlier) = @_;
	my $stored = original($operation, $earlier);
	return 0 if !$stored;
	my $differs = $operation->{differs} // ($operation->{detail} // '') =~ s/^The stored event differs in: (.*)\.$/$1/r =~ s/, /,/gr;
	return $differs ne '' && $differs eq ($operation->{letter} eq 'R' ? retraction_differences($operation, $stored) : differences($operation, $stored));
}

# The id that the detail names, found in the ledger or among what this transaction entered.
sub named
{
	my ($operation, $earlier) = @_;
	my ($id) = ($operation->{detail} // '') =~ /"([^"]+)"/;
	return if !defined $id;
	return (first { $_->{id} eq $id } @$earlier) // $event{$id};
}

sub may_be_exhausted
{
	my ($operation, $earlier) = @_;
	my $holder = named($operation, $earlier);
	return 0 if !$holder || $holder->{poll} ne $operation->{poll} || !same($holder->{principal}, $operation->{principal});
	# A bounded poll, or a principal that a retraction has barred.
	my @own = grep { $_->{letter} eq 'R' && $_->{again} eq 'False' } @$earlier;
	return defined $poll{ $operation->{poll} }{attempts} || @own
	  || any { $_->{kind} eq 'retraction' && $retraction{ $_->{id} } && $retraction{ $_->{id} }{again} eq 'False' }
	  @{ $principal{ $operation->{poll} }{ $operation->{principal} } };
}

# The highest that a choice ever stood, and what this transaction adds, leave no room.
sub may_be_full
{
	my ($operation, $earlier) = @_;
	my $limit = $poll{ $operation->{poll} }{limit} // return 0;
	return any {
		my $key = $_;
		my $count = 0;
		my $highest = max(0, map { $count += $_->{delta}{$key} // 0 } map { @$_ } values %{ $lane{ $operation->{poll} } });
		my $own = sum0(map { counts_of($_->{votes})->{$key} // 0 } grep { $_->{letter} eq 'A' && $_->{poll} eq $operation->{poll} } @$earlier);
		$highest + $own + counts_of($operation->{votes})->{$key} > $limit
	} keys %{ counts_of($operation->{votes}) };
}

sub has_nothing_to_retract
{
	my ($operation, $earlier) = @_;
	my $target = (first { $_->{id} eq $operation->{event} } @$earlier) // $event{ $operation->{event} } // return 0;
	return 1 if $retracted{ $operation->{event} } || any { $_->{letter} eq 'R' && $_->{event} eq $operation->{event} } @$earlier;
	return $poll{ $operation->{poll} }{counting} eq 'latest'
	  && any { ($_->{kind} // 'event') eq 'event' && same($_->{principal}, $target->{principal}) && $_->{attempt} > $target->{attempt} }
	@{ $principal{ $operation->{poll} }{ $target->{principal} } // [] }, grep { $_->{letter} eq 'A' } @$earlier;
}

sub knows_choices
{
	my ($operation) = @_;
	my $name = $operation->{poll};
	return $poll{$name}{open} eq 't' || all { $choice{$name}{$_} } keys %{ counts_of($operation->{votes}) };
}

my %reason = (
	duplicate => \&is_duplicate,
	conflict => \&is_conflict,
	accepted => sub { my ($operation) = @_; return $poll{ $operation->{poll} } && ($operation->{letter} eq 'R' || knows_choices($operation)) },
	source_conflict => sub {
		my ($operation, $earlier) = @_;
		my $holder = named($operation, $earlier);
		return $holder && same($holder->{source}, $operation->{source}) && $holder->{id} ne $operation->{id};
	},
	unknown_poll => sub { return !$poll{ $_[0]{poll} } },
	closed => sub { my $name = $_[0]{poll}; return $poll{$name}{closed} eq 't' && defined $close_begun{$name} && $close_begun{$name} <= $_[0]{told} },
	unknown_choice => sub { return $poll{ $_[0]{poll} } && !knows_choices($_[0]) },
	already_responded => \&may_be_exhausted,
	limit_reached => \&may_be_full,
	nothing_to_retract => \&has_nothing_to_retract,
	unknown_event => sub { my ($operation, $earlier) = @_; return !($first_known{ $operation->{event} } && $first_known{ $operation->{event} } < $operation->{sent}) && !(any { $_->{id} eq $operation->{event} } @$earlier) });

# What comes before the outcome in the order of judging, and had been acknowledged before the question was asked.
sub comes_too_late
{
	my ($operation) = @_;
	my $outcome = $operation->{outcome};
	return 'its id was known' if $outcome !~ /^(duplicate|conflict)$/ && ($first_known{ $operation->{id} } // $operation->{sent}) < $operation->{sent};
	return 'the poll was closed' if $outcome !~ /^(duplicate|conflict|source_conflict|closed)$/ && ($closed_known{ $operation->{poll} } // $operation->{sent}) < $operation->{sent};
	return '';
}

sub judge
{
	my ($transaction, $number) = @_;
	my $operation = $transaction->{operations}[$number];
	return if $operation->{outcome} eq '?';
	my @earlier = grep { $_->{letter} =~ /[AR]/ && $_->{outcome} eq 'accepted' && (!defined $_->{undone} || $_->{undone} > $number) }
	  @{ $transaction->{operations} }[ 0 .. $number - 1 ];
	my $where = "client $transaction->{client} step $transaction->{step}: $operation->{id} of $operation->{poll}";
	my $outcome = $operation->{outcome};
	my $reason = $reason{$outcome};
	expect($reason && $reason->($operation, \@earlier), 'verdict', "$where was told $outcome", $operation->{detail});
	my $late = comes_too_late($operation);
	expect($late eq '', 'verdict', "$where was told $outcome, but $late");
	return;
}

sub judge_counts
{
	my ($transaction, $operation) = @_;
	my $name = $operation->{poll};
	if ($operation->{letter} eq 'V')
	{
		# Above READ COMMITTED, what a transaction reads after writes of its own may show others' later counts.
		my $own = any { $_->{letter} =~ /[AR]/ } @{ $transaction->{operations} };
		return if $own && $transaction->{level} ne 'READ COMMITTED';
		expect(same($operation->{ledger}, $operation->{results}), 'recount', "$name: ledger", $operation->{ledger}, 'results', $operation->{results});
		expect(same($operation->{ledger}, $operation->{published}), 'recount', "$name: ledger", $operation->{ledger}, 'published and later', $operation->{published});
		return;
	}
	return if !defined $operation->{revision} || $operation->{letter} ne 'C' || $transaction->{state} eq 'refused';
	expect($operation->{position} == $poll{$name}{position}, 'recount', "$name was closed at $operation->{position}, and stands at $poll{$name}{position}");
	expect_counts(counts_of($operation->{counts}), $poll{$name}{sum} // {}, "$name: final counts as told");
	return;
}

# All of an unknown transaction, or nothing; an acknowledged one in one lane a poll, without a hole, in order.
sub judge_whole
{
	my ($transaction) = @_;
	my @entered = grep { is_entered($_) } @{ $transaction->{operations} };
	return if !@entered;
	my $there = grep { same_entry($_, $event{ $_->{id} }) } @entered;
	my $where = "client $transaction->{client} step $transaction->{step}";
	expect($there == 0, 'phantom', "$where was rolled back, and $there entries are there") if $transaction->{state} eq 'refused';
	expect($there == 0 || $there == @entered, 'half', "$where: $there of " . scalar(@entered) . ' entries are there')
	  if $transaction->{state} ne 'refused';
	return if $there != @entered;
	my %last;
	for my $operation (@entered)
	{
		my ($lane, $seq) = split m{/}, $operation->{position};
		my $before = $last{ $operation->{poll} };
		expect($before->[0] == $lane && $before->[1] + 1 == $seq, 'disorder', "$where: $operation->{poll} $operation->{position} after $before->[0]/$before->[1]")
		  if $before;
		$last{ $operation->{poll} } = [ $lane, $seq ];
		$interval{ $operation->{id} } = [ $operation->{sent}, $transaction->{known} ] if $transaction->{state} eq 'ok';
	}
	return;
}

sub judge_transaction
{
	my ($transaction) = @_;
	my @operations = @{ $transaction->{operations} };
	for my $number (0 .. $#operations)
	{
		if ($operations[$number]{letter} =~ /[AR]/) { judge($transaction, $number) }
		else { judge_counts($transaction, $operations[$number]) }
	}
	judge_whole($transaction);
	return;
}

# --- the ledger by itself -------------------------------------------------------------------------------------------

sub expect_counts
{
	my ($have, $want, $what) = @_;
	my %keys = (%$have, %$want);
	my @wrong = grep { ($have->{$_} // 0) != ($want->{$_} // 0) } sort keys %keys;
	return expect(!@wrong, 'recount', $what, map { "$_: " . ($have->{$_} // 0) . ', not ' . ($want->{$_} // 0) } @wrong);
}

# The lanes in order of their seqs.
sub sort_lanes
{
	for my $name (keys %lane)
	{
		for my $number (keys %{ $lane{$name} })
		{
			my @rows = sort { $a->{seq} <=> $b->{seq} } @{ $lane{$name}{$number} };
			$lane{$name}{$number} = \@rows;
			my $wrong = first { $rows[$_]{seq} != $_ + 1 } 0 .. $#rows;
			expect(!defined $wrong, 'hole', "$name: lane $number has seq", defined $wrong ? ($rows[$wrong]{seq}, 'at number', $wrong + 1) : ());
		}
	}
	return;
}

sub check_order
{
	for my $name (keys %lane)
	{
		for my $number (keys %{ $lane{$name} })
		{
			my $latest = 0;
			for my $row (@{ $lane{$name}{$number} })
			{
				my $interval = $interval{ $row->{id} } // next;
				expect($interval->[1] > $latest, 'disorder', "$name: $row->{id} at $row->{position} was acknowledged before one below it was sent");
				$latest = max($latest, $interval->[0]);
			}
		}
	}
	return;
}

# What an entry has to do to the counts, from the votes alone. Attempts order a principal's events.
sub effects
{
	for my $row (values %event)
	{
		my $votes = counts_of((defined $row->{retracts} ? $event{ $row->{retracts} } // {} : $row)->{votes});
		my $sign = defined $row->{retracts} ? -1 : 1;
		$row->{delta} = { map { $_ => $sign * $votes->{$_} } keys %$votes };
	}
	for my $name (grep { $poll{$_}{counting} eq 'latest' } keys %principal)
	{
		for my $rows (values %{ $principal{$name} })
		{
			my @events = sort { $a->{attempt} <=> $b->{attempt} } grep { $_->{kind} eq 'event' } @$rows;
			for my $number (1 .. $#events)
			{
				my $replaced = $events[ $number - 1 ];
				next if $retracted{ $replaced->{id} };
				my $votes = counts_of($replaced->{votes});
				$events[$number]{delta}{$_} -= $votes->{$_} for keys %$votes;
			}
		}
	}
	return;
}

sub check_effects
{
	for my $row (values %event)
	{
		expect_counts(counts_of($row->{effect}), $row->{delta}, "$row->{poll}: effect of $row->{id}");
		my $sum = $poll{ $row->{poll} }{sum} //= {};
		$sum->{$_} += $row->{delta}{$_} for keys %{ $row->{delta} };
		$poll{ $row->{poll} }{entries}++;
	}
	return;
}

sub check_attempts
{
	for my $name (keys %principal)
	{
		for my $who (keys %{ $principal{$name} })
		{
			my @rows = @{ $principal{$name}{$who} };
			my @attempts = sort { $a <=> $b } map { $_->{attempt} } grep { $_->{kind} eq 'event' } @rows;
			my @retractions = grep { $_->{kind} eq 'retraction' } @rows;
			expect("@attempts" eq join(' ', 1 .. @attempts), 'hole', "$name: attempts of $who are @attempts");
			my $granted = grep { !$retraction{ $_->{id} } || $retraction{ $_->{id} }{again} eq 'True' } @retractions;
			my $bound = $poll{$name}{attempts};
			expect(@attempts <= $bound + $granted, 'double', "$name: $who has attempts @attempts, $granted granted") if defined $bound;
			my $bar = min(map { $_->{at} } grep { $retraction{ $_->{id} } && $retraction{ $_->{id} }{again} eq 'False' } @retractions);
			my $last = max(map { $_->{at} } grep { $_->{kind} eq 'event' } @rows);
			expect($last <= $bar, 'double', "$name: $who was barred at $bar, and has an attempt at $last") if defined $bar;
		}
	}
	return;
}

sub check_polls
{
	for my $name (keys %poll)
	{
		my $sum = $poll{$name}{sum} //= {};
		expect_counts($result{$name} // {}, $sum, "$name: results");
		expect($poll{$name}{position} == ($poll{$name}{entries} // 0), 'recount', "$name: accepted position $poll{$name}{position}, entries", $poll{$name}{entries});
		my $limit = $poll{$name}{limit} // next;
		expect((max(0, values %$sum)) <= $limit, 'recount', "$name is beyond its limit");
	}
	return;
}

sub check_snapshots
{
	my %last;
	for my $snapshot (sort { $a->{poll} cmp $b->{poll} || $a->{revision} <=> $b->{revision} } @snapshots)
	{
		my $name = $snapshot->{poll};
		my ($revision, $position) = @$snapshot{qw(revision position)};
		my @frontier = ($snapshot->{frontier} =~ /(\d+)/g);
		my %counts;
		for my $number (0 .. $#frontier)
		{
			for my $row (grep { $_ } @{ $lane{$name}{$number} // [] }[ 0 .. $frontier[$number] - 1 ])
			{
				$counts{$_} += $row->{delta}{$_} for keys %{ $row->{delta} };
			}
		}
		expect_counts(counts_of($snapshot->{counts}), \%counts, "$name: revision $revision");
		expect($position == sum0(@frontier), 'recount', "$name: revision $revision is at $position");
		my $before = $last{$name};
		expect($revision == $before->{revision} + 1 && $position >= $before->{position} && $before->{final} eq 'f', 'disorder', "$name: revision $revision at $position after $before->{revision}")
		  if $before;
		$last{$name} = $snapshot;
	}
	for my $name (keys %poll)
	{
		expect($last{$name} && $last{$name}{final} eq $poll{$name}{closed}, 'recount', "$name: a closed poll ends with a final snapshot, an open one does not");
		expect($last{$name}{position} == $poll{$name}{position}, 'recount', "$name: the final snapshot is at $last{$name}{position}") if $poll{$name}{closed} eq 't';
	}
	return;
}

# --- all of it ------------------------------------------------------------------------------------------------------

read_dump();
sort_lanes();
effects();
check_effects();
each_transaction(\&note_transaction);
note_lost_retractions();
check_acknowledged();
each_transaction(\&judge_transaction);
check_order();
check_attempts();
check_polls();
check_snapshots();

print "$_=$told{$_}\n" for sort keys %told;
print "entries=" . scalar(keys %event) . "\n";
print "checks_$_=" . ($checks{$_} // 0) . "\nviolations_$_=" . ($violations{$_} // 0) . "\n" for @kinds;
