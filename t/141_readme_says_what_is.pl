# docs/reference.md tells the truth: its tables of settings, options, operator classes, functions, views and
# columns are complete and name the defaults, ranges and types that PostgreSQL knows.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib $FindBin::RealBin;
use GpuannTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $top = "$FindBin::RealBin/..";
my $reference = PostgreSQL::Test::Utils::slurp_file("$top/docs/reference.md");
my $node = new_node('readme', preload => 'gpuann', conf => ['gpuann.engine = cpu']);

# The rows of the first table behind a heading, of docs/reference.md unless another text is given: lists of cells, without
# backquotes.
sub table_after
{
	my ($heading, $text) = @_;
	my ($table) = ($text // $reference) =~ /\Q$heading\E.*?\n((?:\|[^\n]*\n)+)/s;
	my @rows = split /\n/, $table // '';

	return map { s/`//g; [ map { s/^ +| +$//gr } split /\|/, substr($_, 1), -1 ] } @rows[ 2 .. $#rows ];
}

sub rows
{
	my ($sql) = @_;
	return split /\n/, $node->safe_psql('postgres', $sql);
}

# Settings: each is documented, and as it is. Those of test builds say so.
my %known = map { my ($name, @rest) = split /;/, $_, -1; $name => \@rest } rows(q{
	SELECT name || ';' || CASE WHEN unit = 'ms' AND boot_val <> '-1' THEN boot_val::int / 1000 || CASE boot_val WHEN '0' THEN '' ELSE 's' END ELSE coalesce(boot_val, '') END
		|| ';' || CASE WHEN vartype = 'bool' THEN 'on, off' WHEN vartype = 'enum' THEN array_to_string(enumvals, ', ')
			WHEN vartype = 'integer' THEN min_val ELSE '' END || ';' || coalesce(max_val, '') || ';' || coalesce(unit, '') || ';' || context
	FROM pg_settings WHERE name LIKE 'gpuann.%' AND extra_desc IS DISTINCT FROM 'For tests only.'});
my %told = map { $_->[0] => $_ } table_after('## Settings of a session'), table_after('## Settings of the server'),
	table_after('## Developer settings');
is(join(' ', sort keys %told), join(' ', sort keys %known), 'every setting is in a table, and no other');
foreach my $name (sort keys %told)
{
	my (undef, $default, $range, $effect) = @{ $told{$name} };
	my ($boot, $least, $most, $unit, $context) = @{ $known{$name} // [] };
	my %contexts = (user => '', sighup => 'reload', postmaster => 'restart', superuser => 'superuser');

	is($default, $boot, "$name: its default");
	if ($least =~ /^-?\d+$/)
	{
		# Of a range with a unit only the least is told.
		my ($from, $to, $or) = $range =~ /^(\d+)(?:ms)?–(\d*)(?:, or (-1))?$/;

		is($or // $from, $least, "$name: the least value");
		is($to, $unit eq '' ? $most : '', "$name: the greatest value");
	}
	else
	{
		is($range, $least, "$name: its values");
	}
	is($effect =~ s/^superuser\b.*/superuser/r, $contexts{$context}, "$name: when it takes effect") if @{ $told{$name} } > 5;
}

# Developer settings say so, to PostgreSQL too.
is(join(' ', sort map { $_->[0] } table_after('## Developer settings')), join(' ', rows(q{SELECT name FROM pg_settings WHERE name LIKE 'gpuann.%'
	AND 'NOT_IN_SAMPLE' = ANY (pg_settings_get_flags(name)) AND extra_desc ~ 'developer setting' ORDER BY name})), 'every developer setting is in their table');

# Options: what PostgreSQL says when a value is out of range, and what an index without options has.
$node->safe_psql('postgres', 'CREATE TABLE plain (v vector(3)); INSERT INTO plain SELECT ARRAY[i, 1, 1] FROM generate_series(1, 200) i;
	CREATE INDEX plain_v ON plain USING gpuann (v vector_l2_ops)');
my %default = (method => 'graph', mirror => 'on');
@default{qw(m ef_construction)} = split /\|/, $node->safe_psql('postgres', "SELECT m, ef_construction FROM gpuann_stats('plain_v')");
$default{ef_search} = $node->safe_psql('postgres', q{SET gpuann.server = off; SET enable_seqscan = off; SET gpuann.iterative_scan = off;
	SELECT count(*) FROM (SELECT 1 FROM plain ORDER BY v <-> '[1,1,1]' LIMIT 1000) s});
my @options = table_after('## Index options');
is(join(' ', sort map { $_->[0] } @options), join(' ', sort keys %default), 'every option is in the table');
foreach my $option (@options)
{
	my ($name, $default, $range) = @$option;
	my ($rc, $out, $err) = $node->psql('postgres', "CREATE INDEX ON plain USING gpuann (v vector_l2_ops) WITH ($name = 1234567)");

	is($default, $default{$name}, "option $name: its default");
	if ($range =~ /^(\d+)–(\d+)/)
	{
		like($err, qr/Valid values are between "$1" and "$2"/, "option $name: its range");
	}
	else
	{
		isnt($rc, 0, "option $name: has other values");
		foreach my $value (split /, /, $range)
		{
			is($node->psql('postgres', "CREATE INDEX ON plain USING gpuann (v vector_l2_ops) WITH ($name = $value)"), 0, "option $name: $value");
		}
	}
}

# Options of lists.
@options = table_after('## Options of lists');
is(join(' ', sort map { $_->[0] } @options), 'code_bits cooc lists pq_m probes quantizer', 'every option of lists is in the table');
foreach my $option (@options)
{
	my ($name, undef, $range) = @$option;
	my ($rc, $out, $err) = $node->psql('postgres', "CREATE INDEX ON plain USING gpuann (v vector_l2_ops) WITH (method = ivfpq, $name = 1234567)");

	my @values = split /, /, $range =~ s/`//gr;
	my $values = join(' and ', join(', ', map { qq("$_") } @values[ 0 .. $#values - 1 ]), qq("$values[-1]"));
	like($err, $range =~ /^(\d+)–(\d+)/ ? qr/Valid values are between "$1" and "$2"/ : qr/Valid values are \Q$values\E/, "option $name: its range");
}

# Operator classes, each under its operator; and how many dimensions they take.
my @classes = table_after('Operator classes are named');
my %classes = map { ($_ => 1) } map { @$_[ 1 .. 6 ] } @classes;
delete $classes{''};
is(join(' ', sort keys %classes), join(' ', sort { $a cmp $b } rows(q{SELECT opcname FROM pg_opclass JOIN pg_am ON pg_am.oid = opcmethod
	WHERE amname = 'gpuann'})), 'every operator class is in the table');
foreach my $type (@classes)
{
	my ($name) = $type->[0] =~ /^(\w+)/;
	my ($most) = $type->[7] =~ /–([\d,]+)$/;
	my $class = (grep { $_ ne '' } @$type[ 1 .. 6 ])[0];

	$most =~ s/,//;
	is($node->psql('postgres', "CREATE TABLE ${name}_most (v $name($most)); CREATE INDEX ON ${name}_most USING gpuann (v $class)"), 0,
		"$name: $most dimensions");
	# The types of vectors themselves end there.
	next if $name ne 'bit';
	isnt($node->psql('postgres', "CREATE TABLE ${name}_more (v $name(" . ($most + 1) . ")); CREATE INDEX ON ${name}_more USING gpuann (v $class)"), 0,
		"$name: no more");
}

# Functions and views: all there, with the arguments that they take; of functions of one name, those of the one that takes the fewest.
my %functions = map { my ($name) = $_->[0] =~ /^(\w+)/; $name => $_->[0] } table_after('## Functions');
my @members = rows(q{
	SELECT DISTINCT proname FROM pg_proc JOIN pg_depend ON objid = pg_proc.oid AND classid = 'pg_proc'::regclass AND deptype = 'e'
		JOIN pg_extension e ON e.oid = refobjid AND extname = 'gpuann'
		WHERE prorettype NOT IN ('internal'::regtype, 'index_am_handler'::regtype) AND proname NOT IN ('gpuann_stat_indexes', 'gpuann_stat_latency')
	UNION SELECT relname FROM pg_class JOIN pg_depend ON objid = pg_class.oid AND classid = 'pg_class'::regclass AND deptype = 'e'
		JOIN pg_extension e ON e.oid = refobjid AND extname = 'gpuann'});
is(join(' ', sort keys %functions), join(' ', sort @members), 'every function and view is in the table');
foreach my $name (sort grep { $functions{$_} =~ /\((?!\[)/ } keys %functions)
{
	my ($arguments) = $functions{$name} =~ /\((.*)\)/;
	my ($known) = rows(qq{
		SELECT coalesce(string_agg(proargnames[i] || coalesce(' default ' ||
				lower(regexp_replace(pg_get_function_arg_default(oid, i), '::.*', '')), ''), ', ' ORDER BY i), '')
		FROM pg_proc LEFT JOIN generate_series(1, 8) i ON i <= pronargs
			WHERE proname = '$name' AND pronargs = (SELECT min(pronargs) FROM pg_proc WHERE proname = '$name')});

	is($arguments, $known // '', "$name: its arguments");
}

# Their columns: names, types and order; each is explained.
my %columns = map { my ($owner, @rest) = split /;/; $owner => \@rest } rows(q{
	SELECT proname || ';' || string_agg(proargnames[i] || ' ' || format_type(proallargtypes[i], NULL), ';' ORDER BY i)
		FROM pg_proc, generate_series(1, 100) i WHERE proargmodes[i] = 'o' AND proname LIKE 'gpuann\_%'
			AND proname NOT IN ('gpuann_stat_indexes', 'gpuann_stat_latency', 'gpuann_server_status')
			AND pronargs = (SELECT min(pronargs) FROM pg_proc o WHERE o.proname = pg_proc.proname) GROUP BY proname
	UNION ALL SELECT relname || ';' || string_agg(attname || ' ' || format_type(atttypid, atttypmod), ';' ORDER BY attnum)
		FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid WHERE attnum > 0 AND relkind = 'v' AND relname LIKE '%gpuann%'
		GROUP BY relname});
cmp_ok(scalar keys %columns, '>=', 6, 'functions and views have columns');
foreach my $name (sort keys %columns)
{
	my @documented = table_after("### $name");

	is(join("\n", map { "$_->[0] $_->[1]" } @documented), join("\n", @{ $columns{$name} }), "$name: its columns");
	is(scalar(grep { ($_->[2] // '') eq '' } @documented), 0, "$name: every column is explained");
}

# Reasons for a fallback: those that are counted, and the one that is not.
is(join(' ', sort map { $_->[0] } table_after('## Reasons for a fallback')),
	join(' ', sort 'not_preloaded', map { /^fallback_(\w+) / ? $1 : () } @{ $columns{pg_stat_gpuann} }),
	'every reason for a fallback is in the table');

$node->stop;

done_testing();
