# An unlogged index is empty after a crash, like its table; its first insert gives it an identity of its own, and it works on.
# A clean stop keeps it.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use GpuannTest;
use Test::More;

my $dims = 8;
my $node = new_node('unlogged');

$node->safe_psql('postgres', "CREATE UNLOGGED TABLE u (id int, v vector($dims));
CREATE INDEX u_v ON u USING gpuann (v vector_l2_ops);
INSERT INTO u SELECT i, vec(i, $dims) FROM generate_series(1, 500) i;");

# How many rows a scan of the index gives, and the nearest one to a vector.
sub rows_by_index
{
	return $node->safe_psql('postgres',
		"SET enable_seqscan = off; SET enable_sort = off; SELECT count(*) FROM (SELECT id FROM u ORDER BY v <-> vec(1, $dims)) every");
}

sub nearest
{
	my ($id) = @_;
	return $node->safe_psql('postgres',
		"SET enable_seqscan = off; SET enable_sort = off; SELECT id FROM u ORDER BY v <-> vec($id, $dims) LIMIT 1");
}

# The identity: 8 bytes of the metapage, behind page header, magic, version and format.
sub nonce
{
	return $node->safe_psql('postgres',
		"SELECT encode(substr(get_raw_page('u_v', 0), 1 + 24 + 56, 8), 'hex')");
}

is(rows_by_index(), '500', 'before: all rows');
$node->safe_psql('postgres', 'CREATE EXTENSION pageinspect');
my $first = nonce();
isnt($first, '0' x 16, 'before: an identity');

$node->restart;
is(rows_by_index(), '500', 'a clean stop keeps them');
is(nonce(), $first, 'and the identity');

$node->stop('immediate');
$node->start;
is(rows_by_index(), '0', 'a crash empties it');
is(nonce(), '0' x 16, 'and takes the identity');
$node->safe_psql('postgres', "SELECT gpuann_check('u_v')");

$node->safe_psql('postgres', "INSERT INTO u SELECT i, vec(i, $dims) FROM generate_series(1, 300) i");
is(rows_by_index(), '300', 'inserts after it are found');
is(nearest(77), '77', 'by their vectors');
my $second = nonce();
isnt($second, '0' x 16, 'the first insert gives an identity');
isnt($second, $first, 'another one');
$node->safe_psql('postgres', "SELECT gpuann_link('u_v'); SELECT gpuann_check('u_v')");
is(nearest(299), '299', 'linked, too');

$node->stop('immediate');
$node->start;
is(rows_by_index(), '0', 'a second crash empties it again');
$node->safe_psql('postgres', "INSERT INTO u SELECT i, vec(i, $dims) FROM generate_series(1, 10) i; ALTER TABLE u SET LOGGED");
$node->stop('immediate');
$node->start;
is(rows_by_index(), '10', 'once logged, a crash takes nothing');

$node->stop;
done_testing();
