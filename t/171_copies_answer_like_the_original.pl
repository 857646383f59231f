# Copies of a cluster, a database or a table answer like the original: base backup under load, recovery to a named point between two
# batches, pg_rewind, pg_upgrade by links, dump and restore, CREATE DATABASE by either strategy, another tablespace under load.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use GpuannTest;
use PgSession;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $dims = 12;
my $node = new_node('original', streaming => 1, archiving => 1, preload => 'gpuann',
	conf => [ 'gpuann.engine = cpu', 'gpuann.pending_limit = 500', 'wal_log_hints = on', 'allow_in_place_tablespaces = on' ]);

# A copy: its own port and directory; a copy of a copy finds no archive.
sub start_copy
{
	my ($copy) = @_;

	$copy->append_conf('postgresql.conf', "archive_mode = off\n");
	$copy->start;
}

# Rows come, change and go until told to stop.
sub writer
{
	my ($base) = @_;
	my $session = PgSession->new($node);

	$session->send("DO \$\$ BEGIN FOR i IN $base .. $base + 1000000 LOOP
		INSERT INTO items VALUES (i, vec(i, $dims));
		IF i % 3 = 0 THEN UPDATE items SET v = vec(i + 1, $dims) WHERE id = i - 2; END IF;
		IF i % 5 = 0 THEN DELETE FROM items WHERE id = i - 4; END IF;
		COMMIT; END LOOP; END \$\$");
	return $session;
}

# A keeper: vacuums and links, again and again.
sub keeper
{
	my $session = PgSession->new($node);

	$session->send("DO \$\$ BEGIN FOR i IN 1 .. 1000000 LOOP PERFORM gpuann_link('items_v'), pg_sleep(0.02); COMMIT; END LOOP; END \$\$");
	return $session;
}

sub stop_sessions
{
	my @sessions = @_;
	my $other = PgSession->new($node);

	$other->rows("SELECT pg_terminate_backend($_)") foreach map { $_->pid } @sessions;
	foreach my $session (@sessions)
	{
		my $answer = $session->receive;
		like($answer->{error}, qr/^$|terminating connection/, 'a session worked until it was ended');
	}
	$other->close;
}

make_data($node, 3000, $dims, with => 'WITH (m = 8)');
fill_rows($node, 10001, 10400, $dims);

# ---- base backup under load, and recovery to named points ----

my @load = (writer(1000000), keeper());
$node->backup('hot');
$node->safe_psql('postgres', "VACUUM items");
stop_sessions(@load);

my $copy = PostgreSQL::Test::Cluster->new('hot_copy');
$copy->init_from_backup($node, 'hot', has_streaming => 0);
start_copy($copy);
right_after($copy, 'a base backup taken under load');
fill_rows($copy, 20001, 20100, $dims);
$copy->safe_psql('postgres', 'DELETE FROM items WHERE id % 4 = 0');
$copy->safe_psql('postgres', 'VACUUM items');
right_after($copy, 'a base backup, written to');
$copy->stop;

my %at;
foreach my $point ('one', 'two')
{
	fill_rows($node, $point eq 'one' ? 30001 : 40001, $point eq 'one' ? 30700 : 40700, $dims);
	$node->safe_psql('postgres', "DELETE FROM items WHERE noise(id, " . length($point) . ") < 0.2");
	$node->safe_psql('postgres', $point eq 'one' ? "SELECT gpuann_link('items_v')" : 'VACUUM items');
	$at{$point} = oracle_answers($node);
	$node->safe_psql('postgres', "SELECT pg_create_restore_point('$point')");
	fill_rows($node, 50001, 50050, $dims) if $point eq 'one';
	$node->safe_psql('postgres', "SELECT gpuann_link('items_v')");
}
# Recovery ends with an error where the archive ends before the point.
my $last = $node->safe_psql('postgres', 'SELECT pg_walfile_name(pg_current_wal_insert_lsn())');
$node->safe_psql('postgres', 'SELECT pg_switch_wal()');
$node->poll_query_until('postgres', "SELECT last_archived_wal >= '$last' FROM pg_stat_archiver") or die 'nothing is archived';
foreach my $point ('one', 'two')
{
	$copy = PostgreSQL::Test::Cluster->new("at_$point");
	$copy->init_from_backup($node, 'hot', has_restoring => 1, standby => 0);
	$copy->append_conf('postgresql.conf', "recovery_target_name = '$point'\nrecovery_target_action = 'promote'\n");
	start_copy($copy);
	$copy->poll_query_until('postgres', 'SELECT NOT pg_is_in_recovery()') or die 'no end of recovery';
	right_after($copy, "recovered to point $point");
	is(exact_answers($copy), $at{$point}, "recovered to point $point: the answers of then");
	fill_rows($copy, 60001, 60100, $dims);
	$copy->safe_psql('postgres', 'VACUUM items');
	right_after($copy, "recovered to point $point, written to");
	$copy->stop;
}

# ---- pg_rewind: an old primary follows its successor ----

$node->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('successor');
$standby->init_from_backup($node, 'base', has_streaming => 1);
start_copy($standby);
$node->wait_for_catchup($standby, 'replay', $node->lsn('insert'));
$standby->promote;
$standby->safe_psql('postgres', 'CHECKPOINT');
fill_rows($standby, 70001, 70500, $dims);
$standby->safe_psql('postgres', "SELECT gpuann_link('items_v')");
fill_rows($node, 80001, 80500, $dims);
$node->safe_psql('postgres', 'VACUUM items');
$node->stop;
my $settings = slurp_file($node->data_dir . '/postgresql.conf');
command_ok([ 'pg_rewind', '--no-sync', '--target-pgdata', $node->data_dir, '--source-server', $standby->connstr('postgres') ], 'pg_rewind');
unlink $node->data_dir . '/postgresql.conf';
PostgreSQL::Test::Utils::append_to_file($node->data_dir . '/postgresql.conf', $settings);
$node->enable_streaming($standby);
$node->start;
$standby->wait_for_catchup($node, 'replay', $standby->lsn('insert'));
check_index($node, 'rewound');
is(exact_answers($node), oracle_answers($standby), 'rewound: the answers of the successor');
$standby->stop;
$node->promote;
right_after($node, 'rewound, promoted');

# ---- databases and tablespaces ----

$node->safe_psql('postgres', 'CREATE DATABASE source TEMPLATE postgres');
foreach my $strategy ('wal_log', 'file_copy')
{
	$node->safe_psql('postgres', "CREATE DATABASE $strategy TEMPLATE source STRATEGY $strategy");
	my $answers = $node->safe_psql($strategy, qq{SET enable_seqscan = off; SET enable_sort = off;
		SELECT gpuann_check('items_v') IS NOT NULL, count(*) = count(DISTINCT id) AND count(*) = (SELECT count(*) FROM items)
		FROM (SELECT id FROM items ORDER BY v <-> vec(1, $dims)) s});
	is($answers, 't|t', "a database copied by $strategy");
	$node->safe_psql($strategy, "INSERT INTO items SELECT i, vec(i, $dims) FROM generate_series(90001, 90300) i; DELETE FROM items WHERE id % 2 = 0");
	$node->safe_psql($strategy, 'VACUUM items');
}
$node->stop('immediate');
$node->start;
foreach my $strategy ('wal_log', 'file_copy')
{
	is($node->safe_psql($strategy, qq{SET enable_seqscan = off; SET enable_sort = off;
		SELECT gpuann_check('items_v') IS NOT NULL, count(*) = count(DISTINCT id) AND count(*) = (SELECT count(*) FROM items)
		FROM (SELECT id FROM items ORDER BY v <-> vec(1, $dims)) s}), 't|t', "a database copied by $strategy, written to, after a crash");
}
$node->safe_psql('postgres', "CREATE TABLESPACE elsewhere LOCATION ''");
$node->safe_psql('postgres', 'ALTER DATABASE wal_log SET TABLESPACE elsewhere');
is($node->safe_psql('wal_log', "SET enable_seqscan = off; SELECT gpuann_check('items_v') IS NOT NULL, count(*)
	FROM (SELECT id FROM items ORDER BY v <-> vec(90001, $dims) LIMIT 10) s"), 't|10', 'a database in another tablespace');

@load = (writer(2000000), keeper());
foreach my $statement ('ALTER INDEX items_v SET TABLESPACE elsewhere', 'ALTER TABLE items SET TABLESPACE elsewhere', 'ALTER INDEX items_v SET TABLESPACE pg_default')
{
	my ($rc, $out, $err) = $node->psql('postgres', $statement);

	is($err, '', "$statement, under load");
	$node->safe_psql('postgres', 'VACUUM items');
}
stop_sessions(@load);
right_after($node, 'moved under load');
$node->stop('immediate');
$node->start;
right_after($node, 'moved under load, after a crash');

# ---- dump and restore, pg_upgrade ----

$node->safe_psql('postgres', 'CREATE DATABASE restored');
my $dump = $node->basedir . '/dump.sql';
command_ok([ 'pg_dump', '-f', $dump, $node->connstr('postgres') ], 'pg_dump');
command_ok([ 'psql', '-qX', '-v', 'ON_ERROR_STOP=1', '-f', $dump, $node->connstr('restored') ], 'restore');
is($node->safe_psql('restored', "SET enable_seqscan = off; SET gpuann.exact = on; SELECT array_agg(id) FROM (SELECT id FROM items ORDER BY v <-> vec(5, $dims) LIMIT 20) s"),
	$node->safe_psql('postgres', "SET enable_indexscan = off; SELECT array_agg(id) FROM (SELECT id FROM items ORDER BY v <-> vec(5, $dims) LIMIT 20) s"),
	'restored: the same answers');
is($node->safe_psql('restored', "SELECT gpuann_check('items_v') IS NOT NULL, reloptions FROM pg_class WHERE relname = 'items_v'"), 't|{m=8}', 'restored: the index');

# In-place tablespaces cannot be upgraded.
$node->safe_psql('postgres', "DROP DATABASE $_") foreach 'wal_log', 'restored';
$node->safe_psql('postgres', 'ALTER TABLE items SET TABLESPACE pg_default');
$node->safe_psql('postgres', 'DROP TABLESPACE elsewhere');
my $before = oracle_answers($node);
my $graph = graph_answers($node);
$node->stop;
my $upgraded = PostgreSQL::Test::Cluster->new('upgraded');
$upgraded->init(allows_streaming => 1);
$upgraded->append_conf('postgresql.conf', "shared_preload_libraries = 'gpuann'\ngpuann.engine = cpu\nfsync = off\nautovacuum = off\n");
my $bindir = $node->config_data('--bindir');
chdir $upgraded->basedir;
command_ok([ 'pg_upgrade', '--link', '-d', $node->data_dir, '-D', $upgraded->data_dir, '-b', $bindir, '-B', $bindir,
		'-s', $upgraded->host, '-p', $node->port, '-P', $upgraded->port ], 'pg_upgrade --link');
$upgraded->start;
is(graph_answers($upgraded), $graph, 'upgraded: the graph answers as before');
right_after($upgraded, 'upgraded');
is(exact_answers($upgraded), $before, 'upgraded: the exact answers of before');
fill_rows($upgraded, 95001, 95300, $dims);
$upgraded->safe_psql('postgres', 'VACUUM items');
right_after($upgraded, 'upgraded, written to');
my $query = "SELECT 1 FROM items ORDER BY v <-> vec(1, $dims) LIMIT 1; SELECT path FROM gpuann_last_scan()";
local $ENV{PGOPTIONS} = '-c enable_seqscan=off';
ok($upgraded->poll_query_until('postgres', $query, "1\nserver"), 'upgraded: the server answers');
is(exact_answers($upgraded, 'SET gpuann.server = on;'), oracle_answers($upgraded), 'upgraded: what the server answers is the table');
$upgraded->stop;

done_testing();
