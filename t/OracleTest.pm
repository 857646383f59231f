# OracleTest.pm
#		What t/172 compares queries over: pairs of tables with the same rows, one of which has an index, and the judge of two answers.
#
# A data set is a schema with the tables items (indexed) and plain (not indexed), queries (query vectors by number; that of number 0 is
# NULL) and marks (some ids). Of items' rows most are linked, some pending, some dead.
#
# The judge knows properties, not bytes: the index may give other near rows than the nearest, and orders ties as it likes.

package OracleTest;

use strict;
use warnings;

use Exporter 'import';
use List::Util qw(min);

our @EXPORT = qw(pick chance data_sets make_data_set truth allowed_ids judge literal query_count);

my $query_count = 10;

sub pick { return $_[int(rand(@_))]; }
sub chance { return rand() < $_[0]; }
sub query_count { return $query_count; }

# name, type, dimensions, operator class, operator, rows, values, and what only some have: tables (how items is partitioned; or holes: some
# rows are not indexed), options of the index.
#
# What a set is for: clusters that a sparse graph does not connect, so that searches miss rows; distances closer than single precision;
# equal vectors; sums that overflow and that vanish; norms of all sizes; partitions.
sub data_sets
{
	my @sets;

	push @sets, { name => $_->[0], type => $_->[1], dims => $_->[2], class => $_->[3], operator => $_->[4], rows => $_->[5], values => $_->[6],
		tables => $_->[7] // '', options => $_->[8] // 'm = 2, ef_construction = 4' }
	  foreach (
		[ 'l2', 'vector', 6, 'vector_l2_ops', '<->', 3000, 'clusters' ],
		[ 'l2_close', 'vector', 3, 'vector_l2_ops', '<->', 2500, 'close' ],
		[ 'l2_equal', 'vector', 4, 'vector_l2_ops', '<->', 2500, 'equal' ],
		[ 'l2_huge', 'vector', 4, 'vector_l2_ops', '<->', 2000, 'huge' ],
		[ 'l2_tiny', 'vector', 4, 'vector_l2_ops', '<->', 2000, 'tiny' ],
		[ 'ip', 'vector', 8, 'vector_ip_ops', '<#>', 3000, 'norms' ],
		[ 'ip_close', 'vector', 3, 'vector_ip_ops', '<#>', 2000, 'close' ],
		[ 'ip_huge', 'vector', 4, 'vector_ip_ops', '<#>', 2000, 'huge' ],
		[ 'cosine', 'vector', 8, 'vector_cosine_ops', '<=>', 3000, 'norms' ],
		[ 'cosine_close', 'vector', 3, 'vector_cosine_ops', '<=>', 2000, 'close' ],
		[ 'cosine_huge', 'vector', 4, 'vector_cosine_ops', '<=>', 2000, 'huge' ],
		[ 'cosine_tiny', 'vector', 4, 'vector_cosine_ops', '<=>', 2000, 'tiny' ],
		[ 'l1', 'vector', 6, 'vector_l1_ops', '<+>', 3000, 'clusters' ],
		[ 'l1_huge', 'vector', 4, 'vector_l1_ops', '<+>', 2000, 'huge' ],
		[ 'half_l2', 'halfvec', 6, 'halfvec_l2_ops', '<->', 2000, 'half' ],
		[ 'half_ip', 'halfvec', 6, 'halfvec_ip_ops', '<#>', 2000, 'half' ],
		[ 'half_cosine', 'halfvec', 6, 'halfvec_cosine_ops', '<=>', 2000, 'half' ],
		[ 'half_l1', 'halfvec', 6, 'halfvec_l1_ops', '<+>', 2000, 'half' ],
		[ 'hamming', 'bit', 64, 'bit_hamming_ops', '<~>', 3000, 'bits' ],
		[ 'jaccard', 'bit', 64, 'bit_jaccard_ops', '<%>', 3000, 'bits' ],
		[ 'partitions', 'vector', 6, 'vector_l2_ops', '<->', 3000, 'clusters', 'partitions' ],
		[ 'children', 'vector', 6, 'vector_cosine_ops', '<=>', 3000, 'clusters', 'children' ],
		[ 'nested', 'vector', 6, 'vector_l2_ops', '<->', 3000, 'clusters', 'nested' ],
		[ 'larger', 'vector', 3, 'vector_l2_ops', '<->', 20000, 'clusters' ],
		[ 'lists', 'vector', 6, 'vector_l2_ops', '<->', 3000, 'clusters', '', 'method = ivfpq, lists = 40, probes = 2' ],
		[ 'lists_close', 'vector', 3, 'vector_l2_ops', '<->', 2000, 'close', '', 'method = ivfpq, lists = 20, probes = 1, quantizer = pq' ],
		[ 'lists_huge', 'vector', 4, 'vector_l2_ops', '<->', 2000, 'huge', '', 'method = ivfpq, lists = 20, probes = 1, quantizer = int8' ],
		[ 'lists_ip', 'vector', 8, 'vector_ip_ops', '<#>', 2000, 'norms', '', 'method = ivfpq, probes = 2, code_bits = 3' ],
		[ 'lists_tiny', 'vector', 4, 'vector_cosine_ops', '<=>', 2000, 'tiny', '', 'method = ivfpq, probes = 2' ],
		[ 'lists_half', 'halfvec', 6, 'halfvec_cosine_ops', '<=>', 2000, 'half', '', 'method = ivfpq, probes = 2, quantizer = int8' ],
		[ 'not_indexed', 'vector', 4, 'vector_cosine_ops', '<=>', 2000, 'clusters', 'holes' ]);

	# Rows that are not indexed are not in the twin: only kinds that the index always answers.
	@{ $sets[-1] }{qw(kinds settings)} = ([qw(limit filter only_ids offset lateral)],
		'SET enable_seqscan = off; SET enable_sort = off; SET enable_bitmapscan = off;');
	return @sets;
}

# ---- values ----

sub power { return (chance(0.5) ? -1 : 1) * (1 + rand()) * 10**($_[0] + rand($_[1] - $_[0])); }

# The elements of a new value, of this way to make them. Clusters lie far from each other.
sub elements
{
	my ($set) = @_;
	my ($dims, $values) = ($set->{dims}, $set->{values});
	my $center = $set->{centers}[ int(rand(30)**2 / 30) ] //= [ map { rand(20) - 10 } 1 .. $dims ];
	my $scale = 1;

	return map { 1000 + int(rand(60)) / 16384 + (chance(0.1) ? rand(1) : 0) } 1 .. $dims if $values eq 'close';
	return map { int(rand(3)) } 1 .. $dims if $values eq 'equal';
	return map { 1 * sprintf('%.6g', chance($set->{operator} eq '<=>' ? 0 : 0.1) ? 0 : power(chance(0.3) ? (37, 38.2) : (17, 20))) } 1 .. $dims if $values eq 'huge';
	return (0) x $dims if $values eq 'tiny' && $set->{operator} ne '<=>' && chance(0.05);
	return map { 1 * sprintf('%.6g', power(chance(0.3) ? (-37, -30) : (-25, -18))) } 1 .. $dims if $values eq 'tiny';
	return map { my $bit = $_ > 0 ? 1 : 0; chance(0.06) ? 1 - $bit : $bit } @$center if $values eq 'bits';
	$scale = 10**(rand(8) - 4) if $values eq 'norms';
	$scale = pick(1, 1, 1, 3000, 0.001) if $values eq 'half';
	return map { sprintf('%.5g', $scale * ($_ + rand(0.4) - 0.2)) } @$center;
}

sub literal
{
	my ($set, @elements) = @_;

	return $set->{type} eq 'bit' ? "B'" . join('', @elements) . "'" : "'[" . join(',', @elements) . "]'::$set->{type}";
}

# Query vectors: like the rows, a row's own, far from all.
sub query_elements
{
	my ($set, $number) = @_;
	my @elements = elements($set);

	return @elements if $number > 3 || $set->{values} eq 'huge';
	return map { $set->{type} eq 'bit' ? 1 - $_ : -$_ * ($set->{values} eq 'half' ? 1.5 : 100) } @elements if $number == 1;
	return map { $set->{type} eq 'bit' ? 0 : $set->{operator} eq '<=>' ? 1 : 0 } @elements if $number == 2;
	return map { $set->{type} eq 'bit' ? $_ : $_ + 1e-6 } @elements;
}

# ---- tables ----

# id, v, w of 100 values, u of two. Row 1 to 5 are query vectors, there is a tenth of equal vectors.
sub rows_of
{
	my ($set, $from, $to) = @_;
	my (@rows, $value);

	foreach my $id ($from .. $to)
	{
		$value = $id <= 5 ? $set->{queries}[ $id + 3 ] : defined $value && chance(0.1) ? $value : literal($set, elements($set));
		$value = pick('NULL', "'[0,0,0,0]'") if $set->{tables} eq 'holes' && $id > 5 && chance(0.05);
		push @rows, "($id, $value, " . int(rand(100)) . ', ' . int(rand(2)) . ')';
	}
	return 'INSERT INTO items VALUES ' . join(', ', @rows);
}

# The statements that make items, without rows, and its index.
sub table_statements
{
	my ($set) = @_;
	my $columns = "(id int, v $set->{type}($set->{dims}), w int, u int)";
	my $index = "USING gpuann (v $set->{class}) WITH ($set->{options})";

	return ("CREATE TABLE items $columns PARTITION BY HASH (id);"
		  . join('', map { "CREATE TABLE items_$_ PARTITION OF items FOR VALUES WITH (MODULUS 4, REMAINDER $_);" } 0 .. 3),
		"CREATE INDEX items_v ON items $index") if $set->{tables} eq 'partitions';
	# Partitions of partitions, one without an index, one with other places of its columns.
	return ("CREATE TABLE items $columns PARTITION BY RANGE (id);
		CREATE TABLE items_low PARTITION OF items FOR VALUES FROM (MINVALUE) TO (2000) PARTITION BY LIST (u);
		CREATE TABLE items_0 PARTITION OF items_low FOR VALUES IN (0); CREATE TABLE items_1 PARTITION OF items_low DEFAULT;
		CREATE TABLE items_2 (u int, gone text, w int, v $set->{type}($set->{dims}), id int); ALTER TABLE items_2 DROP COLUMN gone;
		ALTER TABLE items ATTACH PARTITION items_2 FOR VALUES FROM (2000) TO (MAXVALUE);",
		join(';', map { "CREATE INDEX ${_}_v ON $_ $index" } 'items_0', 'items_2')) if $set->{tables} eq 'nested';
	return ("CREATE TABLE items $columns; CREATE TABLE items_0 () INHERITS (items);
		CREATE TABLE items_1 (w int, u int, v $set->{type}($set->{dims}), id int); ALTER TABLE items_1 INHERIT items;"
		  . 'CREATE FUNCTION spread() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			IF NEW.id % 3 = 0 THEN INSERT INTO items_0 VALUES (NEW.*); RETURN NULL; END IF;
			IF NEW.id % 3 = 1 THEN INSERT INTO items_1 (id, v, w, u) VALUES (NEW.*); RETURN NULL; END IF;
			RETURN NEW; END $$; CREATE TRIGGER spread BEFORE INSERT ON items FOR EACH ROW EXECUTE FUNCTION spread();',
		join(';', map { "CREATE INDEX ${_}_v ON $_ $index" } 'items', 'items_0', 'items_1')) if $set->{tables} eq 'children';
	return ("CREATE TABLE items $columns;", "CREATE INDEX items_v ON items $index");
}

# What kinds of queries use: functions over both tables, a view, policies.
sub more_statements
{
	my ($set) = @_;
	my $for_each = qq{
CREATE FUNCTION walk_items(q $set->{type}, most int) RETURNS TABLE (id int, d float8) LANGUAGE plpgsql AS \$\$
	DECLARE r record; n int := 0;
	BEGIN
		FOR r IN EXECUTE 'SELECT t.id AS i, t.v $set->{operator} \$1 AS far FROM items t ORDER BY t.v $set->{operator} \$1' USING q LOOP
			EXIT WHEN n >= most;
			id := r.i; d := r.far; n := n + 1;
			RETURN NEXT;
		END LOOP;
	END \$\$;
CREATE VIEW seen_items WITH (security_barrier) AS SELECT * FROM items WHERE u = 1;
ALTER TABLE items ENABLE ROW LEVEL SECURITY;
CREATE POLICY half ON items USING (u = 1);};

	return $for_each . $for_each =~ s/items/plain/gr . qq{
CREATE FUNCTION passes(w int) RETURNS bool LANGUAGE sql VOLATILE AS 'SELECT w < 50';
CREATE FUNCTION fussy(u int) RETURNS bool LANGUAGE plpgsql IMMUTABLE AS
	\$\$ BEGIN IF u <> 1 THEN RAISE EXCEPTION 'a row that no qual may see'; END IF; RETURN true; END \$\$;
CREATE FUNCTION leaky(u int) RETURNS bool LANGUAGE sql IMMUTABLE COST 0.0001 RETURN fussy(u);
ALTER FUNCTION leaky SET work_mem = '1MB';
CREATE FUNCTION last_of(c refcursor, steps int) RETURNS int LANGUAGE plpgsql AS
	\$\$ DECLARE r record; BEGIN FOR i IN 1 .. steps LOOP FETCH c INTO r; END LOOP; RETURN r.id; END \$\$;
GRANT USAGE ON SCHEMA $set->{name} TO reader;
GRANT SELECT ON ALL TABLES IN SCHEMA $set->{name} TO reader;
ANALYZE items; ANALYZE plain; ANALYZE queries};
}

# Make a data set. Without an index items is another plain table, which shows that the judge is right.
sub make_data_set
{
	my ($session, $set, $with_index) = @_;
	my ($table, $index) = table_statements($set);
	my $linked = int(0.85 * $set->{rows});
	my $indexed = $set->{tables} eq 'holes' ? 'v IS NOT NULL AND vector_norm(v) > 0' : 'true';

	$set->{queries} = [ undef, map { literal($set, query_elements($set, $_)) } 1 .. $query_count ];
	$session->rows("CREATE SCHEMA $set->{name}; SET search_path = $set->{name}, public");
	$session->rows("$table CREATE TABLE queries (n int, v $set->{type}($set->{dims})); INSERT INTO queries VALUES (0, NULL), "
		  . join(', ', map { "($_, $set->{queries}[$_])" } 1 .. $query_count));
	$session->rows(rows_of($set, 1, $linked));
	$session->rows($index) if $with_index;
	$session->rows(rows_of($set, $linked + 1, $set->{rows}));
	$session->rows("DELETE FROM items WHERE id % 13 = 4; UPDATE items SET w = (w + 1) % 100 WHERE id % 17 = 3;
		CREATE TABLE plain AS SELECT * FROM items WHERE $indexed ORDER BY hashint4(id);
		CREATE TABLE marks AS SELECT id FROM generate_series(1, $set->{rows}, 10) id; CREATE UNIQUE INDEX ON marks (id); ANALYZE marks;"
		  . more_statements($set));
}

# ---- truth ----

# The operator's value of each row, by id, of one query vector.
sub truth
{
	my ($session, $set, $number) = @_;

	return $set->{truth}[$number] //= { map { split /\|/ } split /\n/, $session->rows(
		"SELECT id, v $set->{operator} $set->{queries}[$number] FROM $set->{name}.plain") };
}

# The ids of rows that pass a filter.
sub allowed_ids
{
	my ($session, $set, $filter) = @_;

	return $set->{allowed}{$filter} //= { map { $_ => 1 } split /\n/, $session->rows(
		"SET search_path = $set->{name}, public; SELECT id FROM plain WHERE " . $filter =~ s/items/plain/gr) };
}

# ---- the judge ----

# PostgreSQL's order of float8: NaN is greater than everything, and equal to itself.
sub compare_values
{
	my ($left, $right) = @_;

	return 0 if $left eq $right;
	return 1 if $left eq '' || $right eq '';
	return $left eq 'NaN' ? 1 : -1 if $left eq 'NaN' || $right eq 'NaN';
	return $left <=> $right;
}

# The rows of an answer by group (one, if no column is a group), each a hash of its columns: i id, d distance, g group, x anything else.
sub groups_of
{
	my ($query, $rows) = @_;
	my @roles = split / /, $query->{columns};
	my %groups;

	foreach my $row (@$rows)
	{
		my @columns = split /\|/, $row, -1;
		my %row;

		return undef if @columns != @roles;
		push @{ $row{ $roles[$_] } }, $columns[$_] foreach 0 .. $#roles;
		push @{ $groups{ $row{g} ? $row{g}[0] : $query->{number} } },
		  { i => $row{i}[0], d => $row{d}[0], x => join('|', @{ $row{x} // [] }) };
	}
	return \%groups;
}

# Ids: each once, of rows that pass the filter. Returns what is wrong, or ''.
sub judge_ids
{
	my ($query, $rows, $allowed) = @_;
	my %seen;

	foreach my $row (@$rows)
	{
		return "id $row->{i} twice" if $seen{ $row->{i} }++ && !$query->{repeats};
		return "id $row->{i} does not pass the filter" if $allowed && !$allowed->{ $row->{i} };
	}
	return '';
}

# Distances: those of the ids, ascending, each once under DISTINCT.
sub judge_order
{
	my ($query, $rows, $truth) = @_;
	my $before;

	foreach my $at (0 .. $#$rows)
	{
		my ($id, $distance) = @{ $rows->[$at] }{qw(i d)};

		if ($truth && defined $id)
		{
			$distance //= $truth->{$id};
			return "id $id has the distance $truth->{$id}, not $distance" if compare_values($distance, $truth->{$id}) != 0;
		}
		next if !defined $distance || $query->{unordered};
		my $order = defined $before ? compare_values($before, $distance) : -1;
		return "row " . ($at + 1) . " of " . @$rows . ": $distance after $before" if $order > 0;
		return "the distance $distance twice" if $order == 0 && $query->{distinct};
		$before = $distance;
	}
	return '';
}

# Where the true answer is promised: the same distances, the same ids but for those at the last distance.
sub judge_exactness
{
	my ($query, $mine, $twin, $truth) = @_;
	my (%mine, $last);

	return '' if $query->{unordered};
	foreach my $at (0 .. $#$twin)
	{
		my ($found, $right) = map { $_->{d} // ($truth && defined $_->{i} ? $truth->{ $_->{i} } : '') } $mine->[$at], $twin->[$at];

		return 'row ' . ($at + 1) . ": $found rather than $right" if compare_values($found, $right) != 0;
		$last = $right;
	}
	# Which of equal rows are skipped, nobody promises.
	return '' if $query->{columns} !~ /i/ || $query->{distinct} || $query->{sql} =~ /OFFSET|MOVE/;
	$mine{ $_->{i} } = 1 foreach @$mine;
	foreach my $row (@$twin)
	{
		my $distance = $row->{d} // ($truth ? $truth->{ $row->{i} } : $last);
		return "id $row->{i} is missing" if compare_values($distance, $last) != 0 && !$mine{ $row->{i} };
	}
	return '';
}

# What is wrong with an answer, or ''. promise: complete (as many rows as the twin gives, unless the bound is soft), exact.
sub judge
{
	my ($session, $set, $query, $mine, $twin, $promise) = @_;
	my ($found, $right) = (groups_of($query, $mine), groups_of($query, $twin));
	my $complete = $promise->{exact} || $query->{always} || $promise->{complete} && $query->{bound} !~ /soft|near/;
	my $exact = $promise->{exact} || $query->{always} || $promise->{complete} && $query->{bound} eq 'none';
	my $allowed = $query->{filter} ? allowed_ids($session, $set, $query->{filter}) : undef;
	my $wrong;

	return 'other columns' if !$found || !$right;
	foreach my $group (sort keys %{ { %$found, %$right } })
	{
		my ($rows, $others) = ($found->{$group} // [], $right->{$group} // []);
		my $truth = $group =~ /^\d+$/ && $group > 0 && $group <= $query_count ? truth($session, $set, $group) : undef;
		my $where = $query->{columns} =~ /g/ ? "group $group: " : '';

		$wrong = judge_ids($query, $rows, $allowed) if $query->{columns} =~ /i/;
		$wrong ||= judge_order($query, $rows, $truth);
		$wrong ||= @$rows . ' rows rather than ' . @$others
		  if $complete && $query->{least} && !$exact ? @$rows < $query->{least} && @$rows < @$others
		  : $complete ? @$rows != @$others
		  : @$rows > @$others && !$query->{more};
		$wrong ||= judge_exactness($query, $rows, $others, $truth) if $exact;
		return "$where$wrong" if $wrong;
	}
	return "@$mine are not the same" if $query->{pair} && (@$mine != 2 || $mine->[0] ne $mine->[1]);
	return '' if !$query->{same} || !($exact || $complete && $query->{counts});
	return judge_sameness($query->{same}, $mine, $twin);
}

# Equal answers: as they are (order), or as sets (rows).
sub judge_sameness
{
	my ($how, $mine, $twin) = @_;
	my @mine = $how eq 'rows' ? sort @$mine : @$mine;
	my @twin = $how eq 'rows' ? sort @$twin : @$twin;

	foreach my $at (0 .. $#twin)
	{
		my ($found, $right) = (substr($mine[$at] // 'nothing', 0, 100), substr($twin[$at], 0, 100));
		return "$found rather than $right" if ($mine[$at] // '') ne $twin[$at];
	}
	return @mine > @twin ? 'a row too many: ' . substr($mine[@twin], 0, 100) : '';
}

1;
