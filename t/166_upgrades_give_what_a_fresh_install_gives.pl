# The SQL of a version that was published does not change. A database whose extension is of an earlier version is served by this library, and after
# ALTER EXTENSION UPDATE has what a fresh installation has: every object, with its definition, comment and privileges. Indexes and data stay, every
# function and view answers before and after, or says that it was removed, and a dump of either is restored at the newest version.

use strict;
use warnings;

use Digest::SHA qw(sha256_hex);
use FindBin;
use lib $FindBin::RealBin;
use GpuannTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

# Published versions, and their SQL.
my %published = ('0.1' => 'e3fd1a61227f358337b733405dffc649908a092450607a33efc2a57c07a1e960',
	'0.2' => 'd0dfaf51624a13c2ac77025c40a30fa69921695e5bb267b97b23eec6784f678a');

# Functions of a published version that this library has no more: what they say in a database that was not updated.
my %removed = (gpuann_list_schedule => qr/ERROR:  gpuann_list_schedule was removed in version 0\.3 of gpuann\n.*HINT:.*ALTER EXTENSION gpuann UPDATE/s);

chomp(my $share = `pg_config --sharedir`);
my ($newest) = slurp_file("$share/extension/gpuann.control") =~ /default_version = '(.*?)'/;

my $node = server_node('upgrade');

# Scripts of versions that another test has made for itself do not count.
my @earlier = split /\n/, $node->safe_psql('postgres',
	"SELECT version FROM pg_available_extension_versions WHERE name = 'gpuann' AND version <> '$newest' AND version ~ '^[0-9.]+\$' ORDER BY version");

is_deeply(\@earlier, [ sort keys %published ], 'every version but the newest is known to be published');
foreach my $version (sort keys %published)
{
	my $script = (grep { -e } glob("$share/extension/gpuann--*$version.sql"))[0] // '';
	is($script eq '' ? 'there is none' : sha256_hex(slurp_file($script)), $published{$version}, "$version: its SQL is as it was published");
}
ok(await_server($node), 'the server is ready');

# Objects of the extension, with all that is said of them; one a line.
my $objects = q{
SELECT what FROM (
SELECT pg_describe_object(d.classid, d.objid, 0) || ': ' || concat_ws(' ',
	regexp_replace(pg_get_functiondef(p.oid), '\s+', ' ', 'g'), p.proacl::text,
	regexp_replace(pg_get_viewdef(c.oid), '\s+', ' ', 'g'), c.relacl::text,
	a.amhandler::text, a.amtype::text, o.opcintype::regtype::text, o.opcdefault::text, o.opckeytype::regtype::text,
	(SELECT string_agg(concat_ws(' ', amopstrategy, amopopr::regoperator, amoppurpose, amopsortfamily), ', ' ORDER BY amopstrategy, amoplefttype)
		FROM pg_amop WHERE amopfamily = f.oid),
	(SELECT string_agg(concat_ws(' ', amprocnum, amproc::regprocedure), ', ' ORDER BY amprocnum, amproclefttype) FROM pg_amproc WHERE amprocfamily = f.oid),
	obj_description(d.objid, d.classid::regclass::name), i.initprivs::text) AS what
FROM pg_depend d
	LEFT JOIN pg_proc p ON d.classid = 'pg_proc'::regclass AND p.oid = d.objid
	LEFT JOIN pg_class c ON d.classid = 'pg_class'::regclass AND c.oid = d.objid
	LEFT JOIN pg_am a ON d.classid = 'pg_am'::regclass AND a.oid = d.objid
	LEFT JOIN pg_opclass o ON d.classid = 'pg_opclass'::regclass AND o.oid = d.objid
	LEFT JOIN pg_opfamily f ON d.classid = 'pg_opfamily'::regclass AND f.oid = d.objid
	LEFT JOIN pg_init_privs i ON i.classoid = d.classid AND i.objoid = d.objid AND i.objsubid = 0
WHERE d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e' AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'gpuann')
) s ORDER BY what COLLATE "C"};

# Every view, and every function that SQL may call, with the index a_v for what it is about. What needs other arguments has its own.
my $with_lists = 'BEGIN; CREATE TABLE with_lists (v vector(3)); INSERT INTO with_lists VALUES (\'[1,2,3]\');
	CREATE INDEX with_lists_v ON with_lists USING gpuann (v vector_l2_ops) WITH (method = ivfpq);';
my %calls = (gpuann_estimate => 'SELECT * FROM gpuann_estimate(1000, 8)',
	gpuann_parts_query => q{SELECT gpuann_parts_query('a', 'v <-> v')},
	gpuann_search => q{SELECT * FROM gpuann_search('a_v', (SELECT array_agg(v) FROM a))},
	gpuann_list_stats => "$with_lists SELECT * FROM gpuann_list_stats('with_lists_v'); ROLLBACK",
	gpuann_list_encoding => "$with_lists DROP INDEX with_lists_v;
	CREATE INDEX with_codes_v ON with_lists USING gpuann (v vector_l2_ops) WITH (method = ivfpq, quantizer = pq, pq_m = 3);
	SELECT * FROM gpuann_list_encoding('with_codes_v'); ROLLBACK",
	map { ($_ => "$with_lists SELECT * FROM $_('with_lists_v', 2); ROLLBACK") } qw(gpuann_list_placement gpuann_list_schedule));
my $callable = q{
SELECT c.relname || ': SELECT * FROM ' || c.relname FROM pg_depend d JOIN pg_class c ON c.oid = d.objid AND c.relkind = 'v'
WHERE d.classid = 'pg_class'::regclass AND d.deptype = 'e' AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'gpuann')
UNION ALL
SELECT p.proname || ': SELECT * FROM ' || p.proname || CASE WHEN p.pronargs = 0 THEN '()' ELSE '(''a_v'')' END
FROM pg_depend d JOIN pg_proc p ON p.oid = d.objid
WHERE d.classid = 'pg_proc'::regclass AND d.deptype = 'e' AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'gpuann')
	AND p.prorettype NOT IN ('internal'::regtype, 'index_am_handler'::regtype)};

sub everything_answers
{
	my ($database, $what) = @_;
	my $wrong = '';
	my @lines = split /\n/, $node->safe_psql($database, $callable);

	foreach my $line (@lines)
	{
		my ($name, $call) = split /: /, $line, 2;
		my ($rc, $out, $err) = $node->psql($database, $calls{$name} // $call);

		$wrong .= "$call: $err\n" unless exists $removed{$name} ? $err =~ $removed{$name} : $rc == 0;
	}
	cmp_ok(scalar @lines, '>=', 12, "$what: there are views and functions");
	is($wrong, '', "$what: every view and function answers, or says that it was removed");
}

# The nearest rows by each index, through the server where it says so, and whether each index is right.
my @indexes = qw(a_v a_h a_b a_e);
# Of bits two rows are equal to the query; many are one bit from it, and any of these may come next.
my $queries = join(";\n", map { "SELECT string_agg(id::text, ',' ORDER BY d, id) FROM (SELECT id, $_->[0] AS d FROM a ORDER BY $_->[0] LIMIT $_->[1]) s" }
	  [ "v <-> '[70.1,70,70]'", 5 ], [ "h <=> '[1,2,70]'", 5 ], [ "b <~> B'01000110'", 2 ], [ "(v::halfvec(3)) <#> '[1,1,1]'", 5 ]);

sub answers_of
{
	my ($database, $settings) = @_;
	return $node->safe_psql($database, "SET enable_seqscan = off; SET enable_sort = off; SET gpuann.exact = on; $settings; $queries");
}

sub indexes_are_right
{
	my ($database, $what, $expected) = @_;
	my $wrong = '';

	is(answers_of($database, 'SET gpuann.server = off'), $expected, "$what: the pages answer");
	ok(await('the server answers', sub {
			my ($rc, $out) = $node->psql($database, "SET enable_seqscan = off; SET enable_sort = off; SET gpuann.exact = on; SET gpuann.fallback = error; $queries");
			return $rc == 0 && $out eq $expected;
		}), "$what: the server answers");
	foreach my $index (@indexes)
	{
		my ($rc, $out, $err) = $node->psql($database, "SELECT gpuann_check('$index', true)");
		$wrong .= "$index: $err\n" if $rc != 0;
	}
	is($wrong, '', "$what: every index is right");
}

sub extension_version
{
	return $node->safe_psql($_[0], "SELECT extversion FROM pg_extension WHERE extname = 'gpuann'");
}

# Dump a database, and restore it as another.
sub copy_database
{
	my ($from, $to) = @_;
	my $file = PostgreSQL::Test::Utils::tempdir() . '/dump.sql';

	$node->command_ok([ 'pg_dump', '-f', $file, $node->connstr($from) ], "$from: is dumped");
	$node->safe_psql('postgres', "CREATE DATABASE $to");
	$node->command_ok([ 'psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', '-f', $file, '-d', $node->connstr($to) ], "$from: the dump is restored");
}

$node->safe_psql('postgres', 'CREATE DATABASE fresh');
$node->safe_psql('fresh', 'CREATE EXTENSION vector; CREATE EXTENSION gpuann');
my $fresh = $node->safe_psql('fresh', $objects);
is(extension_version('fresh'), $newest, 'a fresh installation is the newest version');
cmp_ok(scalar(my @lines = split /\n/, $fresh), '>=', 30, 'it has objects to compare');

foreach my $version (@earlier)
{
	(my $database = "from_$version") =~ s/\W/_/g;
	my $expected;

	$node->safe_psql('postgres', "CREATE DATABASE $database");
	$node->safe_psql($database, qq{CREATE EXTENSION vector; CREATE EXTENSION gpuann VERSION '$version';
CREATE TABLE a (id int, v vector(3), h halfvec(3), b bit(8));
INSERT INTO a SELECT i, ARRAY[i, i, i], ARRAY[1, 2, i]::real[]::halfvec, i::bit(8) FROM generate_series(1, 200) i;
CREATE INDEX a_v ON a USING gpuann (v vector_l2_ops);
CREATE INDEX a_h ON a USING gpuann (h halfvec_cosine_ops) WITH (m = 8, ef_construction = 32);
CREATE INDEX a_b ON a USING gpuann (b bit_hamming_ops);
CREATE INDEX a_e ON a USING gpuann ((v::halfvec(3)) halfvec_ip_ops) WHERE id > 0;
INSERT INTO a SELECT i, ARRAY[i, i, i], ARRAY[1, 2, i]::real[]::halfvec, (i % 200)::bit(8) FROM generate_series(201, 300) i;
DELETE FROM a WHERE id % 7 = 0; VACUUM a;
INSERT INTO a VALUES (301, '[70,70,70]', '[1,2,70]', B'01000110');});
	is(extension_version($database), $version, "$version: it is that version");
	$expected = $node->safe_psql($database, "SET enable_indexscan = off; $queries");
	indexes_are_right($database, "$version, under this library", $expected);
	everything_answers($database, "$version, under this library");
	copy_database($database, "${database}_restored");
	is(extension_version("${database}_restored"), $newest, "$version, restored: it is the newest version");
	indexes_are_right("${database}_restored", "$version, restored", $expected);

	$node->safe_psql($database, 'ALTER EXTENSION gpuann UPDATE');
	is(extension_version($database), $newest, "$version: is updated to $newest");
	indexes_are_right($database, "$version, updated", $expected);
	everything_answers($database, "$version, updated");
	is($node->safe_psql($database, $objects), $fresh, "$version, updated: it has what a fresh installation has");
	$node->safe_psql($database, "INSERT INTO a VALUES (302, '[70.1,70,70]', '[1,2,70]', B'11111111'); SELECT gpuann_link('a_v'); REINDEX TABLE a; VACUUM a");
	indexes_are_right($database, "$version, updated and changed", $node->safe_psql($database, "SET enable_indexscan = off; $queries"));
	copy_database($database, "${database}_copied");
	is($node->safe_psql("${database}_copied", $objects), $fresh, "$version, updated, restored: it has what a fresh installation has");
}
$node->stop;

done_testing();
