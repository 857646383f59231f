# A table whose partitions are on three clusters: the query with a LIMIT in each part asks all at once, and unchanged SQL reads some rows of each; both have
# the nearest rows of all (breadth enough to be exact). When one cluster is lost the error names its server, and the others have their rows where that is asked for.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib $FindBin::RealBin;
use GpuannTest;
use Test::More;

my ($rows, $dims) = (300, 8);
my $main = new_node('main', conf => ['gpuann.ef_search = 400']);
plan(skip_all => 'postgres_fdw is not installed')
  if $main->safe_psql('postgres', "SELECT count(*) FROM pg_available_extensions WHERE name = 'postgres_fdw'") eq '0';
my %nodes = map { $_ => new_node($_, conf => ['gpuann.ef_search = 400']) } qw(near far);

$main->safe_psql('postgres', "CREATE EXTENSION postgres_fdw; CREATE TABLE parted (id int, v vector($dims)) PARTITION BY RANGE (id);
	CREATE TABLE here PARTITION OF parted FOR VALUES FROM (0) TO ($rows); INSERT INTO here SELECT i, vec(i, $dims) FROM generate_series(1, $rows - 1) i;
	CREATE INDEX here_v ON here USING gpuann (v vector_l2_ops)");
my $from = $rows;
foreach my $name (sort keys %nodes)
{
	my ($node, $to) = ($nodes{$name}, $from + $rows);

	$node->safe_psql('postgres', "CREATE TABLE there (id int, v vector($dims)); INSERT INTO there SELECT i, vec(i, $dims) FROM generate_series($from, $to - 1) i;
		CREATE INDEX there_v ON there USING gpuann (v vector_l2_ops); VACUUM ANALYZE there");
	$main->safe_psql('postgres', sprintf(
		q{CREATE SERVER %1$s FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '%2$s', port '%3$s', dbname 'postgres', extensions 'vector', async_capable 'true', parallel_commit 'true',
			fetch_size '10', options '-c gpuann.plan_node=off -c enable_sort=off');
		CREATE USER MAPPING FOR CURRENT_USER SERVER %1$s;
		CREATE FOREIGN TABLE part_%1$s PARTITION OF parted FOR VALUES FROM (%4$s) TO (%5$s) SERVER %1$s OPTIONS (schema_name 'public', table_name 'there')},
		$name, $node->host, $node->port, $from, $to));
	$from = $to;
}
$main->safe_psql('postgres', 'VACUUM ANALYZE parted');

my $query = $main->safe_psql('postgres', "SELECT vec(100007, $dims)");
my $distance = "v <-> '$query'";
my $unchanged = "SELECT id FROM parted ORDER BY $distance LIMIT 10";

# What gpuann_parts_query() writes, the column of the distance left out.
sub by_parts
{
	my ($more) = @_;
	my $written = $main->safe_psql('postgres', "SELECT gpuann_parts_query('parted', \$\$$distance\$\$, 10, 'id'" . ($more // '') . ')');

	return "SELECT id FROM ($written) written";
}

my $exact = $main->safe_psql('postgres', "SET enable_indexscan = off; SELECT id FROM (SELECT id, v FROM parted OFFSET 0) s ORDER BY $distance LIMIT 10");
is(scalar(split /\n/, $exact), 10, 'there are ten rows');
is($main->safe_psql('postgres', by_parts()), $exact, 'by parts: the nearest rows of all');
is($main->safe_psql('postgres', $unchanged), $exact, 'unchanged SQL: the nearest rows of all');
is($main->safe_psql('postgres', "PREPARE p(vector) AS " . (by_parts() =~ s/'\Q$query\E'/\$1/gr) . "; SET plan_cache_mode = force_generic_plan; EXECUTE p('$query')"),
	$exact, 'by parts, prepared: the nearest rows of all');

my $plan = $main->safe_psql('postgres', 'EXPLAIN (VERBOSE, COSTS OFF) ' . by_parts());
like($plan, qr/Sort\n.*Append\n/s, 'by parts: an Append below a Sort');
is(scalar(() = $plan =~ /Async Foreign Scan/g), 2, 'by parts: both servers are asked at once');
is(scalar(() = $plan =~ /Remote SQL: .* LIMIT 10/g), 2, 'by parts: each with the LIMIT') or diag($plan);

# Estimates of the remote planner, which sees no LIMIT, do not make all rows come: it tells that its first row comes early. (The transfer of so few rows would
# cost next to nothing.)
$main->safe_psql('postgres', "ALTER SERVER $_ OPTIONS (ADD use_remote_estimate 'true', ADD fdw_tuple_cost '10')") foreach keys %nodes;
$plan = $main->safe_psql('postgres', "EXPLAIN (VERBOSE, COSTS OFF) $unchanged");
is(scalar(() = $plan =~ /Remote SQL: .* ORDER BY/g), 2, 'unchanged SQL: each server sorts') or diag($plan);
is($main->safe_psql('postgres', $unchanged), $exact, 'unchanged SQL, remote estimates: the nearest rows of all');

# One is lost.
$nodes{far}->stop('immediate');
foreach my $sql (by_parts(), $unchanged)
{
	my ($rc, $out, $err) = $main->psql('postgres', $sql);

	isnt($rc, 0, 'a lost cluster is an error');
	like($err, qr/could not connect to server "far"/, 'which names its server');
}
my $there = $main->safe_psql('postgres', "SET enable_indexscan = off; SELECT id FROM (SELECT id, v FROM here UNION ALL SELECT id, v FROM part_near OFFSET 0) s ORDER BY $distance LIMIT 10");
is($main->safe_psql('postgres', by_parts(q{, without => '{far}'})), $there, 'where asked, the others have their rows');
$nodes{far}->start;
is($main->safe_psql('postgres', by_parts()), $exact, 'back again: the nearest rows of all');

$_->stop foreach $main, values %nodes;
done_testing();
