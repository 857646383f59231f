# Inserts, updates, deletes, vacuums, links and checkpoints at once, few buffers, little memory; then a crash, again and again: after each recovery
# the index is right.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use GpuannTest;
use Test::More;

my $dims = 20;
my $node = new_node('crash_storm', conf => [ 'gpuann.pending_limit = 500', "maintenance_work_mem = '1MB'",
		"shared_buffers = '2MB'", "max_wal_size = '64MB'" ]);

# A statement over and over, each time in its own transaction, errors and all.
sub again
{
	my ($statement) = @_;
	return "DO \$\$ BEGIN FOR i IN 1 .. 1000000 LOOP $statement; COMMIT; END LOOP; END \$\$;";
}

make_data($node, 2000, $dims);
foreach my $round (1 .. 6)
{
	my $base = $round * 100000;
	my $still = stop_in_the_middle($node, 0.7 + 0.35 * $round,
		[ again("INSERT INTO items VALUES ($base + i, vec($base + i, $dims))") ],
		[ again("UPDATE items SET v = vec(id + i, $dims) WHERE id = 1 + i % 2000") ],
		[ again("DELETE FROM items WHERE id > 2000 AND id % 50 = i % 50; PERFORM pg_sleep(0.02)") ],
		[ map { ('VACUUM items', 'SELECT pg_sleep(0.05)') } 1 .. 300 ],
		[ again("PERFORM gpuann_link('items_v'), pg_sleep(0.03)") ],
		[ map { ('CHECKPOINT', 'SELECT pg_sleep(0.3)') } 1 .. 100 ]);

	is($still, 6, "round $round: all were at work");
	right_after($node, "round $round");
}
$node->safe_psql('postgres', 'VACUUM items');
right_after($node, 'vacuumed');
$node->stop;

done_testing();
