# Databases are dropped, by force too, renamed, moved and copied while mirrors of theirs are resident, being loaded and being searched: the
# command waits for nobody of ours, a copy's mirrors answer with the copy's rows, and nothing of a dropped database stays. I1, I5.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use CrowdTest;
use GpuannTest;
use PgSession;
use PostgreSQL::Test::Cluster;
use ServerTest;
use Test::More;
use Time::HiRes qw(sleep time);

my $node = server_node('main', conf => [ 'gpuann.max_workers = 2' ]);
my $most = 120;				# seconds that a command may take, on a slow and busy machine

# A database whose copies have everything.
make_crowd_functions($node);
$node->safe_psql('postgres', make_crowd_table('items'));
$node->safe_psql('postgres', 'CREATE DATABASE pattern TEMPLATE postgres');
ok(await_server($node), 'there is a server');
my $none = status($node, 'memory_used');

# Run a command in "postgres"; its error and how long it took.
sub timed
{
	my ($sql) = @_;
	my $begun = time;
	my ($rc, $out, $err) = $node->psql('postgres', $sql);

	return ($err, time - $begun);
}

sub done_soon
{
	my ($sql, $what) = @_;
	my ($error, $seconds) = timed($sql);

	is($error, '', "$what: $sql");
	cmp_ok($seconds, '<', $most, sprintf('%s: it takes %.1f s', $what, $seconds));
}

# Wait until the mirror of a database is in a state.
sub mirror_is
{
	my ($database, $state) = @_;

	return await("the mirror in $database is $state", sub {
		$node->safe_psql($database, "SET enable_seqscan = off; SELECT id FROM items ORDER BY v <-> (SELECT query FROM crowd_answers LIMIT 1) LIMIT 1");
		return $node->safe_psql($database, "SELECT state FROM pg_stat_gpuann WHERE indexrelname = 'items_v'") =~ /^(?:$state)$/;
	});
}

sub worker_in
{
	my ($database) = @_;

	return await("a worker is in $database", sub {
		$node->safe_psql('postgres', "SELECT count(*) FROM pg_stat_activity WHERE datname = '$database' AND backend_type = 'gpuann mirror worker'") > 0;
	});
}


my %state = (
	resident => sub { mirror_is($_[0], 'ready') },
	wanted => sub { $node->safe_psql($_[0], "SET enable_seqscan = off; SELECT id FROM items ORDER BY v <-> (SELECT query FROM crowd_answers LIMIT 1) LIMIT 1"); 1 },
	'being served' => sub { mirror_is($_[0], 'ready') && $node->safe_psql($_[0], 'UPDATE items SET id = id WHERE id % 10 = 0') eq '' && worker_in($_[0]) },
);

# DROP DATABASE, with and without FORCE, in each state of a mirror.
foreach my $how ('', ' WITH (FORCE)')
{
	foreach my $state (sort keys %state)
	{
		done_soon('CREATE DATABASE victim TEMPLATE pattern', "before a drop$how");
		ok($state{$state}->('victim'), "the mirror is $state");
		done_soon("DROP DATABASE victim$how", "mirror $state");
	}
}

# A mirror that is still being loaded: a larger one.
done_soon('CREATE DATABASE victim TEMPLATE pattern', 'before a drop while loading');
$node->safe_psql('victim', "CREATE TABLE large AS SELECT i AS id, (SELECT array_agg((i * 7919 + j * 104729) % 997) FROM generate_series(1, 400) j)::vector(400) AS v FROM generate_series(1, 4000) i;
	SET gpuann.server = off; CREATE INDEX large_v ON large USING gpuann (v vector_l2_ops) WITH (m = 4, ef_construction = 8)");
$node->safe_psql('victim', "SET enable_seqscan = off; SELECT id FROM large ORDER BY v <-> (SELECT v FROM large LIMIT 1) LIMIT 1");
done_soon('DROP DATABASE victim', 'mirror on its way');

# While it is searched: without FORCE refused, and nobody is disturbed; with it the sessions go, and nobody else.
done_soon('CREATE DATABASE victim TEMPLATE pattern', 'before a drop under queries');
ok(mirror_is('victim', 'ready'), 'the mirror is ready');
my $bystanders = start_crowd($node, tables => ['items'], sessions => 2);
my $crowd = start_crowd($node, tables => ['items'], sessions => 2, dbname => 'victim', endless => 1);
my ($error, $seconds) = timed('DROP DATABASE victim');
like($error, qr/database "victim" is being accessed by other users/, 'a database in use is not dropped');
my $answered = $node->safe_psql('victim', 'SELECT sum(server_answers) FROM pg_stat_gpuann');
ok(await('they are served', sub { $node->safe_psql('victim', 'SELECT sum(server_answers) FROM pg_stat_gpuann') > $answered + 20 }),
	'its sessions go on, with its worker');
done_soon('DROP DATABASE victim WITH (FORCE)', 'searched');
crowd_was_ended($crowd, 'in the dropped database');
crowd_is_right($bystanders, 'in another database');

# Nothing of them is left.
ok(await('the memory is free', sub { $node->safe_psql('postgres', "SELECT gpuann_evict('items_v')"); status($node, 'memory_used') <= $none }), 'their memory is free');
ok(await('the mirrors are gone', sub { status($node, 'mirrors_ready + mirrors_loading') == 0 }), 'no mirror is left');

# Copies: of a database whose mirror is resident and whose worker is at work; each answers with its own rows.
ok($state{'being served'}->('pattern'), 'the pattern is being served');
done_soon('CREATE DATABASE copy TEMPLATE pattern', 'copied while served');
$node->safe_psql('copy', 'TRUNCATE items; ' . fill_crowd_table('items', 7));
$node->safe_psql('pattern', 'UPDATE items SET id = id + 300000');
ok(mirror_is($_, 'ready'), "$_ has a mirror") foreach 'pattern', 'copy';
$crowd = start_crowd($node, tables => ['items'], sessions => 2, dbname => 'copy');
my $others = start_crowd($node, tables => ['items'], sessions => 2, dbname => 'pattern');
ok(await('both are served', sub {
	2 == grep { $node->safe_psql($_, 'SELECT server_answers > 30 FROM pg_stat_gpuann') eq 't' } 'copy', 'pattern' }), 'both are searched in mirrors of their own');
crowd_is_right($crowd, 'the copy');
crowd_is_right($others, 'the original');
is($node->safe_psql($_, "SET enable_seqscan = off; SET gpuann.exact = on; SET gpuann.fallback = error;
	SELECT DISTINCT id / 100000 FROM (SELECT id FROM items ORDER BY v <-> (SELECT query FROM crowd_answers WHERE q = 1) LIMIT 10) n"),
	{ copy => 7, pattern => 3 }->{$_}, "$_: the server answers with its rows") foreach 'copy', 'pattern';

# With either strategy, while its worker has something to do.
foreach my $strategy ('wal_log', 'file_copy')
{
	$node->safe_psql('pattern', 'UPDATE items SET id = id WHERE id % 3 = 0');
	done_soon("CREATE DATABASE copy2 TEMPLATE pattern STRATEGY $strategy", 'copied again');
	ok(mirror_is('copy2', 'ready'), "$strategy: the copy has a mirror");
	is($node->safe_psql('copy2', "SET enable_seqscan = off; SET gpuann.exact = on; SET gpuann.fallback = error;
		SELECT array_agg(id % 100000) = (SELECT ids FROM crowd_answers WHERE q = 5)
		FROM (SELECT id FROM items ORDER BY v <-> (SELECT query FROM crowd_answers WHERE q = 5) LIMIT 10) n"), 't', "$strategy: it answers rightly");
	done_soon('ALTER DATABASE copy2 RENAME TO copy3', 'renamed');
	ok(mirror_is('copy3', 'ready'), "$strategy: the mirror goes on");
	done_soon('DROP DATABASE copy3', 'dropped');
}
# Moved to other files, by names that the mirror knew it under before, and back.
my $session = PgSession->new($node);
$session->rows('SET allow_in_place_tablespaces = on');
$session->rows("CREATE TABLESPACE elsewhere LOCATION ''");
ok($state{'being served'}->('copy'), 'the copy is being served');
foreach my $tablespace ('elsewhere', 'pg_default')
{
	done_soon("ALTER DATABASE copy SET TABLESPACE $tablespace", 'moved');
	ok(mirror_is('copy', 'ready'), "moved to $tablespace: there is a mirror");
	is($node->safe_psql('copy', "SET enable_seqscan = off; SET gpuann.exact = on; SET gpuann.fallback = error;
		SELECT array_agg(id % 100000) = (SELECT ids FROM crowd_answers WHERE q = 9)
		FROM (SELECT id FROM items ORDER BY v <-> (SELECT query FROM crowd_answers WHERE q = 9) LIMIT 10) n"), 't', "moved to $tablespace: it answers rightly");
}
$session->close;
is(status($node, 'restarts'), 0, 'the server has lived through all of it');
is(log_count($node, qr/(?:ERROR|FATAL|PANIC|TRAP):(?!.*being accessed by other users|.*administrator command)/), 0, 'the log has no other error');
$node->stop;
done_testing();
