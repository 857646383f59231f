# Where the server's engine has a device, lists are trained and filled there, and what comes later is put into them by it: the index is as good as one
# made by the backend, its mirror need not be loaded, and whatever the server does meanwhile, all ends well. I1, I5, I6, I7, I8.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use FaultTest;
use GpuannTest;
use PgSession;
use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;
use Time::HiRes qw(sleep time);

# Without a GPU the CPU engine calls itself one with a device: an emulated device learns slowly.
need_device();

my $dims = 16;
my $rows = 5000;
my $all = 'SET gpuann.probes = 10000; SET gpuann.rerank = 10000;';
my $node = fault_node('main', conf => [ 'log_min_messages = debug1', 'max_parallel_maintenance_workers = 2', 'max_parallel_workers = 4',
		'min_parallel_table_scan_size = 0', "gpuann.request_timeout = '120s'", "gpuann.server_timeout = '120s'", "maintenance_work_mem = '64MB'" ]);
my $session;
my $create = 'CREATE INDEX items_v ON items USING gpuann (v vector_l2_ops) WITH (method = ivfpq)';
my $reindex = 'REINDEX INDEX items_v';
my $here_in_log = qr/gpuann lists of index "items_v\w*" are made without the server/;
my $here = qr/^$here_in_log/;

sub built_there { return log_count($node, qr/gpuann index "\w+" was linked on the server/) }
sub loads { return log_count($node, qr/gpuann mirror of index \d+ loaded/) }
sub entries { return $node->safe_psql('postgres', 'SELECT count(*) FROM gpuann_stat_indexes()') }
sub lists { return $node->safe_psql('postgres', "SELECT $_[0] FROM gpuann_lists('items_v')") }
sub put_by_server { my $sum = 0; $sum += $_ foreach slurp_file($node->logfile) =~ /the server put (\d+) rows of gpuann index \d+ into lists/g; return $sum }

# A statement that builds one index on the server: nobody loads its mirror, and it answers as its pages do.
sub on_server
{
	my ($what, $statement) = @_;
	my ($there, $loads) = (built_there(), loads());
	my $answer = $session->query($statement);

	is(join("\n", $answer->{error}, grep { $_ =~ $here } @{ $answer->{notices} }), '', "$what: built");
	is(built_there() - $there, 1, "$what: on the server") or
	  diag((slurp_file($node->logfile) =~ /.*made without the server\n.*/g)[-1] // 'no reason is in the log');
	is($session->query("BEGIN; SET LOCAL gpuann.fallback = error; SELECT id FROM items ORDER BY v <-> vec(77, $dims) LIMIT 1; COMMIT")->{error}, '',
		"$what: the server answers at once");
	sleep 0.3;
	is(loads() - $loads, 1, "$what: the mirror is not loaded again");
	check_index($node, $what);
}

# A statement that builds one index without the server, although it began there: and says so.
sub without_server
{
	my ($what, $answer, $reason) = @_;
	my $told = grep { $_ =~ $here } @{ $answer->{notices} };

	is($answer->{error}, '', "$what: built");
	is($told, 1, "$what: without the server, as a message says");
	like(slurp_file($node->logfile), $reason, "$what: and why") if defined $reason;
	right_after($node, $what);
}

# Wait until the engine holds what a build gave it, do something, and let it go. Returns what became of the build.
sub held
{
	my ($fault, $phase, $do) = @_;
	my $answer;

	faults("$fault=1");
	$session->send($reindex);
	ok(await_held("$fault holds"), "$fault: the build waits");
	ok(await($phase, sub { $node->safe_psql('postgres', 'SELECT phase FROM pg_stat_progress_create_index') eq "building index: $phase" }),
		"$fault: the view says so");
	$do->();
	$answer = $session->receive;
	faults('');
	return $answer;
}

sub quality
{
	my ($settings) = @_;
	return $session->rows("$settings; SELECT recall FROM gpuann_recall('items_v', 300, 10)") =~ s/.*\n//sr;
}

ok(await_server($node), 'the server runs');
make_data($node, $rows, $dims, no_index => 1);
$node->safe_psql('postgres', 'ANALYZE items');
$session = session($node);

# ---- statements that build ----

on_server('CREATE INDEX', $create);
right_after($node, 'CREATE INDEX');
is(lists("lists || ' ' || code_bits"), '282 4', 'where a GPU serves, four times the square root of the rows, and four bits a dimension');
$session->rows("SET gpuann.server = off; $reindex");
is(lists("lists || ' ' || code_bits"), '70 1', 'elsewhere the square root, and one bit');
$session->rows('RESET gpuann.server');

# As good as those that the backend makes, of every quantizer and metric.
foreach my $codes ('quantizer = rabitq, code_bits = 1', 'quantizer = int8', 'quantizer = pq', 'quantizer = pq, code_bits = 4, pq_m = 8')
{
	$session->rows("DROP INDEX items_v");
	on_server($codes, $create =~ s/ivfpq/ivfpq, lists = 100, probes = 12, $codes/r);
	same_list_answers($node, "$codes: some lists give what those of the pages give", 9);
	is(by_server($node, $all), by_table($node), "$codes: all lists give what the table gives");
	my ($there, $distance) = (quality('SET gpuann.server = off'), lists('built_distance'));
	$session->rows("SET gpuann.server = off; $reindex");
	cmp_ok($there, '>=', quality('SET gpuann.server = off') - 0.03, "$codes: recall is that of lists made by the backend ($there)");
	cmp_ok(abs($distance / lists('built_distance') - 1), '<', 0.05, "$codes: and rows are as near to their centroids");
	$session->rows('RESET gpuann.server');
}
foreach my $class ('halfvec_l2_ops', 'vector_cosine_ops', 'vector_ip_ops')
{
	my $table = $class =~ /^half/ ? 'halves' : 'others';
	my $type = $class =~ /^half/ ? "halfvec($dims)" : "vector($dims)";

	my $there = built_there();
	$session->rows("CREATE TABLE $table AS SELECT id, v::$type AS v FROM items; ANALYZE $table; CREATE INDEX ${table}_v ON $table USING gpuann (v $class) WITH (method = ivfpq)");
	is(built_there() - $there, 1, "$class: on the server");
	check_index($node, $class, "${table}_v");
	cmp_ok($session->rows("SELECT recall FROM gpuann_recall('${table}_v', 100, 10)"), '>=', 0.9, "$class: what is near is found");
	$session->rows("DROP TABLE $table");
}
$session->rows("DROP INDEX items_v; $create");
on_server('REINDEX', $reindex);
on_server('REINDEX CONCURRENTLY', 'REINDEX INDEX CONCURRENTLY items_v');
on_server('VACUUM FULL', 'VACUUM FULL items');
is(entries(), 1, 'one index has one mirror');

# Fewer rows than were expected: fewer lists, which a second mirror has.
on_server('a partial index', "DROP INDEX items_v; $create WHERE id <= 800");
is(lists('lists'), 50, 'a list of 16 rows or more');
$session->rows("DROP INDEX items_v; $create WHERE id < 0");
is(lists('lists'), 1, 'without rows one list');
check_index($node, 'without rows');
$session->rows("DROP INDEX items_v; $create");

# Not there: small tables, what is not to be mirrored, more lists than engines take.
my $count = built_there();
$session->rows("CREATE TABLE few AS SELECT * FROM items LIMIT 300; ANALYZE few; CREATE INDEX few_v ON few USING gpuann (v vector_l2_ops) WITH (method = ivfpq); DROP TABLE few");
$session->rows("CREATE TABLE off AS SELECT * FROM items; CREATE INDEX off_v ON off USING gpuann (v vector_l2_ops) WITH (method = ivfpq, mirror = off); DROP TABLE off");
$session->rows("CREATE TABLE off AS SELECT * FROM items; CREATE INDEX off_v ON off USING gpuann (v vector_l2_ops) WITH (method = ivfpq, lists = 20000); DROP TABLE off");
is(built_there(), $count, 'small tables, mirror = off, too many lists: the backend makes lists');

# ---- the server dies, stands still, refuses, lies ----

my $mirrored = entries();
without_server('killed while it loads', held('hold_append', 'loading tuples', sub { signal_server($node, 'KILL') }), qr/the server has stopped/);
ok(revive($node, $session), 'a server runs');
without_server('killed while it learns', held('hold_link', 'training lists', sub { signal_server($node, 'KILL') }));
ok(revive($node, $session), 'a server runs');
without_server('killed while it assigns', held('hold_place', 'filling lists', sub { signal_server($node, 'KILL') }));
ok(revive($node, $session), 'a server runs');
expect_service('after that', $node, $dims);
foreach my $fault ('hold_link', 'hold_place')
{
	my $phase = $fault eq 'hold_link' ? 'training lists' : 'filling lists';
	my $begun;

	like(held($fault, $phase, sub { $begun = time; $node->safe_psql('postgres', 'SELECT pg_cancel_backend(' . $session->pid . ')') })->{error},
		qr/canceling statement/, "$fault: cancelled");
	cmp_ok(time - $begun, '<', 60, "$fault: soon");
	ok(await('nothing is left', sub { entries() == $mirrored }), "$fault: cancelled, it leaves no mirror");
	on_server("after $fault", $reindex);
}
{
	my $pid = signal_server($node, 'STOP');

	$session->send($reindex);
	ok(!$session->is_done(5), 'the build waits for a server that stands still');
	kill 'CONT', $pid;
	is(join("\n", grep { $_ =~ $here } @{ $session->receive->{notices} }), '', 'and goes on there when it does');
	right_after($node, 'a server that stood still');
}
foreach my $fault (['create_memory=1', undef], ['append_error=1', undef], ['link_memory=1', qr/the test leaves 0 MB for links/], ['crash_append=1', qr/the server has stopped/])
{
	faults($fault->[0]);
	my $answer = $session->query($reindex);
	faults('');
	without_server($fault->[0], $answer, $fault->[1]);
	ok(revive($node, $session), "$fault->[0]: a server runs");
}
is(lists("lists || ' ' || code_bits"), '282 4', 'lists are as planned when the server fails later');
faults('create_memory=1');
$session->rows($reindex);
faults('');
is(lists("lists || ' ' || code_bits"), '70 1', 'and as pages like them when it cannot begin');
foreach my $lie (2, 4, 5, 7 .. 12)
{
	my $answer;

	faults("lie_link=$lie");
	$answer = $session->query($reindex);
	faults('');
	without_server("lie $lie", $answer, qr/the server (has not linked every row once|made a (?:graph row|code) that cannot be|gave a distance that cannot be|has learned other lists|has learned a centroid that is not finite)/);
}

SKIP:
{
	skip 'no fault points', 1 if $session->query('SHOW gpuann.fault')->{error} ne '';
	my $file = $node->data_dir . '/gpuann_fault.build-lists-filled';

	# After the first rows have been written; the others are asked for then.
	$session->rows("SET gpuann.fault = 'build-lists-filled wait 1'; SET maintenance_work_mem = '1MB'; DROP INDEX items_v");
	$session->rows("INSERT INTO items SELECT i, vec(i, $dims) FROM generate_series(200000, 290000) i; ANALYZE items");
	$session->send($create =~ s/ivfpq/ivfpq, lists = 100/r);
	ok(await('it writes', sub { -e $file }), 'a build writes what the server made');
	signal_server($node, 'KILL');
	sleep 0.2;
	unlink $file;
	without_server('killed while it is asked for rows', $session->receive);
	$session->rows('RESET gpuann.fault; RESET maintenance_work_mem; DELETE FROM items WHERE id >= 200000');
	$session->rows('VACUUM items');
	ok(revive($node, $session), 'a server runs');
}
$session->rows("DROP INDEX items_v; $create");

# ---- rows that come later ----

# Fewer than a hundred are not worth a pass, and may be left where one began while they came.
sub await_linked { my ($what) = @_; return ok(await($what, sub { $node->safe_psql('postgres', "SELECT pending FROM gpuann_stats('items_v')") < 100 }), "$what: rows are in lists") }
sub follows
{
	my ($what) = @_;

	ok(await("$what: the mirror follows", sub { figure($node, "state || ' ' || mirror_lag || ' ' || mirror_change_lag") eq 'ready 0 0' }), "$what: the mirror follows");
	is(by_server($node, $all), by_table($node), "$what: all lists give what the table gives");
	same_list_answers($node, "$what: some lists give what those of the pages give", 9);
	right_after($node, $what);
}

# The engine holds what is asked of it until a session waits, lest the worker has linked all rows by itself before.
my $put = put_by_server();
faults('hold_link=1');
fill_rows($node, 10001, 12000, $dims);
$session->send("SELECT gpuann_link('items_v')");
ok(await_held('the worker waits'), 'the worker waits for the engine');
ok(!$session->is_done(0.5), 'a session waits for the worker');
faults('');
cmp_ok($session->receive->{rows}[0], '>', 0, 'a session has the worker link');
await_linked('gpuann_link');
cmp_ok(put_by_server() - $put, '>=', 1999, 'the server has assigned them');
follows('gpuann_link');
cmp_ok(lists('added'), '>=', 2000, 'added rows are counted');
cmp_ok(abs(lists('drift')), '<', 0.5, 'and their distance') or diag(lists('drift'));
$put = put_by_server();
fill_rows($node, 20001, 22500, $dims);
await_linked('a worker by itself');
cmp_ok(put_by_server() - $put, '>', 2400, 'the server has assigned them');
follows('a worker by itself');
$session->rows('DELETE FROM items WHERE id % 5 = 2');
$session->rows('VACUUM items');
fill_rows($node, 30001, 32000, $dims);
$session->rows("SELECT gpuann_link('items_v')");
await_linked('in places of the dead');
follows('in places of the dead');

# The engine refuses, lies, or dies on the way.
faults('link_memory=1');
fill_rows($node, 40001, 41500, $dims);
await_linked('refused');
faults('');
like(slurp_file($node->logfile), qr/rows of gpuann index \d+ are linked over pages/, 'the log says that rows are linked over pages');
follows('refused');
foreach my $fault ('lie_link=2', 'lie_link=4', 'lie_link=5', 'lie_link=8', 'lie_link=11')
{
	my $from = 50001 + 3000 * ($fault =~ /(\d)/)[0];

	# Whoever was refused is asked again by another entry.
	$session->rows($reindex);
	faults($fault);
	fill_rows($node, $from, $from + 1500, $dims);
	$session->rows("SELECT gpuann_link('items_v')");
	await_linked($fault);
	faults('');
	follows($fault);
}
SKIP:
{
	skip 'no fault points', 1 if $session->query('SHOW gpuann.fault')->{error} ne '';
	# The mirror has rows in lists that the pages do not have.
	$session->rows($reindex);
	$node->append_conf('postgresql.conf', "gpuann.fault = 'worker-list-coded error'");
	$node->reload;
	fill_rows($node, 80001, 81500, $dims);
	ok(await('the worker fails', sub { log_count($node, qr/ERROR:.*worker-list-coded/) > 0 }), 'a worker fails before it writes');
	$node->append_conf('postgresql.conf', "gpuann.fault = ''");
	$node->reload;
	await_linked('cut short');
	follows('cut short');
}
$session->rows($reindex);
faults('hold_link=1');
fill_rows($node, 90001, 91500, $dims);
ok(await_held('the worker waits'), 'the worker waits for the engine');
signal_server($node, 'KILL');
faults('');
ok(revive($node, $session), 'a server runs');
await_linked('killed on the way');
follows('killed on the way');
$session->close;
$node->stop;

# ---- the device itself ----

if (emulate_device())
{
	my $device = fault_node('device', conf => [ 'log_min_messages = debug1', "gpuann.request_timeout = '120s'" ]);
	ok(await_server($device), 'a server that learns on the device');
	make_data($device, 1500, $dims, no_index => 1);
	$device->safe_psql('postgres', 'ANALYZE items');
	$device->safe_psql('postgres', $create);
	is(log_count($device, qr/gpuann index "items_v" was linked on the server/), 1, 'builds there');
	right_after($device, 'built on the device');
	same_list_answers($device, 'built on the device', 9);
	fill_rows($device, 5001, 6500, $dims);
	$device->safe_psql('postgres', "SELECT gpuann_link('items_v')");
	ok(await('linked', sub { $device->safe_psql('postgres', "SELECT pending FROM gpuann_stats('items_v')") eq '0' }), 'and links');
	cmp_ok(log_count($device, qr/the server put [1-9]\d* rows/), '>', 0, 'there');
	right_after($device, 'linked on the device');
	same_list_answers($device, 'linked on the device', 9);
	foreach my $allocations (6, 10, 14)
	{
		$ENV{GPUANN_EMULATE_ALLOCATIONS} = $allocations;
		$device->restart;
		ok(await('the server has tried', sub { status($device, 'state') =~ /ready|failed/ }), 'another server');
		$device->safe_psql('postgres', $reindex);
		right_after($device, "a device with $allocations allocations");
	}
	delete $ENV{GPUANN_EMULATE_ALLOCATIONS};
	$device->stop;
}
done_testing();
