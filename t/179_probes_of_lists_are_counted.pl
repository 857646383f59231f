# The server counts how often lists are probed: gpuann_list_stats equals a recount at once, lists are placed by it, and it outlives mirrors, servers and
# the cluster, but neither REINDEX nor a damaged file.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use GpuannTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ServerTest;
use List::Util qw(sum);
use Test::More;

use constant { PAGE => 8192, HEADER => 24 };

my $dims = 16;
my $lists;
my $probes = 5;
my $queries = 1000;
my $node = server_node('main');
my $file = $node->data_dir . '/pg_stat/gpuann.stat';

# How often each list was probed.
sub counts
{
	return split /,/, $node->safe_psql('postgres', "SELECT string_agg(coalesce(probes, 0)::text, ',' ORDER BY list) FROM gpuann_list_stats('items_v')");
}

sub total
{
	return $node->safe_psql('postgres', "SELECT coalesce(sum(probes), 0) FROM gpuann_list_stats('items_v')");
}

# The centroids, which are on the page behind metapage and directory.
sub centroids
{
	my $path = $node->safe_psql('postgres', "CHECKPOINT; SELECT pg_relation_filepath('items_v')");
	my @floats = unpack('f<' . $lists * $dims, substr(slurp_file($node->data_dir . "/$path"), 2 * PAGE + HEADER, 4 * $lists * $dims));

	return map { [ @floats[ $_ * $dims .. ($_ + 1) * $dims - 1 ] ] } 0 .. $lists - 1;
}

# The lists whose centroids are nearest to a vector.
sub nearest_lists
{
	my ($vector, @centroids) = @_;
	my @distance = map {
		my $centroid = $_;
		my $sum = 0;

		$sum += ($vector->[$_] - $centroid->[$_])**2 foreach 0 .. $dims - 1;
		$sum;
	} @centroids;

	return (sort { $distance[$a] <=> $distance[$b] } 0 .. $#centroids)[ 0 .. $probes - 1 ];
}

# Counts after a restart: those before it, but for what a second of aging takes, and what a query that waits for the mirror adds.
sub kept
{
	my ($what, $before) = @_;

	ok(await("$what: counts are back", sub { total() > $before * 0.99 }), "$what: counts are kept");
	cmp_ok(total(), '<', $before + 100 * $lists, "$what: and not counted twice");
}

# Change the file while the cluster is down.
sub with_file
{
	my ($change) = @_;
	my $bytes;

	$node->stop;
	$bytes = $change->(slurp_file($file));
	open(my $handle, '>:raw', $file) or die;
	print $handle $bytes;
	close $handle;
	$node->start;
	await_mirror($node);
}

make_data($node, 4000, $dims, with => 'WITH (method = ivfpq, lists = 30)');
ok(await_mirror($node), 'the mirror is there');
$lists = $node->safe_psql('postgres', "SELECT lists FROM gpuann_lists('items_v')");
cmp_ok($lists, '>', 20, 'there are lists');

# Known queries, with hot spots, and a recount.
my @ids = map { $_ % 3 == 0 ? 7 : 90000 + $_ } 1 .. $queries;
my @vectors = map { [ split /,/, $_ ] } split /\n/,
  $node->safe_psql('postgres', "SELECT trim(both '[]' from vec(i, $dims)::text) FROM unnest(ARRAY[" . join(',', @ids) . ']) WITH ORDINALITY u (i, n) ORDER BY n');
my @centroids = centroids();
my @recount = (0) x $lists;
my @before = counts();

foreach my $vector (@vectors)
{
	$recount[$_]++ foreach nearest_lists($vector, @centroids);
}
$node->safe_psql('postgres', join("\n", "SET enable_seqscan = off; SET gpuann.fallback = error; SET gpuann.probes = $probes;",
	map { "SELECT id FROM items ORDER BY v <-> '[" . join(',', @$_) . "]' LIMIT 3;" } @vectors));
my @after = counts();

# Where two centroids are equally far but for rounding, either may be the last; and counts age meanwhile.
cmp_ok(sum(map { abs(sprintf('%.0f', $after[$_] - $before[$_]) - $recount[$_]) } 0 .. $lists - 1), '<=', 10, 'counts equal a recount at once');
is($node->safe_psql('postgres', "SELECT round(sum(share)::numeric, 6) || ' ' || (max(share) > 1.2 * avg(share)) FROM gpuann_list_stats('items_v')"), '1.000000 true',
	'shares of the work');
cmp_ok($node->safe_psql('postgres', "SELECT max(load_by_rows) - max(load) FROM gpuann_list_placement('items_v', 8)"), '>', 0.2,
	'lists are placed by what was counted');
is($node->safe_psql('postgres', "SELECT count(*) FROM (SELECT load FROM gpuann_list_placement('items_v', 4, probes => array_fill(1::float8, ARRAY[$lists]))
	EXCEPT SELECT load FROM gpuann_list_placement('items_v', 4)) x") > 0, 1, 'but for probes that the caller gives');

# What the pages answer is not counted.
my $sum = total();
$node->safe_psql('postgres', "SET enable_seqscan = off; SET gpuann.server = off; SET gpuann.probes = 40;
	SELECT count(*) FROM generate_series(1, 50) i, LATERAL (SELECT id FROM items ORDER BY v <-> vec(i, $dims) LIMIT 1) x");
cmp_ok(total(), '<=', $sum, 'searches of the pages are not counted');

# Mirrors, servers and clusters end.
$node->safe_psql('postgres', "SELECT gpuann_evict('items_v')");
cmp_ok(total(), '>', $sum * 0.99, 'counts outlive the mirror');
ok(await_mirror($node), 'which comes back');
kept('evicted', $sum);
$sum = total();
kill 'KILL', server_pid($node);
ok(await('a server is back', sub { status($node, 'state') eq 'ready' }), 'a server is back');
ok(await_mirror($node), 'and the mirror');
kept('a server that was killed', $sum);
by_server($node, 'SET gpuann.probes = 40;');
$sum = total();
$node->restart;
kept('a restart', $sum);
ok(await_mirror($node), 'the mirror comes back');
kept('mirrored again', $sum);
$sum = total();
$node->safe_psql('postgres', "CREATE TABLE others (v vector(3)); INSERT INTO others VALUES ('[1,2,3]');
	CREATE INDEX others_v ON others USING gpuann (v vector_l2_ops) WITH (method = ivfpq)");
$node->restart;
kept('beside another index', $sum);
is(log_count($node, qr/ignoring "pg_stat/), 0, 'the file is as it was written');
is((stat($file))[2] & 0077, 0, 'and nobody else\'s to read');

# Files that are not to be believed.
$sum = total();
with_file(sub { substr($_[0], length($_[0]) - 9, 1) ^= 'x'; return $_[0] });
is(log_count($node, qr/ignoring "pg_stat\/gpuann\.stat": it is damaged/), 1, 'a damaged file is ignored, and the log says so');
cmp_ok(total(), '<', $sum / 2, 'nothing of it is believed');
with_file(sub { return substr($_[0], 0, length($_[0]) - 8) });
with_file(sub { return "$_[0]x" });
with_file(sub { return pack('L', 1) . substr($_[0], 4) });
with_file(sub { return 'x' });
is(log_count($node, qr/ignoring "pg_stat\/gpuann\.stat": it is damaged/), 5, 'nor one that is cut off, too long, or of something else');
is(by_server($node, 'SET gpuann.exact = on;'), by_table($node), 'answers are right');

# A new relation file begins anew; counts of an index that is gone leave the file.
by_server($node, 'SET gpuann.probes = 40;');
cmp_ok(total(), '>', 9 * $lists, 'there is something to forget');
$node->safe_psql('postgres', 'REINDEX INDEX items_v');
is(total(), 0, 'REINDEX begins anew');
$node->safe_psql('postgres', 'DROP TABLE items, others');
$node->stop;
# (the header ends with the number of counts)
is(unpack('x20 L', slurp_file($file)), 0, 'counts of dropped indexes are not kept');
$node->start;
ok(await_server($node), 'a file without counts is read');
is(log_count($node, qr/ignoring "pg_stat/), 5, 'without a word');
my $limited = $node->psql('postgres', "LOAD 'gpuann'; SHOW gpuann.count_limit") == 0;
$node->stop;

# That counts are used up is only to be seen where tests can limit them.
if (!$limited)
{
	done_testing();
	exit;
}

# Indexes of one or more grains of counts, in one database or another.
sub make_index
{
	my ($name, $grains, $database) = @_;
	my $wanted = 15 + 64 * ($grains - 1);
	my $rows = 2000 * $grains;

	$node->safe_psql($database // 'postgres', "CREATE TABLE $name (id int, v vector($dims)); INSERT INTO $name SELECT i, vec(i, $dims) FROM generate_series(1, $rows) i;
		CREATE INDEX ${name}_v ON $name USING gpuann (v vector_l2_ops) WITH (method = ivfpq, lists = $wanted)");
	is($node->safe_psql($database // 'postgres', "SELECT (lists + 63) / 64 FROM gpuann_lists('${name}_v')"), $grains, "$name has $grains grains");
}

sub serve
{
	my ($name, $database) = @_;
	my $error;

	ok(await("$name is served", sub {
		$node->psql($database // 'postgres',
			"SET enable_seqscan = off; SET gpuann.fallback = error; SELECT id FROM $name ORDER BY v <-> vec(5, $dims) LIMIT 1", stderr => \$error) == 0;
	}), "$name is served");
}
sub evict { $node->safe_psql($_[1] // 'postgres', "SELECT gpuann_evict('$_[0]_v')") }
sub counted { return $node->safe_psql($_[1] // 'postgres', "SELECT count(probes) > 0, coalesce(sum(probes), 0) > 0 FROM gpuann_list_stats('$_[0]_v')") }

# Those that have counts. One that has none is placed by rows.
sub holders
{
	my ($database, @names) = @_;

	return join(' ', grep { counted($_, $database) =~ /^t/ } @names);
}

# There are counts for two indexes: a third has none until another is not mirrored any more, which then has lost its own.
$node = server_node('few', conf => [ 'gpuann.count_limit = 128' ]);
foreach my $name ('a', 'b', 'c')
{
	make_index($name, 1);
	serve($name);
}
is(join(' ', map { counted($_) } 'a', 'b', 'c'), 't|t t|t f|f', 'counts of as many indexes as there is room for');
is($node->safe_psql('postgres', "SELECT bool_and(load = load_by_rows) FROM gpuann_list_placement('c_v', 3)"), 't', 'another is placed by rows');
evict('a');
is(counted('a'), 't|t', 'an index without a mirror keeps its counts');
evict('c');
serve('c');
is(join(' ', map { counted($_) } 'a', 'b', 'c'), 'f|f t|t t|t', 'until another needs the room');
$node->safe_psql('postgres', 'DROP TABLE b');
serve('a');
evict('a');
serve('a');
is(join(' ', map { counted($_) } 'a', 'c'), 't|t t|t', 'a dropped index gives its room back');
$node->stop;

# Counts are a range: who could make room only here and there loses nothing, and who is not in the way neither.
$node = server_node('parts', conf => [ 'gpuann.count_limit = 192' ]);
foreach my $name ('a', 'b', 'c')
{
	make_index($name, 1);
	serve($name);
}
make_index('wide', 2);
evict($_) foreach 'a', 'c', 'wide';
serve('wide');
is(holders('postgres', 'a', 'b', 'c', 'wide'), 'a b c', 'nothing is lost in vain');
evict('wide');
evict('b');
serve('wide');
is(holders('postgres', 'a', 'b', 'c', 'wide'), 'c wide', 'two that lie beside each other make room for twice as many');
make_index('wider', 3);
serve('wider');
is(holders('postgres', 'c', 'wide', 'wider'), 'c wide', 'but not if one of three has a mirror');
evict($_) foreach 'wide', 'wider';
serve('wider');
is(holders('postgres', 'c', 'wide', 'wider'), 'wider', 'all of them if all are needed');
$node->stop;

# No database takes counts from one that has fewer, or all that there are for good.
$node = server_node('shares', conf => [ 'gpuann.count_limit = 256' ]);
$node->safe_psql('postgres', 'CREATE DATABASE other TEMPLATE postgres');
foreach my $name ('a', 'b', 'c', 'd')
{
	make_index($name, 1);
	serve($name);
}
is(holders('postgres', 'a', 'b', 'c', 'd'), 'a b c d', 'one database has all counts');
make_index($_, 1, 'other') foreach 'x', 'y', 'z';
serve($_, 'other') foreach 'x', 'y', 'z';
is(holders('postgres', 'a', 'b', 'c', 'd'), 'c d', 'it gives half of them to another, those that were used the longest ago');
is(holders('other', 'x', 'y', 'z'), 'x y', 'which gets no more than half');
evict('c');
evict('z', 'other');
serve('z', 'other');
is(holders('postgres', 'c', 'd'), 'c d', 'though an index of the first has no mirror any more');
evict($_, 'other') foreach 'x', 'z';
serve('z', 'other');
is(holders('other', 'x', 'y', 'z') . ' / ' . holders('postgres', 'c', 'd'), 'y z / c d', 'they go round within a database');
make_index('wide', 2);
serve('wide');
is(holders('other', 'x', 'y', 'z') . ' / ' . holders('postgres', 'c', 'd', 'wide'), 'y z / c d', 'in both of them');
$node->stop;

# Nor does one that would have more than another if it kept what is of no use to it here.
$node = server_node('turns', conf => [ 'gpuann.count_limit = 384' ]);
$node->safe_psql('postgres', 'CREATE DATABASE other TEMPLATE postgres');
foreach my $pair ([ 'a', 'x' ], [ 'b', 'y' ], [ 'c', 'z' ])
{
	make_index($pair->[0], 1);
	serve($pair->[0]);
	make_index($pair->[1], 1, 'other');
	serve($pair->[1], 'other');
}
evict($_) foreach 'a', 'b', 'c';
make_index('wide', 2);
serve('wide');
is(holders('postgres', 'a', 'b', 'c', 'wide') . ' / ' . holders('other', 'x', 'y', 'z'), 'a b c / x y z', 'counts in turns are nobody\'s to take');
$node->stop;
done_testing();
