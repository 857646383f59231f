# Whoever reads where the pending list begins, is stopped, and reads where it ends when it has moved on by more entries than there are slots, has been
# overtaken, not met damage: he starts over, and finds every row.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use GpuannTest;
use PgSession;
use Test::More;

my $node = new_node('overtaken', conf => [ "session_preload_libraries = 'gpuann'", 'gpuann.pending_limit = 1000000' ]);
my $reader = PgSession->new($node);

if ($reader->query('SHOW gpuann.fault')->{error} ne '')
{
	$reader->close;
	$node->stop;
	plan skip_all => 'this build has no fault points';
}

# Fill more than a page of the list with rows that are rolled back, and trim it. The next ones come into the same slots.
sub turn_over
{
	$node->safe_psql('postgres', "BEGIN;\nINSERT INTO items SELECT 0, '[1,2,3,4]' FROM generate_series(1, 2100);\nROLLBACK;\nVACUUM (INDEX_CLEANUP on) items");
}

# A cursor that goes by the graph is opened while rows are pending; then these are linked, and their page of the list is trimmed.
make_data($node, 2000, 4, with => 'WITH (m = 4)');
fill_rows($node, 2001, 2200, 4);
$reader->rows($_) foreach 'SET enable_seqscan = off', 'SET enable_sort = off', 'SET gpuann.server = off', 'SET gpuann.ef_search = 1', q{SET work_mem = '64kB'},
	'SET gpuann.iterative_scan = relaxed_order', 'SET cursor_tuple_fraction = 1', 'BEGIN',
	'DECLARE near CURSOR FOR SELECT id FROM items ORDER BY v <-> vec(7, 4) LIMIT 1000000';
my @found = split /\n/, $reader->rows('FETCH 1 FROM near');
turn_over();

# The first round of the cursor that work_mem cannot hold starts over, and is stopped between beginning and end.
$reader->rows("SET gpuann.fault = 'bounds-begun wait'");
$reader->send('FETCH 30 FROM near');
my $stopped = $node->data_dir . '/gpuann_fault.bounds-begun';
for (1 .. 6000)
{
	last if -e $stopped || $reader->is_done(0.1);
}
ok(-e $stopped, 'the reader is stopped between the beginning of the list and its end');
turn_over() foreach 1 .. 3;
unlink $stopped or die "could not remove $stopped: $!";

my $more = $reader->receive;
is($more->{error}, '', 'the reader starts over');
push @found, @{ $more->{rows} }, split(/\n/, $reader->rows('FETCH ALL FROM near'));
is(join(' ', sort { $a <=> $b } @found), join(' ', 1 .. 2200), 'and finds every row that its snapshot sees');
$reader->query('COMMIT');
check_index($node, 'in the end');
$node->stop;

done_testing();
