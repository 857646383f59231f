# Memory for mirrors is budgeted: the mirror not asked for longest makes way, one in use does not, what can never fit empties nothing; a
# database keeps to its quota; prewarm and evict say what happened. I7.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use GpuannTest;
use PostgreSQL::Test::Cluster;
use ServerTest;
use Test::More;

my $dims = 250;
# Each mirror takes about 7 MB: two fit.
my $node = new_node('main', preload => 'gpuann', conf => [ "gpuann.engine = 'cpu'", "gpuann.gpu_memory_limit = '18MB'" ]);

# Mirrors are asked for here; t/024 is about those that builds load.
make_data($node, 5000, $dims, no_index => 1);
foreach my $name ('a', 'b', 'c')
{
	$node->safe_psql('postgres', "SET gpuann.server = off; CREATE TABLE $name AS SELECT * FROM items; CREATE INDEX ${name}_v ON $name USING gpuann (v vector_l2_ops)");
}
ok(await_server($node), 'the server runs');

sub state_of { return figure($node, 'state', $_[0] . '_v') }

sub ask
{
	my ($name) = @_;
	$node->safe_psql('postgres', "SET enable_seqscan = off; SELECT id FROM $name ORDER BY v <-> (SELECT vec(1, $dims)) LIMIT 1");
}

cmp_ok($node->safe_psql('postgres', "SELECT gpuann_prewarm('a_v')"), '>', 5_000_000, 'prewarm returns the bytes of the mirror');
is(state_of('a'), 'ready', 'and the mirror is there');
$node->safe_psql('postgres', "SELECT gpuann_prewarm('b_v')");
is($node->safe_psql('postgres', "SELECT gpuann_prewarm('b_v') > 0"), 't', 'prewarm of what is there does nothing');

# Both are in use: the third is refused, with figures.
ask('a');
ask('b');
my ($rc, $out, $err) = $node->psql('postgres', "SELECT gpuann_prewarm('c_v')");
like($err, qr/index "c_v" was not mirrored: .*\d/, 'a mirror that does not fit beside mirrors in use is refused with figures');
is(state_of('a') . ' ' . state_of('b'), 'ready ready', 'they stay');
cmp_ok(status($node, 'memory_used'), '<=', status($node, 'memory_limit'), 'the limit holds');

# After a while without questions the one not asked for longest goes.
ok(await('a has rested', sub { ask('b'); $node->psql('postgres', "SELECT gpuann_prewarm('c_v')") == 0 }), 'later it is loaded');
is(state_of('a'), 'none', 'in the place of the one that was not asked for');
is(figure($node, 'evictions', 'a_v'), 1, 'which is counted');
is(state_of('b'), 'ready', 'the one in use stays');
# Without asking the server, which would want it back as soon as another has gone.
is($node->safe_psql('postgres', "SET enable_seqscan = off; SET gpuann.exact = on; SET gpuann.server = off;
	SELECT id FROM a ORDER BY v <-> (SELECT vec(4711, $dims)) LIMIT 1"), 4711, 'the evicted one is answered from pages');

is($node->safe_psql('postgres', "SELECT gpuann_evict('b_v'), gpuann_evict('b_v')"), 't|f', 'evict says whether there was a mirror');
is(state_of('b'), 'none', 'and it is gone');

# What can never fit takes nobody's place.
$node->safe_psql('postgres', "CREATE TABLE huge (id int, v vector(2000));
	INSERT INTO huge SELECT i, array_fill(i, ARRAY[2000])::vector FROM generate_series(1, 3500) i;
	CREATE INDEX huge_v ON huge USING gpuann (v vector_l2_ops)");
ok(await('c has rested', sub {
	$node->psql('postgres', "SELECT gpuann_prewarm('b_v')");
	state_of('b') eq 'ready' }), 'there is room again');
sleep 11;
($rc, $out, $err) = $node->psql('postgres', "SELECT gpuann_prewarm('huge_v')");
like($err, qr/index "huge_v" was not mirrored/, 'what is larger than the limit is refused');
is(state_of('b') . ' ' . state_of('c'), 'ready ready', 'and nobody made way for it');

# A quota of the database.
$node->safe_psql('postgres', "SELECT gpuann_evict('b_v'), gpuann_evict('c_v');
	ALTER DATABASE postgres SET gpuann.database_memory_limit = '12MB'");
# The next worker has the setting.
my $worker = worker_pid($node);
kill 'TERM', $worker if $worker;
await('the worker is gone', sub { !$worker || !alive($worker) });
ok(await('a is there', sub { $node->psql('postgres', "SELECT gpuann_prewarm('a_v')") == 0 }), 'one mirror fits the quota');
ask('a');
($rc, $out, $err) = $node->psql('postgres', "SELECT gpuann_prewarm('b_v')");
like($err, qr/gpuann\.database_memory_limit is 12 MB: \d+ MB are used by other mirrors, this one needs \d+ MB or more/, 'a second does not');

# Who may not, and what cannot be mirrored.
$node->safe_psql('postgres', "CREATE ROLE guest LOGIN; CREATE INDEX off_v ON a USING gpuann (v vector_l2_ops) WITH (mirror = off)");
($rc, $out, $err) = $node->psql('postgres', "SET ROLE guest; SELECT gpuann_evict('a_v')");
like($err, qr/must be owner of index a_v/, 'only the owner may evict');
($rc, $out, $err) = $node->psql('postgres', "SELECT gpuann_prewarm('off_v')");
like($err, qr/index "off_v" is not to be mirrored/, 'mirror = off is respected');
($rc, $out, $err) = $node->psql('postgres', "BEGIN; CREATE TEMP TABLE t (v vector(3)); CREATE INDEX t_v ON t USING gpuann (v vector_l2_ops); SELECT gpuann_prewarm('t_v')");
like($err, qr/temporary index "t_v" cannot be mirrored/, 'temporary indexes have no mirror');

# A dropped index's memory is free with the commit.
my $used = status($node, 'memory_used');
$node->safe_psql('postgres', 'BEGIN; DROP TABLE a; ROLLBACK');
is(state_of('a'), 'ready', 'a drop rolled back changes nothing');
$node->safe_psql('postgres', 'BEGIN; SAVEPOINT s; DROP TABLE a; RELEASE s; COMMIT');
ok(await('the memory is free', sub { status($node, 'memory_used') < $used - 5_000_000 }), 'memory of a dropped index is free at once');
$node->stop;
done_testing();
