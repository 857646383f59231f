# The launcher: an engine that cannot run here leaves everything to the pages and says so; changed settings restart the server; a mirror
# that does not fit is refused with figures; the launcher itself can be ended. Nothing of this needs preloading to work from pages.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use GpuannTest;
use PostgreSQL::Test::Cluster;
use ServerTest;
use Test::More;

my $dims = 128;
my $node = server_node('main');

make_data($node, 4000, $dims);
ok(await_mirror($node), 'the mirror is there');
my $expected = by_table($node);
my $pid = server_pid($node);

sub set
{
	my ($setting) = @_;
	$node->append_conf('postgresql.conf', $setting);
	$node->reload;
}

# Too little memory for this mirror, then enough.
set("gpuann.gpu_memory_limit = '1MB'");
ok(await('another server runs', sub { my $now = server_pid($node); $now && $now ne $pid && status($node, 'state') eq 'ready' }),
	'a changed limit restarts the server');
ok(await('the mirror is refused', sub { by_pages($node); $node->safe_psql('postgres',
	"SET enable_seqscan = off; SELECT id FROM items ORDER BY v <-> (SELECT vec(1, $dims)) LIMIT 1");
	figure($node, 'state') eq 'refused' }), 'a mirror that does not fit is refused');
like(figure($node, 'reason'), qr/\d/, 'with figures');
is($node->safe_psql('postgres', "SET gpuann.exact = on; SET enable_seqscan = off;
	SELECT id FROM items ORDER BY v <-> (SELECT vec(77, $dims)) LIMIT 1"), 77, 'scans are answered from pages');
cmp_ok(figure($node, 'fallback_refused'), '>', 0, 'the counter says why');
set("gpuann.gpu_memory_limit = '512MB'");
ok(await_mirror($node), 'with more memory it is loaded');
is(by_server($node, 'SET gpuann.exact = on;'), $expected, 'and right');

# The limit holds over what the mirrors use.
cmp_ok(status($node, 'memory_used'), '<=', status($node, 'memory_limit'), 'memory used is below the limit');

SKIP:
{
	skip 'a GPU may be usable here', 4 if -e '/dev/nvidiactl';

	set("gpuann.engine = 'cuda'");
	ok(await('the server has failed', sub { status($node, 'state') eq 'failed' }), 'an engine that cannot run is no server');
	like(status($node, 'last_error'), qr/\w/, 'the status says why: ' . status($node, 'last_error'));
	is($node->safe_psql('postgres', "SET gpuann.exact = on; SET enable_seqscan = off;
		SELECT id FROM items ORDER BY v <-> (SELECT vec(78, $dims)) LIMIT 1"), 78, 'scans are answered from pages');
	set("gpuann.engine = 'cpu'");
	ok(await_mirror($node), 'another engine is tried at once, without waiting for the delay');
}

# Without its launcher the server ends; the postmaster starts another launcher, and that another server.
$pid = server_pid($node);
my $launcher = launcher_pid($node);
kill 'TERM', $launcher;
ok(await('the server is gone', sub { !alive($pid) }), 'a server ends with its launcher');
is($node->safe_psql('postgres', "SELECT 1"), 1, 'the cluster does not');
ok(await('another launcher runs', sub { my $now = launcher_pid($node); $now && $now ne $launcher }), 'the launcher is started again');
ok(await_mirror($node), 'everything comes back');
is(by_server($node, 'SET gpuann.exact = on;'), $expected, 'as it was');

# Without preloading: pages only, and settings are known.
set("shared_preload_libraries = ''");
$node->restart;
is(status($node, 'state'), 'off', 'without preloading there is no server');
like(status($node, 'last_error'), qr/shared_preload_libraries/, 'and the status says how to get one');
is(by_pages($node, 'SET gpuann.exact = on;'), $expected, 'the index answers');
my $scan = "SET enable_seqscan = off; SELECT count(*) FROM (SELECT id FROM items ORDER BY v <-> vec(1, $dims) LIMIT 3) s;";
is($node->safe_psql('postgres', "$scan SELECT path || ' ' || fallback_reason FROM gpuann_last_scan()"), "3\npages not_preloaded", 'a scan says why');
is($node->safe_psql('postgres', "SET gpuann.server = off; $scan SELECT path || ' ' || fallback_reason FROM gpuann_last_scan()"), "3\npages off",
	'one that does not want the server says that');
my ($rc, $out, $err) = $node->psql('postgres', "SET gpuann.fallback = error; $scan");
like($err, qr/cannot be searched by the server: gpuann is not in shared_preload_libraries\nHINT:  Add gpuann to shared_preload_libraries/,
	'one that wants nothing else fails, with a hint');
($rc, $out, $err) = $node->psql('postgres', "SELECT gpuann_prewarm('items_v')");
like($err, qr/gpuann runs without its server\nHINT:  Add gpuann to shared_preload_libraries and restart PostgreSQL\./, 'a mirror cannot be had, and a hint says how');
is($node->safe_psql('postgres', "SELECT count(*) FROM pg_stat_gpuann"), 0, 'the view is empty');
is(log_count($node, qr/invalid configuration parameter/), 0, 'no setting is unknown');

# With too little memory for the area: pages only, and the log says why. The limit on a file's size stands in for it.
$node->stop;
$node->append_conf('postgresql.conf', "shared_preload_libraries = 'gpuann'");
my @start = ('pg_ctl', '-w', '-D', $node->data_dir, '-l', $node->logfile, 'start');
is(system('bash', '-c', 'ulimit -f 25000; exec "$@" >/dev/null', 'bash', @start), 0, 'the cluster starts without an area');
is(status($node, 'state'), 'off', 'there is no server');
is(log_count($node, qr/WARNING:  gpuann runs without its server: could not allocate/), 1, 'the log says why');
is(by_pages($node, 'SET gpuann.exact = on;'), $expected, 'the index answers');
$node->safe_psql('postgres', 'CREATE DATABASE other; ');
$node->safe_psql('postgres', 'DROP DATABASE other');
is(system('pg_ctl', '-w', '-s', '-D', $node->data_dir, 'stop'), 0, 'and the cluster stops');
done_testing();
