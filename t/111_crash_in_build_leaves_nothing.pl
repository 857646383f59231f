# A crash in the middle of CREATE INDEX: no index is left, and the next build is right.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use GpuannTest;
use Test::More;

my $node = new_node('build');
my $create = 'CREATE INDEX items_v ON items USING gpuann (v vector_l2_ops)';
my $interrupted = 0;

make_data($node, 12000, 32, no_index => 1);
foreach my $seconds (0.3, 0.8, 1.5)
{
	$interrupted += stop_in_the_middle($node, $seconds, [$create]);
	if ($node->safe_psql('postgres', "SELECT count(*) FROM pg_class WHERE relname = 'items_v'") ne '0')
	{
		check_index($node, "built within $seconds s");
		$node->safe_psql('postgres', 'DROP INDEX items_v');
	}
}
cmp_ok($interrupted, '>', 0, 'a build was interrupted');

# CONCURRENTLY leaves an invalid index, which is dropped.
stop_in_the_middle($node, 0.8, ['CREATE INDEX CONCURRENTLY items_v ON items USING gpuann (v vector_l2_ops)']);
$node->safe_psql('postgres', 'DROP INDEX IF EXISTS items_v');

$node->safe_psql('postgres', $create);
right_after($node, 'built in the end');

# Right after the commit: what the build wrote is in WAL.
$node->stop('immediate');
$node->start;
right_after($node, 'built, crashed');

$node->safe_psql('postgres', 'REINDEX INDEX CONCURRENTLY items_v');
right_after($node, 'rebuilt concurrently');
$node->stop;

done_testing();
