# Partitions, child tables and arms of a UNION ALL under a LIMIT, where parallel plans cost nothing: each is searched for as many rows as are wanted, below
# a MergeAppend; none is drained by a Parallel Append. What is drained may be, and is exact. Answers are the same as without parallel plans. I4.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use GpuannTest;
use Test::More;

my ($parts, $rows, $dims) = (8, 24000, 16);
my $node = new_node('main', preload => 'gpuann', conf => [ 'gpuann.server = off', 'enable_seqscan = off', 'max_parallel_workers_per_gather = 4', 'parallel_setup_cost = 0',
	'parallel_tuple_cost = 0', 'min_parallel_table_scan_size = 0', 'min_parallel_index_scan_size = 0' ]);

make_data($node, 1, $dims);
$node->safe_psql('postgres', qq{
	CREATE TABLE parts (id int, v vector($dims)) PARTITION BY HASH (id);
	SELECT format('CREATE TABLE part%s PARTITION OF parts FOR VALUES WITH (MODULUS $parts, REMAINDER %s)', i, i) FROM generate_series(0, $parts - 1) i \\gexec
	CREATE TABLE parents (id int, v vector($dims));
	SELECT format('CREATE TABLE child%s () INHERITS (parents)', i) FROM generate_series(0, $parts - 1) i \\gexec
	INSERT INTO parts SELECT i, vec(i, $dims) FROM generate_series(1, $rows) i;
	SELECT format('INSERT INTO child%s SELECT * FROM part%s', i, i) FROM generate_series(0, $parts - 1) i \\gexec
	CREATE INDEX parts_v ON parts USING gpuann (v vector_l2_ops);
	SELECT format('CREATE INDEX ON child%s USING gpuann (v vector_l2_ops)', i) FROM generate_series(0, $parts - 1) i \\gexec
});
$node->safe_psql('postgres', 'VACUUM ANALYZE');

my $query = $node->safe_psql('postgres', "SELECT vec(100007, $dims)");
my $union = '(SELECT * FROM part0 UNION ALL SELECT * FROM part1 UNION ALL SELECT * FROM part2 UNION ALL SELECT * FROM part3) u';
my %tables = (parts => $parts, parents => $parts, $union => 4);

sub rows_of
{
	my ($from, $what, $settings, $column) = @_;
	return $node->safe_psql('postgres', ($settings // '') . 'SELECT ' . ($column // 'id') . " FROM $from $what");
}

foreach my $from (sort keys %tables)
{
	my $name = $from =~ /UNION/ ? 'UNION ALL' : $from;
	my $near = "ORDER BY v <-> '$query'";
	my $plan = $node->safe_psql('postgres', "EXPLAIN (ANALYZE, TIMING OFF) SELECT id FROM $from $near LIMIT 10");
	my $bounded = () = $plan =~ /bound=limit/g;

	is($bounded, $tables{$from}, "$name: each is searched for a LIMIT") or diag($plan);
	unlike($plan, qr/Gather|Parallel/, "$name: none in parallel");
	is(rows_of($from, "$near LIMIT 10"), rows_of($from, "$near LIMIT 10", 'SET max_parallel_workers_per_gather = 0;'), "$name: the rows are those of a plan without workers");
	# Some rows are equally far.
	is(rows_of($from, $near, '', "v <-> '$query'"), rows_of($from, $near, 'SET enable_indexscan = off;', "v <-> '$query'"), "$name: what is drained is exact");
	is($node->safe_psql('postgres', "SELECT min(v <-> '$query') FROM $from"),
		$node->safe_psql('postgres', "SET enable_indexscan = off; SELECT min(v <-> '$query') FROM $from"), "$name: min() is exact");
}
$node->stop;
done_testing();
