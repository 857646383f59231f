# The mirror table is full: a database with many indexes, whatever it asks for and how often, takes no entry, and no counters, from one that holds
# fewer; one that holds fewer gets its share at once, also of entries in use; and equal shares stay where they are. I5, I7.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use GpuannTest;
use PgSession;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my $dims = 4;
my $crowd = 12;
my $node = server_node('main', conf => [ 'gpuann.mirror_limit = 6' ]);

# Databases with tiny indexes that nobody has asked for yet.
sub make_indexes
{
	my ($database, @names) = @_;

	$node->safe_psql('postgres', "CREATE DATABASE $database TEMPLATE postgres") if $database ne 'postgres';
	$node->safe_psql($database, join(' ', 'SET gpuann.server = off;', map { "CREATE TABLE $_ (id int, v vector($dims));
		INSERT INTO $_ SELECT i, vec(i, $dims) FROM generate_series(1, 50) i; CREATE INDEX ${_}_v ON $_ USING gpuann (v vector_l2_ops);" } @names));
}

# Ask an index: how it was answered, if rightly. In strict order so few rows are searched, too; else all are compared, which is cheaper.
sub ask
{
	my ($database, $name) = @_;

	return $node->safe_psql($database, "SET enable_seqscan = off; SET gpuann.iterative_scan = strict_order; SELECT id FROM $name ORDER BY v <-> (SELECT v FROM $name WHERE id = 7) LIMIT 1;
		SELECT path || ' ' || coalesce(fallback_reason, 'none') FROM gpuann_last_scan()") =~ s/^7\n//r;
}

sub is_served
{
	my ($database, $name) = @_;

	ok(await("$name of $database is served", sub { ask($database, $name) eq 'server none' }, 90), "$name of $database is served");
}

# Indexes that have entries, and with how many scans.
sub held { return $node->safe_psql($_[0], "SELECT string_agg(indexrelname, ' ' ORDER BY indexrelname) FROM pg_stat_gpuann") }
sub holds { return scalar(split ' ', held($_[0])) }
sub scans { return $node->safe_psql($_[0], "SELECT scans FROM pg_stat_gpuann WHERE indexrelname = '$_[1]_v'") }

make_indexes('crowd', map { "t$_" } 1 .. $crowd);
make_indexes('late', 'x', 'y', 'z');
make_indexes('postgres', 'a', 'b', 'c', 'd');
ok(await_server($node), 'the server runs');
is_served('postgres', 'a');
is_served('postgres', 'b');
$node->safe_psql('postgres', "SELECT gpuann_evict('a_v'), gpuann_evict('b_v')");
my %before = map { $_ => scans('postgres', $_) } 'a', 'b';

# Many indexes, each asked for.
foreach my $round (1 .. 2)
{
	ask('crowd', "t$_") foreach 1 .. $crowd;
}
is(held('postgres'), 'a_v b_v', 'a crowd of indexes pushes out none of another database');
is(holds('crowd'), 4, 'and has the rest');

# A loop of gpuann_prewarm, which goes on.
my $loop = PgSession->new($node, dbname => 'crowd');
$loop->send("DO \$\$ BEGIN LOOP FOR i IN 1 .. $crowd LOOP BEGIN PERFORM gpuann_prewarm('t' || i || '_v');
	EXCEPTION WHEN OTHERS THEN NULL; END; END LOOP; END LOOP; END \$\$");
ok(await('indexes of the crowd are served', sub { $node->safe_psql('crowd', "SELECT count(*) FROM pg_stat_gpuann WHERE state = 'ready'") >= 3 }),
	'the crowd is served');
is(held('postgres'), 'a_v b_v', 'nor does a loop of gpuann_prewarm');
is_deeply({ map { $_ => scans('postgres', $_) } 'a', 'b' }, \%before, 'counters are what they were');
is_served('postgres', 'a');
is_served('postgres', 'c');
is(holds('postgres') . ' ' . holds('crowd'), '3 3', 'another index gets an entry, though all of the crowd are in use');
is_served('postgres', 'b');
like(ask('postgres', 'd'), qr/^pages /, 'a database with its share gets no more');
is(held('postgres') . ' ' . holds('crowd'), 'a_v b_v c_v 3', 'nor does it lose its own that are in use');
is_served('postgres', 'd');
is(holds('postgres') . ' ' . holds('crowd'), '3 3', 'it replaces one that is idle');

# A third database.
foreach my $name ('x', 'y')
{
	is_served('late', $name);
}
is(join(' ', map { holds($_) } 'postgres', 'crowd', 'late'), '2 2 2', 'three databases share alike');
ask('postgres', $_) foreach 'a' .. 'd';
ask('late', $_) foreach 'x' .. 'z';
is(join(' ', map { holds($_) } 'postgres', 'crowd', 'late'), '2 2 2', 'and go on to');
ok($node->safe_psql('postgres', "SELECT pg_cancel_backend($loop->{pid})"), 'the loop is cancelled');
$loop->receive;
$loop->close;

# Who goes gives back.
$node->safe_psql('postgres', 'DROP DATABASE crowd');
is_served('postgres', $_) foreach 'a' .. 'c';
is_served('late', 'z');
is(join(' ', map { holds($_) } 'postgres', 'late'), '3 3', 'what a dropped database had is others\'');
$node->stop;
done_testing();
