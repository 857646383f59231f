# Inserters that link for themselves share that: of eight sessions none is left behind, beside a linker that goes on all the time too, and none
# links for much longer at a time than a slice (src/link/README.md): 50 ms where just too many rows wait, a second where twice as many do.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib $FindBin::RealBin;
use GpuannTest;
use PgSession;
use PostgreSQL::Test::Utils;
use Test::More;

my $dims = 32;
my $sessions = 8;
my $limit = 100;
my $node = new_node('share', conf => [ "gpuann.pending_limit = $limit" ]);

make_data($node, 3000, $dims);
$node->safe_psql('postgres', "CREATE TABLE fresh AS SELECT i AS id, vec(i, $dims) AS v FROM generate_series(100001, 104000) i; CREATE UNIQUE INDEX ON fresh (id)");

# Processor time of a process so far, in milliseconds.
sub processor_ms
{
	my ($pid) = @_;
	my @fields = split ' ', (slurp_file("/proc/$pid/stat") =~ s/.*\) //sr);

	return 10 * ($fields[11] + $fields[12]);
}

# Rows that wait to be linked.
sub waiting
{
	return $node->safe_psql('postgres', "SELECT pending FROM gpuann_stats('items_v')");
}

# What an insert costs at most, in processor time, until no more rows wait than the limit.
sub longest_insert
{
	my ($limit) = @_;
	my $session = PgSession->new($node);
	my ($longest, $inserts) = (0, 0);

	$session->query($_) foreach "SET gpuann.pending_limit = $limit", 'SET max_parallel_maintenance_workers = 0';
	for (my $before = processor_ms($session->pid); waiting() > $limit && $inserts < 4000; $inserts++)
	{
		my $answer = $session->query("INSERT INTO items SELECT id, v FROM fresh WHERE id = 100001 + $inserts");
		my $now = processor_ms($session->pid);

		die $answer->{error} if $answer->{error} ne '';
		$longest = $now - $before if $now - $before > $longest;
		$before = $now;
	}
	note("until $limit waited: $inserts inserts, of which the longest took $longest ms of processor time");
	cmp_ok(waiting(), '<=', $limit, "$limit: inserts link what waits");
	return $longest;
}

# One session after another that has left much to link.
$node->safe_psql('postgres', 'SET gpuann.pending_limit = 1000000; INSERT INTO items SELECT * FROM fresh');
cmp_ok(longest_insert(3900), '<=', 500, 'where just too many wait none links for much longer than the shortest slice');
cmp_ok(longest_insert($limit), '<=', 3000, 'where far too many do, for much longer than the longest');

# How many rows eight sessions insert, each.
sub storm
{
	my ($what) = @_;
	my $directory = PostgreSQL::Test::Utils::tempdir();
	my %rows = map { $_ => 0 } 0 .. $sessions - 1;
	my $all = 0;

	append_to_file("$directory/insert.sql", "\\set id random(100001, 104000)\nINSERT INTO items SELECT id, v FROM fresh WHERE id = :id;\n");
	IPC::Run::run([ 'pgbench', '-n', '-M', 'prepared', '-c', $sessions, '-j', $sessions, '-T', 4, '-l', "--log-prefix=$directory/log", '-f', "$directory/insert.sql",
			$node->connstr('postgres') ], '>', \my $out, '2>&1');
	is($?, 0, "$what: all went well") or diag($out);
	foreach my $file (glob "$directory/log.*")
	{
		foreach my $line (split /\n/, slurp_file($file))
		{
			$rows{ (split ' ', $line)[0] }++;
			$all++;
		}
	}
	note("$what: " . join(' ', map { $rows{$_} } sort keys %rows));
	cmp_ok($rows{$_}, '>=', $all / $sessions / 10, "$what: session $_ got a tenth of its share at least") foreach sort keys %rows;
}

storm('inserters alone');
check_index($node, 'inserters alone');

my $linker = in_background($node, "DO \$\$ DECLARE until timestamptz := clock_timestamp() + '6 s';
	BEGIN WHILE clock_timestamp() < until LOOP PERFORM gpuann_link('items_v'); END LOOP; END \$\$");
storm('beside a linker');
$linker->finish;
ok(!$linker->result, 'the linker went well too');
check_index($node, 'beside a linker');
$node->stop;

done_testing();
