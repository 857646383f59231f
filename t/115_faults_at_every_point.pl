# Every fault point of src/ (faults.h): a crash there under load, an ERROR there, a cancel there. After each the index keeps its format,
# every committed row is found, nothing is leaked, and the work that was cut short can be done.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use GpuannTest;
use PgSession;
use Time::HiRes qw(sleep time);
use Test::More;

my $dims = 8;
my $long_dims = 5000;
my $next = 100000;
my $loads = 0;
my $node = new_node('faults', conf => [ "session_preload_libraries = 'gpuann'", 'restart_after_crash = on', "maintenance_work_mem = '8MB'", 'gpuann.pending_limit = 1000000' ]);
my ($session) = PgSession->new($node);

if ($session->query("SHOW gpuann.fault")->{error} ne '')
{
	$session->close;
	$node->stop;
	plan skip_all => 'this build has no fault points';
}

# Some rows that nobody has inserted before; short ones by default.
sub some_rows
{
	my ($count, $table) = @_;
	my $of = ($table // '') eq 'longs' ? $long_dims : $dims;

	$next += $count;
	return 'INSERT INTO ' . ($table // 'items') . " SELECT i, vec(i, $of) FROM generate_series(" . ($next - $count) . ', ' . ($next - 1) . ') i;';
}

# What makes a session come to a point: what to do before, what the session does, by the beginning of the point's name.
my %roads = (
	'build-' => { does => sub { 'REINDEX INDEX items_v' } },
	'init-' => {
		before => sub { 'DROP TABLE IF EXISTS fresh' },
		does => sub { "CREATE UNLOGGED TABLE fresh (id int, v vector($dims)); CREATE INDEX ON fresh USING gpuann (v vector_l2_ops)" },
	},
	'nonce-' => { before => sub { reset_unlogged(); '' }, does => sub { some_rows(5, 'unlogged') } },
	'append-long-' => { does => sub { some_rows(3, 'longs') } },
	'append-columns' => { does => sub { some_rows(3, 'longs') } },
	'append-' => { does => sub { some_rows(20) } },
	# Twice a page's or a superblock's worth: other sessions may come to the end of the first.
	'list-' => { does => sub { some_rows(4200) } },
	# A serial build: one with workers leaves free slots, which are taken first.
	'superblock-' => { before => sub { 'SET max_parallel_maintenance_workers = 0; REINDEX INDEX items_v' }, does => sub { some_rows(4200) } },
	'link-' => { before => sub { some_rows(300) }, does => sub { "SELECT gpuann_link('items_v')" } },
	# An index that has shrunk has seeds enough for rows to come.
	'link-seed-' => { before => sub { 'REINDEX INDEX items_v;' . some_rows(1500) }, does => sub { "SELECT gpuann_link('items_v')" } },
	'bounds-' => { before => sub { some_rows(50) }, does => sub { "SELECT gpuann_link('items_v')" } },
	'change-' => { before => sub { some_rows(50) }, does => sub { "SELECT gpuann_link('items_v')" } },
	'slice-' => { before => sub { some_rows(50) }, does => sub { "SELECT gpuann_link('items_v')" } },
	'trim' => {
		before => sub { some_rows(2100) . "SELECT gpuann_link('items_v');" . some_rows(20) },
		does => sub { "SELECT gpuann_link('items_v')" },
	},
	# Linked, and all list entries trimmed, so that what dies can be freed in one go.
	'vacuum-' => {
		before => sub { "SELECT gpuann_link('items_v'), gpuann_link('items_v');" . some_rows(50) . 'DELETE FROM items WHERE random() < 0.2' },
		does => sub { 'VACUUM items' },
	},
);
$roads{'free'} = $roads{'vacuum-'};

# Those of lists. Truncated, the index has one.
$roads{'build-lists-'} = { does => sub { 'REINDEX INDEX coded_v' } };
$roads{'posting-'} = {
	before => sub { 'TRUNCATE coded;' . some_rows(1000, 'coded') },
	does => sub { "SELECT gpuann_link('coded_v')" },
};
$roads{'link-list-'} = $roads{'posting-fill'} = {
	before => sub { 'TRUNCATE coded;' . some_rows(100, 'coded') . "SELECT gpuann_link('coded_v');" . some_rows(50, 'coded') },
	does => sub { "SELECT gpuann_link('coded_v')" },
};
$roads{'vacuum-lists'} = $roads{'posting-remove'} = {
	before => sub { 'TRUNCATE coded;' . some_rows(1000, 'coded') . "SELECT gpuann_link('coded_v'); DELETE FROM coded WHERE random() < 0.3" },
	does => sub { 'VACUUM coded' },
};

sub road_to
{
	my ($point) = @_;
	my ($road) = sort { length $b <=> length $a } grep { index($point, $_) == 0 } keys %roads;

	return $road ? $roads{$road} : undef;
}

# Unlogged indexes lose their identity in a crash.
sub reset_unlogged
{
	$session->close;
	$node->stop('immediate');
	$node->start;
	$session = PgSession->new($node);
}

# Prepare for a point and return what the session is to do.
sub prepare
{
	my ($point) = @_;
	my $road = road_to($point);
	my $before = $road->{before} ? $road->{before}->() : '';

	# The table stays small.
	if ($session->rows('SELECT count(*) FROM items') > 6000)
	{
		$session->rows('DELETE FROM items WHERE id >= 100000 AND random() < 0.9');
		$session->rows('VACUUM items');
	}
	$session->rows($before) if $before ne '';
	return $road->{does}->();
}

# Sessions that write and search until the cluster goes down.
sub load
{
	my @sessions;

	foreach my $one (1 .. 2)
	{
		my $base = 1000000 + 20000 * ++$loads;
		my $loader = PgSession->new($node);

		$loader->send("DO \$\$ BEGIN FOR i IN $base .. $base + 19999 LOOP INSERT INTO items VALUES (i, vec(i, $dims));
			IF i % 7 = 0 THEN ROLLBACK; ELSE COMMIT; END IF; END LOOP; END \$\$");
		push @sessions, $loader;
	}
	my $searcher = PgSession->new($node, settings => '-cenable_seqscan=off -cgpuann.server=off');
	$searcher->send("DO \$\$ BEGIN FOR i IN 1 .. 1000000 LOOP
		IF (SELECT count(DISTINCT id) FROM (SELECT id FROM items ORDER BY v <-> vec(i, $dims) LIMIT 10) s) <> 10 THEN
			RAISE EXCEPTION 'a search found too few rows'; END IF; COMMIT; END LOOP; END \$\$");
	push @sessions, $searcher;
	return @sessions;
}

# Wait until the cluster has recovered.
sub reconnect
{
	my $end = time + 180;

	while (time < $end)
	{
		$session = PgSession->new($node);
		return 1 if $session && $session->query('SELECT 1')->{error} eq '';
		sleep 0.05;
	}
	BAIL_OUT('the cluster does not come back');
}

# Whatever happened: nothing is lost, nothing is there twice, in any of the tables.
sub sound
{
	my ($what) = @_;

	foreach my $table ('items', 'longs', 'unlogged', 'coded')
	{
		my $of = $table eq 'longs' ? $long_dims : $dims;
		my $counts = $session->query("SET enable_seqscan = off; SET enable_sort = off; SET gpuann.server = off; SET gpuann.iterative_scan = relaxed_order;
			SELECT gpuann_check('${table}_v', true); SELECT count(*), count(DISTINCT place), (SELECT count(*) FROM $table)
			FROM (SELECT ctid AS place FROM $table ORDER BY v <-> vec(1, $of) LIMIT 1000000) s; RESET ALL");
		my ($found, $distinct, $rows) = split /\|/, $counts->{rows}[1] // '';

		is("$counts->{error} $found $distinct", " $rows $rows", "$what: $table is whole");
	}
}

sub take_up
{
	my ($point, $what) = @_;

	$session->rows(some_rows(30));
	$session->rows('DELETE FROM items WHERE id >= 100000 AND random() < 0.1');
	$session->rows('VACUUM items') if $point =~ /^(vacuum|free|append|list)/;
	$session->rows("SELECT gpuann_link('items_v')");
	check_index($node, "$what: worked on");
}

sub crash_at
{
	my ($point, $action, $nth) = @_;
	my $statement = prepare($point);
	my @load = load();
	my $victim = PgSession->new($node);
	my $answer;

	sleep 0.2;
	$victim->rows("SET gpuann.fault = '$point $action $nth'");
	# The others may come to the end of a page or superblock instead: again, until this session does.
	foreach my $try (1 .. 10)
	{
		$answer = $victim->query($statement);
		last if $answer->{lost} || $answer->{error} ne '';
	}
	ok($answer->{lost}, "$action at $point") or diag("it went on: $answer->{error}");
	BAIL_OUT('a crash that does not come') if !$answer->{lost};
	foreach my $one (@load)
	{
		my $end = $one->receive;
		is($end->{state} =~ /^(57P0.)?$/ ? '' : $end->{error}, '', "$action at $point: nobody failed before");
	}
	reconnect();
	sound("$action at $point");
	is(exact_answers($node), oracle_answers($node), "$action at $point: exact answers are the table's");
	take_up($point, "$action at $point");
}

# What a session that failed must not have kept.
sub nothing_is_left
{
	my ($victim, $what) = @_;
	my $pid = $victim->pid;

	is($session->rows("SELECT count(*) FROM pg_locks WHERE pid = $pid AND locktype IN ('object', 'extend', 'page', 'relation')"), '0',
		"$what: no lock is left");
	is($victim->rows("SELECT string_agg(name, ',') FROM pg_backend_memory_contexts WHERE name LIKE 'gpuann%'"), '', "$what: no memory is left");
	is(scalar(() = glob("/proc/$pid/task/*")), 1, "$what: no thread is left") if -d "/proc/$pid/task";
}

sub error_at
{
	my ($point) = @_;
	my $statement = prepare($point);
	my $victim = PgSession->new($node);
	my $rows = $session->rows('SELECT count(*) FROM items');

	# The error comes out of a subtransaction where it can; the second time it ends the transaction.
	$victim->rows("SET gpuann.fault = '$point error'");
	my $answer = $victim->query($statement);
	is($answer->{error}, "fault at $point", "error at $point");
	nothing_is_left($victim, "error at $point");
	is($session->rows('SELECT count(*) FROM items'), $rows, "error at $point: rolled back");
	$answer = $victim->query($statement);
	is($answer->{error}, '', "error at $point: the same again");
	$victim->close;
	sound("error at $point");
}

# The error is caught by a block, in the middle of a transaction that then commits.
sub caught_at
{
	my ($point) = @_;
	my $statement = prepare($point);
	my $victim = PgSession->new($node);

	$statement =~ s/^SELECT /PERFORM /;
	$statement =~ s/;$//;
	$victim->rows("SET gpuann.fault = '$point error'");
	my $answer = $victim->query("DO \$\$ BEGIN " . ($point =~ /^append/ ? '' : some_rows(3)) . " BEGIN $statement; RAISE WARNING 'not reached';
		EXCEPTION WHEN internal_error THEN NULL; END; " . some_rows(3) . " END \$\$");
	is($answer->{error}, '', "error at $point, caught");
	is("@{$answer->{notices}}", '', "error at $point, caught: it came");
	nothing_is_left($victim, "error at $point, caught");
	$victim->close;
	sound("error at $point, caught");
}

sub cancel_at
{
	my ($point) = @_;
	my $statement = prepare($point);
	my $victim = PgSession->new($node);
	my $file = $node->data_dir . "/gpuann_fault.$point";
	my $end = time + 60;

	$victim->rows("SET gpuann.fault = '$point wait'");
	$victim->send($statement);
	sleep 0.01 while !-e $file && time < $end && !$victim->is_done;
	ok(-e $file, "cancel at $point: it came there");
	$session->rows('SELECT pg_cancel_backend(' . $victim->pid . ')');
	unlink $file;
	my $answer = $victim->receive;
	like($answer->{error}, qr/^$|^canceling statement due to user request$/, "cancel at $point");
	nothing_is_left($victim, "cancel at $point");
	$victim->close;
	sound("cancel at $point");
}

make_data($node, 2500, $dims, with => 'WITH (m = 6, ef_construction = 24)');
$session->rows("CREATE TABLE longs (id int, v vector($long_dims));
	CREATE INDEX longs_v ON longs USING gpuann (v vector_l2_ops) INCLUDE (id) WITH (m = 4, ef_construction = 16);
	CREATE TABLE coded (id int, v vector($dims)); CREATE INDEX coded_v ON coded USING gpuann (v vector_l2_ops) WITH (method = ivfpq);" . some_rows(500, 'coded') . "
	CREATE UNLOGGED TABLE unlogged (id int, v vector($dims)); CREATE INDEX unlogged_v ON unlogged USING gpuann (v vector_l2_ops);" . some_rows(10, 'longs'));

my %points;
foreach my $file (glob("$FindBin::RealBin/../src/{*,*/*}.c"))
{
	my $source = PostgreSQL::Test::Utils::slurp_file($file);
	$points{$1} = 1 while $source =~ /FAULT_POINT\("([a-z-]+)"\)/g;
}
# No session comes to these: t/030_processes_can_be_ended.pl.
delete $points{$_} foreach grep { /^(launcher|worker|server)-/ } keys %points;
my @points = grep { !$ENV{GPUANN_POINT} || /$ENV{GPUANN_POINT}/ } sort keys %points;
cmp_ok(scalar(@points), '>', 0, 'there are fault points');

foreach my $point (@points)
{
	ok(road_to($point), "$point: the test knows how to get there") or next;
	note(sprintf '%s: after %d s', $point, time - $^T);
	crash_at($point, 'crash', 1);
	if ($ENV{GPUANN_LONG})
	{
		crash_at($point, 'lose', 1);
		crash_at($point, 'crash', 2) if $point =~ /page$|^append|^change|rows$/ && $point !~ /^(nonce|init|freed?|trim)/;
	}
	error_at($point);
	caught_at($point) if $point =~ /^(append-|list|superblock|link|change|slice|trim)/ && $point !~ /long/;
	cancel_at($point);
}

# The metapage's count of the graph's slots, on which the number of seeds depends: what was cut short must not have spoilt it.
$session->rows('DELETE FROM items WHERE id >= 100000 AND random() < 0.5');
$session->rows('VACUUM items');
$session->rows(some_rows(500));
foreach my $point ('link-new-rows', 'link-rows-written')
{
	my $victim = PgSession->new($node);

	$victim->rows("SET gpuann.fault = '$point error'");
	is($victim->query("SELECT gpuann_link('items_v')")->{error}, "fault at $point", "error at $point, again");
	$victim->close;
}
$session->rows("SELECT gpuann_link('items_v')");
my ($live, $linked, $seeds) = split /\|/, $session->rows(q{CREATE EXTENSION pageinspect;
	SELECT count(*), get_byte(page, 117) * 256 + get_byte(page, 116), get_byte(page, 121) * 256 + get_byte(page, 120)
	FROM items, get_raw_page('items_v', 0) page GROUP BY 2, 3}) =~ s/.*\n//r;
is($linked, $live, 'every row is counted as linked, once');
cmp_ok($seeds, '>=', int($live / 128), "there are seeds for a graph of this size ($seeds)");

# Files that belong to no relation: crashes may leave some of builds, as PostgreSQL does; errors must not.
$session->rows('REINDEX TABLE items; CHECKPOINT');
my $files = q{SELECT count(*) FROM pg_ls_dir('base/' || (SELECT oid FROM pg_database WHERE datname = 'postgres')) f
	WHERE f ~ '^\d+$' AND NOT EXISTS (SELECT FROM pg_class WHERE pg_relation_filenode(oid) = f::oid)};
my $orphans = $session->rows($files);
foreach my $point (grep { /^(build|init)-/ } @points)
{
	my $victim = PgSession->new($node);
	my $statement = prepare($point);

	$victim->rows("SET gpuann.fault = '$point error'");
	is($victim->query($statement)->{error}, "fault at $point", "error at $point, again");
	$victim->close;
	$session->rows('CHECKPOINT');
	cmp_ok($session->rows($files), '<=', $orphans, "error at $point: no file is left");
}
right_after($node, 'in the end');
my $log = PostgreSQL::Test::Utils::slurp_file($node->logfile);
unlike($log, qr/leak|PANIC|TRAP|WARNING:  (?!terminating connection)/, 'the log has no leak and no panic');
$session->close;
$node->stop;

done_testing();
