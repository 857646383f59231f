# Recall of every operator class after churn: half of the rows replaced in several rounds of insert, update, delete, VACUUM and link. Built by
# appending alone, too. From pages; the oracle is the sequential scan.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use GpuannTest;
use PgSession;
use Test::More;

my $dims = 20;
my $rows = 2000;
my $node = new_node('recall', conf => ["session_preload_libraries = 'gpuann'"]);
my $session = PgSession->new($node);

# The share of the ten nearest that 20 queries find. Rows at the distance of the last are as good as it.
sub recall_of
{
	my ($column, $type, $operator) = @_;
	my ($hits, $all) = (0, 0);

	foreach my $query (1 .. 20)
	{
		my $value = $session->rows("SELECT element($query + 500000, NULL::$type)::text");
		my $near = "SELECT (v $operator '$value'::$column)::float8 AS distance FROM items ORDER BY v $operator '$value'::$column LIMIT 10";
		my @right = split /\n/, $session->rows("SET enable_indexscan = off; SET enable_seqscan = on; $near");
		my @found = split /\n/, $session->rows("SET enable_indexscan = on; SET enable_seqscan = off; SET gpuann.server = off;
			SET gpuann.ef_search = 80; $near");

		$all += @right;
		$hits += grep { $_ <= $right[-1] + 1e-6 * (abs($right[-1]) + 1) } @found;
	}
	return $hits / $all;
}

$session->rows(qq{
CREATE FUNCTION element(seed int, vector) RETURNS vector LANGUAGE sql IMMUTABLE AS \$\$ SELECT vec(seed, $dims) \$\$;
CREATE FUNCTION element(seed int, halfvec) RETURNS halfvec LANGUAGE sql IMMUTABLE AS \$\$ SELECT vec(seed, $dims)::halfvec \$\$;
CREATE FUNCTION element(seed int, bit) RETURNS bit LANGUAGE sql IMMUTABLE AS
	\$\$ SELECT string_agg(CASE WHEN noise(seed % 40, i) + noise(seed, i) / 2 > 0.75 THEN '1' ELSE '0' END, '' ORDER BY i)::bit(64)
		FROM generate_series(1, 64) i \$\$});

my $classes = $session->rows(q{
	SELECT DISTINCT opcname, typname, oprname FROM pg_opclass JOIN pg_am ON pg_am.oid = opcmethod AND amname = 'gpuann'
	JOIN pg_type ON pg_type.oid = opcintype JOIN pg_amop ON amopfamily = opcfamily AND amoplefttype = opcintype
	JOIN pg_operator ON pg_operator.oid = amopopr ORDER BY 1});

# The values once for each type: making them costs more than anything done with them.
my %made;
foreach my $line (split /\n/, $classes)
{
	my ($class, $type, $operator) = split /\|/, $line;
	# Inner product is no metric: neighbours of neighbours need not be near.
	my $floor = $operator eq '<#>' ? 0.92 : 0.97;
	my $column = $type eq 'bit' ? 'bit(64)' : "$type($dims)";

	$session->rows("CREATE TABLE values_$type AS SELECT i AS id, element(i, NULL::$type)::$column AS v FROM generate_series(1, 2 * $rows) i")
	  if !$made{$type}++;
	foreach my $how ('built', 'grown')
	{
		my $fill = "INSERT INTO items SELECT * FROM values_$type WHERE id <= $rows";
		my $create = "CREATE INDEX items_v ON items USING gpuann (v $class)";

		$session->rows("DROP TABLE IF EXISTS items; CREATE TABLE items (id int, v $column); "
			  . ($how eq 'built' ? "$fill; $create" : "$create; $fill; SELECT gpuann_link('items_v')"));
		cmp_ok(recall_of($column, $type, $operator), '>=', $floor, "$class, $how");
		foreach my $round (1 .. 3)
		{
			$session->rows("DELETE FROM items WHERE noise(id, $round) < 0.17");
			$session->rows("INSERT INTO items SELECT * FROM values_$type WHERE id > $rows AND id % 3 + 1 = $round AND noise(id, 5) < 0.5;
				UPDATE items SET v = (SELECT v FROM values_$type o WHERE o.id = items.id % $rows + $round) WHERE noise(id, 10 + $round) < 0.05");
			$session->rows('VACUUM items');
			$session->rows("SELECT gpuann_link('items_v')");
		}
		cmp_ok(recall_of($column, $type, $operator), '>=', $floor - 0.02, "$class, $how, after churn");
		$session->rows("SELECT gpuann_check('items_v')");
	}
}
$session->close;
$node->stop;

done_testing();
