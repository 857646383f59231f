# Mirror workers take no lock that an ordinary statement on a user's table could meet: LOCK ... NOWAIT never fails for their sake, not even while
# they look at an index that CREATE INDEX CONCURRENTLY has left invalid.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use GpuannTest;
use PgSession;
use PostgreSQL::Test::Cluster;
use ServerTest;
use Test::More;

my $dims = 12;
my $node = server_node('main');
my $file = $node->data_dir . '/gpuann_fault.worker-valid';

sub set_fault
{
	$node->safe_psql('postgres', "ALTER SYSTEM SET gpuann.fault = '$_[0]'");
	$node->reload;
}

make_data($node, 500, $dims);
ok(await_mirror($node), 'the mirror is there');

# CREATE INDEX CONCURRENTLY that waits for us: its index is not valid, and its mirror is there.
my $blocker = PgSession->new($node);
$blocker->rows('BEGIN ISOLATION LEVEL REPEATABLE READ');
$blocker->rows('SELECT count(*) FROM items');
my $builder = PgSession->new($node);
$builder->send('CREATE INDEX CONCURRENTLY second_v ON items USING gpuann (v vector_l2_ops)');
sub second { return figure($node, 'state', 'second_v') }
ok(await('it is fed', sub { second() eq 'ready' }), 'the mirror of an index that is being built concurrently is there');

# It is kept as long as the command is at it.
my $rows = 1000;
sub look
{
	$rows += 5;
	$node->safe_psql('postgres', "INSERT INTO items SELECT i, vec(i, $dims) FROM generate_series($rows - 4, $rows) i");
	return await('a worker has looked at it', sub { figure($node, 'mirror_lag', 'second_v') eq '0' });
}
ok(look(), 'a worker keeps it current') foreach 1 .. 3;
is(second(), 'ready', 'it is kept');

# The command fails, and leaves an invalid index. While a worker asks whether anybody is at it still, no lock of a user's is refused.
set_fault('worker-valid wait');
$builder->query('SELECT 1') if $builder->is_done;
$node->safe_psql('postgres', "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE query LIKE 'CREATE INDEX CONCURRENTLY%' AND pid <> pg_backend_pid()");
like($builder->receive->{error}, qr/canceling statement/, 'the command fails');
$blocker->rows('COMMIT');
is($node->safe_psql('postgres', "SELECT indisvalid FROM pg_index WHERE indexrelid = 'second_v'::regclass"), 'f', 'an invalid index is left');
ok(await('a worker asks', sub {
	$node->safe_psql('postgres', "INSERT INTO items SELECT i, vec(i, $dims) FROM generate_series(1, 1) i");
	-e $file;
}), 'a worker asks whether somebody is at it');
foreach my $mode ('SHARE', 'SHARE UPDATE EXCLUSIVE', 'SHARE ROW EXCLUSIVE', 'EXCLUSIVE', 'ACCESS EXCLUSIVE')
{
	my $answer = $blocker->query("BEGIN; LOCK TABLE items IN $mode MODE NOWAIT");

	is($answer->{error}, '', "LOCK TABLE IN $mode MODE NOWAIT");
	$blocker->query('ROLLBACK');
}
set_fault('');
unlink $file;
ok(await('it has gone', sub { second() eq 'none' }), 'the mirror of an index that nobody completes goes');
check_index($node, 'after all');
$node->stop;
done_testing();
