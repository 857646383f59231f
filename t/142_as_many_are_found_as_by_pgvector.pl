# At equal m, ef_construction and ef_search gpuann finds as many of the nearest rows as pgvector's HNSW, built at once and grown by inserts that
# are linked: by inner product where rows differ in length and long ones are hubs, by every other metric where rows have no structure, and in clusters.
# From pages; the oracle is the sequential scan.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use GpuannTest;
use PgSession;
use Test::More;

my $rows = 4000;
my $queries = 200;
my $node = new_node('beside_hnsw', conf => ["session_preload_libraries = 'gpuann'"]);
my $session = PgSession->new($node);

# A number that is about normal, of variance 1; the same wherever it is asked for.
$session->rows(q{
CREATE FUNCTION normal(a int, b int) RETURNS float8 LANGUAGE sql IMMUTABLE AS
	$$ SELECT (noise(a, b) + noise(a, b + 10007) + noise(a, b + 20011) + noise(a, b + 30011) - 2) * sqrt(3) $$});

# Name, dimensions, operator, operator class, an element (of row s at place i), what a row is multiplied by. Of bits: those where an element is above 0.
my @sets = (
	[ 'a cube', 3, '<#>', 'vector_ip_ops', 'noise(s, i)', '1' ],
	[ 'positive rows of lengths that vary', 32, '<#>', 'vector_ip_ops', 'abs(normal(s, i))', 'exp(0.3 * normal(s, 999))' ],
	[ 'lognormal lengths', 64, '<#>', 'vector_ip_ops', 'normal(s, i)', 'exp(0.5 * normal(s, 999))' ],
	[ 'L2', 32, '<->', 'vector_l2_ops', 'normal(s, i)', '1' ],
	[ 'L2 in clusters', 32, '<->', 'vector_l2_ops', 'normal(s % 40, i) + 0.2 * normal(s, i)', '1' ],
	[ 'cosine', 32, '<=>', 'vector_cosine_ops', 'normal(s, i)', 'exp(0.5 * normal(s, 999))' ],
	[ 'L1', 32, '<+>', 'vector_l1_ops', 'normal(s, i)', '1' ],
	[ 'Hamming', 48, '<~>', 'bit_hamming_ops', 'normal(s, i)', '1' ],
	[ 'Jaccard', 48, '<%>', 'bit_jaccard_ops', 'normal(s, i)', '1' ]);

# The share of the k nearest that the queries find. Rows at the distance of the last are as good as it.
sub recall_of
{
	my ($operator, $k, $setting) = @_;

	return $session->rows(qq{SET enable_seqscan = off; SET enable_sort = off; $setting;
		SELECT avg((SELECT count(*) FROM (SELECT (v $operator q.v)::float8 AS distance FROM items ORDER BY v $operator q.v LIMIT $k) found
			WHERE distance <= nearest[$k] + 1e-6 * (abs(nearest[$k]) + 1)) / $k.0) FROM queries q});
}

# What may be missing by chance: a query more or less finds a row, by twice the deviation of the mean of so many queries' rows.
sub chance
{
	my ($recall, $k) = @_;

	return 2 * sqrt(2 * ($recall * (1 - $recall) + 0.0005) / ($queries * $k / 4));
}

foreach my $set (@sets)
{
	my ($name, $dims, $operator, $class, $element, $length) = @$set;
	my $row = $class =~ /^bit/ ? "(SELECT string_agg((($element > 0)::int)::text, '' ORDER BY i) FROM generate_series(1, $dims) i)::bit($dims)" :
	  "(SELECT array_agg((($element) * $length)::real ORDER BY i) FROM generate_series(1, $dims) i)::vector($dims)";
	my %of;

	$session->rows(qq{DROP TABLE IF EXISTS items, all_items, queries;
		CREATE TABLE all_items AS SELECT s AS id, $row AS v FROM generate_series(1, $rows + $queries) s;
		CREATE TABLE queries AS SELECT id, v, ARRAY(SELECT (a.v $operator q.v)::float8 FROM all_items a WHERE a.id <= $rows ORDER BY 1 LIMIT 20) AS nearest
			FROM all_items q WHERE id > $rows;
		CREATE TABLE items AS SELECT * FROM all_items WHERE id <= $rows;
		SET gpuann.server = off});
	foreach my $how ('hnsw', 'built', 'grown')
	{
		my $with = 'WITH (m = 16, ef_construction = 64)';

		if ($how eq 'grown')
		{
			$session->rows("TRUNCATE items; INSERT INTO items SELECT * FROM all_items WHERE id <= 1000; CREATE INDEX items_v ON items USING gpuann (v $class) $with");
			for (my $from = 1000; $from < $rows; $from += 500)
			{
				$session->rows("INSERT INTO items SELECT * FROM all_items WHERE id > $from AND id <= $from + 500");
				$session->rows("SELECT gpuann_link('items_v')");
			}
		}
		else
		{
			$session->rows("CREATE INDEX items_v ON items USING " . ($how eq 'hnsw' ? 'hnsw' : 'gpuann') . " (v $class) $with");
		}
		foreach my $ef (20, 40)
		{
			foreach my $k (10, 20)
			{
				$of{"$how $ef $k"} = recall_of($operator, $k, ($how eq 'hnsw' ? 'SET hnsw.ef_search' : 'SET gpuann.ef_search') . " = $ef");
				next if $how eq 'hnsw';
				my $theirs = $of{"hnsw $ef $k"};

				cmp_ok($of{"$how $ef $k"}, '>=', $theirs - chance($theirs, $k), "$name, $how: recall\@$k at ef $ef");
				note "$name, $how, ef $ef, k $k: " . $of{"$how $ef $k"} . " beside $theirs";
			}
		}
		$session->rows("SELECT gpuann_check('items_v')") if $how ne 'hnsw';
		$session->rows('DROP INDEX items_v');
	}
}
$session->close;
$node->stop;

done_testing();
