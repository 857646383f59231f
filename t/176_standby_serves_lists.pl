# A standby's server holds the mirror of an index with lists too: it follows replay, and its answers are those of the primary. I1, I2, I3.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use GpuannTest;
use PostgreSQL::Test::Cluster;
use ServerTest;
use Test::More;

my $dims = 16;
my $with = 'WITH (method = ivfpq, lists = 60)';
my $all = 'SET gpuann.probes = 10000; SET gpuann.rerank = 10000;';
my $primary = server_node('primary', streaming => 1);
my $standby = PostgreSQL::Test::Cluster->new('standby');

make_data($primary, 4000, $dims, with => $with);
ok(await_mirror($primary), 'the primary has a mirror');
$primary->backup('base');
$standby->init_from_backup($primary, 'base', has_streaming => 1);
$standby->start;
ok(await_server($standby), 'the standby has a server');
ok(await_mirror($standby), 'and a mirror');

sub same
{
	my ($what) = @_;

	$primary->wait_for_catchup($standby, 'replay', $primary->lsn('insert'));
	# before the mirror has followed, too
	is(by_server($standby, $all), by_table($primary), "$what: all lists give what the primary's table gives, at once");
	ok(await('the mirror is current', sub { figure($standby, "mirror_lag || ' ' || mirror_change_lag") eq '0 0' }), "$what: the mirror is current soon");
	is(by_server($standby, 'SET gpuann.exact = on;'), by_table($primary), "$what: exact answers are the table's");
	is(by_server($standby, $all), by_table($primary), "$what: all lists give what the table gives");
	same_list_answers($standby, "$what: some lists give what those of the pages give", 7);
}

same('built');
fill_rows($primary, 10001, 10500, $dims);
same('inserted');
$primary->safe_psql('postgres', "SELECT gpuann_link('items_v')");
same('linked');
$primary->safe_psql('postgres', 'DELETE FROM items WHERE id % 4 = 0; VACUUM items');
same('vacuumed');
fill_rows($primary, 13001, 14600, $dims);
same('used again');
$primary->safe_psql('postgres', 'REINDEX INDEX items_v');
$primary->wait_for_catchup($standby, 'replay', $primary->lsn('insert'));
ok(await_mirror($standby), 'a rebuilt index gets a mirror here too');
same('rebuilt');
cmp_ok($standby->safe_psql('postgres', "SELECT gpuann_evict('items_v'); SELECT gpuann_prewarm('items_v')") =~ /(\d+)$/ ? $1 : 0, '>', 4000 * 4 * $dims,
	'its mirror is loaded on demand');
same('loaded anew');
is(figure($standby, 'fallback_invalid_answer + fallback_engine_error'), 0, 'no answer was wrong');

# Promoted, it goes on by itself.
$standby->promote;
$primary->stop;
fill_rows($standby, 20001, 20800, $dims);
is(by_server($standby, $all), by_table($standby), 'promoted: new rows are found');
$standby->safe_psql('postgres', "DELETE FROM items WHERE id % 3 = 0; SELECT gpuann_link('items_v')");
$standby->safe_psql('postgres', 'VACUUM items');
ok(await('the mirror is current', sub { figure($standby, "mirror_lag || ' ' || mirror_change_lag") eq '0 0' }), 'promoted: the mirror follows');
is(by_server($standby, $all), by_table($standby), 'promoted: linked and vacuumed');
right_after($standby, 'promoted');
$standby->stop;
done_testing();
