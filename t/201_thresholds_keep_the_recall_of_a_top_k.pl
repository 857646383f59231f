# A threshold that fewer rows meet than the LIMIT wants ends the scan with the first answer that goes beyond it: a small part of the index is visited, and as many
# of the rows within are found as a top-k finds of its nearest. With gpuann.exact, and without a LIMIT, all are.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use GpuannTest;
use PgSession;
use Test::More;

my ($rows, $dims, $queries) = (12000, 16, 100);
my $node = new_node('main', conf => [ 'gpuann.server = off' ]);
my $session = PgSession->new($node);

make_data($node, 1, $dims);
$session->rows(qq{
	CREATE TABLE points (id int, v vector($dims));
	INSERT INTO points SELECT i, (SELECT array_agg(c + 0.3 * noise(i, k::int) ORDER BY k) FROM unnest(vec(i % 60, $dims)::real[]) WITH ORDINALITY u (c, k))::vector($dims)
		FROM generate_series(1, $rows) i;
	CREATE INDEX points_v ON points USING gpuann (v vector_l2_ops);
	ANALYZE points;
	CREATE TABLE queries AS SELECT id, v, (SELECT array_agg(d ORDER BY d) FROM (SELECT p.v <-> q.v AS d FROM points p ORDER BY 1 LIMIT 101) s) AS nearest
		FROM points q WHERE id % ($rows / $queries) = 7});

# Rows within a radius that each query finds of those that there are, and the most that one visits.
sub found
{
	my ($within, $limit, $settings) = @_;
	my $by_index = "RESET ALL; SET enable_seqscan = off; SET enable_sort = off; $settings";
	my $sum = $session->rows(qq{$by_index; SELECT coalesce(sum((SELECT count(*) FROM (SELECT 1 FROM points p WHERE p.v <-> q.v <= q.nearest[$within] ORDER BY p.v <-> q.v $limit) s)), 0)
		FROM queries q});
	my $visited = $session->rows('SELECT visited FROM gpuann_last_scan()');

	return ($sum / ($within * $queries), $visited);
}

foreach my $ef (10, 40)
{
	my $settings = "SET gpuann.ef_search = $ef";
	my ($top) = $session->rows(qq{RESET ALL; SET enable_seqscan = off; SET enable_sort = off; $settings;
		SELECT sum((SELECT count(*) FROM (SELECT p.v <-> q.v AS d FROM points p ORDER BY p.v <-> q.v LIMIT 10) s WHERE d <= q.nearest[10]))::float8 / 10 / $queries FROM queries q});

	foreach my $within (1, 2, 5, 10, 20)
	{
		my ($share, $visited) = found($within, 'LIMIT 30', $settings);
		my ($exactly) = found($within, 'LIMIT 30', "$settings; SET gpuann.exact = on");
		my ($drained) = found($within, 'OFFSET 0', $settings);

		cmp_ok($share, '>=', $top - 0.04, "ef_search $ef, $within rows within: found as of a top-k ($share, there $top)");
		cmp_ok($visited, '<', $rows / 4, "ef_search $ef, $within rows within: a part of the index is visited ($visited)");
		is("$exactly $drained", '1 1', "ef_search $ef, $within rows within: all of them exactly, and without a LIMIT");
	}
}

# gpuann.max_scan_tuples judges nothing beyond either.
my $plan = $session->rows(q{RESET ALL; SET gpuann.max_scan_tuples = 5000; SET gpuann.ef_search = 40; SET enable_seqscan = off; EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF)
	SELECT id FROM points WHERE v <-> (SELECT v FROM queries ORDER BY id LIMIT 1) <= 0.01 ORDER BY v <-> (SELECT v FROM queries ORDER BY id LIMIT 1) LIMIT 10});
my ($judged) = $plan =~ /bound=limit.* judged=(\d+)/;
cmp_ok($judged // 99, '<=', 10, 'max_scan_tuples judges no row beyond a threshold') or diag($plan);

$session->close;
$node->stop;
done_testing();
