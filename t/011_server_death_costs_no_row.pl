# The server is killed again and again while sessions insert and search: no wrong row, no missing row, no error, no hang, and counters
# say why scans took the pages. The launcher starts it anew with growing delays. I5.

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
use Time::HiRes qw(sleep time);

my $dims = 16;
my $node = server_node('main');
my $tmp = $node->basedir;

make_data($node, 2000, $dims);
ok(await_mirror($node), 'the mirror is there');

# Each client inserts a row of its own and has to find it at once, as the nearest of all.
append_to_file("$tmp/insert.sql", qq{
\\set id random(100000, 2000000000)
INSERT INTO items VALUES (:id, vec(:id, $dims));
SELECT 1 / count(*) FROM (SELECT v FROM items ORDER BY v <-> vec(:id, $dims) LIMIT 1) n WHERE v = vec(:id, $dims);
});
# The nearest of a stored row is itself, and there are ten neighbours.
append_to_file("$tmp/search.sql", qq{
\\set id random(1, 2000)
SELECT 1 / (count(*) = 10 AND min(d) = 0)::int FROM
	(SELECT v <-> vec(:id, $dims) AS d FROM items ORDER BY v <-> vec(:id, $dims) LIMIT 10) n;
});

# Run pgbench until it is told to stop; returns the handle and where it writes.
sub load
{
	my ($clients) = @_;
	my $output = '';
	my $run = IPC::Run::start(
		[ 'pgbench', '-n', '-M', 'prepared', '-T', 100_000, '-c', $clients, '-j', 2,
			'-f', "$tmp/insert.sql", '-f', "$tmp/search.sql\@4", $node->connstr('postgres') ],
		'<', \undef, '>', \$output, '2>', \$output);

	return ($run, \$output);
}

$node->append_conf('postgresql.conf', 'enable_seqscan = off');
$node->reload;
my ($run, $output) = load(8);
my $killed = 0;

while ($killed < 4)
{
	await('a server runs', sub { status($node, 'state') eq 'ready' }) or last;
	sleep 0.7;
	my $pid = server_pid($node);
	$killed += kill('KILL', $pid) if $pid;
	await('restarts are counted', sub { status($node, 'restarts') >= $killed }) or last;
}
is($killed, 4, 'it has died four times');
ok($run->pumpable, 'nobody has given up');
$run->signal('TERM');
$run->finish;
unlike($$output, qr/ERROR|FATAL|aborted/, 'no row was wrong or missing, nobody saw an error') or diag($$output);
ok(await('the sessions are over', sub {
	$node->safe_psql('postgres', "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'") == 1 }), 'no session hangs');
cmp_ok(figure($node, 'fallback_no_server + fallback_server_died + fallback_not_loaded'), '>', 0, 'counters say why');
is(figure($node, 'scans'), figure($node, 'server_answers + page_answers'), 'and every scan is counted once');
is(status($node, 'restarts'), $killed, 'restarts are counted');
is(status($node, 'last_error'), 'the server was ended by signal 9', 'the last error is told');

# The delays grow: 200 ms, twice that, ...
my @delays = slurp_file($node->logfile) =~ /It is started again in (\d+) ms/g;
is($delays[0], 200, 'the first restart comes soon');
is($delays[1], 400, 'the second takes its time');
cmp_ok($delays[-1], '>', 400, 'later ones more');

ok(await_server($node), 'it comes back');
ok(await_mirror($node), 'and so does the mirror');
is(by_server($node, 'SET gpuann.exact = on;'), by_table($node), 'with every row');
check_index($node, 'afterwards');

# It dies while it loads and while it links: what was not written is linked again. A reload ends the delay before a restart.
fill_rows($node, 2000000001, 2000009000, $dims);
foreach my $time (1 .. 6)
{
	my $restarts = status($node, 'restarts');

	kill('KILL', server_pid($node)) if await_server($node);
	await('it is gone', sub { status($node, 'restarts') > $restarts });
	$node->reload;
	await_server($node);
	$node->safe_psql('postgres', "SELECT id FROM items ORDER BY v <-> (SELECT vec(1, $dims)) LIMIT 1; SELECT pg_sleep(0.2 * $time)");
}
ok(await_mirror($node), 'the mirror comes back');
ok(await('few rows are pending', sub {
	$node->safe_psql('postgres', qq{
SELECT id FROM items ORDER BY v <-> (SELECT vec(1, $dims)) LIMIT 1;
SELECT pending FROM gpuann_last_scan()}) =~ /\n(\d+)$/ && $1 < 1000;
}), 'the worker goes on linking');
is(by_server($node, 'SET gpuann.exact = on;'), by_table($node), 'killed while linking: every row is there');
check_index($node, 'killed while linking');
$node->stop;
done_testing();
