# While a mirror follows inserts, linkers and VACUUM, every committed row is found at once by the server's answers: what the mirror does not
# have yet is added from the list. Afterwards the mirror has everything, without being told again: rows, deaths, edges and seeds of three superblocks, of
# which two go to the mirror at once. I3.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use GpuannTest;
use PgSession;
use ServerTest;
use Test::More;

my $dims = 64;
my $node = server_node('main');

make_data($node, 3000, $dims, with => 'WITH (m = 32)');
ok(await_mirror($node), 'there is a mirror');
my $writer = PgSession->new($node, settings => '-c enable_seqscan=off -c gpuann.fallback=error -c gpuann.ef_search=400');
my $keeper = PgSession->new($node);
my ($missed, $failed) = (0, '');

# Insert rows one by one, or in crowds that are worth a pass of the linker, and look for each at once.
sub insert_and_look
{
	my ($id, $count) = @_;
	my $last = $id + $count - 1;

	$writer->rows("INSERT INTO items SELECT i, vec(i, $dims) FROM generate_series($id, $last) i");
	my $answer = $writer->query("SELECT id FROM items ORDER BY v <-> (SELECT v FROM items WHERE id = $last) LIMIT 1");
	$failed = $answer->{error} if $answer->{error} ne '';
	$missed++ if join('', @{ $answer->{rows} }) ne $last;
}

my $id = 10001;
foreach my $round (1 .. 6)
{
	insert_and_look($id, 400);
	$id += 400;
	$keeper->send($round % 3 == 0 ? "SELECT gpuann_link('items_v')" : $round % 3 == 1 ? 'SELECT 1' : 'VACUUM items');
	foreach (1 .. 40)
	{
		insert_and_look($id++, 1);
	}
	$keeper->receive;
	$keeper->rows("DELETE FROM items WHERE id < $id - 20 AND id % 7 = $round");
}
is($failed, '', 'the server answers all the time');
is($missed, 0, 'every row is found at once');
ok(await('the mirror is current', sub { figure($node, "mirror_lag || ' ' || mirror_change_lag") eq '0 0' }), 'the mirror comes to the end of the list, and to the last change');
is(figure($node, 'mirror_changes') > 0, 1, 'there were changes');
is(by_server($node, 'SET gpuann.exact = on;'), by_table($node), 'and its answers are the table\'s');
same_graph_answers($node, $node, 'its graph answers are the pages\'');
$writer->rows('DELETE FROM items WHERE id % 3 = 0');
$keeper->rows('VACUUM items');
ok(await('the mirror is current', sub { figure($node, "mirror_lag || ' ' || mirror_change_lag") eq '0 0' }), 'the mirror follows when a third dies');
same_graph_answers($node, $node, 'and its graph answers are the pages\' again');

# Slots that are used again, by rows that look as those before them did.
foreach my $round (1 .. 3)
{
	$writer->rows('UPDATE items SET v = v WHERE id % 5 = 0');
	$keeper->rows('VACUUM items');
	$keeper->rows("SELECT gpuann_link('items_v')");
}
ok(await('the mirror is current', sub { figure($node, "mirror_lag || ' ' || mirror_change_lag") eq '0 0' }), 'the mirror follows when slots are used again');
same_graph_answers($node, $node, 'and its graph answers are the pages\' once more');
is(by_server($node, 'SET gpuann.exact = on;'), by_table($node), 'its exact answers are the table\'s');
# gpuann_link has the worker link, for the server has the graph in memory; where no server is asked the session links itself.
my $linker = PgSession->new($node);
$linker->rows("SET gpuann.fault = 'link-computed error'");
insert_and_look($id, 50);
$id += 50;
is($linker->rows("SELECT gpuann_link('items_v')"), '50', 'the worker links what a session wants to be linked');
is($node->safe_psql('postgres', "SELECT pending FROM gpuann_stats('items_v')"), '0', 'all of it');
insert_and_look($id, 50);
$id += 50;
$linker->rows('SET gpuann.server = off');
like($linker->query("SELECT gpuann_link('items_v')")->{error}, qr/link-computed/, 'without a server the session links itself');
$linker->rows('RESET gpuann.fault');
is($linker->rows("SELECT gpuann_link('items_v')"), '50', 'as many rows');
# Rows that come fast are linked in the mirror before there are enough to write. The server dies with them: nobody waits for the linker lock, and all is as before.
sub open_pass
{
	my $held = sub { $node->safe_psql('postgres', "SELECT count(*) FROM pg_locks WHERE locktype = 'object' AND objid = 'items_v'::regclass AND objsubid = 1") };

	return await('rows are linked as they come', sub { insert_and_look($id, 30); $id += 30; return $held->() > 0 });
}

($missed, $failed) = (0, '');
ok(open_pass(), 'rows are linked as they come');
insert_and_look($id++, 1) foreach (1 .. 20);
is("$missed $failed", '0 ', 'and found at once');
ok(await('the pass ends', sub { $node->safe_psql('postgres', "SELECT count(*) FROM pg_locks WHERE locktype = 'object' AND objid = 'items_v'::regclass AND objsubid = 1") eq '0' }), 'they are written when no more come');
ok(await('the mirror is current', sub { figure($node, "mirror_lag || ' ' || mirror_change_lag") eq '0 0' }), 'the mirror has them all');
same_graph_answers($node, $node, 'its graph answers are the pages\'');
ok(open_pass(), 'once more');
my $pid = server_pid($node);
kill 'KILL', $pid;
is($keeper->query('VACUUM items')->{error}, '', 'the server dies, and VACUUM gets the lock');
ok(await('another server', sub { server_pid($node) ne $pid && await_mirror($node) }), 'another server has a mirror');
ok(await('the mirror is current', sub { figure($node, "mirror_lag || ' ' || mirror_change_lag") eq '0 0' }), 'with what the pages have');
same_graph_answers($node, $node, 'its graph answers are the pages\'');
is(by_server($node, 'SET gpuann.exact = on;'), by_table($node), 'its exact answers are the table\'s');
$node->stop;
done_testing();
