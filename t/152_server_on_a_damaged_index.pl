# With the server on, a damaged index gives answers or errors that say where it is corrupted; server, launcher and workers go on, and
# other indexes are served. And gpuann_estimate says what mirrors take.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use DamageTest;
use GpuannTest;
use ServerTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = server_node('served', no_checksums => 1, conf => ["statement_timeout = '20s'", "gpuann.request_timeout = '2s'"]);
await_server($node);

# Estimates of mirrors, before the index is there.
foreach my $case ([ 20000, 32, 'vector', 'l2' ], [ 15000, 48, 'vector', 'cosine' ], [ 12000, 96, 'halfvec', 'ip' ])
{
	my ($rows, $dims, $type, $metric) = @$case;
	my $operator = { l2 => '<->', cosine => '<=>', ip => '<#>' }->{$metric};
	my ($built, $estimated);

	$node->safe_psql('postgres', "CREATE TABLE items (id int, v $type($dims));"
		  . "INSERT INTO items SELECT i, array_fill(i % 1000 + 1, ARRAY[$dims])::real[]::vector FROM generate_series(1, $rows) i;"
		  . "CREATE INDEX items_v ON items USING gpuann (v ${type}_${metric}_ops) WITH (m = 6, ef_construction = 12);"
		  . "SET enable_seqscan = off; SELECT id FROM items ORDER BY v $operator array_fill(1, ARRAY[$dims])::real[]::vector::$type LIMIT 1");
	ok(await_mirror($node), "$type, $metric: the mirror is ready");
	$built = figure($node, 'mirror_bytes');
	$estimated = $node->safe_psql('postgres', "SELECT mirror_bytes FROM gpuann_estimate($rows, $dims, '$type', '{m=6,ef_construction=12}', '$metric')");
	cmp_ok(abs($estimated / $built - 1), '<=', 0.05, "$type, $metric: the mirror's bytes are as estimated ($estimated, $built)");
	$node->safe_psql('postgres', 'DROP TABLE items');
}

make_data($node, 150, 16, with => 'WITH (m = 4, ef_construction = 16)');
$node->safe_psql('postgres', 'DELETE FROM items WHERE id % 10 = 0');
$node->safe_psql('postgres', 'VACUUM items');
fill_rows($node, 151, 160, 16);
my $template = keep_template($node, 'sound', 'items_v');
my ($node_page) = pages_of($template, NODE);
my ($list_page) = pages_of($template, LIST);
my ($seed_page) = pages_of($template, SEED);
my ($vector_page) = pages_of($template, VECTOR);
my ($live, $row) = (HEADER + 5 * RECORD, graph_row_at(5, 8));
my ($server, $launcher) = (server_pid($node), launcher_pid($node));

# What a session sees: a scan that wants a mirror, the mirror's fate, scans and changes afterwards.
my $scan = "SELECT count(*) FROM (SELECT id FROM items ORDER BY v <-> vec(1, 16) LIMIT 20) s;";
my @first = ([ 'want', "SET enable_seqscan = off; $scan" ]);
my @steps = (
	[ 'scan', "SET enable_seqscan = off; $scan" ],
	[ 'exact', "SET gpuann.exact = on; $scan RESET gpuann.exact;" ],
	[ 'insert', 'INSERT INTO items SELECT id + 10000, v FROM items WHERE id < 8;' ],
	[ 'link', "SELECT gpuann_link('items_v') >= 0;" ],
	[ 'drain', 'SELECT count(*) FROM (SELECT id FROM items ORDER BY v <-> vec(1, 16)) s;' ],
	[ 'vacuum', 'VACUUM items;' ]);

sub settled
{
	my ($said) = @_;
	my $state = $node->safe_psql('damaged', "SELECT string_agg(state, '') FROM pg_stat_gpuann");

	return $state =~ /ready|refused/;
}

sub serve
{
	my ($database) = @_;
	my $said = run_steps($node, $database, @first);
	my $more;

	# A worker that finds the damage tries again later, so do not wait for long.
	await_quietly(\&settled, 2) unless $said->{want} =~ /ERROR/;
	$more = run_steps($node, $database, @steps);
	return { %$said, %$more };
}

sub await_quietly
{
	my ($condition, $seconds) = @_;
	my $until = time + $seconds;

	until ($condition->() || time > $until)
	{
		select(undef, undef, undef, 0.05);
	}
}

foreach my $case (
	[ 'whole', 0, substr($template->{bytes}, 0, 1) ],
	[ 'the linked position', HEADER + 72, pack('Q<', 5) ],
	[ 'the page of seeds', $seed_page * PAGE, "\0" x PAGE ],
	[ 'a seed', $seed_page * PAGE + HEADER, pack('V', 0x7FFFFFF0) ],
	[ 'entries of the list', $list_page * PAGE + HEADER + 48, "\xFF" x 400 ],
	[ 'the count of a pending page', $list_page * PAGE + HEADER + 16, pack('V', 3000) ],
	[ 'the next fresh slot', $list_page * PAGE + HEADER + 32, pack('V', 1000000) ],
	[ 'an edge', $node_page * PAGE + $row, pack('V', 0x7FFFFFF0) ],
	[ 'all of a record', $node_page * PAGE + $live, "\xA5" x RECORD ],
	[ 'all of a graph row', $node_page * PAGE + $row, "\xA5" x 32 ],
	[ 'the kind of a node page', $node_page * PAGE + TAIL + 12, pack('v', VECTOR) ],
	[ 'the kind of a vector page', $vector_page * PAGE + TAIL + 12, pack('v', NODE) ],
	[ 'elements', $vector_page * PAGE + HEADER, "\xFF" x 1024 ])
{
	my ($what, $offset, $bytes) = @$case;
	my ($said) = with_damage($template, $offset, $bytes, \&serve);
	my @wrong = map { "$_: " . ($said->{$_} // 'did not run') } grep
	{
		!defined $said->{$_} || $said->{$_} =~ /server closed|FATAL|PANIC/
		  || $said->{$_} =~ /ERROR:  (?!XX002: index "items_v" is corrupted)/
	} map { $_->[0] } @first, @steps;

	is(join("\n", @wrong), '', "$what: answers, or errors that name the place");
}
is(server_pid($node) . ' ' . launcher_pid($node), "$server $launcher", 'server and launcher are those of the beginning');
$node->safe_psql('postgres', "SET enable_seqscan = off; $scan");
ok(await_mirror($node), 'a sound index is served');
is($node->safe_psql('postgres', "SET enable_seqscan = off; SET gpuann.fallback = error; $scan"), '20', 'and answered');
$node->stop;

done_testing();
