# A filter of which far fewer rows pass than the planner expects has all rows judged in the order of the table, and only those that pass ranked. The
# rows are those of a sequential scan: after deletes and updates, HOT and not, beside VACUUM and writers, in cursors, with little work_mem, of every
# element type and metric, however many rows pass and wherever they lie. I2, I4. Where there is a server it ranks them, as a set of rows, and the pages
# go on where it fails: I3, I5.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use GpuannTest;
use PgSession;
use ServerTest;
use Test::More;

my ($rows, $dims) = (6000, 16);
my $node = server_node('heap', conf => [ 'gpuann.server = off', 'jit = off', 'max_parallel_workers_per_gather = 0' ]);

# Filters; the planner expects a third, or a two-hundredth of the rows to pass.
my %filters = (
	few => 'id % 1999 < 2',
	one => 'id % 5003 = 17',
	none => 'id % 10 < 0',
	half => 'id % 1000 = any (ARRAY(SELECT generate_series(0, 499)))');

make_data($node, $rows, $dims, no_index => 1);
$node->safe_psql('postgres', qq{
	ALTER TABLE items ADD n int DEFAULT 0;
	ALTER TABLE items SET (fillfactor = 50);
	VACUUM FULL items;
	CREATE INDEX items_v ON items USING gpuann (v vector_l2_ops);
	ANALYZE items});

my $query = $node->safe_psql('postgres', "SELECT vec(100007, $dims)");
my $ours = 'SET enable_seqscan = off; SET enable_sort = off;';
my $theirs = 'SET enable_indexscan = off; SET gpuann.plan_node = off;';

sub nearest
{
	my ($filter, $limit, $offset) = @_;
	return "SELECT id, n FROM items WHERE $filter ORDER BY v <-> '$query' LIMIT $limit OFFSET " . ($offset // 0);
}

# Whether rows were ranked after all had been judged: fewer were compared by the exact pass than there are.
sub judged_first
{
	my ($filter, $settings) = @_;
	my $plan = $node->safe_psql('postgres', "$ours $settings EXPLAIN (ANALYZE, TIMING OFF) " . nearest($filter, 10));
	return $plan =~ /in_heap_order=\d+/ ? 'yes' : $plan;
}

# Rows with the neighbours of the same distance in one order: that of ties is anybody's.
sub settled
{
	my ($rows) = @_;
	my @runs = ([]);
	my %distance = map { split /\|/ } split /\n/, $node->safe_psql('postgres', "SELECT id, v <-> '$query' FROM items");
	foreach my $row (split /\n/, $rows)
	{
		my ($id) = split /\|/, $row;
		push @runs, [] if @{ $runs[-1] } && $distance{$id} != $distance{ (split /\|/, $runs[-1][-1])[0] };
		push @{ $runs[-1] }, $row;
	}
	return join "\n", map { sort @$_ } @runs;
}

sub same_rows
{
	my ($when) = @_;

	foreach my $name (sort keys %filters)
	{
		foreach my $settings ('', "SET work_mem = '64kB';", 'SET gpuann.exact = on;')
		{
			my $statements = join(';', map { nearest($filters{$name}, @$_) } [1], [10], [50], [3000], [ 20, 30 ]);

			is(settled($node->safe_psql('postgres', "$ours $settings $statements")), settled($node->safe_psql('postgres', "$theirs $statements")),
				"$when: $name, $settings as the sequential scan");
		}
	}
}

same_rows('new');
is(judged_first($filters{$_}, ''), 'yes', "$_: judged in heap order") foreach qw(few none);
is(judged_first($filters{$_}, 'SET gpuann.exact = on;'), 'yes', "exact, $_: judged in heap order") foreach qw(few one);
unlike(judged_first('id > 10', ''), qr/^yes/, 'a filter that most rows pass: judged in order of distance');

# The server ranks what passed: it gives the rows of the pages, and EXPLAIN says who ranked.
my $served = "$ours SET gpuann.server = on;";

sub ranked_by
{
	my ($filter, $settings) = @_;
	my $plan = $node->safe_psql('postgres', "$served $settings EXPLAIN (ANALYZE, TIMING OFF) " . nearest($filter, 10));
	return $plan =~ /in_heap_order=\d+ ranked_by=(\w+)/ ? $1 : $plan;
}

sub served_rows
{
	my ($when, @names) = @_;

	foreach my $name (@names)
	{
		foreach my $settings ('', "SET work_mem = '64kB'; SET gpuann.exact = on;")
		{
			my $statements = join(';', map { nearest($filters{$name}, @$_) } [10], [50], [ 20, 30 ]);

			is(settled($node->safe_psql('postgres', "$served $settings $statements")), settled($node->safe_psql('postgres', "$theirs $statements")),
				"$when: $name, $settings by the server as the sequential scan");
		}
	}
}

sub mirror_is_ready
{
	return await('the mirror is ready', sub {
		$node->safe_psql('postgres', "$served SELECT id FROM items ORDER BY v <-> '$query' LIMIT 1");
		return figure($node, "state || ' ' || mirror_lag") eq 'ready 0';
	});
}

mirror_is_ready();
my $strict = "SET gpuann.fallback = 'error';";
served_rows('new', sort keys %filters);
is(ranked_by($filters{few}, $strict), 'server', 'few: ranked by the server');
is(ranked_by($filters{one}, "$strict SET gpuann.exact = on;"), 'server', 'exact: ranked by the server');
is(ranked_by($filters{none}, ''), 'pages', 'no row passes: nothing is sent');

# A session answers to a cancel while it judges, and while it waits for a server that does not rank.
sub canceled
{
	my ($settings, $filter) = @_;
	my ($rc, $out, $err) = $node->psql('postgres', "$served SET gpuann.exact = on; $settings; " . nearest($filter, 10));
	return $err =~ /canceling statement due to statement timeout/ ? 'yes' : "$out $err";
}

is(canceled("SET gpuann.server = $_; SET statement_timeout = 50", "md5(repeat(id::text, 20000)) < '0'"), 'yes', "canceled while it judges, server = $_") foreach qw(on off);
# ... and anywhere between, the ranking included, if it is not done by then: its answer is whole, or there is none.
my $whole = settled($node->safe_psql('postgres', "$theirs " . nearest($filters{half}, 3000)));
foreach my $server (qw(on off))
{
	my @wrong = grep {
		my ($rc, $out, $err) = $node->psql('postgres', "$served SET gpuann.server = $server; SET statement_timeout = $_; " . nearest($filters{half}, 3000));
		$err !~ /canceling statement due to statement timeout/ && settled($out) ne $whole;
	} 2, 4, 8, 12, 16, 24, 32;
	is("@wrong", '', "canceled at any time, server = $server");
}
kill 'STOP', server_pid($node);
is(canceled('SET statement_timeout = 300', $filters{few}), 'yes', 'canceled while it waits for the server');
kill 'CONT', server_pid($node);
served_rows('after a cancel', 'few');

# A session has few sets at a time: they end with the scan, by errors too.
my $many = PgSession->new($node);
$many->rows("$served $strict");
$many->rows(nearest($filters{few}, 5)) foreach 1 .. 12;
$many->rows("DO \$\$ BEGIN PERFORM 1 / (id - id) FROM (" . nearest($filters{few}, 5) . ") s; EXCEPTION WHEN division_by_zero THEN NULL; END \$\$") foreach 1 .. 12;
like($many->rows('EXPLAIN (ANALYZE, TIMING OFF) ' . nearest($filters{few}, 5)), qr/ranked_by=server/, 'sets end with their scans');
my $open = join(';', map { "DECLARE c$_ CURSOR FOR " . nearest($filters{few}, 5) . "; FETCH 1 FROM c$_" } 1 .. 10);
$many->rows("SET gpuann.fallback = on; BEGIN; $open");
is($many->rows('FETCH ALL FROM c10'), $many->rows('FETCH ALL FROM c1'), 'more sets than a session may have: by the pages');
$many->rows('COMMIT');
like($many->rows('EXPLAIN (ANALYZE, TIMING OFF) ' . nearest($filters{few}, 5)), qr/ranked_by=server/, '... and afterwards by the server');

# Rows that the mirror has not seen are compared beside it.
my $worker = worker_pid($node);
kill 'STOP', $worker;
$node->safe_psql('postgres', "UPDATE items SET v = vec(id + 500, $dims) WHERE id % 1999 = 1 OR id % 30 = 0; INSERT INTO items SELECT i, vec(100007, $dims), 5 FROM generate_series(19991, 19991) i");
served_rows('the mirror is behind', qw(few one));
is(ranked_by($filters{few}, $strict), 'server', 'the mirror is behind: ranked by the server');
# The only row that passes has the slot of one that the mirror still has.
my $single = nearest('id % 5999 = 5003', 10);
$node->safe_psql('postgres', $_) foreach 'DELETE FROM items WHERE id = 5003', 'VACUUM (INDEX_CLEANUP ON) items', "INSERT INTO items SELECT 5003, vec(9, $dims), 6";
is($node->safe_psql('postgres', "$served $single"), '5003|6', 'the mirror is behind: a slot that is used again');
# A plain index scan has the old row in each of its rounds, too late in the second; the slot's own row is one of the farthest.
my ($near) = $node->safe_psql('postgres', "$theirs SELECT id FROM items ORDER BY v <-> '$query' LIMIT 1 OFFSET 1");
my ($far) = $node->safe_psql('postgres', "$theirs SELECT v FROM items ORDER BY v <-> '$query' DESC LIMIT 1 OFFSET 50");
$node->safe_psql('postgres', $_) foreach "DELETE FROM items WHERE id = $near", 'VACUUM (INDEX_CLEANUP ON) items', "INSERT INTO items VALUES (19992, '$far')";
like($node->safe_psql('postgres', "$served SET gpuann.plan_node = off; SELECT id FROM items ORDER BY v <-> '$query'"), qr/^19992$/m,
	'... and a plain index scan of all rows');
kill 'CONT', $worker;
mirror_is_ready();
served_rows('the mirror has caught up', qw(few one));

# Many rows pass, and are sent as a bitmap; and little work_mem has no bitmap of them: they are sorted.
$node->safe_psql('postgres', "CREATE TABLE wide AS SELECT i AS id, ARRAY[hashint4(i), hashint4(i + 7), i % 100]::real[]::vector(3) AS v FROM generate_series(1, 34000) i;
	ALTER TABLE wide ALTER v TYPE vector(3); CREATE INDEX wide_v ON wide USING gpuann (v vector_l2_ops) WITH (m = 4, ef_construction = 8); ANALYZE wide");

sub of_wide { return "SELECT v <-> '[0,0,0]' FROM wide WHERE $_[0] ORDER BY v <-> '[0,0,0]' LIMIT $_[1]" }

await('the mirror of wide is ready', sub {
	$node->safe_psql('postgres', "$served " . of_wide('true', 1));
	return figure($node, "state || ' ' || mirror_lag", 'wide_v') eq 'ready 0';
});
foreach my $ask (of_wide('id % 1000 < 1', 30), of_wide('id % 40 < 20', 3000))
{
	my $expected = $node->safe_psql('postgres', "$theirs $ask");

	foreach my $memory (qw(64kB 4MB))
	{
		foreach my $server (qw(on off))
		{
			my $set = "$ours SET gpuann.server = $server; SET work_mem = '$memory';";
			my $by = $server eq 'on' ? 'server' : 'pages';

			is($node->safe_psql('postgres', "$set $ask"), $expected, "many rows, $memory: by the $by as the sequential scan");
			like($node->safe_psql('postgres', "$set EXPLAIN (ANALYZE, TIMING OFF) $ask"), qr/in_heap_order=34000 ranked_by=$by/, '... judged in heap order');
		}
	}
}

# The server dies between two rounds of a scan.
my $long = PgSession->new($node);
my $all = of_wide('id % 40 < 20', 3000);
my $before = $node->safe_psql('postgres', "$theirs $all");
$long->rows("$served SET cursor_tuple_fraction = 1; BEGIN; DECLARE c CURSOR FOR $all");
my $begun = $long->rows('FETCH 500 FROM c');
kill 'KILL', server_pid($node);
is(join("\n", $begun, $long->rows('FETCH ALL FROM c')), $before, 'the server dies: the pages go on');
like($long->rows('SELECT path, fallback_reason FROM gpuann_last_scan()'), qr/^server\|(no_server|server_died)$/, '... in the middle of the set');
$long->rows('COMMIT');
served_rows('without the server', qw(few));
await_server($node);
mirror_is_ready();
is(ranked_by($filters{few}, $strict), 'server', 'the next server ranks');

# Filters with the distance, or a threshold of it, are evaluated on the table's vectors.
foreach my $filter ("id % 1999 < 2 AND v <-> '$query' < 100", "id % 1999 < 2 AND v <-> '$query' > 0.1")
{
	is($node->safe_psql('postgres', "$ours " . nearest($filter, 10)), $node->safe_psql('postgres', "$theirs " . nearest($filter, 10)), "with the distance: $filter");
	is(judged_first($filter, ''), 'yes', '... judged in heap order');
	is($node->safe_psql('postgres', "$served " . nearest($filter, 10)), $node->safe_psql('postgres', "$theirs " . nearest($filter, 10)), '... by the server');
}

# A partial index of few rows does not have the whole table read.
$node->safe_psql('postgres', "CREATE TABLE parts AS SELECT id, id % 10 AS part, vec(id, $dims) AS v FROM generate_series(1, 3000) id; ALTER TABLE parts ALTER v TYPE vector($dims);
	CREATE INDEX ON parts USING gpuann (v vector_l2_ops) WHERE part = 3; CREATE INDEX ON parts USING gpuann (v vector_l2_ops) WHERE part > 3; ANALYZE parts");
foreach my $of ([ 'part = 3', 0 ], [ 'part > 3', 1 ])
{
	my $ask = "SELECT id FROM parts WHERE $of->[0] AND id % 997 < 100 ORDER BY v <-> '$query' LIMIT 20";
	my $plan = $node->safe_psql('postgres', "$ours EXPLAIN (ANALYZE, TIMING OFF) $ask");

	is($plan =~ /in_heap_order=/ ? 1 : 0, $of->[1], "a partial index of $of->[0]: judged in heap order or not") or diag($plan);
	is($node->safe_psql('postgres', "$ours $ask"), $node->safe_psql('postgres', "$theirs $ask"), '... as the sequential scan');
}

# HOT updates, others, deletes, rows that nobody sees any more, and slots that are used again.
$node->safe_psql('postgres', "UPDATE items SET n = 1 WHERE id % 3 = 0; UPDATE items SET n = n + 1 WHERE id % 6 = 0");
same_rows('HOT updates');
$node->safe_psql('postgres', "UPDATE items SET v = vec(id + 50000, $dims) WHERE id % 7 = 0; DELETE FROM items WHERE id % 11 = 0");
same_rows('updates and deletes');
$node->safe_psql('postgres', 'VACUUM items');
fill_rows($node, $rows + 1, $rows + 2000, $dims);
same_rows('slots used again');
$node->safe_psql('postgres', 'UPDATE items SET id = id + 100000 WHERE id > 6000 AND id % 2 = 0');
same_rows('rows that are not linked');

# A snapshot that is older than all that: a cursor's rows are its own, before, between and after.
my $cursor = PgSession->new($node);
my $filter = $filters{few};
my $asked = nearest($filter, 100);
my $expected = $node->safe_psql('postgres', "$theirs $asked");

my $fresh = 40000;
foreach my $mode ('', 'SET gpuann.exact = on;')
{
	$expected = $node->safe_psql('postgres', "$theirs $asked");
	$fresh += 500;
	$cursor->rows("RESET ALL; $ours $mode SET work_mem = '64kB'; BEGIN ISOLATION LEVEL REPEATABLE READ; DECLARE c CURSOR FOR $asked; DECLARE late CURSOR FOR $asked");
	my $first = $cursor->rows('FETCH 2 FROM c');
	$node->safe_psql('postgres', "UPDATE items SET n = n + 1, v = vec(id + 7, $dims) WHERE $filter; DELETE FROM items WHERE id % 5 = 0; VACUUM items; INSERT INTO items SELECT i, vec(i, $dims), 9 FROM generate_series($fresh, $fresh + 499) i");
	is(join("\n", $first, $cursor->rows('FETCH ALL FROM c')), $expected, "$mode a cursor that was begun");
	is($cursor->rows('FETCH ALL FROM late'), $expected, "$mode a cursor that was not");
	$cursor->rows('COMMIT');
}
same_rows('after cursors');

# Interrupted, begun again, and by prepared statements.
my $lateral = "SELECT g, x.id FROM generate_series(1, 6) g, LATERAL (SELECT id, v FROM items WHERE id % 1999 < g ORDER BY v <-> vec(g, $dims) LIMIT 3) x ORDER BY g, x.v <-> vec(g, $dims)";

is($node->safe_psql('postgres', "$ours SET work_mem = '64kB'; $lateral"), $node->safe_psql('postgres', "$theirs $lateral"), 'rescans');
$cursor->rows("RESET ALL; $ours PREPARE p(int, int) AS SELECT id FROM items WHERE id % 1999 < \$1 ORDER BY v <-> '$query' LIMIT \$2; SET plan_cache_mode = force_generic_plan");
foreach my $of (1, 3, 9)
{
	is($cursor->rows("EXECUTE p($of, 5)"), $node->safe_psql('postgres', "$theirs SELECT id FROM items WHERE id % 1999 < $of ORDER BY v <-> '$query' LIMIT 5"), "prepared: $of");
}
$cursor->rows("BEGIN; SAVEPOINT s; DECLARE c CURSOR FOR $asked; SET LOCAL work_mem = '64kB'; FETCH 1 FROM c; ROLLBACK TO s; COMMIT");
pass('a subtransaction that is rolled back closes what it opened');
my ($rc, $out, $err) = $node->psql('postgres', "$ours SELECT id FROM items WHERE 1 / (id - 4001) IS NULL AND id % 1999 < 2 ORDER BY v <-> '$query' LIMIT 10");
like($err, qr/division by zero/, 'an error of the filter is the statement\'s');
unlike($err, qr/WARNING/, '... and leaves nothing behind');

# Beside writers and VACUUM the answers of one snapshot agree.
foreach my $round (1 .. 15)
{
	my $session = PgSession->new($node);

	$session->rows("$ours SET work_mem = '64kB'; BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1");
	$node->safe_psql('postgres', "UPDATE items SET n = n + 1 WHERE id % 4 = $round % 4; UPDATE items SET v = vec(id + $round, $dims) WHERE id % 50 = $round; DELETE FROM items WHERE id % 97 = $round; VACUUM items");
	fill_rows($node, 20000 + 100 * $round, 20099 + 100 * $round, $dims);
	my $mine = $session->rows(nearest($filters{few}, 20));
	$session->rows("SET LOCAL enable_seqscan = on; SET LOCAL enable_sort = on; SET LOCAL enable_indexscan = off; SET LOCAL gpuann.plan_node = off");
	is($mine, $session->rows(nearest($filters{few}, 20)), "beside writers, $round: one snapshot");
	$session->rows('COMMIT');
}
check_index($node, 'everything done');

# Every type and metric.
foreach my $case ([ 'vector', 'vector_l2_ops', '<->' ], [ 'vector', 'vector_ip_ops', '<#>' ], [ 'vector', 'vector_cosine_ops', '<=>' ], [ 'vector', 'vector_l1_ops', '<+>' ],
	[ 'halfvec', 'halfvec_l2_ops', '<->' ], [ 'halfvec', 'halfvec_ip_ops', '<#>' ], [ 'halfvec', 'halfvec_cosine_ops', '<=>' ], [ 'halfvec', 'halfvec_l1_ops', '<+>' ],
	[ 'bit', 'bit_hamming_ops', '<~>' ], [ 'bit', 'bit_jaccard_ops', '<%>' ])
{
	my ($type, $class, $operator) = @$case;
	my $length = $type eq 'bit' ? 64 : $dims;
	my $value = $type eq 'bit' ? 'hashint8extended(id, 3)::bit(64)' : "vec(id, $dims)::$type($dims)";
	my $of = $type eq 'bit' ? 'hashint8extended(77777, 3)::bit(64)' : "vec(77777, $dims)::$type($dims)";
	my $ask = "SELECT v $operator (SELECT $of) FROM typed WHERE id % 997 < 3 ORDER BY 1 LIMIT 15";

	$node->safe_psql('postgres', "DROP TABLE IF EXISTS typed; CREATE TABLE typed AS SELECT id, $value AS v FROM generate_series(1, 3000) id;
		ALTER TABLE typed ALTER v TYPE $type($length); CREATE INDEX typed_v ON typed USING gpuann (v $class); ANALYZE typed");
	my $plan = $node->safe_psql('postgres', "$ours EXPLAIN (ANALYZE, TIMING OFF) $ask");
	like($plan, qr/in_heap_order=/, "$class: judged in heap order");
	is($node->safe_psql('postgres', "$ours $ask"), $node->safe_psql('postgres', "$theirs $ask"), "$class: as the sequential scan");
}
# Without a filter nothing is judged ahead: the exact pass gives the rows again that rounds had found, whose tuples were kept, several of each distance.
$node->safe_psql('postgres', "CREATE TABLE twice WITH (autovacuum_enabled = off) AS SELECT id, ARRAY[id / 4, 0, 0]::vector(3) AS v FROM generate_series(1, 3000) id;
	CREATE INDEX twice_v ON twice USING gpuann (v vector_l2_ops); DELETE FROM twice WHERE id BETWEEN 11 AND 2900");
my $ask = "SELECT id FROM twice ORDER BY v <-> '[0,0,0]' LIMIT 30";
like($node->safe_psql('postgres', "$ours EXPLAIN (ANALYZE, TIMING OFF) $ask"), qr/rounds=[1-9]\d* exact=1/, 'an exact pass behind rounds');
is($node->safe_psql('postgres', "$ours SELECT string_agg(id::text, ' ' ORDER BY id) FROM ($ask) x WHERE id <= 10"), '1 2 3 4 5 6 7 8 9 10', 'gives the rows again that were kept');
$node->stop;
done_testing();
