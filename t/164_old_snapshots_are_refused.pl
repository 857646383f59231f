# With old_snapshot_threshold (PostgreSQL 15 and 16) VACUUM does not wait for old snapshots. Whoever reads by one is told "snapshot too old", by pages
# and server, in every kind of scan and in every round of it, and never gets only the rows that are left.
#
# A threshold of 0 refuses snapshots older than five seconds, but VACUUM removes nothing that they see: so rows that died before go, and the test is
# that the index is known to have changed. With GPUANN_LONG the threshold is a minute, the rows that snapshots see do go, and it takes two minutes.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use GpuannTest;
use PgSession;
use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my ($major) = `pg_config --version` =~ /PostgreSQL (\d+)/;

plan skip_all => 'PostgreSQL 17 and newer have no old_snapshot_threshold' if $major >= 17;

my $long = $ENV{GPUANN_LONG};
my $dims = 8;
my $pages = 'SET gpuann.server = off;';
my $server = 'SET gpuann.fallback = error;';

my $node = server_node('old', conf =>
	  [ 'old_snapshot_threshold = ' . ($long ? "'1min'" : '0'), 'gpuann.pending_limit = 1000000', 'gpuann.engine = ' . engine() ]);
ok(await_server($node), 'the server is ready');

sub sql { return $node->safe_psql('postgres', $_[0]); }

sub live
{
	return sql("SELECT live_rows FROM gpuann_stats('$_[0]_v')");
}

# Tables of 1,000 rows that snapshots see: in the graph, on the pending list; and one that nothing happens to.
my $dead = $long ? 0 : 1000;
make_data($node, 1000 + $dead, $dims);
sql("CREATE TABLE fresh (LIKE items); CREATE INDEX fresh_v ON fresh USING gpuann (v vector_l2_ops) WITH (mirror = off);
	INSERT INTO fresh SELECT * FROM items;
	CREATE TABLE held (LIKE items); INSERT INTO held SELECT * FROM items; CREATE INDEX held_v ON held USING gpuann (v vector_l2_ops);
	CREATE TABLE pruned (LIKE items); INSERT INTO pruned SELECT * FROM items;
	CREATE INDEX pruned_v ON pruned USING gpuann (v vector_l2_ops);
	CREATE TABLE kept AS SELECT * FROM items WHERE id <= 1000; CREATE INDEX kept_v ON kept USING gpuann (v vector_l2_ops);");
my @tables = qw(items fresh held pruned);
foreach my $table (@tables)
{
	sql("DELETE FROM $table WHERE id > 1000");
}
ok(await_mirror($node, "${_}_v"), "$_: the mirror is ready") foreach qw(items held kept);

# What old snapshots are asked: settings, table, and what is read. With one row wanted it is the index that has to know; with more, the pages of the
# table that rows came from are tested too.
my $ordered = "SELECT id FROM TABLE ORDER BY v <-> vec(500, $dims)";
my %reads = (
	'graph over pages' => [ $pages, 'items', "$ordered LIMIT 1", 1 ],
	'all rows over pages' => [ $pages, 'items', $ordered, 1000 ],
	'exact over pages' => [ "$pages SET gpuann.exact = on;", 'items', "$ordered LIMIT 1", 1 ],
	'a NULL query' => [ $pages, 'items', "SELECT id FROM TABLE ORDER BY v <-> NULL", 1000 ],
	'pending rows' => [ $pages, 'fresh', "$ordered LIMIT 1", 1 ],
	'a cursor over pages' => [ $pages, 'items', "CURSOR $ordered", 1000 ],
	'graph of the server' => [ $server, 'items', "$ordered LIMIT 1", 1 ],
	'all rows of the server' => [ $server, 'items', $ordered, 1000 ],
	'exact by the server' => [ "$server SET gpuann.exact = on;", 'items', "$ordered LIMIT 1", 1 ],
	"a cursor over the server's answers" => [ $server, 'items', "CURSOR $ordered", 1000 ],
	'rows that only the table has lost' => [ $pages, 'pruned', $ordered, 1000 ],
	'a mirror that is ahead of VACUUM' => [ $server, 'held', "$ordered LIMIT 1", 1 ],
	'an index that has not changed, over pages' => [ $pages, 'kept', $ordered, 1000 ],
	'an index that has not changed, by the server' => [ $server, 'kept', "$ordered LIMIT 1", 1 ]);

# Begin a transaction and read a first time. A cursor is read from, and has most before it.
sub begin_read
{
	my ($name) = @_;
	my ($settings, $table, $query, $rows) = @{ $reads{$name} };
	my $session = PgSession->new($node, settings => '-cenable_seqscan=off -cenable_sort=off');
	my $answer;

	$query =~ s/TABLE/$table/;
	$session->query($settings);
	$session->query('BEGIN ISOLATION LEVEL REPEATABLE READ');
	if ($query =~ s/^CURSOR //)
	{
		$session->query("DECLARE c CURSOR FOR $query");
		is(scalar @{ $session->query('FETCH 10 FROM c')->{rows} }, 10, "$name: the first rows are there");
		$query = 'FETCH ALL FROM c';
	}
	else
	{
		$answer = $session->query($query);
		is(scalar @{ $answer->{rows} }, $rows, "$name: all rows are there") or diag($answer->{error});
	}
	return [ $session, $query, $rows ];
}

sub is_refused
{
	my ($name, $read) = @_;
	my ($session, $query) = @$read;
	my $answer = $session->query($query);

	is("$answer->{state} $answer->{error}", '72000 snapshot too old', "$name: the snapshot is refused");
	diag(scalar(@{ $answer->{rows} }) . ' rows were given') if $answer->{error} eq '';
}

# The snapshots' tuples go into the past.
my %running = map { $_ => begin_read($_) } sort keys %reads;
if ($long)
{
	sql("DELETE FROM $_ WHERE id > 10") foreach @tables;
}
sql('SELECT pg_sleep(6)');
# A page on which a cursor stands keeps its rows.
ok(await('VACUUM removes what old snapshots see', sub {
		sql('SELECT txid_current()');
		sql("VACUUM $_") foreach qw(items fresh);
		return live('items') < ($long ? 200 : 1200);
	}, 600), 'VACUUM has removed rows');
sql('VACUUM (INDEX_CLEANUP off) pruned');
ok(await('the mirror has followed', sub { return figure($node, "mirror_lag || ' ' || mirror_change_lag") eq '0 0'; }),
	'the mirror has followed');

# A VACUUM that stands in the middle of its marking, and a mirror that is loaded then.
my $vacuum = PgSession->new($node);
my $flag = $node->data_dir . '/gpuann_fault.vacuum-marked-page';
$vacuum->query("SET gpuann.fault = 'vacuum-marked-page wait'");
$vacuum->send('VACUUM held');
ok(await('VACUUM has marked a page', sub { return -e $flag; }), 'VACUUM has marked a page');
sql("SELECT gpuann_evict('held_v'), gpuann_prewarm('held_v')");

foreach my $name (sort keys %reads)
{
	next if $name =~ /has not changed/;
	is_refused($name, $running{$name});
}
unlink $flag;
is($vacuum->receive->{error}, '', 'VACUUM goes on');

# Whoever is not concerned goes on too.
foreach my $name (grep { /has not changed/ } sort keys %reads)
{
	my ($session, $query, $rows) = @{ $running{$name} };
	is(scalar @{ $session->query($query)->{rows} }, $rows, "$name: is read by the old snapshot");
}
foreach my $table (@tables)
{
	my $rows = $long ? 10 : 1000;
	my $session = PgSession->new($node, settings => '-cenable_seqscan=off -cenable_sort=off');

	is(scalar @{ $session->query("SELECT id FROM $table ORDER BY v <-> vec(7, $dims)")->{rows} }, $rows, "$table: a new snapshot sees what there is");
	check_index($node, $table, "${table}_v");
}
$node->stop;

done_testing();
