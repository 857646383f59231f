# A standby is promoted while sessions search it and rows are replayed: nobody sees an error, a wrong row or too few, the mirror goes on and
# follows the new primary's own changes, with the linker. I3, I5.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use CrowdTest;
use GpuannTest;
use PgSession;
use PostgreSQL::Test::Cluster;
use ServerTest;
use Test::More;

my $primary = server_node('primary', streaming => 1);
my $standby = PostgreSQL::Test::Cluster->new('standby');

$primary->safe_psql('postgres', make_crowd_table('items') . make_crowd_table('others'));
make_crowd_functions($primary);
$primary->backup('base');
$standby->init_from_backup($primary, 'base', has_streaming => 1);
$standby->start;
ok(await_server($standby), 'the standby has a server');
ok(await_mirror($standby, $_), "and a mirror of $_") foreach 'items_v', 'others_v';

# Rows far away from every question, so that answers stay what they are.
my $far = sub { "INSERT INTO items SELECT 0, array_fill(1000 + i, ARRAY[12])::vector FROM generate_series($_[0], $_[1]) i" };

my $crowd = start_crowd($standby, tables => [ 'items', 'others' ], sessions => 3);
my $writer = PgSession->new($primary);
$writer->send("DO \$\$ BEGIN FOR i IN 1 .. 100000 LOOP INSERT INTO items VALUES (0, array_fill(1000 + i, ARRAY[12])::vector); COMMIT;
	IF i % 200 = 0 THEN UPDATE others SET id = id WHERE id <= 20; COMMIT; END IF; END LOOP; END \$\$");
my $rows = figure($standby, 'mirror_rows');
ok(await('rows are replayed into the mirror', sub { figure($standby, 'mirror_rows') > $rows + 100 }), 'rows are replayed into the mirror');
my $answered = figure($standby, 'server_answers');
my $pid = server_pid($standby);

$standby->promote;
is($standby->safe_psql('postgres', 'SELECT pg_is_in_recovery()'), 'f', 'the standby is promoted while it is searched');
is(server_pid($standby), $pid, 'with the same server');
ok(await('the server answers', sub { figure($standby, 'server_answers') > $answered + 50 }), 'which answers on');
is(figure($standby, 'state'), 'ready', 'the mirror has not been loaded again');
$primary->stop('immediate');

# Its own changes now, enough to be linked.
$standby->safe_psql('postgres', $far->(200001, 203000));
$standby->safe_psql('postgres', 'DELETE FROM items WHERE id = 0 AND random() < 0.5; VACUUM items');
ok(await_mirror($standby), 'the mirror follows');
ok(await('the worker has linked', sub {
	$standby->safe_psql('postgres', "SELECT pending < 1000 FROM gpuann_stats('items_v')") eq 't' }), 'its worker links');
my $total = crowd_is_right($crowd, 'promoted');
cmp_ok($total->{by_server}, '>', 0, 'the server answered the crowd');
is($standby->safe_psql('postgres', "SELECT count(*) FROM pg_stat_gpuann WHERE scans <> server_answers + page_answers"), 0,
	'every scan is counted once');
is(figure($standby, 'fallback_invalid_answer + fallback_engine_error + fallback_timeout + fallback_server_died'), 0, 'no answer was refused');
is(by_server($standby, 'SET gpuann.exact = on;'), by_table($standby), 'answers are right');
check_index($standby, 'promoted', $_) foreach 'items_v', 'others_v';
$standby->stop;
done_testing();
