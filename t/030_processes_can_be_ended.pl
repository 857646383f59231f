# Launcher and workers are ended by SIGTERM and by errors of their own, under searching sessions: only that process starts again, nobody
# sees an error or a wrong answer, and the views say what happened. A SIGKILL restarts the cluster, as any backend's does, and a killed
# postmaster leaves no process behind. I5.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use CrowdTest;
use GpuannTest;
use PgSession;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;
use Time::HiRes qw(sleep time);

my $long = $ENV{GPUANN_LONG};
my $node = server_node('main', conf => ['restart_after_crash = on']);

$node->safe_psql('postgres', make_crowd_table('items'));
make_crowd_functions($node);
ok(await_mirror($node), 'the mirror is there');
my $postmaster = $node->safe_psql('postgres', 'SELECT pg_postmaster_start_time()');

sub set_fault
{
	$node->append_conf('postgresql.conf', "gpuann.fault = '$_[0]'");
	$node->reload;
}

# Do something under a crowd; what is ended comes back, and the crowd is served again.
sub under_crowd
{
	my ($what, $do) = @_;
	my $crowd = start_crowd($node, tables => ['items'], sessions => 3);

	$do->();
	ok(await_mirror($node), "$what: the mirror comes back");
	my $answered = figure($node, 'server_answers');
	ok(await('the server answers', sub { figure($node, 'server_answers') > $answered + 50 }), "$what: the server answers again");
	cmp_ok(crowd_is_right($crowd, $what)->{by_server}, '>', 0, "$what: it did so for the crowd too");
	is(figure($node, 'scans'), figure($node, 'server_answers + page_answers'), "$what: every scan is counted once");
	is($node->safe_psql('postgres', 'SELECT pg_postmaster_start_time()'), $postmaster, "$what: the postmaster is the same");
	is(log_count($node, qr/terminating any other active server processes|all server processes terminated/), 0,
		"$what: no other process was ended");
}

# What gives a worker something to do.
my $churn = 0;
sub churn
{
	$churn++;
	# Far away from every question.
	$node->safe_psql('postgres', "INSERT INTO items SELECT 0, array_fill(1000 + i, ARRAY[12])::vector FROM generate_series(1, 5) i; DELETE FROM items WHERE id = 0");
}

under_crowd('workers ended three times', sub {
	foreach my $time (1 .. 3)
	{
		my $worker;

		ok(await('there is a worker', sub { churn(); $worker = worker_pid($node) }), 'a worker is there');
		kill 'TERM', $worker;
		ok(await('the worker is gone', sub { !alive($worker) }), 'it ends at once');
	}
});

under_crowd('launcher ended', sub {
	my $launcher = launcher_pid($node);
	my $server = server_pid($node);

	kill 'TERM', $launcher;
	ok(await('launcher and server are gone', sub { !alive($launcher) && !alive($server) }), 'the launcher ends with its server');
	ok(await('another launcher runs', sub { my $now = launcher_pid($node); $now && $now ne $launcher }), 'another one starts');
});
cmp_ok(figure($node, 'fallback_no_server + fallback_server_died'), '>', 0, 'the counters say why scans took the pages');

# Signals that mean nothing to them.
under_crowd('signals without meaning', sub {
	my @processes = (launcher_pid($node), worker_pid($node) || ());

	kill $_, @processes foreach 'INT', 'HUP', 'USR1', 'URG', 'PIPE';
	sleep 0.2;
	is(scalar(grep { alive($_) } @processes), scalar(@processes), 'nobody minds');
});

SKIP:
{
	my ($rc) = $node->psql('postgres', 'LOAD \'gpuann\'; SHOW gpuann.fault');

	skip 'this build has no fault points', 1 if $rc != 0;

	# An error while it holds the lock of the mirror table, and in the long form one in its own loop.
	foreach my $point ('launcher-sweep', $long ? 'launcher-round' : ())
	{
		under_crowd("error of the launcher, $point", sub {
			my $launcher = launcher_pid($node);

			set_fault("$point error");
			kill 'KILL', server_pid($node) if $point eq 'launcher-sweep';
			ok(await('the launcher has failed', sub { log_count($node, qr/ERROR:  fault at $point/) > 0 }), 'the launcher fails');
			set_fault('');
			ok(await('it is gone', sub { !alive($launcher) }), 'and ends');
		});
	}
	foreach my $point ('worker-claim', $long ? 'worker-round' : ())
	{
		under_crowd("error of a worker, $point", sub {
			set_fault("$point fail");
			ok(await('a worker has failed', sub {
				churn();
				$node->safe_psql('postgres', "SELECT gpuann_evict('items_v')") if $point eq 'worker-claim';
				log_count($node, qr/ERROR:  fault at $point/) > 0;
			}), 'a worker fails');
			my ($failed, $begun) = (log_count($node, qr/ERROR:  fault at $point/), time);

			# Each worker that is started fails; a second passes before the next.
			sleep 2.5;
			my $more = log_count($node, qr/ERROR:  fault at $point/) - $failed;
			cmp_ok($more, '<=', time - $begun + 3, 'workers that fail are not started without end');
			set_fault('');
			churn();
		});
	}

	# An error in a slice costs the mirror, not the worker: it is tried again, then refused for a while with the error's text.
	under_crowd('errors of a mirror', sub {
		churn();
		ok(await('there is a worker', sub { worker_pid($node) }), 'a worker is there');
		my $worker = worker_pid($node);

		set_fault('worker-slice error');
		ok(await('a slice has failed', sub { churn(); log_count($node, qr/ERROR:  fault at worker-slice/) > 0 }), 'a slice fails');
		ok(await_mirror($node), 'then the mirror is loaded again');
		like(slurp_file($node->logfile), qr/loading the mirror of gpuann index \d+ again: fault at worker-slice/, 'the log says why');

		set_fault('worker-slice fail');
		ok(await('the mirror is refused', sub { churn(); figure($node, 'state') eq 'refused' }), 'if that is no help it is refused');
		is(figure($node, 'reason'), 'fault at worker-slice', 'the view says why');
		my $refused = figure($node, 'fallback_refused');
		ok(await('scans are counted', sub { figure($node, 'fallback_refused') > $refused }), 'scans are answered from pages and counted so');
		set_fault('');
		cmp_ok($node->safe_psql('postgres', "SELECT gpuann_prewarm('items_v')"), '>', 0, 'gpuann_prewarm brings it back');
		is(worker_pid($node), $worker, 'the worker has lived through it');
	});

	# Whoever gives a mirror up clears what its worker has noted of it, in the middle of a slice too.
	under_crowd('a mirror given up while changes are brought to it', sub {
		my $file = $node->data_dir . '/gpuann_fault.worker-target';
		my $worker;

		churn();
		ok(await('there is a worker', sub { $worker = worker_pid($node) }), 'a worker is there');
		set_fault('worker-target wait 1');
		ok(await('it has brought changes', sub { churn(); $node->safe_psql('postgres', 'VACUUM (INDEX_CLEANUP on) items'); -e $file }), 'it has brought changes');
		$node->safe_psql('postgres', "SELECT gpuann_evict('items_v')");
		set_fault('');
		unlink $file;
		ok(await_mirror($node), 'the mirror is loaded again');
		is(worker_pid($node), $worker, 'the worker has lived through it');
	});
}
check_index($node, 'after all');

# SIGKILL: everybody ends, PostgreSQL recovers, and everything is there again.
sub killed
{
	my ($what, $pid) = @_;
	die "there is no $what" if !$pid;
	my $server = server_pid($node);
	my $crowd = start_crowd($node, tables => ['items'], sessions => 3, endless => 1);

	sleep 0.2;
	kill 'KILL', $pid;
	crowd_was_ended($crowd, "$what killed");
	ok(await('the old server is gone', sub { !alive($server) }), "$what killed: the server ends with the cluster");
	ok(await_cluster($node), "$what killed: the cluster is back");
	is(by_pages($node, 'SET gpuann.exact = on;'), by_table($node), "$what killed: answers are right at once");
	ok(await_mirror($node), "$what killed: server and mirror come back");
	is(by_server($node, 'SET gpuann.exact = on;'), by_table($node), "$what killed: its answers are right");
	is(status($node, 'restarts'), 0, "$what killed: it is a new area");
	check_index($node, "$what killed");
}

churn();
ok(await('there is a worker', sub { churn(); worker_pid($node) }), 'a worker is there');
killed('worker', worker_pid($node));
killed('launcher', launcher_pid($node));

# The postmaster killed, while sessions search, a worker loads and rows are inserted.
sub processes
{
	my $data = $node->data_dir;
	return grep { (readlink("/proc/$_/cwd") // '') eq $data && alive($_) } map { m{(\d+)} } glob '/proc/[0-9]*';
}

foreach my $time ('the server runs', 'the server hangs')
{
	my ($pid) = slurp_file($node->data_dir . '/postmaster.pid') =~ /^(\d+)/;
	my $crowd = start_crowd($node, tables => ['items'], sessions => 3, endless => 1);
	my $writer = PgSession->new($node);

	$writer->send("DO \$\$ BEGIN FOR i IN 1 .. 100000 LOOP INSERT INTO items VALUES (0, array_fill(900 + i, ARRAY[12])::vector); COMMIT; END LOOP; END \$\$");
	$node->safe_psql('postgres', "SELECT gpuann_evict('items_v')");
	ok(await('a worker is at work', sub { worker_pid($node) }), 'a worker is at work');
	my $server = server_pid($node);
	my @ours = ($server, launcher_pid($node), worker_pid($node));

	kill 'STOP', $server if $time eq 'the server hangs';
	my $begun = time;
	$node->kill9;
	ok(await('they have ended', sub { !grep { alive($_) } @ours }), "postmaster killed while $time: server, launcher and worker end")
	  or diag(join ' ', grep { alive($_) } @ours);
	note(sprintf('after %.1f s', time - $begun));
	# A session that is busy does not notice until it waits for something.
	kill 'TERM', processes();
	ok(await('no process is left', sub { processes() == 0 }), "postmaster killed while $time: no process is left")
	  or diag(join ' ', map { "$_: " . (slurp_file("/proc/$_/cmdline") =~ s/\0/ /gr) } processes());
	end_crowd($crowd);
	# Who has reaped it is not for us to say, and until then pg_ctl takes it for running.
	await('the postmaster is reaped', sub { !kill 0, $pid });
	$node->start;
	$node->safe_psql('postgres', 'DELETE FROM items WHERE id = 0');
	ok(await_mirror($node), "postmaster killed while $time: the next start works");
	is(by_server($node, 'SET gpuann.exact = on;'), by_table($node), "postmaster killed while $time: answers are right");
	check_index($node, "postmaster killed while $time");
}
$node->stop;
ok(await('no process is left', sub { processes() == 0 }), 'at the end nothing is left');
done_testing();
