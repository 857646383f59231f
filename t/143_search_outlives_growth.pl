# A search goes on while the index grows: what a session remembers of where blocks are stays where it is, however many there are by then.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use GpuannTest;
use PgSession;
use Test::More;

# Memory that was freed does not keep what was in it.
$ENV{MALLOC_PERTURB_} = 165;

my $node = new_node('growth', conf => [ 'shared_buffers = 128MB', 'gpuann.pending_limit = 1000000' ]);
my $blocks = "SELECT pg_relation_size('items_b') / current_setting('block_size')::int";

# A row takes a page of the index, and little of the table.
$node->safe_psql('postgres', q{
	CREATE FUNCTION bits(seed int) RETURNS bit(64000) LANGUAGE sql IMMUTABLE AS $$ SELECT ('x' || repeat(md5(seed::text), 500))::bit(64000) $$;
	CREATE UNLOGGED TABLE items (id int);
	INSERT INTO items SELECT generate_series(1, 300);
	CREATE INDEX items_b ON items USING gpuann ((bits(id)::bit(64000)) bit_hamming_ops)});

my $reader = PgSession->new($node);
$reader->rows($_) foreach 'SET enable_seqscan = off', 'SET enable_sort = off', 'SET gpuann.server = off', 'SET gpuann.ef_search = 1', 'BEGIN',
	'DECLARE near CURSOR FOR SELECT id FROM items ORDER BY bits(id)::bit(64000) <~> bits(7)';
is($reader->rows('FETCH 1 FROM near'), '7', 'a search has begun');

# Rows that are rolled back make the index grow, and are never linked; those that come then take the places of the last of them.
cmp_ok($node->safe_psql('postgres', $blocks), '<', 8192, 'the index has fewer than 8,192 blocks');
$node->safe_psql('postgres', 'BEGIN; INSERT INTO items SELECT generate_series(1, 8600); ROLLBACK');
$node->safe_psql('postgres', 'VACUUM (INDEX_CLEANUP on) items');
$node->safe_psql('postgres', 'INSERT INTO items SELECT generate_series(301, 400)');
is($node->safe_psql('postgres', "SELECT gpuann_link('items_b')"), '100', 'rows are linked elsewhere');
cmp_ok($node->safe_psql('postgres', $blocks), '>', 8192, 'the index has more than 8,192 blocks');

my $rest = $reader->query('FETCH ALL FROM near');
ok(!$rest->{lost}, 'the search goes on');
is($rest->{error}, '', 'without an error');
is(join(' ', sort { $a <=> $b } 7, @{ $rest->{rows} }), join(' ', 1 .. 300), 'it gives every row that its snapshot sees');
$node->stop('immediate');

done_testing();
