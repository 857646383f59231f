# pg_stat_gpuann counts rows: those of the index, those of the mirror and those that are not linked, whatever slots were used again; and an index
# that is locked, of another session, damaged or of another format hides no other from the view.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib $FindBin::RealBin;
use DamageTest;
use GpuannTest;
use PgSession;
use ServerTest;
use Test::More;

my $dims = 16;
my $node = server_node('rows', no_checksums => 1);

# The index's figures, all of one look.
sub counts
{
	return figure($node, "concat_ws(' ', index_rows, pending_rows, mirror_rows)", $_[0]);
}

sub counts_become
{
	my ($expected, $what) = @_;
	my $found;

	await($what, sub { ($found = counts()) eq $expected });
	is($found, $expected, $what);
}

make_data($node, 500, $dims);
ok(await_mirror($node), 'the mirror is there');
is(counts(), '500 0 500', 'a built index has as many rows as the table, and so has its mirror');

fill_rows($node, 501, 510, $dims);
counts_become('510 10 510', 'few inserted rows stay pending, and the mirror has them');
$node->safe_psql('postgres', "SELECT gpuann_link('items_v')");
counts_become('510 0 510', 'linked, they are not pending any more');

# Slots of dead rows are free when no entry of the pending list names them: the pass after the next trims it.
$node->safe_psql('postgres', 'DELETE FROM items WHERE id <= 100');
ok(await('the places are free', sub {
	$node->safe_psql('postgres', 'VACUUM (INDEX_CLEANUP on) items');
	return $node->safe_psql('postgres', "SELECT free_slots FROM gpuann_stats('items_v')") == 100;
}), 'VACUUM frees the places of dead rows');
counts_become('410 0 410', 'dead rows count no more, in the index and in the mirror');
is($node->safe_psql('postgres', "SELECT live_rows, dead_rows FROM gpuann_stats('items_v')"), '410|0', 'gpuann_stats counts the same');
fill_rows($node, 1001, 1050, $dims);
$node->safe_psql('postgres', "SELECT gpuann_link('items_v')");
counts_become('460 0 460', 'rows that got places of dead ones count');
is(figure($node, 'mirror_lag'), 0, 'and the mirror lacks none');
$node->safe_psql('postgres', "SELECT gpuann_evict('items_v')");
is(counts(), '460 0 0', 'without a mirror the index has its rows');

# How long scans took: one that a user asked for counts once, by its path, until its first row was there.
sub latencies
{
	return $node->safe_psql('postgres', "SELECT string_agg(concat_ws(' ', path, scans, $_[0]), '; ' ORDER BY path)
		FROM pg_stat_gpuann_latency WHERE indexrelname = 'items_v'");
}

ok(await_mirror($node), 'the mirror is there again');
$node->safe_psql('postgres', "SELECT gpuann_stat_reset()");
$node->safe_psql('postgres', "SET enable_seqscan = off; SELECT id FROM items ORDER BY v <-> vec($_, $dims) LIMIT 3") foreach 1 .. 3;
$node->safe_psql('postgres', "SET enable_seqscan = off; SET gpuann.server = off; SELECT id FROM items ORDER BY v <-> vec(1, $dims) LIMIT 3;
	SET gpuann.plan_node = off; SELECT id FROM items ORDER BY v <-> vec(2, $dims) LIMIT 3");
$node->safe_psql('postgres', "SELECT gpuann_recall('items_v', 5, 5)");
is(latencies('p50 > 0 AND p50 <= p95 AND p95 <= p99'), 'pages 2 t; server 3 t', 'scans are timed by their path, those of gpuann_recall are not');
$node->safe_psql('postgres', "SET enable_seqscan = off; SET gpuann.server = off;
	SELECT id FROM items WHERE pg_sleep(0.1) IS NOT NULL ORDER BY v <-> vec(1, $dims) LIMIT 1");
is(latencies("path <> 'pages' OR p99 >= 90"), 'pages 3 t; server 3 t', 'what the filter takes counts');
$node->safe_psql('postgres', 'REINDEX INDEX items_v');
is(latencies('true'), 'pages 3 t; server 3 t', 'an index that is built again keeps them');
$node->safe_psql('postgres', "SELECT gpuann_stat_reset('items_v')");
is(latencies('true'), '', 'they are reset with the counters');

# An index that cannot be read now.
my $other = PgSession->new($node);
$other->rows('BEGIN; LOCK TABLE items IN ACCESS EXCLUSIVE MODE; ALTER INDEX items_v SET (ef_search = 41)');
$node->safe_psql('postgres', 'SELECT gpuann_stat_reset()');
is($node->safe_psql('postgres', "SET statement_timeout = '60s'; SELECT count(*) FROM pg_stat_gpuann"), 1, 'the view waits for no lock');
$other->rows('REINDEX INDEX items_v');
is(figure($node, 'index_rows IS NULL'), 't', 'whose rows are not counted while an index is locked exclusively');
$other->rows('ROLLBACK');
$other->rows("CREATE TEMP TABLE mine AS SELECT * FROM items LIMIT 100; CREATE INDEX mine_v ON mine USING gpuann (v vector_l2_ops);
	SET enable_seqscan = off; SELECT id FROM mine ORDER BY v <-> vec(1, $dims) LIMIT 1");
is($node->safe_psql('postgres', 'SELECT count(*) FROM pg_stat_gpuann WHERE relname = \'mine\' AND index_rows IS NOT NULL'), 0,
	'nor those of another session\'s temporary table');
$other->close;

# A prepared plan of the view in a parallel query.
is($node->safe_psql('postgres', "SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0;
	SELECT sum(index_rows) > 0 FROM pg_stat_gpuann s, items"), 't', 'the view is read beside parallel workers');

# Damaged, and of another format. A second index stands beside it; both have been scanned, so the view knows them after a restart.
$node->safe_psql('postgres', "CREATE TABLE sound AS SELECT * FROM items; CREATE INDEX sound_v ON sound USING gpuann (v vector_l2_ops);
	SET enable_seqscan = off; SELECT id FROM items ORDER BY v <-> vec(1, $dims) LIMIT 1; SELECT id FROM sound ORDER BY v <-> vec(1, $dims) LIMIT 1");
my $path = $node->data_dir . '/' . $node->safe_psql('postgres', "SELECT pg_relation_filepath('items_v')");
$node->safe_psql('postgres', 'CHECKPOINT');
my $bytes = PostgreSQL::Test::Utils::slurp_file($path);
my ($list_page) = pages_of({ bytes => $bytes }, LIST);

foreach my $case ([ 'of another format version', HEADER + 4, pack('V', 77) ],
	[ 'without a metapage', HEADER, "\xA5" x 8 ],
	[ 'whose newest pending page is damaged', $list_page * PAGE + HEADER + 32, pack('V', 1000000) ])
{
	my ($what, $offset, $damage) = @$case;
	my $session;

	$node->stop;
	open(my $file, '+<', $path) or die "$path: $!";
	binmode $file;
	seek($file, $offset, 0) or die "$path: $!";
	print $file $damage;
	close $file;
	$node->start;
	$session = PgSession->new($node);
	await('the launcher has read what was counted', sub { $session->rows('SELECT count(*) FROM pg_stat_gpuann') >= 2 });
	my $query = "SELECT string_agg(concat_ws(' ', indexrelname, coalesce(index_rows, -1), coalesce(pending_rows, -1)), ', ' ORDER BY indexrelname) FROM pg_stat_gpuann";
	is($session->rows($query), 'items_v -1 -1, sound_v 460 0', "an index $what is in the view without figures, the other with them") foreach 1 .. 2;
	is($session->rows("BEGIN; DECLARE c CURSOR FOR SELECT count(index_rows) FROM pg_stat_gpuann; FETCH c; COMMIT"), '1', "$what: also in a cursor");
	like(($node->psql('postgres', "SET enable_seqscan = off; SELECT id FROM items ORDER BY v <-> vec(1, $dims) LIMIT 1"))[2], qr/ERROR: .*items_v/,
		"$what: a scan says what is wrong");
	is($session->rows("SET enable_indexscan = off; SELECT count(*) FROM (SELECT id FROM items ORDER BY v <-> vec(1, $dims) LIMIT 5) s; RESET enable_indexscan"), 5,
		"$what: another plan answers");
	is($session->rows("SET enable_seqscan = off; SELECT count(*) FROM (SELECT id FROM sound ORDER BY v <-> vec(1, $dims) LIMIT 5) s"), 5,
		"$what: the session that has looked goes on");
	$session->close;

	$node->stop;
	open($file, '+<', $path) or die "$path: $!";
	binmode $file;
	seek($file, $offset, 0) or die "$path: $!";
	print $file substr($bytes, $offset, length $damage);
	close $file;
	$node->start;
}
is(log_count($node, qr/leak|TRAP|PANIC|was terminated by signal/), 0, 'nothing was left pinned or locked');
$node->stop;

# With checksums the read of a page fails before its contents are looked at; nobody waits for that read then.
my $summed = server_node('summed', initdb => ['--data-checksums']);
make_data($summed, 300, $dims);
ok(await_mirror($summed), 'a mirror is there, with checksums');
$path = $summed->data_dir . '/' . $summed->safe_psql('postgres', "SELECT pg_relation_filepath('items_v')");
$summed->stop;
open(my $page, '+<', $path) or die "$path: $!";
binmode $page;
seek($page, HEADER + 100, 0) or die "$path: $!";
print $page "\xA5";
close $page;
$summed->start;
foreach my $session (map { PgSession->new($summed, settings => '-c statement_timeout=60s') } 1 .. 2)
{
	is($session->rows('SELECT indexrelname, index_rows IS NULL FROM pg_stat_gpuann'), 'items_v|t', 'an index whose checksum is wrong is in the view without figures') foreach 1 .. 2;
	is($session->rows('SELECT count(*) FROM items'), 300, 'and the session goes on');
	$session->close;
}
is(log_count($summed, qr/leak|TRAP|PANIC|was terminated by signal/), 0, 'nothing was left behind there either');
$summed->stop;
done_testing();
