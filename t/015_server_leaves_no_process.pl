# However the postmaster ends, gpuann-server ends with it; and a crash restart of PostgreSQL brings a new area and a new server.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use GpuannTest;
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my $dims = 8;
my $node = server_node('main', conf => ['restart_after_crash = on']);
my $pid;

make_data($node, 1000, $dims);
ok(await_mirror($node), 'the mirror is there');

# How many processes work in the cluster's directory: postmaster, children, server.
sub processes
{
	my $data = $node->data_dir;
	return scalar(grep { (readlink($_) // '') eq $data } glob '/proc/[0-9]*/cwd');
}

sub ends
{
	my ($how, $end) = @_;

	$pid = server_pid($node);
	$end->();
	ok(await('the server is gone', sub { !alive($pid) }), "$how: the server is gone");
	ok(await('no process is left', sub { processes() == 0 }), "$how: no process is left");
	$node->start;
	ok(await_server($node), "$how: another starts with the cluster");
	ok(await_mirror($node), "$how: the mirror comes back");
	is(by_server($node, 'SET gpuann.exact = on;'), by_table($node), "$how: answers are right");
}

ends('fast stop', sub { $node->stop('fast') });
ends('immediate stop', sub { $node->stop('immediate') });
ends('postmaster killed', sub {
	my ($postmaster) = slurp_file($node->data_dir . '/postmaster.pid') =~ /^(\d+)/;

	$node->kill9;
	# Who has reaped it is not for us to say, and until then pg_ctl takes it for running.
	await('the postmaster is reaped', sub { !kill 0, $postmaster });
});
ends('stopped with a hung server', sub { kill 'STOP', $pid; $node->stop('fast'); });

# A backend that is killed takes all others with it, and the area.
$pid = server_pid($node);
my $backend;
my $out = '';
my $session = IPC::Run::start([ 'psql', '-XAtq', $node->connstr('postgres'), '-c', 'SELECT pg_sleep(60)' ],
	'<', \undef, '>', \$out, '2>', \$out);
ok(await('a session sleeps', sub {
	$backend = $node->safe_psql('postgres', "SELECT pid FROM pg_stat_activity WHERE query = 'SELECT pg_sleep(60)' AND state = 'active'");
}), 'a session is there');
kill 'KILL', $backend;
$session->finish;
ok(await('the server is gone', sub { !alive($pid) }), 'crash: the old server is gone');
ok(await_cluster($node), 'crash: the cluster restarts');
ok(await_mirror($node), 'crash: server and mirror too');
is(by_server($node, 'SET gpuann.exact = on;'), by_table($node), 'crash: answers are right');
is(status($node, 'restarts'), 0, 'crash: the area is a new one');

# No descriptor of PostgreSQL is in the server's hands but the area, and none of its shared memory. A GPU's driver has sockets and shared
# memory of its own, so it is asked which ones.
$pid = server_pid($node);
my ($postmaster) = slurp_file($node->data_dir . '/postmaster.pid') =~ /^(\d+)/;

sub descriptors
{
	return grep { defined } map { readlink } glob "/proc/$_[0]/fd/*";
}

# The shared memory that a process maps, by device and inode.
sub shared_memory
{
	return map { m{^\S+ .{3}s \S+ (\S+ \d+) +(?!\S*memfd:gpuann)\S} ? $1 : () } split /\n/, slurp_file("/proc/$_[0]/maps");
}

my %of_postmaster = map { $_ => 1 } grep { /^socket:/ } descriptors($postmaster);
my @open = descriptors($pid);
my @theirs = grep { m{/base/|/pg_wal/|/global/} || $of_postmaster{$_} } @open;
is(scalar(@theirs), 0, 'the server holds no file of the cluster') or diag(join "\n", @theirs);
cmp_ok(scalar(keys %of_postmaster), '>', 0, 'though the postmaster has some');
cmp_ok(scalar(@open), '>', 3, 'and the server others');
like(slurp_file("/proc/$pid/maps"), qr/memfd:gpuann/, 'it maps the area');
%of_postmaster = map { $_ => 1 } shared_memory($postmaster);
cmp_ok(scalar(keys %of_postmaster), '>', 0, 'the cluster has shared memory');
is(scalar(grep { $of_postmaster{$_} } shared_memory($pid)), 0, 'which the server does not map');

$node->stop;
ok(await('the server is gone', sub { !alive($pid) }), 'at the end nothing is left');
done_testing();
