# Other extensions' planner hooks, loaded before gpuann or after it: whatever they do to a relation's paths (free them and make them anew, for a hint
# too, drop them, add some), queries over an index answer like a table without one, and the plan node reads the index, unless a hint forbids index
# scans. A relation that another extension reads by a path of its own alone is left to it. test/paths_module.c is the other extension. I4.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use GpuannTest;
use OracleQueries;
use OracleTest;
use PgSession;
use Test::More;

my $module = "$FindBin::RealBin/../test/build/paths_module";
plan skip_all => "$module.so is not built" unless -e "$module.so";

my $seed = $ENV{GPUANN_SEED} || int(rand(2**31));
my @modes = qw(off rebuild hint no_index drop add replace);
my @kinds = qw(limit filter offset strange_limits only_ids drained aggregates min_max joins lateral correlated in threshold range merge_append for_update);
my $by_index = 'SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_sort = off;';
my ($session, $asked);

# The answer to a query over items or its twin.
sub ask
{
	my ($query, $table) = @_;
	my $answer = $session->query($query->{sql} =~ s/items/$table/gr);

	$session->query('ROLLBACK') if $answer->{error} ne '';
	return $answer;
}

# What is wrong with the answers to queries of a kind, or ''.
sub ask_kind
{
	my ($set, $mode, $kind) = @_;

	foreach (1 .. 3)
	{
		my $query = make_query($session, $set, $kind);
		my $settings = (chance(0.6) ? $by_index : '') . ($query->{settings} // '');

		$session->query("RESET ALL; SET search_path = $set->{name}, public; SET paths_module.mode = $mode; $settings");
		my ($mine, $twin) = map { ask($query, $_) } 'items', 'plain';
		return "$settings $query->{sql}: the connection was lost" if $mine->{lost};
		$asked++;
		my $wrong = $mine->{error} || judge($session, $set, $query, $mine->{rows}, $twin->{rows}, { complete => 1 });
		return "$settings $query->{sql}: $wrong" if $wrong ne '';
	}
	return '';
}

# How a plan reads the index of items, where reading the table is dear, but not disabled.
sub plan_of
{
	my ($mode, $sql) = @_;
	my $answer = $session->query("RESET ALL; SET search_path = l2, public; SET cpu_tuple_cost = 1000; SET paths_module.mode = $mode; EXPLAIN (COSTS OFF) $sql");
	my $plan = join("\n", @{ $answer->{rows} });

	return $answer->{lost} ? 'the connection was lost' : $plan =~ /Custom Scan \(gpuann\)/ ? 'node' : $plan =~ /Order By:/ ? 'plain' : 'none';
}

foreach my $order ("$module, gpuann", "gpuann, $module")
{
	my $name = $order =~ /^gpuann/ ? 'after gpuann' : 'before gpuann';
	my $node = new_node($name =~ s/ /_/gr, preload => $order);
	my @sets = grep { $_->{name} =~ /^(?:l2|partitions|children)$/ } data_sets();

	srand($seed);
	$session = PgSession->new($node);
	$session->rows('CREATE ROLE reader');
	make_data_set($session, $_, 1) foreach @sets;
	$session->rows('CREATE INDEX items_w ON l2.items (w)');
	foreach my $mode (@modes)
	{
		my $expected = $mode =~ /replace|no_index/ ? 'none' : 'node';
		my $top = "SELECT id FROM items WHERE w < 90 ORDER BY v <-> $sets[0]{queries}[4] LIMIT 5";
		my @more = (
			"SELECT * FROM queries q, LATERAL (SELECT id FROM items ORDER BY v <-> q.v LIMIT 5) s",
			"SELECT id FROM items ORDER BY v <-> $sets[0]{queries}[4], id LIMIT 5",
			"SELECT id FROM items WHERE v <-> $sets[0]{queries}[4] < 1e-3");
		my @wrong;

		is(plan_of($mode, $_), $expected, "$mode, loaded $name: the index is read by " . ($expected eq 'node' ? 'the node' : 'nobody')) foreach $top, @more;
		foreach my $kind (@kinds)
		{
			push @wrong, grep { $_ ne '' } map { ask_kind($_, $mode, $kind) } @sets;
			last if @wrong && $wrong[-1] =~ /connection was lost/;
		}
		is(scalar(@wrong), 0, "$mode, loaded $name: answers are those without an index (seed $seed)") or diag(join("\n", @wrong[ 0 .. ($#wrong < 2 ? $#wrong : 2) ]));
		$session = PgSession->new($node) or last;
	}
	$session->close if $session;
	$node->stop('immediate');
}
note("$asked queries");
done_testing();
