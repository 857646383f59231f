# A server that is stopped, not dead, costs a scan gpuann.request_timeout and no more; cancel and DROP work meanwhile, and when it goes
# on it is used again. I5, I8.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use GpuannTest;
use PostgreSQL::Test::Cluster;
use ServerTest;
use Test::More;
use Time::HiRes qw(sleep time);

my $dims = 8;
# The launcher would replace it: see 018.
my $node = server_node('main', conf => ["gpuann.server_timeout = 0"]);
my $search = "SET enable_seqscan = off; SELECT count(*) FROM (SELECT id FROM items ORDER BY v <-> (SELECT vec(7, $dims)) LIMIT 10) n";

make_data($node, 1000, $dims);
$node->safe_psql('postgres', 'CREATE TABLE others AS SELECT * FROM items; CREATE INDEX others_v ON others USING gpuann (v vector_l2_ops)');
ok(await_mirror($node), 'the mirror is there');
ok(await_mirror($node, 'others_v'), 'and another');

my $pid = server_pid($node);
kill 'STOP', $pid;

my $begun = time;
is($node->safe_psql('postgres', "SET gpuann.request_timeout = '700ms'; $search"), 10, 'a scan is answered all the same');
my $took = time - $begun;
cmp_ok($took, '>', 0.6, 'after the timeout');
cmp_ok($took, '<', 30, 'but not long after');
cmp_ok(figure($node, 'fallback_timeout'), '>', 0, 'the counter says why');

my ($rc, $out, $err) = $node->psql('postgres', "SET gpuann.request_timeout = '700ms'; SET gpuann.fallback = error; $search");
like($err, qr/cannot be searched by the server: the server did not answer in time/, 'gpuann.fallback = error tells the user');
($rc, $out, $err) = $node->psql('postgres', "SET gpuann.request_timeout = '700ms'; SET gpuann.fallback = notice; $search");
like($err, qr/NOTICE:  gpuann index is searched in its pages: the server did not answer in time/, 'notice too');
is($out, 10, 'with an answer');

# One scan pays; the next ones of the session do not wait for a server that has not moved since.
$begun = time;
$node->safe_psql('postgres', "SET gpuann.request_timeout = '4s'; " . "$search; " x 20);
cmp_ok(time - $begun, '<', 60, 'a session waits once, not with every scan');
is(log_count($node, qr/LOG:  gpuann index "items_v" is searched in its pages: the server did not answer in time/), 1,
	'the log has it once, not with every scan');

$begun = time;
($rc, $out, $err) = $node->psql('postgres', "SET gpuann.request_timeout = '60s'; SET statement_timeout = '300ms'; $search");
like($err, qr/statement timeout/, 'a waiting scan can be cancelled');
cmp_ok(time - $begun, '<', 50, 'at once');

# What a session waits for has a name, and a cancel ends the wait: through slot and channel. The wait itself wakes every 50 ms; the rest of
# the time is for a machine that does much else.
my $named = $node->safe_psql('postgres', "SELECT current_setting('server_version_num')::int >= 170000") eq 't';

foreach my $way ([ 'a request', 10, 'GpuannRequest' ], [ 'a channel', 2000, 'GpuannChannel' ])
{
	my ($what, $ef, $event) = @$way;
	my $session = in_background($node, "SET gpuann.request_timeout = '60s'", 'SET enable_seqscan = off', "SET gpuann.ef_search = $ef",
		"SET gpuann.fallback = error", "SELECT count(*) FROM (SELECT id FROM items ORDER BY v <-> (SELECT vec(8, $dims)) LIMIT 10) waits");
	my $waiting = "FROM pg_stat_activity WHERE query LIKE '%waits' AND state = 'active' AND wait_event_type = 'Extension' AND wait_event = '"
	  . ($named ? $event : 'Extension') . "'";

	ok(await("a session waits for $what", sub { $node->safe_psql('postgres', "SELECT count(*) $waiting") eq '1' }),
		"waiting for $what is a wait event");
	$node->safe_psql('postgres', "SELECT pg_cancel_backend(pid) $waiting");
	$begun = time;
	ok(await("$what is cancelled",
			sub { $node->safe_psql('postgres', "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%waits' AND state = 'active'") eq '0' }),
		"$what can be cancelled");
	cmp_ok(time - $begun, '<', 50, 'at once');
	$session->finish;
}

# Rows go on coming, and are found.
fill_rows($node, 5001, 5010, $dims);
is($node->safe_psql('postgres', "SET gpuann.request_timeout = '200ms'; SET enable_seqscan = off;
	SELECT id FROM items ORDER BY v <-> (SELECT vec(5005, $dims)) LIMIT 1"), 5005, 'a row inserted meanwhile is found');
$begun = time;
$node->safe_psql('postgres', 'DROP TABLE others');
cmp_ok(time - $begun, '<', 120, 'an index can be dropped');

kill 'CONT', $pid;
ok(await('the server answers again', sub {
	($rc) = $node->psql('postgres', "SET gpuann.fallback = error; $search");
	return $rc == 0;
}), 'a server that goes on is used again');
is(server_pid($node), $pid, 'it is the same one');
is(by_server($node, 'SET gpuann.exact = on;'), by_table($node), 'and right');
is(log_count($node, qr/PANIC|terminated by signal/), 0, 'nothing else happened');
$node->stop;
done_testing();
