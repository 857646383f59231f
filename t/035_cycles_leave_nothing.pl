# Tables with an index are made, searched through the server and dropped, again and again: memory, shared memory and descriptors of the
# server, the worker, the launcher and the session stay as they are. GPUANN_LONG=1 does so 3,000 times. I7.

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

my $cycles = $ENV{GPUANN_LONG} ? 3000 : 100;
my $dims = 24;
my $node = server_node('main');

ok(await_server($node), 'there is a server');

# One session does everything, so that what it keeps is seen.
my $session = PgSession->new($node, settings => '-cenable_seqscan=off -cclient_min_messages=error');
$session->rows("CREATE TABLE pattern AS SELECT i AS id, vec(i, $dims)::vector($dims) AS v FROM generate_series(1, 400) i");

# Private memory in kB, descriptors, threads.
sub usage
{
	my ($pid) = @_;
	my $status = -e "/proc/$pid/status" ? slurp_file("/proc/$pid/status") : '';
	my ($anonymous) = $status =~ /^RssAnon:\s+(\d+)/m;
	my ($threads) = $status =~ /^Threads:\s+(\d+)/m;
	my @descriptors = glob "/proc/$pid/fd/*";

	return { memory => $anonymous, threads => $threads, descriptors => scalar(@descriptors) };
}

my %process;

sub everybody
{
	return { map { $_ => usage($process{$_}) } keys %process };
}

# Make, search through the server, change, search, drop. The nearest of a row of the table is itself.
sub cycle
{
	my ($number) = @_;
	my $table = 't' . $number % 3;
	my $seed = $number % 400 + 1;
	my $answer;

	$session->rows("CREATE TABLE $table AS SELECT * FROM pattern; CREATE INDEX ${table}_v ON $table USING gpuann (v vector_l2_ops) WITH (m = 6, ef_construction = 16)");
	$session->rows("SELECT gpuann_prewarm('${table}_v')");
	$session->rows('SET gpuann.fallback = error');
	$answer = $session->query("SELECT id FROM $table ORDER BY v <-> (SELECT v FROM pattern WHERE id = $seed) LIMIT 1");
	# Answers of more than a payload holds go through a channel.
	$session->rows("SELECT count(*) FROM (SELECT id FROM $table ORDER BY v <-> (SELECT v FROM pattern WHERE id = $seed)) x") if $number % 10 == 0;
	$session->rows('SET gpuann.fallback = on');
	return "cycle $number: $answer->{error}" if $answer->{error} ne '';
	return "cycle $number: row $answer->{rows}[0] instead of $seed" if $answer->{rows}[0] != $seed;
	$session->rows("INSERT INTO $table SELECT id + 1000, v FROM pattern WHERE id <= 20; DELETE FROM $table WHERE id <= 10") if $number % 2;
	$session->rows("REINDEX INDEX ${table}_v") if $number % 7 == 0;
	$session->rows($number % 5 ? "DROP TABLE $table" : "BEGIN; DROP INDEX ${table}_v; COMMIT; DROP TABLE $table");
	return '';
}

my @wrong;
my $before;
my $used;
my $warm = 30;					# until then caches fill

foreach my $number (1 .. $warm + $cycles)
{
	my $wrong = cycle($number);

	push @wrong, $wrong if $wrong ne '';
	last if @wrong > 5;
	if ($number == $warm)
	{
		ok(await('mirrors have gone', sub { status($node, 'mirrors_ready') == 0 }), 'dropped tables have no mirror');
		sleep 1.5;				# the server drops what nobody named within a second
		$used = status($node, 'memory_used');
		$process{server} = server_pid($node);
		$before = everybody();
	}
	# Where nothing is mirrored for a while no worker stays, so it is known only now.
	if ($number == $warm + 1)
	{
		%process = (%process, launcher => launcher_pid($node), worker => worker_pid($node), session => $session->pid);
		$before = { %{ everybody() }, %$before };
	}
}
my $after = everybody();
is_deeply(\@wrong, [], 'the server answered each search, and rightly');
ok(await('memory of mirrors is free', sub { status($node, 'memory_used') <= $used }), 'the server counts no more memory than before');
is(status($node, 'mirrors_ready') + status($node, 'mirrors_loading'), 0, 'no mirror is left');
$after->{server} = usage($process{server});
is($session->rows('SELECT count(*) FROM gpuann_stat_indexes()'), 0, 'no entry of the mirror table is left');

# Of each cycle less than a few hundred bytes may stay; an allocator's own room and the caches of catalogs are not per cycle.
my %room = (server => 8192, launcher => 1024, worker => 1024 + $cycles, session => 2048 + $cycles);
foreach my $name (sort keys %process)
{
	ok(defined $after->{$name}{memory}, "$name: the process is the same") or next;
	note(sprintf('%s: %d kB, then %d after %d cycles', $name, $before->{$name}{memory}, $after->{$name}{memory}, $cycles));
	cmp_ok($after->{$name}{memory}, '<=', $before->{$name}{memory} + $room{$name}, "$name: memory stays");
	# A session keeps files of catalogs open.
	cmp_ok($after->{$name}{descriptors}, '<=', $before->{$name}{descriptors} + ($name eq 'session' ? 30 : 3), "$name: descriptors stay");
	is($after->{$name}{threads}, $before->{$name}{threads}, "$name: threads stay");
}
is(status($node, 'restarts'), 0, 'the server has lived through all of it');
$session->close;
$node->stop;
done_testing();
