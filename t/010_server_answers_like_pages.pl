# The server's answers are the pages': by graph and exactly, for small and large limits, after inserts, deletes, reuse of slots, linking
# by the worker, and a new relation file. I2, I3, I4.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use GpuannTest;
use PostgreSQL::Test::Cluster;
use ServerTest;
use Test::More;

my $dims = 16;
my $node = server_node('main');

ok(await_server($node), 'the server starts with the cluster');
is(status($node, 'engine'), engine(), 'it uses the engine that was set');
make_data($node, 3000, $dims);
ok(await_mirror($node), 'a scan brings a mirror');
is(figure($node, 'mirror_rows'), 3000, 'the mirror has every row');

sub same
{
	my ($what) = @_;

	is(by_server($node, 'SET gpuann.exact = on;'), by_table($node), "$what: exact answers are the table's");
	same_graph_answers($node, $node, "$what: graph answers are the pages'");
}

# Every row, by one scan until there are no more; through a channel, for no payload holds so many. Without a LIMIT it is exact; with one it goes through
# the graph first under relaxed_order.
sub drained
{
	my ($settings) = @_;
	my $most = $settings =~ /relaxed/ ? 1000000 : 'NULL';
	return $node->safe_psql('postgres', qq{
SET enable_seqscan = off; SET enable_sort = off; $settings
WITH drained AS MATERIALIZED (SELECT ctid FROM items ORDER BY v <-> (SELECT vec(1, $dims)) LIMIT $most)
SELECT count(*) = (SELECT count(*) FROM items), count(DISTINCT ctid) = (SELECT count(*) FROM items) FROM drained;
});
}

same('built');
is(drained("SET gpuann.fallback = error; SET gpuann.iterative_scan = $_;"), 't|t', "$_: a drained scan through the server gives every row once")
  foreach 'complete', 'relaxed_order';

# Rows too few to be linked: the mirror searches them exactly.
fill_rows($node, 10001, 10400, $dims);
ok(await('the mirror has the new rows', sub { figure($node, 'mirror_rows') == 3400 }), 'new rows reach the mirror');
same('inserted');

# Enough for the worker to link; the list is trimmed a pass later.
fill_rows($node, 11001, 12000, $dims);
fill_rows($node, 12001, 13200, $dims);
ok(await_mirror($node), 'the mirror follows');
same('linked');
ok(await('few rows are pending', sub {
	$node->safe_psql('postgres', qq{
SET enable_seqscan = off;
SELECT id FROM items ORDER BY v <-> (SELECT vec(1, $dims)) LIMIT 1;
SELECT pending FROM gpuann_last_scan()}) =~ /\n(\d+)$/ && $1 < 1000;
}), 'the worker links rows when there are many');
check_index($node, 'linked by the worker');
is(figure($node, 'state'), 'ready', 'linking does not cost the mirror');

# Deaths, and slots used again.
$node->safe_psql('postgres', 'DELETE FROM items WHERE id % 5 = 0');
same('deleted');
$node->safe_psql('postgres', 'VACUUM items');
same('vacuumed');
fill_rows($node, 20001, 20500, $dims);
ok(await_mirror($node), 'the mirror follows');
same('used again');
is(drained('SET gpuann.fallback = error;'), 't|t', 'every row once, used slots too');
check_index($node, 'at the end');

# Inside the transaction that changes rows, which the mirror may or may not have seen.
is($node->safe_psql('postgres', qq{
SET enable_seqscan = off;
BEGIN;
INSERT INTO items VALUES (90001, vec(424242, $dims));
SELECT id FROM items ORDER BY v <-> (SELECT vec(424242, $dims)) LIMIT 1;
DELETE FROM items WHERE id = 90001;
SELECT id = 90001 FROM items ORDER BY v <-> (SELECT vec(424242, $dims)) LIMIT 1;
ROLLBACK;
SELECT id = 90001 FROM items ORDER BY v <-> (SELECT vec(424242, $dims)) LIMIT 1;
}), "90001\nf\nf", 'a transaction sees its own changes, and nobody else does');

# A new file has a new mirror; the counters go on.
my $scans = figure($node, 'scans');
$node->safe_psql('postgres', 'REINDEX INDEX items_v');
ok(await_mirror($node), 'a rebuilt index gets a mirror');
same('rebuilt');
cmp_ok(figure($node, 'scans'), '>', $scans, 'and keeps its counters');
$node->safe_psql('postgres', 'TRUNCATE items');
fill_rows($node, 1, 700, $dims);
ok(await_mirror($node), 'so does a truncated one');
same('truncated and filled');

is(figure($node, 'fallback_invalid_answer + fallback_engine_error + fallback_server_died + fallback_timeout'), 0,
	'no answer was wrong, late or missing');
$node->stop;
done_testing();
