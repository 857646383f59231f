# The server answers indexes with lists (method = ivfpq): their mirror has the lists of the pages, follows what comes, goes and is linked, and is there
# again after a crash. I1, I2, I3, I5.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use FaultTest;
use GpuannTest;
use ServerTest;
use Test::More;

my $dims = 40;
my $all = 'SET gpuann.probes = 10000; SET gpuann.rerank = 10000;';
my $node = fault_node('main', conf => [ 'log_min_messages = debug1', "gpuann.request_timeout = '60s'" ]);

# The mirror is what the pages are, and with all lists the server gives what the table has.
sub follows
{
	my ($what) = @_;

	ok(await("$what: the mirror follows", sub { await_mirror($node) && figure($node, "mirror_lag || ' ' || mirror_change_lag") eq '0 0' }), "$what: the mirror follows");
	is(by_server($node, 'SET gpuann.exact = on;'), by_table($node), "$what: exact answers are the table's");
	is(by_server($node, $all), by_table($node), "$what: all lists give what the table gives");
	same_list_answers($node, "$what: some lists give what those of the pages give", 9);
}

ok(await_server($node), 'the server runs');
# A device's context and the buffers of queries take memory, too.
my $empty = status($node, 'memory_used');

# More centroids than are sent at once, and a codebook behind them.
foreach my $quantizer ('rabitq', 'int8', 'pq')
{
	my $before = log_count($node, qr/gpuann mirror of index \d+ loaded/);

	$node->safe_psql('postgres', 'DROP TABLE IF EXISTS items');
	make_data($node, 40000, $dims, with => "WITH (method = ivfpq, lists = 2000, quantizer = $quantizer)");
	follows($quantizer);
	cmp_ok($node->safe_psql('postgres', "SELECT lists FROM gpuann_lists('items_v')") * $dims, '>', 32768, "$quantizer: so many centroids");
	cmp_ok(log_count($node, qr/gpuann mirror of index \d+ loaded/), '>', $before, "$quantizer: the build has loaded the mirror");
}
like($node->safe_psql('postgres', "SET enable_seqscan = off; SET gpuann.probes = 7;
	EXPLAIN (ANALYZE, COSTS off, TIMING off, SUMMARY off) SELECT id FROM items ORDER BY v <-> vec(7, $dims) LIMIT 5"),
	qr/path=server.* probes=7/, 'EXPLAIN says that the server has read so many lists');

# A mirror that a worker loads, with readers or without.
$node->safe_psql('postgres', "SELECT gpuann_evict('items_v')");
follows('loaded by a worker');
$node->safe_psql('postgres', "SELECT gpuann_evict('items_v')");
cmp_ok($node->safe_psql('postgres', "SELECT gpuann_prewarm('items_v')"), '>', 40000 * 4 * $dims, 'loaded on demand, and its bytes are counted');
follows('loaded on demand');

# Rows come, go and change; they are linked, and die.
fill_rows($node, 50001, 50700, $dims);
follows('rows that are pending');
$node->safe_psql('postgres', "UPDATE items SET v = vec(id + 7000, $dims) WHERE id % 50 = 7; DELETE FROM items WHERE id % 9 = 4");
follows('rows that have changed');
cmp_ok($node->safe_psql('postgres', "SELECT gpuann_link('items_v')"), '>=', 0, 'a session links');
is($node->safe_psql('postgres', "SELECT pending FROM gpuann_stats('items_v')"), '0', 'all are linked');
follows('linked');
is($node->psql('postgres', 'VACUUM (INDEX_CLEANUP on) items', stderr => \my $said), 0, 'VACUUM ends well');
is($said, '', 'and says nothing');
follows('vacuumed');
fill_rows($node, 60001, 63000, $dims);
follows('rows in places of the dead');
fill_rows($node, 70001, 76000, $dims);
ok(await('rows are linked', sub { $node->safe_psql('postgres', "SELECT pending FROM gpuann_stats('items_v')") < 3000 }), 'a worker links what comes');
follows('linked by the worker');
right_after($node, 'in the end');

# Filters, and more rows than the first lists have.
is($node->safe_psql('postgres', "SET enable_seqscan = off; SET gpuann.fallback = error; SET gpuann.probes = 1;
	SELECT count(*), count(DISTINCT id) FROM (SELECT id FROM items WHERE id % 20 = 1 ORDER BY v <-> vec(3, $dims) LIMIT 1500) x"), '1500|1500',
	'as many rows as are asked for, through a filter');

# The server dies, and the cluster.
signal_server($node, 'KILL');
ok(await('a server is back', sub { status($node, 'state') eq 'ready' }), 'a server is back');
follows('after the server has died');
$node->stop('immediate');
$node->start;
ok(await_server($node), 'a server runs');
follows('after a crash');
$node->safe_psql('postgres', 'REINDEX INDEX items_v');
follows('built anew');
$node->safe_psql('postgres', 'DROP TABLE items');
ok(await('its memory is free', sub { status($node, 'memory_used') < $empty + 1e6 }), 'a dropped index leaves nothing');
$node->stop;
done_testing();
