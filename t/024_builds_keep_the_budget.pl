# Mirrors that builds load keep to limit and quota: a build takes free room only and evicts nobody, but for the mirror of its own index from before,
# which comes back if the build does not stay. I7.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use GpuannTest;
use PgSession;
use PostgreSQL::Test::Cluster;
use ServerTest;
use Test::More;

my $dims = 250;
# Each mirror takes about 7 MB: two fit.
my $node = new_node('main', preload => 'gpuann', conf => [ "gpuann.engine = 'cpu'", "gpuann.gpu_memory_limit = '18MB'" ]);
my $most = 0;

sub state_of { return figure($node, "string_agg(state, ',')", $_[0] . '_v') }

# Every look at the memory.
sub within_limit
{
	my ($used, $limit) = split / /, status($node, "memory_used || ' ' || memory_limit");
	$most = $used if $used > $most;
	return $used <= $limit;
}

sub build
{
	my ($name) = @_;
	$node->safe_psql('postgres', "CREATE TABLE $name AS SELECT * FROM items; CREATE INDEX ${name}_v ON $name USING gpuann (v vector_l2_ops)");
	within_limit();
}

make_data($node, 5000, $dims, no_index => 1);
ok(await_server($node), 'the server runs');
build('a');
build('b');
is(state_of('a') . ' ' . state_of('b'), 'ready ready', 'two mirrors fit, and are there');
build('c');
is(state_of('c'), '', 'a third is not loaded');
like(PostgreSQL::Test::Utils::slurp_file($node->logfile), qr/mirror of gpuann index "c_v" was not loaded when it was built: .*\d+.*\d+/, 'the log says why, with figures');
is(state_of('a') . ' ' . state_of('b'), 'ready ready', 'nobody makes way for what no scan has asked for');
is($node->safe_psql('postgres', 'SELECT sum(evictions) FROM pg_stat_gpuann'), 0, 'nobody was evicted');

# The memory is full: the mirror from before makes way.
$node->safe_psql('postgres', 'REINDEX INDEX a_v');
is(state_of('a') . ' ' . state_of('b'), 'ready ready', 'REINDEX has the room of the mirror from before');
ok(within_limit(), 'within the limit');
my $session = PgSession->new($node);
$session->rows('BEGIN; REINDEX INDEX a_v');
ok(within_limit(), 'within the limit');
$session->rows('ROLLBACK');
ok(await('it is back', sub { within_limit(); state_of('a') eq 'ready' }), 'if it is rolled back, the mirror from before comes back');
is(state_of('b'), 'ready', 'and the other has not moved');
$node->safe_psql('postgres', 'REINDEX INDEX CONCURRENTLY b_v');
ok(await('the memory is free', sub { within_limit(); status($node, 'memory_used') < 10_000_000 }), 'of two files at once one has room');
is($node->safe_psql('postgres', "SET enable_seqscan = off; SET gpuann.exact = on; SELECT id FROM b ORDER BY v <-> (SELECT vec(4711, $dims)) LIMIT 1"), 4711, 'and answers from pages');
ok(await('b is there', sub { state_of('b') eq 'ready' }), 'until it is loaded');

# A quota.
$node->safe_psql('postgres', "DROP TABLE b; ALTER DATABASE postgres SET gpuann.database_memory_limit = '12MB'");
$session->close;
ok(await('the memory is free', sub { status($node, 'memory_used') < 10_000_000 }), 'there is room');
build('d');
is(state_of('d'), '', 'but not within the quota of the database');
like(PostgreSQL::Test::Utils::slurp_file($node->logfile), qr/"d_v" was not loaded when it was built: gpuann.database_memory_limit is 12 MB: \d+ MB are used/, 'as the log says');
$node->safe_psql('postgres', 'REINDEX INDEX a_v');
is(state_of('a'), 'ready', 'REINDEX has the quota of the mirror from before');
cmp_ok($most, '>', 12_000_000, 'memory was used');
cmp_ok($most, '<=', status($node, 'memory_limit'), 'and never more than the limit');
$node->stop;
done_testing();
