# Sessions that are cancelled or terminated while they wait leave nothing behind: their slots and channels are used again, every answer that
# is given has its rows, and the mirror goes on. So do cancels of the worker, and VACUUM gets the linker's lock from it. I5, I8.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use GpuannTest;
use PostgreSQL::Test::Cluster;
use ServerTest;
use Test::More;
use Time::HiRes qw(sleep time);

my $dims = 16;
my $node = server_node('main');
my $seconds = 5;

make_data($node, 4000, $dims);
ok(await_mirror($node), 'the mirror is there');

# Small and large limits: slots and channels. Exactly the rows asked for, or cancelled.
my $loop = qq{
DO \$\$
DECLARE
	n int;
	wanted int;
	start timestamptz := clock_timestamp();
BEGIN
	WHILE clock_timestamp() < start + interval '$seconds s' LOOP
		BEGIN
			wanted := CASE WHEN random() < 0.3 THEN 2500 ELSE 10 END;
			SELECT count(*) INTO n FROM (SELECT id FROM items ORDER BY v <-> vec((random() * 5000)::int, $dims) LIMIT wanted) x;
			IF n <> wanted THEN
				RAISE EXCEPTION 'got % rows of %', n, wanted;
			END IF;
		EXCEPTION WHEN query_canceled THEN
			NULL;
		END;
	END LOOP;
END \$\$;
};
my @sessions = map { in_background($node, 'SET enable_seqscan = off', $loop, "SELECT 'finished'") } 1 .. 5;
my $until = time + $seconds - 0.5;
my $others = "FROM pg_stat_activity WHERE query LIKE '%DO \$\$%' AND pid <> pg_backend_pid()";

while (time < $until)
{
	$node->safe_psql('postgres', "SELECT pg_cancel_backend(pid) $others AND random() < 0.5");
	$node->safe_psql('postgres', "SELECT pg_terminate_backend(pid) $others LIMIT 1") if rand() < 0.05;
	$node->safe_psql('postgres',
		"SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE backend_type = 'gpuann mirror worker'")
	  if rand() < 0.2;
}
$_->finish foreach @sessions;
is(log_count($node, qr/got \d+ rows/), 0, 'no answer had a row too few');
is(log_count($node, qr/PANIC|server process .* was terminated/), 0, 'no process failed');

ok(await_mirror($node), 'the mirror is there');
is(by_server($node, 'SET gpuann.exact = on;'), by_table($node), 'answers are right');
my $answers = figure($node, 'server_answers');
$node->safe_psql('postgres', "SET gpuann.fallback = error; SET enable_seqscan = off;
	SELECT count(*) FROM (SELECT id FROM items ORDER BY v <-> (SELECT vec($_, $dims)) LIMIT 2500) x") foreach 1 .. 12;
cmp_ok(figure($node, 'server_answers'), '>=', $answers + 12, 'every channel works');
is(figure($node, 'fallback_invalid_answer + fallback_engine_error'), 0, 'no answer was wrong');

# The worker links 12,000 rows, and VACUUM comes in between.
fill_rows($node, 10001, 22000, $dims);
$node->safe_psql('postgres', 'DELETE FROM items WHERE id % 7 = 0');
my $begun = time;
$node->safe_psql('postgres', 'VACUUM items');
ok(1, sprintf('VACUUM took %.1f s', time - $begun));
ok(await_mirror($node), 'the mirror follows');
is(by_server($node, 'SET gpuann.exact = on;'), by_table($node), 'linked and vacuumed: answers are right');
ok(await('few rows are pending', sub {
	$node->safe_psql('postgres', qq{
SET enable_seqscan = off;
SELECT id FROM items ORDER BY v <-> (SELECT vec(1, $dims)) LIMIT 1;
SELECT pending FROM gpuann_last_scan()}) =~ /\n(\d+)$/ && $1 < 1000;
}), 'the worker goes on linking');
check_index($node, 'linked and vacuumed');
is(by_server($node, 'SET gpuann.exact = on;'), by_table($node), 'linked: answers are right');
# A session that is to be cancelled may have gone.
is(log_count($node, qr/WARNING:(?!  PID \d+ is not a PostgreSQL)/), 0, 'no warning');
$node->stop;
done_testing();
