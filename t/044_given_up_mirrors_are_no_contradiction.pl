# A mirror may be given up at any moment, by gpuann_evict, for memory or for a quota, whatever its worker is at: no answer of the server counts as
# invalid, no mirror is refused but for memory, and no row is missing. I3, I7.
#
# With GPUANN_LONG the storm goes on for half an hour.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use GpuannTest;
use PgSession;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;
use Time::HiRes qw(sleep time);

my $long = $ENV{GPUANN_LONG};
my $dims = 24;
my $node = server_node('main', conf => [ 'gpuann.max_workers = 2', "maintenance_work_mem = '16MB'", 'autovacuum = off' ]);

sub set_fault
{
	$node->safe_psql('postgres', "ALTER SYSTEM SET gpuann.fault = '$_[0]'");
	$node->reload;
}

# Complaints about a mirror since this was last asked, that are not about memory.
my $read = 0;
sub complaints
{
	my $log = slurp_file($node->logfile);
	my @found = substr($log, $read) =~ /(loading the mirror of gpuann index \d+ again: .*|terminating|TRAP.*|PANIC.*)/g;
	$read = length $log;
	return join("\n", grep { !/administrator command/ } @found);
}

# ---- at points where it matters ----

make_data($node, 3000, $dims);
ok(await_mirror($node), 'the mirror is there');
$node->safe_psql('postgres', 'CREATE FUNCTION more(n int) RETURNS void LANGUAGE sql AS
	$$ INSERT INTO items SELECT i, vec(i, ' . $dims . ') FROM generate_series((SELECT max(id) + 1 FROM items), (SELECT max(id) + n FROM items)) i $$');

# What brings the worker to each point, beside rows that come.
my %brings = (
	'worker-piece' => sub { $node->safe_psql('postgres', 'SELECT more(1500)') },
	'worker-entries' => sub {
		$node->safe_psql('postgres', 'DELETE FROM items WHERE ctid IN (SELECT ctid FROM items ORDER BY random() LIMIT 200)');
		$node->safe_psql('postgres', 'VACUUM (INDEX_CLEANUP on) items') foreach 1 .. 2;
		$node->safe_psql('postgres', 'SELECT more(100)');
	},
	'worker-slice' => sub { $node->safe_psql('postgres', 'SELECT more(1)') },
	'worker-target' => sub {
		$node->safe_psql('postgres', 'DELETE FROM items WHERE ctid IN (SELECT ctid FROM items ORDER BY random() LIMIT 200)');
		$node->safe_psql('postgres', 'VACUUM (INDEX_CLEANUP on) items');
	});

foreach my $point (sort keys %brings)
{
	foreach my $then ('', 'wanted again')
	{
		my $file = $node->data_dir . "/gpuann_fault.$point";
		my $what = "given up at $point" . ($then ? ", $then" : '');

		ok(await_mirror($node), "$what: the mirror is ready before");
		# slots that are free now are used again at worker-entries
		$brings{$point}->() if $point eq 'worker-entries';
		ok(await_mirror($node), "$what: the mirror is current before");
		set_fault("$point wait 1");
		ok(await("a worker is at $point", sub { $brings{$point}->() if !-e $file; sleep 0.2; -e $file }), "$what: a worker is there");
		is($node->safe_psql('postgres', "SELECT gpuann_evict('items_v')"), 't', "$what: it is given up");
		$node->safe_psql('postgres', "SET enable_seqscan = off; SELECT id FROM items ORDER BY v <-> vec(1, $dims) LIMIT 1") if $then;
		set_fault('');
		unlink $file;
		if (!$then)
		{
			# nobody asks for it: it stays given up
			ok(await('the worker goes on', sub { $node->safe_psql('postgres', "SELECT count(*) FROM pg_stat_activity
				WHERE backend_type = 'gpuann mirror worker' AND wait_event IS NOT NULL") > 0 }), "$what: the worker goes on");
			is(figure($node, 'state'), 'none', "$what: it stays given up");
		}
		ok(await_mirror($node), "$what: the next scan brings it back");
		is(complaints(), '', "$what: nobody has complained");
		is(figure($node, 'fallback_invalid_answer'), 0, "$what: no answer was invalid");
	}
}
right_after($node, 'after all points');
is(by_server($node, 'SET gpuann.exact = on;'), by_table($node), "the server's answers are right");

# ---- in a storm ----

my @tables = map { "t$_" } 1 .. 4;
foreach my $table (@tables)
{
	$node->safe_psql('postgres', "CREATE TABLE $table (id int, v vector($dims)); INSERT INTO $table SELECT i, vec(i, $dims) FROM generate_series(1, 2500) i;
		CREATE INDEX ${table}_v ON $table USING gpuann (v vector_l2_ops)");
}
# Two or three of the four fit.
$node->safe_psql('postgres', "SELECT gpuann_evict('items_v')");
my $bytes = $node->safe_psql('postgres', "SELECT gpuann_prewarm('t1_v')");
my $most = int($bytes * 3.2 / 1048576) + 1;
$node->safe_psql('postgres', "ALTER SYSTEM SET gpuann.gpu_memory_limit = '${most}MB'");
$node->reload;
ok(await('the server has the limit', sub { status($node, 'memory_limit') == $most * 1048576 }), 'memory is short');

my (@errors, %done, %next);
my $seed = $ENV{GPUANN_SEED} // time;
my $focus = 0;				# tables are searched in turns: what rests gives way
note("GPUANN_SEED=$seed");
srand($seed);

sub table { return $tables[ rand @tables ] }
sub searched { return $tables[ ($focus + (rand() < 0.2 ? int rand 4 : 0)) % 4 ] }

# What each session does, and how long it rests in between.
my %work = (
	search1 => sub { my $t = searched(); return ("SET enable_seqscan = off; SELECT id FROM $t ORDER BY v <-> vec(" . int(rand 9999) . ", $dims) LIMIT 50", 0.01) },
	search2 => sub { my $t = searched(); return ("SET enable_seqscan = off; SET gpuann.exact = on; SELECT id FROM $t ORDER BY v <-> vec(" . int(rand 9999) . ", $dims) LIMIT 20", 0.01) },
	insert => sub { my $t = table(); return ("INSERT INTO $t SELECT i, vec(i, $dims) FROM generate_series(1, " . (1 + int rand 60) . ') i', 0.02) },
	delete => sub { my $t = table(); return ("DELETE FROM $t WHERE ctid IN (SELECT ctid FROM $t ORDER BY random() LIMIT " . (1 + int rand 55) . ')', 0.05) },
	vacuum => sub { my $t = table(); return ("VACUUM (INDEX_CLEANUP on) $t", 0.2) },
	link => sub { my $t = table(); return ("SELECT gpuann_link('${t}_v')", 0.2) },
	evict => sub { my $t = table(); return ("SELECT gpuann_evict('${t}_v')", 0.02 + rand 0.13) },
	prewarm => sub { my $t = table(); return ("SELECT gpuann_prewarm('${t}_v')", 0.1) },
	quota => sub { return ("ALTER SYSTEM SET gpuann.database_memory_limit = '" . ($done{quota} % 2 ? 0 : int($most * 2 / 3)) . "MB'", 4) },
	# the worker takes its time where it matters
	delay => sub { return ("ALTER SYSTEM SET gpuann.fault = '" . ('worker-entries delay 60', 'worker-piece delay 150', '')[$done{delay} % 3] . "'", 2.5) },
	look => sub { return ("SELECT string_agg(reason, ';') FROM pg_stat_gpuann WHERE state = 'refused'", 0.1) });

# What prewarm may say: others use the memory, or another has given the mirror up.
my $allowed = qr/was given up meanwhile|memory|do not fit|cannot be mirrored now/;
my %sessions = map { $_ => PgSession->new($node) } keys %work;
my $begun = time;
my $lasting = $long ? 1800 : 30;

$next{$_} = $done{$_} = 0 foreach keys %work;
while (time - $begun < $lasting || $done{evict} < 30 || $done{prewarm} < 10 || $done{vacuum} < 10 || $done{link} < 10)
{
	my $busy = 0;

	last if time - $begun > $lasting + 300;
	$focus = int((time - $begun) / 7);
	foreach my $name (keys %work)
	{
		my $session = $sessions{$name};
		my $pause;

		if ($session->{busy})
		{
			next if !$session->is_done;
			my $answer = $session->receive;
			push @errors, "$name: $answer->{error}" if $answer->{error} ne '' && !($name eq 'prewarm' && $answer->{error} =~ $allowed);
			push @errors, "$name: lost" if $answer->{lost};
			push @errors, grep { $_ ne '' && !/memory|do not fit/ } map { split /;/ } @{ $answer->{rows} } if $name eq 'look';
			$node->reload if $name eq 'quota' || $name eq 'delay';
			$done{$name}++;
		}
		next if time < $next{$name};
		my ($sql, $rest) = $work{$name}->();
		$next{$name} = time + $rest;
		$session->send($sql);
		$busy = 1;
	}
	last if @errors;
	sleep 0.004 if !$busy;
}
foreach my $name (keys %sessions)
{
	$sessions{$name}->receive if $sessions{$name}{busy} && !$errors[0];
	$sessions{$name}->close;
}
note(join(', ', map { "$_: $done{$_}" } sort keys %done));
is(join("\n", @errors), '', 'nobody met an error, no mirror was refused but for memory');
is(complaints(), '', 'no mirror failed');
is($node->safe_psql('postgres', 'SELECT sum(fallback_invalid_answer) FROM pg_stat_gpuann'), 0, 'no answer was invalid');
cmp_ok($node->safe_psql('postgres', 'SELECT sum(server_answers) FROM pg_stat_gpuann'), '>', 0, 'the server has answered');
$node->safe_psql('postgres', "ALTER SYSTEM RESET $_") foreach 'gpuann.fault', 'gpuann.database_memory_limit', 'gpuann.gpu_memory_limit';
$node->reload;
ok(await('the server has the other limit', sub { (status($node, 'memory_limit') || 0) > $most * 1048576 }), 'memory is no longer short');
foreach my $table (@tables)
{
	check_index($node, "$table after the storm", "${table}_v");
	ok(await_mirror($node, "${table}_v"), "$table: the mirror comes back");
	is($node->safe_psql('postgres', "SET enable_seqscan = off; SET enable_sort = off; SET gpuann.fallback = error;
		SELECT count(*) = (SELECT count(*) FROM $table), count(DISTINCT ctid) = (SELECT count(*) FROM $table)
		FROM (SELECT ctid FROM $table ORDER BY v <-> vec(1, $dims) LIMIT 1000000) drained"), 't|t', "$table: the server gives every row once");
}
is($node->safe_psql('postgres', 'SELECT sum(fallback_invalid_answer) FROM pg_stat_gpuann'), 0, 'no answer was invalid after it either');
$node->stop;
done_testing();
