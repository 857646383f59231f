# A streaming standby, with every WAL record of the index checked against its page: after ten rounds of inserts, updates,
# deletes, vacuums and links at once it gives the primary's answers and passes the primary's check.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use GpuannTest;
use PgSession;
use PostgreSQL::Test::Cluster;
use Test::More;

my $dims = 24;
my $primary = new_node('primary', streaming => 1, conf => ["wal_consistency_checking = 'generic'"]);
my $standby = PostgreSQL::Test::Cluster->new('standby');
my $next = 10000;

make_data($primary, 3000, $dims);
$primary->backup('base');
$standby->init_from_backup($primary, 'base', has_streaming => 1);
$standby->start;

sub same_on_both
{
	my ($what) = @_;

	$primary->wait_for_catchup($standby, 'replay', $primary->lsn('insert'));
	check_index($primary, "$what, primary");
	check_index($standby, "$what, standby");
	is(graph_answers($standby), graph_answers($primary), "$what: the standby's graph answers are the primary's");
	is(exact_answers($standby), oracle_answers($primary), "$what: the standby's exact answers are the table's");
	is(complete_rows($standby), complete_rows($primary), "$what: the standby finds every row");
}

# All kinds of changes at once, for a second; the standby follows meanwhile and is asked, too.
sub mixed_load
{
	my ($round) = @_;
	my $again = sub {
		my ($statement) = @_;
		return "DO \$\$ DECLARE until timestamptz := clock_timestamp() + '1 s'; i int := 0; BEGIN
			WHILE clock_timestamp() < until LOOP i := i + 1; $statement; COMMIT; END LOOP; END \$\$";
	};
	my @statements = (
		$again->("INSERT INTO items VALUES ($next + i, vec($next + i, $dims))"),
		$again->("UPDATE items SET v = vec(id + i, $dims) WHERE id = 1 + (i * 7 + $round) % 3000"),
		$again->("DELETE FROM items WHERE id = 10000 + (i * 13) % 20000"),
		$again->("PERFORM gpuann_link('items_v'), pg_sleep(0.03)"));
	my @sessions = map { my $session = PgSession->new($primary); $session->send($_); $session } @statements;
	# relaxed_order: through the graph, and then exactly
	my $reader = PgSession->new($standby, settings => '-cenable_seqscan=off -cenable_sort=off -cgpuann.server=off -cgpuann.iterative_scan=relaxed_order');
	my $wrong = '';

	push @sessions, my $keeper = PgSession->new($primary);
	$keeper->send('VACUUM items');
	do
	{
		my $answer = $reader->query("SELECT count(*), count(DISTINCT place), (SELECT count(*) FROM items)
			FROM (SELECT ctid AS place FROM items ORDER BY v <-> vec(1, $dims) LIMIT 1000000) s");
		my ($found, $distinct, $rows) = split /\|/, $answer->{rows}[0] // '0|0|0';

		$wrong ||= "$answer->{error} $found, $distinct, $rows"
		  if $answer->{error} !~ /conflict with recovery/ && ($answer->{error} ne '' || $found != $rows || $distinct != $rows);
	} until $sessions[0]->is_done || $wrong ne '';
	is($wrong, '', "round $round: the standby finds every row at any time");
	is($_->receive->{error}, '', "round $round: no session failed") foreach @sessions;
	$_->close foreach @sessions, $reader;
}

same_on_both('built');
foreach my $round (1 .. 10)
{
	$primary->safe_psql('postgres', "DELETE FROM items WHERE noise(id, $round) < 0.1");
	mixed_load($round);
	same_on_both("round $round");
	$primary->safe_psql('postgres', $round % 2 ? 'VACUUM items' : "SELECT gpuann_link('items_v')");
	same_on_both("round $round, " . ($round % 2 ? 'vacuumed' : 'linked')) if $round % 3 == 0;
	$primary->safe_psql('postgres', 'REINDEX INDEX CONCURRENTLY items_v') if $round == 6;
	$next += 10000;
}

# An index built while the standby follows, and a check while replay changes the index.
$primary->safe_psql('postgres', 'REINDEX INDEX items_v');
same_on_both('rebuilt');
my $writer = in_background($primary,
	"DO \$\$ BEGIN FOR i IN 1 .. 3000 LOOP INSERT INTO items VALUES (500000 + i, vec(i, $dims)); COMMIT; END LOOP; END \$\$;");
check_index($standby, "while replaying, time $_") foreach 1 .. 5;
$writer->finish;
same_on_both('written to');

$standby->promote;
$standby->safe_psql('postgres', "INSERT INTO items VALUES (1, vec(1, $dims)); VACUUM items;");
right_after($standby, 'promoted');
$standby->stop;
$primary->stop;

done_testing();
