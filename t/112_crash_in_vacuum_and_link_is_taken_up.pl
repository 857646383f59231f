# A crash in the middle of VACUUM or of linking: the index is right, and the next VACUUM takes up what was begun.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use GpuannTest;
use Test::More;

my $node = new_node('vacuum');
my $interrupted = 0;
my $next = 100000;

make_data($node, 5000, 16);

# Slow enough to be hit in each of its steps.
my @vacuum = ("SET vacuum_cost_delay = '2ms'", 'SET vacuum_cost_limit = 60', 'VACUUM items');
foreach my $seconds (0.2, 0.5, 1.0, 2.0, 3.5)
{
	$node->safe_psql('postgres', "DELETE FROM items WHERE noise(id, " . int($seconds * 10) . ") < 0.3");
	fill_rows($node, $next, $next + 1000, 16);
	$next += 10000;
	$interrupted += stop_in_the_middle($node, $seconds, \@vacuum);
	right_after($node, "vacuum crashed after $seconds s");
	fill_rows($node, $next, $next + 50, 16);
	$next += 10000;
	check_index($node, "vacuum crashed after $seconds s, inserted");
}
cmp_ok($interrupted, '>', 1, 'vacuum was interrupted');
$node->safe_psql('postgres', 'VACUUM items');
right_after($node, 'vacuumed in the end');

$interrupted = 0;
foreach my $seconds (0.1, 0.3, 0.6)
{
	fill_rows($node, $next, $next + 4000, 16);
	$next += 10000;
	$interrupted += stop_in_the_middle($node, $seconds, ["SELECT gpuann_link('items_v')"]);
	right_after($node, "link crashed after $seconds s");
}
cmp_ok($interrupted, '>', 0, 'linking was interrupted');
$node->safe_psql('postgres', "SELECT gpuann_link('items_v')");
right_after($node, 'linked in the end');
is($node->safe_psql('postgres', "SELECT gpuann_link('items_v')"), '0', 'nothing is left to link');

# Nothing dead stays: all rows leave, and their slots are all taken again.
$node->safe_psql('postgres', 'DELETE FROM items');
$node->safe_psql('postgres', 'VACUUM items') foreach 1 .. 3;
my $size = $node->safe_psql('postgres', "SELECT pg_relation_size('items_v')");
fill_rows($node, 1, 5000, 16);
is($node->safe_psql('postgres', "SELECT pg_relation_size('items_v')"), $size, 'the slots of all rows are used again');
right_after($node, 'filled again');
$node->stop;

done_testing();
