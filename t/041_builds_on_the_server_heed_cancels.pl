# A build that the server links can be cancelled at any moment, also while the server is busy, stopped or hanging: what the backend does between
# two looks for a cancel is short (I8: 100 ms of its processor time), and none of its waits is for the server alone. It leaves nothing.
# Notes say how long each took on this machine.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use FaultTest;
use GpuannTest;
use PgSession;
use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;
use Time::HiRes qw(sleep time);

# Without a GPU the CPU engine calls itself one with a device: an emulated device links slowly.
need_device();

my ($rows, $dims) = (5000, 16);
# Nobody replaces a server that the test has stopped.
my $node = fault_node('main', conf => [ 'log_min_messages = debug1', 'max_parallel_maintenance_workers = 2', 'max_parallel_workers = 4',
		'min_parallel_table_scan_size = 0', "gpuann.request_timeout = '120s'", 'gpuann.server_timeout = 0' ]);
my $reindex = 'REINDEX INDEX items_v';
my $session;
my %longest;

sub built_there { return log_count($node, qr/gpuann index "items_v" was linked on the server/) }
sub entries { return $node->safe_psql('postgres', 'SELECT count(*) FROM gpuann_stat_indexes()') }

# Begin a build that comes to this place, where the server keeps it waiting.
my %place = (
	'the mirror is made, the server stopped' => { stop => 1 },
	'rows are sent, the engine is busy' => { fault => 'hold_append' },
	'rows are sent, the server stopped' => { fault => 'hold_append', stop => 1 },
	'rows are linked' => { fault => 'hold_link' },
	'rows are linked, the server stopped' => { fault => 'hold_link', stop => 1 },
	'linked rows are fetched, the server stopped' => { point => 'build-graph-page', stop => 1 },
	'the mirror is completed, the server stopped' => { point => 'build-logged', stop => 1 });

sub begin_at
{
	my ($what, $settings) = @_;
	my $place = $place{$what};
	my $file = $place->{point} ? $node->data_dir . "/gpuann_fault.$place->{point}" : '';
	my $waits = 'SELECT wait_event_type FROM pg_stat_activity WHERE pid = ' . $session->pid;

	faults("$place->{fault}=1") if $place->{fault};
	signal_server($node, 'STOP') if $place->{stop} && !$place->{fault} && !$place->{point};
	$session->rows("SET gpuann.fault = '$place->{point} wait'") if $place->{point};
	$session->rows($settings) if $settings;
	$session->send($reindex);
	ok(await_held($what), "$what: it waits") if $place->{fault};
	ok(await($what, sub { -e $file }), "$what: it comes there") if $place->{point};
	signal_server($node, 'STOP') if $place->{stop} && ($place->{fault} || $place->{point});
	unlink $file if $place->{point};
	# Nothing but the server keeps it waiting.
	ok(await('it waits for the server', sub { $node->safe_psql('postgres', $waits) eq 'Extension' }), "$what: for the server");
}

# The server goes on; nothing is left, and all is well.
sub end_at
{
	my ($what, $entries) = @_;

	faults('');
	signal_server($node, 'CONT');
	ok(await('nothing is left', sub { entries() == $entries }), "$what: it leaves no mirror");
	is($node->safe_psql('postgres', "SELECT count(*) FROM pg_locks WHERE relation IN ('items'::regclass, 'items_v'::regclass)"), '0', "$what: nor a lock");
}

# How long it took from a moment on until the session has its answer. A bound that finds what does not end before the server goes on.
sub ended
{
	my ($what, $way, $begun, $error) = @_;
	my $done = $session->is_done(120);
	my $took = time - $begun;
	my $answer;

	ok($done, "$what: $way ends it");
	$answer = $done ? $session->receive : { error => 'it goes on' };
	like($answer->{error}, $error, "$what: $way is the reason");
	note(sprintf '%s, %s: %.1f ms', $what, $way, 1000 * $took);
	$longest{$way} = $took if $took > ($longest{$way} // 0);
}

ok(await_server($node), 'the server runs');
make_data($node, $rows, $dims);
$node->safe_psql('postgres', 'ANALYZE items');
$session = session($node);
my $other = session($node);
my $entries = entries();

if ($session->query('SHOW gpuann.fault')->{error} ne '')
{
	delete $place{$_} foreach grep { $place{$_}{point} } keys %place;
}
foreach my $what (sort keys %place)
{
	foreach my $way ('cancel', 'statement_timeout', 'terminate')
	{
		my $begun;

		# Set from the statement's start, it is too early on a slow machine unless it is long.
		next if $way eq 'statement_timeout' && $what ne 'rows are linked, the server stopped';
		begin_at($what, $way eq 'statement_timeout' ? "SET statement_timeout = '20s'" : '');
		if ($way eq 'statement_timeout')
		{
			my $left = $other->rows('SELECT extract(epoch FROM query_start + interval \'20 s\' - clock_timestamp()) FROM pg_stat_activity WHERE pid = ' . $session->pid);

			$begun = time + $left;
		}
		else
		{
			$begun = time;
			$other->rows("SELECT pg_${way}_backend(" . $session->pid . ')');
		}
		ended($what, $way, $begun, $way eq 'cancel' ? qr/canceling statement due to user request/ :
			  $way eq 'terminate' ? qr/terminating connection/ : qr/canceling statement due to statement timeout/);
		end_at("$what, $way", $entries);
		if ($way eq 'terminate')
		{
			$session = session($node);
		}
		else
		{
			$session->rows("RESET statement_timeout" . ($place{$what}{point} ? '; RESET gpuann.fault' : ''));
		}
	}
}
note(sprintf '%s: %.1f ms at most', $_, 1000 * $longest{$_}) foreach sort keys %longest;

# With all that behind it: built there, and at no place is it deaf for long.
SKIP:
{
	skip 'no fault points', 2 if !grep { $_->{point} } values %place;
	foreach my $options ('m = 16', 'm = 100, ef_construction = 200')
	{
		my $count = built_there();
		my ($ms, $lines) = $session->rows("ALTER INDEX items_v SET ($options); SET gpuann.longest_work = ''; $reindex; SHOW gpuann.longest_work") =~ /([\d.]+) (.*)/;

		is(built_there(), $count + 1, "$options: built on the server");
		cmp_ok($ms // 'inf', '<', 100, "$options: and heeds a cancel all the time") or diag($lines);
		note("$options: $ms ms of work at most, $lines");
	}
}
right_after($node, 'in the end');
$session->close;
$other->close;
$node->stop;

done_testing();
