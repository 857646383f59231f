# gpuann_check finds damage of every kind of page and says where; scans of a damaged index end, with an error or an answer, and never
# take the server down.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use DamageTest;
use GpuannTest;
use Test::More;

my $degree = 8;

my $node = new_node('damage', no_checksums => 1, conf => ["statement_timeout = '20s'"]);

make_data($node, 300, 16, with => 'WITH (m = 4)');
fill_rows($node, 301, 400, 16);
$node->safe_psql('postgres', "SELECT gpuann_link('items_v'); DELETE FROM items WHERE id % 10 = 0;");
$node->safe_psql('postgres', 'VACUUM items') foreach 1 .. 2;
fill_rows($node, 401, 405, 16);
right_after($node, 'before any damage');

my $template = keep_template($node, 'sound', 'items_v');
my $whole = $template->{bytes};

# The block of the first page of a kind.
sub first_page
{
	my ($kind) = @_;
	return (pages_of($template, $kind))[0];
}

# The place of a node record that satisfies a condition on (flags, version); all on the first node page.
sub record_where
{
	my ($wanted) = @_;

	foreach my $i (0 .. 40)
	{
		my $at = HEADER + $i * RECORD;
		my ($flags, $version) = unpack('x6 v V', substr($whole, first_page(NODE) * PAGE + $at, RECORD));
		return $at if $wanted->($flags, $version);
	}
	die 'no such record';
}

my $live = record_where(sub { $_[0] == 0x11 });
my $seen = 0;
my $other = record_where(sub { $_[0] == 0x11 && ++$seen == 2 });
my $free = record_where(sub { $_[0] == 4 });
my $slot = ($live - HEADER) / RECORD;
my $free_slot = ($free - HEADER) / RECORD;
my $row = graph_row_at($slot, $degree);
my $neighbours = substr($whole, first_page(NODE) * PAGE + $row, 8);

# What is done to which page: kind, offset, bytes; and what the check says.
my @cases = (
	[ 'magic', META, HEADER, pack('V', 1),
		'this is not a metapage of gpuann' ],
	[ 'dimensions', META, HEADER + 8, pack('V', 17),
		'the format is not consistent' ],
	[ 'page id', NODE, TAIL + 14, pack('v', 0),
		'this is not a page of gpuann' ],
	[ 'kind of a node page', NODE, TAIL + 12, pack('v', VECTOR),
		'the page is of the wrong kind' ],
	[ 'kind of a vector page', VECTOR, TAIL + 12, pack('v', NODE),
		'the page is of the wrong kind' ],
	[ 'superblock of a vector page', VECTOR, TAIL + 8, pack('V', 3),
		'the page says it belongs to another superblock' ],
	[ 'pd_lower of a node page', NODE, 12, pack('v', HEADER + RECORD),
		"the page's data reach beyond pd_lower" ],
	[ 'pd_lower of a node page within its graph rows', NODE, 12, pack('v', $row),
		"the page's data reach beyond pd_lower" ],
	[ 'a node page all zero', NODE, 0, "\0" x PAGE,
		'the page is all zero' ],
	[ 'a pending page all zero', LIST, 0, "\0" x PAGE,
		'the page is all zero' ],
	[ 'state of a pending page', LIST, HEADER + 20, pack('V', 7),
		'a page of the list is spare' ],
	[ 'count of a pending page', LIST, HEADER + 16, pack('V', 100000),
		'the pending page holds more than it can' ],
	[ 'position of a pending page', LIST, HEADER, pack('Q<', 5000),
		'the oldest pending page does not hold the trimmed position' ],
	[ 'stamp of a superblock', LIST, HEADER + 8, pack('Q<', 0),
		'the node page has changed later than its superblock is stamped' ],
	[ 'stamp still to come', LIST, HEADER + 8, pack('Q<', 1 << 40),
		'the superblock is stamped with a change still to come' ],
	[ 'next fresh slot', LIST, HEADER + 32, pack('V', 0x7FFFFFF0),
		'the next fresh slot is beyond the superblocks' ],
	[ 'head of the free list', LIST, HEADER + 36, pack('V', $slot),
		'a slot of the free list is not free' ],
	[ 'length of the free list', LIST, HEADER + 40, pack('V', 2),
		'the free list is not as long as it says' ],
	[ 'least norm', LIST, HEADER + 48, pack('f<', 1e30),
		"the vector's norm is beyond the index's range of norms" ],
	[ 'greatest norm', LIST, HEADER + 52, pack('f<', 0),
		"the vector's norm is beyond the index's range of norms" ],
	[ 'a norm that is no number', LIST, HEADER + 52, pack('V', 0x7FC00000),
		'the range of norms is not consistent' ],
	[ 'a circle in the free list', NODE, graph_row_at($free_slot, $degree), pack('V', $free_slot),
		'the free list is a circle' ],
	[ 'state of a slot', NODE, $live + 6, pack('v', 0x1D),
		"the slot's state is unknown" ],
	[ 'a live slot not linked', NODE, $live + 6, pack('v', 0x01),
		'a live slot is neither linked nor pending' ],
	[ 'a live slot detached', NODE, $live + 6, pack('v', 0x03),
		'a slot without a row has a TID' ],
	[ 'a version', NODE, $live + 8, pack('V', 0),
		'the slot has no version' ],
	[ 'a TID', NODE, $live, "\0" x 6,
		'a live slot has no TID' ],
	[ 'a TID beyond its page', NODE, $live, pack('vvv', 0, 0, 300),
		'a TID lies beyond the end of its page of the table' ],
	[ 'a TID beyond the table', NODE, $live, pack('vvv', 1, 0, 1),
		'a TID lies beyond the end of the table' ],
	[ 'a TID twice', NODE, $live, substr($whole, first_page(NODE) * PAGE + $other, 6),
		'two live slots have the same TID' ],
	[ 'an edge to nowhere', NODE, $row, pack('V', 0x7FFFFFF0),
		'the graph row names a slot that does not exist' ],
	[ 'an edge to itself', NODE, $row, pack('V', $slot),
		'the graph row names its own slot' ],
	[ 'an edge to a free slot', NODE, $row, pack('V', $free_slot),
		'the graph row leads to a slot that is detached, free or absent' ],
	[ 'an edge twice', NODE, $row, substr($neighbours, 4, 4),
		'the graph row names a slot twice' ],
	[ 'a gap in a row', NODE, $row, pack('V', 0xFFFFFFFF),
		'the graph row has gaps' ],
	[ 'a seed', SEED, HEADER, pack('V', 0x7FFFFFF0),
		'a seed does not exist' ],
	[ 'an element that is no number', VECTOR, HEADER + $slot * 64 + 8, pack('V', 0x7FC00000),
		'the vector has an element that is not finite' ],
);

my @steps = (
	[ 'check', "SET gpuann.server = off; SET enable_seqscan = off; SELECT gpuann_check('items_v');" ],
	[ 'exact', 'SET gpuann.exact = on; SELECT count(*) FROM (SELECT id FROM items ORDER BY v <-> vec(1, 16) LIMIT 100) s;' ],
	[ 'graph', 'RESET gpuann.exact; SELECT count(*) FROM (SELECT id FROM items ORDER BY v <-> vec(1, 16) LIMIT 100) s;' ],
	[ 'change', 'INSERT INTO items VALUES (1000, vec(1000, 16)); DELETE FROM items WHERE id % 7 = 0;' ],
	[ 'vacuum', 'VACUUM items;' ],
	[ 'link', "SELECT gpuann_link('items_v');" ],
	[ 'end', 'SELECT 1;' ],
	[ 'reindex', "REINDEX INDEX items_v; SELECT gpuann_check('items_v', true);" ]);

foreach my $case (@cases)
{
	my ($what, $kind, $offset, $bytes, $says) = @$case;
	my ($said) = with_damage($template, first_page($kind) * PAGE + $offset, $bytes, sub { run_steps($node, $_[0], @steps) });

	like($said->{check}, qr/ERROR:  XX002: index "items_v" is corrupted.*: \Q$says\E$/m, "$what: found");
	is($said->{end}, "1\n", "$what: the session goes on");
	is($said->{reindex}, "\n", "$what: REINDEX makes it whole");
}
$node->stop;

done_testing();
