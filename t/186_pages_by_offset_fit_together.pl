# Pages by OFFSET fit together: while nothing changes, no row comes on two pages, and what a search for all of them finds comes on one. Over clustered
# and random rows, by graph and by lists, on pages and through the server; also where few rows pass a filter, for pages of other sizes, where
# searches miss many rows, where fewer pass than the planner expects, so that an exact pass answers the last pages, and where rounding decides the
# order.
#
# That is promised up to the first page that is compared exactly from the start, because its rounds are expected to cost more: EXPLAIN says that it had
# none. That depends on the page's number and on statistics, not on what a query finds.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use GpuannTest;
use PgSession;
use PostgreSQL::Test::Cluster;
use ServerTest;
use Test::More;

my ($rows, $dims, $queries) = (20000, 16, 10);
my $node = server_node('pages');
my $session;

# Rows around 200 centers, or anywhere, or about equally far from the origin: that one is for distances that differ by no more than rounding. Of a
# function's rows the planner expects a third.
$node->safe_psql('postgres', qq{
	SELECT setseed(0.5);
	CREATE TABLE centers AS SELECT c, (SELECT array_agg(random() * 10) FROM generate_series(1, $dims) WHERE c > 0) AS v FROM generate_series(1, 200) c;
	CREATE TABLE clustered AS SELECT i AS id, i % 7 AS kind,
		(SELECT array_agg(x + random() ORDER BY o) FROM centers, unnest(v) WITH ORDINALITY u (x, o) WHERE c = 1 + i % 200)::vector($dims) AS v
		FROM generate_series(1, $rows) i;
	CREATE TABLE random AS SELECT i AS id, i % 7 AS kind, (SELECT array_agg(random()) FROM generate_series(1, $dims) WHERE i > 0)::vector($dims) AS v
		FROM generate_series(1, $rows) i;
	CREATE TABLE level AS SELECT id, kind, l2_normalize(v)::vector($dims) AS v FROM clustered WHERE id <= 5000;
	CREATE FUNCTION one_in(n int, id int) RETURNS bool IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN id % n = 3; END';
});

sub await_table
{
	my ($table) = @_;
	return await("the mirror of $table is ready", sub {
		$session->rows("SELECT id FROM $table ORDER BY v <-> (SELECT v FROM $table WHERE id = 1) LIMIT 1");
		return $session->rows("SELECT count(*) FROM pg_stat_gpuann WHERE relname = '$table' AND state = 'ready' AND mirror_lag = 0") eq '1';
	});
}

# How many of the pages from the first on are found by rounds, before the first that is not.
sub pages_of_rounds
{
	my ($ask, $size, $most) = @_;

	foreach my $page (0 .. $most - 1)
	{
		return $page unless $session->rows("EXPLAIN (ANALYZE, COSTS off, TIMING off, SUMMARY off) $ask LIMIT $size OFFSET " . $page * $size) =~ / rounds=[1-9]/;
	}
	return $most;
}

# Pages of so many rows, at most this many and not fewer than those: no row comes twice, each page is full and in order. Without a filter one search for
# all of them, which is no broader than the last of the pages', finds hardly a row that they do not have (an index whose links differ may lack one by
# chance).
sub pages_fit
{
	my ($what, $table, $filter, $size, $most, $least) = @_;
	my ($twice, $disorder, $short, $never) = (0, 0, 0, 0);
	my $pages;

	foreach my $i (1 .. $queries)
	{
		my $query = $table eq 'level' ? "array_fill((($i - 1) * 1e-8)::real, ARRAY[$dims])::vector" : "(SELECT v FROM $table WHERE id = " . $i * 1001 . ')';
		my $ask = "SELECT id, v <-> $query FROM $table WHERE $filter ORDER BY v <-> $query";
		my %seen;

		$pages //= pages_of_rounds($ask, $size, $most);
		foreach my $page (0 .. $pages - 1)
		{
			my @lines = map { [ split /\|/ ] } split /\n/, $session->rows("$ask LIMIT $size OFFSET " . $page * $size);

			$twice += grep { $seen{ $_->[0] }++ } @lines;
			$short += @lines < $size;
			$disorder += grep { $lines[$_][1] < $lines[ $_ - 1 ][1] } 1 .. $#lines;
		}
		next if $filter ne 'true' || $table eq 'level';
		my @nearest = map { (split /\|/)[0] } split /\n/, $session->rows("$ask LIMIT " . $size * $pages);
		$never += grep { !$seen{$_} } @nearest[ 0 .. $size * ($pages - 1) - 1 ];
	}
	cmp_ok($pages, '>=', $least, "$what: $pages pages are found by rounds");
	is("$twice, $disorder, $short", '0, 0, 0', "$what: no row twice, all in order, every page full");
	cmp_ok($never, '<=', 2, "$what: no row is lost") if $filter eq 'true' && $table ne 'level';
}

# All kinds of pages of a table.
sub table_fits
{
	my ($method, $table, $server) = @_;
	my $what = "$method, $table, " . ($server eq 'on' ? 'server' : 'pages');

	$session->rows("SET gpuann.server = $server; SET gpuann.fallback = " . ($server eq 'on' ? 'error' : 'on'));
	ok(await_table($table), "$what: ready") if $server eq 'on';
	if ($table eq 'level')
	{
		pages_fit("$what, pages of 10", $table, 'true', 10, 6, 6);
		return;
	}
	pages_fit("$what, pages of 10", $table, 'true', 10, 16, 16);
	pages_fit("$what, pages of 10 of a seventh", $table, 'kind = 3', 10, 9, 2);
	pages_fit("$what, pages of 7", $table, 'true', 7, 12, 12);
	return if $table ne 'random';
	# These lists miss many rows.
	$session->rows('SET gpuann.probes = 1; SET gpuann.ef_search = 10');
	pages_fit("$what, pages of 10 of one row in $_", $table, "one_in($_, id)", 10, 8, 3) foreach 5, 11;
	$session->rows('RESET gpuann.probes; RESET gpuann.ef_search');
}

$session = PgSession->new($node);
$session->rows('SET enable_seqscan = off; SET gpuann.iterative_scan = complete');
foreach my $method ('graph', 'ivfpq')
{
	foreach my $table ('clustered', 'random', 'level')
	{
		$node->safe_psql('postgres', "CREATE INDEX ${table}_$method ON $table USING gpuann (v vector_l2_ops) WITH (method = $method); ANALYZE $table");
		table_fits($method, $table, $_) foreach 'off', 'on';
		$node->safe_psql('postgres', "DROP INDEX ${table}_$method");
	}
}
$node->stop;

done_testing();
