# Counters survive restarts, and mirrors that were resident are loaded again without being asked for; the file that says so may be missing,
# damaged or of another cluster. Counters can be reset, by whom it was granted.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use GpuannTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;
use Time::HiRes;

my $dims = 8;
my $node = server_node('main', conf => [ 'gpuann.save_interval = 1' ]);
my $file = $node->data_dir . '/pg_stat/gpuann.stat';

make_data($node, 1000, $dims);
ok(await_mirror($node), 'the mirror is there');
by_server($node);
my $scans = figure($node, 'scans');
my $answers = figure($node, 'server_answers');
cmp_ok($scans, '>', 0, 'scans are counted');

$node->restart;
cmp_ok(figure($node, 'scans'), '>=', $scans, 'counters survive a restart');
cmp_ok(figure($node, 'server_answers'), '>=', $answers, 'of every kind');
ok(await('the mirror is loaded', sub { figure($node, 'state') eq 'ready' }), 'the mirror comes back without a question');
is(by_server($node, 'SET gpuann.exact = on;'), by_table($node), 'and right');

# What has not changed is not written again.
sub written { return (Time::HiRes::stat($file))[9] }
my $unchanged = 0;
foreach (1 .. 5)
{
	my $before = written();
	sleep(3);
	$unchanged = $before == written();
	last if $unchanged;
}
ok($unchanged, 'a file that would say the same is not written');
my $before = written();
by_server($node);
ok(await('the file is written', sub { written() > $before }), 'one that would say something else is');

# Damaged, then missing.
$node->stop;
my $bytes = slurp_file($file);
substr($bytes, length($bytes) - 9, 1) ^= 'x';
open(my $handle, '>:raw', $file) or die;
print $handle $bytes;
close $handle;
$node->start;
ok(await_server($node), 'a damaged file harms nobody');
is(log_count($node, qr/ignoring "pg_stat\/gpuann\.stat"/), 1, 'the log says so');
is(figure($node, 'scans'), '', 'nothing is believed');
$node->stop;
unlink $file;
$node->start;
ok(await_mirror($node), 'a missing one neither');

# Of a cluster that has changed since: mirrors of indexes that are gone are not missed.
$node->stop;
my $old = slurp_file($file);
$node->start;
$node->safe_psql('postgres', 'REINDEX INDEX items_v; CREATE DATABASE other');
$node->stop;
open($handle, '>:raw', $file) or die;
print $handle $old;
close $handle;
$node->start;
ok(await_mirror($node), 'a stale one neither');
is(by_server($node, 'SET gpuann.exact = on;'), by_table($node), 'answers are right');

# Reset.
cmp_ok(figure($node, 'scans'), '>', 0, 'there is something to reset');
$node->safe_psql('postgres', "SELECT gpuann_stat_reset('items_v')");
is(figure($node, "scans || ' ' || server_answers || ' ' || (stats_reset > now() - interval '1 minute')"), '0 0 true', 'one index is reset');
by_server($node);
$node->safe_psql('postgres', 'SELECT gpuann_stat_reset()');
is(figure($node, 'scans'), 0, 'all are');
$node->safe_psql('postgres', 'CREATE ROLE guest LOGIN');
my ($rc, $out, $err) = $node->psql('postgres', 'SET ROLE guest; SELECT gpuann_stat_reset()');
like($err, qr/permission denied for function gpuann_stat_reset/, 'not by everybody');
$node->safe_psql('postgres', 'GRANT EXECUTE ON FUNCTION gpuann_stat_reset() TO guest; SET ROLE guest; SELECT gpuann_stat_reset()');
$node->stop;
done_testing();
