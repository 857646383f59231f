# A large mirror is loaded by its worker and by readers that help it: every row is there whoever read it, also where there are no readers. A reader
# that fails or is ended, a server that dies and a mirror that is given up while a reader has a part in hand leave no mirror behind that lacks rows.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use GpuannTest;
use PgSession;
use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;
use Time::HiRes qw(sleep time);

my $rows = 10000;
my $dims = 2000;				# 80 MB of vectors: two readers
my $node = server_node('main', conf => [ 'log_min_messages = debug1', 'autovacuum = off', "shared_buffers = '160MB'",
	'max_parallel_maintenance_workers = 2' ]);
my $file = $node->data_dir . '/gpuann_fault.worker-helper-part';

sub sql
{
	return $node->safe_psql('postgres', $_[0]);
}

# Settings for all processes from now on.
sub set
{
	my (%settings) = @_;

	sql("ALTER SYSTEM SET $_ = '$settings{$_}'") foreach sort keys %settings;
	$node->reload;
	# a process that has just begun may have read them before
	sleep 0.2;
}

# How the log ends since this was last asked.
my $read = 0;
sub logged
{
	my $log = slurp_file($node->logfile);
	my $new = substr($log, $read);

	$read = length $log;
	return $new;
}

# Every hundredth row, and those about the ends of parts, is found by the server alone: at distance 0, and among its neighbours.
sub whole
{
	my ($what) = @_;
	my $wrong = sql("SET enable_seqscan = off; SET gpuann.fallback = error; SET gpuann.exact = on; WITH asked AS (SELECT i FROM generate_series(1, $rows) i WHERE i % 100 = 7),
		found AS (SELECT i, (SELECT array_agg(id ORDER BY id) FROM (SELECT id FROM items ORDER BY v <-> point_at(i) LIMIT 3) s) AS ids FROM asked)
		SELECT count(*) FROM found WHERE ids <> ARRAY[i - 1, i, i + 1]");

	is($wrong, 0, "$what: every row is there");
	is(figure($node, 'mirror_rows'), $rows, "$what: as many as there are");
}

# Load the mirror, and return by how many parts readers have helped.
sub loaded
{
	sql("SELECT gpuann_evict('items_v')");
	logged();
	sql("SELECT gpuann_prewarm('items_v')");
	return logged() =~ /loaded: $rows slots in \d+ ms, (\d+) parts by helpers/ ? $1 : 'none said';
}

sql("CREATE FUNCTION point_at(i int) RETURNS vector LANGUAGE sql IMMUTABLE AS 'SELECT array_fill((i / 100.0)::real, ARRAY[$dims])::vector'");
sql("CREATE TABLE items (id int, v vector($dims)); INSERT INTO items SELECT i, point_at(i) FROM generate_series(0, $rows - 1) i;
	CREATE INDEX items_v ON items USING gpuann (v vector_l2_ops) WITH (m = 4, ef_construction = 16)");
ok(await_mirror($node), 'the mirror is there');
my $faults = $node->psql('postgres', "LOAD 'gpuann'; SHOW gpuann.fault") == 0;

set(max_parallel_maintenance_workers => 0);
is(loaded(), 0, 'no readers: the worker reads all');
whole('no readers');
set(max_parallel_maintenance_workers => 2);
like(loaded(), qr/^\d+$/, 'with readers it is loaded too');
whole('readers');

SKIP:
{
	skip 'no fault points', 1 if !$faults;

	# The worker is slow, so that readers come in time.
	set('gpuann.fault' => 'worker-part delay 100');
	cmp_ok(loaded(), '>', 3, 'readers have read most of it');
	whole('a slow worker');

	# Readers stand still, each with a part that it has read and nobody else will.
	my $stand_still = sub {
		sql("SELECT gpuann_evict('items_v')");
		set('gpuann.fault' => 'worker-helper-part wait');
		my $asked = PgSession->new($node);
		foreach my $try (1 .. 20)
		{
			$asked->send("SELECT gpuann_prewarm('items_v')");
			last if await('a reader has a part', sub { -e $file }, 5);
			$asked->receive;
			sql("SELECT gpuann_evict('items_v')");
		}
		ok(-e $file, "$_[0]: a reader stands still");
		is(figure($node, 'state'), 'loading', "$_[0]: meanwhile the mirror is being loaded");
		return $asked;
	};
	my $go_on = sub {
		set('gpuann.fault' => '');
		unlink $file;
	};
	my $readers = "FROM pg_stat_activity WHERE backend_type = 'gpuann mirror reader'";

	my $asked = $stand_still->('ended');
	sql("SELECT pg_terminate_backend(pid) $readers");
	$go_on->();
	is($asked->receive->{error}, '', 'a reader that was ended: the mirror is loaded');
	whole('a reader that was ended');

	$asked = $stand_still->('evicted');
	sql("SELECT gpuann_evict('items_v')");
	$go_on->();
	$asked->receive;
	ok(await('readers are gone', sub { sql("SELECT count(*) $readers") == 0 }), 'a mirror that was given up: its readers leave');
	ok(await_mirror($node), 'a mirror that was given up: it is loaded when asked for');
	whole('a mirror that was given up');

	$asked = $stand_still->('server');
	kill 'KILL', server_pid($node);
	$go_on->();
	$asked->receive;
	ok(await_mirror($node), 'a server that died: the mirror is loaded again');
	whole('a server that died');

	# An ERROR of a reader is the load's, and says why.
	logged();
	sql("SELECT gpuann_evict('items_v')");
	set('gpuann.fault' => 'worker-helper-part fail');
	foreach my $try (1 .. 20)
	{
		my ($rc, $out, $error) = $node->psql('postgres', "SELECT gpuann_prewarm('items_v')");

		last if logged() =~ /loading the mirror of gpuann index \d+ again: [^\n]*worker-helper-part/;
		sql("SELECT gpuann_evict('items_v')");
		fail('the error is the load\'s') if $try == 20;
	}
	isnt(figure($node, 'state'), 'ready', 'a reader that fails: the mirror is not said to be ready') if figure($node, 'state') eq 'refused';
	set('gpuann.fault' => '');
	sql("SELECT gpuann_prewarm('items_v')");
	whole('a reader that failed');

	# Who owns a database may not send others away, and must not need to: readers leave of themselves.
	undef $asked;
	sql('CREATE ROLE owner LOGIN');
	$node->safe_psql('template1', 'CREATE DATABASE victim OWNER owner TEMPLATE postgres');
	set('gpuann.fault' => 'worker-part delay 1000');
	my $victim = PgSession->new($node, dbname => 'victim');
	$victim->send("SELECT gpuann_prewarm('items_v')");
	ok(await('readers in a database', sub { sql("SELECT count(*) $readers AND datname = 'victim'") > 0 }), 'a load in a database that is to go');
	sql("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = 'victim' AND backend_type = 'client backend'");
	my ($rc, $out, $error) = $node->psql('postgres', 'DROP DATABASE victim WITH (FORCE)', extra_params => [ '-U', 'owner' ]);
	is($rc, 0, 'its owner drops it while readers load a mirror') or diag $error;

	# A worker that leaves is gone for core as well before the command goes on.
	set('gpuann.fault' => '');
	$node->safe_psql('template1', 'CREATE DATABASE victim OWNER owner TEMPLATE postgres');
	$node->safe_psql('victim', "SELECT gpuann_prewarm('items_v')");
	set('gpuann.fault' => 'worker-exit delay 1000');
	($rc, $out, $error) = $node->psql('postgres', 'DROP DATABASE victim WITH (FORCE)', extra_params => [ '-U', 'owner' ]);
	is($rc, 0, 'its owner drops a database whose worker takes time to leave') or diag $error;
	set('gpuann.fault' => '');
}

$node->stop;
done_testing();
