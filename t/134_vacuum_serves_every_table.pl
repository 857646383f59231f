# VACUUM in all its ways: in parallel over several indexes, without index cleanup, beside scans and inserts, slowly, by autovacuum on a
# table that only grows; and what it reports of the index.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib $FindBin::RealBin;
use GpuannTest;
use PgSession;
use ServerTest;
use Test::More;

my $dims = 16;
my $node = new_node('ways', conf => [ 'autovacuum_naptime = 1s', 'gpuann.pending_limit = 1000000' ]);

sub figures
{
	return $node->safe_psql('postgres', qq{
SELECT c.reltuples = (SELECT count(*) FROM items), c.relpages = pg_relation_size(c.oid) / current_setting('block_size')::int
	FROM pg_class c WHERE relname = 'items_v'});
}

sub pending
{
	return (split /\n/, $node->safe_psql('postgres', qq{
SET gpuann.server = off; SET enable_seqscan = off;
SELECT id FROM items ORDER BY v <-> vec(1, $dims) LIMIT 1;
SELECT pending FROM gpuann_last_scan();
}))[1];
}

make_data($node, 3000, $dims);
$node->safe_psql('postgres', 'CREATE INDEX items_ip ON items USING gpuann (v vector_ip_ops);
	CREATE INDEX items_cosine ON items USING gpuann (v vector_cosine_ops)');

# Several indexes at once.
$node->safe_psql('postgres', 'DELETE FROM items WHERE id % 3 = 0');
fill_rows($node, 10001, 11000, $dims);
my ($rc, $out, $said) = $node->psql('postgres',
	'SET min_parallel_index_scan_size = 0; SET max_parallel_maintenance_workers = 2; VACUUM (PARALLEL 2, VERBOSE) items');
is($rc, 0, 'parallel VACUUM: ends well');
like($said, qr/launched [12] parallel vacuum workers? for index vacuuming/, 'parallel VACUUM: with workers');
right_after($node, 'parallel VACUUM');
check_index($node, 'parallel VACUUM', $_) foreach ('items_ip', 'items_cosine');
is(figures(), 't|t', 'parallel VACUUM: the index is said to have as many rows and pages as it has');
is(pending(), 0, 'parallel VACUUM: pending rows were linked');

# Without a dead row only cleanup is done, in parallel too.
fill_rows($node, 11001, 11500, $dims);
($rc, $out, $said) = $node->psql('postgres',
	'SET min_parallel_index_scan_size = 0; SET max_parallel_maintenance_workers = 2; VACUUM (PARALLEL 2, VERBOSE) items');
is($rc, 0, 'parallel cleanup: ends well');
like($said, qr/launched [12] parallel vacuum workers? for index cleanup/, 'parallel cleanup: with workers');
is(pending(), 0, 'parallel cleanup: pending rows were linked');
right_after($node, 'parallel cleanup');

# Without the indexes.
$node->safe_psql('postgres', 'DROP INDEX items_ip, items_cosine; DELETE FROM items WHERE id % 5 = 0');
$node->safe_psql('postgres', 'VACUUM (INDEX_CLEANUP off) items');
right_after($node, 'without index cleanup');
$node->safe_psql('postgres', 'VACUUM (INDEX_CLEANUP on) items');
right_after($node, 'with index cleanup');
is(figures(), 't|t', 'with index cleanup: rows and pages');

# Slowly: it sleeps with no page locked, so others go on; it ends soon after a cancel.
$node->safe_psql('postgres', 'DELETE FROM items WHERE id % 7 < 3');
my $slow = in_background($node, 'SET vacuum_cost_delay = 50', 'SET vacuum_cost_limit = 30', 'VACUUM items');
$node->poll_query_until('postgres', "SELECT count(*) = 1 FROM pg_stat_progress_vacuum WHERE phase = 'vacuuming indexes'");
my $session = PgSession->new($node, settings => '-c enable_seqscan=off');
foreach my $id (20001 .. 20050)
{
	$session->rows("INSERT INTO items VALUES ($id, vec($id, $dims))");
	$session->rows("SELECT id FROM items ORDER BY v <-> vec($id, $dims) LIMIT 1") eq $id or fail("row $id is not found");
}
$session->close;
ok($slow->pumpable, 'a slow VACUUM lets others insert and search');
$node->safe_psql('postgres', "SELECT pg_cancel_backend(pid) FROM pg_stat_progress_vacuum");
ok(await('the VACUUM is cancelled', sub { $node->safe_psql('postgres', 'SELECT count(*) FROM pg_stat_progress_vacuum') eq '0' }),
	'it ends soon after a cancel');
$slow->finish;
right_after($node, 'a slow VACUUM cancelled');
$node->safe_psql('postgres', 'VACUUM items');
right_after($node, 'vacuumed after that');

# A table that only grows.
$node->safe_psql('postgres', 'ALTER TABLE items SET (autovacuum_vacuum_insert_threshold = 100, autovacuum_vacuum_insert_scale_factor = 0)');
fill_rows($node, 30001, 30500, $dims);
is(pending(), 500, 'rows wait to be linked');
$node->append_conf('postgresql.conf', 'autovacuum = on');
$node->reload;
ok(await('autovacuum has linked them', sub { pending() == 0 }), 'autovacuum links the rows of a table that only grows');
right_after($node, 'autovacuum');
$node->stop;

done_testing();
