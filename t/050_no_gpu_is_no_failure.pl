# gpuann.engine = auto without a usable GPU: the pages answer, nothing is copied into a server, and nothing of that counts as a failure.
# Workers link pending rows all the same. cpu asks for mirrors; a GPU that comes or goes is noticed.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use FaultTest;
use File::Copy qw(copy);
use GpuannTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

need_fault_engine();

# What the server takes for a GPU's engine: not there yet.
my $gpu = PostgreSQL::Test::Utils::tempdir() . '/gpu.so';
my $wrapper = "$FindBin::RealBin/../test/build/fault_engine.so";
my $dims = 32;
my $node = fault_node('main', conf => [ "gpuann.engine = 'auto'", "gpuann.engine_library = '$gpu'", 'gpuann.pending_limit = 1000000' ]);
my $failures = join(' + ', map { "fallback_$_" } qw(off no_server not_loaded refused behind timeout server_died engine_error invalid_answer slot_busy too_large));

sub no_gpu
{
	return await('no GPU is found', sub { status($node, 'state') eq 'no_gpu' });
}

sub set
{
	my ($setting) = @_;
	$node->append_conf('postgresql.conf', $setting);
	$node->reload;
}

# Which path answers a search for a row, and why; the row that it finds.
sub ask
{
	my ($id, $settings) = @_;
	return $node->safe_psql('postgres', 'SET enable_seqscan = off; ' . ($settings // '')
		  . "SELECT id FROM items ORDER BY v <-> vec($id, $dims) LIMIT 1; SELECT path || ' ' || coalesce(fallback_reason, 'none') FROM gpuann_last_scan()");
}

# ---- the pages answer, and that is no failure ----

ok(no_gpu(), 'the status says that there is no GPU');
like(status($node, 'last_error'), qr/^no usable GPU is found: .*\Q$gpu\E/, 'and why');
is(status($node, 'restarts'), 0, 'no server has died');
make_data($node, 3000, $dims);
is(ask(77), "77\npages no_gpu", 'the pages answer, with a reason of its own');
is(figure($node, "fallback_no_gpu || ' ' || ($failures)"), '1 0', 'which is counted apart from all failures');
like(figure($node, "state || ': ' || reason"), qr/^none: no usable GPU/, 'the index has no mirror, and the view says why');
is(status($node, "mirrors_ready + mirrors_loading + memory_used"), 0, 'nothing is held in memory');
is(log_count($node, qr/is searched in its pages/), 0, 'no scan is logged as a failure');
# The launcher logs it, once it has seen the server's end.
await('the log has it', sub { log_count($node, qr/LOG:  no usable GPU is found/) >= 1 }, 60);
is(log_count($node, qr/LOG:  no usable GPU is found/), 1, 'the log says once that there is no GPU,');
is(log_count($node, qr/HINT:  gpuann\.engine = 'cpu' asks for a server on CPU threads/), 1, 'and what asks for a server all the same');

my ($status, $out, $err) = $node->psql('postgres', "SET enable_seqscan = off; SET gpuann.fallback = notice; SELECT id FROM items ORDER BY v <-> vec(5, $dims) LIMIT 1");
like($err, qr/NOTICE:  gpuann index is searched in its pages: no usable GPU is found/, 'who asks for notices gets one');
($status, $out, $err) = $node->psql('postgres', "SET enable_seqscan = off; SET gpuann.fallback = error; SELECT id FROM items ORDER BY v <-> vec(5, $dims) LIMIT 1");
like($err, qr/ERROR:  .*no usable GPU is found.*HINT:  .*gpuann\.engine/s, 'who asks for errors gets one, with a hint');

# ---- what asks for a mirror ----

($status, $out, $err) = $node->psql('postgres', "SELECT gpuann_prewarm('items_v')");
like($err, qr/ERROR:  index "items_v" cannot be mirrored: no usable GPU is found.*HINT:  .*gpuann\.engine = 'cpu'/s, 'gpuann_prewarm says what to do');
is($node->safe_psql('postgres', "SELECT gpuann_evict('items_v')"), 'f', 'there is nothing to evict');
fill_rows($node, 3001, 3050, $dims);
is($node->safe_psql('postgres', "SELECT gpuann_link('items_v')"), 50, 'gpuann_link links');
is(ask(3040), "3040\npages no_gpu", 'and the rows are found');
is($node->safe_psql('postgres', "REINDEX INDEX items_v; SELECT gpuann_check('items_v')"), '', 'an index is built');

# ---- workers link, without a mirror ----

is(ask(78), "78\npages no_gpu", 'the new index answers');
fill_rows($node, 3051, 5000, $dims);
ok(await('the rows are linked', sub { $node->safe_psql('postgres', "SELECT pending < 1000 FROM gpuann_stats('items_v')") eq 't' }),
	'a worker links what waits, long before an insert would');
fill_rows($node, 5001, 5200, $dims);
ok(await('the rest is linked', sub { $node->safe_psql('postgres', "SELECT pending < 100 FROM gpuann_stats('items_v')") eq 't' }),
	'and smaller numbers of rows when they have waited for a while');
is(ask(4711), "4711\npages no_gpu", 'the rows are found');
is($node->safe_psql('postgres', "SELECT gpuann_check('items_v')"), '', 'the index is sound');
is($node->safe_psql('postgres', "SELECT reachable FROM gpuann_stats('items_v')"), 1, 'and every row that is linked can be reached');
$node->safe_psql('postgres', 'DELETE FROM items WHERE id % 2 = 0; VACUUM items');
is(ask(4711), "4711\npages no_gpu", 'after VACUUM too');
is(status($node, "mirrors_ready + mirrors_loading + memory_used"), 0, 'still nothing is held in memory');

# ---- cpu asks for mirrors ----

set("gpuann.engine = 'cpu'");
ok(await_mirror($node), 'with gpuann.engine = cpu the index gets a mirror');
is(ask(79), "79\nserver none", 'which answers');
set("gpuann.engine = 'auto'");
ok(no_gpu(), 'with auto the server goes');
is(ask(81), "81\npages no_gpu", 'and the pages answer');
is(status($node, "mirrors_ready + mirrors_loading + memory_used"), 0, 'the memory is given back');

# ---- a GPU that comes and goes ----

copy($wrapper, $gpu) or die "$gpu: $!";
$node->reload;
ok(await_mirror($node), 'a GPU that has appeared is used');
is(ask(83), "83\nserver none", 'it answers');
unlink $gpu;
kill 'KILL', server_pid($node);
ok(no_gpu(), 'one that disappears with its server leaves no server');
is(ask(85), "85\npages no_gpu", 'and the pages answer');
await('the log has it again', sub { log_count($node, qr/LOG:  no usable GPU is found/) >= 3 }, 60);
is(log_count($node, qr/LOG:  no usable GPU is found/), 3, 'each time that none is found any more the log says so, once');

$node->restart;
ok(no_gpu(), 'a restart finds no GPU');
is(ask(87), "87\npages no_gpu", 'and the pages answer');
$node->stop;
done_testing();
