# A standby has a server and mirrors of its own: they follow replay, answers are the primary's, and promotion costs nothing.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use GpuannTest;
use PostgreSQL::Test::Cluster;
use ServerTest;
use Test::More;

my $dims = 16;
my $primary = server_node('primary', streaming => 1);
my $standby = PostgreSQL::Test::Cluster->new('standby');

make_data($primary, 2000, $dims);
ok(await_mirror($primary), 'the primary has a mirror');
$primary->backup('base');
$standby->init_from_backup($primary, 'base', has_streaming => 1);
$standby->start;
ok(await_server($standby), 'the standby has a server');
isnt(server_pid($standby), server_pid($primary), 'of its own');
ok(await_mirror($standby), 'and a mirror');

sub same
{
	my ($what) = @_;

	$primary->wait_for_catchup($standby, 'replay', $primary->lsn('insert'));
	is(by_server($standby, 'SET gpuann.exact = on;'), by_table($primary), "$what: exact answers are the primary's table");
	same_graph_answers($standby, $primary, "$what: graph answers are the primary's pages'");
	ok(await('the mirror is current', sub { figure($standby, 'mirror_lag') eq '0' }), "$what: the mirror is current soon");
}

same('built');
fill_rows($primary, 10001, 10500, $dims);
same('inserted');
fill_rows($primary, 11001, 12500, $dims);
same('inserted and linked');
$primary->safe_psql('postgres', 'DELETE FROM items WHERE id % 4 = 0; VACUUM items');
same('vacuumed');
fill_rows($primary, 13001, 13600, $dims);
same('used again');
$primary->safe_psql('postgres', 'REINDEX INDEX items_v');
$primary->wait_for_catchup($standby, 'replay', $primary->lsn('insert'));
ok(await_mirror($standby), 'a rebuilt index gets a mirror here too');
same('rebuilt');
is(figure($standby, 'fallback_invalid_answer + fallback_engine_error'), 0, 'no answer was wrong');

# Dropped on the primary, its database must go here too, though a worker is in it.
$primary->safe_psql('postgres', 'CREATE DATABASE other');
$primary->safe_psql('other', "CREATE EXTENSION vector; CREATE EXTENSION gpuann;
	CREATE TABLE items AS SELECT i AS id, array[i, 1, 2]::vector(3) AS v FROM generate_series(1, 200) i;
	CREATE INDEX items_v ON items USING gpuann (v vector_l2_ops)");
$primary->wait_for_catchup($standby, 'replay', $primary->lsn('insert'));
ok(await('the mirror is ready', sub {
	$standby->safe_psql('other', "SET enable_seqscan = off; SELECT id FROM items ORDER BY v <-> '[1,1,1]' LIMIT 1");
	$standby->safe_psql('other', 'SELECT state FROM pg_stat_gpuann') eq 'ready' }), 'a mirror in another database');
$primary->safe_psql('postgres', 'DROP DATABASE other');
$primary->wait_for_catchup($standby, 'replay', $primary->lsn('insert'));
is($standby->safe_psql('postgres', "SELECT count(*) FROM pg_database WHERE datname = 'other'"), 0, 'replay drops it');

$standby->promote;
fill_rows($standby, 20001, 22000, $dims);
ok(await_mirror($standby), 'promoted, the mirror goes on');
is(by_server($standby, 'SET gpuann.exact = on;'), by_table($standby), 'promoted: answers are right');
check_index($standby, 'promoted');
$standby->stop;
$primary->stop;
done_testing();
