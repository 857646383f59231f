# Linking keeps quality: an index that grew from a tenth in batches of a hundredth answers about as well as one built at once,
# whether linked over pages, in memory or through the server, in random order or cluster by cluster. Every row can be reached.
#
# GPUANN_LONG=1 (make check-long) grows 100,000 rows to 1,000,000. GPUANN_PART=id or GPUANN_PART=cluster leaves out the other order,
# GPUANN_PART=id/pages (memory, server) the other ways to link too.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib $FindBin::RealBin;
use GpuannTest;
use GraphTest;
use PgSession;
use ServerTest;
use Test::More;

my $long = $ENV{GPUANN_LONG};
my ($order_part, $way_part) = split m{/}, ($ENV{GPUANN_PART} // '') . '/', 3;
my $begun = time;
my ($rows, $dims, $clusters, $queries, $ef) = $long ? (1_000_000, 64, 1000, 2000, 40) : (8_000, 32, 20, 400, 10);
my $noise = $long ? 0.005 : 0.01;	# of recalls by so many queries: linking in other pieces gives another graph
my $batch = $rows / 100;
my $memory = $long ? '4GB' : '256MB';
my $node = server_node('grow', conf => [ 'gpuann.pending_limit = 100000000', 'shared_buffers = ' . ($long ? '1GB' : '128MB'), 'max_wal_size = 4GB',
		'max_parallel_maintenance_workers = ' . ($long ? processors() - 1 : 2) ]);

# What has been done, and when.
sub told
{
	note(join(' ', @_) . ': after ' . (time - $begun) . ' s');
}

make_source($node, $rows + $queries, $dims, $clusters);
make_queries($node, $rows, $queries, "(SELECT id, v FROM source WHERE id <= $rows) s");
told('rows and queries');

# Table ordered: the rows by their places in this order.
sub put_in_order
{
	my ($order) = @_;

	$node->safe_psql('postgres', "DROP TABLE IF EXISTS ordered; SET work_mem = '1GB';
		CREATE TABLE ordered AS SELECT row_number() OVER (ORDER BY $order) AS place, id, v FROM source WHERE id <= $rows;
		CREATE INDEX ON ordered (place); ANALYZE ordered");
}

# The rows from a place on, so many.
sub rows_from
{
	my ($from, $count) = @_;

	return "SELECT id, v FROM ordered WHERE place > $from AND place <= $from + $count ORDER BY place";
}

sub make_index
{
	my ($count) = @_;

	$node->safe_psql('postgres', "DROP TABLE IF EXISTS items; CREATE TABLE items (id int, v vector($dims)); INSERT INTO items " . rows_from(0, $count)
		  . "; SET maintenance_work_mem = '$memory'; CREATE INDEX items_v ON items USING gpuann (v vector_l2_ops)");
}

# Grow the table; link is called after each batch.
sub grow
{
	my ($step, $link) = @_;

	make_index($rows / 10);
	for (my $from = $rows / 10; $from < $rows; $from += $step)
	{
		$link->("INSERT INTO items " . rows_from($from, $step));
		told("grown to " . ($from + $step)) if ($from + $step) % ($rows / 10) < $step;
	}
}

# All batches in one session, each linked with so much memory.
sub linked_by_hand
{
	my ($link_memory) = @_;
	my $session = PgSession->new($node);

	$session->rows("SET gpuann.server = off; SET maintenance_work_mem = '$link_memory'");
	grow($batch, sub { $session->rows($_[0]); $session->rows("SELECT gpuann_link('items_v')") });
	$session->close;
}

sub linked_by_the_server
{
	grow($rows / 8, sub {
		await_mirror($node);
		$node->safe_psql('postgres', $_[0]);
		await('the worker has linked them', sub { pending_rows($node) < 100 }, $long ? 3600 : 180);
	});
}

foreach my $order ('id', 'cluster, id')
{
	my $fresh;

	next if index($order, $order_part) != 0;

	put_in_order($order);
	make_index($rows);
	$fresh = recall($node, $ef);
	told("order $order: fresh $fresh");
	like(unreached($node, 'items_v'), qr/^$rows 0 /, "order by $order: built at once, every row can be reached");

	foreach my $way ([ 'over pages', sub { linked_by_hand($long ? '64MB' : '2MB') } ], [ 'in memory', sub { linked_by_hand($memory) } ],
		[ 'through the server', \&linked_by_the_server ])
	{
		my ($name, $build) = @$way;

		next if index($name, $way_part) < 0;

		$build->();
		my $grown = recall($node, $ef);
		told("order $order, $name");
		cmp_ok($grown, '>=', $fresh - $noise, "order by $order, linked $name: recall $grown, of a fresh build $fresh");
		check_index($node, "order by $order, linked $name");
		next if $name eq 'through the server';
		like(unreached($node, 'items_v'), qr/^$rows 0 /, "order by $order, linked $name: every row can be reached");
	}
}
$node->stop;

pass('everything wanted was done');
done_testing();
