# gpuann_recall asks the server in batches, through channels. Whatever becomes of a batch (a query of it fails, the engine lies or stands still, the server
# dies, the statement is cancelled, no bulk channel is free), every row asked about has its answer, and afterwards channels and server serve. I4, I5, I8.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use FaultTest;
use GpuannTest;
use PgSession;
use PostgreSQL::Test::Cluster;
use ServerTest;
use Test::More;

need_fault_engine();

my $dims = 16;
my $samples = 60;
my $node = fault_node('main', conf => [ "gpuann.request_timeout = '1s'", "gpuann.server_timeout = '5s'" ]);

make_data($node, 2000, $dims);
ok(await_mirror($node), 'the mirror is there');

my $watch = PgSession->new($node);
my $session = session($node);
my $recall = "SELECT samples_asked, recall > 0.8 AND recall <= 1, server_share FROM gpuann_recall('items_v', $samples, 10)";

# As many answers as samples, from the server.
sub expect_batches
{
	my ($what) = @_;
	my ($answer, $single) = ('', 0);

	ok(await($what, sub {
		my $before = $watch->rows('SELECT requests FROM gpuann_server_status');

		$answer = $session->rows($recall);
		$single = $watch->rows('SELECT requests FROM gpuann_server_status') - $before;
		return $answer eq "$samples|t|1" && $single < $samples / 2;
	}), "$what: the server answers batches") or diag("$answer; $single requests");
}

# Answers, whoever gave them.
sub expect_recall
{
	my ($what) = @_;
	like($session->rows($recall), qr/^$samples\|t\|/, "$what: every sample is asked about");
}

expect_batches('at first');
is($session->rows('SELECT samples_asked FROM gpuann_recall($$items_v$$, 1000, 3)'), 1000, 'several batches');
is($session->rows('SELECT samples_asked FROM gpuann_recall($$items_v$$, 300, 2000)'), 300, 'more neighbours than a first answer has');

foreach my $faults ('query_error=7', 'query_memory=1', 'older=3', 'range=50', 'reverse=1', 'many=1')
{
	faults($faults);
	expect_recall($faults);
	faults('');
}
expect_batches('after faults');

# The server dies with a batch.
my $pid = server_pid($node);
faults('mute=1');
$session->send($recall);
ok(await_held('a batch is under way'), 'a death: a batch is under way');
kill 'KILL', $pid;
like($session->receive->{rows}[0], qr/^$samples\|t\|/, 'a death: every sample is asked about');
faults('');
ok(replaced($node, $watch, $pid), 'a death: there is another server');
expect_batches('after a death');

# The statement is cancelled in the middle of a batch.
faults('mute=1');
$session->send($recall);
ok(await_held('a batch is under way'), 'a cancel: a batch is under way');
$watch->rows('SELECT pg_cancel_backend(' . $session->pid . ')');
my $answer = $session->receive;
# It may have timed out just before, and then goes on.
like("$answer->{error}@{ $answer->{rows} }", qr/canceling statement|^$samples\|t\|/, 'a cancel: the statement ends');
faults('');
expect_batches('after a cancel');

# More sessions than channels, while the engine stands still: some have no channel, some no answer, all go on with pages.
faults('mute=1');
my @crowd = map { session($node) } 1 .. 12;
$_->send($recall) foreach @crowd;
foreach my $one (@crowd)
{
	like($one->receive->{rows}[0], qr/^$samples\|t\|/, 'a crowd without channels: every sample is asked about');
}
faults('');
expect_batches('after a crowd');

check_index($node, 'in the end');
is(log_count($node, qr/PANIC|server process .* was terminated/), 0, 'no process of PostgreSQL failed');
$_->close foreach @crowd, $session, $watch;
$node->stop;
done_testing();
