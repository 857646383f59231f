# Columns that an index includes (INCLUDE) exclude rows before they are ranked or fetched, and no row that a query wants: generated conditions over every
# type that can be included, beside a sequential scan; over pages, by the server, on a standby, among rows that are inserted, changed, deleted, vacuumed,
# lists too. I1, I3, I4. Where columns store all that a condition reads, exactly the rows that pass are chosen. What an index of each format says of itself
# (4 and 5 without columns) and a crash between the records of a row's columns and of the row: sql/included_columns.sql, t/115_faults_at_every_point.pl.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use GpuannTest;
use PgSession;
use ServerTest;
use Test::More;

my $seed = $ENV{GPUANN_SEED} || int(rand(2**31));
my $rounds = $ENV{GPUANN_LONG} ? 2000 : 40;
my $made_of = $ENV{GPUANN_LONG} ? $seed : 42;	# the rows' values: which way a scan takes depends on them
my $next = 4000;

srand($seed);
note("GPUANN_SEED=$seed");

sub pick { return $_[int(rand(@_))]; }

# Columns, how they come of a random whole number r, and values that conditions compare them with.
my @columns = (
	{ name => 'a', type => 'integer', made => 'CASE WHEN r % 9 = 0 THEN NULL ELSE r % 50 END', values => [ 0, 3, 7, 49, 50, 'NULL', "'5'::bigint", "'9'::smallint", 3000000000 ] },
	{ name => 'b', type => 'bigint', made => 'r % 40 * 10000000000::bigint', values => [ 0, 50000000000, 390000000000, -1, "'2'::smallint" ] },
	{ name => 's', type => 'smallint', made => 'r % 30 - 15', values => [ -15, 0, 3, 40000, 14 ] },
	{ name => 'ok', type => 'boolean', made => 'CASE WHEN r % 5 > 0 THEN r % 2 = 0 END', values => [ 'true', 'false' ] },
	{ name => 'c', type => '"char"', made => 'chr(r % 120 + 1)::"char"', values => [ "'a'", "'Z'", "''" ] },
	{ name => 'o', type => 'oid', made => 'CASE WHEN r % 7 = 0 THEN 4294967295::oid ELSE (r % 20)::oid END', values => [ 0, 7, "'4294967295'" ] },
	{ name => 'f', type => 'real', made => q{CASE r % 30 WHEN 0 THEN 'NaN' WHEN 1 THEN '-Infinity' WHEN 2 THEN -0.0 ELSE r % 25 / 7.0 END}, values => [ "'NaN'", 0, 1.5, "'0.142857'::real", "'Infinity'", "1::float8 / 7" ] },
	{ name => 'g', type => 'float8', made => q{CASE r % 30 WHEN 0 THEN 'NaN' WHEN 1 THEN 'Infinity' WHEN 2 THEN NULL ELSE (r % 33 - 11) / 8.0 END}, values => [ "'NaN'", '-0.0', 0.125, "'-Infinity'", "'0.5'::real" ] },
	{ name => 'n', type => 'numeric', made => q{CASE r % 40 WHEN 0 THEN 'NaN' WHEN 1 THEN 'Infinity' WHEN 2 THEN 1e400 WHEN 3 THEN -1e-400 WHEN 4 THEN NULL WHEN 5 THEN 9007199254740993 ELSE r % 100 / 10.0 END},
		values => [ 0, 0.1, 0.3, 9.9, 5, "'NaN'", "'-Infinity'", '1e400', '1e-400', '9007199254740992', '9007199254740993', '0.1000000000000000000001' ], bounds => 1 },
	{ name => 'd', type => 'date', made => q{CASE WHEN r % 50 = 0 THEN 'infinity' ELSE date '2024-01-01' + r % 100 END}, values => [ "'2024-02-01'", "'infinity'", "'-infinity'", "timestamp '2024-02-10'", "timestamp '2024-02-10 12:00'", "timestamptz '2024-03-31 03:30'",
			"timestamptz '2024-04-01 00:00'", "timestamp 'infinity'" ] },
	{ name => 'h', type => 'time', made => q{time '00:00' + r % 1440 * interval '1 minute'}, values => [ "'12:00'", "'23:59'" ] },
	{ name => 'ts', type => 'timestamp', made => q{CASE WHEN r % 50 = 0 THEN '-infinity' ELSE timestamp '2024-01-01' + r % 100 * interval '6 hours' END}, values => [ "'2024-01-10'", "date '2024-01-05'", "'infinity'", "date '5000000-01-01'" ] },
	{ name => 'tz', type => 'timestamptz', made => q{timestamptz '2024-03-30 00:00 Europe/Berlin' + r % 100 * interval '1 hour'}, values => [ "'2024-03-31 03:00'", "date '2024-03-31'", "timestamp '2024-03-31 02:30'" ] },
	{ name => 'u', type => 'uuid', made => q{md5((r % 60)::text)::uuid}, values => [ "md5('3')::uuid", "md5('9')::uuid", "'80000000-0000-0000-0000-000000000000'" ] },
	{ name => 'x', type => 'varchar', made => q{CASE WHEN r % 19 > 0 THEN repeat('x', r % 4 * 6) || r % 20 END}, values => [ "'7'", "''", "'xxxxxx3'", "repeat('x', 18) || '11'", "'xxxxxxxxxxxx14'::text", "'x9'::name" ], bounds => 1 },
	{ name => 'y', type => 'text[]', made => q{CASE WHEN r % 11 = 0 THEN ARRAY['t1', NULL] WHEN r % 13 > 0 THEN ARRAY(SELECT 't' || (r + i * i) % 25 FROM generate_series(1, r % 12) i) END},
		sets => [ "'t3'", "repeat('t', 20)", 'NULL::text' ], values => [ "ARRAY['t1', 't5']", "ARRAY['t2']", "ARRAY['t3', NULL]", "'{}'::text[]", "ARRAY['t7', 't8', 't11']", "ARRAY['t9']::varchar[]::text[]" ], bounds => 1 },
	{ name => 'z', type => 'integer[]', made => q{CASE WHEN r % 13 > 0 THEN ARRAY(SELECT (r + i * i) % 25 - 3 FROM generate_series(1, r % 12) i) END},
		sets => [ -1, 5, "'3'::bigint" ], values => [ 'ARRAY[1, 5]', 'ARRAY[-3]', "'{}'", 'ARRAY[2, NULL]', 'NULL' ], bounds => 1 },
	{ name => 'm', type => 'mood', made => q{(enum_range(NULL::mood))[r % 5]}, values => [ "'sad'", "'ok'", "'mixed'", "'happy'" ] },
);
my $names = join ', ', map { $_->{name} } @columns;
# What fits into an index of each kind. The others are read from the table.
my %included = (
	graph => join(', ', map { $_->{name} } grep { $_->{name} !~ /^(h|ts|z)$/ } @columns),
	lists => join(', ', map { $_->{name} } grep { $_->{name} !~ /^(n|u|y)$/ } @columns));
my $values = join ', ', map { "($_->{made})::$_->{type}" } @columns;

# A condition; $whole: it reads nothing but what the graph's columns store.
sub condition
{
	my ($depth, $whole) = @_;
	my $column = pick($whole ? grep { !$_->{bounds} && $_->{name} !~ /^(h|ts)$/ } @columns : @columns);
	my $name = $column->{name};
	my $kind = rand();

	if ($depth > 0 && rand() < 0.6)
	{
		my @parts = map { condition($depth - 1, $whole) } 1 .. 2 + int(rand(2));

		return $kind < 0.2 ? "NOT ($parts[0])" : '(' . join(pick(' AND ', ' OR '), @parts) . ')';
	}
	return 'id % 3 = 1' if !$whole && $kind < 0.08;
	return pick('ok', 'NOT ok', map { "ok IS $_" } 'TRUE', 'NOT TRUE', 'FALSE', 'NOT FALSE', 'UNKNOWN', 'NOT UNKNOWN') if $kind < 0.15;
	return "$name IS " . pick('', 'NOT ') . 'NULL' if $kind < 0.22;
	if ($column->{sets})
	{
		my ($set, $element) = (pick(@{ $column->{values} }), pick(@{ $column->{sets} }));

		return pick("$name && $set", "$name @> $set", "$set <@ $name", "$set && $name", "$name = $set", "$element = ANY ($name)", "$element <> ALL ($name)");
	}
	if ($kind < 0.4)
	{
		my @list = grep { !/::(bigint|smallint|real)|^(date|timestamp|timestamptz) |^3000000000|^40000$|float8|name/ } @{ $column->{values} };

		return pick("$name = ANY", "$name <> ALL") . ' (ARRAY[' . join(', ', map { pick(@list) } 1 .. 1 + int(rand(4))) . "]::$column->{type}\[])";
	}
	my ($left, $right) = ($name, pick(@{ $column->{values} }));
	($left, $right) = ($right, $left) if rand() < 0.2 && $right =~ /::|^(date|timestamp|timestamptz) /;
	return "$left " . pick('=', '<>', '<', '<=', '>', '>=') . " $right";
}

my $node = server_node('columns', streaming => 1, conf => [ "timezone = 'Europe/Berlin'", 'jit = off', 'max_parallel_workers_per_gather = 0' ]);

sub sql { return $node->safe_psql('postgres', $_[0]); }

sub rows
{
	my ($count) = @_;

	$next += $count;
	return "INSERT INTO items (id, v, $names) SELECT i, CASE WHEN i % 97 > 0 THEN vec(i, 4) END, $values FROM (SELECT i, (noise(i, $made_of) * 1000000)::int AS r FROM generate_series("
	  . ($next - $count) . ', ' . ($next - 1) . ') i) r';
}

sql("CREATE TYPE mood AS ENUM ('sad', 'happy', 'ok'); ALTER TYPE mood ADD VALUE 'mixed' BEFORE 'ok';");
sql('CREATE TABLE items (id int, v vector(4), ' . join(', ', map { "$_->{name} $_->{type}" } @columns) . ')');
sql(rows(3000));
# Several processes build it: each leaves places of its last pages to rows to come.
sql("ALTER TABLE items SET (parallel_workers = 2); SET min_parallel_table_scan_size = 0; SET max_parallel_maintenance_workers = 2;
	CREATE INDEX items_v ON items USING gpuann (v vector_l2_ops) INCLUDE ($included{graph}) WITH (m = 4, ef_construction = 16); ANALYZE items");
await_mirror($node);

my %modes = (
	'the server' => '-cgpuann.server=on',
	pages => '-cgpuann.server=off',
	'pages, little memory' => '-cgpuann.server=off -cwork_mem=64kB -cgpuann.ef_search=1',
);

# Ask for all rows and for the nearest that pass a condition: as many, and the same, as a sequential scan finds.
sub same_rows
{
	my ($when, $on, $count, @wanted) = @_;
	my $oracle = PgSession->new($on, settings => '-cenable_indexscan=off -cgpuann.plan_node=off');
	my %sessions = map { $_ => PgSession->new($on, settings => "-cenable_seqscan=off -cenable_sort=off $modes{$_}") } @wanted;
	my ($wrong, $passing, $filtered) = (0, 0, 0);

	foreach my $number (1 .. $count)
	{
		my $condition = condition(2);
		my ($limit, $near) = (1 + int(rand(30)), 'v <-> vec(' . (100000 + $number) . ', 4)');
		my $all = "SELECT count(*), sum(id) FROM (SELECT id FROM items WHERE v IS NOT NULL AND $condition ORDER BY $near) q";
		my $first = "SELECT count(*) FROM (SELECT id FROM items WHERE v IS NOT NULL AND $condition ORDER BY $near LIMIT $limit) q";
		my $expected = join "\n", map { $oracle->rows($_) } $all, $first;

		$passing++ if $expected !~ /^0/;
		foreach my $mode (@wanted)
		{
			my $found = join "\n", map { $sessions{$mode}->rows($_) } $all, $first;

			next if $found eq $expected;
			diag("$when, $mode: $condition, LIMIT $limit:\n$found\nis not\n$expected") if $wrong++ < 3;
		}
		$filtered++ if $sessions{ $wanted[0] }->rows("EXPLAIN (COSTS OFF) $all") =~ /Index Filter/;
	}
	is($wrong, 0, "$when: the rows of $count conditions are those of a sequential scan");
	cmp_ok($passing, '>', 0, "$when: there are rows that pass ($passing)");
	cmp_ok($filtered, '>', 0, "$when: there are conditions that are evaluated on columns ($filtered)");
	$_->close foreach $oracle, values %sessions;
}

# Where no row is dead exactly the rows are chosen that pass; by the server, which counts places without rows too, no fewer.
my ($wrong, $told, $sent) = (0, 0, 0);
my %choosers = map { $_ => PgSession->new($node, settings => "-cenable_seqscan=off -cenable_sort=off $modes{$_}") } 'pages', 'the server';
foreach my $number (1 .. $rounds)
{
	my $condition = condition(2, 1);
	my $explain = "EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) SELECT id FROM items WHERE $condition ORDER BY v <-> vec(1, 4)";
	my $passes = $choosers{pages}->rows("SELECT count(*) FROM items WHERE v IS NOT NULL AND ($condition)");
	my $plan = $choosers{pages}->rows($explain);
	my $sent_plan = $choosers{'the server'}->rows($explain);

	if ($sent_plan =~ / chosen=(\d+) ranked_by=server/)
	{
		$sent++;
		diag("$condition: $1 are chosen by the server, $passes pass") if $1 < $passes && $wrong++ < 3;
	}
	next if $plan !~ / chosen=(\d+)/;
	$told++;
	next if $1 == $passes;
	diag("$condition: $1 are chosen, $passes pass") if $wrong++ < 3;
}
$_->close foreach values %choosers;
is($wrong, 0, 'exactly the rows are chosen that pass');
cmp_ok($told, '>', $rounds / 10, "rows are chosen by columns ($told)");
cmp_ok($sent, '>', $rounds / 10, "the server chooses ($sent)");

same_rows('after the build', $node, $rounds, sort keys %modes);

# Over pages few are chosen and ranked, a server chooses by itself; where many pass, rows are searched for, and excluded before they are fetched.
my %few = ('the server' => qr/ rounds=1 exact=0 .* chosen=\d+ ranked_by=server/, pages => qr/ rounds=0 exact=1 .* chosen=\d+ ranked_by=pages/);
foreach my $mode (sort keys %few)
{
	my $asker = PgSession->new($node, settings => "-cenable_seqscan=off -cenable_sort=off $modes{$mode}");
	my $explain = 'EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) SELECT id FROM items WHERE %s ORDER BY v <-> vec(1, 4) LIMIT 10';

	like($asker->rows(sprintf $explain, 'a = 7'), $few{$mode}, "$mode: few pass");
	like($asker->rows(sprintf $explain, 's < 0'), qr/ rounds=1 exact=0 (?!.*chosen=).* excluded=\d+/, "$mode: many pass");
	# The planner takes these to be as few as of independent columns, or expects half: what rounds find decides.
	like($asker->rows(sprintf $explain, 'b < 0 OR s < -15 OR o > 4294967295'), qr/rows=0 .* chosen=0 /s, "$mode: none are chosen");
	$asker->close;
}

# What is too long to be sent, and what has to be the same as without columns, is evaluated here, as without a server that has columns.
my $long = 'a = ANY (ARRAY[7, 8' . (', 1000000' x 600) . '])';
my $asker = PgSession->new($node, settings => "-cenable_seqscan=off -cenable_sort=off $modes{'the server'}");
my $limited = 'EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) SELECT id FROM items WHERE %s ORDER BY v <-> vec(1, 4) LIMIT 10';
like($asker->rows(sprintf $limited, $long), qr/ exact=1 .* chosen=\d+ ranked_by=server/, 'a long condition is evaluated by the session');
unlike($asker->rows('SET gpuann.iterative_scan = off; ' . sprintf $limited, 'a = 7'), qr/ chosen=/, 'a scan that ends with its first answer');
$asker->close;

# Rows come, change and go; those in places of others, those that are not linked.
foreach my $turn (1 .. 3)
{
	sql(rows(200));
	sql("DELETE FROM items WHERE noise(id, $turn) < 0.1");
	sql("UPDATE items SET ($names) = (SELECT $values FROM (SELECT (noise(id, $turn + 10) * 1000000)::int AS r) q) WHERE noise(id, -$turn) < 0.1");
	sql('VACUUM items') if $turn < 3;
	sql(rows(100));
	check_index($node, "turn $turn");
	is(sql("SELECT gpuann_check('items_v', true)"), '', "turn $turn: columns are those of the rows");
	same_rows("turn $turn", $node, $rounds / 4, sort keys %modes);
	next if $turn != 2;
	# The server dies: what it has chosen goes with it, and sessions go on.
	kill('KILL', server_pid($node));
	same_rows('after its death', $node, $rounds / 4, 'the server');
	await_server($node);
	await_mirror($node);
	same_rows('with the next server', $node, $rounds / 4, 'the server');
}

# A standby has what the primary wrote.
$node->backup('copy');
my $standby = PostgreSQL::Test::Cluster->new('columns_standby');
$standby->init_from_backup($node, 'copy', has_streaming => 1);
$standby->start;
sql(rows(150));
sql('DELETE FROM items WHERE id % 50 = 3; VACUUM items');
sql(rows(50));
$node->wait_for_catchup($standby, 'replay', $node->lsn('insert'));
is($standby->safe_psql('postgres', "SELECT gpuann_check('items_v', true)"), '', 'standby: columns are those of the rows');
same_rows('standby', $standby, $rounds / 4, 'pages');
$standby->stop;

# Lists.
sql("DROP INDEX items_v; CREATE INDEX items_v ON items USING gpuann (v vector_l2_ops) INCLUDE ($included{lists}) WITH (method = ivfpq, lists = 20)");
sql(rows(100));
is(sql("SELECT gpuann_check('items_v', true)"), '', 'lists: columns are those of the rows');
await_mirror($node);
same_rows('lists', $node, $rounds / 4, sort keys %modes);

# A snapshot sees the rows that it saw, whatever others do to their columns meanwhile.
my $old = PgSession->new($node, settings => "-cenable_seqscan=off -cenable_sort=off $modes{pages}");
my $count = 'SELECT count(*), sum(id) FROM (SELECT id FROM items WHERE a < 25 ORDER BY v <-> vec(1, 4)) q';
my $before = $old->rows("BEGIN ISOLATION LEVEL REPEATABLE READ; $count");
sql('UPDATE items SET a = 100 - a; DELETE FROM items WHERE id % 2 = 0; VACUUM items');
sql(rows(300));
is($old->rows($count), $before, 'a snapshot sees the columns that it saw');
$old->close;
$node->stop;
done_testing();
