# Order and completeness: thousands of generated queries over an index, each against the same without it. From pages and through the server,
# with the plan node and without, in parallel, and beside another extension that changes the paths of relations (test/paths_module.c).
#
# What is promised: rows ascend by the operator's own value, none comes twice, filters hold. As many rows come as there are if the scan
# knows how many are wanted (LIMIT) or that all are; in the second case, and with gpuann.exact, they are the nearest.
#
# The seed printed reproduces a run: GPUANN_SEED=seed; one query of it: GPUANN_SEED=seed/number. GPUANN_PART=plain compares two tables without
# an index, which shows that the judge asks for nothing that is not true; GPUANN_PART=SET, a data set's name, leaves out the others.
# GPUANN_LONG=1 asks sixteen times as many.

use strict;
use warnings;

use Digest::MD5 qw(md5);
use FindBin;
use lib $FindBin::RealBin;
use GpuannTest;
use OracleQueries;
use OracleTest;
use PgSession;
use ServerTest;
use Time::HiRes qw(time);
use Test::More;

my $rounds;		# queries of each kind over each data set
my $shown = 3;	# failures of a kind that are shown
my ($seed, $only) = split m{/}, $ENV{GPUANN_SEED} || int(rand(2**31));
my $part = $ENV{GPUANN_PART} // '';
my $with_index = $part ne 'plain';

# Kinds that are asked in the other modes of scans too, where fewer rows may come.
my %other_modes = map { $_ => 1 } qw(limit filter only_ids drained);

# Another extension, loaded before gpuann or after it, and what it does.
my $module = "$FindBin::RealBin/../test/build/paths_module";
my @modes = -e "$module.so" ? qw(rebuild hint no_index drop add replace) : ();

my ($node, $session, $has_node);
my (%asked, %failed, %planned, %short, %refused);

# Settings of a query, and what they promise.
sub settings_and_promise
{
	my ($set, $query, $on_server) = @_;
	my $exact = chance(0.25);
	# A plain index scan may give another row as the nearest: then as many rows as are that far away equal its min().
	my $by_node = chance(0.8) || !$has_node || $query->{sql} =~ /= \(SELECT min\(/;
	my %settings = ('gpuann.exact' => $exact ? 'on' : 'off', 'gpuann.server' => $on_server ? 'on' : 'off',
		'gpuann.ef_search' => pick(1, 1, 2, 5, 40), 'work_mem' => pick("'64kB'", "'4MB'", "'4MB'"), 'enable_sort' => pick('on', 'off', 'off'),
		'enable_hashagg' => pick('on', 'off'), 'enable_material' => pick('on', 'off'), enable_seqscan => chance(0.9) ? 'off' : 'on');

	$settings{'gpuann.plan_node'} = $by_node ? 'on' : 'off' if $has_node;
	@settings{qw(parallel_setup_cost parallel_tuple_cost min_parallel_table_scan_size min_parallel_index_scan_size)} = (0) x 4 if chance(0.15);
	# CURRENT OF wants a scan that knows it, and rows that are not indexed are in no other scan.
	$settings{'paths_module.mode'} = pick(@modes) if @modes && chance(0.15) && !$set->{kinds} && $query->{kind} ne 'current_of';
	if ($other_modes{ $query->{kind} } && chance(0.2))
	{
		my $mode = pick('strict_order', 'relaxed_order', 'off');

		@settings{ 'gpuann.exact', 'gpuann.iterative_scan' } = ('off', $mode);
		$query->{unordered} = 1 if $mode eq 'relaxed_order';
		($exact, $by_node) = (0, 0);
	}
	return (join('', map { "SET $_ = $settings{$_}; " } sort keys %settings) . ($query->{settings} // ''),
		{ exact => $exact, complete => $by_node });
}

# Ask over items or its twin; returns the answer.
sub ask
{
	my ($set, $settings, $query, $table) = @_;
	my $sql = $settings =~ s/items/$table/gr;
	my $answer;

	$answer = $session->query("RESET ALL; SET search_path = $set->{name}, public; $sql");
	return $answer if $answer->{error} ne '';
	$session->query($query->{before} =~ s/items/$table/gr) if $query->{before};
	$answer = $session->query($query->{sql} =~ s/items/$table/gr);
	$session->query('ROLLBACK; RESET ROLE; CLOSE ALL') if $answer->{error} ne '';
	die "$query->{sql}: the connection was lost" if $answer->{lost};
	return $answer;
}

# Whether the plan uses the index, where the query is one that EXPLAIN takes.
sub uses_index
{
	my ($query) = @_;
	my ($body) = $query->{sql} =~ /((?:DECLARE|\(?SELECT|WITH|EXECUTE|UPDATE|DELETE FROM)\b.*?)(?:;|$)/s;
	my $answer = $session->query("EXPLAIN (COSTS OFF) " . $body =~ s/; .*//sr);

	return grep { /items\w*_v|gpuann/ } @{ $answer->{rows} };
}

# A LIMIT not reached although there are far more rows: the scan dropped what it found too late.
sub count_short
{
	my ($set, $query, $mine, $twin) = @_;

	return if $query->{bound} ne 'soft' || !$query->{filter};
	$short{of}++;
	$short{rows}++ if @$mine < @$twin && @$twin * 2 < keys %{ allowed_ids($session, $set, $query->{filter}) };
}

# Ask one query of both tables; returns what is wrong, or ''.
sub compare
{
	my ($set, $query, $settings, $promise) = @_;
	return '' if $query->{no_twin} && !$with_index;
	my $mine = ask($set, $settings, $query, 'items');
	my $kind = $query->{kind};

	$planned{$kind}++ if $mine->{error} eq '' && uses_index($query);
	my $twin = $query->{no_twin} ? $mine : ask($set, $settings, $query, 'plain');
	if ($twin->{error} ne '' && !$query->{no_twin})
	{
		$refused{$kind} //= "$twin->{error}: $query->{sql}";
		return '';
	}
	# A plain index scan drops rows that it finds too late: a cursor may reach its end sooner.
	return '' if !$promise->{complete} && !$promise->{exact} && $mine->{error} =~ /is not positioned on a row/;
	return $mine->{error} if $mine->{error} ne '';
	count_short($set, $query, $mine->{rows}, $twin->{rows}) if $promise->{complete} && !$promise->{exact};
	return judge($session, $set, $query, $mine->{rows}, $twin->{rows}, $promise);
}

# One query of a kind. Its number says of which set it is, and is its seed.
sub one_query
{
	my ($set, $kind, $number) = @_;
	my ($query, $settings, $promise, $wrong);

	return if defined $only && $only != $number;
	srand(unpack('N', md5("$seed/$number")));
	$query = make_query($session, $set, $kind);
	($settings, $promise) = settings_and_promise($set, $query, chance(0.5));
	$settings .= $set->{settings} // '';
	$wrong = compare($set, $query, $settings, $promise);
	$asked{$kind}++;
	note("$set->{name}: $settings $query->{sql}") if defined $only;
	return if $wrong eq '';
	diag("$kind, $set->{name} (GPUANN_SEED=$seed/$number): $wrong\n$settings\n" . substr($query->{sql}, 0, 600))
	  if $failed{$kind}++ < $shown;
}

# Wait until the mirrors of a set's indexes are there; until then scans are answered from pages.
sub await_mirrors
{
	my ($set) = @_;

	return await("the mirrors of $set->{name} are ready", sub {
		$session->rows("RESET ALL; SET search_path = $set->{name}, public; SET enable_seqscan = off;
			SELECT id FROM items ORDER BY v $set->{operator} $set->{queries}[5] LIMIT 1");
		return $session->rows("SELECT count(*) > 0 AND bool_and(state = 'ready' AND mirror_lag = 0)
			FROM pg_stat_gpuann WHERE schemaname = '$set->{name}'") eq 't';
	});
}

sub ask_about
{
	my ($set, $first) = @_;
	my $number = $first;

	return if defined $only && int($only / 10000) * 10000 != $first || $part ne '' && $part ne 'plain' && $part ne $set->{name};
	return if $set->{kinds} && !$with_index;
	srand(unpack('N', md5("$seed/$set->{name}")));
	make_data_set($session, $set, $with_index);
	ok(await_mirrors($set), "$set->{name}: the mirrors are ready") if $with_index;
	foreach my $kind ($set->{kinds} ? @{ $set->{kinds} } : kinds())
	{
		one_query($set, $kind, $number++) foreach 1 .. ($set->{rows} > 5000 ? $rounds / 2 : $rounds);
	}
	delete @{$set}{qw(truth allowed centers)};
}

# ---- beside a writer ----

# FOR UPDATE waits for a writer that moves the nearest rows and changes what the filter asks for, and then returns rows as they are now.
sub lock_beside_writer
{
	my ($writer, $on_server) = @_;
	my ($set) = grep { $_->{name} eq 'l2' } data_sets();
	my $q = "(SELECT q.v FROM queries q WHERE q.n = " . (1 + int(rand(query_count()))) . ')';
	my $exact = chance(0.5) ? 'on' : 'off';
	my $near = chance(0.5) ? "AND v <-> $q < 12" : '';
	my $settings = "SET search_path = l2, public; SET enable_seqscan = off; SET gpuann.exact = $exact; SET gpuann.server = " . ($on_server ? 'on' : 'off') . ';';
	my $change = pick('w = 99 - w', "v = (SELECT v FROM queries WHERE n = 1)", 'w = w', 'v = v, w = w + 25');
	my $select = "SELECT id, v <-> $q, w FROM items WHERE w < 50 $near ORDER BY v <-> $q LIMIT 20 FOR UPDATE";

	$writer->rows('BEGIN');
	$writer->rows("UPDATE items SET $change WHERE id IN (SELECT id FROM plain ORDER BY v <-> $q LIMIT 40)");
	$session->rows("RESET ALL; $settings");
	$session->send($select);
	$session->is_done(0.05);
	$writer->rows(pick('COMMIT', 'COMMIT', 'ROLLBACK'));
	my $answer = $session->receive;
	my @ids = map { /^(\d+)/ } @{ $answer->{rows} };
	my $now = join("\n", sort split /\n/, $writer->rows("SELECT id, v <-> $q, w FROM items WHERE w < 50 $near AND id IN (" . join(',', 0, @ids) . ')'));

	return "$settings $change; $select: $answer->{error}" if $answer->{error} ne '';
	return "$settings $change; $select: rows are not as they are now" if join("\n", sort @{ $answer->{rows} }) ne $now;
	return '';
}

# All over one set, whose twin no longer has the same rows then.
sub ask_beside_writer
{
	my $writer = PgSession->new($node);
	my @wrong;

	return if defined $only || $part ne '' && $part ne 'l2' && $part ne 'plain';
	$writer->rows('SET search_path = l2, public');
	srand(unpack('N', md5("$seed/writer")));
	@wrong = grep { $_ ne '' } map { lock_beside_writer($writer, $_ % 2) } 1 .. 60;
	is(scalar(@wrong), 0, "seed $seed: FOR UPDATE beside a writer gives rows as they are") or diag(join("\n", @wrong[ 0 .. ($#wrong < 2 ? $#wrong : 2) ]));
	$writer->close;
}

# ---- all of it ----

srand($seed);
$node = server_node('oracle', preload => !@modes ? 'gpuann' : pick("$module, gpuann", "gpuann, $module"), conf => [ 'fsync = off' ]);
await_server($node);
$session = PgSession->new($node);
$session->rows('CREATE ROLE reader');
$rounds = $ENV{GPUANN_LONG} ? 80 : 5;
$has_node = $session->rows("SELECT count(*) FROM pg_settings WHERE name = 'gpuann.plan_node'");
note("seed $seed" . ($has_node ? '' : '; there is no gpuann.plan_node'));

# What EXPLAIN does not show, or no plain index scan does.
my %unplanned = map { $_ => 1 } 'plpgsql', $has_node ? () : qw(exists range);
my $began = time;
my $first = 0;
foreach my $set (data_sets())
{
	my $set_began = time;
	ask_about($set, $first);
	note(sprintf('%s: %.1f s', $set->{name}, time - $set_began));
	$first += 10000;
}
ask_beside_writer();
foreach my $kind (kinds())
{
	my ($asked, $failed) = ($asked{$kind} // 0, $failed{$kind} // 0);

	is($failed, 0, "$kind: seed $seed, $asked queries, " . ($planned{$kind} // 0) . ' by the index') if $asked;
	note("refused without the index, too: $refused{$kind}") if $refused{$kind};
	ok($planned{$kind}, "$kind: the index answers some") if $with_index && !defined $only && $part eq '' && !$unplanned{$kind};
}
cmp_ok($short{rows} // 0, '<=', 0.05 * $short{of}, "of $short{of} scans for a LIMIT above a join and the like few have fewer rows") if $short{of};
note(sprintf('%.1f s', time - $began));
$session->close;
$node->stop;
done_testing();
