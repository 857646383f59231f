# GraphTest.pm
#		What the tests of the graph's quality share: clustered rows, recall beside a fresh build's, rows that no walk reaches.

package GraphTest;

use strict;
use warnings;

use Exporter 'import';
use GpuannTest qw(in_background_telling);
use PostgreSQL::Test::Utils;

our @EXPORT = qw(make_source make_queries processors recall pending_rows unreached);

use constant { PAGE => 8192, CONTENTS => 24, NO_SLOT => 0xFFFFFFFF, NODE => 4, RECORD => 12, META => 8192 - 16 };

# How many processors there are.
sub processors
{
	chomp(my $count = `nproc 2>/dev/null` || 2);
	return $count;
}

# Run a statement once for each number below so many, in sessions side by side; none may say anything.
sub side_by_side
{
	my ($node, $many, $statement) = @_;
	my @outputs;
	my @running = map { in_background_telling($node, \$outputs[$_], $statement->($_)) } 0 .. $many - 1;

	$_->finish foreach @running;
	die $_ foreach grep { $_ ne '' } @outputs;
}

# Make a table. Where GPUANN_KEPT names a directory it is kept there, or taken from there: what the long forms begin with takes long to make.
sub kept
{
	my ($node, $table, $columns, $make) = @_;
	my $file = ($ENV{GPUANN_KEPT} // '') . "/$table";

	$node->safe_psql('postgres', "DROP TABLE IF EXISTS $table; CREATE TABLE $table ($columns)");
	if ($ENV{GPUANN_KEPT} && -e $file)
	{
		$node->safe_psql('postgres', "COPY $table FROM '$file' (FORMAT binary)");
		return;
	}
	$make->();
	return if !$ENV{GPUANN_KEPT};
	$node->safe_psql('postgres', "COPY $table TO '$file.new' (FORMAT binary)");
	rename("$file.new", $file) or die "$file: $!";
}

# Table source (id, cluster, v): clusters of rows of low dimension, the same on every machine. In order of id it is in random
# order, in order of cluster cluster by cluster.
sub make_source
{
	my ($node, $rows, $dims, $clusters) = @_;
	my $many = processors();

	$node->safe_psql('postgres', qq{
CREATE TABLE centres AS SELECT c AS cluster, array_agg(noise(c, d) * 4) AS centre
	FROM generate_series(0, $clusters - 1) c, generate_series(1, $dims) d GROUP BY c});
	kept($node, 'source', "id int, cluster int, v vector($dims)", sub {
		side_by_side($node, $many, sub { qq{
INSERT INTO source SELECT id, cluster, (SELECT array_agg((x + noise(id, d::int) + noise(id, d::int % 14) * 2)::real ORDER BY d)
		FROM unnest(centre) WITH ORDINALITY AS e(x, d))::vector
	FROM (SELECT id, floor(noise(id, 7777) * $clusters)::int AS cluster FROM generate_series(1 + $_[0], $rows, $many) id) ids
	JOIN centres USING (cluster)
} }) });
	$node->safe_psql('postgres', 'CREATE INDEX ON source (id)');
}

# Table queries: the source's rows beyond those that items will ever have, and for each the nearest ten of items, or of other rows.
sub make_queries
{
	my ($node, $beyond, $count, $of) = @_;
	my $many = processors();
	my $rows = $of // 'items';
	my $make = sub {
		side_by_side($node, $many, sub { qq{
SET enable_indexscan = off;
SET max_parallel_workers_per_gather = 0;
INSERT INTO queries SELECT q.id, q.v, (SELECT array_agg(id) FROM (SELECT id FROM $rows ORDER BY v <-> q.v LIMIT 10) n)
	FROM source q WHERE q.id > $beyond AND q.id <= $beyond + $count AND q.id % $many = $_[0];
} }) };

	# What is in items is another test's business to know.
	return kept($node, 'queries', 'id int, v vector, nearest int[]', $make) if defined $of;
	$node->safe_psql('postgres', 'DROP TABLE IF EXISTS queries; CREATE TABLE queries (id int, v vector, nearest int[])');
	$make->();
}

# recall@10 of the graph search over pages.
sub recall
{
	my ($node, $ef, $settings) = @_;
	my $server = $settings // 'SET gpuann.server = off;';

	return $node->safe_psql('postgres', qq{
$server SET enable_seqscan = off; SET enable_sort = off; SET gpuann.ef_search = $ef;
SELECT round(avg(hits) / 10, 4) FROM (SELECT (SELECT count(*) FROM (SELECT id FROM items ORDER BY v <-> q.v LIMIT 10) n
	WHERE n.id = ANY (q.nearest)) AS hits FROM queries q) h;
});
}

# Rows that a search of the pages compares because they are not linked.
sub pending_rows
{
	my ($node) = @_;

	return (split /\n/, $node->safe_psql('postgres', q{
SET gpuann.server = off; SET enable_seqscan = off;
SELECT id FROM items ORDER BY v <-> (SELECT v FROM queries LIMIT 1) LIMIT 1;
SELECT pending FROM gpuann_last_scan();
}))[1];
}

# "live rows in the graph, those of them that no walk from the seeds reaches, seeds", from the pages of an index.
sub unreached
{
	my ($node, $index) = @_;
	my $path = $node->data_dir . '/' . $node->safe_psql('postgres', "CHECKPOINT; SELECT pg_relation_filepath('$index')");
	my $file = slurp_file($path);
	# IndexFormat follows magic and version; the count of seeds stands after positions, oldest pending page and linked slots.
	my ($node_bytes, $per_page, $slots) = (unpack 'L S6 L S4 L4', substr($file, CONTENTS + 8, 44))[ 8, 10, 14 ];
	my $seeds = unpack 'L', substr($file, CONTENTS + 96, 4);
	my $rows = int((CONTENTS + $per_page * RECORD + 63) / 64) * 64;	# graph rows follow the records
	my $row_bytes = $node_bytes - RECORD;
	my ($live, %pages, @row, @live, @reached) = (0);

	for (my $at = 0; $at < length $file; $at += PAGE)
	{
		my ($superblock, $kind) = unpack 'L S', substr($file, $at + META + 8, 6);

		next if $kind != NODE;
		my $slot = $superblock * $slots + $per_page * $pages{$superblock}++;
		foreach my $i (0 .. $per_page - 1)
		{
			my $flags = unpack 'S', substr($file, $at + CONTENTS + $i * RECORD + 6, 2);

			next if ($flags & 0x10) == 0 || ($flags & 0xF) == 0 || ($flags & 0xF) > 2;
			$live[ $slot + $i ] = ($flags & 0xF) == 1;
			$live += ($flags & 0xF) == 1;
			$row[ $slot + $i ] = $at + $rows + $i * $row_bytes;
		}
	}
	my @walk = unpack "L$seeds", substr($file, PAGE + CONTENTS, 4 * $seeds);
	@walk = @walk[ 0 .. 255 ] if @walk > 256;
	$reached[$_] = 1 foreach @walk;
	while (@walk)
	{
		my $at = $row[ pop @walk ] or next;

		foreach my $next (unpack 'L*', substr($file, $at, $row_bytes))
		{
			last if $next == NO_SLOT;
			push @walk, $next if !$reached[$next]++;
		}
	}
	return sprintf '%d %d %d', $live, scalar(grep { $live[$_] && !$reached[$_] } 0 .. $#live), $seeds;
}

1;
