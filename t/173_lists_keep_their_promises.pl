# An index with lists (method = ivfpq) keeps what an index promises: exact answers, every row once, a right format; through inserts, deletes, VACUUM,
# linking, cancels, crashes, and on a standby with every WAL record checked against its page. And more probes find more.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use GpuannTest;
use PgSession;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $dims = 16;
my $all = 'SET gpuann.probes = 10000; SET gpuann.rerank = 10000;';
my $next = 100000;

# The share of what a scan should find that it finds.
sub share
{
	my ($found, $exact) = @_;
	my @found = split /\n/, $found;
	my @exact = split /\n/, $exact;
	my ($hits, $wanted) = (0, 0);

	foreach my $i (0 .. $#exact)
	{
		my %mine = map { $_ => 1 } ($found[$i] =~ /\{([\d,]+)\}/)[0] =~ /\d+/g;
		my @theirs = ($exact[$i] =~ /\{([\d,]+)\}/)[0] =~ /\d+/g;
		$hits += grep { $mine{$_} } @theirs;
		$wanted += @theirs;
	}
	return $hits / $wanted;
}

# Everything, and that all lists with every row compared give exact answers.
sub right_lists
{
	my ($node, $what) = @_;

	right_after($node, $what);
	is(graph_answers($node, $all), oracle_answers($node), "$what: all lists give what the table gives");
}

# ---- recall, by quantizer ----

my $node = new_node('quantizers');
make_data($node, 6000, $dims, no_index => 1);
my $truth = oracle_answers($node);

foreach my $quantizer ('rabitq', 'rabitq, code_bits = 4', 'int8', 'pq', 'pq, code_bits = 4, pq_m = 5')
{
	my $before = 0;

	$node->safe_psql('postgres',
		"CREATE INDEX items_v ON items USING gpuann (v vector_l2_ops) WITH (method = ivfpq, lists = 60, quantizer = $quantizer)");
	foreach my $probes (1, 4, 16, 60)
	{
		my $share = share(graph_answers($node, "SET gpuann.probes = $probes; SET gpuann.rerank = 10000;"), $truth);

		cmp_ok($share, '>=', $before, "$quantizer: $probes probes find no less than fewer ($share)");
		$before = $share;
	}
	is($before, 1, "$quantizer: all lists hold all rows");
	cmp_ok(share(graph_answers($node, 'SET gpuann.probes = 60;'), $truth), '>=', $quantizer eq 'int8' ? 1 : 0.97,
		"$quantizer: codes exclude few of the nearest, or none");
	right_after($node, $quantizer);
	$node->safe_psql('postgres', 'DROP INDEX items_v');
}
$node->stop;

# ---- rows that come and go; a standby follows ----

my $primary = new_node('primary', streaming => 1, conf => ["wal_consistency_checking = 'generic'"]);
my $standby = PostgreSQL::Test::Cluster->new('standby');

make_data($primary, 4000, $dims, with => 'WITH (method = ivfpq, lists = 50)');
$primary->backup('base');
$standby->init_from_backup($primary, 'base', has_streaming => 1);
$standby->start;

sub same_on_both
{
	my ($what) = @_;

	$primary->wait_for_catchup($standby, 'replay', $primary->lsn('insert'));
	right_lists($primary, $what);
	check_index($standby, "$what, standby");
	is(graph_answers($standby), graph_answers($primary), "$what: the standby answers as the primary does");
	is(graph_answers($standby, $all), oracle_answers($primary), "$what: and finds all with all lists");
}

same_on_both('built');
foreach my $round (1 .. 4)
{
	$primary->safe_psql('postgres', "DELETE FROM items WHERE noise(id, $round) < 0.3");
	fill_rows($primary, $next, $next + 1500, $dims);
	$next += 10000;
	same_on_both("round $round, pending");
	$primary->safe_psql('postgres', $round % 2 ? 'VACUUM items' : "SELECT gpuann_link('items_v')");
	same_on_both("round $round, " . ($round % 2 ? 'vacuumed' : 'linked'));
}

# Far more rows than the build expected: superblocks are begun for their entries.
fill_rows($primary, $next, $next + 8000, $dims);
$next += 10000;
is($primary->safe_psql('postgres', "SELECT gpuann_link('items_v')"), '8001', 'many rows are linked');
same_on_both('grown');

# No row stays, and slots and posting pages are used again.
$primary->safe_psql('postgres', 'DELETE FROM items');
$primary->safe_psql('postgres', 'VACUUM items') foreach 1 .. 2;
is($primary->safe_psql('postgres', "SELECT rows FROM gpuann_lists('items_v')"), '0', 'no entries stay');
my $size = $primary->safe_psql('postgres', "SELECT pg_relation_size('items_v')");
fill_rows($primary, 1, 4000, $dims);
$primary->safe_psql('postgres', "SELECT gpuann_link('items_v')");
is($primary->safe_psql('postgres', "SELECT pg_relation_size('items_v')"), $size, 'slots and pages are used again');
same_on_both('filled again');
$standby->stop;
$primary->stop;

# ---- crashes and cancels ----

$node = new_node('crashes');
make_data($node, 5000, $dims, with => 'WITH (method = ivfpq, lists = 50, quantizer = int8)');
my $interrupted = 0;
my @vacuum = ("SET vacuum_cost_delay = '2ms'", 'SET vacuum_cost_limit = 60', 'VACUUM items');

foreach my $seconds (0.1, 0.3, 0.6, 1.0)
{
	$node->safe_psql('postgres', "DELETE FROM items WHERE noise(id, " . int($seconds * 10) . ") < 0.3");
	fill_rows($node, $next, $next + 1000, $dims);
	$next += 10000;
	$interrupted += stop_in_the_middle($node, $seconds, \@vacuum);
	right_lists($node, "vacuum crashed after $seconds s");
}
cmp_ok($interrupted, '>', 0, 'vacuum was interrupted');
$node->safe_psql('postgres', 'VACUUM items');
right_lists($node, 'vacuumed in the end');
is($node->safe_psql('postgres', "SELECT (SELECT rows FROM gpuann_lists('items_v')) - linked FROM gpuann_stats('items_v')"), '0',
	'there are no needless entries');

foreach my $seconds (0.02, 0.05, 0.1, 0.2)
{
	fill_rows($node, $next, $next + 5000, $dims);
	$next += 10000;
	stop_in_the_middle($node, $seconds, ["SELECT gpuann_link('items_v')"]);
	right_lists($node, "link crashed after $seconds s");
	fill_rows($node, $next, $next + 3000, $dims);
	$next += 10000;
	$node->psql('postgres', "SET statement_timeout = '" . int($seconds * 1000) . "ms'; SELECT gpuann_link('items_v')");
	right_lists($node, "link cancelled after $seconds s");
}
$node->safe_psql('postgres', "SELECT gpuann_link('items_v')");
is($node->safe_psql('postgres', "SELECT gpuann_link('items_v')"), '0', 'nothing is left to link');
$node->safe_psql('postgres', 'DELETE FROM items WHERE id % 50 = 0');
$node->safe_psql('postgres', 'VACUUM items');
right_lists($node, 'linked and vacuumed in the end');
is($node->safe_psql('postgres', "SELECT (SELECT rows FROM gpuann_lists('items_v')) - linked FROM gpuann_stats('items_v')"), '0',
	'there are no needless entries then');

# Nothing dies, and a pass of linking that was cut short leaves entries all the same.
SKIP:
{
	my $session = PgSession->new($node);
	my $entries = "SELECT (SELECT rows FROM gpuann_lists('items_v')) - linked FROM gpuann_stats('items_v')";

	$session->rows("LOAD 'gpuann'");
	skip 'built without faults', 7 if $session->query('SHOW gpuann.fault')->{error} ne '';
	fill_rows($node, $next, $next + 500, $dims);
	$next += 10000;
	$session->rows("SET gpuann.fault = 'link-list-numbers error'");
	like($session->query("SELECT gpuann_link('items_v')")->{error}, qr/link-list-numbers/, 'a pass of linking is cut short');
	$session->close;
	$node->safe_psql('postgres', "SELECT gpuann_link('items_v')");
	cmp_ok($node->safe_psql('postgres', $entries), '>', 0, 'there are needless entries behind the next one');
	$node->safe_psql('postgres', 'VACUUM items');
	is($node->safe_psql('postgres', $entries), '0', 'but not behind VACUUM');
	right_lists($node, 'vacuumed without a death');
}

# ---- all at once ----

my $again = sub {
	return "DO \$\$ DECLARE until timestamptz := clock_timestamp() + '5 s'; i int := 0; BEGIN
		WHILE clock_timestamp() < until LOOP i := i + 1; $_[0]; COMMIT; END LOOP; END \$\$";
};
my @said = ('') x 4;
my @running = (
	in_background_telling($node, \$said[0], $again->("INSERT INTO items SELECT $next + 20 * i + j, vec($next + 20 * i + j, $dims) FROM generate_series(1, 20) j")),
	in_background_telling($node, \$said[1], $again->("DELETE FROM items WHERE id % 97 = i % 97 AND noise(id, i) < 0.3")),
	in_background_telling($node, \$said[2], $again->("PERFORM gpuann_link('items_v'), pg_sleep(0.02)")),
	in_background_telling($node, \$said[3], ('VACUUM items', 'SELECT pg_sleep(0.1)') x 20));
my $wrong = '';
my $looks = 0;
my $end = time + 6;

do
{
	my ($found, $distinct, $rows) = split /\|/, $node->safe_psql('postgres', qq{
SET enable_seqscan = off; SET enable_sort = off; SET gpuann.iterative_scan = relaxed_order;
SELECT count(*), count(DISTINCT place), (SELECT count(*) FROM items)
	FROM (SELECT ctid AS place FROM items ORDER BY v <-> vec($looks, $dims) LIMIT 1000000) s});

	$wrong ||= "$found, $distinct, $rows" if $found != $rows || $distinct != $rows;
	$looks++;
} while (time < $end);
$_->finish foreach @running;
is($wrong, '', "every row is found at any time ($looks looks)");
is(join('', @said), "\n" x 20, 'no session failed');
right_lists($node, 'after all at once');
$node->stop;

done_testing();
