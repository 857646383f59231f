# CREATE INDEX by phases: each shows in pg_stat_progress_create_index with counters that are true, and can be cancelled; errors of workers
# arrive; the row limit holds. Whatever ends a build, nothing is left of it: no file, no process, no thread, no shared memory.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use GpuannTest;
use PgSession;
use Time::HiRes qw(sleep time);
use Test::More;

my $rows = 6000;
my $dims = 32;
my $node = new_node('build_phases', streaming => 1, conf => [ "session_preload_libraries = 'gpuann'", 'dynamic_shared_memory_type = mmap',
		'min_parallel_table_scan_size = 0', 'max_parallel_maintenance_workers = 2', 'max_parallel_workers = 4', "maintenance_work_mem = '256MB'" ]);
my $session = PgSession->new($node);
my $watcher = PgSession->new($node);
my $faults = $session->query('SHOW gpuann.fault')->{error} eq '';
my $slow = 'WITH (m = 100, ef_construction = 1000)';
my $create = 'CREATE INDEX items_v ON items USING gpuann (v vector_l2_ops)';

make_data($node, $rows, $dims, no_index => 1);
$session->rows('ANALYZE items');
$session->rows(q{CREATE FUNCTION picky(v vector, bad int, id int) RETURNS vector LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS
	$$ BEGIN IF id = bad THEN RAISE EXCEPTION 'row % is bad', id; END IF; RETURN v; END $$});

# Segments of dynamic shared memory; the statistics take one now and then.
sub segments
{
	return scalar(() = glob($node->data_dir . '/pg_dynshmem/mmap.*'));
}

# What a build may leave behind: files of the database, other processes, threads of the session.
sub traces
{
	my $data = $node->data_dir;
	my $database = $watcher->rows("SELECT oid FROM pg_database WHERE datname = 'postgres'");
	my $threads = () = glob('/proc/' . $session->pid . '/task/*');

	return join("\n", "$threads thread", $watcher->rows("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'parallel worker'"),
		$watcher->rows("SELECT count(*) FROM pg_class WHERE relname = 'items_v'"),
		$watcher->rows("SELECT count(*) FROM pg_locks WHERE relation = 'items'::regclass"),
		scalar(grep { -s $_ } glob("$data/base/$database/[0-9]*")));
}

# Files that an aborted build leaves empty go at the next checkpoint.
sub nothing_left
{
	my ($what, $before) = @_;
	my $end = time + 60;
	my $now;

	do { sleep 0.02; $now = traces() } while ($now ne $before && time < $end);
	is($now, $before, "$what: nothing is left");
}

# Wait until the progress view says what it should; returns the row.
sub progress
{
	my ($condition) = @_;
	my $end = time + 120;
	my $row;

	for (;;)
	{
		$row = $watcher->rows("SELECT phase, blocks_done, blocks_total, tuples_done, tuples_total FROM pg_stat_progress_create_index WHERE $condition");
		return $row if $row ne '' || time > $end || $session->is_done;
		sleep 0.005;
	}
}

# Start a statement, wait for a phase, cancel it; nothing is left.
sub cancelled_in
{
	my ($phase, $statement, %options) = @_;
	my $before = traces();
	my ($began, $answer);

	$session->rows("SET $_") foreach @{ $options{set} // [] };
	$session->send($statement);
	my $row = progress("phase = 'building index: $phase'" . ($options{and} ? " AND $options{and}" : ''));
	like($row, qr/^building index: \Q$phase\E\|/, "$phase: shown");
	$options{then}->($row) if $options{then};
	$began = time;
	$watcher->rows('SELECT pg_cancel_backend(' . $session->pid . ')');
	$answer = $session->receive;
	diag(sprintf('%s: cancelled within %.0f ms', $phase, (time - $began) * 1000)) if $ENV{GPUANN_TEST_TIMES};
	like($answer->{error}, qr/canceling statement due to user request/, "$phase: cancelled");
	cmp_ok(time - $began, '<', 60, "$phase: soon");
	$session->rows('RESET ALL');
	unlink glob($node->data_dir . '/gpuann_fault.*');
	nothing_left($phase, $before);
}

# ---- phases ----

# The expression makes every row take a while, so that the load can be watched; it works in all processes, of which two are workers.
$session->rows(q{CREATE FUNCTION slowly(v vector) RETURNS vector LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS
	$$ BEGIN PERFORM pg_sleep(0.002); RETURN v; END $$});
cancelled_in('loading tuples', 'CREATE INDEX items_v ON items USING gpuann ((slowly(v)::vector(32)) vector_l2_ops)',
	and => "tuples_done > 0 AND 2 = (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'parallel worker')",
	then => sub {
		my (undef, $blocks, $all_blocks, $tuples) = split /\|/, $_[0];

		cmp_ok($blocks, '<=', $all_blocks, 'no more blocks are done than there are');
		is($all_blocks, $watcher->rows("SELECT pg_relation_size('items') / 8192"), 'the blocks of the table');
		cmp_ok($tuples, '<=', $rows, 'no more rows are done than there are');
	});
cancelled_in('linking', "$create $slow",
	and => 'tuples_done > 0',
	then => sub {
		my (undef, undef, undef, $done, $total) = split /\|/, $_[0];

		is($total, $rows, 'all rows are to be linked');
		cmp_ok($done, '<=', $rows, 'no more rows are linked than there are');
	});
cancelled_in('linking over pages', "$create $slow", set => ["maintenance_work_mem = '2MB'"], and => 'tuples_done > 0 AND tuples_done < 1000');

# The linking of a build that is abandoned with its session ends too.
my $before = traces();
$session->send("$create $slow");
progress("phase = 'building index: linking' AND tuples_done > 0");
$watcher->rows('SELECT pg_terminate_backend(' . $session->pid . ')');
ok($session->receive->{lost} || 1, 'terminated');
$session = PgSession->new($node);
nothing_left('terminated', $before);

# ---- errors ----

my $segments = segments();

foreach my $bad (1, $rows / 2, $rows, 2 .. 6)
{
	my $before = traces();

	is($session->query("CREATE INDEX items_v ON items USING gpuann ((picky(v, $bad, id)::vector($dims)) vector_l2_ops)")->{error},
		"row $bad is bad", "an error at row $bad arrives");
	nothing_left("an error at row $bad", $before);
}
cmp_ok(segments(), '<=', $segments + 2, 'no shared memory is left by eight builds');
$before = traces();
is($session->query("CREATE INDEX items_v ON items USING gpuann ((v::vector(31)) vector_l2_ops)")->{error},
	"expected 31 dimensions, not $dims", 'wrong dimensions');
nothing_left('wrong dimensions', $before);

# ---- little memory: the build goes on, and says what would have done ----

my $answer;
$session->rows("SET maintenance_work_mem = '2MB'");
$answer = $session->query($create);
is($answer->{error}, '', 'built in little memory');
like($answer->{notices}[0] // '', qr/^gpuann graph no longer fits into maintenance_work_mem after \d+ rows/, 'which it says');
$session->rows('RESET ALL');
right_after($node, 'built in little memory');
$session->rows('DROP INDEX items_v');

if ($faults)
{
	# The phases that are too short to be watched: wait in them.
	cancelled_in('writing graph', $create, set => ["gpuann.fault = 'build-graph-page wait 2'"], and => 'tuples_done > 0');
	cancelled_in('writing WAL', $create, set => ["gpuann.fault = 'build-log-page wait 1'"]);

	# An error in a worker, or in the leader: whoever comes to its row first.
	foreach my $row (1, 500, 2000)
	{
		my $before = traces();

		$session->rows("SET gpuann.fault = 'build-row error $row'");
		is($session->query($create)->{error}, 'fault at build-row', "an error at a row, $row of one process");
		$session->rows('RESET ALL');
		nothing_left('an error at a row', $before);
	}

	# The row limit: a warning before it, an error at it, in the build and in inserts.
	my $slots;
	$session->rows("CREATE TABLE many (id int, v vector(2000)); INSERT INTO many SELECT i, vec(i, 2000) FROM generate_series(1, 400) i");
	$session->rows("SET max_parallel_maintenance_workers = 0");
	$session->rows("SET gpuann.row_limit = 300");
	$answer = $session->query('CREATE INDEX many_v ON many USING gpuann (v vector_l2_ops)');
	($slots) = $answer->{error} =~ /^index "many_v" cannot hold more than (\d+) rows$/;
	ok(defined $slots && $slots <= 300, 'a build ends at the row limit');
	like($answer->{notices}[0] // '', qr/^index "many_v" has used nine tenths of the $slots rows that it can hold/, 'after a warning');
	$session->rows("DELETE FROM many WHERE id > $slots");
	$session->rows('VACUUM many');
	is($session->query('CREATE INDEX many_v ON many USING gpuann (v vector_l2_ops)')->{error}, '', 'as many rows as the limit allows');
	is($session->query('INSERT INTO many SELECT 1000, vec(1000, 2000)')->{error}, qq{index "many_v" cannot hold more than $slots rows},
		'inserts respect the limit');
	check_index($node, 'at the row limit', 'many_v');
}

$session->rows('RESET ALL');
is($session->query($create)->{error}, '', 'built in the end');
right_after($node, 'built in the end');
$session->close;
$watcher->close;
$node->stop;

done_testing();
