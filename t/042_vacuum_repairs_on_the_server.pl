# Where the server's engine has a device, VACUUM has the graph repaired there: as well as over pages, and whatever the server does meanwhile, VACUUM
# ends well, the pages are right, and the mirror is never left with what they have not. I1, I5, I6, I7, I8.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use FaultTest;
use GpuannTest;
use GraphTest;
use PgSession;
use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;
use Time::HiRes qw(sleep time);

# Without a GPU the CPU engine calls itself one with a device: an emulated device links slowly.
need_device();

my $node = fault_node('main', conf => [ 'log_min_messages = debug1', "gpuann.request_timeout = '120s'", "maintenance_work_mem = '64MB'", 'shared_buffers = 128MB' ]);
my $vacuum = 'VACUUM (INDEX_CLEANUP on) items';
my $here_in_log = qr/gpuann index "items_v" is repaired over pages/;
my $session;

sub repaired_there { return log_count($_[0] // $node, qr/gpuann index "items_v" was repaired on the server/) }

# Table items anew, from a SELECT, with its index, whose mirror is ready.
sub fill
{
	my ($select) = @_;

	$session->rows("DROP TABLE IF EXISTS items; CREATE TABLE items AS $select; ANALYZE items; CREATE INDEX items_v ON items USING gpuann (v vector_l2_ops)");
	ok(await_mirror($node), 'the mirror is ready');
}

# VACUUM repairs on the server, and says nothing.
sub on_server
{
	my ($what) = @_;
	my $there = repaired_there();
	my $answer;

	ok(await_horizon($node), "$what: the dead are seen by nobody");
	$answer = $session->query($vacuum);
	is(join("\n", $answer->{error}, @{ $answer->{notices} }), '', "$what: VACUUM ends well");
	is(repaired_there() - $there, 1, "$what: repaired on the server");
}

# The mirror becomes what the pages are, and answers as the table does.
sub followed
{
	my ($what) = @_;

	ok(await("$what: the mirror follows", sub { await_mirror($node) && figure($node, "mirror_lag || ' ' || mirror_change_lag") eq '0 0' }), "$what: the mirror follows");
	is(by_server($node, 'SET gpuann.exact = on;'), by_table($node), "$what: the server's exact answers are the table's");
}

ok(await_server($node), 'the server runs');
$session = session($node);

# ---- quality ----

# In this short form the recalls of two graphs of the same rows differ by more than the 0.01 that is promised.
my ($rows, $dims, $clusters, $queries, $ef, $below) = (8_000, 32, 20, 400, 10, 0.015);
make_source($node, $rows + $queries, $dims, $clusters);

# The index as it is, beside a fresh one, in both cases over pages.
sub compare
{
	my ($what) = @_;
	my $live = $node->safe_psql('postgres', 'SELECT count(*) FROM items');
	my ($kept, $fresh);

	check_index($node, $what);
	make_queries($node, $rows, $queries);
	$kept = GraphTest::recall($node, $ef);
	like(unreached($node, 'items_v'), qr/^$live 0 /, "$what: every row can be reached");
	$session->rows('SET gpuann.server = off; REINDEX INDEX items_v');
	$fresh = GraphTest::recall($node, $ef);
	cmp_ok($kept, '>=', $fresh - $below, "$what: recall $kept, of a fresh build $fresh");
	$session->rows('RESET gpuann.server');
}

# With plenty of memory, and with so little that what is repaired is written in many parts.
foreach my $memory ('64MB', '1MB')
{
	fill("SELECT id, v FROM source WHERE id <= $rows");
	$session->rows("SET maintenance_work_mem = '$memory'");
	$session->rows('DELETE FROM items WHERE noise(id, 5) < 0.5');
	on_server("half of the rows deleted, $memory");
	followed("half of the rows deleted, $memory");
	$session->rows(qq{
WITH place AS MATERIALIZED (SELECT v FROM source WHERE id = $rows + 1),
	 near AS (SELECT i.id FROM items i JOIN source s USING (id) WHERE s.cluster = (SELECT cluster FROM source WHERE id = $rows + 1)
		ORDER BY i.v <-> (SELECT v FROM place))
DELETE FROM items WHERE id IN (SELECT id FROM near LIMIT (SELECT count(*) / 2 FROM near)) OR noise(id, 6) < 0.03});
	on_server("then the nearest half of a cluster, $memory");
	followed("then the nearest half of a cluster, $memory");
	compare("then the nearest half of a cluster, $memory");
	$session->rows('RESET maintenance_work_mem');
}

# Few rows are repaired over pages; so is what is not mirrored.
my $there = repaired_there();
fill("SELECT i AS id, vec(i, 16)::vector(16) AS v FROM generate_series(1, 3000) i");
$session->rows('DELETE FROM items WHERE id % 100 = 7');
is($session->query($vacuum)->{error}, '', 'VACUUM of a few rows');
$session->rows('SET gpuann.server = off');
$session->rows('DELETE FROM items WHERE id % 5 = 3');
is($session->query($vacuum)->{error}, '', 'VACUUM with gpuann.server = off');
$session->rows('RESET gpuann.server');
is(repaired_there(), $there, 'few rows, and gpuann.server = off: VACUUM repairs over pages');
right_after($node, 'repaired over pages');

# Used again: rows in the places of the dead, linked by whoever does, and dead once more.
fill_rows($node, 10001, 10800, 16);
$session->rows('DELETE FROM items WHERE id % 3 = 1');
ok(await('the mirror follows', sub { figure($node, "mirror_lag || ' ' || mirror_change_lag") eq '0 0' }), 'the mirror follows');
on_server('with rows that are not linked');
right_after($node, 'with rows that are not linked');
followed('with rows that are not linked');

# ---- the server dies, stands still, refuses, lies ----

# 3,000 rows, of which every second is dead: the slot behind a live one is.
sub half_dead
{
	fill("SELECT i AS id, vec(i, 16)::vector(16) AS v FROM generate_series(1, 3000) i");
	$session->rows('DELETE FROM items WHERE id % 2 = 0');
}

# Begin a VACUUM whose repair the engine keeps back, do something, and let it go. Returns what became of it.
sub held
{
	my ($do) = @_;
	my $answer;

	half_dead();
	faults('hold_link=1');
	$session->send($vacuum);
	ok(await_held('a repair is held'), 'VACUUM waits for the server');
	$do->();
	$answer = $session->receive;
	faults('');
	return $answer;
}

sub by_pages_with_a_message
{
	my ($what, $answer, $reason) = @_;

	is($answer->{error}, '', "$what: VACUUM ends well");
	is(scalar(grep { $_ =~ $here_in_log } @{ $answer->{notices} }), 1, "$what: over pages, as a message says");
	like(slurp_file($node->logfile), $reason, "$what: and why") if defined $reason;
	right_after($node, $what);
}

by_pages_with_a_message('killed while it repairs', held(sub { signal_server($node, 'KILL') }), qr/the server has stopped/);
ok(revive($node, $session), 'a server runs');
followed('killed while it repairs');

my $begun;
like(held(sub { $begun = time; $node->safe_psql('postgres', 'SELECT pg_cancel_backend(' . $session->pid . ')') })->{error}, qr/canceling statement/, 'cancelled');
cmp_ok(time - $begun, '<', 60, 'cancelled: soon');
is($node->safe_psql('postgres', "SELECT count(*) FROM pg_locks WHERE locktype = 'object' AND objid = 'items_v'::regclass"), '0', 'cancelled: no lock is left');
right_after($node, 'cancelled');
followed('cancelled');
on_server('after a cancel');
right_after($node, 'after a cancel');

held(sub { $node->safe_psql('postgres', 'SELECT pg_terminate_backend(' . $session->pid . ')') });
$session = session($node);
right_after($node, 'terminated');
followed('terminated');
on_server('after a backend that was terminated');

# PostgreSQL crashes in the middle.
half_dead();
faults('hold_link=1');
$session->send($vacuum);
ok(await_held('a repair is held'), 'VACUUM waits for the server');
$node->stop('immediate');
faults('');
$node->start;
$session = session($node);
right_after($node, 'crashed');
is($session->query($vacuum)->{error}, '', 'crashed: the next VACUUM goes on');
right_after($node, 'crashed, and vacuumed');
ok(await_server($node), 'a server runs');
followed('crashed, and vacuumed');

foreach my $lie (1 .. 5, 7)
{
	my $answer;

	half_dead();
	# with memory for a part of the rows, too: what had been written by then stays
	$session->rows("SET maintenance_work_mem = '" . ($lie % 2 && $lie < 7 ? '1MB' : '64MB') . "'");
	faults("lie_link=$lie");
	$answer = $session->query($vacuum);
	faults('');
	$session->rows('RESET maintenance_work_mem');
	is($answer->{error}, '', "lie $lie: VACUUM ends well");
	is(scalar(grep { $_ =~ $here_in_log } @{ $answer->{notices} }), 1, "lie $lie: what cannot be is noticed") if $lie == 1 || $lie == 3;
	right_after($node, "lie $lie");
	followed("lie $lie");
}

# An engine that refuses to link, after a first piece or at once: rows are linked over pages, VACUUM repairs there, and the mirror stays.
sub refusals { return log_count($node, qr/rows of gpuann index \d+ are linked over pages/) }
foreach my $first ('hold_link=1', 'link_memory=1')
{
	my $loads = qr/gpuann mirror of index \d+ loaded/;
	my ($before, $loaded, $answer) = (refusals());

	half_dead();
	$loaded = log_count($node, $loads);
	faults($first);
	fill_rows($node, 20001, 22500, 16);
	ok(await_held('a piece is held'), 'the worker links') if $first eq 'hold_link=1';
	faults('link_memory=1');
	ok(await('a refusal', sub { refusals() > $before }), "$first: the engine refuses to link");
	ok(await('rows are linked', sub { $node->safe_psql('postgres', "SELECT pending FROM gpuann_stats('items_v')") < 1000 }), "$first: rows are linked");
	$answer = $session->query($vacuum);
	is(join("\n", $answer->{error}, grep { $_ =~ /WARNING/ } @{ $answer->{notices} }), '', "$first: VACUUM ends well, without a warning");
	faults('');
	right_after($node, "$first: refused");
	followed("$first: refused");
	is(log_count($node, $loads), $loaded, "$first: the mirror is not loaded again");
}

# Of a repair likewise, when no row was to be linked before.
{
	my $there = repaired_there();
	my $answer;

	half_dead();
	faults('link_memory=1');
	$answer = $session->query($vacuum);
	faults('');
	is($answer->{error}, '', 'a refused repair: VACUUM ends well');
	is(scalar(grep { $_ =~ $here_in_log } @{ $answer->{notices} }), 1, 'a refused repair: over pages, as a message says');
	is(repaired_there(), $there, 'a refused repair: not on the server');
	right_after($node, 'a refused repair');
	followed('a refused repair');
}

# A repair that takes longer than the mirror's worker waits for an operation: what the worker sends meanwhile comes after it, and the mirror stays.
{
	my $reloads = qr/loading the mirror of gpuann index \d+ again/;
	my $before = log_count($node, $reloads);
	my $there = repaired_there();

	half_dead();
	faults('hold_link=1 hold_append=1');
	$session->send($vacuum);
	ok(await_held('a repair is held'), 'VACUUM waits for the server');
	fill_rows($node, 20001, 20300, 16);
	sleep 8;
	faults('');
	is($session->receive->{error}, '', 'a long repair: VACUUM ends well');
	is(repaired_there() - $there, 1, 'a long repair: repaired on the server');
	is(log_count($node, $reloads) - $before, 0, 'a long repair: the mirror was not given up');
	right_after($node, 'a long repair');
	followed('a long repair');
}

SKIP:
{
	skip 'no fault points', 1 if $session->query('SHOW gpuann.fault')->{error} ne '';
	my $file = $node->data_dir . '/gpuann_fault.server-repaired-piece';

	# After the first rows have come; the others are not there yet.
	half_dead();
	$session->rows("SET gpuann.fault = 'server-repaired-piece wait 1'");
	$session->send($vacuum);
	ok(await('a piece is repaired', sub { -e $file }), 'a piece is repaired');
	fill_rows($node, 20001, 20300, 16);
	signal_server($node, 'KILL');
	sleep 0.2;
	unlink $file;
	by_pages_with_a_message('killed between two pieces', $session->receive);
	$session->rows('RESET gpuann.fault');
	ok(revive($node, $session), 'a server runs');
	followed('killed between two pieces');

	# Rows that come meanwhile are in the mirror soon, and not in anybody's way.
	half_dead();
	$session->rows("SET gpuann.fault = 'server-repaired-piece wait 1'");
	$session->send($vacuum);
	ok(await('a piece is repaired', sub { -e $file }), 'a piece is repaired');
	fill_rows($node, 20001, 20300, 16);
	ok(await('the mirror has them', sub { figure($node, 'mirror_lag') eq '0' }), 'rows that come meanwhile are in the mirror');
	unlink $file;
	is($session->receive->{error}, '', 'rows come meanwhile: VACUUM ends well');
	$session->rows('RESET gpuann.fault');
	right_after($node, 'rows come meanwhile');
	followed('rows come meanwhile');
}
$session->close;
$node->stop;

# ---- the device itself ----

if (emulate_device())
{
	my $device = fault_node('device', conf => [ 'log_min_messages = debug1', "gpuann.request_timeout = '120s'" ]);
	ok(await_server($device), 'a server that repairs on the device');
	make_data($device, 700, 16);
	ok(await_mirror($device), 'the mirror is ready');
	$device->safe_psql('postgres', 'DELETE FROM items WHERE noise(id, 5) < 0.5');
	$device->safe_psql('postgres', $vacuum);
	is(repaired_there($device), 1, 'VACUUM repairs there');
	right_after($device, 'repaired on the device');
	cmp_ok(GpuannTest::recall($device), '>=', 0.95, 'its graph finds what is near');
	$device->stop;
}
done_testing();
