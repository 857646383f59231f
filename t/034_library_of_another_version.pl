# The library that is preloaded and the extension's SQL are of different versions, as after ALTER EXTENSION UPDATE without a restart, or
# after a restart without ALTER EXTENSION UPDATE: a function that was declared otherwise says so, an update that the library cannot do fails as
# a whole, scans and workers are not concerned, and nothing crashes.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use CrowdTest;
use GpuannTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my $share = `pg_config --sharedir`;
chomp $share;
my $directory = "$share/extension";
my @versions = ('0.1.newer', '0.1.beyond');

plan skip_all => "$directory cannot be written to" unless -w $directory;

my ($version) = slurp_file("$directory/gpuann.control") =~ /default_version = '(.*?)'/;

sub script_file
{
	return "$directory/gpuann--$version--$_[0].sql";
}

sub write_script
{
	my ($to, $sql) = @_;

	unlink script_file($to);
	append_to_file(script_file($to), $sql);
}

END { unlink map { script_file($_) } @versions if defined $version; }

# SQL of a version with more, fewer and other columns and arguments than the library knows.
my $other = q{
DROP VIEW pg_stat_gpuann;
DROP VIEW gpuann_server_status;
DROP FUNCTION gpuann_stat_indexes();
DROP FUNCTION gpuann_server_status();
DROP FUNCTION gpuann_last_scan();
DROP FUNCTION gpuann_check(regclass, boolean);
DROP FUNCTION gpuann_stats(regclass);
DROP FUNCTION gpuann_migrate();
DROP FUNCTION gpuann_estimate(bigint, integer, regtype, text[], text);
CREATE FUNCTION gpuann_stat_indexes(OUT indexrelid oid, OUT relfilenode oid, OUT state text) RETURNS SETOF record
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE;
CREATE FUNCTION gpuann_server_status(OUT state text, OUT pid integer, OUT epoch bigint, OUT restarts bigint, OUT started timestamptz,
	OUT engine text, OUT device text, OUT shared_bytes bigint, OUT memory_limit bigint, OUT memory_used bigint, OUT memory_context bigint,
	OUT mirrors_ready integer, OUT mirrors_loading integer, OUT requests bigint, OUT batches bigint, OUT last_error text, OUT more text, OUT evenmore text)
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE;
CREATE FUNCTION gpuann_last_scan(OUT path bigint, OUT engine text, OUT visited text, OUT pending bigint,
	OUT proposed bigint, OUT dropped bigint, OUT continuations integer, OUT fallback_reason text)
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE;
CREATE FUNCTION gpuann_check(index regclass) RETURNS void AS 'MODULE_PATHNAME' LANGUAGE C STRICT;
CREATE FUNCTION gpuann_stats(index regclass) RETURNS text AS 'MODULE_PATHNAME' LANGUAGE C STRICT;
CREATE FUNCTION gpuann_estimate(rows bigint, OUT index_bytes bigint, OUT mirror_bytes bigint, OUT build_memory bigint, OUT build_seconds float8,
	OUT build_threads integer) AS 'MODULE_PATHNAME' LANGUAGE C STRICT;
};

my $node = server_node('main');
$node->safe_psql('postgres', make_crowd_table('items'));
make_crowd_functions($node);
ok(await_mirror($node), 'the mirror is there');
my $postmaster = $node->safe_psql('postgres', 'SELECT pg_postmaster_start_time()');

# The answers of server and pages, without any function of the extension.
sub scans_are_right
{
	my ($what) = @_;

	is($node->safe_psql('postgres', "SET enable_seqscan = off; SET gpuann.exact = on; SET gpuann.fallback = $_->[0]; SET gpuann.server = $_->[1];
		SELECT count(*) FROM crowd_answers a WHERE ids = (SELECT array_agg(id ORDER BY d, id) FROM
			(SELECT id, v <-> query AS d FROM items ORDER BY v <-> query LIMIT 10) n)"), 20, "$what: $_->[2] right")
	  foreach [ 'error', 'on', "the server's answers are" ], [ 'on', 'off', "the pages' answers are" ];
	is($node->safe_psql('postgres', 'SELECT pg_postmaster_start_time()'), $postmaster, "$what: nothing has crashed");
}

sub status_in
{
	my ($database, $column) = @_;

	return $node->safe_psql($database, "SELECT $column FROM gpuann_server_status");
}

sub refused
{
	my ($call, $what) = @_;
	my ($rc, $out, $err) = $node->psql('postgres', $call);

	like($err, qr/function [a-z_]+\(.*\) was declared for another version of the gpuann library/, "$what: $call is refused");
	like($err, qr/HINT:.*ALTER EXTENSION gpuann UPDATE/, "$what: with a hint");
}

# An update that needs what the library does not have: it fails, and everything is as before.
write_script('0.1.beyond', "CREATE FUNCTION gpuann_of_tomorrow() RETURNS void AS 'MODULE_PATHNAME' LANGUAGE C;");
my ($rc, $out, $err) = $node->psql('postgres', "ALTER EXTENSION gpuann UPDATE TO '0.1.beyond'");
like($err, qr/could not find function "gpuann_of_tomorrow" in file ".*gpuann\.so"/, 'an update for a newer library is refused');
is($node->safe_psql('postgres', "SELECT extversion FROM pg_extension WHERE extname = 'gpuann'"), $version, 'the version is still the old one');
is(figure($node, 'state'), 'ready', 'and the views work');
scans_are_right('update refused');

# An update that the library takes, but whose functions are declared otherwise; under queries.
write_script('0.1.newer', $other);
my @calls = ('SELECT * FROM gpuann_stat_indexes()', 'SELECT * FROM gpuann_server_status()', 'SELECT * FROM gpuann_last_scan()',
	"SELECT gpuann_check('items_v')", "SELECT gpuann_stats('items_v')", 'SELECT * FROM gpuann_estimate(1000)');
my $crowd = start_crowd($node, tables => ['items'], sessions => 2);
$node->safe_psql('postgres', "ALTER EXTENSION gpuann UPDATE TO '0.1.newer'");
my $total = end_crowd($crowd);
is(scalar(grep { !/declared for another version|changed its|gpuann_last_scan|cached plan|cache lookup failed|structure of query|type.*does not match|invalid input syntax/ } @{ $total->{errors} }), 0, 'sessions find out at most that a function has changed')
  or diag(join "\n", @{ $total->{errors} });
refused($_, 'SQL of another version') foreach @calls;
scans_are_right('SQL of another version');
is($node->safe_psql('postgres', "SELECT gpuann_link('items_v')"), '0', 'functions that are the same work');
cmp_ok($node->safe_psql('postgres', "SELECT gpuann_evict('items_v'), gpuann_prewarm('items_v') > 0"), 'eq', 't|t', 'those about mirrors too');
$node->safe_psql('postgres', fill_crowd_table('items', 0) . "DELETE FROM items WHERE ctid IN (SELECT max(ctid) FROM items GROUP BY id);
	REINDEX INDEX items_v; VACUUM items");
cmp_ok($node->safe_psql('postgres', "SELECT gpuann_prewarm('items_v')"), '>', 0, 'the index is maintained as ever');
scans_are_right('changed with SQL of another version');

# After the restart that the hint asks for, still with this library: the same.
$node->restart;
$postmaster = $node->safe_psql('postgres', 'SELECT pg_postmaster_start_time()');
refused($_, 'restarted') foreach $calls[0];
cmp_ok($node->safe_psql('postgres', "SELECT gpuann_prewarm('items_v')"), '>', 0, 'restarted: mirrors come back');
scans_are_right('restarted');

# The SQL that belongs to the library makes everything right again.
$node->safe_psql('postgres', 'CREATE DATABASE another');
$node->safe_psql('another', 'CREATE EXTENSION vector; CREATE EXTENSION gpuann; SELECT * FROM gpuann_server_status');
pass('in another database the version of the library works');

# The extension goes altogether, with its indexes, and comes back.
my $used = status_in('another', 'memory_used');
$node->safe_psql('postgres', 'DROP EXTENSION gpuann CASCADE');
ok(await('the memory is free', sub { status_in('another', 'memory_used') < $used }), 'DROP EXTENSION frees the memory of its mirrors');
is($node->safe_psql('postgres', "SET gpuann.fallback = error; SELECT count(*) FROM crowd_answers a WHERE ids =
	(SELECT array_agg(id ORDER BY d, id) FROM (SELECT id, v <-> query AS d FROM items ORDER BY v <-> query LIMIT 10) n)"), 20, 'searches go on without it');
$node->safe_psql('postgres', 'CREATE EXTENSION gpuann; CREATE INDEX items_v ON items USING gpuann (v vector_l2_ops)');
ok(await_mirror($node), 'installed again, it serves');
scans_are_right('installed again');
is(log_count($node, qr/was terminated by signal|TRAP|PANIC/), 0, 'nothing has crashed');
$node->stop;
done_testing();
