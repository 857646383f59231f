# GpuannTest.pm
#		What the TAP tests of the access method share: clusters, data that can be made again anywhere, and the oracle.
#
# The oracle is a sequential scan: pgvector computes the distance of every row and sorts. gpuann.exact must give the same
# distances and rows; pgvector sums in single precision, so distances are compared to four digits.

package GpuannTest;

use strict;
use warnings;

use Exporter 'import';
use IPC::Run;
use Time::HiRes qw(sleep time);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

our @EXPORT = qw(
  new_node make_data exact_answers graph_answers oracle_answers recall complete_rows
  check_index right_after in_background in_background_telling stop_in_the_middle fill_rows
);

# Connect with the page path, whatever the cluster preloads.
my $pages = "SET gpuann.server = off;";

# A primary with the extensions. Autovacuum is off: tests say themselves when to vacuum.
sub new_node
{
	my ($name, %options) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name, $options{install_path} ? (install_path => $options{install_path}) : ());

	# From version 18 on initdb turns checksums on, which would find damage before we do.
	my @initdb = $options{no_checksums} && `initdb --help` =~ /--no-data-checksums/ ? ('--no-data-checksums') : ();

	$node->init(allows_streaming => $options{streaming}, has_archiving => $options{archiving}, extra => [ @initdb, @{ $options{initdb} // [] } ]);
	$node->append_conf('postgresql.conf', join("\n",
			'autovacuum = off', 'fsync = off', 'max_connections = 30', 'shared_buffers = 32MB',
			'checkpoint_timeout = 1h', 'log_min_messages = warning', 'log_statement = none', 'restart_after_crash = off',
			"shared_preload_libraries = '" . ($options{preload} // '') . "'",
			# a checkpoint takes no WAL away that a slow standby has not received
			$options{streaming} ? 'wal_keep_size = 1GB' : (),
			@{ $options{conf} // [] })
		  . "\n");
	$node->start;
	$node->safe_psql('postgres', 'CREATE EXTENSION vector; CREATE EXTENSION gpuann');
	make_functions($node);
	return $node;
}

# vec(seed, dims): the same vector wherever it is asked for; seeds that agree modulo 40 are near to each other.
sub make_functions
{
	my ($node) = @_;

	$node->safe_psql('postgres', q{
CREATE FUNCTION noise(a int, b int) RETURNS float8 LANGUAGE sql IMMUTABLE AS
	$$ SELECT (hashint8extended(a::bigint * 1000003 + b, 42) & 1048575)::float8 / 1048576 $$;
CREATE FUNCTION vec(seed int, dims int) RETURNS vector LANGUAGE sql IMMUTABLE AS
	$$ SELECT array_agg((noise(seed % 40, i) + noise(seed, i) / 4)::real ORDER BY i)::vector FROM generate_series(1, dims) i $$;
});
}

# Table items with so many rows of so many dimensions, and its index.
sub make_data
{
	my ($node, $rows, $dims, %options) = @_;

	$node->safe_psql('postgres', "CREATE TABLE items (id int, v vector($dims))");
	fill_rows($node, 1, $rows, $dims);
	$node->safe_psql('postgres', "CREATE INDEX items_v ON items USING gpuann (v vector_l2_ops) "
		  . ($options{with} // ''))
	  unless $options{no_index};
}

sub fill_rows
{
	my ($node, $from, $to, $dims) = @_;

	$node->safe_psql('postgres', "INSERT INTO items SELECT i, vec(i, $dims) FROM generate_series($from, $to) i");
}

# The nearest 20 rows of ten queries, one line each: ids but for those at the last distance, where ties decide, and distances.
sub answers
{
	my ($node, $settings) = @_;
	my $dims = $node->safe_psql('postgres',
		"SELECT atttypmod FROM pg_attribute WHERE attrelid = 'items'::regclass AND attname = 'v'");
	my $script = "$pages $settings";

	foreach my $query (1 .. 10)
	{
		my $seed = 100000 + 7 * $query;
		$script .= qq{
WITH q AS MATERIALIZED (SELECT vec($seed, $dims) AS v),
	 near AS MATERIALIZED (SELECT id, v <-> (SELECT v FROM q) AS distance FROM items ORDER BY v <-> (SELECT v FROM q) LIMIT 20),
	 last AS (SELECT max(distance) - 1e-6 AS distance FROM near)
SELECT array_agg(id ORDER BY id) FILTER (WHERE distance < (SELECT distance FROM last)),
	   array_agg(round(distance::numeric, 4) ORDER BY distance) FROM near;
};
	}
	return $node->safe_psql('postgres', $script);
}

sub oracle_answers
{
	my ($node) = @_;
	return answers($node, 'SET enable_indexscan = off; SET enable_seqscan = on;');
}

sub exact_answers
{
	my ($node, $settings) = @_;
	return answers($node, 'SET enable_seqscan = off; SET gpuann.exact = on; ' . ($settings // ''));
}

sub graph_answers
{
	my ($node, $settings) = @_;
	return answers($node, 'SET enable_seqscan = off; ' . ($settings // ''));
}

# The share of the nearest 20 rows of ten queries that the graph finds, at gpuann.ef_search = 100.
sub recall
{
	my ($node) = @_;
	my @found = split /\n/, graph_answers($node, 'SET gpuann.ef_search = 100;');
	my @exact = split /\n/, oracle_answers($node);
	my ($hits, $all) = (0, 0);

	foreach my $i (0 .. $#exact)
	{
		my %mine = map { $_ => 1 } ($found[$i] =~ /\{([\d,]+)\}/)[0] =~ /\d+/g;
		my @theirs = ($exact[$i] =~ /\{([\d,]+)\}/)[0] =~ /\d+/g;
		$hits += grep { $mine{$_} } @theirs;
		$all += @theirs;
	}
	return $hits / $all;
}

# "rows through the index, distinct ones among them, rows of the table". Who drains a scan has an exact one; with relaxed_order and a LIMIT it goes
# through the graph first. Both have to give every row, else both are told.
sub complete_rows
{
	my ($node) = @_;
	my %most = (complete => 'NULL', relaxed_order => 1000000);
	my %found = map { $_ => $node->safe_psql('postgres', qq{
$pages SET enable_seqscan = off; SET enable_sort = off; SET gpuann.iterative_scan = $_;
WITH drained AS MATERIALIZED (SELECT id, ctid FROM items ORDER BY v <-> (SELECT v FROM items WHERE v IS NOT NULL LIMIT 1) LIMIT $most{$_})
SELECT count(*), count(DISTINCT ctid), (SELECT count(*) FROM items WHERE v IS NOT NULL) FROM drained;
}) } sort keys %most;

	return $found{complete} eq $found{relaxed_order} ? $found{complete} : "complete: $found{complete}, relaxed_order: $found{relaxed_order}";
}

sub check_index
{
	my ($node, $what, $index) = @_;
	my ($rc, $out, $err) = $node->psql('postgres', "SELECT gpuann_check('" . ($index // 'items_v') . "')");

	is($err, '', "$what: the format is kept");
}

# Everything that must hold at any moment: the format, exact answers, every row once.
sub right_after
{
	my ($node, $what) = @_;
	my ($found, $distinct, $rows);

	check_index($node, $what);
	is(exact_answers($node), oracle_answers($node), "$what: exact answers are the table's");
	($found, $distinct, $rows) = split /\|/, complete_rows($node);
	is("$found $distinct", "$rows $rows", "$what: a drained scan gives every row once");
}

# Run statements in a psql of its own, each by itself; returns the handle for IPC::Run. What it says goes to $out.
sub in_background_telling
{
	my ($node, $out, @statements) = @_;

	$$out = '';
	return IPC::Run::start(
		[ 'psql', '-XAtq', '-d', $node->connstr('postgres'), map { ('-c', $_) } @statements ],
		'<', \undef, '>', $out, '2>', $out);
}

sub in_background
{
	my ($node, @statements) = @_;
	my $out;

	return in_background_telling($node, \$out, @statements);
}

# Start sessions, each a list of statements, pull the plug so many seconds after a query has become true if there is one, recover. Returns how
# many were still running.
sub stop_in_the_middle
{
	my ($node, $seconds, @sessions) = @_;
	my $query = ref $sessions[0] ? '' : shift @sessions;
	my @running = map { in_background($node, @$_) } @sessions;
	my $still;

	$node->poll_query_until('postgres', $query) if $query ne '';
	sleep $seconds;
	$still = grep { $_->pumpable } @running;
	$node->stop('immediate');
	$_->finish foreach @running;
	$node->start;
	return $still;
}

1;
