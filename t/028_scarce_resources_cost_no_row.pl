# Where descriptors, memory or connections run out, or the installed server is of another version: no wrong row, no missing row, no hang, the status
# says what is wrong, and the server serves again when it no longer is. All of it with nothing locked in memory (RLIMIT_MEMLOCK 0). I3, I5, I7.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use FaultTest;
use GpuannTest;
use PgSession;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;
use Time::HiRes qw(sleep time);

need_fault_engine();

my $dims = 16;
my $most = 40;
my $limits = set_limit($$, 'memlock=0');
my $preload = "$FindBin::RealBin/../test/build/scarce_preload.so";
my $scarce = PostgreSQL::Test::Utils::tempdir() . '/scarce';
my $older = PostgreSQL::Test::Utils::tempdir() . '/older';

# The server of another version sees an area that is not of its own: so does this one, if we change the number in it.
my $install = other_server('other', qq{
if (-e '$older')
{
	\$^F = 10;
	open(our \$area, '+<&=', 3) or die;
	sysseek(\$area, 8, 0);
	syswrite(\$area, pack('L', 4711)) == 4 or die;
}
});

$ENV{GPUANN_SCARCE} = $scarce;
$ENV{LD_PRELOAD} = $preload if -e $preload;
my $node = fault_node('main', ($install ? (install_path => $install) : ()),
	conf => [ "max_connections = $most", "gpuann.request_timeout = '300s'", "gpuann.server_timeout = '5s'" ]);
delete $ENV{LD_PRELOAD};

make_data($node, 2000, $dims);
ok(await_mirror($node), 'the mirror is there');
my $watch = PgSession->new($node);
my $session = session($node);

expect_service($limits ? 'no memory may be locked' : 'as usual', $node, $dims);

sub counter { return $watch->rows("SELECT $_[0] FROM pg_stat_gpuann WHERE indexrelname = 'items_v'") }

# The descriptors that a process has.
sub descriptors
{
	my ($pid) = @_;
	return map { m{/(\d+)$} } glob "/proc/$pid/fd/*";
}

# So few descriptors that a process may open only so many more.
sub leave_descriptors
{
	my ($pid, $free) = @_;
	my %open = map { $_ => 1 } descriptors($pid);
	my $limit = 0;

	for (; $free > 0 || $open{$limit}; $limit++)
	{
		$free-- unless $open{$limit};
	}
	return set_limit($pid, "nofile=$limit:");
}

# The server dies and its launcher has not the descriptors for another.
sub launcher_without_descriptors
{
	my ($free) = @_;
	my $what = "$free descriptors left to the launcher";
	my ($pid, $launcher) = (server_pid($node), launcher_pid($node));
	my $before = counter('fallback_no_server');
	my $restarts = status($node, 'restarts');

	# Stopped, or it might want a descriptor before the server is dead.
	kill 'STOP', $launcher;
	ok(leave_descriptors($launcher, $free), $what);
	kill 'KILL', $pid;
	kill 'CONT', $launcher;
	await('the death is noticed', sub { status($node, 'restarts') > $restarts });
	ok(await('there is no server', sub { $watch->rows('SELECT last_error FROM gpuann_server_status') =~ /descriptors|make pipes/ }),
		"$what: the status says so");
	note($watch->rows('SELECT last_error FROM gpuann_server_status'));
	like(status($node, 'state'), qr/absent|failed/, "$what: there is no server");
	expect_answers($what, $session, $dims);
	cmp_ok(counter('fallback_no_server'), '>', $before, "$what: counted as fallback_no_server");
	set_limit($launcher, 'nofile=256:');
	ok(revive($node, $watch), "$what: with more there is a server again");
	is(launcher_pid($node), $launcher, "$what: of the same launcher");
	expect_service($what, $node, $dims);
}

SKIP:
{
	skip 'there is no prlimit', 1 unless $limits;

	launcher_without_descriptors(0);
	launcher_without_descriptors(2);

	# A session that can open nothing more searches, in pages too, for PostgreSQL closes what it needs least.
	my $poor = session($node, settings => '-c gpuann.fallback=error');
	$poor->rows("SELECT id FROM items ORDER BY v <-> vec(1, $dims) LIMIT 1");
	ok(leave_descriptors($poor->pid, 0), 'no descriptor left to a session');
	expect_answers('no descriptor left to a session', $poor, $dims);
	$poor->rows('SET gpuann.server = off');
	expect_answers('no descriptor left to a session, pages', $poor, $dims);
	$poor->close;

	# A server that can open nothing more answers, and loads.
	my $pid = server_pid($node);
	ok(leave_descriptors($pid, 0), 'no descriptor left to the server');
	expect_answers('no descriptor left to the server', $session, $dims);
	$node->safe_psql('postgres', "SELECT gpuann_evict('items_v')");
	# A GPU's driver may want descriptors to load.
	expect_service('no descriptor left to the server', $node, $dims) if ($ENV{GPUANN_TEST_ENGINE} || 'cpu') eq 'cpu';
	set_limit($pid, 'nofile=256:');
	# In any case: who asks next finds the mirror that was evicted.
	expect_service('descriptors left to the server again', $node, $dims);
	is(server_pid($node), $pid, 'no descriptor left to the server: it goes on');

	# The same with memory; a GPU's is its own.
	skip 'mirrors are not in the memory that can be limited', 1 if ($ENV{GPUANN_TEST_ENGINE} || 'cpu') ne 'cpu';
	skip 'a sanitizer does not live with limited memory', 1 if $ENV{GPUANN_SANITIZED};
	my ($size) = slurp_file("/proc/$pid/status") =~ /VmData:\s+(\d+) kB/;
	$node->safe_psql('postgres', "CREATE TABLE large (id int, v vector(1000));
		INSERT INTO large SELECT i, array_fill(i % 7, ARRAY[1000])::vector FROM generate_series(1, 4000) i;
		SET gpuann.server = off; CREATE INDEX large_v ON large USING gpuann (v vector_l2_ops)");
	ok(set_limit($pid, 'data=' . ($size + 2000) * 1024 . ':'), 'no memory left to the server');
	my ($rc, $out, $err) = $node->psql('postgres', "SELECT gpuann_prewarm('large_v')");
	like($err, qr/index "large_v" was not mirrored: .*memory/, 'no memory left to the server: a mirror is refused');
	is(figure($node, 'state', 'large_v'), 'refused', 'no memory left to the server: the view says so');
	is($node->safe_psql('postgres', "SET enable_seqscan = off; SELECT count(*) FROM (SELECT id FROM large ORDER BY v <->
		array_fill(3, ARRAY[1000])::vector LIMIT 100) near"), 100, 'no memory left to the server: scans are answered from pages');
	cmp_ok(figure($node, 'fallback_refused', 'large_v'), '>', 0, 'no memory left to the server: counted as fallback_refused');
	is(server_pid($node), $pid, 'no memory left to the server: it goes on');
	expect_answers('no memory left to the server', $session, $dims);
	is($node->safe_psql('postgres', "SET enable_seqscan = off; SET gpuann.fallback = error;
		SELECT id FROM items ORDER BY v <-> (SELECT v FROM items WHERE id = 7) LIMIT 1"), 7, 'no memory left to the server: other mirrors answer');
	set_limit($pid, 'data=unlimited:');
	cmp_ok($node->safe_psql('postgres', "SELECT gpuann_prewarm('large_v')"), '>', 16_000_000, 'with memory the mirror is loaded');
	$node->safe_psql('postgres', 'DROP TABLE large');
}

# Every connection there can be searches at once, again and again, while the server dies once: every one has a slot.
my @all;
while (my $one = session($node, settings => '-c gpuann.ef_search=40'))
{
	push @all, $one;
	last if @all > $most;
}
cmp_ok(scalar(@all), '>=', $most - 8, 'all connections are taken: ' . @all);
cmp_ok(scalar(@all), '<=', $most, 'and no more');
my $columns = $watch->rows("SELECT string_agg(attname, ',') FROM pg_attribute WHERE attrelid = 'pg_stat_gpuann'::regclass AND attname LIKE 'fallback%'");
my $answers = counter('server_answers');
my $reasons = counter("($columns)");
my $wrong = 0;
foreach my $round (1 .. 10)
{
	my $pid = $watch->rows('SELECT pid FROM gpuann_server_status');
	$all[$_]->send("SELECT id FROM items ORDER BY v <-> (SELECT v FROM items WHERE id = " . (100 * $round + $_) . ") LIMIT 1") foreach 0 .. $#all;
	kill 'KILL', $pid if $round == 8;
	foreach (0 .. $#all)
	{
		my $got = $all[$_]->is_done(180) ? $all[$_]->receive : { error => 'no answer', rows => [] };
		$wrong++ if $got->{error} ne '' || $got->{rows}[0] != 100 * $round + $_;
	}
	# The next round has a server that dies, and those after it one that may still be starting.
	next if $round != 7;
	is(counter('server_answers') - $answers, 7 * @all, 'all connections at once: the server answers them all');
	is(counter("($columns)"), $reasons, "all connections at once: none was left to the pages: $columns");
}
is($wrong, 0, 'all connections at once: every answer is right');
$_->close foreach @all;
ok(revive($node, $watch), 'all connections at once: another server takes over');
ok(await('connections are free', sub { ($node->psql('postgres', 'SELECT 1'))[0] == 0 }), 'all connections at once: they are free again');
expect_service('all connections at once', $node, $dims);

# A server of another version than the area: refused, visibly, and not started over and over.
SKIP:
{
	skip 'PostgreSQL is not a copy that can be changed', 1 unless $install;

	my $restarts = status($node, 'restarts');
	my $before = counter('fallback_no_server');
	append_to_file($older, '');
	kill 'KILL', server_pid($node);
	ok(await('the other server is refused', sub { status($node, 'state') eq 'failed' }), 'a server of another version is refused');
	like(status($node, 'last_error'), qr/protocol version 4711 of the request area is not this server's, \d+: .* restart it/,
		'another version: the status says why, and what to do');
	cmp_ok(log_count($node, qr/gpuann-server: protocol version 4711 of the request area/), '>=', 1, 'another version: so does the log');
	expect_answers('another version', $session, $dims);
	cmp_ok(counter('fallback_no_server'), '>', $before, 'another version: counted as fallback_no_server');
	cmp_ok(status($node, 'restarts'), '<=', $restarts + 2, 'another version: it is not tried over and over');
	unlink $older;
	$_->close foreach $watch, $session;
	$ENV{LD_PRELOAD} = $preload if -e $preload;
	$node->restart;
	delete $ENV{LD_PRELOAD};
	$watch = PgSession->new($node);
	$session = session($node);
	expect_service('of the same version again', $node, $dims);
}

# No memory file: at start or, after a crash of PostgreSQL, in the middle of its life.
sub crash
{
	my $victim = PgSession->new($node);

	$session->close;
	kill 'KILL', $victim->pid;
	await('PostgreSQL has noticed', sub { $watch->query('SELECT 1')->{lost} });
	ok(await('the cluster is back', sub {
		$watch = PgSession->new($node) or return 0;
		return $watch->query('SELECT 1')->{error} eq '';
	}), 'PostgreSQL restarts after a crash');
	$session = session($node);
}

SKIP:
{
	skip "$preload is not built", 1 unless -e $preload;

	append_to_file($scarce, '');
	crash();
	is(status($node, 'state'), 'off', 'no memory file: there is no server');
	like(status($node, 'last_error'), qr/the shared area could not be made/, 'no memory file: the status says why');
	is(log_count($node, qr/WARNING:  gpuann runs without its server: could not create a shared area/), 1, 'no memory file: so does the log');
	expect_answers('no memory file', $session, $dims);
	unlink $scarce;
	crash();
	expect_service('with a memory file', $node, $dims);
}
check_index($node, 'in the end');
$_->close foreach $watch, $session;
$node->stop;
done_testing();
