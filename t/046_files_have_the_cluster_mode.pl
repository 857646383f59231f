# Every file of the module has the mode that the cluster's files have: for the owner alone, or for the group too where initdb was told so. A file
# that a version before has left with another mode is brought to it.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use GpuannTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

foreach my $group (0, 1)
{
	my $node = server_node($group ? 'group' : 'owner', initdb => $group ? ['--allow-group-access'] : []);
	my $lock = $node->data_dir . '/gpuann-server.lock';
	my $what = $group ? 'with group access' : 'without group access';
	my @modes = $group ? (0750, 0640) : (0700, 0600);

	make_data($node, 200, 8);
	ok(await_mirror($node), "$what: the server works");
	ok(-e $lock, "$what: there is a lock file");
	$node->stop;
	ok(-e $node->data_dir . '/pg_stat/gpuann.stat', "$what: there is a state file");
	ok(check_mode_recursive($node->data_dir, @modes), "$what: all files have the cluster's mode");
	chmod($group ? 0600 : 0640, $lock) or die "$lock: $!";
	$node->start;
	ok(await_server($node), "$what: the server starts again");
	ok(check_mode_recursive($node->data_dir, @modes), "$what: a lock file with another mode is brought to it");
	$node->stop;
}
done_testing();
