# Every region of every kind of page damaged in turn: whatever is then done with the index ends with an answer or with an error that
# says where it is corrupted, never with a crash or without end. And gpuann_check finds all damage that matters: where it finds none,
# every statement works and exact scans answer as before.
#
# GPUANN_LONG=1 damages every two bytes in four ways; without it every four bytes (of a header, those in the middle) are damaged in one
# way of the four.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use DamageTest;
use GpuannTest;
use Test::More;

my $long = ($ENV{GPUANN_LONG} // '') eq '1';
my $step = $long ? 2 : 4;
my $node = new_node('regions', no_checksums => 1, conf => ["statement_timeout = '20s'"]);
my $degree = 8;

# Rows linked, pending, dead and free; then lists of several pages.
make_data($node, 150, 16, with => 'WITH (m = 4, ef_construction = 16)');
$node->safe_psql('postgres', 'DELETE FROM items WHERE id % 10 = 0');
$node->safe_psql('postgres', 'VACUUM items') foreach 1 .. 2;
fill_rows($node, 151, 160, 16);
my $small = keep_template($node, 'small', 'items_v');

$node->safe_psql('postgres', 'DROP TABLE items; CREATE TABLE items (id int, v vector(250));'
	  . 'CREATE INDEX items_v ON items USING gpuann (v vector_l2_ops) WITH (m = 2, ef_construction = 4);'
	  . 'SET gpuann.pending_limit = 100000;'
	  . 'INSERT INTO items SELECT i, array_fill(i, ARRAY[250])::vector FROM generate_series(1, 2100) i;');
my $lists = keep_template($node, 'lists', 'items_v');

# What is done with a damaged index. Reads come first; the check among them says whether the damage matters.
my $ask = 'ORDER BY v <-> (SELECT array_agg(x)::vector FROM generate_series(1, (SELECT atttypmod FROM pg_attribute '
  . "WHERE attrelid = 'items'::regclass AND attname = 'v')) x)";
my @steps = (
	[ 'check', "SET gpuann.server = off; SET enable_seqscan = off; SET gpuann.pending_limit = 100000; SELECT gpuann_check('items_v', true);" ],
	[ 'graph', "SELECT count(*) > 0 FROM (SELECT id FROM items $ask LIMIT 5) s;" ],
	[ 'drain', "SELECT count(DISTINCT id), count(*) FROM (SELECT id FROM items $ask) s;" ],
	[ 'exact', "SET gpuann.exact = on; SELECT array_agg(id) FROM (SELECT id FROM items $ask LIMIT 50) s; RESET gpuann.exact;" ],
	[ 'stats', "SELECT live_rows FROM gpuann_stats('items_v');" ],
	[ 'recall', "SELECT samples_asked > 0 FROM gpuann_recall('items_v', 3, 3);" ],
	[ 'insert', 'INSERT INTO items SELECT id + 10000, v FROM items WHERE id < 8;' ],
	[ 'delete', 'DELETE FROM items WHERE id BETWEEN 3 AND 30; UPDATE items SET id = -id, v = v + v WHERE id BETWEEN 40 AND 42;' ],
	[ 'vacuum', 'VACUUM items;' ],
	[ 'link', "SELECT gpuann_link('items_v') >= 0;" ],
	[ 'insert2', 'INSERT INTO items SELECT id + 20000, v FROM items WHERE id > 10000;' ],
	[ 'vacuum2', 'VACUUM items;' ],
	[ 'drop', 'DROP TABLE items;' ]);
my @lists_steps = grep { $_->[0] !~ /recall|2/ } @steps;

# Whether what a statement said is an answer or an error that names the place.
sub is_honest
{
	my ($said) = @_;

	return 0 unless defined $said;
	foreach my $line (grep { /^(psql:.*)?(ERROR|FATAL|PANIC)|server closed|connection/ } split /\n/, $said)
	{
		next if $line =~ /ERROR:  XX002: index "items_v" is corrupted( at block \d+|: )/;
		# What PostgreSQL itself finds in a page's header, and a format of another version.
		next if $line =~ /ERROR:  XX001: invalid page in block \d+/;
		next if $line =~ /ERROR:  0A000: index "items_v" has format version \d+/;
		return 0;
	}
	return 1;
}

sub failed
{
	my ($said) = @_;
	return $said =~ /ERROR:/;
}

# Run one case; returns what was wrong with it.
sub judge
{
	my ($template, $steps, $sound, $offset, $bytes) = @_;
	my ($said) = with_damage($template, $offset, $bytes, sub { run_steps($node, $_[0], @$steps) });
	my @wrong;

	foreach my $name (map { $_->[0] } @$steps)
	{
		push @wrong, "$name: " . ($said->{$name} // 'did not run') unless is_honest($said->{$name});
		next if failed($said->{check} // 'ERROR:') || !defined $said->{$name};
		push @wrong, "$name fails, and the check had found nothing: $said->{$name}" if failed($said->{$name});
		push @wrong, "$name answers otherwise, and the check had found nothing: $said->{$name}"
		  if $name =~ /^(drain|exact)$/ && !failed($said->{$name}) && $said->{$name} ne $sound->{$name};
	}
	return @wrong;
}

# The four ways to damage so many bytes.
sub damages
{
	my ($old) = @_;
	my $size = length $old;
	my @bytes = unpack 'C*', $old;

	return ("\xFF" x $size, "\0" x $size, pack('C*', ($bytes[0] + 1) & 255, @bytes[ 1 .. $#bytes ]),
		pack('C*', map { $_ ^ 0x5A } @bytes));
}

# Damage the regions of a page, [from, to) each; one test for all of a page.
my $turn = 0;
sub sweep
{
	my ($template, $steps, $sound, $what, $block, @regions) = @_;
	my ($cases, @wrong) = (0);

	foreach my $region (@regions)
	{
		for (my $at = $region->[0]; $at < $region->[1]; $at += $step)
		{
			my $old = substr($template->{bytes}, $block * PAGE + $at, $step);
			my @ways = grep { $_ ne $old } damages($old);

			@ways = ($ways[ $turn++ % @ways ]) unless $long;
			foreach my $new (@ways)
			{
				$cases++;
				push @wrong, map { "byte $at of block $block, " . unpack('H*', $new) . " for " . unpack('H*', $old) . ": $_" }
				  judge($template, $steps, $sound, $block * PAGE + $at, $new);
			}
		}
	}
	is(join("\n", @wrong), '', "$what: an answer or an error, and the check knows ($cases cases)");
}

my @header = [ $long ? 0 : 8, $long ? HEADER : 20 ];
my @tail = [ TAIL, PAGE ];
my ($sound) = with_damage($small, 0, substr($small->{bytes}, 0, 1), sub { run_steps($node, $_[0], @steps) });
ok(!grep({ failed($_) } values %$sound), 'undamaged, everything works') or diag(explain($sound));
my ($seed_page) = pages_of($small, SEED);
my ($list_page) = pages_of($small, LIST);
my ($node_page) = pages_of($small, NODE);
my ($vector_page) = pages_of($small, VECTOR);

# The places of a free record and of a pending one on the node page.
my ($free) = grep { unpack('v', substr($small->{bytes}, $node_page * PAGE + HEADER + $_ * RECORD + 6, 2)) == 4 } 0 .. 149;
my ($pending) = grep { unpack('v', substr($small->{bytes}, $node_page * PAGE + HEADER + $_ * RECORD + 6, 2)) == 1 } 0 .. 149;
my $live = HEADER + 5 * RECORD;
my ($row, $free_row) = map { graph_row_at($_, $degree) } 5, $free;

sweep($small, \@steps, $sound, 'metapage', META - 1, @header, [ HEADER, HEADER + 104 ], @tail);
sweep($small, \@steps, $sound, 'seed page', $seed_page, @header, [ HEADER, HEADER + 8 ], @tail);
sweep($small, \@steps, $sound, 'pending page', $list_page, @header, [ HEADER, HEADER + 56 + 16 ], @tail);
sweep($small, \@steps, $sound, 'node page', $node_page, @header, @tail,
	[ $live, $live + RECORD ], [ $row, $row + 4 * $degree ], [ $free_row, $free_row + 8 ],
	map { [ HEADER + $_ * RECORD, HEADER + ($_ + 1) * RECORD ] } $free, $pending);
sweep($small, \@steps, $sound, 'vector page', $vector_page, @header, [ HEADER + 5 * 64, HEADER + 5 * 64 + ($long ? 64 : 12) ], @tail);

# Pages that are all zero, all ones, or cut off.
my @whole_pages;
foreach my $block (META - 1, $seed_page, $list_page, $node_page, $vector_page)
{
	push @whole_pages, map { "block $block: $_" } judge($small, \@steps, $sound, $block * PAGE, $_) foreach "\0" x PAGE, "\xFF" x PAGE;
}
push @whole_pages, map { "cut off: $_" } judge($small, \@steps, $sound, $_ * PAGE, '') foreach 0, 2, $vector_page;
is(join("\n", @whole_pages), '', 'whole pages: an answer or an error, and the check knows');

# What could be, but is far beyond the end of the file: pending pages, superblocks and slots.
my ($pages, $slots, $seed_pages) = unpack('x40 V V V', substr($small->{bytes}, HEADER, 52));
my $far = pack('V', 1 + $seed_pages + 5000 * $pages);
my @beyond = map { judge($small, \@steps, $sound, $_->[0], $_->[1]) } (
	[ HEADER + 88, $far ], [ HEADER + 100, $far ], [ $list_page * PAGE + HEADER + 44, $far ],
	[ $list_page * PAGE + HEADER + 20, pack('VV', 3, unpack('V', $far)) ],
	[ $list_page * PAGE + HEADER + 28, pack('VV', 5000, 4000 * $slots) ],
	[ $list_page * PAGE + HEADER + 28, pack('VV', 1, $slots) ],
	[ $node_page * PAGE + $live, pack('vvv', 0, 5000, 1) ], [ $node_page * PAGE + $live, pack('vvv', 9, 0, 1) ]);
is(join("\n", @beyond), '', 'beyond the end of the file: an error, and the check knows');

# A closed, a newest and a spare pending page.
my ($lists_sound) = with_damage($lists, 0, substr($lists->{bytes}, 0, 1), sub { run_steps($node, $_[0], @lists_steps) });
ok(!grep({ failed($_) } values %$lists_sound), 'undamaged, everything works with long lists') or diag(explain($lists_sound));
foreach my $block ((pages_of($lists, LIST))[ 0 .. 2 ])
{
	my $state = unpack('V', substr($lists->{bytes}, $block * PAGE + HEADER + 20, 4));

	sweep($lists, \@lists_steps, $lists_sound, "pending page in state $state", $block, [ HEADER + ($long ? 0 : 16), HEADER + 28 + ($long ? 32 : 0) ]);
}
$node->stop;

done_testing();
