# gpuann_check keeps no writer of the table out, and what goes on beside it is no damage: inserts, updates, deletes, in new and in used
# slots, over pending pages that succeed each other. With heapallindexed too.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use GpuannTest;
use PgSession;
use PostgreSQL::Test::Cluster;
use Test::More;

my $dims = 200;
my $node = new_node('beside', streaming => 1);
my $standby = PostgreSQL::Test::Cluster->new('replaying');

make_data($node, 600, $dims, with => 'WITH (m = 4, ef_construction = 8)');
$node->safe_psql('postgres', 'DELETE FROM items WHERE id % 2 = 0; ');
$node->safe_psql('postgres', 'VACUUM items') foreach 1 .. 2;
$node->backup('base');
$standby->init_from_backup($node, 'base', has_streaming => 1);
$standby->start;

# A transaction that has written holds no check up, nor does a check wait for it.
my $open = PgSession->new($node);
$open->query('BEGIN');
is($open->query('INSERT INTO items SELECT 100000, v FROM items LIMIT 1')->{error}, '', 'a transaction has written');
check_index($node, 'beside an open transaction');
$open->query('COMMIT');
$open->close;

my $write = qq{DO \$\$ BEGIN FOR i IN 1 .. 900 LOOP
	INSERT INTO items SELECT i + 10000, vec(i, $dims);
	IF i % 3 = 0 THEN UPDATE items SET v = vec(i + 1, $dims) WHERE id = i; DELETE FROM items WHERE id = i + 1; END IF;
	COMMIT; END LOOP; END \$\$};
my @writers = map { in_background($node, 'SET gpuann.pending_limit = 1000000', $write) } 1 .. 3;
my $checks = 0;
my $failed = '';
while (grep { $_->pumpable } @writers)
{
	my ($rc, $out, $err) = $node->psql('postgres', "SELECT gpuann_check('items_v', " . ($checks % 2 ? 'true' : 'false') . ')');

	$failed .= $err;
	($rc, $out, $err) = $standby->psql('postgres', "SELECT gpuann_check('items_v', true)");
	# A snapshot there may be in the way of what VACUUM has removed.
	$failed .= "standby: $err" if $err ne '' && $err !~ /conflict with recovery/;
	$node->safe_psql('postgres', $checks % 4 == 1 ? 'VACUUM items' : "SELECT gpuann_link('items_v')") if $checks % 2;
	$checks++;
	$_->pump_nb foreach grep { $_->pumpable } @writers;
}
$_->finish foreach @writers;
is($failed, '', 'beside writers no check finds damage');
cmp_ok($checks, '>', 1, "there were several ($checks)");
right_after($node, 'written');
$node->wait_for_catchup($standby, 'replay', $node->lsn('insert'));
is($standby->psql('postgres', "SELECT gpuann_check('items_v', true)"), 0, 'nor on the standby afterwards');

# What only the table can tell: a row that is not in the index, one that is there with another vector.
my $error = sub { my ($rc, $out, $err) = $node->psql('postgres', "SELECT gpuann_check('items_v', true)"); return $err };
is($error->(), '', 'index and table agree');
$node->safe_psql('postgres', "UPDATE pg_index SET indisready = false, indisvalid = true WHERE indexrelid = 'items_v'::regclass");
$node->safe_psql('postgres', "INSERT INTO items SELECT 777777, v FROM items LIMIT 1");
$node->safe_psql('postgres', "UPDATE pg_index SET indisready = true WHERE indexrelid = 'items_v'::regclass");
check_index($node, 'a row that was not inserted breaks no rule of the format');
like($error->(), qr/index "items_v" is corrupted: a row of the table is not in it/, 'but the table tells');
$node->safe_psql('postgres', 'DELETE FROM items WHERE id = 777777');
is($error->(), '', 'deleted, it is not missed');
$standby->stop;
$node->stop;

done_testing();
