# The mirror table is full: an index that finds no entry is answered from its pages, gets one when another has not been asked for, the one longest ago
# goes first, and one in quarantine is not forgotten for it. I5, I7.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use FaultTest;
use GpuannTest;
use PgSession;
use PostgreSQL::Test::Cluster;
use ServerTest;
use Test::More;

need_fault_engine();

my $dims = 8;
my $node = fault_node('main', conf => [ 'gpuann.mirror_limit = 3', "gpuann.iterative_scan = 'strict_order'" ]);
my $watch = PgSession->new($node);

# Mirrors are asked for here, not loaded by builds. In strict order so few rows are searched, too; else all are compared, which is cheaper.
foreach my $name ('q', 'a', 'b', 'c')
{
	$node->safe_psql('postgres', "SET gpuann.server = off; CREATE TABLE $name (id int, v vector($dims));
		INSERT INTO $name SELECT i, vec(i, $dims) FROM generate_series(1, 500) i;
		CREATE INDEX ${name}_v ON $name USING gpuann (v vector_l2_ops)");
}
ok(await_server($node), 'the server runs');

my $session = session($node);

# Ask an index: how it was answered, if rightly.
sub ask
{
	my ($name) = @_;
	my $found = $session->rows("SELECT id FROM $name ORDER BY v <-> (SELECT v FROM $name WHERE id = 77) LIMIT 1");

	return $found eq '77' ? $session->rows("SELECT path || ' ' || coalesce(fallback_reason, 'none') FROM gpuann_last_scan()") : "wrong: $found";
}

sub state_of { return $watch->rows("SELECT state FROM pg_stat_gpuann WHERE indexrelname = '$_[0]_v'") }

sub is_served
{
	my ($name, $while) = @_;
	my $how;

	ok(await("$name is served", sub { $while->() if $while; $how = ask($name); return $how =~ /^(server|wrong)/ }, 60), "$name has a mirror")
	  or diag($how);
	is($how, 'server none', "$name is answered by the server");
}

# Three crashes.
is_served('q');
faults('crash=1');
ok(await('q is refused', sub { ask('q'); revive($node, $watch); return state_of('q') eq 'refused' }, 60), 'q is in quarantine');
faults('');
ok(revive($node, $watch), 'a server is there');
is_served('a');
is_served('b');
my $restarts = status($node, 'restarts');

# All entries are in use, or in quarantine.
is(ask('q'), 'pages refused', 'q is asked for');
is(ask('a'), 'server none', 'and a, so that neither is idle before the other');
is(ask('c'), 'pages refused', 'c has no entry: its pages answer');
is_served('c', sub { ask('b') });
isnt(state_of('a'), 'ready', 'the entry was that of a, which was asked for longest ago');
is($watch->rows("SELECT count(*) FROM pg_stat_gpuann WHERE state = 'ready'"), 2, 'there are no more mirrors than entries');
is(state_of('q'), 'refused', 'q is still in quarantine');
is(ask('q'), 'pages refused', 'and answered from its pages');
like(ask('a'), qr/^(pages|server) /, 'a is answered all the same');
is(status($node, 'restarts'), $restarts, 'the server crashes no more');
$_->close foreach $session, $watch;
$node->stop;
done_testing();
