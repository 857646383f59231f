# A crash in the middle of inserts: after recovery every committed row is found, and no half one is there.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use GpuannTest;
use PostgreSQL::Test::Utils;
use Test::More;

# One row at a time, each its own transaction; some roll back.
sub insert_storm
{
	my ($base, $dims) = @_;
	return "DO \$\$ BEGIN FOR i IN $base .. $base + 100000 LOOP
		INSERT INTO items VALUES (i, vec(i, $dims));
		IF i % 7 = 0 THEN ROLLBACK; ELSE COMMIT; END IF;
	END LOOP; END \$\$;";
}

# 16 dimensions: one record a row. 5000: a vector on three pages, written before its row.
foreach my $dims (16, 5000)
{
	my $node = new_node("insert_$dims");

	make_data($node, $dims == 16 ? 1000 : 60, $dims);
	foreach my $round (1 .. 3)
	{
		my $before = $node->safe_psql('postgres', 'SELECT count(*) FROM items');
		my $still = stop_in_the_middle($node, 0.1 + 0.3 * $round, "SELECT count(*) > $before FROM items",
			[ insert_storm($round * 1000000, $dims) ], [ insert_storm($round * 1000000 + 500000, $dims) ]);
		my $after = $node->safe_psql('postgres', 'SELECT count(*) FROM items');

		is($still, 2, "$dims dimensions, round $round: inserts were running");
		cmp_ok($after, '>', $before, "$dims dimensions, round $round: some were committed");
		right_after($node, "$dims dimensions, round $round");
		fill_rows($node, 10000 * $round, 10000 * $round + 20, $dims);
		right_after($node, "$dims dimensions, round $round, inserting again");
	}
	$node->safe_psql('postgres', "SELECT gpuann_link('items_v')");
	right_after($node, "$dims dimensions, linked");
	$node->stop;
}

done_testing();
