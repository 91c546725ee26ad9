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

sub start_program
{
	my ($log, @command) = @_;
	my $program = start(\@command, '<', \undef, '>', $log, '2>&1');
	push @programs, $program;
	return $program;
}

sub stop_program
{
	my ($program) = @_;
	@programs = grep { $_ != $program } @programs;
	$program->kill_kill;
	return;
}

sub wait_answer
{
	my ($url, $log) = @_;
	return if wait_until(sub { $http->get($url)->{success} });
	die "no answer from $url: " . slurp_file($log);
}

# exporters(NODE, FOLDER, DATABASE...): name => [address, log, environment, command...] of each, one process for all
# databases, as role poll_watch.
sub exporters
{
	my ($node, $folder, @databases) = @_;
	my ($host, $port) = ($node->host, $node->port);
	my %address = map { $_ => '127.0.0.1:' . PostgreSQL::Test::Cluster::get_free_port() } ('postgres', 'sql');
	my $urls = join "\n      - ", map { "postgres://poll_watch\@/$_?host=$host&port=$port&sslmode=disable" } @databases;
	my $config = changed_file('sql_exporter.yml', $folder, [ qr/interval: 15s/, 'interval: 1s', 1 ],
		[ qr{postgres://poll_watch\@/DATABASE\?host=/var/run/postgresql&sslmode=disable}, $urls, 1 ]);
	my $dsns = join ',', map { "host=$host port=$port user=poll_watch dbname=$_" } @databases;
	return (
		postgres => [ $address{postgres}, "$folder/postgres_exporter.log", { DATA_SOURCE_NAME => $dsns },
			'prometheus-postgres-exporter', '--disable-default-metrics', '--disable-settings-metrics',
			'--extend.query-path', shipped('postgres_exporter.yml'),
			"--web.listen-address=$address{postgres}" ],
		sql => [ $address{sql}, "$folder/sql_exporter.log", {}, 'prometheus-sql-exporter', '-config.file', $config,
			'-web.listen-address', $address{sql} ]);
}

sub start_exporter
{
	my ($address, $log, $environment, @command) = @_;
	local @ENV{ keys %$environment } = values %$environment;
	my $program = start_program($log, @command);
	wait_answer("http://$address/metrics", $log);
	return $program;
}

# start_prometheus(FOLDER, CHANGES OF rules.yml, ADDRESS...): scrapes and evaluates every second.
sub start_prometheus
{
	my ($folder, $changes, @targets) = @_;
	$prometheus = '127.0.0.1:' . PostgreSQL::Test::Cluster::get_free_port();
	changed_file('rules.yml', $folder, @$changes);
	my $config = changed_file('prometheus.yml', $folder, [ qr/_interval: 15s/, '_interval: 1s', 2 ],
		[ qr/- 127\.0\.0\.1:9187/, join("\n          - ", map { "- $_" } @targets) =~ s/- - /- /gr, 1 ]);
	my $program = start_program("$folder/prometheus.log", 'prometheus', "--config.file=$config",
		"--storage.tsdb.path=$folder/tsdb", "--web.listen-address=$prometheus", '--log.level=warn');
	wait_answer("http://$prometheus/-/ready", "$folder/prometheus.log");
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
