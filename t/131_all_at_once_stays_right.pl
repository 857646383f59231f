# Inserts, updates, deletes, vacuums, links, rebuilds, checks and scans of several sessions at once: no error, nothing lost, nothing
# twice, and the nearest rows are found afterwards; from pages alone, and with server and mirror worker.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use GpuannTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $dims = 16;
my $seconds = 10;

# Each script in one client or two, for the same time.
my %scripts = (
	insert => "\\set id random(100000, 999999)\nINSERT INTO items VALUES (:id, vec(:id, $dims)) ON CONFLICT DO NOTHING;\n",
	update => "\\set id random(1, 1500)\nUPDATE items SET v = vec(:id + (random() * 100)::int, $dims) WHERE id = :id;\n",
	delete => "\\set id random(100000, 999999)\nDELETE FROM items WHERE id >= :id AND id < :id + 4000;\n",
	vacuum => "VACUUM items;\n\\sleep 100 ms\n",
	# The index that the name meant may have been replaced once a function gets to it. The lock keeps rebuilds from dropping it.
	link => "DO \$\$ BEGIN LOCK TABLE items IN ROW EXCLUSIVE MODE; PERFORM gpuann_link('items_v');"
	  . " EXCEPTION WHEN object_not_in_prerequisite_state THEN NULL; END \$\$;\n\\sleep 70 ms\n",
	scan => "\\set id random(1, 1500)\n"
	  . "SELECT 1 / (count(*) = 15 AND count(DISTINCT ctid) = 15)::int FROM (SELECT ctid FROM items ORDER BY v <-> vec(:id, $dims) LIMIT 15) s;\n",
	drain => "SELECT 1 / (count(*) = (SELECT count(*) FROM items WHERE v IS NOT NULL))::int"
	  . " FROM (SELECT ctid FROM items ORDER BY v <-> vec(1, $dims)) s;\n\\sleep 200 ms\n",
	own => "\\set id random(1000000, 9999999)\nBEGIN;\nINSERT INTO items VALUES (:id, vec(:id, $dims)) ON CONFLICT DO NOTHING;\n"
	  . "SELECT 1 / (count(*) = 1)::int FROM (SELECT id, v FROM items ORDER BY v <-> vec(:id, $dims) LIMIT 1) s WHERE v = vec(:id, $dims);\nCOMMIT;\n",
	# A rebuild waits for snapshots older than its own: whoever waits for the table's lock with one must give up first.
	check => "DO \$\$ BEGIN SET LOCAL lock_timeout = '80ms'; LOCK TABLE items IN SHARE MODE; SET LOCAL lock_timeout = 0;"
	  . " PERFORM gpuann_check('items_v'); EXCEPTION WHEN lock_not_available THEN NULL; END \$\$;\n\\sleep 300 ms\n",
	rebuild => "REINDEX INDEX CONCURRENTLY items_v;\n\\sleep 1 s\n",
	merge => "BEGIN;\n\\set id random(1, 1500)\nSAVEPOINT a;\nUPDATE items SET v = vec(:id + 7, $dims) WHERE id = :id;\nROLLBACK TO a;\n"
	  . "UPDATE items SET id = id WHERE id = :id;\nEND;\n\\sleep 20 ms\n",
);
my $directory = PostgreSQL::Test::Utils::tempdir();

PostgreSQL::Test::Utils::append_to_file("$directory/$_.sql", $scripts{$_}) foreach keys %scripts;

# Run all scripts at once and look at how each went.
sub storm
{
	my ($node, $where) = @_;
	my (%running, %output);

	local $ENV{PGOPTIONS} = '-c enable_seqscan=off -c enable_sort=off';
	foreach my $script (sort keys %scripts)
	{
		$output{$script} = '';
		$running{$script} = IPC::Run::start(
			[ 'pgbench', '-n', '-c', $script eq 'insert' ? 2 : 1, '-T', $seconds, '-f', "$directory/$script.sql",
				$node->connstr('postgres') ],
			'>', \$output{$script}, '2>&1');
	}
	foreach my $script (sort keys %scripts)
	{
		$running{$script}->finish;
		my ($done) = $output{$script} =~ /transactions actually processed: (\d+)/;

		ok(!$running{$script}->result(0) && $output{$script} !~ /ERROR|FATAL|aborted/, "$where: no session failed: $script")
		  or diag($output{$script});
		cmp_ok($done // 0, '>', 0, "$where: it did its work");
		note(($done // 0) . " times $script");
	}
}

foreach my $where ('pages', 'server')
{
	my $node = new_node("storm_$where",
		preload => $where eq 'server' ? 'gpuann' : '',
		conf => [ 'gpuann.pending_limit = 300', "deadlock_timeout = '300ms'",
			$where eq 'server' ? 'gpuann.engine = cpu' : '' ]);

	make_data($node, 1500, $dims);
	$node->safe_psql('postgres', 'CREATE UNIQUE INDEX ON items (id)');
	storm($node, $where);
	right_after($node, "$where, after the storm");
	if ($where eq 'server')
	{
		local $ENV{PGOPTIONS} = '-c enable_seqscan=off';
		my $query = "SELECT 1 FROM items ORDER BY v <-> vec(1, $dims) LIMIT 1; SELECT path FROM gpuann_last_scan()";

		ok($node->poll_query_until('postgres', $query, "1\nserver"), 'the server answers again');
		is(exact_answers($node, 'SET gpuann.server = on;'), oracle_answers($node), 'what the server answers is the table');
		cmp_ok($node->safe_psql('postgres', 'SELECT server_answers FROM pg_stat_gpuann'), '>', 0, 'the server answered in the storm');
	}
	$node->safe_psql('postgres', 'VACUUM items');
	right_after($node, "$where, after the storm, vacuumed");
	cmp_ok(recall($node), '>=', 0.95, "$where: recall after the storm");
	is($node->safe_psql('postgres', "SELECT string_agg(indexrelid::regclass::text, ' ') FROM pg_index WHERE NOT indisvalid"), '', "$where: no rebuild has failed");
	$node->stop;
}

done_testing();
