# What builds an index loads its mirror before it commits: the first query is the server's. Whatever ends the transaction otherwise leaves
# nothing in the server, and the mirror that there was; whatever the server does, the build ends well. I1, I5, I7.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use GpuannTest;
use PgSession;
use PostgreSQL::Test::Cluster;
use ServerTest;
use Test::More;
use Time::HiRes qw(sleep time);

my $dims = 16;
my $rows = 1500;
my $node = server_node('main', conf => [ 'max_prepared_transactions = 5', 'allow_in_place_tablespaces = on' ]);

sub sql { return $node->safe_psql('postgres', $_[0]) }

sql("CREATE TABLE source AS SELECT i AS id, vec(i, $dims)::vector($dims) AS v FROM generate_series(1, $rows) i");
ok(await_server($node), 'the server runs');

my $copy = "INSERT INTO items SELECT * FROM source";
my $index = 'CREATE INDEX items_v ON items USING gpuann (v vector_l2_ops)';
my $nearest = "SELECT id FROM items ORDER BY v <-> (SELECT v FROM source WHERE id = 77) LIMIT 1";
my $ask = "SET LOCAL enable_seqscan = off; SET LOCAL gpuann.fallback = error; $nearest";

# A table without index, again.
sub fresh
{
	my ($kind, $empty) = @_;
	sql("DROP TABLE IF EXISTS items; CREATE $kind TABLE items (id int, v vector($dims));" . ($empty ? '' : $copy));
}

# The first query after a statement is the server's, and so none was the pages'.
sub served_at_once
{
	my ($what) = @_;
	my ($rc, $out, $err) = $node->psql('postgres', "BEGIN; $ask");

	is("$out$err", 77, "$what: the first query is answered by the server");
	is(figure($node, "count(*) || ' ' || max(state) || ' ' || sum(fallback_not_loaded)"), '1 ready 0', "$what: nothing had to be loaded");
}

# Entries of the table, of indexes that nobody can see too.
sub entries { return sql('SELECT count(*) FROM gpuann_stat_indexes()') }

sub memory_is
{
	my ($what, $bytes) = @_;
	ok(await('memory is free', sub { status($node, 'memory_used') == $bytes }), "$what: the server's memory is what it was") or
		diag(status($node, 'memory_used') . ", not $bytes");
}

my $bare = status($node, 'memory_used');

# Statements that build.
fresh('');
sql($index);
served_at_once('CREATE INDEX');
is(by_server($node), by_pages($node), 'answers are those of the pages');
my $one = status($node, 'memory_used');
cmp_ok($one, '>', $bare, 'the mirror is in memory');
my $scans = figure($node, 'scans');
sql('REINDEX INDEX items_v');
served_at_once('REINDEX');
cmp_ok(figure($node, 'scans'), '>', $scans, 'and the counters go on');
memory_is('REINDEX', $one);
sql('REINDEX INDEX CONCURRENTLY items_v');
served_at_once('REINDEX CONCURRENTLY');
memory_is('REINDEX CONCURRENTLY', $one);
sql('VACUUM FULL items');
served_at_once('VACUUM FULL');
sql('ALTER TABLE items ALTER id TYPE bigint');
served_at_once('ALTER TABLE');
sql('CREATE INDEX items_id ON items (id); CLUSTER items USING items_id');
served_at_once('CLUSTER');
sql('DROP INDEX items_v');
memory_is('DROP INDEX', $bare);
sql('CREATE INDEX CONCURRENTLY items_v ON items USING gpuann (v vector_l2_ops)');
served_at_once('CREATE INDEX CONCURRENTLY');
sql("INSERT INTO items SELECT id + $rows, v FROM source WHERE id <= 50");
ok(await('a worker follows', sub { figure($node, 'mirror_lag') eq '0' }), 'a worker follows what comes after');
fresh('UNLOGGED');
sql($index);
served_at_once('an unlogged index');

# In a transaction: the builder has the mirror, nobody else sees it.
fresh('');
my $session = PgSession->new($node);
$session->rows("BEGIN; $index");
like($session->rows($ask), qr/77/, 'the transaction that builds is answered by the server');
$session->rows("INSERT INTO items SELECT 100000, v FROM source WHERE id = 77; DELETE FROM items WHERE id = 77");
like($session->rows($ask), qr/100000/, 'rows that it adds are found at once');
is(sql('SELECT count(*) FROM pg_stat_gpuann'), 0, 'others see nothing of it');
$session->rows('ROLLBACK');
is(entries(), 0, 'a build rolled back has left no entry');
memory_is('ROLLBACK', $bare);

$session->rows("BEGIN; $index; INSERT INTO items SELECT 100000, v FROM source WHERE id = 77; DELETE FROM items WHERE id = 77; COMMIT");
my ($rc, $out, $err) = $node->psql('postgres', "BEGIN; $ask");
is("$out$err", 100000, 'rows added after the build are found after the commit');
ok(await('it is current', sub { figure($node, "state || ' ' || mirror_lag") eq 'ready 0' }), 'and come to the mirror');

# Subtransactions, several builds of one index.
fresh('');
$session->rows("BEGIN; SAVEPOINT s; $index; ROLLBACK TO s; COMMIT");
is(entries(), 0, 'a build in a subtransaction that is rolled back has left no entry');
memory_is('ROLLBACK TO', $bare);
$session->rows("BEGIN; SAVEPOINT s; $index; RELEASE s; COMMIT");
served_at_once('a build in a subtransaction');
$session->rows("BEGIN; REINDEX INDEX items_v; SAVEPOINT s; REINDEX INDEX items_v; ROLLBACK TO s; REINDEX INDEX items_v; SAVEPOINT t; TRUNCATE items; ROLLBACK TO t; COMMIT");
served_at_once('the last build that was not rolled back');
memory_is('all others', $one);
$session->rows("BEGIN; REINDEX INDEX items_v; ROLLBACK");
served_at_once('the mirror from before, after a REINDEX rolled back');
memory_is('it', $one);
$session->rows("BEGIN; TRUNCATE items; $copy; ROLLBACK");
served_at_once('the mirror from before, after a TRUNCATE rolled back');
$session->rows("BEGIN; TRUNCATE items; $copy; COMMIT");
ok(await('the memory is free', sub { status($node, 'memory_used') <= $one }), 'TRUNCATE frees the memory of what there was');
ok(await_mirror($node), 'its rows are mirrored when a scan asks');
$session->rows("BEGIN; REINDEX INDEX items_v; DROP INDEX items_v; COMMIT");
is(entries(), 0, 'an index built and dropped has left no entry');
memory_is('it', $bare);
sql("CREATE TABLESPACE aside LOCATION ''");
$session->rows("BEGIN; $index; ALTER INDEX items_v SET TABLESPACE aside; COMMIT");
ok(await_mirror($node), 'an index that moved after its build is mirrored');
is(entries(), 1, 'once');
memory_is('its first file', $one);

sql('DROP INDEX items_v');
$session->rows("BEGIN; CREATE TABLE made AS SELECT * FROM source; CREATE INDEX made_v ON made USING gpuann (v vector_l2_ops); TRUNCATE made");
is($session->rows("SET LOCAL enable_seqscan = off; SELECT count(*) FROM (SELECT id FROM made ORDER BY v <-> (SELECT v FROM source LIMIT 1)) every"), 0,
	'an index emptied in its own file has no mirror of what there was');
$session->rows("INSERT INTO made SELECT * FROM source; COMMIT; DROP TABLE made");
memory_is('it', $bare);
sql($index);

# Prepared: what becomes of it is not known for long.
sql('DROP INDEX items_v');
$session->rows("BEGIN; $index; PREPARE TRANSACTION 'later'");
memory_is('a prepared transaction', $bare);
sql("COMMIT PREPARED 'later'");
ok(await_mirror($node), 'its index is mirrored when a scan asks');

# What is not to be mirrored.
fresh('');
sql("$index WITH (mirror = off)");
is(entries(), 0, 'mirror = off is respected');
sql("DROP INDEX items_v; SET gpuann.server = off; $index");
is(entries(), 0, 'and so is gpuann.server = off');
fresh('', 'empty');
sql($index);
is(entries(), 0, 'an empty index takes no memory');
is($session->rows("CREATE TEMP TABLE own AS SELECT * FROM source; CREATE INDEX own_v ON own USING gpuann (v vector_l2_ops);
	SELECT count(*) FROM pg_stat_gpuann"), 0, 'temporary indexes are not mirrored');
$session->rows('DROP TABLE own');
memory_is('none of them', $bare);

# CREATE INDEX CONCURRENTLY that fails after the build leaves an index that answers nothing.
fresh('');
my $holder = PgSession->new($node);
$holder->rows('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM source');
$session->send('CREATE INDEX CONCURRENTLY items_v ON items USING gpuann (v vector_l2_ops)');
ok(await('it is built', sub { entries() == 1 && figure($node, 'state') eq 'ready' }), 'a concurrent build has its mirror before it is valid');
sleep 0.3;
is(figure($node, 'state'), 'ready', 'and keeps it while it waits');
sql('SELECT pg_cancel_backend(' . $session->pid . ')');
like($session->receive->{error}, qr/canceling statement/, 'it is cancelled');
$holder->rows('COMMIT');
sql('INSERT INTO items SELECT * FROM source LIMIT 1');
memory_is('an index that is not valid', $bare);
sql('REINDEX INDEX items_v');
served_at_once('REINDEX of it');

# A server that stands still, is killed, or is not there.
sub stopped
{
	my ($do) = @_;
	my $pid = server_pid($node);

	kill 'STOP', $pid;
	$session->send("SET statement_timeout = 0; REINDEX INDEX items_v");
	ok(await('the build waits', sub { sql("SELECT phase FROM pg_stat_progress_create_index") =~ /loading mirror/ }), 'a build waits for a server that stands still');
	$do->($pid);
	my $answer = $session->receive;
	kill 'CONT', $pid;
	return $answer;
}

my $begun = time;
is(stopped(sub { })->{error}, '', 'but not for long');
cmp_ok(time - $begun, '<', 120, 'in seconds');
is(log_count($node, qr/mirror of gpuann index "items_v" was not loaded when it was built: the server does not answer/), 1, 'which the log says');
ok(await_mirror($node), 'the mirror is loaded when a scan asks');
like(stopped(sub { sql('SELECT pg_cancel_backend(' . $session->pid . ')') })->{error}, qr/canceling statement/, 'meanwhile it can be cancelled');
ok(await_mirror($node), 'and the index is what it was');
is(stopped(sub { kill 'KILL', $_[0] })->{error}, '', 'a server that dies costs nothing');
ok(await_server($node), 'a server runs');
ok(await_mirror($node), 'and has the mirror');
stopped(sub { sql('SELECT pg_terminate_backend(' . $session->pid . ')') });
$session = PgSession->new($node);
ok(await_mirror($node), 'a builder that is terminated has changed nothing');
is(entries(), 1, 'and left nothing');
$node->append_conf('postgresql.conf', "gpuann.engine = 'cuda'\ngpuann.engine_library = '/nonexistent'");
$node->reload;
ok(await('there is no server', sub { status($node, 'state') eq 'failed' }), 'a server that cannot run');
is($session->query('REINDEX INDEX items_v')->{error}, '', 'costs a build nothing');
is(by_pages($node), by_table($node), 'and its index is right');
check_index($node, 'at the end');
$session->close;
$holder->close;
$node->stop;
done_testing();
