# Builds, linking, VACUUM and the check take no more of the process's own memory than maintenance_work_mem, on an index that is several times as
# large, and some megabytes for what any session has. With more they take more, so what is measured is what counts. I7.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib $FindBin::RealBin;
use GpuannTest;
use PgSession;
use PostgreSQL::Test::Utils;
use Test::More;

my ($rows, $dims) = (12_000, 500);
my $vectors_mb = int($rows * $dims * 4 / (1 << 20));
my $room_mb = 8;				# catalogs, plans, allocators' arenas of threads
my $node = new_node('memory', conf => [ 'gpuann.pending_limit = 10000000', 'shared_buffers = 128MB', 'max_wal_size = 2GB', 'max_parallel_maintenance_workers = 1' ]);

# 25 numbers, over and over: made fast, compared as slowly as any.
$node->safe_psql('postgres', "CREATE TABLE items (id int, v vector($dims)) WITH (parallel_workers = 0);
CREATE FUNCTION long_vec(seed int) RETURNS vector LANGUAGE sql AS \$\$
	SELECT array_agg(e)::vector FROM generate_series(1, $dims / 25), unnest(vec(seed, 25)::real[]) e \$\$;
INSERT INTO items SELECT i, long_vec(i) FROM generate_series(1, $rows) i");

# Memory of a process that is nobody else's, in MB.
sub own_memory
{
	my ($pid) = @_;
	return slurp_file("/proc/$pid/status") =~ /^RssAnon:\s+(\d+) kB/m ? $1 / 1024 : 0;
}

# By how much the memory of a session grows at most while it runs a statement.
sub grows
{
	my ($what, $memory, $statement) = @_;
	my $session = PgSession->new($node, settings => "-c maintenance_work_mem=$memory -c client_min_messages=error -c gpuann.server=off");
	my ($before, $most, $answer);

	# What any statement leaves behind.
	$session->rows('SELECT count(*) FROM items WHERE v IS NULL; SELECT max(id) FROM items');
	$before = $most = own_memory($session->pid);
	$session->send($statement);
	until ($session->is_done(0.01))
	{
		my $now = own_memory($session->pid);
		$most = $now if $now > $most;
	}
	$answer = $session->receive;
	is($answer->{error}, '', "$what, $memory: ends well");
	$session->close;
	note(sprintf '%s, %s: %.1f MB more than %.1f', $what, $memory, $most - $before, $before);
	return $most - $before;
}

sub keeps
{
	my ($what, $megabytes, $statement) = @_;
	cmp_ok(grows($what, "${megabytes}MB", $statement), '<=', $megabytes + $room_mb, "$what in $megabytes MB: keeps to it");
}

my $create = 'CREATE INDEX items_v ON items USING gpuann (v vector_l2_ops) WITH (m = 6, ef_construction = 16)';

cmp_ok(grows('a build', '256MB', $create), '>=', $vectors_mb, "a build in memory has the vectors in it ($vectors_mb MB)");
keeps('a build', 8, "DROP INDEX items_v; $create");
check_index($node, 'a build in little memory');
$node->safe_psql('postgres', "INSERT INTO items SELECT i, long_vec(i) FROM generate_series(100001, 102000) i");
keeps('linking', 4, "SELECT gpuann_link('items_v')");
$node->safe_psql('postgres', 'DELETE FROM items WHERE id % 2 = 0');
keeps('VACUUM', 4, 'VACUUM (INDEX_CLEANUP on) items');
keeps('the check', 4, "SELECT gpuann_check('items_v', true)");
keeps('figures', 4, "SELECT gpuann_stats('items_v')");
right_after($node, 'in the end');

# Lists: more centroids than there is memory for, and rows that are assigned to them.
my $lists = 'CREATE INDEX items_v ON items USING gpuann (v vector_l2_ops) WITH (method = ivfpq, lists = 350)';

$node->safe_psql('postgres', 'DROP INDEX items_v');
keeps('a build of lists', 16, $lists);
$node->safe_psql('postgres', "INSERT INTO items SELECT i, long_vec(i) FROM generate_series(200001, 206000) i");
keeps('linking into lists', 1, "SELECT gpuann_link('items_v')");
$node->safe_psql('postgres', 'DELETE FROM items WHERE id % 2 = 0');
keeps('VACUUM of lists', 1, 'VACUUM (INDEX_CLEANUP on) items');
keeps('the check of lists', 4, "SELECT gpuann_check('items_v', true)");
right_after($node, 'with lists');

# The codes of a list, of which each has 64 bytes.
$node->safe_psql('postgres', "CREATE TABLE listed (v vector(64)); INSERT INTO listed SELECT v FROM (SELECT vec(k, 64) AS v FROM generate_series(1, 40) k OFFSET 0) s,
	generate_series(1, 425); CREATE INDEX listed_v ON listed USING gpuann (v vector_l2_ops) WITH (method = ivfpq, quantizer = pq, pq_m = 64, lists = 1)");
my ($rc, $out, $err) = $node->psql('postgres', "SET maintenance_work_mem = '1MB'; SELECT gpuann_list_encoding('listed_v')");
like($err, qr/codes of list 0 need more than maintenance_work_mem.*has 17000 codes.*Raise maintenance_work_mem to 2 MB at least/s, 'codes of a list beyond the memory');
is($node->safe_psql('postgres', "SET maintenance_work_mem = '2MB'; SELECT rows FROM gpuann_list_encoding('listed_v')"), 17_000, 'codes of a list within it');

# Whatever the memory, the same rows come into the same lists.
my %found;

foreach my $memory ('1MB', '64MB')
{
	$node->safe_psql('postgres', "DROP INDEX items_v; DELETE FROM items WHERE id > 300000; $lists;
		INSERT INTO items SELECT id + 300000, v FROM items WHERE id % 10 < 5; SET maintenance_work_mem = '$memory'; SELECT gpuann_link('items_v')");
	# a row and its copy are in the same list
	$found{$memory} = $node->safe_psql('postgres', "SET enable_seqscan = off; SET gpuann.probes = 1; SET gpuann.rerank = 1000; SET gpuann.iterative_scan = off;
		SELECT count(*) FROM items o WHERE id > 300000 AND (SELECT array_agg(id) FROM (SELECT id FROM items i ORDER BY i.v <-> o.v LIMIT 2) s) <@ ARRAY[o.id, o.id - 300000]");
	cmp_ok($found{$memory}, '>', 1000, "$memory: copies of rows");
	is($found{$memory}, $node->safe_psql('postgres', 'SELECT count(*) FROM items WHERE id > 300000'), "$memory: rows are in the lists of their copies");
}
$node->stop;

done_testing();
