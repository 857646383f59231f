# Where the server's engine has a device, builds are linked there: the index is as good as one linked by the backend, and its mirror need not be
# loaded. Whatever the server does meanwhile, the build ends well, and what does not fit the device is built by the CPU. I1, I5, I6, I7, I8.

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

# Without a GPU the CPU engine calls itself one with a device: an emulated device links slowly.
need_device();

my $dims = 16;
my $rows = 5000;
my $node = fault_node('main', conf => [ 'log_min_messages = debug1', 'max_parallel_maintenance_workers = 2', 'max_parallel_workers = 4',
		'min_parallel_table_scan_size = 0', "gpuann.request_timeout = '120s'", "gpuann.server_timeout = '120s'", "maintenance_work_mem = '64MB'" ]);
my $session;
my $create = 'CREATE INDEX items_v ON items USING gpuann (v vector_l2_ops)';
my $reindex = 'REINDEX INDEX items_v';
my $here_in_log = qr/gpuann graph of index "items_v\w*" is built by the CPU engine/;
my $here = qr/^$here_in_log/;

sub built_there { return log_count($node, qr/gpuann index "\w+" was linked on the server/) }
sub loads { return log_count($node, qr/gpuann mirror of index \d+ loaded/) }
sub entries { return $node->safe_psql('postgres', 'SELECT count(*) FROM gpuann_stat_indexes()') }

# A statement that builds one index on the server: nobody loads its mirror, and it answers.
sub on_server
{
	my ($what, $statement) = @_;
	my ($there, $loads) = (built_there(), loads());
	my $answer = $session->query($statement);

	is(join("\n", $answer->{error}, grep { $_ =~ $here } @{ $answer->{notices} }), '', "$what: built");
	is(built_there() - $there, 1, "$what: on the server") or
	  diag((slurp_file($node->logfile) =~ /.*built by the CPU engine\n.*/g)[-1] // 'no reason is in the log');
	is($session->query("BEGIN; SET LOCAL gpuann.fallback = error; SELECT id FROM items ORDER BY v <-> vec(77, $dims) LIMIT 1; COMMIT")->{error}, '',
		"$what: the server answers at once");
	sleep 0.3;
	is(loads() - $loads, 1, "$what: the mirror is not loaded again");
	check_index($node, $what);
}

# A statement that builds one index by the CPU, although it began on the server: and says so.
sub by_cpu
{
	my ($what, $answer, $reason) = @_;
	my $told = grep { $_ =~ $here } @{ $answer->{notices} };

	is($answer->{error}, '', "$what: built");
	is($told, 1, "$what: by the CPU, as a message says");
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
	return $session->rows("$settings; SELECT recall FROM gpuann_recall('items_v', 300, 10, 40)") =~ s/.*\n//sr;
}

ok(await_server($node), 'the server runs');
make_data($node, $rows, $dims, no_index => 1);
$node->safe_psql('postgres', 'ANALYZE items');
$session = session($node);

# ---- statements that build ----

on_server('CREATE INDEX', $create);
my $there = quality('SET gpuann.server = off');
$session->rows("SET gpuann.server = off; $reindex");
my $of_cpu = quality('SET gpuann.server = off');
$session->rows('RESET gpuann.server');
cmp_ok($there, '>=', $of_cpu - 0.005, "recall is that of an index linked by the backend");
on_server('REINDEX', $reindex);
right_after($node, 'REINDEX');
on_server('REINDEX CONCURRENTLY', "$reindex CONCURRENTLY" =~ s/INDEX items_v CONCURRENTLY/INDEX CONCURRENTLY items_v/r);
on_server('VACUUM FULL', 'VACUUM FULL items');
is(entries(), 1, 'one index has one mirror');
$session->rows('DROP INDEX items_v');
on_server('CREATE INDEX CONCURRENTLY', $create =~ s/INDEX/INDEX CONCURRENTLY/r);

# What comes later goes on: into places that processes of the build left, too.
$session->rows('DELETE FROM items WHERE id % 7 = 3');
$session->rows('VACUUM items');
fill_rows($node, $rows + 1, $rows + 1200, $dims);
ok(await('a worker follows', sub { figure($node, "state || ' ' || mirror_lag || ' ' || mirror_change_lag") eq 'ready 0 0' }), 'a worker follows what comes after');
right_after($node, 'changed');
is(by_server($node, 'SET gpuann.exact = on;'), by_table($node), "the server's exact answers are the table's");

# Not there: small tables, what is not to be mirrored, nobody else's.
my $count = built_there();
$session->rows("CREATE TABLE few AS SELECT * FROM items LIMIT 300; ANALYZE few; CREATE INDEX few_v ON few USING gpuann (v vector_l2_ops); DROP TABLE few");
$session->rows("CREATE TEMP TABLE own AS SELECT * FROM items; CREATE INDEX own_v ON own USING gpuann (v vector_l2_ops); DROP TABLE own");
$session->rows("CREATE TABLE off AS SELECT * FROM items; CREATE INDEX off_v ON off USING gpuann (v vector_l2_ops) WITH (mirror = off); DROP TABLE off");
$session->rows("SET gpuann.server = off; $reindex; RESET gpuann.server");
is(built_there(), $count, 'small tables, temporary ones, mirror = off, gpuann.server = off: the backend links');
$session->rows('CREATE UNLOGGED TABLE other AS SELECT * FROM items; ANALYZE other; CREATE INDEX other_v ON other USING gpuann (v vector_l2_ops)');
is(built_there(), $count + 1, 'an unlogged table is built there');
check_index($node, 'unlogged', 'other_v');
$session->rows('DROP TABLE other');
on_server('a partial index', "DROP INDEX items_v; $create WHERE id % 2 = 0");
$session->rows("DROP INDEX items_v; $create");

# Transactions that do not commit leave nothing.
my $mirrored = entries();
$session->rows("BEGIN; CREATE TABLE copy AS SELECT * FROM items; ANALYZE copy; CREATE INDEX copy_v ON copy USING gpuann (v vector_l2_ops); ROLLBACK");
is(entries(), $mirrored, 'rolled back, it has left no mirror');

# ---- the server dies, stands still, refuses, lies ----

by_cpu('killed while it loads', held('hold_append', 'loading tuples', sub { signal_server($node, 'KILL') }), qr/the server has stopped/);
ok(revive($node, $session), 'a server runs');
by_cpu('killed while it links', held('hold_link', 'linking', sub { signal_server($node, 'KILL') }));
ok(revive($node, $session), 'a server runs');
expect_service('after that', $node, $dims);

foreach my $fault ('hold_append', 'hold_link')
{
	my $phase = $fault eq 'hold_link' ? 'linking' : 'loading tuples';
	my $begun;

	like(held($fault, $phase, sub { $begun = time; $node->safe_psql('postgres', 'SELECT pg_cancel_backend(' . $session->pid . ')') })->{error},
		qr/canceling statement/, "$fault: cancelled");
	cmp_ok(time - $begun, '<', 60, "$fault: soon");
	ok(await('nothing is left', sub { entries() == $mirrored }), "$fault: cancelled, it leaves no mirror");
	held($fault, $phase, sub { $node->safe_psql('postgres', 'SELECT pg_terminate_backend(' . $session->pid . ')') });
	$session = session($node);
	ok(await('nothing is left', sub { entries() == $mirrored }), "$fault: terminated, it leaves no mirror");
	on_server("after $fault", $reindex);
}

# One that stands still for some seconds, or has no processor, is waited for: by the CPU it would take longer still.
{
	my $told;
	my $pid = signal_server($node, 'STOP');

	$session->send($reindex);
	ok(!$session->is_done(7), 'the build waits for a server that stands still');
	kill 'CONT', $pid;
	$told = join("\n", grep { $_ =~ $here } @{ $session->receive->{notices} });
	is($told, '', 'and goes on there when it does');
	right_after($node, 'a server that stood still');
}

foreach my $fault (['create_memory=1', qr/is built by the CPU engine/], ['append_memory=1', undef], ['append_error=1', undef], ['crash_append=1', qr/the server has stopped/])
{
	faults($fault->[0]);
	my $answer = $session->query($reindex);
	faults('');
	by_cpu($fault->[0], $answer, $fault->[1]);
	ok(revive($node, $session), "$fault->[0]: a server runs");
}
foreach my $lie (1 .. 6)
{
	my $answer;

	# With memory for a part of the rows: what had been written by then is not to be believed either.
	faults("lie_link=$lie");
	$answer = $session->query("SET maintenance_work_mem = '" . ($lie % 2 ? '2MB' : '64MB') . "'; $reindex");
	faults('');
	$session->rows('RESET maintenance_work_mem');
	by_cpu("lie $lie", $answer, qr/the server (has not linked every row once|made a graph row that cannot be|named a seed that does not exist)/);
}

SKIP:
{
	skip 'no fault points', 1 if $session->query('SHOW gpuann.fault')->{error} ne '';
	my $file = $node->data_dir . '/gpuann_fault.build-graph-page';

	# After the first rows have been written; the others are not there yet.
	$session->rows("SET gpuann.fault = 'build-graph-page wait 2'; SET maintenance_work_mem = '2MB'");
	$session->send($reindex);
	ok(await('it writes', sub { -e $file }), 'a build writes what the server linked');
	signal_server($node, 'KILL');
	sleep 0.2;
	unlink $file;
	by_cpu('killed while it is asked for rows', $session->receive);
	$session->rows('RESET gpuann.fault; RESET maintenance_work_mem');
	ok(revive($node, $session), 'a server runs');
}
on_server('after all that', $reindex);

# ---- room ----

# The memory of one mirror, and some of another's: who is used stays, who is idle makes way, before the CPU does. What is linked takes more than what is loaded.
$session->rows("CREATE TABLE second AS SELECT i AS id, vec(i, 800)::vector(800) AS v FROM generate_series(1, 2000) i; ANALYZE second;
	CREATE TABLE third AS SELECT * FROM second; ANALYZE third; DROP INDEX items_v");
my $bare = status($node, 'memory_used');
$session->rows('CREATE INDEX second_v ON second USING gpuann (v vector_l2_ops)');
my $taken = status($node, 'memory_used') - $bare;
my $pid = server_pid($node);
note("memory: $bare bytes without a mirror, $taken for one");
$node->append_conf('postgresql.conf', "gpuann.gpu_memory_limit = '" . int(($bare + 1.4 * $taken) / (1 << 20)) . "MB'");
$node->reload;
ok(await('another server runs', sub { my $now = server_pid($node); $now && $now ne $pid && status($node, 'state') eq 'ready' }), 'a server with room for one');
my $use = sub { $session->query("SET gpuann.fallback = error; SELECT id FROM second ORDER BY v <-> vec(7, 800) LIMIT 1")->{error} eq '' };
ok(await('it is loaded', $use), 'which one index has');
# Used all the while, however long the build takes.
my $user = session($node);
$user->send("DO \$\$ BEGIN LOOP PERFORM id FROM second ORDER BY v <-> vec(7, 800) LIMIT 1; PERFORM pg_sleep(0.1); END LOOP; END \$\$");
my $answer = $session->query('RESET gpuann.fallback; CREATE INDEX third_v ON third USING gpuann (v vector_l2_ops)');
$session->rows('SELECT pg_cancel_backend(' . $user->pid . ')');
$user->receive;
$user->close;
is($answer->{error}, '', 'another is built');
is(scalar(grep { /^gpuann graph of index "third_v" is built by the CPU engine/ } @{ $answer->{notices} }), 1, 'by the CPU: nobody in use makes way');
is(figure($node, 'state', 'second_v'), 'ready', 'the first has not moved');
$session->rows('DROP INDEX third_v');
$count = built_there();
ok(await('it is idle, and makes way', sub { sleep 11; $session->rows('DROP INDEX IF EXISTS third_v; CREATE INDEX third_v ON third USING gpuann (v vector_l2_ops)'); built_there() > $count }),
	'an idle one makes way');
is(figure($node, "state || ' ' || evictions", 'second_v'), 'none 1', 'which is counted');
is(figure($node, 'state', 'third_v'), 'ready', 'for the one that was built');
check_index($node, 'in its place', 'third_v');
$session->rows('REINDEX INDEX third_v');
is(built_there(), $count + 2, 'REINDEX has the room of the mirror from before');
cmp_ok(status($node, 'memory_used'), '<=', status($node, 'memory_limit'), 'within the limit');
$session->close;
$node->stop;

# ---- the device itself: its linker, and memory that is refused at any time ----

if (emulate_device())
{
	my $device = fault_node('device', conf => [ 'log_min_messages = debug1', "gpuann.request_timeout = '120s'" ]);
	ok(await_server($device), 'a server that links on the device');
	make_data($device, 1200, $dims, no_index => 1);
	$device->safe_psql('postgres', $create);
	is(log_count($device, qr/gpuann index "items_v" was linked on the server/), 1, 'builds there');
	right_after($device, 'linked on the device');
	cmp_ok(recall($device), '>=', 0.95, 'its graph finds what is near');

	foreach my $allocations (6, 10, 14)
	{
		$ENV{GPUANN_EMULATE_ALLOCATIONS} = $allocations;
		$device->restart;
		ok(await('the server has tried', sub { status($device, 'state') =~ /ready|failed/ }), 'another server');
		$device->safe_psql('postgres', $reindex);
		right_after($device, "a device with $allocations allocations");
	}
	delete $ENV{GPUANN_EMULATE_ALLOCATIONS};
	cmp_ok(log_count($device, $here_in_log), '>', 0, 'some builds were begun there, and went on here');
	note(grep { /DETAIL/ } split(/^/, slurp_file($device->logfile)));
	$device->stop;
}
done_testing();
