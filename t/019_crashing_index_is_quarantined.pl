# Three crashes of the server while it works on one index put that index into quarantine: its scans are answered from pages, visibly, the
# server's other indexes are served. REINDEX is a new start. I5, I6.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use GpuannTest;
use PostgreSQL::Test::Cluster;
use ServerTest;
use Test::More;

my $stub = "$FindBin::RealBin/../test/build/stub_engine.so";
plan skip_all => 'test/build/stub_engine.so is not built' unless -e $stub;

my $dims = 4;
# Each server crashes at its fourth query.
local $ENV{GPUANN_STUB} = 'crash_after=4';
my $node = new_node('main', preload => 'gpuann',
	conf => [ "gpuann.engine = 'cuda'", "gpuann.engine_library = '$stub'" ]);
my $search = "SET enable_seqscan = off; SELECT id FROM items ORDER BY v <-> (SELECT vec(77, $dims)) LIMIT 1";

make_data($node, 300, $dims);
foreach my $crash (1 .. 3)
{
	ok(await("server $crash has crashed", sub {
		is($node->safe_psql('postgres', $search), 77, 'every scan is right') if $crash == 1;
		$node->safe_psql('postgres', $search);
		return status($node, 'restarts') >= $crash;
	}), "server $crash crashes");
}
ok(await('the index is refused', sub { figure($node, 'state') eq 'refused' }), 'then the index is in quarantine');
is(figure($node, 'reason'), 'the server crashed 3 times while it worked on this index', 'the view says why');
is(log_count($node, qr/is answered from its pages from now on/), 1, 'and the log');

ok(await_server($node), 'the server runs again');
my $restarts = status($node, 'restarts');
my $refused = figure($node, 'fallback_refused');
is($node->safe_psql('postgres', $search), 77, 'scans are answered from pages') foreach 1 .. 5;
is(figure($node, 'fallback_refused'), $refused + 5, 'counted as refused');
is(status($node, 'restarts'), $restarts, 'the server crashes no more');

$node->safe_psql('postgres', 'CREATE TABLE others AS SELECT * FROM items; CREATE INDEX others_v ON others USING gpuann (v vector_l2_ops)');
ok(await('another index is served', sub {
	$node->safe_psql('postgres', 'SET enable_seqscan = off; SELECT id FROM others ORDER BY v <-> (SELECT v FROM others LIMIT 1) LIMIT 1');
	return figure($node, 'state', 'others_v') eq 'ready';
}), 'another index is served');
is(figure($node, 'state'), 'refused', 'while this one is not');

$node->safe_psql('postgres', 'REINDEX INDEX items_v');
ok(await('the mirror is wanted', sub {
	$node->safe_psql('postgres', $search);
	return figure($node, 'state') ne 'refused';
}), 'REINDEX lets it try again');
$node->stop('immediate');
done_testing();
