# Mirror workers are never in the way: databases with mirrors can be dropped, renamed, moved and copied, a worker that is ended is
# replaced, one worker serves several databases in turn, and what is dropped frees the server's memory.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use GpuannTest;
use PostgreSQL::Test::Cluster;
use ServerTest;
use Test::More;

my $dims = 16;
my $node = server_node('main', conf => ['gpuann.max_workers = 1']);

make_data($node, 1000, $dims);
ok(await_mirror($node), 'the mirror is there');

# An ended worker is replaced, and the mirror stays.
my $worker;
fill_rows($node, 4001, 4010, $dims);
ok(await('there is a worker', sub { $worker = worker_pid($node) }), 'new rows bring a worker');
kill 'TERM', $worker;
ok(await('the worker is gone', sub { !alive($worker) }), 'a worker ends when told to');
fill_rows($node, 5001, 5100, $dims);
ok(await('the mirror has the new rows', sub { figure($node, 'mirror_rows') == 1110 }), 'another takes over where it was');
is(by_server($node, 'SET gpuann.exact = on;'), by_table($node), 'answers are right');

# A query in another database, by the same means.
sub in_database
{
	my ($database, $sql) = @_;
	return $node->safe_psql($database, $sql);
}

sub mirror_in
{
	my ($database) = @_;

	return await("the mirror in $database is ready", sub {
		in_database($database, "SET enable_seqscan = off; SELECT id FROM items ORDER BY v <-> (SELECT v FROM items LIMIT 1) LIMIT 1");
		return in_database($database, "SELECT state FROM pg_stat_gpuann") eq 'ready';
	});
}

sub make_database
{
	my ($database) = @_;

	$node->safe_psql('postgres', "CREATE DATABASE $database");
	in_database($database, "CREATE EXTENSION vector; CREATE EXTENSION gpuann;
		CREATE TABLE items AS SELECT i AS id, array[i % 7, i % 11, i]::vector(3) AS v FROM generate_series(1, 500) i;
		CREATE INDEX items_v ON items USING gpuann (v vector_l2_ops)");
}

# One worker serves four databases.
my @databases = map { "db$_" } 1 .. 3;
make_database($_) foreach @databases;
ok(mirror_in($_), "$_ gets its turn") foreach @databases;
is(status($node, 'mirrors_ready'), 4, 'all mirrors are kept');
in_database('db1', "INSERT INTO items SELECT i, array[i % 7, i % 11, i]::vector(3) FROM generate_series(501, 600) i");
ok(await('db1 is served again', sub { in_database('db1', "SELECT mirror_rows FROM pg_stat_gpuann") == 600 }),
	'a database that changes gets the worker again');

# Whoever needs the database for himself gets it, though a worker is there.
sub serve
{
	my ($database) = @_;

	in_database($database, "INSERT INTO items SELECT i, array[1, 2, i]::vector(3) FROM generate_series(1, 10) i");
	return await("a worker is in $database", sub {
		$node->safe_psql('postgres', "SELECT count(*) FROM pg_stat_activity WHERE datname = '$database' AND backend_type = 'gpuann mirror worker'") == 1;
	});
}

ok(serve('db1'), 'a worker is there');
$node->safe_psql('postgres', 'ALTER DATABASE db1 RENAME TO db4');
pass('a database can be renamed');
ok(mirror_in('db4'), 'its mirror goes on');
ok(serve('db4'), 'a worker is there');
$node->safe_psql('postgres', 'CREATE DATABASE db5 TEMPLATE db4');
pass('a database can be copied');
ok(mirror_in('db5'), 'the copy gets a mirror of its own');
# Its worker may have been ended in the middle of an operation.
ok(mirror_in('db4'), 'the original has its own again');
my ($before, $after);
$before = status($node, 'mirrors_ready');
ok(serve('db4'), 'a worker is there');
$node->safe_psql('postgres', 'DROP DATABASE db4');
pass('a database can be dropped');
ok(serve('db5'), 'a worker is there');
$node->safe_psql('postgres', 'DROP DATABASE db5 WITH (FORCE)');
pass('by force too');
ok(await('their mirrors are gone', sub { status($node, 'mirrors_ready') == $before - 2 }), 'their mirrors are gone');

# Memory comes back when an index is dropped, and the worker notices without being asked.
$before = status($node, 'memory_used');
ok(mirror_in('postgres'), 'the first database is served');
$node->safe_psql('postgres', 'DROP INDEX items_v');
ok(await('memory is freed', sub { status($node, 'memory_used') < $before }), 'a dropped index frees its memory');
is($node->safe_psql('postgres', "SELECT count(*) FROM pg_stat_gpuann"), 0, 'and leaves the view');
is(log_count($node, qr/ERROR/), 0, 'no command failed');
is(log_count($node, qr/FATAL:(?!.*terminating background worker|.*administrator command)/), 0, 'and no process');
$node->stop;
done_testing();
