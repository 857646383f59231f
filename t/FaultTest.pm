# FaultTest.pm
#		What the tests of faults share: a cluster whose server runs a real engine with faults on demand (test/fault_engine.c), what must
#		hold after every fault, and installations in which the server is another program.
#
# GPUANN_TEST_ENGINE says which engine: cpu (the default), cuda (gpuann_cuda.so of the installation: on a GPU host), emulated (the CUDA engine's
# code on this processor), or the path of a library. With GPUANN_SANITIZED (tools/check-assert) the server is under sanitizers, and so is the engine.

package FaultTest;

use strict;
use warnings;

use Exporter 'import';
use FindBin;
use GpuannTest;
use IPC::Run;
use PgSession;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;
use Time::HiRes qw(sleep time);

our @EXPORT = qw(
  need_fault_engine need_device emulate_device fault_node faults await_held session other_server set_limit signal_server replaced revive
  expect_answers expect_service in_seconds reasons table_answers
);

my $build = "$FindBin::RealBin/../test/build";
my $wrapper = $ENV{GPUANN_SANITIZED} ? "$build/sanitized/fault_engine.so" : "$build/fault_engine.so";
my $file;						# with the faults of the engine

# The library of the engine that is tested; '' is the CPU engine, which the wrapper has in it.
sub engine_library
{
	my $engine = $ENV{GPUANN_TEST_ENGINE} || 'cpu';

	return '' if $engine eq 'cpu';
	return "$build/cuda_emulated.so" if $engine eq 'emulated';
	return $engine if $engine =~ m{/};
	chomp(my $directory = `pg_config --pkglibdir`);
	return "$directory/gpuann_$engine.so";
}

# Skip the whole file where engine or wrapper is not built.
sub need_fault_engine
{
	my $library = engine_library();

	plan skip_all => "$wrapper is not built" unless -e $wrapper;
	plan skip_all => "$library is not there" unless $library eq '' || -e $library;
	note('engine: ' . ($library || 'cpu'));
}

# The same for tests about what is done only where the engine has a device.
sub need_device
{
	$ENV{GPUANN_FAULT_NAME} = 'cuda' if engine_library() eq '';
	need_fault_engine();
}

# From now on, where there is no GPU, the engine is that of an emulated device; false: it is not built.
sub emulate_device
{
	return 0 if engine_library() ne '' || $ENV{GPUANN_SANITIZED} || !-e "$build/cuda_emulated.so";
	$ENV{GPUANN_TEST_ENGINE} = 'emulated';
	delete $ENV{GPUANN_FAULT_NAME};
	return 1;
}

# A cluster with the engine in its wrapper, and without faults so far.
sub fault_node
{
	my ($name, %options) = @_;

	# gpuann-server, a child of the launcher, inherits these from here.
	$file = PostgreSQL::Test::Utils::tempdir() . '/faults';
	$ENV{GPUANN_FAULT_ENGINE} = engine_library();
	$ENV{GPUANN_FAULT_FILE} = $file;
	faults('');
	return new_node($name, %options, preload => 'gpuann',
		conf => [ "gpuann.engine = 'cuda'", "gpuann.engine_library = '$wrapper'",
			"gpuann.gpu_memory_limit = '" . (engine_library() eq '' ? '512MB' : '4GB') . "'",
			'restart_after_crash = on', @{ $options{conf} // [] } ]);
}

# From now on the engine has these faults, and no others.
sub faults
{
	my ($words) = @_;

	unlink "$file.held";
	append_to_file("$file.new", $words);
	rename("$file.new", $file) or die "$file: $!";
}

# Wait until the engine has kept something back.
sub await_held
{
	my ($what, $while) = @_;
	return await($what, sub { $while->() if $while; -e "$file.held" });
}

# A session that searches the index and takes whatever path there is.
sub session
{
	my ($node, %options) = @_;
	return PgSession->new($node, settings => '-c enable_seqscan=off -c gpuann.ef_search=100 ' . ($options{settings} // ''));
}

# What a piece of code took, in seconds.
sub in_seconds
{
	my ($code) = @_;
	my $begun = time;

	$code->();
	return time - $begun;
}

# A copy of the installation in which gpuann-server is a script of ours, that may go on as $real; where it is.
sub other_server
{
	my ($name, $script) = @_;
	chomp(my $bindir = `pg_config --bindir`);
	chomp(my $library = `pg_config --pkglibdir`);
	chomp(my $share = `pg_config --sharedir`);
	my @parts = ([ split m{/}, $bindir ], [ split m{/}, $library ], [ split m{/}, $share ]);
	my @top;

	# The directory that all three are in.
	while (@{ $parts[1] } && 3 == grep { @$_ && $_->[0] eq $parts[0][0] } @parts)
	{
		push @top, $parts[0][0];
		shift @$_ foreach @parts;
	}
	my $top = join('/', @top);
	my $copy = PostgreSQL::Test::Utils::tempdir() . "/$name";
	my $program = join('/', $copy, @{ $parts[1] }, 'gpuann-server');

	# Not the system's: it may be large.
	return undef if $top eq '' || $top eq '/usr';
	system('cp', '-a', $top, $copy) == 0 or die "could not copy $top";
	rename($program, "$program.real") or die "$program: $!";
	append_to_file($program, "#!$^X\nuse strict;\nuse warnings;\nmy \$real = '$program.real';\n$script\nexec \$real, \@ARGV;\n");
	chmod(0755, $program) or die "$program: $!";
	return join('/', $copy, @{ $parts[0] }) =~ s{/bin$}{}r;
}

# Limit a resource of a process; false where that cannot be done.
sub set_limit
{
	my ($pid, $limit) = @_;
	return system("prlimit --pid $pid --$limit >/dev/null 2>&1") == 0;
}

# Why scans were not answered by the server, in all.
sub reasons
{
	my ($session, $index) = @_;

	return $session->rows("SELECT fallback_no_server + fallback_server_died + fallback_not_loaded + fallback_timeout + fallback_slot_busy
		FROM pg_stat_gpuann WHERE indexrelname = '" . ($index // 'items_v') . "'") || 0;
}

sub signal_server
{
	my ($node, $signal) = @_;
	my $pid = server_pid($node);

	# No pid would be everybody in this process group.
	$pid && kill $signal, $pid or die "no server to signal";
	return $pid;
}

# Wait until a server is gone and this is known, and have the next started without the delay that crashes bring.
sub replaced
{
	my ($node, $session, $pid) = @_;
	my $gone = await("server $pid is gone", sub { $session->rows('SELECT coalesce(pid, 0) FROM gpuann_server_status') != $pid });

	return $gone && revive($node, $session);
}

sub revive
{
	my ($node, $session) = @_;

	return await('a server is ready', sub {
		my $state = $session->rows('SELECT state FROM gpuann_server_status');
		$node->reload if $state eq 'absent' || $state eq 'failed';
		return $state eq 'ready';
	});
}

my @queries = map { 100000 + 7 * $_ } 1 .. 4;

# The nearest 20 rows of the table, sorted: what exact scans have to give, and how many rows there are.
sub table_answers
{
	my ($session, $dims) = @_;
	return answers($session, $dims, 'SET gpuann.exact = off; SET enable_indexscan = off; SET enable_seqscan = on');
}

# Exactly, by whatever path the session takes.
sub index_answers
{
	my ($session, $dims) = @_;
	return answers($session, $dims, 'SET gpuann.exact = on; SET enable_indexscan = on; SET enable_seqscan = off');
}

sub answers
{
	my ($session, $dims, $settings) = @_;
	my @answers;

	$session->rows($settings);
	push @answers, $session->rows(qq{
SELECT string_agg(id || ' ' || round(d::numeric, 3), ',' ORDER BY d, id)
FROM (SELECT id, v <-> vec($_, $dims) AS d FROM items ORDER BY v <-> vec($_, $dims) LIMIT 20) near}) foreach @queries;
	$session->rows('RESET gpuann.exact; RESET enable_indexscan; RESET enable_seqscan');
	return join("\n", @answers);
}

# No wrong row, no missing row, no hang: exact scans are the table's, graph scans give as many rows as are asked for, and soon.
sub expect_answers
{
	my ($what, $session, $dims) = @_;
	my $true = table_answers($session, $dims);
	my ($found, $rows);
	my $took = in_seconds(sub {
		$found = index_answers($session, $dims);
		$rows = $session->rows("SELECT count(*), count(DISTINCT ctid) FROM
			(SELECT ctid FROM items ORDER BY v <-> vec($queries[0], $dims) LIMIT 300) near");
	});

	is($found, $true, "$what: exact answers are the table's");
	is($rows, '300|300', "$what: no row is missing");
	cmp_ok($took, '<', 100, "$what: nobody waits for long");
}

# The server is used again, and right: all answers are its own, and a drained scan gives every row once.
sub expect_service
{
	my ($what, $node, $dims) = @_;
	# relaxed_order: drained, the scan goes through the graph first
	my $session = session($node, settings => '-c gpuann.fallback=error -c gpuann.request_timeout=120s -c gpuann.iterative_scan=relaxed_order');
	my ($ready, $answer);

	$ready = await("$what: the mirror is ready", sub {
		$answer = $session->query("SELECT id FROM items ORDER BY v <-> vec(1, $dims) LIMIT 1");
		return $answer->{error} eq ''
		  && $session->rows("SELECT state || ' ' || mirror_lag FROM pg_stat_gpuann WHERE indexrelname = 'items_v'") eq 'ready 0';
	});
	diag("$answer->{error}") unless $ready;
	if (!ok($ready, "$what: the server answers again"))
	{
		$session->close;
		return;
	}
	is(index_answers($session, $dims), table_answers($session, $dims), "$what: its answers are right");
	is($session->rows("SELECT count(*) = (SELECT count(*) FROM items), count(DISTINCT ctid) = (SELECT count(*) FROM items)
		FROM (SELECT ctid FROM items ORDER BY v <-> vec($queries[1], $dims) LIMIT 1000000) drained"), 't|t', "$what: every row once");
	$session->close;
}

1;
