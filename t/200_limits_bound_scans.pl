# Which scans a LIMIT bounds: of a table, partitions, child tables and arms of a UNION ALL, below further sort keys and WITH TIES, in subqueries, and joins under
# a LIMIT. These visit a small part of the index, and their answers are near those without it. Everything else that the order serves is exact, though a
# LIMIT is somewhere. Settings act on what is bounded; hints are obeyed; relaxed_order is not taken for an order. I4.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use GpuannTest;
use PgSession;
use Test::More;

my ($rows, $dims) = (12000, 8);
my $node = new_node('main', conf => [ 'gpuann.server = off' ]);
my $session = PgSession->new($node);

make_data($node, 1, $dims);
$node->safe_psql('postgres', qq{
	CREATE TABLE one (id int PRIMARY KEY, w int, v vector($dims));
	INSERT INTO one SELECT i, i % 100, vec(i - i % 2, $dims) FROM generate_series(1, $rows) i;
	CREATE INDEX one_v ON one USING gpuann (v vector_l2_ops);
	CREATE TABLE parts (id int, w int, v vector($dims)) PARTITION BY RANGE (id);
	CREATE TABLE part1 PARTITION OF parts FOR VALUES FROM (0) TO (6000);
	CREATE TABLE part2 PARTITION OF parts FOR VALUES FROM (6000) TO (20000) PARTITION BY LIST (w);
	CREATE TABLE part3 PARTITION OF part2 DEFAULT;
	CREATE TABLE part4 PARTITION OF part2 FOR VALUES IN (1, 2, 3);
	CREATE TABLE children (id int, w int, v vector($dims));
	CREATE TABLE child1 (v vector($dims), w int, id int);
	ALTER TABLE child1 INHERIT children;
	INSERT INTO parts SELECT * FROM one;
	INSERT INTO children SELECT * FROM one WHERE id <= 6000;
	INSERT INTO child1 (id, w, v) SELECT * FROM one WHERE id > 6000;
	CREATE INDEX ON part1 USING gpuann (v vector_l2_ops);
	CREATE INDEX ON part3 USING gpuann (v vector_l2_ops);
	CREATE INDEX ON children USING gpuann (v vector_l2_ops);
	CREATE INDEX ON child1 USING gpuann (v vector_l2_ops);
	CREATE TABLE names (w int PRIMARY KEY, name text);
	INSERT INTO names SELECT i, 'name ' || i FROM generate_series(0, 49) i;
});
$node->safe_psql('postgres', 'VACUUM ANALYZE');
my $d = "v <-> '" . $node->safe_psql('postgres', "SELECT vec(100007, $dims)") . "'";

# The bounds of a plan's scans, and the rows that they visited.
sub scans
{
	my ($sql, $settings) = @_;
	my @lines = split /\n/, $session->rows(($settings // '') . " EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) $sql");
	my (%bounds, $visited);

	foreach (@lines)
	{
		next unless /Gpuann: .*bound=(\w+).* visited=(\d+)/;
		$bounds{$1}++;
		$visited += $2;
	}
	return (join(' ', map { "$_ $bounds{$_}" } sort keys %bounds), $visited // 0);
}

# An answer as one line; without our index.
sub answer { return $session->rows("RESET ALL; $_[0]") =~ tr/\n/ /r; }
sub truth { return $session->rows("RESET ALL; SET gpuann.plan_node = off; SET enable_indexscan = off; $_[0]; RESET ALL") =~ tr/\n/ /r; }

my $strict = 'SET gpuann.iterative_scan = strict_order;';
my $join_of_parts = "SELECT o.id, n.name FROM parts o JOIN names n USING (w) ORDER BY $d, o.id LIMIT 10";
my $union = '(SELECT id, w, v FROM one UNION ALL SELECT id, w, v FROM child1) u';
my @bounded = (
	[ "SELECT id, $d FROM one ORDER BY $d, id LIMIT 10", 'ties 1', 'a further key' ],
	[ "SELECT id, $d FROM one ORDER BY $d, w DESC, id LIMIT 9 OFFSET 3", 'ties 1', 'two further keys' ],
	[ "SELECT count(*) FROM (SELECT id FROM one ORDER BY $d FETCH FIRST 9 ROWS WITH TIES) s", 'ties 1', 'WITH TIES' ],
	[ "SELECT id, $d FROM parts ORDER BY $d, id LIMIT 10", 'ties 2', 'partitions, one without an index, and a further key' ],
	[ "SELECT count(*) FROM (SELECT id FROM parts ORDER BY $d FETCH FIRST 9 ROWS WITH TIES) s", 'ties 2', 'partitions WITH TIES' ],
	[ "SELECT sum(id) FROM (SELECT id FROM parts ORDER BY $d LIMIT 10) s", 'limit 2', 'partitions' ],
	[ "SELECT sum(id) FROM (SELECT id FROM children ORDER BY $d LIMIT 10) s", 'limit 2', 'child tables with other places of columns' ],
	[ "SELECT sum(id) FROM (SELECT id FROM $union ORDER BY $d LIMIT 10) s", 'limit 2', 'UNION ALL' ],
	[ "SELECT id, d FROM (SELECT id, $d AS d FROM one ORDER BY $d, id) s LIMIT 10", 'ties 1', 'a LIMIT outside of the subquery' ],
	[ "SELECT id, d FROM (SELECT id, $d AS d FROM one ORDER BY $d OFFSET 0) s ORDER BY d, id LIMIT 10", 'ties 1', 'a subquery sorted further' ],
	[ "SELECT w, (SELECT i.id FROM one i ORDER BY i.v <-> o.v, i.id LIMIT 1) FROM one o WHERE o.id < 4 ORDER BY o.id", 'ties 1', 'a scalar subquery' ],
	[ "SELECT id FROM one WHERE id IN (SELECT id FROM one ORDER BY $d, id LIMIT 5) ORDER BY id", 'ties 1', 'IN' ],
	[ "SELECT o.id, n.name FROM one o JOIN names n USING (w) ORDER BY $d, o.id LIMIT 10", 'stream 1', 'a join' ],
	[ "SELECT o.id, n.name FROM one o LEFT JOIN names n USING (w) ORDER BY $d, o.id LIMIT 10", 'stream 1', 'a left join' ],
	[ "SELECT o.id FROM one o WHERE EXISTS (SELECT 1 FROM names n WHERE n.w = o.w) ORDER BY $d, o.id LIMIT 10", 'stream 1', 'a semi-join' ],
	[ $join_of_parts, 'stream 2', 'a join of partitions, in strict order', $strict ],
	[ "SELECT id FROM one ORDER BY $d, id LIMIT 10 FOR UPDATE", 'stream 1', 'FOR UPDATE' ]);
my $near = 0;
foreach my $case (@bounded)
{
	my ($sql, $expected, $name, $settings) = @$case;
	my ($bounds, $visited) = scans($sql, $settings);

	is($bounds, $expected, "$name: bounded");
	cmp_ok($visited, '<', $rows / 6, "$name: a small part of the index is visited ($visited)");
	$near += answer($sql) eq truth($sql);
}
cmp_ok($near, '>=', @bounded - 3, "most answers are the true ones ($near of " . @bounded . ')');

# What a stream misses is lost: comparing all of so few rows costs as little as a few rounds.
is((scans($join_of_parts))[0], 'none 2', 'a join of small partitions is exact');

my @exact = (
	[ "SELECT min($d), max($d) FROM one LIMIT 1", 'min and max' ],
	[ "SELECT id, r FROM (SELECT id, row_number() OVER (ORDER BY $d, id) AS r FROM one) s WHERE r <= 5 LIMIT 5", 'row numbers' ],
	[ "SELECT DISTINCT $d FROM one ORDER BY 1 LIMIT 5", 'DISTINCT' ],
	[ "SELECT md5(string_agg(id::text, ' ')) FROM (SELECT id FROM one ORDER BY $d, id) s", 'no LIMIT' ],
	[ "SELECT count(*) FROM one o JOIN names n USING (w)", 'a join without LIMIT' ],
	[ "SELECT $d FROM one ORDER BY $d LIMIT (SELECT NULL::int)", 'LIMIT NULL' ],
	[ "SELECT generate_series(1, 2), $d FROM one ORDER BY $d, 1 LIMIT 6", 'a set-returning function' ],
	[ "SELECT $d FROM one ORDER BY $d LIMIT 5 + (random() * 0)::int", 'a volatile LIMIT' ]);
my $by_index = 'SET enable_seqscan = off; SET enable_sort = off;';
foreach my $case (@exact)
{
	my ($sql, $name) = @$case;
	foreach my $mode ('complete', 'off', 'relaxed_order')
	{
		is($session->rows("RESET ALL; $by_index SET gpuann.ef_search = 1; SET gpuann.max_scan_tuples = 1; SET gpuann.iterative_scan = $mode; $sql") =~ tr/\n/ /r, truth($sql), "$name, $mode: exact");
	}
}

# Settings and hints
my $top = "SELECT id, $d FROM one ORDER BY $d LIMIT 10";
$session->rows('RESET ALL');
like((scans($top, 'SET enable_indexscan = off;'))[0], qr/^$/, 'enable_indexscan = off keeps the node away');
is($session->rows("$by_index SET gpuann.plan_node = on; SET gpuann.iterative_scan = off; SET gpuann.ef_search = 20; SELECT count(*) FROM (SELECT id FROM one ORDER BY $d LIMIT 1000) s"), 20, 'off ends a bounded scan');
$session->rows('RESET ALL; SET gpuann.iterative_scan = relaxed_order');
like($session->rows("EXPLAIN (COSTS OFF) SELECT * FROM ($top) s ORDER BY 2"), qr/Sort/, 'relaxed_order announces no order');
unlike($session->rows("RESET ALL; EXPLAIN (COSTS OFF) SELECT * FROM ($top) s ORDER BY 2"), qr/Sort\b.*->/s, '... and complete does');

# A plan made for complete, run under relaxed_order
$session->rows("SET plan_cache_mode = force_generic_plan; PREPARE ordered AS SELECT id, $d AS d FROM one WHERE w % 7 = 3 ORDER BY $d LIMIT 200; EXECUTE ordered");
my @values = map { (split /\|/)[1] } split /\n/, $session->rows('SET gpuann.iterative_scan = relaxed_order; SET gpuann.ef_search = 5; EXECUTE ordered');
is(join(' ', @values), join(' ', sort { $a <=> $b } @values), 'a plan with an order keeps it under relaxed_order');

# In workers
is($session->rows("RESET ALL; SET force_parallel_mode = regress; $top") =~ tr/\n/ /r, answer($top), 'in a worker the answer is the same')
  if $node->safe_psql('postgres', "SELECT count(*) FROM pg_settings WHERE name = 'force_parallel_mode'");

$session->close;
$node->stop;
done_testing();
