# gpuann_check finds damage of the pages of lists, and of those of included columns, and says where; scans, VACUUM and linking of such an index end, with an error or not.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use DamageTest;
use GpuannTest;
use Test::More;

use constant { DIRECTORY => 6, CENTROID => 7, POSTING => 8, COLUMN => 9 };

my $node = new_node('damage', no_checksums => 1, conf => ["statement_timeout = '20s'"]);

make_data($node, 1500, 16, with => 'INCLUDE (id) WITH (method = ivfpq, lists = 5, quantizer = int8)');
fill_rows($node, 1501, 1600, 16);
$node->safe_psql('postgres', "SELECT gpuann_link('items_v'); DELETE FROM items WHERE id % 10 = 0;");
$node->safe_psql('postgres', 'VACUUM items') foreach 1 .. 2;
fill_rows($node, 1601, 1605, 16);
right_after($node, 'before any damage');

my $template = keep_template($node, 'sound', 'items_v');
my $whole = $template->{bytes};

# Parts of the first page of a kind.
sub place
{
	my ($kind, $offset) = @_;
	return (pages_of($template, $kind))[0] * PAGE + $offset;
}

sub number
{
	my ($at) = @_;
	return unpack('V', substr($whole, $at, 4));
}

# The heads of lists in the directory, and the first page of the first list.
my $heads = place(DIRECTORY, HEADER) + 24;
my $first = number($heads) * PAGE + HEADER;

my @cases = (
	[ 'table of columns', place(META, HEADER + 512), pack('V', 3), 'the table of columns is not consistent' ],
	[ 'kind of a column', place(META, HEADER + 520), pack('v', 77), 'the table of columns is not consistent' ],
	[ 'a column page all zero', place(COLUMN, 0), "\0" x PAGE, 'the page is all zero' ],
	[ 'superblock of a column page', place(COLUMN, TAIL + 8), pack('V', 7), 'the page says it belongs to another superblock' ],
	[ 'pd_lower of a column page', place(COLUMN, 12), pack('v', HEADER + 12), "the page's data reach beyond pd_lower" ],
	[ 'TID of a column record', place(COLUMN, HEADER), pack('v3', 0, 0, 7), "the slot's columns are of another row" ],
	[ 'NULLs of a column record', place(COLUMN, HEADER + 6), pack('v', 2), 'a column is NULL that does not exist' ],
	[ 'number of lists', place(META, HEADER + 104), pack('V', 0), 'the format of the lists is not consistent' ],
	[ 'a directory page all zero', place(DIRECTORY, 0), "\0" x PAGE, 'the page is all zero' ],
	[ 'kind of a directory page', place(DIRECTORY, TAIL + 12), pack('v', SEED), 'the page is of the wrong kind' ],
	[ 'posting pages in use', place(DIRECTORY, HEADER + 4), pack('V', 1 << 30), 'more posting pages are in use than there are' ],
	[ 'the distance added', place(DIRECTORY, HEADER + 16), pack('VV', 0, 0x7FF80000), 'the distance of added rows is not a number' ],
	[ 'head of a list', $heads, pack('V', 1), 'no posting page can be here' ],
	[ 'no list', $heads, pack('V', 0xFFFFFFFF), 'a list has not as many entries as the directory says' ],
	[ 'entries of a list', $heads + 4, pack('V', 1), 'a list has not as many entries as the directory says' ],
	[ 'two lists with one page', $heads + 8, substr($whole, $heads, 4), 'a posting page is chained twice' ],
	[ 'a centroid', place(CENTROID, HEADER + 8), pack('V', 0x7FC00000), 'a centroid or codeword is not finite' ],
	[ 'a posting page all zero', $first - HEADER, "\0" x PAGE, 'the page is all zero' ],
	[ 'superblock of a posting page', $first - HEADER + TAIL + 8, pack('V', 7), 'the page says it belongs to another superblock' ],
	[ 'list of a posting page', $first, pack('V', 3), "the posting page is another list's" ],
	[ 'count of a posting page', $first + 4, pack('V', 100000), 'the posting page holds more than it can' ],
	[ 'no entries on a posting page', $first + 4, pack('V', 0), 'a posting page that is not the first has room' ],
	[ 'a circle', $first + 8, substr($whole, $heads, 4), 'a posting page is chained twice' ],
	[ 'pd_lower of a posting page', $first - HEADER + 12, pack('v', HEADER + 100), "the page's data reach beyond pd_lower" ],
	[ 'an entry of nowhere', $first + 16, pack('V', 0x7FFFFFF0), 'a list has a slot that does not exist' ],
	[ 'an entry of another row', $first + 16, substr($whole, $first + 24, 4), 'a slot is missing from its list' ],
	[ 'version of an entry', $first + 20, pack('V', 77), 'a slot is missing from its list' ],
);

my @steps = (
	[ 'check', "SET gpuann.server = off; SET enable_seqscan = off; SELECT gpuann_check('items_v');" ],
	[ 'exact', 'SET gpuann.exact = on; SELECT count(*) FROM (SELECT id FROM items ORDER BY v <-> vec(1, 16) LIMIT 100) s;' ],
	[ 'lists', 'RESET gpuann.exact; SET gpuann.probes = 100; SELECT count(*) FROM (SELECT id FROM items ORDER BY v <-> vec(1, 16) LIMIT 20) s;' ],
	[ 'columns', 'SELECT count(*) FROM (SELECT id FROM items WHERE id < 900 ORDER BY v <-> vec(1, 16) LIMIT 20) s;' ],
	[ 'change', 'INSERT INTO items SELECT i, vec(i, 16) FROM generate_series(2000, 2100) i; DELETE FROM items WHERE id % 7 = 0;' ],
	[ 'vacuum', 'VACUUM items;' ],
	[ 'link', "SELECT gpuann_link('items_v');" ],
	[ 'end', 'SELECT 1;' ],
	[ 'reindex', "REINDEX INDEX items_v; SELECT gpuann_check('items_v', true);" ]);

foreach my $case (@cases)
{
	my ($what, $offset, $bytes, $says) = @$case;
	my ($said) = with_damage($template, $offset, $bytes, sub { run_steps($node, $_[0], @steps) });

	like($said->{check}, qr/ERROR:  XX002: index "items_v" is corrupted.*: \Q$says\E$/m, "$what: found");
	is($said->{end}, "1\n", "$what: the session goes on");
	is($said->{reindex}, "\n", "$what: REINDEX makes it whole");
}
$node->stop;

done_testing();
