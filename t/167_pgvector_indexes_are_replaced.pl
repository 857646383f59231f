# tools/gpuann_migrate replaces pgvector's indexes, and can be stopped and run again: no index goes before its successor is there.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use GpuannTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('migrate');
my $tool = "$FindBin::RealBin/../tools/gpuann_migrate";
my @database = (-h => $node->host, -p => $node->port, -d => 'postgres');

sub sql { return $node->safe_psql('postgres', $_[0]); }

sub indexes
{
	return sql(q{SELECT string_agg(c.relname || ' ' || am.amname, ', ' ORDER BY c.relname COLLATE "C") FROM pg_class c JOIN pg_am am ON am.oid = c.relam
		WHERE am.amname IN ('gpuann', 'hnsw')});
}

# Run the tool; its exit status and all that it says.
sub migrate
{
	my ($out, $error);
	my $done = IPC::Run::run([ $tool, @_ ], '>', \$out, '2>', \$error);

	return ($done ? 0 : $? >> 8, $out . $error);
}

sql(q{CREATE TABLE items (id int, v vector(2), w vector(2));
INSERT INTO items SELECT i, ARRAY[i, 0]::vector, ARRAY[i, 1]::vector FROM generate_series(1, 200) i;
CREATE INDEX items_v ON items USING hnsw (v vector_l2_ops);
CREATE INDEX items_w ON items USING hnsw (w vector_l2_ops);
CREATE TABLE parts (id int, v vector(2)) PARTITION BY RANGE (id);
CREATE TABLE low PARTITION OF parts FOR VALUES FROM (0) TO (10);
CREATE INDEX parts_v ON parts USING hnsw (v vector_l2_ops);
ANALYZE});

my ($status, $said) = migrate(@database);
is($status, 0, 'it shows what there is to do');
like($said, qr/CREATE INDEX CONCURRENTLY items_v_gpuann ON public.items/, 'with the statements');
is(indexes(), 'items_v hnsw, items_w hnsw, low_v_idx hnsw, parts_v hnsw', 'and does nothing');

# One of the new names is taken: what was done stays, and nothing is dropped.
sql('CREATE TABLE items_w_gpuann (i int)');
($status, $said) = migrate('--replace', @database);
isnt($status, 0, 'an error ends it');
like($said, qr/relation "items_w_gpuann" already exists/, 'and is said');
is(indexes(), 'items_v hnsw, items_v_gpuann gpuann, items_w hnsw, low_v_idx hnsw, parts_v hnsw', 'no old index has gone');
sql('DROP TABLE items_w_gpuann');

($status, $said) = migrate('--create', @database);
is($status, 0, '--create') or diag $said;
is(indexes(), 'items_v hnsw, items_v_gpuann gpuann, items_w hnsw, items_w_gpuann gpuann, low_v_idx hnsw, low_v_idx_gpuann gpuann, parts_v hnsw, parts_v_gpuann gpuann',
	'builds the new ones beside the old ones, partitions too');
($status, $said) = migrate('--replace', @database);
is($status, 0, '--replace') or diag $said;
is(indexes(), 'items_v gpuann, items_w gpuann, low_v_idx_gpuann gpuann, parts_v gpuann', 'leaves the new ones, under the old names');
is(sql('SELECT count(*) FROM gpuann_migrate()'), 0, 'nothing is left to do');
is(sql("SET enable_seqscan = off; SELECT string_agg(id::text, ',') FROM (SELECT id FROM items ORDER BY v <-> '[17.2,0]' LIMIT 3) n"), '17,18,16', 'they answer');

# Functions that another role made in a schema of the search path are not called, however well their arguments fit.
sql(q{CREATE TABLE trap (called text); CREATE INDEX items_w_hnsw ON items USING hnsw (w vector_ip_ops);
	CREATE FUNCTION public.concat_ws(text, text, text) RETURNS text LANGUAGE sql AS $$ INSERT INTO trap VALUES ('concat_ws'); SELECT 'x' $$;
	CREATE FUNCTION public.count_step(bigint, text) RETURNS bigint LANGUAGE sql AS $$ INSERT INTO trap VALUES ('count'); SELECT coalesce($1, 0) + 1 $$;
	CREATE AGGREGATE public.count(text) (SFUNC = public.count_step, STYPE = bigint)});
($status, $said) = migrate('--replace', @database);
is($status, 0, 'it works beside functions that are called as those it calls') or diag $said;
is(sql('SELECT count(*), min(called) FROM trap'), '0|', 'and calls none of them');
sql('DROP AGGREGATE public.count(text); DROP FUNCTION public.count_step, public.concat_ws(text, text, text); DROP TABLE trap; DROP INDEX items_w_hnsw');

# Names are shown, not obeyed: this one clears the screen and turns it red, by the two ways to write the first character of such a command.
sql(q{CREATE TABLE shown (v vector(2)); CREATE INDEX U&"shown\001B[2J\009B31m" ON shown USING hnsw (v vector_l2_ops);
	CREATE TABLE U&"shown\001B[2J\009B31m_gpuann" (i int); ANALYZE shown});
my $quoted = qr/shown(?:\?|\\x1B)\[2J(?:\?|\\u009B)31m_gpuann/;
($status, $said) = migrate(@database);
like($said, $quoted, 'control characters of a name are shown by others in the list');
unlike($said, qr/[^\n -~]/, 'and by nothing else');
($status, $said) = migrate('--replace', @database);
like($said, qr/$quoted" already exists/, 'so are they in an error');
unlike($said, qr/[^\n -~]/, 'and by nothing else');
sql(q{DROP TABLE U&"shown\001B[2J\009B31m_gpuann"});
($status, $said) = migrate('--replace', @database);
is($status, 0, 'the index is replaced') or diag $said;
like($said, qr/CREATE INDEX CONCURRENTLY "$quoted"/, 'and so are they in statements');
unlike($said, qr/[^\n -~]/, 'and by nothing else');
sql('DROP TABLE shown');

# What a role has put into the extension's schema before is not called by the extension's functions and views.
sql(q{CREATE DATABASE trapped});
my %traps = (
	'left(name, int)' => [ 'name' => '$1' ], 'quote_ident(name)' => [ 'text' => '$1::text' ], 'pg_relation_filenode(oid)' => [ 'oid' => 'NULL' ],
	'pg_relation_size(oid)' => [ 'bigint' => '0' ], 'pg_partition_tree(oid)' => [ 'oid' => '$1' ], 'split_part(name, text, int)' => [ 'text' => 'NULL' ],
	'format(text, name, name)' => [ 'text' => 'NULL' ], 'format(text, name)' => [ 'text' => 'NULL' ], 'octet_length(name)' => [ 'int' => '1' ],
	'pg_get_indexdef(oid, int)' => [ 'text' => 'NULL' ], 'array_to_string(text[], text)' => [ 'text' => 'NULL' ],
	'concat_ws(text, text, text)' => [ 'text' => 'NULL' ], 'unnest(text[])' => [ 'text' => 'NULL' ], 'max(int)' => [ 'int' => '1' ]);
my $trapped = join('', map { "CREATE FUNCTION public.$_ RETURNS $traps{$_}[0] LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''trap: %'', current_query(); END';\n" }
	  sort keys %traps);
$trapped .= "CREATE FUNCTION public.divide(float8, $_) RETURNS float8 LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''trap: divide''; END';
	CREATE OPERATOR public./ (FUNCTION = public.divide, LEFTARG = float8, RIGHTARG = $_);\n" foreach qw(bigint int);
$node->safe_psql('trapped', "$trapped CREATE EXTENSION gpuann CASCADE;
	CREATE TABLE items (v vector(2)); INSERT INTO items SELECT ARRAY[i, 0]::vector FROM generate_series(1, 9) i;
	CREATE INDEX items_v ON items USING hnsw (v vector_l2_ops) WITH (m = 8, ef_construction = 32);
	CREATE INDEX items_g ON items USING gpuann (v vector_cosine_ops); ANALYZE items");
foreach my $query ('SELECT * FROM gpuann_migrate()', 'SELECT * FROM pg_stat_gpuann', 'SELECT * FROM gpuann_server_status')
{
	my ($rc, $out, $error) = $node->psql('trapped', $query);

	is($error, '', "$query calls what it names");
}

# Options that gpuann refuses stop nobody.
sql('CREATE TABLE odd (v vector(2)); CREATE INDEX odd_v ON odd USING hnsw (v vector_l2_ops);
	ALTER INDEX odd_v SET (ef_construction = 4)');
like(sql("SELECT statement || coalesce(note, '') FROM gpuann_migrate() WHERE index = 'odd_v'::regclass"), qr/USING gpuann \(v public.vector_l2_ops\)gpuann has not/,
	'options that gpuann has not are left out, with a note');

# Lists of pgvector's become a graph unless the user says otherwise; the tool shows how, and an index with lists counts as a successor.
sql(q{DROP TABLE odd; CREATE TABLE listed (v vector(2)); INSERT INTO listed SELECT ARRAY[i, 0]::vector FROM generate_series(1, 200) i;
	CREATE INDEX listed_v ON listed USING ivfflat (v vector_l2_ops) WITH (lists = 7); ANALYZE listed});
($status, $said) = migrate(@database);
my ($statement, $options) = $said =~ /(CREATE INDEX CONCURRENTLY listed_v_gpuann .*?) -- a graph; for lists instead: (WITH \(.*?\))/;
is($options, 'WITH (method = ivfpq, lists = 7)', 'the tool shows what to write for lists');
sql("$statement $options");
is(sql("SELECT lists FROM gpuann_lists('listed_v_gpuann')"), 7, 'it can be written so');
($status, $said) = migrate('--replace', @database);
is($status, 0, 'and then replaced') or diag $said;
is(sql(q{SELECT array_to_string(reloptions, ' ') FROM pg_class WHERE relname = 'listed_v'}), 'method=ivfpq lists=7', 'under the old name');

$node->stop;
done_testing();
