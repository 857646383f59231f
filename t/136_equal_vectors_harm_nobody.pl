# Ten thousand equal vectors harm nobody: beside 6,000 others, in the midst of a cluster of these, built with them or inserted and linked
# later, in memory and over pages, they cost the others neither recall nor visits of a search, beside as many rows that are all different and
# far away; nor does VACUUM that takes them away.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib $FindBin::RealBin;
use GpuannTest;
use GraphTest ();
use PgSession;
use PostgreSQL::Test::Utils;
use Test::More;

my ($rows, $equals, $dims, $clusters, $queries) = (6_000, 10_000, 24, 20, 200);
my $node = new_node('equals', conf => [ 'gpuann.pending_limit = 10000000', "maintenance_work_mem = '256MB'", 'shared_buffers = 128MB' ]);

GraphTest::make_source($node, $rows + $queries, $dims, $clusters);
$node->safe_psql('postgres', qq{
CREATE TABLE items (id int, v vector($dims));
INSERT INTO items SELECT id, v FROM source WHERE id <= $rows;
CREATE INDEX items_v ON items USING gpuann (v vector_l2_ops);
/* The share of the ten nearest that is found, by distance because equals stand for each other, and the rows that a search visits. */
CREATE FUNCTION quality(OUT recall float8, OUT visited float8) LANGUAGE plpgsql AS \$\$
DECLARE
	query vector;
	found float8[];
	nearest float8[];
BEGIN
	SET LOCAL enable_seqscan = off;
	SET LOCAL gpuann.server = off;
	SET LOCAL gpuann.ef_search = 10;
	recall := 0;
	visited := 0;
	FOR query IN SELECT v FROM source WHERE id > $rows LOOP
		SET LOCAL gpuann.exact = off;
		found := ARRAY(SELECT v <-> query FROM (SELECT v FROM items ORDER BY v <-> query LIMIT 10) s);
		visited := visited + (SELECT s.visited FROM gpuann_last_scan() s);
		SET LOCAL gpuann.exact = on;
		nearest := ARRAY(SELECT v <-> query FROM (SELECT v FROM items ORDER BY v <-> query LIMIT 10) s);
		recall := recall + (SELECT count(*) FROM unnest(found) d WHERE d <= nearest[10] * 1.000001) / 10.0;
	END LOOP;
	recall := recall / $queries;
	visited := visited / $queries;
END \$\$;
});

sub quality
{
	return split /\|/, $node->safe_psql('postgres', 'SELECT round(recall::numeric, 4), round(visited::numeric) FROM quality()');
}

# More rows mean more seeds, which every search compares: so there are as many others first.
$node->safe_psql('postgres', "INSERT INTO items SELECT 100000 + i, v + array_fill(30 + i * 4 / $equals * 20, ARRAY[$dims])::vector
	FROM generate_series(1, $equals) i JOIN source ON id = 1 + i % $rows");
measured('built beside others', 'REINDEX INDEX items_v');
my ($recall, $visited) = quality();
note("beside others: recall $recall, $visited visited");
$node->safe_psql('postgres', 'DELETE FROM items WHERE id > 100000; VACUUM items');

# Run a statement that builds or links; a note says what processor time it took, of all its threads.
sub measured
{
	my ($what, $statement) = @_;
	my $session = PgSession->new($node, settings => '-c max_parallel_maintenance_workers=1');
	my ($before, $after, $answer);
	my $seconds = sub { my @fields = split ' ', (slurp_file('/proc/' . $session->pid . '/stat') =~ s/.*\) //sr); return ($fields[11] + $fields[12]) / 100 };

	$before = $seconds->();
	$answer = $session->query($statement);
	$after = $seconds->();
	is($answer->{error}, '', "$what: ends well");
	note(sprintf '%s: %.2f s of processor time', $what, $after - $before);
	$session->close;
	return join("\n", @{ $answer->{rows} });
}

sub unharmed
{
	my ($what) = @_;
	my ($found, $looked_at) = quality();
	my $at_them;

	cmp_ok($found, '>=', $recall - 0.01, "$what: recall $found, beside others $recall");
	cmp_ok($looked_at, '<=', 1.2 * $visited, "$what: $looked_at visited, beside others $visited");
	# A search for the equal vector itself.
	$at_them = (split /\n/, $node->safe_psql('postgres', "SET enable_seqscan = off; SET gpuann.server = off;
		SELECT count(*) FROM (SELECT id FROM items ORDER BY v <-> (SELECT v FROM source WHERE id = 1) LIMIT 10) s; SELECT visited FROM gpuann_last_scan()"))[1];
	cmp_ok($at_them, '<=', 3 * $visited, "$what: a search among them visits $at_them");
	check_index($node, $what);
}

sub add_equals
{
	$node->safe_psql('postgres', "INSERT INTO items SELECT 100000 + i, (SELECT v FROM source WHERE id = 1) FROM generate_series(1, $equals) i");
}

sub take_away
{
	my ($what) = @_;

	$node->safe_psql('postgres', 'DELETE FROM items WHERE id > 100000');
	$node->safe_psql('postgres', 'VACUUM items');
	unharmed("$what, and taken away");
}

add_equals();
measured('built with them', 'REINDEX INDEX items_v');
unharmed('built with them');
take_away('built with them');
foreach my $memory ('256MB', '1MB')
{
	$node->safe_psql('postgres', 'REINDEX INDEX items_v');
	add_equals();
	like(measured("linked with $memory", "SET maintenance_work_mem = '$memory'; SELECT gpuann_link('items_v')"), qr/\b$equals$/, "linked with $memory");
	unharmed("linked with $memory");
	take_away("linked with $memory");
}
right_after($node, 'in the end');
$node->stop;

done_testing();
