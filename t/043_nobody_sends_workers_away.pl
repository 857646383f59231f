# Whoever may not drop, move, rename or copy a database does not send its mirror workers away by trying; whoever may, and fails, has them back at
# once, however it fails.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use GpuannTest;
use IPC::Run;
use PgSession;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;
use Time::HiRes qw(sleep time);

my $dims = 16;
my $node = server_node('main', conf => [ 'gpuann.max_workers = 1' ]);

# The tables of the other tests, in a database of its own, so that others can be connected from.
make_data($node, 3000, $dims);
$node->safe_psql('postgres', 'CREATE DATABASE other');
$node->safe_psql('other', q{CREATE ROLE stranger; CREATE ROLE creator CREATEDB; CREATE ROLE possessor; CREATE ROLE founder CREATEDB;
	CREATE ROLE heir CREATEDB IN ROLE founder});
$node->safe_psql('other', 'CREATE DATABASE served TEMPLATE postgres');

sub served { return $node->safe_psql('served', $_[0]) }

sub worker
{
	return $node->safe_psql('other', "SELECT pid FROM pg_stat_activity WHERE backend_type = 'gpuann mirror worker' AND datname = 'served'");
}

# Rows that come keep a worker there for longer than this test takes, and the mirror has them.
my $next = 10000;
sub current
{
	my ($rows) = @_;
	my $from = $next;

	$next += $rows;
	served("INSERT INTO items SELECT i, vec(i, $dims) FROM generate_series($from, $next - 1) i");
	return await('the mirror has the rows', sub {
		served('SET enable_seqscan = off; SELECT id FROM items ORDER BY v <-> (SELECT v FROM items LIMIT 1) LIMIT 1');
		return served("SELECT state || ' ' || mirror_lag FROM pg_stat_gpuann") eq 'ready 0';
	});
}

ok(await_server($node), 'there is a server');
# No other database wants the only worker.
$node->safe_psql('postgres', "SELECT gpuann_evict('items_v')");
ok(current(100), 'the mirror is ready');
ok(await('there is a worker', sub { worker() ne '' }), 'a worker serves it');
my $worker = worker();

# Statements that are refused: by whom, the statement, what PostgreSQL says, and where from.
sub is_refused
{
	my ($role, $sql, $error, $from) = @_;
	my $session = PgSession->new($node, dbname => $from // 'other');
	my $answer;

	$session->rows("SET SESSION AUTHORIZATION $role") if $role ne '';
	$session->query($_) foreach ref $sql ? @{$sql}[ 0 .. $#$sql - 1 ] : ();
	$answer = $session->query(ref $sql ? $sql->[-1] : $sql);
	$session->close;
	like($answer->{error}, $error, ($role || 'superuser') . ': ' . (ref $sql ? join('; ', @$sql) : $sql));
	is(worker(), $worker, 'the worker has not left');
}

my $owner = qr/must be owner of database served/;
my $block = qr/cannot run inside a transaction block|cannot be executed from a function/;

is_refused('stranger', 'DROP DATABASE served', $owner);
is_refused('stranger', 'DROP DATABASE IF EXISTS served', $owner);
is_refused('stranger', 'DROP DATABASE served WITH (FORCE)', $owner);
is_refused('stranger', 'ALTER DATABASE served RENAME TO taken', $owner);
is_refused('stranger', 'ALTER DATABASE served SET TABLESPACE pg_default', $owner);
is_refused('stranger', 'CREATE DATABASE copy TEMPLATE served', qr/permission denied to create database/);
is_refused('creator', 'CREATE DATABASE copy TEMPLATE served', qr/permission denied to copy database "served"/);
is_refused('creator', 'DROP DATABASE served', $owner);

# What owners may not, either.
served('ALTER DATABASE served OWNER TO possessor');
is_refused('possessor', 'ALTER DATABASE served RENAME TO taken', qr/permission denied to rename database/);
is_refused('possessor', 'CREATE DATABASE copy TEMPLATE served', qr/permission denied to create database/);
is_refused('possessor', 'ALTER DATABASE served SET TABLESPACE pg_global', qr/permission denied for tablespace pg_global|pg_global cannot be used/);
is_refused('possessor', 'ALTER DATABASE served SET TABLESPACE nowhere', qr/tablespace "nowhere" does not exist/);
is_refused('possessor', [ 'BEGIN', 'DROP DATABASE served' ], $block);
is_refused('possessor', "DO 'BEGIN EXECUTE ''DROP DATABASE served''; END'", $block);
is_refused('possessor', [ 'BEGIN', 'ALTER DATABASE served SET TABLESPACE pg_default' ], $block);
is_refused('possessor', 'SELECT 1; DROP DATABASE served', $block);
is_refused('possessor', [ 'SET default_transaction_read_only = on', 'DROP DATABASE served' ], qr/read-only transaction/);
is_refused('possessor', 'DROP DATABASE served', qr/cannot drop the currently open database/, 'served');
served('ALTER DATABASE served OWNER TO founder');
is_refused('founder', 'ALTER DATABASE served RENAME TO other', qr/database "other" already exists/);
is_refused('founder', 'ALTER DATABASE served RENAME TO taken', qr/current database cannot be renamed/, 'served');
is_refused('founder', 'CREATE DATABASE other TEMPLATE served', qr/database "other" already exists/);
is_refused('founder', [ 'BEGIN', 'CREATE DATABASE copy TEMPLATE served' ], $block);
is_refused('founder', 'CREATE DATABASE copy TEMPLATE served OWNER stranger', qr/must be (member of|able to SET ROLE)/);

# A template may be copied by whoever may create databases, and dropped by nobody.
served('ALTER DATABASE served IS_TEMPLATE true');
is_refused('stranger', 'CREATE DATABASE copy TEMPLATE served', qr/permission denied to create database/);
is_refused('creator', 'CREATE DATABASE copy TEMPLATE served OWNER stranger', qr/must be (member of|able to SET ROLE)/);
is_refused('founder', 'DROP DATABASE served', qr/cannot drop a template database/);
served('ALTER DATABASE served IS_TEMPLATE false');

# In a loop, while rows come that are mirrored and linked.
my $script = PostgreSQL::Test::Utils::tempdir() . '/hostile.sql';
append_to_file($script, "SET SESSION AUTHORIZATION stranger;\n" . "DROP DATABASE served;\nCREATE DATABASE copy TEMPLATE served;\n" x 200000);
my $said = '';
my $hostile = IPC::Run::start([ 'psql', '-XAtq', '-d', $node->connstr('other'), '-f', $script ], '<', \undef, '>', '/dev/null', '2>', '/dev/null');
ok(current(2000), 'rows that come are mirrored meanwhile');
ok(await('they are linked', sub { served("SELECT pending FROM gpuann_stats('items_v')") < 1000 }), 'and linked');
ok($hostile->pumpable, 'who tries to drop the database is at it still');
is(worker(), $worker, 'the worker has not left');
$hostile->kill_kill;

# Whoever may, succeeds: the worker leaves, and comes back.
$node->safe_psql('other', 'SET SESSION AUTHORIZATION heir; ALTER DATABASE served RENAME TO renamed');
$node->safe_psql('other', 'SET SESSION AUTHORIZATION heir; ALTER DATABASE renamed RENAME TO served');
ok(await('there is a worker again', sub { worker() ne '' }), 'renamed: a worker is back');
$node->safe_psql('other', 'SET SESSION AUTHORIZATION heir; CREATE DATABASE copy TEMPLATE served');
ok(await('there is a worker again', sub { worker() ne '' }), 'copied: a worker is back');
$node->safe_psql('other', 'DROP DATABASE copy');

# Whoever may, and fails, because somebody is there: the worker comes back although no row comes, and links what waits to be linked.
my $holder = PgSession->new($node, dbname => 'served');

sub comes_back
{
	my ($what, $fail) = @_;
	my ($before, $failed);

	current(10);
	ok(await('there is a worker', sub { ($before = worker()) ne '' }), "before it is $what: a worker is there");
	$fail->();
	$failed = time;
	ok(await('a worker is back', sub { worker() ne '' }), "$what: a worker is back");
	cmp_ok(time - $failed, '<', 20, sprintf('%s: after %.1f s', $what, time - $failed));
	isnt(worker(), $before, "$what: the one before had left");
}

comes_back('dropped while in use', sub {
	my ($rc, $out, $err) = $node->psql('other', 'DROP DATABASE served');
	like($err, qr/is being accessed by other users/, 'it is refused');
});
comes_back('cancelled', sub {
	my ($rc, $out, $err) = $node->psql('other', "SET statement_timeout = '1s'; ALTER DATABASE served RENAME TO taken");
	like($err, qr/canceling statement|is being accessed/, 'it is cancelled');
});
comes_back('ended', sub {
	my $session = PgSession->new($node, dbname => 'other');
	my $pid = $session->rows('SELECT pg_backend_pid()');

	$session->send('DROP DATABASE served');
	await('the worker has left', sub { worker() eq '' });
	$node->safe_psql('other', "SELECT pg_terminate_backend($pid)");
	$session->receive;
});
my $session = PgSession->new($node, dbname => 'other');
comes_back('refused in a subtransaction', sub {
	$session->rows('BEGIN');
	$session->rows('SAVEPOINT s');
	like($session->query('ALTER DATABASE served RENAME TO taken')->{error}, qr/is being accessed by other users/, 'it is refused');
	$session->rows('ROLLBACK TO s');
});
$session->rows('COMMIT');
ok(await('all is linked', sub { served("SELECT pending FROM gpuann_stats('items_v')") < 100 }), 'what is left pending is linked by the worker that is back');
$holder->close;

# Refused for what is not looked at before the workers are asked to leave.
comes_back('copied with another encoding', sub {
	my ($rc, $out, $err) = $node->psql('other', "CREATE DATABASE copy TEMPLATE served ENCODING 'LATIN1'");
	like($err, qr/is incompatible with the encoding of the template database|does not match locale/, 'it is refused');
});
comes_back('copied to nowhere', sub {
	my ($rc, $out, $err) = $node->psql('other', 'CREATE DATABASE copy TEMPLATE served TABLESPACE nowhere');
	like($err, qr/tablespace "nowhere" does not exist/, 'it is refused');
});
served("CREATE SUBSCRIPTION s CONNECTION 'dbname=none' PUBLICATION p WITH (connect = false)");
comes_back('dropped with a subscription', sub {
	my ($rc, $out, $err) = $node->psql('other', 'DROP DATABASE served');
	like($err, qr/is being used by logical replication subscription/, 'it is refused');
});
served('ALTER SUBSCRIPTION s SET (slot_name = NONE); DROP SUBSCRIPTION s');

# Renamed, and not committed: nobody can connect, and workers serve other databases meanwhile, even if there is only one.
$session->rows('BEGIN');
$session->rows('ALTER DATABASE served RENAME TO taken');
$node->safe_psql('postgres', 'SELECT gpuann_evict(\'items_v\')');
ok(await_mirror($node), 'another database is served while a rename is not committed');
$session->rows('ROLLBACK');
ok(await('a worker is back', sub { worker() ne '' }), 'rolled back: a worker is back');
$session->rows('BEGIN');
$session->rows('SAVEPOINT s');
$session->rows('ALTER DATABASE served RENAME TO taken');
$session->rows('ROLLBACK TO s');
ok(await('a worker is back', sub { worker() ne '' }), 'rolled back to a savepoint: a worker is back');
$session->rows('COMMIT');
$session->close;
is(served("SELECT state FROM pg_stat_gpuann"), 'ready', 'the mirror was kept all the time');

# Two databases renamed in one transaction, as by who swaps their names. A worker that were started in one of them would wait for the lock, and its
# slot would serve nobody.
$node->safe_psql('other', 'CREATE DATABASE second');
$session = PgSession->new($node, dbname => 'other');

sub nobody_waits
{
	my ($what, @statements) = @_;
	my $waiting = 0;

	$node->safe_psql('postgres', "SELECT gpuann_evict('items_v')");
	served("SELECT gpuann_evict('items_v'); SET enable_seqscan = off; SELECT id FROM items ORDER BY v <-> (SELECT v FROM items LIMIT 1) LIMIT 1");
	is($session->query($_)->{error}, '', "$what: $_") foreach 'BEGIN', @statements;
	foreach (1 .. 30)
	{
		$waiting += $node->safe_psql('postgres', "SELECT count(*) FROM pg_locks WHERE locktype = 'object' AND classid = 'pg_database'::regclass AND NOT granted");
		sleep 0.1;
	}
	is($waiting, 0, "$what: no worker waits for a database");
	ok(await_mirror($node), "$what: another database is served") if $waiting == 0;
	$session->rows('ROLLBACK');
	ok(await('a worker is back', sub { worker() ne '' }), "$what: a worker is back");
}

nobody_waits('two', 'ALTER DATABASE served RENAME TO taken', 'ALTER DATABASE second RENAME TO served');
nobody_waits('swapped', 'ALTER DATABASE served RENAME TO taken', 'ALTER DATABASE second RENAME TO served', 'ALTER DATABASE taken RENAME TO second');
nobody_waits('one of two undone', 'ALTER DATABASE served RENAME TO taken', 'SAVEPOINT s', 'ALTER DATABASE second RENAME TO served', 'ROLLBACK TO s');
nobody_waits('renamed twice, once undone', 'ALTER DATABASE served RENAME TO taken', 'SAVEPOINT s', 'ALTER DATABASE taken RENAME TO again', 'ROLLBACK TO s');
$session->close;
$node->stop;
done_testing();
