# What a DBA sees: each column of pg_stat_gpuann and gpuann_server_status says what was done, every reason for which scans take the pages is
# counted, told and logged once a minute, answers are right meanwhile, and who may do what. I3, I5.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib $FindBin::RealBin;
use FaultTest;
use GpuannTest;
use PgSession;
use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;
use Time::HiRes qw(sleep time);

need_fault_engine();

my $dims = 16;
my $library = "$FindBin::RealBin/../test/build/fault_engine.so";
my $node = fault_node('main', conf => [ "gpuann.request_timeout = '120s'", "gpuann.server_timeout = 0" ]);
my $version = $node->safe_psql('postgres', 'SHOW server_version_num');

make_data($node, 2000, $dims);
ok(await_mirror($node), 'the mirror is there');
my $session = PgSession->new($node, settings => '-c enable_seqscan=off');

# Ask for the nearest of a row that is stored: itself, whoever answers. How it was answered.
sub ask
{
	my ($id, $limit, $asking) = @_;
	my $first = ($asking // $session)->rows("SELECT id FROM items ORDER BY v <-> (SELECT v FROM items WHERE id = $id) LIMIT " . ($limit // 1)) =~ s/\n.*//sr;

	return $first eq $id ? ($asking // $session)->rows("SELECT path || ' ' || coalesce(fallback_reason, 'none') FROM gpuann_last_scan()") : "wrong: $first";
}

# Columns of the index's row, as a list.
sub columns { return split /\|/, figure($node, join(', ', @_)), -1 }

# ---- what scans did ----

my @counters = qw(scans server_answers page_answers proposed dropped continuations pending_searched batches batched_queries mean_batch fallback_off);

ok(await('nothing is to be caught up', sub { figure($node, "mirror_lag || ' ' || mirror_change_lag") eq '0 0' }), 'the mirror is current');
$node->safe_psql('postgres', "SELECT gpuann_stat_reset('items_v')");
is(ask($_, 10), 'server none', 'a scan is answered by the server') foreach 1 .. 3;
ask($_, 10) foreach 4 .. 20;
# The server counts a batch when it has ended, after its answers.
await('batches are counted', sub { figure($node, 'batches') == 20 });
is_deeply([ columns(@counters) ], [ 20, 20, 0, 200, 0, 0, 0, 20, 20, 1, 0 ], 'twenty scans of ten rows each, one after the other, are counted so');
my ($queue, $engine) = columns('queue_time', 'engine_time');
cmp_ok($queue, '>=', 0, 'with the time in the queue');
cmp_ok($engine, '>', 0, 'and in the engine');
cmp_ok(figure($node, 'mirror_bytes'), '>=', 2000 * 4 * $dims, 'and the bytes of the mirror, which are those of the vectors at least');
is(figure($node, 'mirror_rows'), 2000, 'and its rows');
is(figure($node, "relname || ' ' || schemaname || ' ' || (relid = 'items'::regclass) || ' ' || (indexrelid = 'items_v'::regclass)"), 'items public true true',
	'and the names of table and index');

# A scan that goes on. By default one that wants so large a part of the table compares every row at once.
$node->safe_psql('postgres', "SELECT gpuann_stat_reset('items_v')");
$session->rows('SET gpuann.iterative_scan = relaxed_order');
is(ask(1, 150), 'server none', 'a scan of more rows than its first answer has goes on by the server');
$session->rows('RESET gpuann.iterative_scan');
my $rounds = $session->rows('SELECT continuations FROM gpuann_last_scan()');
cmp_ok($rounds, '>', 0, 'by further rounds');
is_deeply([ columns('continuations', 'scans', 'server_answers') ], [ $rounds, 1, 1 ], 'which are counted, of one scan');

# By the pages, at the user's wish.
$session->rows('SET gpuann.server = off');
is(ask(7), 'pages off', 'gpuann.server = off: the pages answer');
$session->rows('RESET gpuann.server');
is_deeply([ columns('scans', 'server_answers', 'page_answers', 'fallback_off') ], [ 2, 1, 1, 1 ], 'which is counted');

# Several at once are a batch, now and then.
my $crowd = "SET enable_seqscan = off; DO \$\$ BEGIN FOR i IN 1 .. 200 LOOP PERFORM id FROM items ORDER BY v <-> vec(i, $dims) LIMIT 1; END LOOP; END \$\$";
my @crowd = map { my $one = PgSession->new($node); $one->send($crowd); $one } 1 .. 6;
is($_->receive->{error}, '', 'a session of a crowd ends well') foreach @crowd;
$_->close foreach @crowd;
my ($batches, $batched, $mean) = columns('batches', 'batched_queries', 'mean_batch');
cmp_ok($batches, '<=', $batched, 'a batch has a query at least');
cmp_ok(abs($mean - $batched / $batches), '<', 1e-9, 'the mean batch is what the counters say');

# ---- the server ----

my ($device, $server_engine, $uptime, $started, $requests) = split /\|/, status($node, "device, engine, uptime, started <= now() AND started >= pg_postmaster_start_time() - interval '1 s', requests");
isnt($device, '', 'the status names the device');
isnt($server_engine, '', 'and the engine');
like($uptime, qr/^\d\d:\d\d:\d\d$/, 'and how long it has been up');
is($started, 't', 'and since when');
cmp_ok($requests, '>=', 1220, 'and how many requests it has had');
is(status($node, "memory_limit = pg_size_bytes(current_setting('gpuann.gpu_memory_limit')) AND memory_used BETWEEN 1 AND memory_limit AND memory_context <= memory_used
	AND shared_bytes > 0 AND batches BETWEEN 1 AND requests"), 't', 'figures of memory and batches agree with each other');

# ---- the largest requests: one each, through the session's slot ----

# What tells rows apart stands at the end of the vectors.
sub largest
{
	my ($what, $type, $class, $operator, $element) = @_;
	my $rows = 1040;
	my $query = $element->('500');
	my $nearest = "SELECT array_agg(distance) FROM (SELECT v $operator (SELECT $query) AS distance FROM largest ORDER BY v $operator (SELECT $query) LIMIT 1024) n";
	my ($before, $found);

	$node->safe_psql('postgres', "CREATE TABLE largest (id int, v $type); INSERT INTO largest SELECT i, " . $element->('i') . " FROM generate_series(1, $rows) i;
		CREATE INDEX largest_v ON largest USING gpuann (v $class) WITH (m = 2, ef_construction = 8, ef_search = 1024)");
	ok(await("a mirror of $what", sub {
		$session->rows("SELECT id FROM largest ORDER BY v $operator $query LIMIT 1");
		return figure($node, "state || ' ' || mirror_lag", 'largest_v') eq 'ready 0' }), "$what: there is a mirror");
	$before = status($node, 'requests');
	# the first answer only: by default so large a part of the table is compared at once
	$found = $session->rows("SET gpuann.fallback = error; SET gpuann.iterative_scan = off; $nearest");
	is($session->rows("SELECT path, proposed, continuations FROM gpuann_last_scan()"), 'server|1024|0', "$what: the server's first answer has 1,024 results");
	is(status($node, 'requests') - $before, 1, "$what: by one request");
	is($found, $session->rows("RESET gpuann.fallback; RESET gpuann.iterative_scan; SET enable_indexscan = off; SET enable_seqscan = on; $nearest"), "$what: which are the nearest");
	$session->rows('RESET enable_indexscan; SET enable_seqscan = off; DROP TABLE largest');
}

largest('16,000 dimensions', 'vector(16000)', 'vector_l2_ops', '<->', sub { "(array_fill(0, ARRAY[15999])::real[] || ($_[0] + 0.25)::real)::vector(16000)" });
largest('64,000 bits', 'bit(64000)', 'bit_hamming_ops', '<~>', sub { "lpad(repeat('1', $_[0]), 64000, '0')::bit(64000)" });

# ---- why scans take the pages ----

my %text = (
	behind => 'the mirror is too far behind',
	engine_error => 'the engine reported an error: the test let this query fail',
	invalid_answer => "the server's answer was not valid",
	no_server => 'no server is ready',
	not_loaded => 'the mirror is not loaded yet',
	refused => 'the mirror was refused',
	server_died => 'the server died',
	slot_busy => "an abandoned request still occupies this session's slot",
	timeout => 'the server did not answer in time');

sub lines { return log_count($node, qr/LOG:  gpuann index "items_v" is searched in its pages: \Q$text{$_[0]}\E/) }

# A reason that holds now: scans are right, it is told and counted each time, and logged the first time. Options: what to do before each scan.
sub reason_is
{
	my ($reason, %options) = @_;
	my $times = $options{times} // 3;
	my $before = figure($node, "fallback_$reason");
	my $lines = lines($reason);
	my $asking = PgSession->new($node, settings => '-c enable_seqscan=off ' . ($options{settings} // ''));

	$options{first}->($asking) if $options{first};
	foreach my $time (1 .. $times)
	{
		$options{before}->() if $options{before};
		is(ask(100 + $time, 1, $asking), "pages $reason", "$reason: the pages answer, and rightly");
	}
	cmp_ok(figure($node, "fallback_$reason"), '>=', $before + $times, "$reason: counted");
	is(figure($node, 'server_answers + page_answers - scans'), 0, "$reason: each scan is counted once");
	cmp_ok(lines($reason), '>=', 1, "$reason: logged");
	cmp_ok(lines($reason) - $lines, '<=', 1, "$reason: not each time");
	$asking->close;
}

# The mirror's worker stands still: what came since is searched in the pages, and what died since is dropped.
my $worker;
ok(await('there is a worker', sub { $node->safe_psql('postgres', "UPDATE items SET id = id WHERE id = 2000"); $worker = worker_pid($node) }), 'a worker serves the mirror');
ok(await('nothing is to be caught up', sub { figure($node, "mirror_lag || ' ' || mirror_change_lag") eq '0 0' }), 'and has nothing to do');
# Not in the middle of a slice, where it may have a lock.
ok(await('it stands still', sub {
	kill 'STOP', $worker;
	return 1 if $node->safe_psql('postgres', "SELECT xact_start IS NULL FROM pg_stat_activity WHERE pid = $worker") eq 't';
	kill 'CONT', $worker;
	return 0;
}), 'it stands still');
$node->safe_psql('postgres', "SELECT gpuann_stat_reset('items_v')");
fill_rows($node, 5001, 5010, $dims);
is(ask(5005), 'server none', 'a row that the mirror does not have is found beside the server\'s answer');
is(figure($node, 'pending_searched'), 10, 'the rows searched for that are counted');
is(figure($node, 'mirror_lag'), 10, 'the view says how many the mirror lacks');
$node->safe_psql('postgres', 'DELETE FROM items WHERE id BETWEEN 300 AND 340');
$node->safe_psql('postgres', 'VACUUM (INDEX_CLEANUP on) items');
$session->rows('SET gpuann.iterative_scan = relaxed_order');
is(ask(301 + 40 * 30, 100), 'server none', 'rows that died since cost the server\'s answer nothing');
cmp_ok(figure($node, 'dropped'), '>', 0, 'those of them that it proposed are counted as dropped');
is(figure($node, 'dropped'), $session->rows('SELECT dropped FROM gpuann_last_scan()'), 'as the scan itself says');
$session->rows('RESET gpuann.iterative_scan');
cmp_ok(figure($node, 'mirror_change_lag'), '>', 0, 'the view says that the mirror lacks changes');

# The list is trimmed past where the mirror is: only the pages know what came between.
fill_rows($node, 6001, 6050, $dims);
$node->safe_psql('postgres', "SELECT gpuann_link('items_v')");
fill_rows($node, 6051, 6100, $dims);
$node->safe_psql('postgres', "SELECT gpuann_link('items_v')");
fill_rows($node, 6101, 6102, $dims);
$node->safe_psql('postgres', "SELECT gpuann_link('items_v')");
reason_is('behind', first => sub { is(ask($_, 1, $_[0]), 'pages behind', "behind: row $_ is found") foreach 5005, 6001, 6050, 6051, 6100, 6102 });
kill 'CONT', $worker;
ok(await_mirror($node), 'when the worker goes on the mirror follows');
is(ask(6075), 'server none', 'and answers');
is(by_server($node, 'SET gpuann.exact = on;'), by_table($node), 'as the table does');

# The engine: errors, lies, silence.
faults('query_error=1');
reason_is('engine_error');
faults('range=1');
reason_is('invalid_answer');
faults('mute=1');
reason_is('timeout', times => 1, settings => '-c gpuann.request_timeout=200ms');
# A session whose request has timed out asks again when the server has taken another's; its slot is the server's until that gives it back.
reason_is('slot_busy', times => 2, settings => '-c gpuann.request_timeout=200ms',
	first => sub { like(ask(100, 1, $_[0]), qr/^pages (timeout|slot_busy)$/, 'slot_busy: a request was left') },
	before => sub {
		my $taken = status($node, 'requests');
		my @others;

		# Those that get a slot that is not free are no request.
		await('the server takes another request', sub {
			push @others, PgSession->new($node, settings => '-c enable_seqscan=off -c gpuann.request_timeout=100ms');
			ask(99, 1, $others[-1]);
			return status($node, 'requests') > $taken || @others > 15;
		});
		$_->close foreach @others;
	});
faults('');
ok(await('slots are given back', sub {
	my @ten = map { PgSession->new($node, settings => '-c enable_seqscan=off') } 1 .. 10;
	my $served = grep { ask(98, 1, $_) eq 'server none' } @ten;
	$_->close foreach @ten;
	return $served == @ten;
}), 'every slot is given back');

# Nobody there, or not yet.
faults('hold_append=1');
$node->safe_psql('postgres', "SELECT gpuann_evict('items_v')");
reason_is('not_loaded');
faults('create_memory=1');
$node->safe_psql('postgres', "SELECT gpuann_evict('items_v')");
$node->psql('postgres', "SELECT gpuann_prewarm('items_v')");
reason_is('refused');
faults('');
cmp_ok($node->safe_psql('postgres', "SELECT gpuann_prewarm('items_v')"), '>', 0, 'then it is loaded');
my $asked = PgSession->new($node, settings => '-c enable_seqscan=off');
faults('mute=1');
$asked->send("SELECT id FROM items ORDER BY v <-> (SELECT v FROM items WHERE id = 99) LIMIT 1");
ok(await_held('an answer is held'), 'a scan waits');
my $pid = signal_server($node, 'KILL');
is($asked->receive->{rows}[0], 99, 'server_died: the pages answer, and rightly');
is($asked->rows('SELECT fallback_reason FROM gpuann_last_scan()'), 'server_died', 'server_died: the scan says so');
$asked->close;
cmp_ok(lines('server_died'), '>=', 1, 'server_died: logged');
faults('');
ok(replaced($node, $session, $pid), 'another server runs');
cmp_ok($node->safe_psql('postgres', "SELECT gpuann_prewarm('items_v')"), '>', 0, 'with the mirror');
cmp_ok(figure($node, 'fallback_server_died'), '>', 0, 'server_died: counted');
$node->append_conf('postgresql.conf', "gpuann.engine_library = '/nonexistent'");
$node->reload;
ok(await('there is no server', sub { status($node, 'state') eq 'failed' }), 'a changed engine_library takes effect: no server can run');
reason_is('no_server');
is(status($node, 'uptime IS NULL AND pid IS NULL'), 't', 'one that does not run has no uptime');
$node->append_conf('postgresql.conf', "gpuann.engine_library = '$library'");
$node->reload;
ok(await_mirror($node), 'everything comes back');

# A minute later the next one is logged, with the number of those that were not.
my $lines = lines('engine_error');
my %how;
faults('query_error=1');
ok(await('it is logged again', sub { $how{ ask(11) }++; lines('engine_error') > $lines }), 'what is so for more than a minute is logged again');
is(join(', ', keys %how), 'pages engine_error', 'and was so all the time');
cmp_ok(log_count($node, qr/DETAIL:  \d+ more scans for this reason were not logged/), '>=', 1, 'with how many there were meanwhile');
faults('');
is(ask(12), 'server none', 'then it is over');

# ---- who may ----

$node->safe_psql('postgres', 'CREATE ROLE guest LOGIN');
is($node->safe_psql('postgres', "SET ROLE guest; SELECT count(*) FROM pg_stat_gpuann WHERE scans > 0; SELECT state FROM gpuann_server_status"), "1\nready",
	'everybody may read the views');
foreach my $call ('gpuann_prewarm', 'gpuann_evict', 'gpuann_link', 'gpuann_check', 'gpuann_stats')
{
	my ($rc, $out, $err) = $node->psql('postgres', "SET ROLE guest; SELECT $call('items_v')");
	like($err, qr/must be owner of index items_v/, "not everybody may call $call");
}
SKIP:
{
	skip 'before PostgreSQL 17 there is no MAINTAIN', 10 if $version < 170000;

	$node->safe_psql('postgres', 'CREATE ROLE keeper LOGIN IN ROLE pg_maintain; GRANT MAINTAIN ON items TO guest');
	foreach my $role ('guest', 'keeper')
	{
		foreach my $call ('gpuann_evict', 'gpuann_prewarm', 'gpuann_link', 'gpuann_check', 'gpuann_stats')
		{
			is(($node->psql('postgres', "SET ROLE $role; SELECT $call('items_v')"))[0], 0, "who may maintain the table may call $call");
		}
	}
}

# ---- EXPLAIN ----

SKIP:
{
	skip 'before PostgreSQL 18 EXPLAIN has no place for it', 3 if $version < 180000;

	my $explain = "EXPLAIN (ANALYZE, COSTS off, TIMING off, SUMMARY off) SELECT id FROM items ORDER BY v <-> vec(7, $dims) LIMIT 5";

	ok(await_mirror($node), 'the mirror is there');
	like($session->rows($explain), qr/Gpuann: path=server engine=\S.* batch=1 visited=\d+ pending=\d+ dropped=0 continuations=0$/m, 'EXPLAIN (ANALYZE) says what the server did');
	$node->safe_psql('postgres', "SELECT gpuann_evict('items_v')");
	like($session->rows($explain), qr/Gpuann: path=pages visited=\d+ .* fallback=not_loaded$/m, 'and why it did not');
}
is(log_count($node, qr/PANIC|TRAP|server process .* was terminated/), 0, 'no process of PostgreSQL failed');
$session->close;
$node->stop;
done_testing();
