# Order and completeness: thousands of generated queries over an index, each against the same without it. From pages and through the server,
# with the plan node and without.
#
# What is promised: rows ascend by the operator's own value, none comes twice, filters hold. As many rows come as there are if the scan
# knows how many are wanted (LIMIT) or that all are; in the second case, and with gpuann.exact, they are the nearest.
#
# The seed printed reproduces a run: GPUANN_SEED=seed; one query of it: GPUANN_SEED=seed/number. GPUANN_PART=plain compares two tables without
# an index, which shows that the judge asks for nothing that is not true; GPUANN_PART=SET, a data set's name, leaves out the others.
# GPUANN_LONG=1 asks ten times as many.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use GpuannTest;
use OracleQueries;
use OracleTest;
use PgSession;
use ServerTest;
use Time::HiRes qw(time);
use Test::More;

my $rounds = $ENV{GPUANN_LONG} ? 40 : 4;	# queries of each kind over each data set
my $shown = 1000;	# failures of a kind that are shown
my ($seed, $only) = split m{/}, $ENV{GPUANN_SEED} || int(rand(2**31));
my $part = $ENV{GPUANN_PART} // '';
my $with_index = $part ne 'plain';

my ($node, $session, $has_node);
my (%asked, %failed, %planned, %short, %refused);

# Settings of a query, and what they promise.
sub settings_and_promise
{
	my ($query, $on_server) = @_;
	my $exact = chance(0.25);
	my $by_node = chance(0.8);
	my %settings = ('gpuann.exact' => $exact ? 'on' : 'off', 'gpuann.server' => $on_server ? 'on' : 'off',
		'gpuann.ef_search' => pick(1, 1, 2, 5, 40), 'work_mem' => pick("'64kB'", "'4MB'", "'4MB'"), 'enable_sort' => pick('on', 'off', 'off'),
		'enable_hashagg' => pick('on', 'off'), 'enable_material' => pick('on', 'off'), enable_seqscan => chance(0.9) ? 'off' : 'on');

	$settings{'gpuann.plan_node'} = $by_node ? 'on' : 'off' if $has_node;
	return (join('', map { "SET $_ = $settings{$_}; " } sort keys %settings) . ($query->{settings} // ''),
		{ exact => $exact, complete => $by_node || !$has_node });
}

# Ask over items or its twin; returns the answer.
sub ask
{
	my ($set, $settings, $query, $table) = @_;
	my $sql = $settings =~ s/items/$table/gr;
	my $answer;

	$session->query("RESET ALL; SET search_path = $set->{name}, public; $sql");
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
	return $mine->{error} if $mine->{error} ne '';
	count_short($set, $query, $mine->{rows}, $twin->{rows}) if !$promise->{exact};
	return judge($session, $set, $query, $mine->{rows}, $twin->{rows}, $promise);
}

# One query of a kind. Its number says of which set it is, and is its seed.
sub one_query
{
	my ($set, $kind, $number) = @_;
	my ($query, $settings, $promise, $wrong);

	return if defined $only && $only != $number;
	srand(($seed * 31 + $number) % 2**31);
	$query = make_query($session, $set, $kind);
	($settings, $promise) = settings_and_promise($query, chance(0.5));
	my $t=time; $wrong = compare($set, $query, $settings, $promise);
	diag(sprintf "TIME %.2f $set->{name} $kind $query->{sql}", time-$t) if time-$t>0.3;
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
	srand(($seed + $first) % 2**31);
	make_data_set($session, $set, $with_index);
	ok(await_mirrors($set), "$set->{name}: the mirrors are ready") if $with_index;
	foreach my $kind (kinds())
	{
		one_query($set, $kind, $number++) foreach 1 .. ($set->{rows} > 5000 ? $rounds / 2 : $rounds);
	}
	delete @{$set}{qw(truth allowed centers)};
}

$node = server_node('oracle', conf => [ 'fsync = off' ]);
await_server($node);
$session = PgSession->new($node);
$session->rows('CREATE ROLE reader');
$has_node = $session->rows("SELECT count(*) FROM pg_settings WHERE name = 'gpuann.plan_node'");
note("seed $seed" . ($has_node ? '' : '; there is no gpuann.plan_node'));

my $began = time;
my $first = 0;
foreach my $set (data_sets())
{
	my $set_began = time;
	ask_about($set, $first);
	note(sprintf('%s: %.1f s', $set->{name}, time - $set_began));
	$first += 10000;
}
foreach my $kind (kinds())
{
	my ($asked, $failed) = ($asked{$kind} // 0, $failed{$kind} // 0);

	is($failed, 0, "$kind: seed $seed, $asked queries, " . ($planned{$kind} // 0) . ' by the index') if $asked;
	note("refused without the index, too: $refused{$kind}") if $refused{$kind};
}
note(sprintf('%.1f s', time - $began));
$session->close;
$node->stop;
done_testing();
