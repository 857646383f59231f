# A streaming standby, with every WAL record of the index checked against its page: after rounds of insert, update, delete, vacuum
# and link it gives the primary's answers and passes the primary's check.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use GpuannTest;
use PostgreSQL::Test::Cluster;
use Test::More;

my $dims = 24;
my $primary = new_node('primary', streaming => 1, conf => ["wal_consistency_checking = 'generic'"]);
my $standby = PostgreSQL::Test::Cluster->new('standby');
my $next = 10000;

make_data($primary, 3000, $dims);
$primary->backup('base');
$standby->init_from_backup($primary, 'base', has_streaming => 1);
$standby->start;

sub same_on_both
{
	my ($what) = @_;

	$primary->wait_for_catchup($standby, 'replay', $primary->lsn('insert'));
	check_index($primary, "$what, primary");
	check_index($standby, "$what, standby");
	is(graph_answers($standby), graph_answers($primary), "$what: the standby's graph answers are the primary's");
	is(exact_answers($standby), oracle_answers($primary), "$what: the standby's exact answers are the table's");
	is(complete_rows($standby), complete_rows($primary), "$what: the standby finds every row");
}

same_on_both('built');
foreach my $round (1 .. 5)
{
	fill_rows($primary, $next, $next + 600, $dims);
	$primary->safe_psql('postgres', "DELETE FROM items WHERE noise(id, $round) < 0.15");
	same_on_both("round $round, changed");
	$primary->safe_psql('postgres', "UPDATE items SET v = vec(id + 1, $dims) WHERE noise(id, $round + 100) < 0.05");
	$primary->safe_psql('postgres', $round % 2 ? 'VACUUM items' : "SELECT gpuann_link('items_v')");
	same_on_both("round $round, " . ($round % 2 ? 'vacuumed' : 'linked'));
	$next += 1000;
}

# An index built while the standby follows, and a check while replay changes the index.
$primary->safe_psql('postgres', 'REINDEX INDEX items_v');
same_on_both('rebuilt');
my $writer = in_background($primary,
	"DO \$\$ BEGIN FOR i IN 1 .. 3000 LOOP INSERT INTO items VALUES (500000 + i, vec(i, $dims)); COMMIT; END LOOP; END \$\$;");
check_index($standby, "while replaying, time $_") foreach 1 .. 5;
$writer->finish;
same_on_both('written to');

$standby->promote;
$standby->safe_psql('postgres', "INSERT INTO items VALUES (1, vec(1, $dims)); VACUUM items;");
right_after($standby, 'promoted');
$standby->stop;
$primary->stop;

done_testing();
