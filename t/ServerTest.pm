# ServerTest.pm
#		What the TAP tests of the server share: clusters with a server, its state, its processes.
#
# With gpuann.fallback = error an answer can only be the server's; with gpuann.server = off only the pages'. GPUANN_TEST_ENGINE runs
# these tests with another engine than cpu: cuda (on a GPU host), emulated (the CUDA engine's code on this processor), or the path of a library.

package ServerTest;

use strict;
use warnings;

use Exporter 'import';
use FindBin;
use GpuannTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);

our @EXPORT = qw(
  server_node server_pid launcher_pid worker_pid await await_cluster await_server await_mirror await_horizon figure status by_server by_pages
  by_table same_graph_answers same_list_answers log_count alive engine
);

# The engine that servers use, as gpuann.engine names it.
sub engine
{
	return ($ENV{GPUANN_TEST_ENGINE} || 'cpu') eq 'cpu' ? 'cpu' : 'cuda';
}

# A primary with a server.
sub server_node
{
	my ($name, %options) = @_;
	# A GPU's context counts too. A server that gets no processor for seconds is not at fault.
	my @conf = ("gpuann.request_timeout = '120s'", "gpuann.engine = '" . engine() . "'", "gpuann.gpu_memory_limit = '" . (engine() eq 'cpu' ? '512MB' : '4GB') . "'");
	my $library = $ENV{GPUANN_TEST_ENGINE} || 'cpu';

	$library = "$FindBin::RealBin/../test/build/cuda_emulated.so" if $library eq 'emulated';
	push @conf, "gpuann.engine_library = '$library'" if $library =~ m{/};
	return new_node($name, preload => 'gpuann', %options, conf => [ @conf, @{ $options{conf} // [] } ]);
}

# One column of the server's status, and of the only index's statistics.
sub status
{
	my ($node, $column) = @_;
	return $node->safe_psql('postgres', "SELECT $column FROM gpuann_server_status");
}

# Nobody sees rows any more that are deleted by now: VACUUM takes them. A slice of a mirror's worker holds a snapshot of the catalog.
sub await_horizon
{
	my ($node) = @_;
	return await('no snapshot is older', sub {
		$node->safe_psql('postgres', 'SELECT count(*) FROM pg_stat_activity WHERE age(backend_xmin) > 0 AND pid <> pg_backend_pid()') eq '0';
	});
}

sub figure
{
	my ($node, $column, $index) = @_;
	return $node->safe_psql('postgres',
		"SELECT $column FROM pg_stat_gpuann WHERE indexrelname = '" . ($index // 'items_v') . "'");
}

sub server_pid
{
	return status($_[0], 'pid');
}

sub launcher_pid
{
	my $pid = server_pid($_[0]) or return '';

	# Like other processes without a database it is not in pg_stat_activity; it is the server's parent.
	open(my $file, '<', "/proc/$pid/stat") or return '';
	return <$file> =~ /\) \S (\d+) / ? $1 : '';
}

sub worker_pid
{
	return $_[0]->safe_psql('postgres', "SELECT pid FROM pg_stat_activity WHERE backend_type = 'gpuann mirror worker'");
}

# Wait until a condition holds. The limit is there to find what hangs, on the slowest machine; some need more.
sub await
{
	my ($what, $condition, $seconds) = @_;
	my $until = time + ($seconds // 180);

	until ($condition->())
	{
		if (time > $until)
		{
			diag("waited in vain until $what");
			return 0;
		}
		sleep 0.05;
	}
	return 1;
}

# After a crash. A psql that is refused before it has read its query is a broken pipe here, which is no end of the test.
sub await_cluster
{
	my ($node) = @_;
	return await('the cluster is back', sub { (eval { $node->psql('postgres', 'SELECT 1') } // 1) eq '0' });
}

sub await_server
{
	my ($node) = @_;
	return await('the server is ready', sub { status($node, 'state') eq 'ready' });
}

# Ask for an index's mirror, and wait until it answers and has nothing to catch up.
sub await_mirror
{
	my ($node, $index) = @_;
	my $table = $index // 'items_v';

	$table =~ s/_v$//;
	return await("the mirror of $table is ready", sub {
		$node->safe_psql('postgres',
			"SET enable_seqscan = off; SELECT id FROM $table ORDER BY v <-> (SELECT v FROM $table LIMIT 1) LIMIT 1");
		return figure($node, "state || ' ' || mirror_lag", $index) eq 'ready 0';
	});
}

# The nearest 20 rows of ten queries, under these settings: ids in order of id, and distances.
sub nearest
{
	my ($node, $settings) = @_;
	my $dims = $node->safe_psql('postgres',
		"SELECT atttypmod FROM pg_attribute WHERE attrelid = 'items'::regclass AND attname = 'v'");
	my $sql = "SET enable_seqscan = off; SET gpuann.ef_search = 100; $settings\n";

	foreach my $query (1 .. 10)
	{
		my $seed = 100000 + 7 * $query;
		$sql .= qq{
WITH q AS MATERIALIZED (SELECT vec($seed, $dims) AS v),
	 near AS MATERIALIZED (SELECT id, v <-> (SELECT v FROM q) AS distance FROM items ORDER BY v <-> (SELECT v FROM q) LIMIT 20)
SELECT array_agg(id ORDER BY id), array_agg(round(distance::numeric, 4) ORDER BY distance) FROM near;
};
	}
	return $node->safe_psql('postgres', $sql);
}

sub by_server
{
	my ($node, $settings) = @_;
	return nearest($node, "SET gpuann.fallback = error; " . ($settings // ''));
}

sub by_pages
{
	my ($node, $settings) = @_;
	return nearest($node, "SET gpuann.server = off; " . ($settings // ''));
}

# The oracle: sort the table.
sub by_table
{
	my ($node) = @_;
	return nearest($node, "SET enable_indexscan = off; SET enable_seqscan = on;");
}

# The test that one server's graph answers are those of (perhaps another cluster's) pages. In between a worker may link, and another graph may
# give other answers: then they are asked again.
sub same_graph_answers
{
	my ($served, $paged, $what) = @_;
	my ($mine, $theirs);

	await($what, sub {
		($mine, $theirs) = (by_server($served), by_pages($paged));
		return $mine eq $theirs;
	});
	is($mine, $theirs, $what);
}

# The test that a server reads the lists that its pages would read, so that answers are the same. Distances of centroids are summed in another order:
# of one query the last list may be another, which is as near.
sub same_list_answers
{
	my ($node, $what, $probes) = @_;
	my $settings = "SET gpuann.probes = $probes; SET gpuann.rerank = 10000;";
	my @mine = split /\n/, by_server($node, $settings);
	my @theirs = split /\n/, by_pages($node, $settings);
	my @other = grep { $mine[$_] ne $theirs[$_] } 0 .. $#theirs;

	ok(@mine == @theirs && @other <= 1, $what) or diag(map { "by the server $mine[$_], by the pages $theirs[$_]\n" } @other);
}

# How often a pattern occurs in the log.
sub log_count
{
	my ($node, $pattern) = @_;
	my @found = slurp_file($node->logfile) =~ /$pattern/g;
	return scalar @found;
}

# Whether a process is there; one that has ended but was not reaped is not.
sub alive
{
	my ($pid) = @_;
	my $stat = '';

	open(my $file, '<', "/proc/$pid/stat") or return 0;
	$stat = <$file> // '';
	close $file;
	return $stat !~ /\) [ZX] /;
}

1;
