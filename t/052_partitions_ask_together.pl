# The partitions below a MergeAppend have the server give their first answers in one request: those that run-time pruning has left, and again for
# each rescan. The rows are those of the pages; whatever becomes of the request (a query of it fails, the engine lies or stands still, the server
# dies, the statement is cancelled), they are, and afterwards the server serves as before. I4, I5, I8.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use FaultTest;
use GpuannTest;
use PgSession;
use PostgreSQL::Test::Cluster;
use ServerTest;
use Test::More;

need_fault_engine();

my ($parts, $dims) = (8, 16);
my $node = fault_node('main', conf => [ "gpuann.request_timeout = '2s'", "gpuann.server_timeout = '5s'" ]);

make_data($node, 100, $dims);
$node->safe_psql('postgres', "CREATE TABLE parts (id int, part int, v vector($dims)) PARTITION BY LIST (part)");
$node->safe_psql('postgres', "CREATE TABLE part$_ PARTITION OF parts FOR VALUES IN ($_)") foreach 0 .. $parts - 1;
$node->safe_psql('postgres', qq{
	INSERT INTO parts SELECT i, i % $parts, vec(i, $dims) FROM generate_series(1, 8000) i;
	CREATE INDEX parts_v ON parts USING gpuann (v vector_l2_ops);
	ANALYZE parts;
	CREATE TABLE queries AS SELECT i AS id, vec(100000 + i, $dims) AS v FROM generate_series(1, 20) i;
});

my $watch = PgSession->new($node);
my $session = session($node);
my $paged = session($node, settings => '-c gpuann.server=off');
my $query = 'SELECT id FROM parts ORDER BY v <-> (SELECT v FROM queries WHERE id = 7) LIMIT 5';

sub nearest
{
	my ($one, $sql) = @_;
	return $one->rows($sql) =~ tr{\n}{ }r;
}

# Every mirror answers, and has nothing to catch up.
sub await_mirrors
{
	return await('all mirrors are ready', sub {
		$session->rows($query);
		return $watch->rows("SELECT count(*) FROM pg_stat_gpuann WHERE indexrelname LIKE 'part_\\_v%' AND state = 'ready' AND mirror_lag = 0") eq $parts;
	});
}

# A statement gives what the pages give, with so many requests to the server. Others may ask meanwhile: then it is tried again.
sub expect_requests
{
	my ($what, $sql, $most) = @_;
	my ($mine, $requests) = ('', 0);
	my $theirs = nearest($paged, $sql);

	ok(await($what, sub {
		my $before = $watch->rows('SELECT requests FROM gpuann_server_status');

		$mine = nearest($session, $sql);
		$requests = $watch->rows('SELECT requests FROM gpuann_server_status') - $before;
		return $requests == $most;
	}, 30), "$what: $most request(s)") or diag("$requests requests");
	is($mine, $theirs, "$what: the rows are those of the pages");
}

# How many scans of a statement ran, with answers of a batch of so many.
sub batches
{
	my ($sql, $batch) = @_;
	my @lines = split /\n/, $session->rows("EXPLAIN (ANALYZE, COSTS OFF) $sql");

	return scalar grep { /Gpuann: .*path=server .*batch=$batch / } @lines;
}

ok(await_mirrors(), 'the mirrors are there');

expect_requests('at first', $query, 1);
is(batches($query, $parts), $parts, 'at first: each partition has its answer of one batch');
expect_requests('one partition', $query =~ s/ORDER/WHERE part = 3 ORDER/r, 1);
is(batches($query =~ s/ORDER/WHERE part = 3 ORDER/r, 1), 1, 'one partition: it asks for itself');
expect_requests('a filter', $query =~ s/ORDER/WHERE id > 100 ORDER/r, 1);
expect_requests('a subquery', "SELECT id + 1 FROM (SELECT id, v <-> (SELECT v FROM queries WHERE id = 7) AS d FROM parts) p ORDER BY d LIMIT 5", 1);

# Run-time pruning, when the executor begins to run and when it starts.
my $pruned = $query =~ s/ORDER/WHERE part < (SELECT 3) ORDER/r;
expect_requests('pruned by a subquery', $pruned, 1);
is(batches($pruned, 3), 3, 'pruned by a subquery: those that are left ask together');
foreach my $one ($session, $paged)
{
	$one->rows('SET plan_cache_mode = force_generic_plan');
	$one->rows('PREPARE near_to(int) AS ' . ($query =~ s/ORDER/WHERE part < \$1 ORDER/r));
}
expect_requests('pruned by a parameter', 'EXECUTE near_to(5)', 1);
is(batches('EXECUTE near_to(5)', 5), 5, 'pruned by a parameter: those that are left ask together');

# Each rescan asks anew, with its own query and its own partitions.
expect_requests('rescans', 'SELECT q.id, near.id FROM queries q, LATERAL (SELECT id FROM parts ORDER BY v <-> q.v LIMIT 3) near ORDER BY 1, 2', 20);
expect_requests('pruned rescans', 'SELECT q.id, near.id FROM queries q,
	LATERAL (SELECT id FROM parts WHERE part < 2 + q.id % 3 ORDER BY v <-> q.v LIMIT 3) near ORDER BY 1, 2', 20);

# Rows that no mirror has yet.
$watch->rows("INSERT INTO parts SELECT 10000 + i, i, (SELECT v FROM queries WHERE id = 7) FROM generate_series(0, $parts - 1) i");
is(nearest($session, $query =~ s/LIMIT 5/LIMIT $parts/r =~ s/SELECT id FROM/SELECT id > 9999 FROM/r), join(' ', ('t') x $parts), 'new rows are found at once');
ok(await_mirrors(), 'the mirrors have caught up');

# Whatever fails, the rows are there.
my $truth = nearest($paged, $query);
foreach my $faults ('query_error=3', 'query_memory=1', 'older=3', 'range=50', 'reverse=1', 'many=1')
{
	faults($faults);
	is(nearest($session, $query), $truth, "$faults: the rows are there");
	faults('');
}
expect_requests('after faults', $query, 1);

# The server dies with the request.
my $pid = server_pid($node);
faults('mute=1');
$session->send($query);
ok(await_held('the request is under way'), 'a death: the request is under way');
kill 'KILL', $pid;
is(join(' ', @{ $session->receive->{rows} }), $truth, 'a death: the rows are there');
faults('');
ok(replaced($node, $watch, $pid), 'a death: there is another server');
ok(await_mirrors(), 'a death: the mirrors are there again');
expect_requests('after a death', $query, 1);

# The statement is cancelled while it waits.
faults('mute=1');
$session->send($query);
ok(await_held('the request is under way'), 'a cancel: the request is under way');
$watch->rows('SELECT pg_cancel_backend(' . $session->pid . ')');
my $answer = $session->receive;
# It may have timed out just before, and then goes on.
ok($answer->{error} =~ /canceling statement/ || join(' ', @{ $answer->{rows} }) eq $truth, 'a cancel: the statement ends');
faults('');
expect_requests('after a cancel', $query, 1);

# One mirror is given up: the others' queries are asked one by one, until it is back.
$watch->rows("SELECT gpuann_evict('part4_v_idx')");
is(nearest($session, $query), $truth, 'without one mirror: the rows are there');
ok(await_mirrors(), 'it comes back');
expect_requests('in the end', $query, 1);

is(log_count($node, qr/PANIC|server process .* was terminated/), 0, 'no process of PostgreSQL failed');
$_->close foreach $session, $paged, $watch;
$node->stop;
done_testing();
