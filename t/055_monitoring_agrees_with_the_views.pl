# What monitoring/ offers works: each query runs as an ordinary role, with and without a server, and gives the columns that its file names;
# sql_exporter and postgres_exporter are told to export the same; and the dashboard and the alerts use metrics and labels that these queries export, counters as counters.

use strict;
use warnings FATAL => 'all';

use CPAN::Meta::YAML;
use FindBin;
use JSON::PP;
use lib $FindBin::RealBin;
use GpuannTest;
use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my $top = "$FindBin::RealBin/..";
my $queries = CPAN::Meta::YAML->read_string(slurp_file("$top/monitoring/postgres_exporter.yaml"))->[0];
my $rules = CPAN::Meta::YAML->read_string(slurp_file("$top/monitoring/alerts.yaml"))->[0];
my $dashboard = decode_json(slurp_file("$top/monitoring/dashboard.json"));
my $operations = slurp_file("$top/docs/operations.md");

# ---- the queries' file: metrics, their kinds, and labels ----

my (%kind, %labels, %columns, @wrong);

foreach my $namespace (sort keys %$queries)
{
	my $query = $queries->{$namespace};
	my @labels;

	foreach my $metric (@{ $query->{metrics} })
	{
		my ($name) = keys %$metric;
		my $usage = $metric->{$name}{usage};

		push @{ $columns{$namespace} }, $name;
		push @wrong, "$namespace.$name: $usage" if $usage !~ /^(LABEL|GAUGE|COUNTER)$/ || ($usage eq 'COUNTER') ne ($name =~ /_total$/);
		push @wrong, "$namespace.$name: no description" if ($metric->{$name}{description} // '') eq '';
		push @wrong, "$namespace.$name: a name that Prometheus does not take" if "${namespace}_$name" !~ /^[a-z][a-z0-9_]*$/;
		push @wrong, "$namespace.$name: twice" if exists $kind{"${namespace}_$name"};
		if ($usage eq 'LABEL') { push @labels, $name }
		else { $kind{"${namespace}_$name"} = $usage }
	}
	$labels{$_} = { map { $_ => 1 } @labels, qw(instance job) } foreach grep { /^${namespace}_/ && !exists $labels{$_} }
	  map { "${namespace}_$_" } @{ $columns{$namespace} };
}
is(join("\n", @wrong), '', 'metrics are named and described as Prometheus wants');
cmp_ok(scalar keys %kind, '>=', 30, 'there are metrics');

# ---- the collectors of sql_exporter ----

my $collector = CPAN::Meta::YAML->read_string(slurp_file("$top/monitoring/gpuann.collector.yml"))->[0];
my $recall = CPAN::Meta::YAML->read_string(slurp_file("$top/monitoring/gpuann_recall.collector.yml"))->[0];

# What a collector exports: a line for each metric, with its kind, labels, text, column and query.
sub exported
{
	my %queries = map { $_->{query_name} => $_->{query} } @{ $_[0]->{queries} };

	return sort map {
		join('; ', $_->{metric_name}, $_->{type}, join(' ', @{ $_->{key_labels} // [] }), $_->{help}, join(' ', @{ $_->{values} }), $queries{ $_->{query_ref} } // 'no query')
	} @{ $_[0]->{metrics} };
}

my @same;
foreach my $namespace (sort keys %$queries)
{
	my @metrics = @{ $queries->{$namespace}{metrics} };
	my $labels = join(' ', map { my ($name) = keys %$_; $_->{$name}{usage} eq 'LABEL' ? $name : () } @metrics);

	foreach my $metric (@metrics)
	{
		my ($name) = keys %$metric;

		push @same, join('; ', "${namespace}_$name", lc $metric->{$name}{usage}, $labels, $metric->{$name}{description}, $name, $queries->{$namespace}{query})
			if $metric->{$name}{usage} ne 'LABEL';
	}
}
is(join("\n", exported($collector)), join("\n", sort @same), 'sql_exporter exports what postgres_exporter does');
is(join(' ', map { $_->{collector_name} } $collector, $recall), 'gpuann gpuann_recall', 'the collectors are called as their files');
is($recall->{min_interval}, '1h', 'recall is sampled once an hour at most');

# ---- the queries, on clusters ----

# Run each as an ordinary role. Every column has a value, but for labels that are empty now; no two rows have the same labels.
sub queries_run
{
	my ($node, $what, %least) = @_;

	foreach my $namespace (sort keys %$queries)
	{
		my ($rc, $out, $err) = $node->psql('postgres', "SET ROLE watcher; $queries->{$namespace}{query}",
			extra_params => [ '--no-align', '--field-separator', '|', '--pset', 'footer=off', '--pset', 'tuples_only=off', '--pset', 'null=NULL' ]);
		my ($head, @rows) = split /\n/, $out;
		my @head = split /\|/, $head // '';
		my (%seen, @bad);

		is($err, '', "$what: the query of $namespace runs");
		is(join(' ', @head), join(' ', @{ $columns{$namespace} }), "$what: $namespace has the columns that the file names");
		foreach my $row (@rows)
		{
			my @values = split /\|/, $row, -1;
			my $labels = '';

			foreach my $i (0 .. $#head)
			{
				my $kind = $kind{"${namespace}_$head[$i]"};

				if (!defined $kind) { $labels .= "|$values[$i]" }
				elsif ($values[$i] !~ /^-?\d+(\.\d+)?(e[-+]\d+)?$/) { push @bad, "$head[$i]: $values[$i]" }
			}
			push @bad, "twice: $labels" if $seen{$labels}++;
		}
		is(join("\n", @bad), '', "$what: numbers of $namespace are numbers, of different labels");
		cmp_ok(scalar @rows, '>=', $least{$namespace} // 0, "$what: $namespace has rows");
	}
}

my $node = server_node('served');
$node->safe_psql('postgres', 'CREATE ROLE watcher');
make_data($node, 300, 8);
$node->safe_psql('postgres', 'CREATE TABLE others AS SELECT * FROM items; CREATE INDEX others_v ON others USING gpuann (v vector_l2_ops)');
ok(await_mirror($node), 'a mirror is there');
ok(await_mirror($node, 'others_v'), 'and another');
$node->safe_psql('postgres', 'SET enable_seqscan = off; SELECT id FROM items ORDER BY v <-> (SELECT v FROM items LIMIT 1) LIMIT 1; SET gpuann.server = off;
	SELECT id FROM items ORDER BY v <-> (SELECT v FROM items LIMIT 1) LIMIT 1');
queries_run($node, 'served', gpuann_latency => 2, gpuann_server => 1, gpuann_server_state => 1, gpuann_index => 2, gpuann_fallback => 2, gpuann_rows => 2, gpuann_mirror => 2);
is($node->safe_psql('postgres', "SELECT string_agg(DISTINCT reason, ' ' ORDER BY reason) FROM ($queries->{gpuann_fallback}{query}) f"),
	$node->safe_psql('postgres', "SELECT string_agg(substr(attname, 10), ' ' ORDER BY attname) FROM pg_attribute
		WHERE attrelid = 'pg_stat_gpuann'::regclass AND attname LIKE 'fallback\\_%'"), 'every reason for a fallback is exported');
$node->safe_psql('postgres', 'CREATE ROLE sampler IN ROLE pg_read_all_data');
is($node->safe_psql('postgres', "SET ROLE sampler; SELECT count(*), bool_and(ratio BETWEEN 0.5 AND 1 AND seconds > 0) FROM ($recall->{queries}[0]{query}) r"), '2|t',
	'recall is sampled by a role that may read');
is($node->safe_psql('postgres', "SELECT sum(scans_total) = (SELECT sum(scans) FROM pg_stat_gpuann), count(*) FROM ($queries->{gpuann_index}{query}) i"), 't|2',
	'scans are those of the view');
$node->append_conf('postgresql.conf', "gpuann.engine_library = '/nonexistent'\ngpuann.engine = 'cuda'");
$node->reload;
ok(await('there is no server', sub { status($node, 'state') eq 'failed' }), 'there is no server');
queries_run($node, 'without a server', gpuann_server => 1, gpuann_server_state => 1, gpuann_index => 2, gpuann_fallback => 2, gpuann_rows => 2);
$node->stop;

my $plain = new_node('plain');
$plain->safe_psql('postgres', 'CREATE ROLE watcher');
make_data($plain, 300, 8);
queries_run($plain, 'not preloaded', gpuann_server => 1, gpuann_server_state => 1);
$plain->stop;

# ---- what uses the metrics ----

# The faults of an expression: metrics that no query exports, counters of which no growth is asked, labels that the metrics do not have.
sub faults_of
{
	my ($expr, $known) = @_;
	my @metrics = $expr =~ /\b(gpuann_\w+)/g;
	my $grown = () = $expr =~ /\b(?:rate|increase)\(\s*gpuann_\w+_total\b/g;
	my @faults = map { "no metric $_" } grep { !exists $kind{$_} } @metrics;
	my %there = map { %$_ } grep { defined } map { $labels{$_} } @metrics;

	push @faults, 'no metric at all' if !@metrics;
	push @faults, 'a counter as it is, or growth of what is none' if $grown != grep { /_total$/ } @metrics
		or $expr =~ /\b(?:rate|increase)\(\s*gpuann_\w+(?<!_total)[\{\[]/;
	foreach my $selector ($expr =~ /\b(gpuann_\w+\{[^}]*\})/g)
	{
		my ($metric, $inner) = $selector =~ /^(\w+)\{(.*)\}$/;
		push @faults, map { "$metric has no label $_" } grep { !$labels{$metric}{$_} } $inner =~ /(\w+)\s*(?:=~|!~|!=|=)/g;
	}
	foreach my $grouping ($expr =~ /\bby\s*\(([^)]*)\)/g)
	{
		foreach my $label (split /\s*,\s*/, $grouping)
		{
			push @faults, map { "$_ has no label $label" } grep { !$labels{$_}{$label} } @metrics;
		}
	}
	push @faults, map { "no variable \$$_" } grep { !/^__/ && !$known->{$_} } $expr =~ /\$(\w+)/g;
	return (\@faults, \%there);
}

my %variables = map { $_->{name} => 1 } @{ $dashboard->{templating}{list} };
my (%ids, %places, $expressions);
foreach my $panel (@{ $dashboard->{panels} })
{
	my $place = $panel->{gridPos};
	my @bad;

	push @bad, 'its id is not its own' if $ids{ $panel->{id} }++;
	foreach my $x ($place->{x} .. $place->{x} + $place->{w} - 1)
	{
		foreach my $y ($place->{y} .. $place->{y} + $place->{h} - 1)
		{
			push @bad, "it lies over another at $x, $y" if $places{"$x $y"}++ || $x >= 24;
		}
	}
	push @bad, 'it is not explained' if $panel->{type} ne 'row' && ($panel->{description} // '') eq '';
	foreach my $target (@{ $panel->{targets} // [] })
	{
		my ($faults, $there) = faults_of($target->{expr}, \%variables);

		$expressions++;
		push @bad, map { "$target->{expr}: $_" } @$faults, map { "no label $_ for the legend" } grep { !$there->{$_} } $target->{legendFormat} =~ /\{\{(\w+)\}\}/g;
		push @bad, 'its datasource is not the variable' if $target->{datasource}{uid} ne '${datasource}';
	}
	is(join("\n", @bad), '', "panel $panel->{title}: uses what is exported");
}
cmp_ok($expressions, '>=', 20, 'the dashboard has expressions');
foreach my $variable (grep { $_->{type} eq 'query' } @{ $dashboard->{templating}{list} })
{
	my ($metric, $selector, $label) = $variable->{query}{query} =~ /^label_values\((\w+)(\{.*\})?, (\w+)\)$/;
	my ($faults) = faults_of($metric =~ /_total$/ ? "rate($metric" . ($selector // '') . '[1m])' : $metric, \%variables);

	is(join("\n", @$faults, $labels{$metric}{$label} ? () : "no label $label"), '', "variable $variable->{name}: uses what is exported");
}

my @alerts = map { @{ $_->{rules} } } @{ $rules->{groups} };
foreach my $alert (@alerts)
{
	my ($faults, $there) = faults_of($alert->{expr}, {});
	my $texts = join(' ', values %{ $alert->{annotations} });

	is(join("\n", @$faults, map { "no label $_ for its text" } grep { !$there->{$_} } $texts =~ /\$labels\.(\w+)/g), '', "alert $alert->{alert}: uses what is exported");
	like(join(' ', $alert->{labels}{severity}, sort keys %{ $alert->{annotations} }), qr/^\w+ description summary$/, "alert $alert->{alert}: is explained");
	like($operations, qr/`$alert->{alert}`/, "alert $alert->{alert}: docs/operations.md names it");
}
SKIP:
{
	skip 'there is no promtool', 1 if system('promtool --version >/dev/null 2>&1') != 0;
	is(system("cd '$top/monitoring' && promtool test rules alerts_test.yaml >&2"), 0, 'each alert fires when it should');
}
is(join(' ', sort grep { my $name = $_; !grep { $_->{alert} eq $name } @alerts } $operations =~ /`(Gpuann[A-Z]\w+)`/g), '', 'docs/operations.md names no alert that is none');
done_testing();
