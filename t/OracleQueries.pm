# OracleQueries.pm
#		The kinds of queries that t/172 asks: each function makes one, at random, over a data set of OracleTest.
#
# A query is a hash. sql: over items; over the twin every "items" is replaced. columns: what each one is (i id, d distance, g group, x other),
# d by itself ascending. bound: what the scan knows of the number of rows wanted; with hard and none as many are promised as exist, with
# none also the nearest; near: a LIMIT and a threshold. filter: what all rows pass. same: without ties in between, equal answers, as they are (order) or as sets (rows).
# counts: equal also where other rows may be found; more: who misses rows may have more; least: and has so many, if they exist. repeats: an id may come twice; pair: the same id comes twice; unordered; distinct: each distance once; always: true whatever the scan
# promises; no_twin: the twin cannot answer this.

package OracleQueries;

use strict;
use warnings;

use Exporter 'import';
use OracleTest;

our @EXPORT = qw(kinds make_query);

my %kinds = (
	limit => \&plain_limit, filter => \&filtered_limit, offset => \&offset, strange_limits => \&strange_limits,
	only_ids => \&only_ids, drained => \&drained, aggregates => \&aggregates, min_max => \&min_max, distinct => \&distinct, distinct_on => \&distinct_on,
	distinct_constant => \&distinct_constant,
	group_by => \&group_by, merge_join => \&merge_join, joins => \&joins, windows => \&windows, with_ties => \&with_ties, limit_outside => \&limit_outside, mixed_parts => \&mixed_parts,
	incremental_sort => \&incremental_sort, cursor => \&cursor, scroll => \&scroll, plpgsql => \&plpgsql,
	threshold => \&threshold_ordered, range => \&threshold_alone, lateral => \&lateral, correlated => \&correlated, exists => \&exists_in,
	in => \&in_subquery, cte => \&cte, union => \&union_all, merge_append => \&merge_append, intersect => \&intersect, prepared => \&prepared,
	two_queries => \&two_queries, for_update => \&for_update, changes => \&changes, current_of => \&current_of, row_security => \&row_security, null_query => \&null_query);

sub kinds { return sort keys %kinds; }

# ---- parts ----

# One row in so many, and quals that the planner or the executor treats by themselves: volatile, with subplans, that fail for other rows.
sub any_filter
{
	my ($set) = @_;
	my $id = 1 + int(rand($set->{rows}));

	return pick('true', 'true', 'w = 7', 'u = 1', "id = $id", 'w < 0', 'w >= 0', 'w = 7 AND u = 1', 'id % 50 = 3', "id > $id",
		'w < 20 AND random() >= 0', 'passes(w)', '(SELECT count(*) FROM marks m WHERE m.id = items.id) > 0', 'id NOT IN (SELECT id FROM marks)',
		'w = (SELECT 7)', 'w = ANY (ARRAY(SELECT id % 100 FROM marks WHERE id < 60))', 'u = 1 AND 10 / u > 0', 'u = 1 AND fussy(u)');
}

# Filters on the table's own columns by any name.
sub simple_filter { return pick('true', 'w = 7', 'u = 1', 'w < 0', 'w >= 0', 'id % 50 = 3', 'passes(w)'); }

sub any_limit { return pick(1, 2, 3, 5, 10, 10, 20, 50, 100, 500); }

# The distance of a column from the query, one way or the other.
sub distance
{
	my ($c, $query, $column) = @_;
	my ($operator, $q, $v) = ($c->{set}{operator}, $query // $c->{q}, $column // 'v');

	return chance(0.15) ? "$q $operator $v" : "$v $operator $q";
}

# Ids and distances, as a subquery s (id, w, u, d).
sub subquery
{
	my ($c, $filter) = @_;
	return "(SELECT id, w, u, $c->{d} AS d FROM items WHERE $filter) s";
}

# The same, in order.
sub ordered_subquery
{
	my ($c, $filter) = @_;
	return "(SELECT id, w, u, $c->{d} AS d FROM items WHERE $filter ORDER BY $c->{d} OFFSET 0) s";
}

# A distance that none, one, a few, many or all rows have, or one between two. As text; with the rank of its row.
sub radius
{
	my ($c) = @_;
	my $truth = truth($c->{session}, $c->{set}, $c->{number});
	my @values = sort { $a <=> $b } grep { !/NaN/ } values %$truth;
	my $at = pick(0, 0, 1, 3, 10, 10, 40, 200, int(@values / 2), $#values);
	my $value = @values ? $values[ $at < @values ? $at : $#values ] : 1;

	return "'$value'::float8" if $value =~ /Inf/ || chance(0.6);
	$value = $value * (1 + pick(-1, 1) * 1e-4) + pick(0, 0, 1e-9, -1e-3) if $c->{set}{type} ne 'bit';
	return sprintf('(%.17g)', $value);
}

# The same for a parameter of type float8. As a literal in the judge's filter it has to be one, too: a numeric literal keeps 17 digits where a
# float8 that is cast to numeric keeps 15.
sub parameter_radius
{
	my ($c) = @_;

	return radius($c) . '::float8';
}

# A condition that the distance from $q is less than $r, in one of the forms that people write.
sub threshold
{
	my ($c, $d, $r) = @_;
	my @forms = ("$d < $r", "$d <= $r", "$r > $d", "$r >= $d", "$d BETWEEN -1e300 AND $r", "$d <= $r AND $d >= $r - 1");

	push @forms, "1 - ($d) > 1 - $r", "1 - ($d) >= 1 - $r", "1 - $r < 1 - ($d)" if $c->{set}{operator} eq '<=>';
	push @forms, "-($d) > - $r", "($d) * -1 > - $r", "-1 * ($d) >= - $r", "- $r < -($d)" if $c->{set}{operator} eq '<#>';
	return pick(@forms);
}

# The same with other types and rounding.
sub cast_threshold
{
	my ($c, $d, $r) = @_;
	my @forms = ("$d < $r\::real", "($d)::real <= $r", "($d)::numeric < $r\::numeric", "round(($d)::numeric, 2) <= $r\::numeric",
		"$r\::numeric > ($d)::numeric(400,3)", "round($d) <= $r", "($d)::real::numeric <= $r\::numeric");

	push @forms, "(1 - ($d))::real > 1 - $r", "1 - ($d)::real >= (1 - $r)::real", "round((1 - ($d))::numeric, 1) >= (1 - $r)::numeric"
	  if $c->{set}{operator} eq '<=>';
	push @forms, "(-($d))::numeric >= (- $r)::numeric", "round(- ($d)::numeric, 2) > (- $r)::numeric" if $c->{set}{operator} eq '<#>';
	return pick(@forms);
}

# ---- LIMIT ----

sub plain_limit
{
	my ($c) = @_;
	return { bound => 'hard', columns => 'i d', filter => 'true', sql => "SELECT id, $c->{d} FROM items ORDER BY $c->{d} LIMIT " . any_limit() };
}

sub filtered_limit
{
	my ($c) = @_;
	my $filter = any_filter($c->{set});
	return { bound => 'hard', columns => 'i d', filter => $filter,
		sql => "SELECT id, $c->{d} FROM items WHERE $filter ORDER BY $c->{d} LIMIT " . any_limit() };
}

# The distance is not returned; a whole row is, or something of it.
sub only_ids
{
	my ($c) = @_;
	my $filter = any_filter($c->{set});
	my ($columns, $target) = @{ pick([ 'i', 'id' ], [ 'i x', 'id, w' ], [ 'i x x', 'id, w + u, v::text' ], [ 'i x', 'id, tableoid::regclass' ]) };
	return { bound => 'hard', columns => $columns, filter => $filter, sql => "SELECT $target FROM items WHERE $filter ORDER BY $c->{d} LIMIT " . any_limit() };
}

sub offset
{
	my ($c) = @_;
	my $filter = simple_filter();
	my $offset = pick(0, 1, 5, 30, 300, $c->{set}{rows});
	return { bound => 'hard', columns => 'i d', filter => $filter,
		sql => "SELECT id, $c->{d} FROM items WHERE $filter ORDER BY $c->{d} OFFSET $offset" . (chance(0.8) ? ' LIMIT ' . any_limit() : '') };
}

sub strange_limits
{
	my ($c) = @_;
	my $limit = pick('0', 'ALL', 'NULL', '(SELECT NULL::int)', '1000000000000', '9223372036854775807', '9223372036854775807 OFFSET 7', '(SELECT 11)',
		'(SELECT count(*) FROM marks WHERE id < 50)', 'length(repeat($$a$$, 5))', 'NULL OFFSET NULL', '3 OFFSET (SELECT 2)');
	return { bound => 'hard', columns => 'i d', filter => 'true', sql => "SELECT id, $c->{d} FROM items ORDER BY $c->{d} LIMIT $limit" };
}

# ---- everything ----

sub drained
{
	my ($c) = @_;
	my $filter = any_filter($c->{set});
	return { bound => 'none', columns => 'i d', filter => $filter, sql => "SELECT id, $c->{d} FROM items WHERE $filter ORDER BY $c->{d}" };
}

sub aggregates
{
	my ($c) = @_;
	my $filter = any_filter($c->{set});
	my $what = pick("count(*), sum(id), min(d), max(d)", "count(DISTINCT id), md5(string_agg(d::text, ' ')), max(w), 1", "count(*), count(DISTINCT d), max(d), sum(w)");
	return { bound => 'none', columns => 'x x x x', same => 'rows',
		sql => "SELECT $what FROM (SELECT id, w, $c->{d} AS d FROM items WHERE $filter ORDER BY $c->{d} OFFSET 0) s" };
}

# The planner makes min() a scan in order that ends after its first row: a LIMIT that nobody wrote.
sub min_max
{
	my ($c) = @_;
	my ($d, $filter) = ($c->{d}, any_filter($c->{set}));
	my $outer = distance($c, 'q.v', 'i.v');
	my $inner = "SELECT $d AS d FROM items ORDER BY $d";
	my $union = "SELECT $d AS d FROM items WHERE u = 1 UNION ALL SELECT d FROM ($inner OFFSET 0) s";
	# Without the plan node the minimum is a stream's first row, and more rows may be as near as one that is not the nearest.
	return { bound => 'none', columns => 'x x', same => 'rows', more => 1,
		sql => pick("SELECT 1, min($d) FROM items WHERE $filter", "SELECT 1, min($d) FROM items WHERE $filter", "SELECT 1, max($d) FROM items WHERE $filter",
			"SELECT min($d), max($d) FROM items", "SELECT u, min($d) FROM items WHERE $filter GROUP BY u",
			"SELECT 1, 1 FROM items HAVING min($d) < " . radius($c), "SELECT 1, min($d) FROM items WHERE $filter LIMIT 3",
			"SELECT q.n, (SELECT min($outer) FROM items i WHERE i.u = 1) FROM queries q WHERE q.n > 0",
			"SELECT 1, id FROM items WHERE $d = (SELECT min($d) FROM items)", "SELECT 1, min(d) FROM ($union) t", "SELECT 1, min(d) FROM ($inner OFFSET 0) s") };
}

# The first row of each group, of which there is one: again a LIMIT that nobody wrote (from PostgreSQL 16 on).
sub distinct_constant
{
	my ($c) = @_;
	my $filter = simple_filter();
	return { bound => 'none', columns => 'x x', same => 'rows',
		sql => "SELECT DISTINCT ON (u) u, $c->{d} FROM items WHERE u = 1 AND $filter ORDER BY u, $c->{d}" };
}

sub maybe_limit
{
	my ($most, $bound) = @_;
	return chance(0.4) ? (bound => 'none', limit => '') : (bound => $bound, limit => ' LIMIT ' . pick(grep { $_ <= $most } 1, 3, 10, 50, 200));
}

sub distinct
{
	my ($c) = @_;
	my $filter = any_filter($c->{set});
	my %limit = maybe_limit(200, 'none');
	return { %limit, columns => 'd', distinct => 1, same => 'order', sql => "SELECT DISTINCT $c->{d} FROM items WHERE $filter ORDER BY 1$limit{limit}" };
}

sub distinct_on
{
	my ($c) = @_;
	my $filter = simple_filter();
	my %limit = maybe_limit(200, 'none');
	my $by_id = chance(0.5);
	return { %limit, columns => 'i d', distinct => 1, filter => $filter, ($by_id ? (same => 'order') : ()),
		sql => "SELECT DISTINCT ON ($c->{d}) id, $c->{d} FROM items WHERE $filter ORDER BY $c->{d}" . ($by_id ? ', id' : '') . $limit{limit} };
}

sub group_by
{
	my ($c) = @_;
	my $filter = any_filter($c->{set});
	my %limit = maybe_limit(200, 'none');
	return { %limit, columns => 'd x x', distinct => 1, same => 'order',
		sql => "SELECT d, count(*), sum(id) FROM " . subquery($c, $filter) . " GROUP BY d ORDER BY d$limit{limit}" };
}

# ---- joins ----

sub merge_join
{
	my ($c) = @_;
	my $filter = simple_filter();
	my $right = "(SELECT id, $c->{d} AS d FROM " . pick('plain', 'items') . " WHERE id % 3 = 0 AND id < 90) r";
	my $settings = 'SET enable_hashjoin = off; SET enable_nestloop = off; SET enable_sort = on;';

	return { bound => 'none', columns => 'd x x', filter => $filter, same => 'rows', settings => $settings,
		sql => "SELECT s.d, s.id, r.id FROM " . subquery($c, $filter) . " JOIN $right ON s.d = r.d ORDER BY s.d" } if chance(0.5);
	return { bound => 'none', columns => 'x x x', same => 'rows', settings => $settings,
		sql => "SELECT count(*), sum(s.id), sum(r.id) FROM " . ordered_subquery($c, $filter) . pick(' JOIN ', ' LEFT JOIN ') . "$right ON s.d = r.d" };
}

# With another table by id, in any way; the order goes through the join or is made above.
sub joins
{
	my ($c) = @_;
	my %limit = maybe_limit(50, 'soft');
	my $kind = pick('JOIN', 'LEFT JOIN');
	my $further = pick('', '', ', s.id', ', s.w DESC, s.id');
	my $settings = 'SET enable_' . pick('hashjoin', 'nestloop', 'mergejoin') . ' = off;';

	$settings .= ' SET enable_hashjoin = off; SET enable_mergejoin = off;' if chance(0.5);
	return { %limit, columns => 'i d', filter => 'id % 10 = 1', settings => $settings,
		sql => "SELECT s.id, s.d FROM " . subquery($c, 'true') . " WHERE EXISTS (SELECT 1 FROM marks m WHERE m.id = s.id) ORDER BY s.d$further$limit{limit}" }
	  if chance(0.2);
	return { %limit, columns => 'i d', filter => 'id % 10 <> 1', settings => $settings,
		sql => "SELECT s.id, s.d FROM " . ordered_subquery($c, 'true') . " LEFT JOIN marks m ON m.id = s.id WHERE m.id IS NULL ORDER BY s.d$further$limit{limit}" }
	  if chance(0.2);
	return { %limit, columns => 'i d', filter => $kind eq 'JOIN' ? 'id % 10 = 1' : 'true', settings => $settings,
		sql => "SELECT s.id, s.d FROM " . subquery($c, 'true') . " $kind marks m ON m.id = s.id ORDER BY s.d$further$limit{limit}" };
}

sub lateral
{
	my ($c) = @_;
	my $filter = simple_filter();
	my $d = distance($c, 'q.v', 't.v');
	my $how = pick('CROSS JOIN LATERAL', ', LATERAL', 'LEFT JOIN LATERAL');
	return { bound => 'hard', columns => 'g i d', filter => $filter,
		sql => "SELECT q.n, s.id, s.d FROM queries q $how (SELECT t.id, $d AS d FROM items t WHERE $filter ORDER BY $d LIMIT " . any_limit()
		  . ') s' . ($how =~ /LEFT/ ? ' ON true' : '') . ' WHERE s.id IS NOT NULL AND q.n BETWEEN 2 AND ' . pick(2, 3, 5) };
}

sub correlated
{
	my ($c) = @_;
	my $operator = $c->{set}{operator};
	my $n = any_limit();
	return pick(
		{ bound => 'hard', columns => 'x x', counts => 1, same => 'rows',
			sql => "SELECT q.n, (SELECT count(*) FROM (SELECT i.id FROM items i ORDER BY i.v $operator q.v LIMIT $n) s) FROM queries q WHERE q.n > 0" },
		{ bound => 'hard', columns => 'g i', filter => 'true',
			sql => "SELECT q.n, (SELECT i.id FROM items i ORDER BY i.v $operator q.v LIMIT 1) FROM queries q WHERE q.n > 0" },
		{ bound => 'none', columns => 'g i', filter => 'u = 1',
			sql => "SELECT q.n, unnest(ARRAY(SELECT i.id FROM items i WHERE i.u = 1 ORDER BY i.v $operator q.v)) FROM queries q WHERE q.n IN (2, 5)" });
}

# ---- subplans, CTEs, set operations ----

sub exists_in
{
	my ($c) = @_;
	my $operator = $c->{set}{operator};
	my $r = radius($c);
	return { bound => 'none', columns => 'x x', same => 'rows', always => 1,
		sql => pick(
			"SELECT q.n, EXISTS (SELECT 1 FROM items i WHERE i.v $operator q.v < $r) FROM queries q",
			"SELECT q.n, 1 FROM queries q WHERE NOT EXISTS (SELECT 1 FROM items i WHERE i.v $operator q.v <= $r)",
			"SELECT m.id, 1 FROM marks m WHERE m.id IN (SELECT i.id FROM items i WHERE i.v $operator $c->{q} < $r)",
			"SELECT q.n, i.id FROM queries q JOIN items i ON i.v $operator q.v < $r WHERE q.n > 3") };
}

sub in_subquery
{
	my ($c) = @_;
	my $filter = simple_filter();
	return { bound => 'hard', columns => 'i', filter => $filter, unordered => 1,
		sql => "SELECT id FROM items WHERE id IN (SELECT id FROM items WHERE $filter ORDER BY $c->{d} LIMIT " . any_limit() . ')' };
}

sub cte
{
	my ($c) = @_;
	my $filter = any_filter($c->{set});
	my $n = any_limit();
	my $inner = "SELECT id, $c->{d} AS d FROM items WHERE $filter ORDER BY $c->{d}";
	return pick(
		{ bound => 'none', columns => 'i d', filter => $filter, sql => "WITH c AS MATERIALIZED ($inner) SELECT id, d FROM c LIMIT $n" },
		{ bound => 'hard', columns => 'i d', filter => $filter, sql => "WITH c AS MATERIALIZED ($inner LIMIT $n) SELECT id, d FROM c" },
		{ bound => 'hard', columns => 'i d', filter => $filter, sql => "WITH c AS NOT MATERIALIZED ($inner LIMIT $n) SELECT id, d FROM c ORDER BY d" },
		{ bound => 'none', columns => 'x x', same => 'rows', sql => "WITH c AS MATERIALIZED ($inner) SELECT a.id, b.id FROM c a JOIN c b ON a.id = b.id + 1" });
}

sub union_all
{
	my ($c) = @_;
	my ($n, $m, $filter) = (any_limit(), any_limit(), simple_filter());
	return { bound => 'hard', columns => 'x i d', filter => 'true', unordered => 1, repeats => 1,
		sql => "(SELECT 1, id, $c->{d} FROM items ORDER BY $c->{d} LIMIT $n) UNION ALL (SELECT 2, id, $c->{d} FROM items WHERE $filter ORDER BY $c->{d} LIMIT $m)" };
}

sub merge_append
{
	my ($c) = @_;
	my %limit = (limit => ' LIMIT ' . any_limit(), bound => 'hard');
	my ($first, $second) = map { "SELECT id, $c->{d} AS d FROM items WHERE $_ ORDER BY $c->{d} OFFSET 0" } 'u = 1', 'u = 0 AND w = 7';

	%limit = (limit => '', bound => 'none') if chance(0.3);
	return { %limit, columns => 'i d', filter => 'u = 1 OR w = 7',
		sql => "SELECT * FROM (($first) UNION ALL ($second)) s ORDER BY d$limit{limit}" } if chance(0.5);
	return { %limit, columns => 'i d', repeats => 1, filter => 'true',
		sql => "SELECT * FROM (SELECT id, $c->{d} AS d FROM items UNION ALL SELECT id, $c->{d} FROM items) s ORDER BY d$limit{limit}" };
}

sub intersect
{
	my ($c) = @_;
	my $n = any_limit();
	my $filter = simple_filter();
	return { bound => 'hard', columns => 'i', filter => $filter, unordered => 1,
		sql => "SELECT id FROM items INTERSECT (SELECT id FROM items WHERE $filter ORDER BY $c->{d} LIMIT $n)" } if chance(0.5);
	return { bound => 'none', columns => 'i', unordered => 1, more => 1, same => 'rows',
		sql => "SELECT id FROM items EXCEPT SELECT id FROM (SELECT id FROM items WHERE $filter ORDER BY $c->{d} OFFSET 0) s" };
}

# ---- order that others use ----

sub windows
{
	my ($c) = @_;
	my $filter = any_filter($c->{set});
	my %limit = maybe_limit(50, 'none');
	my $over = pick('OVER (ORDER BY d)', 'OVER (ORDER BY d RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)');
	my $from = "FROM " . subquery($c, $filter);
	return pick(
		{ %limit, columns => 'd x x x', same => 'order', sql => "SELECT d, row_number() $over, rank() $over, lag(d) $over $from ORDER BY d$limit{limit}" },
		{ %limit, columns => 'd x x', same => 'order', sql => "SELECT d, dense_rank() $over, count(*) $over $from$limit{limit}" },
		{ bound => 'none', columns => 'i d', filter => $filter,
			sql => "SELECT id, d FROM (SELECT id, d, row_number() $over AS n $from) t WHERE n <= " . any_limit() });
}

sub with_ties
{
	my ($c) = @_;
	my $filter = any_filter($c->{set});
	my ($n, $offset) = (any_limit(), pick('', 'OFFSET 2 '));
	my $further = chance(0.3) ? ', ' . pick('w', 'u') : '';
	return { bound => 'hard', columns => 'i d', filter => $filter, more => 1, least => $n, ($offset eq '' ? (same => 'rows') : ()),
		sql => "SELECT id, $c->{d} FROM items WHERE $filter ORDER BY $c->{d}$further ${offset}FETCH FIRST $n ROWS WITH TIES" };
}

# The LIMIT is outside of the subquery that has the order; or its order is used there, with a further key.
sub limit_outside
{
	my ($c) = @_;
	my ($filter, $n) = (any_filter($c->{set}), any_limit());
	my $inner = "SELECT id, w, $c->{d} AS d FROM items WHERE $filter ORDER BY $c->{d}" . pick('', ', id');
	return { bound => 'hard', columns => 'i d', filter => $filter,
		sql => "SELECT id, d FROM ($inner" . pick('', ' OFFSET 0') . ") s" . pick('', '', ' ORDER BY d', ' ORDER BY d, w, id') . " LIMIT $n" . pick('', ' OFFSET 3') };
}

# Parts of several kinds: with an index and without, an ordered subquery, one that has a LIMIT of its own.
sub mixed_parts
{
	my ($c) = @_;
	my $n = any_limit();
	my $part = "SELECT id, w, $c->{d} AS d FROM ";
	my @parts = ("${part}items WHERE u = 1", "${part}items WHERE u = 0 AND w < 50 ORDER BY $c->{d} OFFSET 0", "${part}plain AS more WHERE u = 0 AND w >= 50");

	return { bound => 'hard', columns => 'i d', filter => 'true',
		sql => 'SELECT id, d FROM (' . join(' UNION ALL ', map { "($_)" } @parts) . ') s ORDER BY d' . pick('', ', id', ', w, id') . " LIMIT $n" };
}

sub incremental_sort
{
	my ($c) = @_;
	my $filter = any_filter($c->{set});
	my %limit = maybe_limit(200, 'hard');
	my $more = pick('id', 'w, id', 'id DESC');
	my $from = chance(0.3) ? subquery($c, $filter) : ordered_subquery($c, $filter);
	return { %limit, columns => 'i d', filter => $filter, same => 'order', sql => "SELECT id, d FROM $from ORDER BY d, $more$limit{limit}" };
}

# ---- cursors and procedures ----

sub cursor
{
	my ($c) = @_;
	my $filter = any_filter($c->{set});
	my $steps = join('', map { pick(map({ "FETCH $_ FROM c; " } 1, 3, 10, 40), 'MOVE 2 IN c; ', 'FETCH c; ', 'FETCH FORWARD 0 FROM c; ') } 1 .. 1 + int(rand(5)));
	my $declare = 'BEGIN; DECLARE c NO SCROLL CURSOR';
	my $query = "FOR SELECT id, $c->{d} FROM items WHERE $filter ORDER BY $c->{d}";
	my $end = pick('', 'FETCH ALL FROM c; ');
	$steps =~ s/FETCH FORWARD 0 FROM c; //g;
	return { bound => 'none', columns => 'i d', filter => $filter, sql => "$declare WITH HOLD $query; COMMIT; $steps${end}CLOSE c" } if chance(0.3);
	return { bound => 'none', columns => 'i d', filter => $filter, sql => "$declare $query; $steps${end}COMMIT" };
}

# Forwards and backwards.
sub scroll
{
	my ($c) = @_;
	my $steps = join('', map { pick('FETCH 5 FROM c; ', 'FETCH BACKWARD 3 FROM c; ', 'FETCH ABSOLUTE 4 FROM c; ', 'FETCH 30 FROM c; ', 'FETCH LAST FROM c; ',
		'MOVE FIRST IN c; ', 'FETCH RELATIVE 2 FROM c; ') } 1 .. 5);
	return { bound => 'none', columns => 'd', unordered => 1, same => 'order',
		sql => "BEGIN; DECLARE c SCROLL CURSOR FOR SELECT $c->{d} FROM items WHERE " . simple_filter() . " ORDER BY $c->{d}; ${steps}COMMIT" };
}

sub plpgsql
{
	my ($c) = @_;
	my $n = any_limit();
	return { bound => 'none', columns => 'i d', filter => 'true', sql => "SELECT id, d FROM walk_items($c->{q}, $n)" };
}

# ---- thresholds ----

sub threshold_ordered
{
	my ($c) = @_;
	my $near = threshold($c, $c->{d}, radius($c));
	my $filter = chance(0.6) ? $near : pick("$near AND " . any_filter($c->{set}), any_filter($c->{set}) . " AND $near");
	# A LIMIT ends behind the threshold, with what was found within it.
	my %limit = chance(0.7) ? (bound => 'near', limit => ' LIMIT ' . any_limit()) : (bound => 'none', limit => '');

	return { %limit, columns => 'i d', filter => $filter, sql => "SELECT id, $c->{d} FROM items WHERE $filter ORDER BY $c->{d}$limit{limit}" };
}

sub threshold_alone
{
	my ($c) = @_;
	my $near = threshold($c, $c->{d}, radius($c));
	my $filter = chance(0.5) ? $near : "$near AND " . any_filter($c->{set});

	return { bound => 'none', columns => 'i', filter => $filter, unordered => 1, same => 'rows', always => 1,
		sql => pick("SELECT id FROM items WHERE $filter", "SELECT id FROM items WHERE $filter ORDER BY id") } if chance(0.6);
	return { bound => 'none', columns => 'x x', same => 'rows', always => 1, sql => "SELECT count(*), sum(id) FROM items WHERE $filter" };
}

# ---- parameters ----

# Executed twice, with other parameters the second time.
sub prepared
{
	my ($c) = @_;
	my ($filter, $type) = (simple_filter(), $c->{set}{type});
	my $d = "v $c->{set}{operator} \$1";
	my $near = threshold($c, $d, '$3');
	my ($r, $n) = (parameter_radius($c), any_limit());
	my $literal = $c->{set}{queries}[ $c->{number} ];
	my $where = ($near =~ s/\$3/$r/gr) =~ s/\$1/$literal/gr . " AND $filter";
	my $body = "SELECT id, $d FROM items WHERE $filter AND $near ORDER BY $d LIMIT \$2";

	if (chance(0.5))
	{
		$where = $filter;
		$body = "SELECT id, $d FROM items WHERE $filter AND \$3 IS NOT NULL ORDER BY $d LIMIT \$2";
	}
	my $other = 1 + int(rand(query_count()));
	return { bound => $body =~ /IS NOT NULL/ ? 'hard' : 'near', columns => 'i d', filter => $where,
		settings => 'SET plan_cache_mode = ' . pick('force_generic_plan', 'force_generic_plan', 'force_custom_plan', 'auto') . '; DEALLOCATE ALL;'
		  . " PREPARE p($type, bigint, float8) AS $body;",
		sql => "EXECUTE p($literal, $n, $r)", before => "EXECUTE p($c->{set}{queries}[$other], 3, $r);" };
}

# The vector of the threshold is another parameter, or subselect, than that of the order; mostly with the same value.
sub two_queries
{
	my ($c) = @_;
	my ($set, $filter, $r, $n) = ($c->{set}, simple_filter(), parameter_radius($c), any_limit());
	my $number = chance(0.7) ? $c->{number} : 1 + int(rand(query_count()));
	my $near = (chance(0.5) ? \&threshold : \&cast_threshold)->($c, "v $set->{operator} \$2", '$3');
	my $ask = "SELECT id, v $set->{operator} \$1 FROM items WHERE $filter AND $near ORDER BY v $set->{operator} \$1 LIMIT \$4";
	my %values = (1 => $set->{queries}[ $c->{number} ], 2 => $set->{queries}[$number], 3 => $r, 4 => $n);
	my %query = (bound => 'near', columns => 'i d', filter => "$filter AND " . $near =~ s/\$(\d)/$values{$1}/gr);
	my $other = 1 + int(rand(query_count()));

	@values{ 1, 2 } = map { "(SELECT q.v FROM queries q WHERE q.n = $_)" } $c->{number}, $number;
	return { %query, sql => $ask =~ s/\$(\d)/$values{$1}/gr } if chance(0.3);
	return { %query,
		settings => 'SET plan_cache_mode = ' . pick('force_generic_plan', 'force_generic_plan', 'auto') . '; DEALLOCATE ALL;'
		  . " PREPARE p($set->{type}, $set->{type}, float8, bigint) AS $ask;",
		sql => "EXECUTE p($set->{queries}[ $c->{number} ], $set->{queries}[$number], $r, $n)",
		before => "EXECUTE p($set->{queries}[$other], $set->{queries}[$other], $r, 3);" };
}

# ---- locks and changes ----

sub for_update
{
	my ($c) = @_;
	my $filter = any_filter($c->{set});
	my $lock = pick('FOR UPDATE', 'FOR SHARE', 'FOR NO KEY UPDATE', 'FOR UPDATE SKIP LOCKED', 'FOR UPDATE OF items');
	my $target = pick([ 'i d', "id, $c->{d}" ], [ 'i', 'id' ]);
	return { bound => 'soft', columns => $target->[0], filter => $filter,
		sql => "BEGIN; SELECT $target->[1] FROM items WHERE $filter ORDER BY $c->{d} LIMIT " . any_limit() . " $lock; ROLLBACK" };
}

sub changes
{
	my ($c) = @_;
	my $filter = any_filter($c->{set});
	my $n = pick(1, 5, 30);
	my $chosen = "SELECT id FROM items WHERE $filter ORDER BY $c->{d} LIMIT $n";
	my $copied = "SELECT id, $c->{d} FROM items WHERE $filter ORDER BY $c->{d} LIMIT $n";
	return pick(
		{ bound => 'hard', columns => 'i', unordered => 1, filter => $filter, sql => "BEGIN; DELETE FROM items WHERE id IN ($chosen) RETURNING id; ROLLBACK" },
		{ bound => 'hard', columns => 'i', unordered => 1, filter => $filter, sql => "BEGIN; UPDATE items SET w = w + 1 WHERE id IN ($chosen) RETURNING id; ROLLBACK" },
		{ bound => 'hard', columns => 'i', unordered => 1, filter => $filter,
			sql => "BEGIN; WITH c AS ($chosen) UPDATE items SET v = v FROM c WHERE c.id = items.id RETURNING items.id; ROLLBACK" },
		{ bound => 'hard', columns => 'i d', filter => $filter,
			sql => "BEGIN; CREATE TEMP TABLE copied (id int, d float8); INSERT INTO copied $copied; SELECT * FROM copied; ROLLBACK" });
}

# The row that a cursor stands on, whose id comes twice. Above a Sort or MergeAppend PostgreSQL knows it only under FOR UPDATE.
sub current_of
{
	my ($c) = @_;
	# A partition that is left out has no row that the cursor stands on.
	my $filter = pick('true', $c->{set}{tables} eq 'nested' ? () : 'u = 1', 'passes(w)');
	my $locked = $c->{set}{tables} ne '' || chance(0.6) ? 'FOR UPDATE' : '';
	my $change = pick('UPDATE items SET w = w', 'DELETE FROM items');

	return { bound => 'none', columns => 'i', filter => $filter, unordered => 1, repeats => 1, pair => 1, no_twin => !$locked,
		settings => 'SET enable_seqscan = off; SET enable_sort = off; SET enable_bitmapscan = off;',
		sql => "BEGIN; DECLARE c CURSOR FOR SELECT id FROM items WHERE $filter ORDER BY $c->{d} $locked; MOVE " . pick(0, 1, 30)
		  . " IN c; FETCH 1 FROM c; $change WHERE CURRENT OF c RETURNING id; ROLLBACK" };
}

# ---- rows that a user may not see ----

sub row_security
{
	my ($c) = @_;
	my $filter = pick('true', 'w = 7', 'leaky(u)', '10 / u > 0', "leaky(u) AND " . threshold($c, $c->{d}, radius($c)), threshold($c, $c->{d}, radius($c)));
	my ($table, $role) = chance(0.6) ? ('items', 'SET ROLE reader; ') : ('seen_items', '');
	my $bound = $filter eq 'true' || $filter =~ /^(?:w = 7|leaky\(u\)|10 \/ u > 0)$/ ? 'hard' : 'near';
	my %limit = chance(0.7) ? (bound => $bound, limit => ' LIMIT ' . any_limit()) : (bound => 'none', limit => '');
	return { %limit, columns => 'i d', filter => 'u = 1 AND ' . $filter =~ s/leaky\(u\)/true/r,
		sql => "${role}SELECT id, $c->{d} FROM $table WHERE $filter ORDER BY $c->{d}$limit{limit}; RESET ROLE" };
}

# No row is nearest to NULL.
sub null_query
{
	my ($c) = @_;
	my $filter = simple_filter();
	my $d = "v $c->{set}{operator} (SELECT q.v FROM queries q WHERE q.n = 0)";
	return { bound => 'hard', columns => 'i x', filter => $filter, unordered => 1,
		sql => "SELECT id, $d FROM items WHERE $filter ORDER BY $d LIMIT " . pick(5, 100, 'ALL') };
}

# ---- any ----

# Make a query of this kind, or of any.
sub make_query
{
	my ($session, $set, $kind) = @_;
	my %c = (session => $session, set => $set, number => 1 + int(rand(query_count())));
	my $literal = $set->{queries}[ $c{number} ];

	$c{q} = pick($literal, $literal, "(SELECT q.v FROM queries q WHERE q.n = $c{number})");
	$c{d} = distance(\%c);
	return { number => $c{number}, kind => $kind, %{ $kinds{$kind}->(\%c) } };
}

1;
