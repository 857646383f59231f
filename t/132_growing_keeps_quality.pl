# Linking keeps quality: an index that grew from a tenth in batches of a hundredth answers about as well as one built at once,
# whether linked over pages, in memory or through the server, in random order or cluster by cluster. Every row can be reached.
#
# GPUANN_LONG=1 (make check-long) grows 100,000 rows to 1,000,000. GPUANN_PART=id or GPUANN_PART=cluster leaves out the other order.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib $FindBin::RealBin;
use GpuannTest;
use GraphTest;
use ServerTest;
use Test::More;

my $long = $ENV{GPUANN_LONG};
my $part = $ENV{GPUANN_PART} // '';
my $begun = time;
my ($rows, $dims, $clusters, $queries, $ef) = $long ? (1_000_000, 64, 1000, 500, 40) : (8_000, 32, 20, 400, 10);
my $noise = $long ? 0.005 : 0.01;	# of recalls by so many queries: linking in other pieces gives another graph
my $batch = $rows / 100;
my $memory = $long ? '4GB' : '256MB';
my $node = server_node('grow', conf => [ 'gpuann.pending_limit = 100000000', 'shared_buffers = 128MB', 'max_wal_size = 20GB' ]);

make_source($node, $rows + $queries, $dims, $clusters);

# The table's rows in this order, from n on so many.
sub rows_in_order
{
	my ($order, $from, $count) = @_;

	return "SELECT id, v FROM source WHERE id <= $rows ORDER BY $order LIMIT $count OFFSET $from";
}

# Grow the table; link is called after each batch.
sub grow
{
	my ($order, $step, $link) = @_;

	$node->safe_psql('postgres', "DROP TABLE IF EXISTS items; CREATE TABLE items (id int, v vector($dims));"
		  . "INSERT INTO items " . rows_in_order($order, 0, $rows / 10)
		  . "; SET maintenance_work_mem = '$memory'; CREATE INDEX items_v ON items USING gpuann (v vector_l2_ops)");
	for (my $from = $rows / 10; $from < $rows; $from += $step)
	{
		$link->("INSERT INTO items " . rows_in_order($order, $from, $step));
	}
}

# All batches in one session, each linked with so much memory.
sub linked_by_hand
{
	my ($order, $link_memory) = @_;
	my @statements;

	grow($order, $batch, sub { push @statements, @_, "SELECT gpuann_link('items_v')" });
	$node->safe_psql('postgres', join(";\n", 'SET gpuann.server = off', "SET maintenance_work_mem = '$link_memory'", @statements));
}

sub linked_by_the_server
{
	my ($order) = @_;
	my $step = $rows / 8;

	grow($order, $step, sub {
		await_mirror($node);
		$node->safe_psql('postgres', $_[0]);
		await('the worker has linked them', sub { pending_rows($node) < 100 }, $long ? 3600 : 180);
	});
}

foreach my $order ('id', 'cluster, id')
{
	my $fresh;

	next if $order !~ /^$part/;

	$node->safe_psql('postgres', "DROP TABLE IF EXISTS items; CREATE TABLE items (id int, v vector($dims));"
		  . "INSERT INTO items " . rows_in_order($order, 0, $rows)
		  . "; SET maintenance_work_mem = '$memory'; CREATE INDEX items_v ON items USING gpuann (v vector_l2_ops)");
	make_queries($node, $rows, $queries);
	$fresh = recall($node, $ef);
	note("order $order: fresh $fresh, after " . (time - $begun) . ' s');
	like(unreached($node, 'items_v'), qr/^$rows 0 /, "order by $order: built at once, every row can be reached");

	foreach my $way ([ 'over pages', sub { linked_by_hand($order, $long ? '64MB' : '2MB') } ], [ 'in memory', sub { linked_by_hand($order, $memory) } ],
		[ 'through the server', sub { linked_by_the_server($order) } ])
	{
		my ($name, $build) = @$way;

		$build->();
		my $grown = recall($node, $ef);
		note("order $order, $name: after " . (time - $begun) . ' s');
		cmp_ok($grown, '>=', $fresh - $noise, "order by $order, linked $name: recall $grown, of a fresh build $fresh");
		check_index($node, "order by $order, linked $name");
		next if $name eq 'through the server';
		like(unreached($node, 'items_v'), qr/^$rows 0 /, "order by $order, linked $name: every row can be reached");
	}
}
$node->stop;

done_testing();
