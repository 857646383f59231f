# Searches find every cluster, though clusters far apart are more than the seeds that a search tries: after CREATE INDEX, after VACUUM has replaced
# seeds, after linking over pages and in memory; over pages, and from a mirror, which has its seeds from the pages.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib $FindBin::RealBin;
use GpuannTest;
use GraphTest;
use ServerTest;
use Test::More;

# A device builds by itself and looks for its own starts, all of which the conformance suite tests.
plan skip_all => 'of the CPU engine' if engine() ne 'cpu';

my ($rows, $dims, $clusters, $queries, $ef) = (60_000, 32, 300, 1_000, 10);
my $floor = 0.99;
my $node = server_node('clusters', conf => [ 'gpuann.pending_limit = 100000000', 'max_parallel_maintenance_workers = 2',
		"maintenance_work_mem = '64MB'", 'shared_buffers = 128MB' ]);

make_source($node, $rows + $queries, $dims, $clusters);

sub fill
{
	my ($where) = @_;

	$node->safe_psql('postgres', "DROP TABLE IF EXISTS items; CREATE TABLE items (id int, cluster int, v vector($dims));
		INSERT INTO items SELECT * FROM source WHERE id <= $rows AND $where ORDER BY id; CREATE INDEX items_v ON items USING gpuann (v vector_l2_ops)");
}

# Of the queries, each near to a cluster's rows, the share that finds one of them.
sub finds
{
	my ($settings) = @_;

	return $node->safe_psql('postgres', "$settings SET enable_seqscan = off; SET enable_sort = off; SET gpuann.ef_search = $ef;
		SELECT round(avg(((SELECT cluster FROM items ORDER BY v <-> q.v LIMIT 1) = q.cluster)::int), 4) FROM source q WHERE id > $rows");
}

sub found
{
	my ($what) = @_;
	my ($pages, $server);

	check_index($node, $what);
	$pages = finds('SET gpuann.server = off;');
	cmp_ok($pages, '>=', $floor, "$what: of the pages' searches $pages find their cluster");
	await_mirror($node);
	$server = finds('SET gpuann.fallback = error;');
	cmp_ok($server, '>=', $floor, "$what: of the mirror's searches $server find their cluster");
}

fill('true');
found('built');

$node->safe_psql('postgres', 'DELETE FROM items WHERE noise(id, 5) < 0.5');
$node->safe_psql('postgres', 'VACUUM (INDEX_CLEANUP on) items');
found('half of the rows deleted');

# Cluster by cluster, with so little memory that pages are searched, and then with enough.
fill('cluster < 30');
foreach my $way ([ 'noise(id, 3) < 0.6', '1MB', 'the other clusters linked over pages' ], [ 'noise(id, 3) >= 0.6', '64MB', 'the rest linked in memory' ])
{
	my ($which, $memory, $what) = @$way;

	$node->safe_psql('postgres', "SET gpuann.server = off; SET maintenance_work_mem = '$memory';
		INSERT INTO items SELECT * FROM source WHERE id <= $rows AND cluster >= 30 AND $which ORDER BY cluster, id; SELECT gpuann_link('items_v')");
	found($what);
}
$node->stop;

done_testing();
