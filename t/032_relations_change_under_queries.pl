# Tables are dropped, truncated, rewritten and their indexes rebuilt, also concurrently, while several sessions search them through the
# server: each answer is that of the table before or after, mirrors of files that are gone leave, and nobody waits for a worker. I1, I2, I4.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use CrowdTest;
use GpuannTest;
use PgSession;
use PostgreSQL::Test::Cluster;
use ServerTest;
use Test::More;
use Time::HiRes qw(time);

my $node = server_node('main');
my $rounds = $ENV{GPUANN_LONG} ? 40 : 3;

make_crowd_functions($node);
$node->safe_psql('postgres', make_crowd_table('items') . make_crowd_table('others'));
ok(await_mirror($node, $_), "there is a mirror of $_") foreach 'items_v', 'others_v';

# Do something to "items" so often under a crowd that searches both tables.
sub under_crowd
{
	my ($what, $do, %options) = @_;
	my $crowd = start_crowd($node, tables => [ 'items', 'others' ], sessions => 3, may_be_empty => $options{may_be_empty});
	my $session = PgSession->new($node);
	my $longest = 0;

	foreach my $round (1 .. $rounds)
	{
		# Let the server answer in between, so that each is done to a mirror in use, or on its way.
		my $answered = figure($node, 'server_answers') || 0;

		await('the server answers', sub { (figure($node, 'server_answers') || 0) > $answered + 10 }) if $round % 2 == 0;
		foreach my $statement ($do->($round))
		{
			my $begun = time;
			my $answer = $session->query($statement);

			is($answer->{error}, '', "$what: no error") if $answer->{error} ne '';
			$longest = time - $begun if time - $begun > $longest;
		}
	}
	cmp_ok($longest, '<', 150, sprintf('%s: nothing takes long (%.1f s)', $what, $longest));
	ok(await_mirror($node), "$what: there is a mirror again");
	my $total = crowd_is_right($crowd, $what);
	cmp_ok($total->{by_server}, '>', 0, "$what: the server answers");
	is($total->{missing}, 0, "$what: the table was always there") unless $options{may_be_missing};
	is(by_server($node, 'SET gpuann.exact = on;'), by_table($node), "$what: answers are right");
	is($node->safe_psql('postgres', "SELECT count(*) FROM pg_stat_gpuann WHERE scans <> server_answers + page_answers"), 0,
		"$what: every scan is counted once");
	# Only two files are left that the mirror table may know.
	ok(await('files that are gone have left', sub {
		$node->safe_psql('postgres', "SELECT count(*) FROM gpuann_stat_indexes() WHERE state <> 'none'") == 2 }), "$what: files that are gone have left the table");
	check_index($node, $what);
	$session->close;
}

my $generation = 0;

under_crowd('REINDEX', sub { 'REINDEX INDEX items_v' });
under_crowd('REINDEX CONCURRENTLY', sub { 'REINDEX INDEX CONCURRENTLY items_v' });
under_crowd('REINDEX TABLE rolled back', sub { ('BEGIN', 'REINDEX TABLE items', 'ROLLBACK') });
under_crowd('DROP INDEX', sub { ('DROP INDEX items_v', 'CREATE INDEX items_v ON items USING gpuann (v vector_l2_ops)') });
under_crowd('TRUNCATE', sub { $generation++; ('BEGIN', 'TRUNCATE items', fill_crowd_table('items', $generation), 'COMMIT') }, may_be_empty => 1);
under_crowd('TRUNCATE rolled back', sub { ('BEGIN', 'TRUNCATE items', fill_crowd_table('items', $generation + 1), 'ROLLBACK') });
under_crowd('DROP TABLE', sub { $generation++; ('DROP TABLE items', 'BEGIN; ' . make_crowd_table('items', $generation) . 'COMMIT') },
	may_be_missing => 1, may_be_empty => 1);
under_crowd('VACUUM FULL', sub { 'VACUUM FULL items' });
under_crowd('ALTER TABLE', sub { my $type = $_[0] % 2 ? 'bigint' : 'int'; "ALTER TABLE items ALTER id TYPE $type" }, may_be_empty => 1);

is($node->safe_psql('postgres', "SELECT sum(fallback_invalid_answer + fallback_engine_error + fallback_timeout + fallback_server_died) FROM pg_stat_gpuann"),
	0, 'no answer was wrong, late or missing');
is(status($node, 'restarts'), 0, 'the server has lived through all of it');
is(log_count($node, qr/(?:ERROR|PANIC|TRAP|FATAL):/), 0, 'the log has no error');
$node->stop;
done_testing();
