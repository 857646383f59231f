# Lists that the server's engine made are in the WAL like any others: a standby that replays their build and links answers as the primary does, and so
# does the primary after a crash. I1, I2, I3.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use FaultTest;
use GpuannTest;
use PostgreSQL::Test::Cluster;
use ServerTest;
use Test::More;

need_device();

my $dims = 16;
my $all = 'SET gpuann.probes = 10000; SET gpuann.rerank = 10000;';
my $primary = fault_node('primary', streaming => 1,
	conf => [ 'log_min_messages = debug1', "wal_consistency_checking = 'generic'", "gpuann.request_timeout = '120s'" ]);
my $standby = PostgreSQL::Test::Cluster->new('standby');

ok(await_server($primary), 'the primary has a server');
make_data($primary, 4000, $dims, no_index => 1);
$primary->safe_psql('postgres', 'ANALYZE items');
$primary->backup('base');
$standby->init_from_backup($primary, 'base', has_streaming => 1);
$standby->start;
ok(await_server($standby), 'the standby has a server');

sub same
{
	my ($what) = @_;

	$primary->wait_for_catchup($standby, 'replay', $primary->lsn('insert'));
	check_index($standby, $what);
	is(by_pages($standby, $all), by_table($primary), "$what: all lists of the pages give what the primary's table gives");
	ok(await_mirror($standby), "$what: the standby has a mirror");
	ok(await('the mirror is current', sub { figure($standby, "mirror_lag || ' ' || mirror_change_lag") eq '0 0' }), "$what: which is current soon");
	is(by_server($standby, $all), by_table($primary), "$what: all lists of its server give that too");
	same_list_answers($standby, "$what: some lists give what those of the pages give", 9);
	is($standby->safe_psql('postgres', "SELECT lists, rows, built_distance, added_distance FROM gpuann_lists('items_v')"),
		$primary->safe_psql('postgres', "SELECT lists, rows, built_distance, added_distance FROM gpuann_lists('items_v')"), "$what: the lists are the primary's");
}

sub linked_there
{
	my ($what) = @_;
	my $before = log_count($primary, qr/the server put [1-9]\d* rows/);

	$primary->safe_psql('postgres', "SELECT gpuann_link('items_v')");
	ok(await($what, sub { $primary->safe_psql('postgres', "SELECT pending FROM gpuann_stats('items_v')") eq '0' }), "$what: linked");
	cmp_ok(log_count($primary, qr/the server put [1-9]\d* rows/), '>', $before, "$what: by the server");
}

$primary->safe_psql('postgres', 'CREATE INDEX items_v ON items USING gpuann (v vector_l2_ops) WITH (method = ivfpq)');
is(log_count($primary, qr/gpuann index "items_v" was linked on the server/), 1, 'the server builds the index');
same('built');
fill_rows($primary, 10001, 11500, $dims);
linked_there('inserted');
same('linked');
$primary->safe_psql('postgres', 'DELETE FROM items WHERE id % 4 = 0');
$primary->safe_psql('postgres', 'VACUUM items');
fill_rows($primary, 13001, 14600, $dims);
linked_there('used again');
same('used again');

# The primary crashes; nothing of the build or the links is only in memory.
$primary->safe_psql('postgres', 'REINDEX INDEX items_v');
fill_rows($primary, 20001, 21200, $dims);
linked_there('before a crash');
$primary->stop('immediate');
$primary->start;
ok(await_server($primary), 'the primary is back');
right_after($primary, 'after a crash');
ok(await_mirror($primary), 'with a mirror');
is(by_server($primary, $all), by_table($primary), 'after a crash: all lists give what the table gives');
same('after a crash');

# Promoted, the standby builds on its server.
$standby->promote;
$primary->stop;
ok(await('a server', sub { status($standby, 'state') eq 'ready' }), 'promoted, it has a server');
$standby->safe_psql('postgres', 'REINDEX INDEX items_v');
is(log_count($standby, qr/gpuann index "items_v" was linked on the server/), 1, 'promoted, it builds there');
right_after($standby, 'promoted');
same_list_answers($standby, 'promoted: some lists give what those of the pages give', 9);
$standby->stop;
done_testing();
