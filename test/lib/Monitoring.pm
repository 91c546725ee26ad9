# Real exporters and a real Prometheus over servers under test, with the files of examples/alerts: what it takes to run
# them within seconds is changed, each change in one place below, and nothing else.
package Monitoring;

use strict;
use warnings FATAL => 'all';

use Cwd qw(abs_path);
use Exporter 'import';
use File::Basename qw(dirname);
use HTTP::Tiny;
use IPC::Run qw(run start);
use JSON::PP;
use PollTally;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

our @EXPORT = qw(
  shipped changed_file stop_program exporters start_exporter start_prometheus prometheus_query alerts_now
);

my $examples = abs_path(dirname(abs_path(__FILE__)) . '/../../examples/alerts');
my $http = HTTP::Tiny->new(timeout => 10);
my $prometheus;                 # address of the one that was started last
my @programs;

# A program that outlives a test that died would hold its folder.
END
{
	local $?;
	$_->kill_kill for @programs;
}

sub shipped
{
	my ($name) = @_;
	return "$examples/$name";
}

# changed_file(NAME, FOLDER, [REGEX => TEXT, HOW OFTEN]...): a copy of a shipped file; each change must find its places.
sub changed_file
{
	my ($name, $folder, @changes) = @_;
	my $text = slurp_file(shipped($name));
	for my $change (@changes)
	{
		my ($regex, $new, $expected) = @$change;
		my $found = ($text =~ s/$regex/$new/g) || 0;
		die "$name: $found places of $regex, not $expected" if $found != $expected;
	}
	append_to_file("$folder/$name", $text);
	return "$folder/$name";
}

# start_on(ADDRESS, PATH, LOG, COMMAND...): once it answers there; false when it ended instead, since somebody else has
# its port.
sub start_on
{
	my ($address, $path, $log, @command) = @_;
	unlink $log;
	my $program = start(\@command, '<', \undef, '>', $log, '2>&1');
	push @programs, $program;
	my $answers;
	wait_until(sub { ($answers = $http->get("http://$address$path")->{success}) || !$program->pumpable });
	return $program if $answers && $program->pumpable;
	stop_program($program);
	return if slurp_file($log) =~ /address already in use/;
	die "no answer from $address: @command\n" . slurp_file($log);
}

# start_somewhere(PATH, LOG, SUB): SUB gives the command for an address. Returns (address, program).
sub start_somewhere
{
	my ($path, $log, $command) = @_;
	for (1 .. 5)
	{
		my $address = '127.0.0.1:' . PostgreSQL::Test::Cluster::get_free_port();
		my $program = start_on($address, $path, $log, $command->($address));
		return ($address, $program) if $program;
	}
	die "no port for $log";
}

sub stop_program
{
	my ($program) = @_;
	@programs = grep { $_ != $program } @programs;
	$program->kill_kill;
	return;
}

# exporters(NODE, FOLDER, DATABASE...): name => what start_exporter wants, one process for all databases, as role
# poll_watch.
sub exporters
{
	my ($node, $folder, @databases) = @_;
	my ($host, $port) = ($node->host, $node->port);
	my $urls = join "\n      - ", map { "postgres://poll_watch\@/$_?host=$host&port=$port&sslmode=disable" } @databases;
	my $config = changed_file('sql_exporter.yml', $folder, [ qr/interval: 15s/, 'interval: 1s', 1 ],
		[ qr{postgres://poll_watch\@/DATABASE\?host=/var/run/postgresql&sslmode=disable}, $urls, 1 ]);
	# As postgres_exporter.yml says of several databases.
	my $old = `prometheus-postgres-exporter --help 2>&1` =~ /--collector\.bgwriter\s/;
	my @collectors = $old ? ('--no-collector.database', '--no-collector.bgwriter') : ();
	my $dsns = join ',', map { "host=$host port=$port user=poll_watch dbname=$_" } @databases;
	return (
		postgres => { log => "$folder/postgres_exporter.log", environment => { DATA_SOURCE_NAME => $dsns },
			command => sub { return ('prometheus-postgres-exporter', '--disable-default-metrics', '--disable-settings-metrics',
				@collectors, '--extend.query-path', shipped('postgres_exporter.yml'), "--web.listen-address=$_[0]") } },
		sql => { log => "$folder/sql_exporter.log", environment => {},
			command => sub { return ('prometheus-sql-exporter', '-config.file', $config, '-web.listen-address', $_[0]) } });
}

# start_exporter(ONE OF exporters[, ADDRESS]): (address, program).
sub start_exporter
{
	my ($exporter, $address) = @_;
	local @ENV{ keys %{ $exporter->{environment} } } = values %{ $exporter->{environment} };
	return start_somewhere('/metrics', $exporter->{log}, $exporter->{command}) if !defined $address;
	return ($address, start_on($address, '/metrics', $exporter->{log}, $exporter->{command}->($address)) // die "no port $address");
}

# start_prometheus(FOLDER, CHANGES OF rules.yml, ADDRESS...): scrapes and evaluates every second.
sub start_prometheus
{
	my ($folder, $changes, @targets) = @_;
	changed_file('rules.yml', $folder, @$changes);
	my $config = changed_file('prometheus.yml', $folder, [ qr/_interval: 15s/, '_interval: 1s', 2 ],
		[ qr/127\.0\.0\.1:9187/, join("\n          - ", @targets), 1 ]);
	($prometheus, my $program) = start_somewhere('/-/ready', "$folder/prometheus.log", sub {
		return ('prometheus', "--config.file=$config", "--storage.tsdb.path=$folder/tsdb", "--web.listen-address=$_[0]",
			'--log.level=warn');
	});
	return $program;
}

sub ask
{
	my ($path, %form) = @_;
	my $url = "http://$prometheus/api/v1/$path";
	my $answer = %form ? $http->post_form($url, \%form) : $http->get($url);
	die "Prometheus: $answer->{status} $answer->{content}" if !$answer->{success};
	return decode_json($answer->{content})->{data};
}

# The samples of an instant query: [labels, value] each.
sub prometheus_query
{
	my ($expr) = @_;
	return map { [ $_->{metric}, $_->{value}[1] ] } @{ ask('query', query => $expr)->{result} };
}

# "alert instance database poll" of each alert that is firing, sorted; pending ones too when asked for.
sub alerts_now
{
	my ($with_pending) = @_;
	return sort map {
		my $l = $_->{labels};
		join ' ', grep { defined } @$l{qw(alertname instance database poll)}
	} grep { $with_pending || $_->{state} eq 'firing' } @{ ask('alerts')->{alerts} };
}

1;
