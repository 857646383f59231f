# Linking and VACUUM end soon after a cancel, leave a right index and no lock; whoever waits for the linker lock can be cancelled too.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use GpuannTest;
use Time::HiRes qw(sleep time);
use Test::More;

my $dims = 48;
my $node = new_node('cancel', conf => [ 'gpuann.pending_limit = 1000000', "maintenance_work_mem = '256MB'" ]);

make_data($node, 2000, $dims);
fill_rows($node, 10001, 30000, $dims);

# Run a statement with a timeout; it is to be cancelled, and soon.
sub cancelled
{
	my ($what, $setting, $statement) = @_;
	my $began = time;
	my ($rc, $out, $err) = $node->psql('postgres', "SET $setting;\n$statement");

	like($err, qr/canceling statement due to (statement|lock) timeout/, "$what: cancelled");
	cmp_ok(time - $began, '<', 60, "$what: soon");
	is($node->safe_psql('postgres', "SELECT count(*) FROM pg_locks WHERE locktype = 'object' AND objid = 'items_v'::regclass"),
		'0', "$what: no lock is left");
	check_index($node, $what);
}

cancelled('linking', "statement_timeout = '50ms'", "SELECT gpuann_link('items_v');");
cancelled('linking', "statement_timeout = '150ms'", "SELECT gpuann_link('items_v');");

# Wait for somebody who links.
$node->safe_psql('postgres', 'DELETE FROM items WHERE id % 3 = 0');
my $linker = in_background($node, "SELECT gpuann_link('items_v')");
$node->poll_query_until('postgres',
	"SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'object' AND objid = 'items_v'::regclass AND granted");
my ($rc, $out, $err) = $node->psql('postgres', "SET lock_timeout = '100ms';\nVACUUM items;");
like($err, qr/canceling statement due to lock timeout/, 'VACUUM waits for the linker, and can be cancelled');
fill_rows($node, 40001, 40010, $dims);
ok($linker->pumpable, 'inserts wait for nobody');
$linker->finish;
is($node->safe_psql('postgres', "SELECT gpuann_link('items_v')"), '10', 'all others were linked');
right_after($node, 'linked');

cancelled('vacuum', "statement_timeout = '200ms'", 'VACUUM items;');
cancelled('vacuum', "statement_timeout = '300ms'", 'VACUUM items;');
$node->safe_psql('postgres', 'VACUUM items');
right_after($node, 'vacuumed');
$node->stop;

done_testing();
