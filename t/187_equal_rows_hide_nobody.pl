# More equal rows than a search's list holds hide nobody: of 1,500 different rows each finds itself, by every metric and type, from pages and through
# the server, as with pgvector's HNSW; who asks for the equal rows gets them; and gpuann_recall counts the row asked about.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib $FindBin::RealBin;
use GpuannTest;
use PgSession;
use ServerTest;
use Test::More;

my ($rows, $copies, $dims) = (1500, 300, 48);
my $node = server_node('equal_rows', conf => ["maintenance_work_mem = '128MB'"]);
my $session = PgSession->new($node);

await_server($node);
$session->rows(q{
CREATE FUNCTION normal(a int, b int) RETURNS float8 LANGUAGE sql IMMUTABLE AS
	$$ SELECT (noise(a, b) + noise(a, b + 10007) + noise(a, b + 20011) + noise(a, b + 30011) - 2) * sqrt(3) $$});

# Name, type, operator, operator class, an element of row s at place i, that of the copies. Rows have one part in common, so copies are nearer to each than
# the others are.
my $common = "(CASE WHEN i = 1 THEN 5 ELSE normal(s, i) END)";
my @sets = (
	[ 'L2', 'vector', '<->', 'vector_l2_ops', $common, '(i = 1)::int * 5' ],
	[ 'cosine', 'vector', '<=>', 'vector_cosine_ops', $common, '(i = 1)::int' ],
	[ 'inner product', 'vector', '<#>', 'vector_ip_ops', $common, '(i = 1)::int * 8' ],
	[ 'halves', 'halfvec', '<->', 'halfvec_l2_ops', $common, '(i = 1)::int * 5' ],
	[ 'Hamming', 'bit', '<~>', 'bit_hamming_ops', '(i <= 12 OR noise(s, i) < 0.25)::int', '(i <= 12)::int' ]);

# How many of a hundred rows are not the first of their own answer, or not one as near.
sub missed
{
	my ($operator) = @_;

	return $session->rows(qq{SET enable_seqscan = off; SELECT count(*) FROM items q WHERE id % 15 = 0 AND id <= $rows AND
		(SELECT a.v $operator q.v FROM (SELECT v FROM items ORDER BY v $operator q.v LIMIT 10) a LIMIT 1) > q.v $operator q.v});
}

# What holds of an index, wherever the answers come from.
sub nobody_is_hidden
{
	my ($name, $operator) = @_;
	my $missed = missed($operator);

	cmp_ok($missed, '<=', 1, "$name: each row finds itself");
	is($session->rows(qq{SELECT count(*), count(DISTINCT id), min(id) > $rows FROM (SELECT id FROM items ORDER BY v $operator
		(SELECT v FROM items WHERE id = $rows + 1) LIMIT 10) a}), '10|10|t', "$name: who asks for copies gets them");
}

foreach my $set (@sets)
{
	my ($name, $type, $operator, $class, $element, $copy) = @$set;
	my $vector = $type eq 'bit' ? "(SELECT string_agg((%s)::text, '' ORDER BY i) FROM generate_series(1, $dims) i)::bit($dims)" :
	  "(SELECT array_agg((%s)::real ORDER BY i) FROM generate_series(1, $dims) i)::vector($dims)::$type($dims)";
	my $column = "$type($dims)";

	$session->rows("DROP TABLE IF EXISTS items; CREATE TABLE items (id int, v $column);
		INSERT INTO items SELECT s, " . sprintf($vector, $element) . " FROM generate_series(1, $rows) s;
		INSERT INTO items SELECT $rows + s, v FROM generate_series(1, $copies) s, (SELECT " . sprintf($vector, $copy) . " v OFFSET 0) c;
		ANALYZE items");
	if ($name ne 'Hamming')
	{
		$session->rows("CREATE INDEX items_v ON items USING hnsw (v $class)");
		note("$name: pgvector's HNSW misses " . missed($operator));
		$session->rows('DROP INDEX items_v');
	}
	$session->rows("CREATE INDEX items_v ON items USING gpuann (v $class)");
	$session->rows('SET gpuann.server = off');
	nobody_is_hidden("$name, pages", $operator);
	$session->rows('RESET gpuann.server');
	await('the mirror is ready', sub { missed($operator); figure($node, "state || ' ' || mirror_lag") eq 'ready 0' });
	$session->rows('SET gpuann.fallback = error');
	nobody_is_hidden("$name, server", $operator);
	$session->rows('RESET gpuann.fallback');
}

# With a breadth of one no search finds all: the row asked about is the first to be missed, and that is seen.
$session->rows('SET gpuann.server = off');
is($session->rows('SELECT samples_asked, recall > 0.97 FROM gpuann_recall($$items_v$$, 200, 1)'), '200|t', 'the row asked about counts, and is found');

done_testing();
