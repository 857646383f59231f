# A server that stands still for gpuann.server_timeout is ended and replaced; scans that wait for it go on at once. I5.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use GpuannTest;
use PostgreSQL::Test::Cluster;
use ServerTest;
use Test::More;
use Time::HiRes qw(time);

my $dims = 8;
my $node = server_node('main', conf => [ "gpuann.server_timeout = '3s'", "gpuann.request_timeout = '300s'" ]);

make_data($node, 1000, $dims);
ok(await_mirror($node), 'the mirror is there');
my $expected = by_table($node);
my $pid = server_pid($node);
my $epoch = status($node, 'epoch');

kill 'STOP', $pid;
my $begun = time;
is($node->safe_psql('postgres', "SET enable_seqscan = off;
	SELECT count(*) FROM (SELECT id FROM items ORDER BY v <-> (SELECT vec(7, $dims)) LIMIT 10) n"), 10, 'a waiting scan is answered');
cmp_ok(time - $begun, '<', 150, 'when the server is given up, not after its own timeout');
cmp_ok(figure($node, 'fallback_server_died'), '>', 0, 'the counter says why');
is(log_count($node, qr/LOG:  gpuann index "items_v" is searched in its pages: the server died/), 1, 'and the log');
ok(await('another server runs', sub { my $now = server_pid($node); $now && $now ne $pid && status($node, 'state') eq 'ready' }),
	'the server is replaced');
ok(!alive($pid), 'the stopped one is gone');
is(status($node, 'epoch'), $epoch + 1, 'in a new epoch');
is(status($node, 'last_error'), 'the server stood still and was ended', 'the status says why');
is(log_count($node, qr/has stood still for \d+ ms and is ended/), 1, 'the log says so, once');
ok(await_mirror($node), 'the mirror is loaded again');
is(by_server($node, 'SET gpuann.exact = on;'), $expected, 'and right');

# Busy is not still.
my $now = server_pid($node);
$node->pgbench('-n -c 4 -T 4 -M prepared', 0, [qr/processed/], [qr/^$/], 'searches',
	{ search => "SELECT id FROM items ORDER BY v <-> vec(:client_id, $dims) LIMIT 10;" });
is(server_pid($node), $now, 'a busy server is left alone');
$node->stop;
done_testing();
