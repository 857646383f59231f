# Slots that VACUUM frees are used again: the index does not grow, and a row in a reused slot is found at once.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use GpuannTest;
use Test::More;

my $dims = 16;
my $node = new_node('reuse');

sub index_size
{
	return $node->safe_psql('postgres', "SELECT pg_relation_size('items_v')");
}

# A small table has a small index: metapage, two seed pages, and of the first superblock a page of each kind.
make_data($node, 0, $dims);
is(index_size(), 4 * 8192, 'an empty index has four pages');
fill_rows($node, 1, 1, $dims);
is(index_size(), 6 * 8192, 'its first row takes two more');
fill_rows($node, 2, 2000, $dims);
my $grown = index_size();
$node->safe_psql('postgres', 'REINDEX INDEX items_v');
cmp_ok($grown, '<=', 1.2 * index_size(), 'an index that grew row by row is about as large as one built at once');
$node->safe_psql('postgres', 'DROP TABLE items');

make_data($node, 4000, $dims);
my $fresh = index_size();

# The whole table is updated ten times.
my $most = 0;
foreach my $round (1 .. 10)
{
	$node->safe_psql('postgres', "UPDATE items SET v = vec(id + $round, $dims)");
	$node->safe_psql('postgres', 'VACUUM items');
	$most = index_size() if index_size() > $most;
}
cmp_ok($most, '<=', 2.2 * $fresh, "ten updates of every row keep the index within 2.2 of a fresh one ($most, $fresh)");
right_after($node, 'updated ten times');

# A slot taken from the free list.
$node->safe_psql('postgres', 'DELETE FROM items WHERE id % 3 = 0');
$node->safe_psql('postgres', 'VACUUM items') foreach 1 .. 2;
my $size = index_size();
foreach my $id (200001 .. 200020)
{
	my $nearest = $node->safe_psql('postgres', qq{
INSERT INTO items VALUES ($id, vec($id, $dims));
SET enable_seqscan = off;
SELECT id FROM items ORDER BY v <-> vec($id, $dims) LIMIT 1;
});
	is($nearest, $id, "a row in a reused slot is found at once") if $id <= 200003;
	BAIL_OUT('a row was lost') if $nearest ne $id;
}
is(index_size(), $size, 'its slot was free');
right_after($node, 'slots taken again');

# Half of all rows, then everything near one place.
$node->safe_psql('postgres', 'DELETE FROM items WHERE noise(id, 77) < 0.5');
$node->safe_psql('postgres', 'VACUUM items');
right_after($node, 'half of the rows gone');
cmp_ok(recall($node), '>=', 0.95, 'recall after half of the rows have gone');
$node->safe_psql('postgres', "DELETE FROM items WHERE id IN (SELECT id FROM items ORDER BY v <-> vec(100007, $dims) LIMIT 500)");
$node->safe_psql('postgres', 'VACUUM items');
right_after($node, 'a neighbourhood gone');
cmp_ok(recall($node), '>=', 0.95, 'recall after a neighbourhood has gone');
$node->stop;

done_testing();
