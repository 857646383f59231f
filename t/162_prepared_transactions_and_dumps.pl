# A prepared transaction's rows are in the index when it is committed, and only then, whatever happens in between; a dump brings back operator
# classes and options.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use GpuannTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('prepared', conf => ['max_prepared_transactions = 10', 'gpuann.pending_limit = 1000000']);

sub sql { return $node->safe_psql('postgres', $_[0]); }

# The ids of the nearest rows to a point, or what psql complains about.
sub near
{
	my ($x, $limit) = @_;
	return sql("SET enable_seqscan = off; SELECT string_agg(id::text, ',') FROM (SELECT id FROM items ORDER BY v <-> '[$x,0]' LIMIT $limit) n");
}

sql(q{CREATE TABLE items (id int PRIMARY KEY, v vector(2));
INSERT INTO items SELECT i, ARRAY[i, 0]::vector FROM generate_series(1, 500) i;
CREATE INDEX items_v ON items USING gpuann (v vector_l2_ops) WITH (m = 8);});

sql(q{BEGIN;
INSERT INTO items VALUES (1000, '[100.1,0]');
UPDATE items SET v = '[100.2,0]' WHERE id = 400;
DELETE FROM items WHERE id = 100;
PREPARE TRANSACTION 'commits';});
sql(q{BEGIN;
INSERT INTO items SELECT 2000 + i, ARRAY[200.1 + i / 100.0, 0]::vector FROM generate_series(1, 50) i;
DELETE FROM items WHERE id = 200;
PREPARE TRANSACTION 'gives up';});
is(near(100.1, 3), '100,101,99', 'rows of a prepared transaction are not seen');
sql(q{SELECT gpuann_link('items_v')});
sql(q{VACUUM items});
is(near(100.1, 3), '100,101,99', 'not when they are linked either');

$node->stop('immediate');
$node->start;
is(near(100.1, 3), '100,101,99', 'nor after a crash');

sql(q{COMMIT PREPARED 'commits'});
sql(q{ROLLBACK PREPARED 'gives up'});
is(near(100.1, 3), '1000,400,101', 'the rows of one that commits are there');
is(near(200.1, 2), '200,201', 'those of one that gives up are not');
sql(q{VACUUM items});
right_after($node, 'after VACUUM');

# An index made, and a table emptied, in a prepared transaction.
sql(q{BEGIN;
CREATE TABLE made (id int, v vector(2));
INSERT INTO made SELECT i, ARRAY[i, 0]::vector FROM generate_series(1, 100) i;
CREATE INDEX made_v ON made USING gpuann (v vector_l2_ops);
TRUNCATE items;
INSERT INTO items VALUES (1, '[1,1]');
PREPARE TRANSACTION 'makes';});
$node->stop('immediate');
$node->start;
sql(q{COMMIT PREPARED 'makes'});
is(sql(q{SET enable_seqscan = off; SELECT id FROM made ORDER BY v <-> '[70.1,0]' LIMIT 1}), '70', 'an index made in one answers');
is(near(1, 5), '1', 'and so does one that was emptied');
check_index($node, 'the index made', 'made_v');
right_after($node, 'the index emptied');

# Dump and restore: every option and operator class comes back, and the dump of the copy is the dump of the original.
sql(q{DROP TABLE made, items});
sql(q{CREATE TABLE dumped (id int, v vector(3), h halfvec(3));
INSERT INTO dumped SELECT i, ARRAY[i, i, i], ARRAY[i, i, i]::real[]::halfvec FROM generate_series(1, 50) i;
CREATE INDEX a ON dumped USING gpuann (v vector_l2_ops) WITH (m = 5, ef_construction = 33, ef_search = 77, mirror = off, method = graph);
CREATE INDEX b ON dumped USING gpuann (h halfvec_cosine_ops) WITH (ef_search = 10000);
CREATE INDEX c ON dumped USING gpuann ((v::halfvec(3)) halfvec_ip_ops) WHERE id > 10;
CREATE OPERATOR CLASS own_ops FOR TYPE vector USING gpuann AS
	OPERATOR 1 <-> (vector, vector) FOR ORDER BY float_ops,
	FUNCTION 1 vector_l2_squared_distance(vector, vector), FUNCTION 2 gpuann_vector_l2_support(internal);
CREATE INDEX d ON dumped USING gpuann (v own_ops);
CREATE TABLE parted (id int, v vector(2)) PARTITION BY HASH (id);
CREATE TABLE parted0 PARTITION OF parted FOR VALUES WITH (MODULUS 2, REMAINDER 0);
CREATE INDEX e ON parted USING gpuann (v vector_cosine_ops) WITH (m = 3);
CREATE TABLE parted1 PARTITION OF parted FOR VALUES WITH (MODULUS 2, REMAINDER 1);});
my $dir = PostgreSQL::Test::Utils::tempdir();
sub dump_of
{
	my ($database, $file) = @_;
	$node->command_ok([ 'pg_dump', '-f', "$dir/$file", '-d', $node->connstr($database) ], "$database is dumped");
	my $text = slurp_file("$dir/$file");
	$text =~ s/^\\(un)?restrict.*\n//mg;    # a random word, since 2025
	return $text;
}
my $first = dump_of('postgres', 'first.sql');
$node->safe_psql('postgres', 'CREATE DATABASE copy');
$node->command_ok([ 'psql', '-X', '-v', 'ON_ERROR_STOP=1', '-f', "$dir/first.sql", '-d', $node->connstr('copy') ], 'the dump is restored');
is(dump_of('copy', 'second.sql'), $first, 'the copy gives the same dump');
like($first, qr/m='5', ef_construction='33', ef_search='77', mirror=off, method=graph/, 'with every option');
my $definitions = q{SELECT string_agg(pg_get_indexdef(i.indexrelid), E'\n' ORDER BY c.relname) FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
	JOIN pg_am a ON a.oid = c.relam WHERE a.amname = 'gpuann'};
is($node->safe_psql('copy', $definitions), sql($definitions), 'and the same indexes');
is($node->safe_psql('copy', q{SET enable_seqscan = off; SELECT id FROM dumped ORDER BY v <-> '[7.1,7.1,7.1]' LIMIT 1}), '7', 'which answer');

$node->stop;
done_testing();
