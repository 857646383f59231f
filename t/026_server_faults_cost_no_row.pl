# A server that is killed, crashes, or stands still for longer than gpuann.server_timeout, each while it is idle, while a mirror is loaded, while it
# links, while an index is built, and under 32 busy clients: no wrong row, no missing row, nobody waits for long, the views say why, and the next
# server serves. I3, I5, I6.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use FaultTest;
use GpuannTest;
use IPC::Run;
use PgSession;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;
use Time::HiRes qw(sleep time);

need_fault_engine();

my $dims = 16;
my $clients = 32;
my $node = fault_node('main', conf => [ "gpuann.server_timeout = '3s'", "gpuann.request_timeout = '300s'", 'max_connections = 60' ]);
my $tmp = $node->basedir;
my %said = (
	KILL => 'the server was ended by signal 9',
	SEGV => 'the server was ended by signal 11',
	STOP => 'the server stood still and was ended');

make_data($node, 2000, $dims);
ok(await_server($node), 'the server runs');
ok(await_mirror($node), 'the mirror is there');

my $watch = PgSession->new($node);
my $session = session($node);

# A fault strikes the server while it does something; what holds, then and afterwards.
sub strike
{
	my ($what, $signal, $then) = @_;
	my ($restarts, $reasons) = (status($node, 'restarts'), reasons($watch));
	my $pid = signal_server($node, $signal);
	my $asked = PgSession->new($node, settings => '-c enable_seqscan=off');
	my $took;

	# One asks at once: it waits for a stopped server until that is given up, and for a dead one not at all.
	$took = in_seconds(sub {
		is($asked->rows("SELECT id FROM items ORDER BY v <-> (SELECT v FROM items WHERE id = 7) LIMIT 1"), 7, "$what: a scan is answered");
	});
	cmp_ok($took, '<', 100, "$what: soon");
	$asked->close;
	ok(await("the death is noticed", sub { status($node, 'restarts') > $restarts }), "$what: the server is replaced");
	is(status($node, 'last_error'), $said{$signal}, "$what: the status says how it ended");
	$then->() if $then;
	expect_answers($what, $session, $dims);
	cmp_ok(reasons($watch), '>', $reasons, "$what: a counter says why scans went elsewhere");
	ok(replaced($node, $watch, $pid), "$what: there is another server");
	ok(!alive($pid), "$what: the old one is gone");
	expect_service($what, $node, $dims);
	# Three crashes in one place would mean quarantine: see 019.
	$node->safe_psql('postgres', "SELECT gpuann_prewarm('items_v')");
}

sub idle
{
	my ($signal) = @_;
	strike("$signal while idle", $signal);
}

# A mirror's rows are under way.
sub loading
{
	my ($signal) = @_;

	faults('hold_append=1');
	$node->safe_psql('postgres', "SELECT gpuann_evict('items_v')");
	ok(await_held('rows are under way', sub { $session->rows("SELECT id FROM items ORDER BY v <-> vec(1, $dims) LIMIT 1") }),
		"$signal while loading: a mirror is being loaded");
	is(figure($node, 'state'), 'loading', "$signal while loading: as the view says");
	strike("$signal while loading", $signal, sub { faults('') });
}

# The engine computes edges for rows that came.
my $next = 100000;

sub linking
{
	my ($signal) = @_;

	faults('hold_link=1');
	fill_rows($node, $next, $next + 1199, $dims);
	$next += 1200;
	ok(await_held('a link is under way'), "$signal while linking: the engine links");
	strike("$signal while linking", $signal, sub { faults('') });
	ok(await('the worker links again', sub {
		$session->rows("SELECT id FROM items ORDER BY v <-> vec(1, $dims) LIMIT 1");
		$session->rows('SELECT pending FROM gpuann_last_scan()') < 1000;
	}), "$signal while linking: what was not written is linked again");
	check_index($node, "$signal while linking");
}

# CREATE INDEX stands still in the middle of its rows, at a lock that we hold.
$node->safe_psql('postgres', q{
CREATE TABLE built (id int, v vector(16));
INSERT INTO built SELECT id, v FROM items WHERE id <= 1500;
CREATE FUNCTION gated(v vector) RETURNS vector LANGUAGE plpgsql IMMUTABLE PARALLEL UNSAFE AS
	$$ BEGIN PERFORM pg_advisory_lock_shared(4711); PERFORM pg_advisory_unlock_shared(4711); RETURN v; END $$;
});

sub building
{
	my ($signal) = @_;
	my $builder = PgSession->new($node);
	my $what = "$signal while building";

	$watch->rows('SELECT pg_advisory_lock(4711)');
	$builder->send('CREATE INDEX built_v ON built USING gpuann ((gated(v)::vector(16)) vector_l2_ops)');
	ok(await('the build waits', sub {
		$watch->rows("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND wait_event = 'advisory'") > 0;
	}), "$what: an index is being built");
	strike($what, $signal, sub { $watch->rows('SELECT pg_advisory_unlock(4711)') });
	is($builder->receive->{error}, '', "$what: the build does not mind");
	check_index($node, $what, 'built_v');
	is($session->rows("SELECT id FROM built ORDER BY gated(v)::vector(16) <-> (SELECT v FROM built WHERE id = 77) LIMIT 1"), 77,
		"$what: the index answers");
	$builder->rows('DROP INDEX built_v');
	$builder->close;
}

foreach my $signal ('KILL', 'SEGV', 'STOP')
{
	idle($signal);
	loading($signal);
	linking($signal);
	building($signal);
}

# Under 32 clients, of which some insert: each finds its own row at once, and the nearest of a stored row is itself.
append_to_file("$tmp/insert.sql", qq{
\\set id random(1000000, 2000000000)
INSERT INTO items VALUES (:id, vec(:id, $dims));
SELECT 1 / count(*) FROM (SELECT v FROM items ORDER BY v <-> vec(:id, $dims) LIMIT 1) n WHERE v = vec(:id, $dims);
});
append_to_file("$tmp/search.sql", qq{
\\set id random(1, 2000)
SELECT 1 / (count(*) = 10 AND min(d) = 0)::int FROM
	(SELECT v <-> vec(:id, $dims) AS d FROM items ORDER BY v <-> vec(:id, $dims) LIMIT 10) n;
});
$node->append_conf('postgresql.conf', 'enable_seqscan = off');
$node->reload;
my $output = '';
local $ENV{PGAPPNAME} = 'pgbench';
my $run = IPC::Run::start(
	[ 'pgbench', '-n', '-M', 'prepared', '-T', 100_000, '-c', $clients, '-j', 2, '-f', "$tmp/insert.sql", '-f',
		"$tmp/search.sql\@9", $node->connstr('postgres') ],
	'<', \undef, '>', \$output, '2>', \$output);
my %before = map { $_ => figure($node, $_) } ('fallback_server_died', 'fallback_no_server', 'fallback_not_loaded', 'server_answers');

ok(await('all clients are busy', sub {
	$watch->rows("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'pgbench'") >= $clients;
}), 'busy: 32 clients');
foreach my $round (1 .. ($ENV{GPUANN_LONG} ? 20 : 1))
{
	foreach my $signal ('KILL', 'SEGV', 'STOP')
	{
		my $answers = figure($node, 'server_answers');
		my ($restarts, $pid);

		ok(await('the server answers', sub { figure($node, 'server_answers') > $answers + 100 }), "busy: the server answers before $signal");
		$restarts = status($node, 'restarts');
		$pid = signal_server($node, $signal);
		ok(await('the death is noticed', sub { status($node, 'restarts') > $restarts }), "$signal while busy: the server is replaced");
		is(status($node, 'last_error'), $said{$signal}, "$signal while busy: the status says how it ended");
		ok(replaced($node, $watch, $pid), "$signal while busy: there is another server");
		$node->safe_psql('postgres', "SELECT gpuann_prewarm('items_v')");
	}
}
my $answers = figure($node, 'server_answers');
ok(await('the server answers', sub { figure($node, 'server_answers') > $answers + 100 }), 'busy: the server answers in the end');
ok($run->pumpable, 'busy: no client has given up');
$run->signal('TERM');
$run->finish;
unlike($output, qr/ERROR|FATAL|aborted/, 'busy: no row was wrong or missing, no client saw an error');
cmp_ok(figure($node, 'fallback_server_died'), '>', $before{fallback_server_died}, 'busy: requests that died with a server are counted');
cmp_ok(figure($node, 'fallback_no_server') + figure($node, 'fallback_not_loaded'), '>',
	$before{fallback_no_server} + $before{fallback_not_loaded}, 'busy: scans without server or mirror are counted');
is(figure($node, 'fallback_timeout + fallback_invalid_answer + fallback_engine_error'), 0, 'busy: nothing else went wrong');
expect_service('busy, afterwards', $node, $dims);
check_index($node, 'busy');
$_->close foreach $watch, $session;
$node->stop;
done_testing();
