# VACUUM keeps quality: after deletes the index answers about as well as a fresh one at the same breadth of search, every row can be
# reached, and an index whose rows are all replaced again and again stays within 2.2 times a fresh one's size.
#
# GPUANN_LONG=1 (make check-long) does it with 200,000 rows, and the ten updates of every row with 25,000: each of their rounds gives every row of the graph other
# neighbours, over pages. GPUANN_PART=deleted/256MB (deleted/1MB, updated/vacuumed, updated/linked, filled), or the beginning of one, leaves out the others.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib $FindBin::RealBin;
use GpuannTest;
use GraphTest;
use Test::More;

# VACUUM leaves indexes alone where fewer than 2 % of the table's pages have dead rows, unless it is told not to.
my $long = $ENV{GPUANN_LONG};
my $below = $long ? 0.01 : 0.015;	# the promise; in the short form the recalls of two graphs of the same rows differ by more
our $rows;
my ($dims, $clusters, $queries, $ef);
($rows, $dims, $clusters, $queries, $ef) = $long ? (200_000, 64, 400, 500, 40) : (8_000, 32, 20, 400, 10);
my $part = $ENV{GPUANN_PART} // '';
my $updated_rows = $long ? 25_000 : $rows;
my $begun = time;
my $node = new_node('quality', conf => [ 'shared_buffers = 128MB', "maintenance_work_mem = '256MB'", 'max_wal_size = 4GB',
		'max_parallel_maintenance_workers = ' . ($long ? processors() - 1 : 2) ]);

# What has been done, and when.
sub told
{
	note(join(' ', @_) . ': after ' . (time - $begun) . ' s');
}

# Whether a part is to be run.
sub wanted
{
	return index($_[0], $part) == 0;
}

$rows = $updated_rows if $part =~ /^updated/;
make_source($node, 2 * $rows + $queries, $dims, $clusters);
told('rows');

sub index_size
{
	return $node->safe_psql('postgres', "SELECT pg_relation_size('items_v')");
}

sub fill
{
	$node->safe_psql('postgres', "DROP TABLE IF EXISTS items; CREATE TABLE items (id int, v vector($dims));"
		  . "INSERT INTO items SELECT id, v FROM source WHERE id <= $rows; CREATE INDEX items_v ON items USING gpuann (v vector_l2_ops)");
}

# The index as it is, beside a fresh one.
sub compare
{
	my ($what) = @_;
	my $live = $node->safe_psql('postgres', 'SELECT count(*) FROM items');
	my ($kept, $fresh);

	check_index($node, $what);
	make_queries($node, 2 * $rows, $queries);
	$kept = recall($node, $ef);
	like(unreached($node, 'items_v'), qr/^$live 0 /, "$what: every row can be reached");
	$node->safe_psql('postgres', 'CREATE INDEX fresh_v ON items USING gpuann (v vector_l2_ops); DROP INDEX items_v; ALTER INDEX fresh_v RENAME TO items_v');
	$fresh = recall($node, $ef);
	cmp_ok($kept, '>=', $fresh - $below, "$what: recall $kept, of a fresh build $fresh");
	told($what);
}

# With plenty of memory, and with so little that what is repaired is written in many parts.
foreach my $memory ('256MB', '1MB')
{
	my $set = "SET maintenance_work_mem = '$memory';";

	next if !wanted("deleted/$memory");

	fill();
	$node->safe_psql('postgres', 'DELETE FROM items WHERE noise(id, 5) < 0.5');
	$node->safe_psql('postgres', "$set VACUUM (INDEX_CLEANUP on) items");
	compare("half of the rows deleted, $memory");

	fill();
	$node->safe_psql('postgres', 'DELETE FROM items WHERE noise(id, 5) < 0.5');
	$node->safe_psql('postgres', "$set VACUUM (INDEX_CLEANUP on) items");
	$node->safe_psql('postgres', qq{
WITH place AS MATERIALIZED (SELECT v FROM source WHERE id = 2 * $rows + 1),
	 near AS (SELECT i.id FROM items i JOIN source s USING (id) WHERE s.cluster = (SELECT cluster FROM source WHERE id = 2 * $rows + 1)
		ORDER BY i.v <-> (SELECT v FROM place))
DELETE FROM items WHERE id IN (SELECT id FROM near LIMIT (SELECT count(*) / 2 FROM near));
});
	$node->safe_psql('postgres', "$set VACUUM (INDEX_CLEANUP on) items");
	compare("then the nearest half of a cluster, $memory");
}

# All rows updated ten times, VACUUM between: linked by it, or linked already while the rows before were in the graph still.
foreach my $way ([ 'vacuumed', 'SELECT' ], [ 'linked', "SELECT gpuann_link('items_v')" ])
{
	my ($name, $link) = @$way;
	my ($largest, $fresh_size) = (0);

	next if !wanted("updated/$name");
	local $rows = $updated_rows;
	fill();
	$fresh_size = index_size();
	foreach my $round (1 .. 10)
	{
		$node->safe_psql('postgres',
			"UPDATE items SET v = (SELECT v FROM source s WHERE s.id = 1 + (items.id + $round * 797) % (2 * $rows))");
		$node->safe_psql('postgres', $link);
		$node->safe_psql('postgres', 'VACUUM (INDEX_CLEANUP on) items');
		$largest = index_size() if index_size() > $largest;
		told("$name, round $round");
	}
	cmp_ok($largest, '<=', 2.2 * $fresh_size, "$link: ten updates of every row keep the index within 2.2 of a fresh one ($largest, $fresh_size)");
	compare("every row updated ten times, $link");
}

# Everything deleted, and filled again.
if (wanted('filled'))
{
	my $fresh_size;

	fill();
	$fresh_size = index_size();
	$node->safe_psql('postgres', 'DELETE FROM items');
	$node->safe_psql('postgres', 'VACUUM (INDEX_CLEANUP on) items');
	check_index($node, 'all rows deleted');
	is($node->safe_psql('postgres', 'SET enable_seqscan = off; SELECT count(*) FROM (SELECT id FROM items ORDER BY v <-> (SELECT v FROM source LIMIT 1)) n'),
		'0', 'all rows deleted: a scan finds none');
	$node->safe_psql('postgres', "INSERT INTO items SELECT id, v FROM source WHERE id <= $rows");
	$node->safe_psql('postgres', 'VACUUM (INDEX_CLEANUP on) items');
	cmp_ok(index_size(), '<=', 1.05 * $fresh_size, 'filled again: in the same pages');
	compare('filled again');
}
$node->stop;

done_testing();
