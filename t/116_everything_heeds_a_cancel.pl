# Nothing that is done with an index works long without looking whether it was cancelled (I8: 100 ms). What is measured is the processor
# time between two such looks (faults.h), in each statement that may take long, so a busy machine does not count; and that a cancel in the
# middle ends the statement and leaves nothing. Waiting is watched by t/012, t/017, t/113, t/134 and t/161.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib $FindBin::RealBin;
use GpuannTest;
use Test::More;
use Time::HiRes qw(time);

my ($rows, $dims, $most) = (12_000, 24, 100);
my $node = new_node('heeds', conf => [ 'gpuann.pending_limit = 10000000', "maintenance_work_mem = '256MB'", 'max_parallel_maintenance_workers = 1' ]);
my $nearest = "SELECT id FROM items ORDER BY v <-> (SELECT vec(1, $dims))";

make_data($node, $rows, $dims, no_index => 1);

# Run a statement, and see how long it could not be cancelled.
sub heeds
{
	my ($what, $statement, $settings) = @_;
	my ($rc, $out, $err) = $node->psql('postgres', 'SET enable_seqscan = off; SET gpuann.server = off; ' . ($settings // '')
		  . "\nSET gpuann.longest_work = '';\n$statement;\nSHOW gpuann.longest_work");
	my ($ms, $places) = ($out // '') =~ /([\d.]+) (src\S+ \S+|\S*sort_template\S* \S+)\s*$/;

	is($rc, 0, "$what: ends well") or diag($err);
	cmp_ok($ms // 'inf', '<', $most, "$what: heeds a cancel") or diag($places // $out);
	note("$what: $ms ms of work at most, $places") if defined $ms;
}

# Cancel a statement that takes long.
sub cancelled
{
	my ($what, $statement) = @_;
	my $began = time;
	my ($rc, $out, $err) = $node->psql('postgres', "SET enable_seqscan = off; SET gpuann.server = off; SET statement_timeout = '150ms';\n$statement");

	like($err, qr/canceling statement due to statement timeout/, "$what: cancelled");
	note(sprintf '%s: %.0f ms, the connection included', $what, (time - $began) * 1000);
}

heeds('build without memory', 'CREATE INDEX items_v ON items USING gpuann (v vector_l2_ops) WITH (m = 4, ef_construction = 8)',
	"SET maintenance_work_mem = '1MB'; SET client_min_messages = warning;");
heeds('build in parallel', 'REINDEX INDEX items_v', 'SET min_parallel_table_scan_size = 0;');
heeds('concurrent build', 'REINDEX INDEX CONCURRENTLY items_v', 'SET max_parallel_maintenance_workers = 0;');
heeds('graph', "$nearest LIMIT 10");
heeds('broad graph', "SELECT count(*) FROM ($nearest LIMIT 9000) s", 'SET gpuann.ef_search = 10000;');
heeds('drain', "SELECT count(*) FROM ($nearest) s", "SET work_mem = '64MB';");
heeds('exact', "SELECT count(*) FROM ($nearest) s", "SET work_mem = '64MB'; SET gpuann.exact = on;");
heeds('judging in heap order', "SELECT id FROM items WHERE id % 5003 = 17 ORDER BY v <-> (SELECT vec(1, $dims)) LIMIT 10");
heeds('judging in heap order, exact, in little memory', "SELECT id FROM items WHERE id % 3 < 1 ORDER BY v <-> (SELECT vec(1, $dims)) LIMIT 9000",
	"SET gpuann.exact = on; SET work_mem = '64kB';");
heeds('rows in any order', 'SELECT count(*) FROM (SELECT id FROM items ORDER BY v <-> (SELECT NULL::vector)) s');
heeds('check', "SELECT gpuann_check('items_v', true)");
heeds('stats', "SELECT live_rows FROM gpuann_stats('items_v')");
heeds('recall', "SELECT samples_asked FROM gpuann_recall('items_v', 20)");
heeds('search for many', "SELECT count(*) FROM gpuann_search('items_v', (SELECT array_agg(v) FROM items WHERE id <= 40), 10)");
heeds('insert', "INSERT INTO items SELECT id + 100000, v FROM items WHERE id <= 6000");
heeds('pending rows', "$nearest LIMIT 10");
cancelled('check', "SELECT gpuann_check('items_v', true) FROM generate_series(1, 10000)");
cancelled('drained scan', "SELECT count(*) FROM generate_series(1, 10000) g, LATERAL (SELECT id FROM items ORDER BY v <-> vec(g, $dims)) s");
cancelled('recall', "SELECT gpuann_recall('items_v', 10000)");
cancelled('tune', "SELECT gpuann_tune('items_v', samples => 10000)");
cancelled('graph of neighbours', "SELECT gpuann_knn_graph('items_v')");
check_index($node, 'scans and checks cancelled');
heeds('link in memory', "SELECT gpuann_link('items_v')");
fill_rows($node, 200001, 200300, $dims);
heeds('link over pages', "SELECT gpuann_link('items_v')", "SET maintenance_work_mem = '1MB';");
$node->safe_psql('postgres', 'DELETE FROM items WHERE id % 10 = 0');
heeds('VACUUM in little memory', 'VACUUM items', "SET maintenance_work_mem = '1MB';");
$node->safe_psql('postgres', 'DELETE FROM items WHERE id > 10000');
# A scan meets as many rows that nobody sees any more.
heeds('dead rows', "SELECT count(*) FROM ($nearest) s", 'SET gpuann.exact = on;');
heeds('VACUUM', 'VACUUM items');
right_after($node, 'everything done');

# Words that codes of lists have in common, which many rows of few kinds take long to find.
$node->safe_psql('postgres', "CREATE TABLE listed (v vector(128)); INSERT INTO listed SELECT vec(i % 50, 128) FROM generate_series(1, 8000) i;
	CREATE INDEX listed_v ON listed USING gpuann (v vector_l2_ops) WITH (method = ivfpq, quantizer = pq, pq_m = 64, lists = 1)");
heeds('encoding of lists', "SELECT count(*) FROM gpuann_list_encoding('listed_v')");
heeds('encoding of lists that looks after its client', "SELECT count(*) FROM gpuann_list_encoding('listed_v')",
	"SET client_connection_check_interval = '100ms'; SET statement_timeout = '120s';");
cancelled('encoding of lists', "SELECT gpuann_list_encoding('listed_v') FROM generate_series(1, 10000)");

# Copies of lists on as many units as are allowed: each looks at all units.
my ($lists, $units) = (95, 1024);
my $skewed = "ARRAY[1e9] || array_fill(1::float8, ARRAY[$lists - 1])";

$node->safe_psql('postgres', "CREATE TABLE placed (v vector(8)); INSERT INTO placed SELECT vec(i, 8) FROM generate_series(1, 6000) i;
	CREATE INDEX placed_v ON placed USING gpuann (v vector_l2_ops) WITH (method = ivfpq, quantizer = pq, lists = $lists)");
is($node->safe_psql('postgres', "SELECT lists FROM gpuann_lists('placed_v')"), $lists, 'there are as many lists');
# Twice in a statement: what is measured ends with the next look.
sub placement_heeds
{
	my ($what, $call) = @_;

	heeds($what, "SELECT (SELECT count(*) FROM $call) + (SELECT count(*) FROM $call)");
}

placement_heeds('placement of spare copies', "gpuann_list_placement('placed_v', $units, 'spare')");
placement_heeds('placement of spare copies in little room', "gpuann_list_placement('placed_v', $units, 'spare', 40000, $skewed)");
placement_heeds('placement by work', "gpuann_list_placement('placed_v', $units, 'work', probes => $skewed)");
cancelled('placement of spare copies', "SELECT gpuann_list_placement('placed_v', $units, 'spare') FROM generate_series(1, 10000)");
$node->stop;

done_testing();
