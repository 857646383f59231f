# What the owner of a database sets for it does not end its mirror workers: with exit_on_error each error of a slice, and with
# transaction_timeout (PostgreSQL 17) each slice that takes its time, would cost the process, and not the mirror that it came from.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use GpuannTest;
use PostgreSQL::Test::Cluster;
use ServerTest;
use Test::More;

my $dims = 12;
my $node = server_node('main');

sub set_fault
{
	$node->safe_psql('postgres', "ALTER SYSTEM SET gpuann.fault = '$_[0]'");
	$node->reload;
}

my $has_timeout = $node->safe_psql('postgres', "SELECT count(*) FROM pg_settings WHERE name = 'transaction_timeout'") > 0;

# A role that may do nothing but set what is its own.
$node->safe_psql('postgres', 'CREATE ROLE possessor; ALTER DATABASE postgres OWNER TO possessor');
$node->safe_psql('postgres', 'SET ROLE possessor; ALTER DATABASE postgres SET exit_on_error = on; '
	  . ($has_timeout ? "ALTER DATABASE postgres SET transaction_timeout = '1ms'" : ''));

# Our own sessions are to live.
$ENV{PGOPTIONS} = join(' ', map { "-c $_" } $has_timeout ? ('exit_on_error=off', 'transaction_timeout=0') : 'exit_on_error=off');
make_data($node, 500, $dims);
ok(await_mirror($node), 'the mirror is there');
ok(await('there is a worker', sub { worker_pid($node) ne '' }), 'a worker serves it');
my $worker = worker_pid($node);

set_fault('worker-slice error');
ok(await('a slice has failed', sub {
	$node->safe_psql('postgres', "INSERT INTO items SELECT 100000, vec(1, $dims)");
	return log_count($node, qr/(ERROR|FATAL):.*worker-slice/) > 0;
}), 'a slice fails');
set_fault('');
ok(await_mirror($node), 'the mirror comes back');
is(log_count($node, qr/FATAL:.*worker-slice/), 0, 'no worker ended for it');
is(log_count($node, qr/transaction timeout/), 0, 'none ran out of its time');
is(worker_pid($node), $worker, 'the worker is the same');
$node->stop;
done_testing();
