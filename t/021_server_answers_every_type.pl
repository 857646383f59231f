# The server's answers are the pages' for every type and metric: exactly, row by row; by graph, as many of the nearest; also for
# rows inserted later, and when the column's rows do not fill bytes. I9, I10.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use GpuannTest;
use PostgreSQL::Test::Cluster;
use ServerTest;
use Test::More;

my $dims = 43;
my $node = server_node('main');

# What is indexed, its class and its operator.
my @classes = (
	[ 'v', 'vector_l2_ops', '<->' ],
	[ 'v', 'vector_ip_ops', '<#>' ],
	[ 'v', 'vector_cosine_ops', '<=>' ],
	[ 'v', 'vector_l1_ops', '<+>' ],
	[ "v::halfvec($dims)", 'halfvec_l2_ops', '<->' ],
	[ "v::halfvec($dims)", 'halfvec_ip_ops', '<#>' ],
	[ "v::halfvec($dims)", 'halfvec_cosine_ops', '<=>' ],
	[ "v::halfvec($dims)", 'halfvec_l1_ops', '<+>' ],
	[ "binary_quantize(v)::bit($dims)", 'bit_hamming_ops', '<~>' ],
	[ "binary_quantize(v)::bit($dims)", 'bit_jaccard_ops', '<%>' ]);

# The query: an expression on the vector of one that is not in the table.
sub order_by
{
	my ($what, $operator, $query) = @_;
	my $asked = $what =~ s/\bv\b/vec($query, $dims)/r;

	return "$what $operator (SELECT $asked)";
}

# Ids and distances of the nearest, in order, for ten queries.
sub answers
{
	my ($class, $settings, $limit) = @_;
	my ($what, $name, $operator) = @$class;
	my $sql = "SET enable_seqscan = off; SET gpuann.ef_search = 100; $settings\n";

	foreach my $query (1 .. 10)
	{
		my $order = order_by($what, $operator, 500000 + $query);
		$sql .= "SELECT array_agg(id || ' ' || distance) FROM (SELECT id, $order AS distance FROM items ORDER BY $order LIMIT $limit) x;\n";
	}
	return $node->safe_psql('postgres', $sql);
}

# How many of the table's nearest distances an answer has, of all.
sub recall
{
	my ($found, $true) = @_;
	my @found = split /\n/, $found;
	my @true = split /\n/, $true;
	my ($hits, $all) = (0, 0);

	foreach my $i (0 .. $#true)
	{
		my @far = map { /(\S+)"$/ ? $1 : /(\S+)$/ ? $1 : () } map { s/[{}]//gr } split /,/, $true[$i];
		my @near = map { /(\S+)"$/ ? $1 : /(\S+)$/ ? $1 : () } map { s/[{}]//gr } split /,/, $found[$i];
		my $most = $far[-1] + 1e-6 * abs $far[-1];
		$hits += grep { $_ <= $most } @near;
		$all += @far;
	}
	return $hits / $all;
}

sub compare_all
{
	my ($when) = @_;

	foreach my $class (@classes)
	{
		my ($what, $name) = @$class;
		my $index = "items_$name";

		ok(await("the mirror of $index is ready", sub {
			answers($class, '', 1);
			return figure($node, "state || ' ' || mirror_lag", $index) eq 'ready 0';
		}), "$when, $name: there is a mirror");
		is(answers($class, 'SET gpuann.fallback = error; SET gpuann.exact = on;', 3000),
			answers($class, 'SET gpuann.server = off; SET gpuann.exact = on;', 3000), "$when, $name: exact answers are the pages'");

		my $true = answers($class, 'SET gpuann.server = off; SET gpuann.exact = on;', 20);
		my $found = recall(answers($class, 'SET gpuann.fallback = error;', 20), $true);
		cmp_ok($found, '>=', 0.95, "$when, $name: the server's graph answers");
		$found = recall(answers($class, 'SET gpuann.server = off;', 20), $true);
		cmp_ok($found, '>=', 0.95, "$when, $name: the pages' graph answers");
	}
}

ok(await_server($node), 'the server starts with the cluster');
# Of either sign, or all bits would be set.
$node->safe_psql('postgres', q{
CREATE OR REPLACE FUNCTION vec(seed int, dims int) RETURNS vector LANGUAGE sql IMMUTABLE AS
	$$ SELECT array_agg((noise(seed % 40, i) + noise(seed, i) / 2 - 0.75)::real ORDER BY i)::vector FROM generate_series(1, dims) i $$;
});
make_data($node, 2000, $dims, no_index => 1);
foreach my $class (@classes)
{
	my ($what, $name) = @$class;
	$node->safe_psql('postgres', "CREATE INDEX items_$name ON items USING gpuann (($what) $name)");
}
compare_all('built');
fill_rows($node, 10001, 10400, $dims);
$node->safe_psql('postgres', 'DELETE FROM items WHERE id % 9 = 0; SELECT gpuann_link(indexrelid) FROM pg_stat_gpuann');
fill_rows($node, 20001, 20050, $dims);
compare_all('changed');
check_index($node, $_->[1], "items_$_->[1]") foreach @classes;
$node->stop;
done_testing();
