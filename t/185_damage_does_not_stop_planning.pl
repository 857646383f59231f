# Planning raises no error for what stands in an index's pages: of an index that is damaged or of another format version, SELECT, EXPLAIN and
# DELETE with a threshold work as long as the plan does not use it; and whatever the settings, EXPLAIN does.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use DamageTest;
use GpuannTest;
use Test::More;

my $node = new_node('planning', no_checksums => 1, conf => [ "statement_timeout = '20s'", 'gpuann.server = off' ]);

make_data($node, 400, 16, with => 'WITH (m = 4)');
$node->safe_psql('postgres', 'ANALYZE items');
my $graph = keep_template($node, 'graph', 'items_v');
$node->safe_psql('postgres', 'DROP INDEX items_v; CREATE INDEX items_v ON items USING gpuann (v vector_l2_ops) WITH (method = ivfpq)');
my $lists = keep_template($node, 'lists', 'items_v');

my $near = 'v <-> vec(1, 16) < 1';
my @queries = (
	[ 'range', "SELECT count(*) > 0 FROM items WHERE $near;" ],
	[ 'order', "SELECT count(*) > 0 FROM (SELECT id FROM items WHERE $near ORDER BY v <-> vec(1, 16) LIMIT 5) s;" ],
	[ 'parameter', "PREPARE p(vector, float8) AS SELECT count(*) > 0 FROM items WHERE v <-> \$1 < \$2; SET plan_cache_mode = force_generic_plan;"
		  . 'EXECUTE p(vec(1, 16), 1); SET plan_cache_mode = auto; DEALLOCATE p;' ],
	[ 'delete', "BEGIN; DELETE FROM items WHERE id > 0 AND $near; ROLLBACK; SELECT true;" ]);
my @explained = (
	[ 'explain', "EXPLAIN SELECT * FROM items WHERE $near;" ],
	[ 'explain_order', "EXPLAIN SELECT * FROM items WHERE $near ORDER BY v <-> vec(1, 16) LIMIT 5;" ],
	[ 'explain_plain', 'EXPLAIN SELECT * FROM items ORDER BY v <-> vec(1, 16) LIMIT 5;' ],
	[ 'explain_delete', "EXPLAIN DELETE FROM items WHERE $near;" ]);
my @steps = ([ 'begin', 'SET enable_indexscan = off;' ], @queries, @explained,
	[ 'on', 'RESET enable_indexscan; SET enable_seqscan = off;' ], (map { [ "$_->[0]2", $_->[1] ] } @explained));

# What goes wrong with bytes put into the file, or the file cut off, at an offset.
sub failures
{
	my ($template, $offset, $bytes) = @_;
	my ($said) = with_damage($template, $offset, $bytes, sub { run_steps($node, $_[0], @steps) });
	my @wrong = grep { ($said->{$_} // 'ERROR: did not run') =~ /ERROR|WARNING/ } sort keys %$said;

	push @wrong, grep { ($said->{$_} // '') ne "t\n" } map { $_->[0] } @queries;
	return join('; ', map { "$_: " . ($said->{$_} // 'did not run') } @wrong);
}

# Every page of a kind with these bytes at an offset of the page.
sub damaged_kind
{
	my ($template, $kind, $at, $bytes) = @_;
	my @blocks = pages_of($template, $kind);
	my $whole = $template->{bytes};

	substr($whole, $_ * PAGE + $at, length $bytes) = $bytes foreach @blocks;
	return failures($template, 0, $whole);
}

my @damages = (
	[ 'all zero', 0, "\0" x PAGE ], [ 'header without sense', 0, "\xFF" x HEADER ], [ 'page id', TAIL + 14, pack('v', 0) ],
	[ 'kind', TAIL + 12, pack('v', 77) ], [ 'contents', HEADER, "\xFF" x 400 ]);
my %kinds = (metapage => META, 'node pages' => NODE, 'vector pages' => VECTOR, 'pending pages' => LIST);

foreach my $template ($graph, $lists)
{
	is(failures($template, 0, substr($template->{bytes}, 0, 1)), '', "$template->{name}: undamaged");
	foreach my $kind (sort keys %kinds)
	{
		is(damaged_kind($template, $kinds{$kind}, @$_[ 1, 2 ]), '', "$template->{name}: $kind, $_->[0]") foreach @damages;
	}
	is(damaged_kind($template, META, HEADER + 4, pack('V', 99)), '', "$template->{name}: another format version");
	is(damaged_kind($template, META, HEADER + 8, pack('V', 17)), '', "$template->{name}: other dimensions");
	foreach my $kept (0, 1, (pages_of($template, NODE))[0], (pages_of($template, VECTOR))[0])
	{
		is(failures($template, $kept * PAGE, ''), '', "$template->{name}: a file of $kept pages");
	}
}
is(damaged_kind($lists, META, HEADER + 104, "\xFF" x 64), '', 'lists: their format');

# Without an order the index is left aside where a scan of it would fail at once.
my ($said) = with_damage($graph, HEADER + 4, pack('V', 99), sub {
	run_steps($node, $_[0], [ 'on', "SET enable_seqscan = off; SELECT count(*) > 0 FROM items WHERE $near;" ]) });
is($said->{on}, "t\n", 'a range does without an index of another format version');
$node->stop;

done_testing();
