# An engine that fails, runs out of memory, proposes garbage, answers late or never, hangs or crashes: no wrong row, no missing row, nobody waits for
# long, the views say why, and the server serves again when the engine does, or when another has taken its place. I2 to I6.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use FaultTest;
use GpuannTest;
use PgSession;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;
use Time::HiRes qw(sleep time);

need_fault_engine();

my $dims = 16;
# A GPU's first calls take their time, and so does the emulation.
my $patience = ($ENV{GPUANN_TEST_ENGINE} || 'cpu') eq 'cpu' ? 3000 : 5000;
my $install = other_server('impatient', "push \@ARGV, '--hang-ms', $patience;");
my $node = fault_node('main', ($install ? (install_path => $install) : ()),
	conf => [ "gpuann.request_timeout = '700ms'", "gpuann.server_timeout = '5s'" ]);

make_data($node, 2000, $dims);
ok(await_mirror($node), 'the mirror is there');
# Some slots are dead, some have been used again.
$node->safe_psql('postgres', 'DELETE FROM items WHERE id % 4 = 0');
$node->safe_psql('postgres', 'VACUUM items');
fill_rows($node, 10001, 10150, $dims);
# So few stay pending: no page is changed behind what follows, which would excuse dead rows.
$node->safe_psql('postgres', "SELECT gpuann_link('items_v')");
fill_rows($node, 10151, 10200, $dims);
ok(await_mirror($node), 'the mirror follows');
ok(await('the mirror knows who died', sub { figure($node, "mirror_lag || ' ' || mirror_change_lag") eq '0 0' }), 'with all that died');

my $watch = PgSession->new($node);

sub counter { return $watch->rows("SELECT $_[0] FROM pg_stat_gpuann WHERE indexrelname = 'items_v'") }

# With some fault all answers are right, and a counter says why they are not the server's.
sub goes_to_pages
{
	my ($what, $faults, $counter, %options) = @_;
	my $before = counter($counter);
	my $session = session($node);

	faults($faults);
	expect_answers($what, $session, $dims);
	cmp_ok(counter($counter), '>', $before, "$what: counted as $counter");
	$options{meanwhile}->() if $options{meanwhile};
	faults('');
	$session->close;
}

my $pid = server_pid($node);

# Errors of queries are answers: the server goes on.
goes_to_pages('each query fails', 'query_error=1', 'fallback_engine_error', meanwhile => sub {
	my ($rc, $out, $err) = $node->psql('postgres',
		"SET enable_seqscan = off; SET gpuann.fallback = error; SELECT id FROM items ORDER BY v <-> vec(1, $dims) LIMIT 1");
	like($err, qr/the engine reported an error.*the test let this query fail/s, 'each query fails: and the user may know what the engine says');
});
goes_to_pages('each third query fails', 'query_error=3', 'fallback_engine_error');
goes_to_pages('no memory for queries', 'query_memory=1', 'fallback_engine_error');
expect_service('after errors', $node, $dims);

# Garbage: refused as a whole where it is impossible, row by row where only the pages know.
foreach my $case (
	[ 'slots out of range', 'range=1' ],
	[ 'a slot out of range', 'range=7' ],
	[ 'slots beyond 2^31', 'huge=3' ],
	[ 'a slot twice', 'repeat=2' ],
	[ 'dead slots', 'dead=1' ],
	[ 'some dead slots', 'dead=4' ],
	[ 'versions of before', 'older=1' ],
	[ 'some versions of before', 'older=3' ],
	[ 'versions to come', 'newer=1' ],
	[ 'some versions to come', 'newer=3' ],
	[ 'no number as distance', 'nan=5' ],
	[ 'the wrong order', 'reverse=1' ],
	[ 'list entries that do not exist', 'position=1' ],
	[ 'garbage of every kind', 'range=50,repeat=31,dead=7,older=5,newer=11' ])
{
	goes_to_pages($case->[0], $case->[1], 'fallback_invalid_answer');
}
goes_to_pages('more results than wanted', 'many=1', 'fallback_engine_error');
expect_service('after garbage', $node, $dims);

# Garbage whose pages were changed while the scan went on: linking changes records, and no other row came to their slots.
# So few that no worker links them by itself.
$node->safe_psql('postgres', "SELECT gpuann_link('items_v')");
fill_rows($node, 11001, 11060, $dims);
ok(await('the mirror follows', sub { figure($node, 'mirror_lag') eq '0' }), 'the mirror follows again');
{
	my $session = session($node, settings => '-c gpuann.exact=on');
	my $rows = $session->rows('SELECT count(*) FROM items');
	my @found;

	faults('older=9');
	$session->rows("BEGIN; DECLARE found CURSOR FOR SELECT ctid FROM items ORDER BY v <-> vec(3, $dims)");
	push @found, split(/\n/, $session->rows('FETCH 5 FROM found'));
	cmp_ok($node->safe_psql('postgres', "SELECT gpuann_link('items_v')"), '>', 0, 'rows are linked while a scan goes on');
	push @found, split(/\n/, $session->rows('FETCH ALL FROM found'));
	is(@found, $rows, 'garbage on pages that linking has changed: every row');
	is(keys %{ { map { $_ => 1 } @found } }, $rows, 'garbage on pages that linking has changed: once');
	$session->rows('COMMIT');
	faults('');
	$session->close;
}

# Garbage in the middle of scans that go on and on, in every way to go on.
foreach my $how ('complete', 'strict_order', 'relaxed_order')
{
	my $session = session($node, settings => "-c gpuann.iterative_scan=$how");
	my $rows = $session->rows('SELECT count(*) FROM items');

	foreach my $faults ('older=90', 'dead=50', 'newer=40,older=70')
	{
		my $found;

		faults($faults);
		$found = $session->rows("SELECT count(*) || ' ' || count(DISTINCT ctid) FROM
			(SELECT ctid FROM items ORDER BY v <-> vec(3, $dims) LIMIT 1000000) drained");
		# strict_order drops, and counts, what comes too late.
		$found eq "$rows $rows" || $how ne 'strict_order' ? is($found, "$rows $rows", "$how, $faults: every row once")
		  : cmp_ok($rows - (split / /, $found)[0], '<=', $session->rows('SELECT dropped FROM gpuann_last_scan()'),
			"$how, $faults: every row once, or counted as dropped");
		is($session->rows("SELECT count(*) FROM (SELECT id FROM items WHERE id % 5 = 1 ORDER BY v <-> vec(3, $dims) LIMIT 200) few"), 200,
			"$how, $faults: as many as are wanted, with a filter");
		# a few are gathered by the graph
		is($session->rows("SELECT count(*) FILTER (WHERE distance >= before), count(DISTINCT id) FROM
			(SELECT id, distance, lag(distance, 1, 0) OVER (ORDER BY place) AS before FROM
				(SELECT id, distance, row_number() OVER () AS place FROM
					(SELECT id, v <-> vec(3, $dims) AS distance FROM items WHERE id % 2 = 1 ORDER BY v <-> vec(3, $dims) LIMIT 12) few) numbered) steps"),
			'12|12', "$how, $faults: few, with a filter, in order") if $how ne 'relaxed_order';
	}
	faults('');
	$session->close;
}

# Rows of a set are ranked without being shown to the filter again, so what the engine names beside them is refused. The set ends whatever happens.
foreach my $faults ('', 'unfiltered=1', 'range=2', 'older=1', 'query_error=1')
{
	my $session = session($node);
	my $filter = 'id % 499 = any (ARRAY(SELECT generate_series(3, 4)))';
	my $found;

	faults($faults);
	$found = $session->rows("SELECT id FROM items WHERE $filter ORDER BY v <-> vec(3, $dims), id LIMIT 30");
	is($found, $session->rows("SET enable_seqscan = on; SET enable_indexscan = off; SET gpuann.plan_node = off;
		SELECT id FROM items WHERE $filter ORDER BY v <-> vec(3, $dims), id LIMIT 30"), "a set of rows, $faults: those that pass");
	$session->rows('RESET enable_seqscan; RESET enable_indexscan; RESET gpuann.plan_node; SET enable_seqscan = off');
	like($session->rows("EXPLAIN (ANALYZE, TIMING OFF) SELECT id FROM items WHERE $filter ORDER BY v <-> vec(3, $dims) LIMIT 30"),
		$faults eq '' ? qr/ranked_by=server/ : qr/fallback=/, "a set of rows, $faults: who ranks it");
	faults('');
	$session->close;
}

# Rows that came since are found whatever the engine says.
faults('older=2');
$node->safe_psql('postgres', "INSERT INTO items SELECT i, vec(i, $dims) FROM generate_series(20001, 20020) i");
is($node->safe_psql('postgres', "SET enable_seqscan = off; SELECT id FROM items ORDER BY v <-> vec(20011, $dims) LIMIT 1"), 20011,
	'a row inserted meanwhile is found');
faults('');
is(server_pid($node), $pid, 'it was the same server all the time');

# Late answers meet nobody: the slot is the server's until it has given the request back, and the next answer is that of the next question.
my $session = session($node);
my $busy = counter('fallback_slot_busy');
faults('delay_ms=1500');
is($session->rows("SELECT id FROM items ORDER BY v <-> (SELECT v FROM items WHERE id = 11) LIMIT 1"), 11, 'late: the first scan is answered');
faults('');
foreach my $id (13, 14, 15, 17, 18)
{
	is($session->rows("SELECT id FROM items ORDER BY v <-> (SELECT v FROM items WHERE id = $id) LIMIT 1"), $id,
		"late: a scan meanwhile has its own answer");
}
cmp_ok(counter('fallback_timeout'), '>', 0, 'late: counted as a timeout');
sleep 1.5;
is($session->rows("SELECT id FROM items ORDER BY v <-> (SELECT v FROM items WHERE id = 19) LIMIT 1"), 19, 'late: and one after');
$session->close;
goes_to_pages('late answers', 'delay_ms=1200', 'fallback_timeout');
expect_service('after late answers', $node, $dims);
goes_to_pages('busy', 'busy=1', 'fallback_timeout');
expect_service('after it was busy', $node, $dims);
is(server_pid($node), $pid, 'late or busy: it was the same server all the time');

# No memory, or another error, when the mirror is made or filled.
sub refused
{
	my ($what, $faults, $reason) = @_;
	my $session = session($node);
	my ($rc, $out, $err);

	faults($faults);
	$node->safe_psql('postgres', "SELECT gpuann_evict('items_v')");
	($rc, $out, $err) = $node->psql('postgres', "SELECT gpuann_prewarm('items_v')");
	like($err, qr/index "items_v" was not mirrored: .*$reason/, "$what: gpuann_prewarm says so");
	is(figure($node, 'state'), 'refused', "$what: the mirror is refused");
	like(figure($node, 'reason'), qr/$reason/, "$what: the view says why");
	goes_to_pages($what, $faults, 'fallback_refused');
	is(server_pid($node), $pid, "$what: the server goes on");
	$node->safe_psql('postgres', "SELECT gpuann_prewarm('items_v')");
	$session->close;
	expect_service($what, $node, $dims);
}

refused('no memory for a mirror', 'create_memory=1', 'the test leaves 0 MB for a mirror');
refused('no memory for rows', 'append_memory=1', 'the test leaves 0 MB for rows');
refused('an error with rows', 'append_error=1', 'the test lets no row in');

# The engine breaks, crashes, or does not return: another server takes over.
sub ends
{
	my ($what, $faults, $error, $counter) = @_;
	my $now = server_pid($node);
	my $session = session($node);
	my $before = counter($counter);
	my $restarts = status($node, 'restarts');
	my $took;

	faults($faults);
	$took = in_seconds(sub {
		is($session->rows("SELECT id FROM items ORDER BY v <-> (SELECT v FROM items WHERE id = 21) LIMIT 1"), 21, "$what: a scan is answered");
	});
	cmp_ok($took, '<', 100, "$what: soon");
	ok(await('the server ends', sub {
		$session->rows("SELECT id FROM items ORDER BY v <-> (SELECT v FROM items WHERE id = 22) LIMIT 1");
		return status($node, 'restarts') > $restarts;
	}), "$what: the server ends");
	like(status($node, 'last_error'), $error, "$what: the status says why");
	cmp_ok(counter($counter), '>', $before, "$what: counted as $counter");
	faults('');
	expect_answers($what, $session, $dims);
	ok(replaced($node, $watch, $now), "$what: there is another server");
	# Each of these counts as a crash on this index.
	$node->safe_psql('postgres', "SELECT gpuann_prewarm('items_v')");
	expect_service($what, $node, $dims);
	$session->close;
}

ends('a broken engine', 'fail=1', qr/the test broke the engine/, 'fallback_engine_error + fallback_server_died');
ends('a crash in search', 'crash=1', qr/the server was ended by signal 11/, 'fallback_server_died');
SKIP:
{
	skip 'PostgreSQL is not a copy that can be changed', 3 * 11 unless $install;

	ends('a hang in submit', 'hang=1', qr/a call into the engine did not return/, 'fallback_timeout + fallback_slot_busy');
	ends('a hang in poll', 'hang_poll=1', qr/a call into the engine did not return/, 'fallback_timeout + fallback_slot_busy');
	ends('answers that never come', 'mute=1', qr/the engine made no progress with (?:a|any) query for [3-9] s/, 'fallback_timeout + fallback_slot_busy');
}

# A crash while rows are brought.
my $restarts = status($node, 'restarts');
faults('crash_append=1');
$node->safe_psql('postgres', "SELECT gpuann_evict('items_v')");
my $searches = session($node);
$searches->rows("SELECT id FROM items ORDER BY v <-> vec(1, $dims) LIMIT 1");
ok(await('the server ends', sub { status($node, 'restarts') > $restarts }), 'a crash while loading: the server ends');
expect_answers('a crash while loading', $searches, $dims);
faults('');
ok(revive($node, $watch), 'a crash while loading: there is another server');
$node->safe_psql('postgres', "SELECT gpuann_prewarm('items_v')");
expect_service('a crash while loading', $node, $dims);
$searches->close;

# Three of them are one too many: the index stays with its pages, which the view says, until somebody asks for it by name.
faults('crash_append=1');
$node->safe_psql('postgres', "SELECT gpuann_evict('items_v')");
$searches = session($node);
ok(await('the index is refused', sub {
	$searches->rows("SELECT id FROM items ORDER BY v <-> vec(1, $dims) LIMIT 1");
	revive($node, $watch);
	return figure($node, 'state') eq 'refused';
}), 'three crashes while loading: the index is in quarantine');
is(figure($node, 'reason'), 'the server crashed 3 times while it worked on this index', 'three crashes while loading: the view says why');
ok(revive($node, $watch), 'three crashes while loading: the server runs, for others');
$restarts = status($node, 'restarts');
goes_to_pages('three crashes while loading', 'crash_append=1', 'fallback_refused');
is(status($node, 'restarts'), $restarts, 'three crashes while loading: the server crashes no more');
$node->safe_psql('postgres', "SELECT gpuann_prewarm('items_v')");
expect_service('after quarantine', $node, $dims);
check_index($node, 'in the end');
is(log_count($node, qr/PANIC|server process .* was terminated/), 0, 'no process of PostgreSQL failed');
$_->close foreach $searches, $watch;
$node->stop;
done_testing();
