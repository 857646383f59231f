# Which of gpuann.server, gpuann.fallback, gpuann.engine, the option mirror and gpuann.exact wins over which: as docs/reference.md says under
# "Which setting wins", in both ways in which PostgreSQL scans an index.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use GpuannTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my $node = server_node('main');
my $rows = "SELECT i, ARRAY[i, i % 7, i % 11] FROM generate_series(1, 500) i";

foreach my $table ('items', 'unmirrored')
{
	$node->safe_psql('postgres', "CREATE TABLE $table (id int, v vector(3)); INSERT INTO $table $rows;
		CREATE INDEX ${table}_v ON $table USING gpuann (v vector_l2_ops)" . ($table eq 'unmirrored' ? ' WITH (mirror = off)' : ''));
}
my $temporary = "SET client_min_messages = warning; CREATE TEMP TABLE here (id int, v vector(3)); INSERT INTO here $rows;
	CREATE INDEX here_v ON here USING gpuann (v vector_l2_ops); RESET client_min_messages;";

# A scan that goes to the pages has this reason; with fallback = notice or error the session is told, or not.
sub goes_to_pages
{
	my ($what, $settings, $table, $reason, $told) = @_;

	foreach my $plan_node ('on', 'off')
	{
		# In strict order so few rows are searched, too; else all are compared, which is cheaper.
		my $sql = ($table eq 'here' ? $temporary : '') . "SET enable_seqscan = off; SET enable_sort = off; SET gpuann.iterative_scan = strict_order;
			SET gpuann.plan_node = $plan_node; $settings";
		my $ask = "SELECT id FROM $table ORDER BY v <-> '[77,0,0]' LIMIT 1";
		my ($rc, $out, $err) = $node->psql('postgres', "$sql; SET gpuann.fallback = notice; $ask; SELECT path, fallback_reason FROM gpuann_last_scan()");

		is($out, "77\npages|$reason", "$what, plan_node $plan_node: the pages answer, the reason is $reason");
		is(scalar(() = $err =~ /NOTICE:  gpuann index is searched in its pages/g), $told, "$what, plan_node $plan_node: " . ($told ? 'a' : 'no') . ' notice');
		($rc, $out, $err) = $node->psql('postgres', "$sql; SET gpuann.fallback = error; $ask");
		is($err =~ /ERROR:  gpuann index cannot be searched by the server/ ? 1 : 0, $told, "$what, plan_node $plan_node: " . ($told ? 'an' : 'no') . ' error');
	}
}

# What the session, the index and the kind of table decide, whatever the engine is.
sub off_wins
{
	my ($what) = @_;

	goes_to_pages("$what: a temporary table", '', 'here', 'off', 1);
	goes_to_pages("$what: a temporary table and server = off", 'SET gpuann.server = off', 'here', 'off', 0);
	goes_to_pages("$what: server = off", 'SET gpuann.server = off', 'items', 'off', 0);
	goes_to_pages("$what: mirror = off", '', 'unmirrored', 'off', 1);
	goes_to_pages("$what: mirror = off and server = off", 'SET gpuann.server = off', 'unmirrored', 'off', 0);
}

# ---- a server that can answer ----

ok(await_server($node), 'the server is ready');
ok(await_mirror($node), 'the mirror is ready');
off_wins('a server');
foreach my $plan_node ('on', 'off')
{
	foreach my $server ('on', 'off')
	{
		my $sql = "SET enable_seqscan = off; SET enable_sort = off; SET gpuann.plan_node = $plan_node; SET gpuann.server = $server;
			SET gpuann.fallback = error; SET gpuann.ef_search = 10; SET gpuann.iterative_scan = off; SET gpuann.max_scan_tuples = 1;";
		my $all = "SELECT count(*) FROM (SELECT id FROM items ORDER BY v <-> '[77,0,0]' LIMIT 400) s;
			SELECT path, engine IS NOT NULL FROM gpuann_last_scan()";
		my $served = $server eq 'on' ? 't' : 'f';

		is($node->safe_psql('postgres', "$sql $all"), "10\n" . ($server eq 'on' ? 'server' : 'pages') . "|$served",
			"plan_node $plan_node, server $server: ef_search bounds a scan that may not continue");
		is($node->safe_psql('postgres', "$sql SET gpuann.exact = on; $all"), "400\nexact|$served",
			"plan_node $plan_node, server $server: exact wins over that, and does not choose who answers");
	}
}

# ---- no server ----

$node->append_conf('postgresql.conf', "gpuann.engine_library = '/nonexistent/engine.so'\ngpuann.engine = auto");
$node->reload;
ok(await('no GPU is found', sub { status($node, 'state') eq 'no_gpu' }), 'engine = auto finds no GPU');
off_wins('no GPU');
goes_to_pages('engine = auto', '', 'items', 'no_gpu', 1);
$node->append_conf('postgresql.conf', 'gpuann.engine = cuda');
$node->reload;
ok(await('the engine has failed', sub { status($node, 'state') !~ /^(?:no_gpu|ready)$/ }), 'engine = cuda has no GPU');
goes_to_pages('engine = cuda', '', 'items', 'no_server', 1);
$node->append_conf('postgresql.conf', "shared_preload_libraries = ''");
$node->restart;
off_wins('not preloaded');
goes_to_pages('not preloaded', '', 'items', 'not_preloaded', 1);
$node->stop;
done_testing();
