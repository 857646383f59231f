# An index whose mirror does not fit on the GPU: answered from pages with the reason, unless gpuann.host_rows_limit lets its vectors go on in
# host memory. Then the server answers as it does for any, through inserts, updates and VACUUM, and the views say where the vectors are. I5, I7.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use GpuannTest;
use PostgreSQL::Test::Cluster;
use ServerTest;
use Test::More;

# The CPU engine has no device: the emulated one stands in for a GPU, with memory in units as large.
$ENV{GPUANN_TEST_ENGINE} = 'emulated' if ($ENV{GPUANN_TEST_ENGINE} || 'cpu') eq 'cpu';
plan skip_all => 'the emulated engine is not built' if $ENV{GPUANN_TEST_ENGINE} eq 'emulated' && !-e "$FindBin::RealBin/../test/build/cuda_emulated.so";

$ENV{GPUANN_EMULATE_UNIT} = 2 << 20;

my $dims = 1600;
my $rows = 2500;
my $mb = 1 << 20;
my $node = server_node('main', conf => [ "gpuann.request_timeout = '300s'" ]);

# Change a setting of the server, and wait for the server that has it.
sub set
{
	my ($setting) = @_;
	my $pid = server_pid($node);

	$node->append_conf('postgresql.conf', $setting);
	$node->reload;
	ok(await('another server runs', sub { my $now = server_pid($node); $now && $now ne $pid && status($node, 'state') eq 'ready' }, 180),
		"a server runs with $setting");
}

# Ask until the mirror is in a state.
sub await_state
{
	my ($state) = @_;
	return await("the mirror is $state", sub {
		$node->safe_psql('postgres', "SET gpuann.request_timeout = '1s'; SET enable_seqscan = off; SELECT id FROM items ORDER BY v <-> (SELECT vec(1, $dims)) LIMIT 1");
		figure($node, 'state') eq $state }, 180);
}

# The nearest rows of some queries, and how many scans the server answered meanwhile.
sub found_by
{
	my ($settings) = @_;
	my $before = figure($node, 'server_answers');
	my $found = join "\n", map { $node->safe_psql('postgres', "SET enable_seqscan = off; $settings
		SELECT string_agg(id || ':' || round(d::numeric, 3), ',') FROM (SELECT id, v <-> (SELECT vec($_, $dims)) AS d FROM items
			ORDER BY v <-> (SELECT vec($_, $dims)) LIMIT 5) x") } (3, 1777, 900003);

	return ($found, figure($node, 'server_answers') - $before);
}

# The server's exact answers are those of the pages, and its others are right in the first place.
sub server_is_right
{
	my ($what) = @_;
	my ($pages) = found_by('SET gpuann.server = off; SET gpuann.exact = on;');
	my ($exact, $by_server) = found_by('SET gpuann.exact = on;');
	my ($graph) = found_by('SET gpuann.ef_search = 200;');

	is($exact, $pages, "$what: exact answers are those of the pages");
	cmp_ok($by_server, '>=', 3, "$what: the server gave them");
	is($graph =~ s/,.*//gmr, $pages =~ s/,.*//gmr, "$what: others are right");
}

ok(await_server($node), 'the server runs');
is(status($node, 'host_rows_limit'), 0, 'unless told to, it keeps no vectors in host memory');
# Hardly more than what it takes without mirrors; then all that the mirror says it needs, but for a third of its vectors. What it needs beside them
# depends on the units in which a device maps memory.
my $bare = status($node, 'memory_used');
my $own = status($node, 'memory_used - memory_context');
set("gpuann.gpu_memory_limit = '" . (int($bare / $mb) + 1) . "MB'");
make_data($node, $rows, $dims);
ok(await_state('refused'), 'without memory the mirror is refused');
like(figure($node, 'reason'), qr/\d+ more bytes of mirror do not fit: \d+ of \d+/, 'with figures');
my ($needed) = figure($node, 'reason') =~ /(\d+) more bytes/;
note("$bare bytes without a mirror, $needed for it");
set("gpuann.gpu_memory_limit = '" . int(($bare + $needed - $rows * $dims * 4 / 3) / $mb) . "MB'");
ok(await_state('refused'), 'without host memory the mirror is refused');
is(status($node, 'memory_used - memory_context'), $own, 'which takes no memory');
found_by('');
cmp_ok(figure($node, 'fallback_refused'), '>', 0, 'scans from pages are counted');

set("gpuann.host_rows_limit = '64MB'");
ok(await_state('ready'), 'with it, the mirror is there');
cmp_ok(figure($node, 'mirror_host_bytes'), '>', $rows * $dims * 4 / 3, 'the view says how much of it is in host memory');
is(status($node, 'host_rows_used'), figure($node, 'mirror_host_bytes'), 'and so does the server');
cmp_ok(status($node, 'memory_used'), '<=', status($node, 'memory_limit'), 'the limit of the device holds');
like(PostgreSQL::Test::Utils::slurp_file($node->logfile), qr/does not fit on the device: its vectors go on in host memory/, 'and the log');
like(PostgreSQL::Test::Utils::slurp_file($node->logfile), qr/is refused for a while\n.*DETAIL:  \d+ more bytes of mirror do not fit: \d+ of \d+/, 'which has told why it was refused before');
server_is_right('loaded');

$node->safe_psql('postgres', "INSERT INTO items SELECT i, vec(i, $dims) FROM generate_series(900001, 900100) i;
	UPDATE items SET v = vec(id + 5000, $dims) WHERE id % 50 = 27; DELETE FROM items WHERE id % 50 = 3 AND id < 900000");
$node->safe_psql('postgres', 'VACUUM (INDEX_CLEANUP on) items');
$node->safe_psql('postgres', "INSERT INTO items SELECT i, vec(i, $dims) FROM generate_series(900101, 900140) i");
ok(await('it has caught up', sub { figure($node, "state || ' ' || mirror_lag || ' ' || mirror_change_lag") eq 'ready 0 0' }, 180), 'the mirror follows');
server_is_right('changed');
cmp_ok(figure($node, 'mirror_host_bytes'), '>', 0, 'its vectors are still in host memory');

# The engine links such a mirror, or, where it lacks memory for that, the worker links over pages. It does not repair it: what VACUUM changes, the
# mirror takes from the pages.
sub pending { return $node->safe_psql('postgres', "SELECT pending FROM gpuann_stats('items_v')") }
sub is_current { return await('it has caught up', sub { figure($node, "state || ' ' || mirror_lag || ' ' || mirror_change_lag") eq 'ready 0 0' }, 180) }

$node->safe_psql('postgres', "INSERT INTO items SELECT i, vec(i, $dims) FROM generate_series(910001, 910150) i");
ok(await('most rows are linked', sub { pending() < 100 }, 180), 'the worker links rows that come');
ok(is_current(), 'the mirror has their edges');
server_is_right('linked');
is($node->psql('postgres', "SELECT gpuann_check('items_v')"), 0, 'the index is sound');

$node->safe_psql('postgres', "INSERT INTO items SELECT i, vec(i, $dims) FROM generate_series(912001, 912050) i");
cmp_ok($node->safe_psql('postgres', "SELECT gpuann_link('items_v')"), '>=', 50, 'a session links itself');
is(pending(), '0', 'all of them');
my $changes = figure($node, 'mirror_changes');
$node->safe_psql('postgres', 'DELETE FROM items WHERE id % 5 = 2');
is($node->psql('postgres', 'VACUUM (INDEX_CLEANUP on) items', stderr => \my $said), 0, 'VACUUM ends well');
unlike($said, qr/WARNING/, 'without a warning');
ok(is_current(), 'the mirror follows');
cmp_ok(figure($node, 'mirror_changes'), '>', $changes, 'changes of pages');
server_is_right('repaired over pages');

$node->safe_psql('postgres', 'DROP TABLE items');
ok(await('host memory is free', sub { status($node, 'host_rows_used') == 0 }, 60), 'a dropped index leaves nothing in host memory');
$node->stop;
done_testing();
