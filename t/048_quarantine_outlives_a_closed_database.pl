# An index in quarantine stays there when no mirror worker can connect to its database, as while that allows no connections: it would crash the
# server again when it does. I6.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use GpuannTest;
use PgSession;
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

make_data($node, 300, $dims);
ok(await('the index is refused', sub {
	$node->safe_psql('postgres', "SET enable_seqscan = off; SELECT id FROM items ORDER BY v <-> (SELECT vec(77, $dims)) LIMIT 1");
	figure($node, 'state') eq 'refused';
}), 'an index is in quarantine');
my $why = figure($node, 'reason');
like($why, qr/the server crashed 3 times/, 'the view says so');
$node->safe_psql('postgres', 'SET gpuann.server = off; CREATE TABLE others AS SELECT * FROM items; CREATE INDEX others_v ON others USING gpuann (v vector_l2_ops)');
ok(await_server($node), 'the server runs again');

# Somebody who is connected asks for another index's mirror, and no worker can come.
my $session = PgSession->new($node);
$session->rows('SET enable_seqscan = off');
$node->safe_psql('template1', 'ALTER DATABASE postgres ALLOW_CONNECTIONS false');
$node->safe_psql('template1', "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'gpuann mirror worker'");

sub reason { return $session->rows("SELECT reason FROM pg_stat_gpuann WHERE indexrelname = '$_[0]'") }

ok(await('a worker has failed', sub {
	$session->rows('SELECT id FROM others ORDER BY v <-> (SELECT v FROM others LIMIT 1) LIMIT 1');
	return reason('others_v') =~ /no mirror worker could connect/;
}), 'no worker can connect');
is(reason('items_v'), $why, 'the quarantine holds');
$node->stop('immediate');
done_testing();
