# A table of very many partitions, each with an index and a mirror, and dozens of databases: while nobody asks, launcher, workers and server take
# next to no processor time, no worker stays where there is nothing to serve, and each index is still answered rightly. On a standby
# the same. GPUANN_LONG=1: 2,000 partitions, 200 databases.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use GpuannTest;
use PgSession;
use POSIX ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;
use Time::HiRes qw(sleep time);

my ($partitions, $databases) = $ENV{GPUANN_LONG} ? (2000, 200) : (200, 6);
my $rows = 20;					# of each partition
my $seconds = 5;
my $ticks = POSIX::sysconf(POSIX::_SC_CLK_TCK());
my $node = server_node('main', streaming => 1, conf => [ "gpuann.gpu_memory_limit = '8GB'", 'max_locks_per_transaction = 1024' ]);

ok(await_server($node), 'there is a server');

# Processor seconds that a process has taken; none if it has gone.
sub processor
{
	my ($pid) = @_;

	open(my $file, '<', "/proc/$pid/stat") or return 0;
	my @fields = split ' ', ((<$file> // ') S') =~ s/.*\) //r);
	close $file;
	return (($fields[11] // 0) + ($fields[12] // 0)) / $ticks;
}

# Processor time that ours take for a while, as shares of one processor.
sub shares
{
	my ($of) = @_;
	my %pids = (server => server_pid($of), launcher => launcher_pid($of));

	$pids{"worker $_"} = $_ foreach split /\n/, worker_pid($of);
	my %begin = map { $_ => processor($pids{$_}) } keys %pids;
	my $begun = time;
	sleep $seconds;
	my $elapsed = time - $begun;

	return map { $_ => (processor($pids{$_}) - $begin{$_}) / $elapsed } keys %pids;
}

# While nobody asks they rest, once what was to be done is done.
sub idle_share
{
	my ($of, $what) = @_;
	my %share;

	foreach my $time (1 .. 12)
	{
		%share = shares($of);
		last if !grep { $_ >= 0.05 } values %share;
	}
	note(sprintf('%s: %s: %.2f %%', $what, $_ =~ s/ \d+//r, 100 * $share{$_})) foreach sort keys %share;
	cmp_ok($share{$_}, '<', 0.05, "$what: the " . ($_ =~ s/ \d+//r) . ' rests') foreach sort keys %share;
}

# Partition p has the rows of which id = p modulo the number of partitions; one dimension says which.
my $session = PgSession->new($node, settings => '-cclient_min_messages=error');
$session->rows("CREATE TABLE parts (id int, p int, v vector(4)) PARTITION BY LIST (p)");
foreach my $first (map { $_ * 100 } 0 .. $partitions / 100 - 1)
{
	$session->rows("DO \$\$ BEGIN FOR i IN $first .. $first + 99 LOOP
		EXECUTE format('CREATE TABLE parts_%s PARTITION OF parts FOR VALUES IN (%s)', i, i); END LOOP; END \$\$");
}
$session->rows("INSERT INTO parts SELECT i, i % $partitions, ARRAY[i, i % 7, i % 11, i % 13]::vector FROM generate_series(0, $partitions * $rows - 1) i");
$session->rows('CREATE INDEX parts_v ON parts USING gpuann (v vector_l2_ops)');

# Ask every partition for one of its rows; how many answered rightly, how many through the server. In strict order so few rows are searched,
# too; else all are compared over pages, which is cheaper.
sub ask_all
{
	my ($of) = @_;

	return $of->safe_psql('postgres', qq{
SET enable_seqscan = off;
SET gpuann.iterative_scan = strict_order;
CREATE TEMP TABLE answers (good boolean, path text);
DO \$\$ DECLARE found int; BEGIN FOR p IN 0 .. $partitions - 1 LOOP
	EXECUTE format('SELECT id FROM parts_%s ORDER BY v <-> %L LIMIT 1', p,
		(SELECT ARRAY[i, i % 7, i % 11, i % 13]::vector FROM (SELECT p + 3 * $partitions AS i) x)) INTO found;
	INSERT INTO answers SELECT found = p + 3 * $partitions, path FROM gpuann_last_scan();
END LOOP; END \$\$;
SELECT count(*) FILTER (WHERE good), count(*) FILTER (WHERE path = 'server') FROM answers});
}

like(ask_all($node), qr/^$partitions\|/, 'every partition answers rightly, from wherever');
ok(await('every partition has a mirror', sub {
	$node->safe_psql('postgres', "SELECT count(*) FROM pg_stat_gpuann WHERE state = 'ready'") >= $partitions }), 'every partition has a mirror');
is(ask_all($node), "$partitions|$partitions", 'then the server answers for every one');
note(sprintf('%d mirrors of %d rows take %d kB', $partitions, $rows, status($node, 'memory_used') / 1024));
idle_share($node, "$partitions mirrors");

# Rows that wait to be linked in each of them.
$session->rows("INSERT INTO parts SELECT 1000000 + i, i, ARRAY[-i, 0, 0, 0]::vector FROM generate_series(0, $partitions - 1) i");
ok(await('the mirrors have the new rows', sub {
	$node->safe_psql('postgres', "SELECT count(*) FROM pg_stat_gpuann WHERE mirror_rows > $rows") >= $partitions }), 'new rows reach every mirror');
idle_share($node, 'rows pending everywhere');

# Databases with one small mirror each.
$node->safe_psql('postgres', 'CREATE DATABASE pattern');
$node->safe_psql('pattern', "CREATE EXTENSION vector; CREATE EXTENSION gpuann;
	CREATE TABLE items AS SELECT i AS id, array[i % 7, i % 11, i]::vector(3) AS v FROM generate_series(1, 300) i;
	CREATE INDEX items_v ON items USING gpuann (v vector_l2_ops)");
$node->safe_psql('postgres', "CREATE DATABASE d$_ TEMPLATE pattern STRATEGY file_copy") foreach 1 .. $databases;
$node->safe_psql("d$_", "SET enable_seqscan = off; SELECT id FROM items ORDER BY v <-> '[1,1,1]' LIMIT 1") foreach 1 .. $databases;
my $all = $partitions + $databases;
ok(await('every database has had its turn', sub { status($node, 'mirrors_ready') >= $all }, 180 + 10 * $databases), 'every database has had its turn');
idle_share($node, "$databases databases more");

# A worker leaves where nothing is resident, with nobody else waiting.
$node->safe_psql($_, "SELECT gpuann_evict('items_v')") foreach 'pattern', map { "d$_" } 1 .. $databases;
ok(await('no worker is in a database without a mirror', sub {
	$node->safe_psql('postgres', "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'gpuann mirror worker' AND datname <> 'postgres'") == 0 }),
	'no worker stays in a database without a mirror');

# A standby polls, but not what is as it was.
$node->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'base', has_streaming => 1);
$standby->start;
$session->close;
ok(await_server($standby), 'the standby has a server');
$standby->safe_psql('postgres', qq{SET enable_seqscan = off;
DO \$\$ DECLARE found int; BEGIN FOR p IN 0 .. $partitions - 1 LOOP
	EXECUTE format('SELECT id FROM parts_%s ORDER BY v <-> %L LIMIT 1', p, '[1,1,1,1]') INTO found; END LOOP; END \$\$});
ok(await('the mirrors come', sub { status($standby, 'mirrors_ready') >= $partitions }), 'and as many mirrors');
idle_share($standby, "standby, $partitions mirrors");
$node->safe_psql('postgres', "INSERT INTO parts SELECT 2000000, 0, '[9999999,0,0,0]'");
ok(await('the row is found', sub {
	$standby->safe_psql('postgres', "SET enable_seqscan = off; SELECT id FROM parts_0 ORDER BY v <-> '[9999999,0,0,0]' LIMIT 1") == 2000000 }), 'and a new row is found');
ok(await('the mirror has it', sub {
	$standby->safe_psql('postgres', "SELECT mirror_lag FROM pg_stat_gpuann WHERE relname = 'parts_0'") eq '0' }), 'by its mirror too');
$standby->stop;
$node->stop;
done_testing();
