# Pages by OFFSET fit together: while nothing changes, no row comes on two pages, and what a search for all of them finds comes on one. Over clustered
# and random rows, by graph and by lists, on pages and through the server; also where few rows pass a filter, and for pages of other sizes.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use GpuannTest;
use PgSession;
use PostgreSQL::Test::Cluster;
use ServerTest;
use Test::More;

my ($rows, $dims, $queries) = (20000, 16, 15);
my $node = server_node('pages');
my $session;

# Rows around 200 centers, or anywhere.
$node->safe_psql('postgres', qq{
	SELECT setseed(0.5);
	CREATE TABLE centers AS SELECT c, (SELECT array_agg(random() * 10) FROM generate_series(1, $dims) WHERE c > 0) AS v FROM generate_series(1, 200) c;
	CREATE TABLE clustered AS SELECT i AS id, i % 7 AS kind,
		(SELECT array_agg(x + random() ORDER BY o) FROM centers, unnest(v) WITH ORDINALITY u (x, o) WHERE c = 1 + i % 200)::vector($dims) AS v
		FROM generate_series(1, $rows) i;
	CREATE TABLE random AS SELECT i AS id, i % 7 AS kind, (SELECT array_agg(random()) FROM generate_series(1, $dims) WHERE i > 0)::vector($dims) AS v
		FROM generate_series(1, $rows) i;
});

sub await_table
{
	my ($table) = @_;
	return await("the mirror of $table is ready", sub {
		$session->rows("SELECT id FROM $table ORDER BY v <-> (SELECT v FROM $table WHERE id = 1) LIMIT 1");
		return $session->rows("SELECT count(*) FROM pg_stat_gpuann WHERE relname = '$table' AND state = 'ready' AND mirror_lag = 0") eq '1';
	});
}

# Pages of so many rows: none comes twice, each page is full and in order. Without a filter one search for all of them, which is no broader than
# the last of the pages', finds hardly a row that they do not have (an index whose links differ may lack one by chance).
sub pages_fit
{
	my ($what, $table, $filter, $size, $pages) = @_;
	my ($twice, $disorder, $short, $never) = (0, 0, 0, 0);

	foreach my $i (1 .. $queries)
	{
		my $query = "(SELECT v FROM $table WHERE id = " . $i * 1001 . ')';
		my $ask = "SELECT id, v <-> $query FROM $table WHERE $filter ORDER BY v <-> $query";
		my %seen;

		foreach my $page (0 .. $pages)
		{
			my @lines = map { [ split /\|/ ] } split /\n/, $session->rows("$ask LIMIT $size OFFSET " . $page * $size);

			$twice += grep { $seen{ $_->[0] }++ } @lines;
			$short += @lines < $size;
			$disorder += grep { $lines[$_][1] < $lines[ $_ - 1 ][1] } 1 .. $#lines;
		}
		next if $filter ne 'true';
		my @nearest = map { (split /\|/)[0] } split /\n/, $session->rows("$ask LIMIT " . $size * ($pages + 1));
		$never += grep { !$seen{$_} } @nearest[ 0 .. $size * $pages - 1 ];
	}
	is("$twice, $disorder, $short", '0, 0, 0', "$what: no row twice, all in order, every page full");
	cmp_ok($never, '<=', 2, "$what: no row is lost") if $filter eq 'true';
}

$session = PgSession->new($node);
$session->rows('SET enable_seqscan = off; SET gpuann.iterative_scan = complete');
foreach my $method ('graph', 'ivfpq')
{
	foreach my $table ('clustered', 'random')
	{
		$node->safe_psql('postgres', "CREATE INDEX ${table}_$method ON $table USING gpuann (v vector_l2_ops) WITH (method = $method); ANALYZE $table");
		foreach my $server ('off', 'on')
		{
			my $what = "$method, $table, " . ($server eq 'on' ? 'server' : 'pages');

			$session->rows("SET gpuann.server = $server; SET gpuann.fallback = " . ($server eq 'on' ? 'error' : 'on'));
			ok(await_table($table), "$what: ready") if $server eq 'on';
			pages_fit("$what, pages of 10", $table, 'true', 10, 15);
			# rounds of lists sooner cost as much as comparing everything, from where on nothing is promised
			pages_fit("$what, pages of 10 of a seventh", $table, 'kind = 3', 10, $method eq 'graph' ? 4 : 2);
			pages_fit("$what, pages of 7", $table, 'true', 7, 20);
		}
		$node->safe_psql('postgres', "DROP INDEX ${table}_$method");
	}
}
$node->stop;

done_testing();
