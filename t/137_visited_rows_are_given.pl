# What gpuann.max_scan_tuples buys: a scan that may visit n rows gives n rows, each once, in every mode that goes on, from the pages and through the server; so
# behind a filter it finds as much as pgvector's does with the same limit. By default (complete) a LIMIT gets what was visited in order; who drains a scan has
# it as with strict_order, which drops what is found too late: next to nothing, unless memory is short.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use GpuannTest;
use List::Util qw(sum);
use PgSession;
use ServerTest;
use Test::More;

my $rows = 20000;
my $kept = 2000;	# one row in so many passes the filter
my @limits = (3000, 6000, 12000, 19000);
my $all = 1000000;	# the setting ends scans below a LIMIT only
my $node = server_node('budget', conf => ["work_mem = '4MB'"]);
my $session = PgSession->new($node);
my $index_only = "SET enable_seqscan = off; SET enable_sort = off; SET enable_bitmapscan = off; SET cursor_tuple_fraction = 1;";

$session->rows(qq{
CREATE TABLE items (id int, v vector(3));
INSERT INTO items SELECT i, ARRAY[noise(i, 1), noise(i, 2), noise(i, 3)]::vector FROM generate_series(1, $rows) i;
CREATE TABLE theirs AS SELECT * FROM items;
CREATE INDEX items_v ON items USING gpuann (v vector_l2_ops);
CREATE INDEX theirs_v ON theirs USING hnsw (v vector_l2_ops);
ANALYZE;
$index_only});
ok(await_mirror($node), 'the mirror is ready');

# One scan to its end, or with a LIMIT: rows, distinct ones, distances that are less than one before, what it says to have visited.
sub scan_all
{
	my $limit = $_[0] // $all;
	my $figures = $session->rows(qq{
		WITH found AS MATERIALIZED (SELECT id, v <-> '[0.3,0.4,0.5]' AS distance FROM items ORDER BY v <-> '[0.3,0.4,0.5]' LIMIT $limit),
			 numbered AS (SELECT id, distance, row_number() OVER () AS n FROM found)
		SELECT count(*), count(DISTINCT id), count(*) FILTER (WHERE distance < before)
		FROM (SELECT id, distance, max(distance) OVER (ORDER BY n ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before FROM numbered) x});

	return (split(/\|/, $figures), $session->rows('SELECT visited FROM gpuann_last_scan()'));
}

# How many rows pass behind a filter, in 20 scans.
sub find_kept
{
	my ($table) = @_;

	return $session->rows(qq{
		SELECT sum(n) FROM generate_series(1, 20) q, LATERAL (SELECT count(*) AS n FROM
			(SELECT id FROM $table WHERE id % $kept = 0 ORDER BY v <-> (SELECT v FROM theirs WHERE ctid = ('(0,' || q || ')')::tid) LIMIT 11) x) y});
}

foreach my $path ('off', 'on')
{
	my $where = $path eq 'on' ? 'the server' : 'pages';

	my ($ours, $theirs, $gathered) = (0, 0, 0);

	$session->rows("SET gpuann.server = $path");
	foreach my $limit (@limits)
	{
		$session->rows("SET gpuann.max_scan_tuples = $limit; SET hnsw.max_scan_tuples = $limit; SET hnsw.scan_mem_multiplier = 4");
		foreach my $case ([ 'relaxed_order' ], [ 'complete' ], [ 'complete', $rows ], [ 'strict_order' ])
		{
			my ($mode, $wanted) = @$case;
			my $what = $mode . ($wanted ? ' with a LIMIT' : '') . ", $limit";

			$session->rows("SET gpuann.iterative_scan = $mode");
			my ($found, $distinct, $late, $visited) = scan_all($wanted);
			cmp_ok($found, '>=', 0.97 * $limit, "$where, $what: as many rows are given as may be visited ($found)");
			cmp_ok($visited, '<=', 1.02 * $limit, "$where, $what: no more are visited ($visited)");
			is($distinct, $found, "$where, $what: each row once");
			is($late, 0, "$where, $what: in order") if $mode ne 'relaxed_order';
		}
		$session->rows("SET gpuann.iterative_scan = relaxed_order; SET hnsw.iterative_scan = relaxed_order");
		$ours += find_kept('items');
		$session->rows("SET gpuann.iterative_scan = complete");
		$gathered += find_kept('items');
		$theirs += find_kept('theirs');
	}
	cmp_ok($ours, '>=', 0.9 * $theirs, "$where: as many rows pass a filter as with pgvector and the same limits ($ours, there $theirs)");
	cmp_ok($gathered, '>=', 0.9 * $theirs, "$where, complete: as many ($gathered, there $theirs)");
	cmp_ok($ours, '>=', 0.85 * 20 * sum(@limits) / $kept, "$where: and as many as there are to be found");

	# as many as there are
	$session->rows("SET gpuann.max_scan_tuples = $rows; SET gpuann.iterative_scan = complete");
	is((scan_all())[1], $rows, "$where: a limit of as many rows as there are leaves nothing out");
	$session->rows("SET gpuann.iterative_scan = relaxed_order");
	is(find_kept('items'), 200, "$where: nor with a filter");
	$session->rows("SET gpuann.iterative_scan = complete");
	is(find_kept('items'), 200, "$where, complete: nor there");

	# off has one answer, whatever the limit
	$session->rows("SET gpuann.iterative_scan = off; SET gpuann.max_scan_tuples = 6000");
	is((scan_all())[0], 40, "$where, off: the first answer only");

	# little memory: what the walk cannot keep, exact ranges visit
	$session->rows("SET work_mem = '64kB'");
	foreach my $mode ('relaxed_order', 'complete')
	{
		$session->rows("SET gpuann.iterative_scan = $mode");
		my ($found, $distinct, $late, $visited) = scan_all($mode eq 'complete' ? $rows : undef);
		cmp_ok($found, '>=', 0.97 * 6000, "$where, $mode, little memory: as many rows are given as may be visited ($found)");
		cmp_ok($visited, '<=', 1.02 * 6000, "$where, $mode, little memory: no more are visited ($visited)");
		is($distinct, $found, "$where, $mode, little memory: each row once");
	}
	$session->rows("SET work_mem = '1MB'");
	$session->rows("BEGIN; DECLARE c CURSOR FOR SELECT id FROM items ORDER BY v <-> '[0.3,0.4,0.5]' LIMIT $all");
	my $most = 0;
	foreach my $part (1 .. 60)
	{
		my $used;

		$session->rows('MOVE 100 IN c');
		$used = $session->rows("SELECT sum(used_bytes) FROM pg_backend_memory_contexts WHERE name = 'gpuann scan'");
		$most = $used if $used > $most;
	}
	$session->rows('COMMIT; RESET work_mem');
	cmp_ok($most, '<=', 1048576, "$where: a scan keeps to work_mem ($most bytes)");
}

$session->rows("SET gpuann.server = off; SET gpuann.iterative_scan = complete; SET gpuann.max_scan_tuples = 6000");

# each scan of a rescanned plan has the whole limit
my $each = $session->rows(qq{
	SELECT string_agg(n::text, ' ') FROM (VALUES ('[0.3,0.4,0.5]'::vector), ('[0.1,0.9,0.5]'), ('[0.3,0.4,0.5]')) q(v), LATERAL (SELECT count(*) AS n FROM
		(SELECT id FROM items ORDER BY items.v <-> q.v LIMIT $all) x) y});
cmp_ok($_, '>=', 0.97 * 6000, "a rescan has the whole limit ($_)") foreach split / /, $each;

# cursors, and changes of the table meanwhile: the walk goes on where it stood
my $still = $session->rows("SELECT count(*) FROM (SELECT id FROM items ORDER BY v <-> '[0.3,0.4,0.5]' LIMIT $all) x");
$session->rows("BEGIN; DECLARE c CURSOR FOR SELECT id FROM items ORDER BY v <-> '[0.3,0.4,0.5]' LIMIT $all; CREATE TEMPORARY TABLE had (id int) ON COMMIT DROP");
my @had = split /\n/, $session->rows('FETCH 300 FROM c');
$node->safe_psql('postgres', qq{
	DELETE FROM items WHERE id % 3 = 0;
	INSERT INTO items SELECT $rows + i, '[0.3,0.4,0.5]' FROM generate_series(1, 500) i;
	SELECT gpuann_link('items_v')});
push @had, split /\n/, $session->rows('FETCH 300 FROM c');
$node->safe_psql('postgres', "INSERT INTO items SELECT $rows + 1000 + i, '[0.3,0.4,0.5]' FROM generate_series(1, 5) i; SELECT gpuann_link('items_v'); VACUUM items");
push @had, split /\n/, $session->rows('FETCH ALL FROM c');
$session->rows('COMMIT');
my %once = map { $_ => 1 } @had;
is(scalar(keys %once), scalar(@had), 'a cursor gives each row once while others change the table');
is(scalar(grep { $_ > $rows } @had), 0, '... and none that came since');
cmp_ok(scalar(@had), '>=', 0.9 * $still, '... and what the limit is worth');

# Pending rows, which a scan over pages visits first, are given though others link them, and trim the list, while a cursor is open.
my ($linked, $pending) = (3000, 6000);
my $late = new_node('late', conf => ["work_mem = '4MB'"]);
my $reader = PgSession->new($late);
my %meanwhile = (
	nothing => '',
	linked => "SELECT gpuann_link('items_v')",
	trimmed => "SELECT gpuann_link('items_v'), gpuann_link('items_v')",
	vacuumed => "SELECT gpuann_link('items_v'); VACUUM items",
	'replaced by others' => "SELECT gpuann_link('items_v'), gpuann_link('items_v'); DELETE FROM items WHERE id % 10 = 0; VACUUM items;
		INSERT INTO items SELECT 20000 + i, ARRAY[noise(i, 4), noise(i, 5), noise(i, 6)]::vector FROM generate_series(1, 900) i; SELECT gpuann_link('items_v')",
);

$late->safe_psql('postgres', 'CREATE TABLE items (id int, v vector(3)) WITH (autovacuum_enabled = off)');

# Rows in the graph, then rows that are pending.
sub fill_again
{
	my $row = 'SELECT i, ARRAY[noise(i, 1), noise(i, 2), noise(i, 3)]::vector FROM generate_series';

	$late->safe_psql('postgres', qq{
		TRUNCATE items;
		DROP INDEX IF EXISTS items_v;
		INSERT INTO items $row(1, $linked) i;
		CREATE INDEX items_v ON items USING gpuann (v vector_l2_ops);
		INSERT INTO items $row($linked + 1, $linked + $pending) i});
}

# What a cursor gives that stands still after so many rows while something happens: ids, and how many rows it says to have visited.
sub fetch_around
{
	my ($settings, $first, $event) = @_;

	fill_again();
	$reader->rows("RESET ALL; $index_only $settings; BEGIN; DECLARE c CURSOR FOR SELECT id FROM items ORDER BY v <-> '[0.3,0.4,0.5]' LIMIT $all");
	my @ids = split /\n/, $reader->rows("FETCH $first FROM c");
	$late->safe_psql('postgres', $_) foreach split /;/, $meanwhile{$event};
	push @ids, split /\n/, $reader->rows('FETCH ALL FROM c');
	my $visited = $reader->rows('SELECT visited FROM gpuann_last_scan()');
	$reader->rows('COMMIT');
	return ($visited, @ids);
}

foreach my $case ([ 'complete', 6100, 10 ], [ 'relaxed_order', 5000, 10 ], [ 'complete', 8000, 10 ], [ 'relaxed_order', 8000, 1500 ])
{
	my ($mode, $limit, $first) = @$case;
	my $worth = $limit > $pending ? $limit : $pending;

	foreach my $event (sort keys %meanwhile)
	{
		my $what = "$mode, $limit, $event after $first rows";
		my ($visited, @ids) = fetch_around("SET gpuann.iterative_scan = $mode; SET gpuann.max_scan_tuples = $limit", $first, $event);
		my %given = map { $_ => 1 } @ids;
		my $dead = $event =~ /replaced/ ? 0.1 : 0;

		is(scalar(keys %given), scalar(@ids), "$what: each row once");
		is(scalar(grep { $_ > $linked + $pending } @ids), 0, "$what: none that came since");
		cmp_ok(scalar(@ids), '>=', (0.97 - $dead) * $worth, "$what: as many rows are given as may be visited (" . @ids . ')');
		cmp_ok($visited, '<=', 1.1 * $worth, "$what: no more are visited ($visited)");
		cmp_ok(scalar(grep { $_ > $linked } @ids), '>=', (1 - $dead) * $pending, "$what: all pending rows, which were visited, are given");
	}
}

# More pending rows than a quarter of work_mem holds: others come in their place.
foreach my $event ('nothing', 'trimmed')
{
	my ($visited, @ids) = fetch_around("SET work_mem = '64kB'; SET gpuann.iterative_scan = relaxed_order; SET gpuann.max_scan_tuples = 7000", 10, $event);
	my %given = map { $_ => 1 } @ids;

	is(scalar(keys %given), scalar(@ids), "little memory, $event: each row once");
	cmp_ok(scalar(@ids), '>=', 0.97 * 7000, "little memory, $event: as many rows are given as may be visited (" . @ids . ')');
	cmp_ok($visited, '<=', 1.1 * 7000, "little memory, $event: no more are visited ($visited)");
}

done_testing();
