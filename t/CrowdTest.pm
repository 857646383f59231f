# CrowdTest.pm
#		Sessions that search without pause while a test does something to what they search in, and know the right answers.
#
# A table of the crowd holds ROWS rows: row i has the vector vec(i, DIMS) and the id i + 100000 g, where g is the table's generation. So
# a table may be emptied and filled anew, and an answer is still judged: exactly the ten nearest rows, of one generation.

package CrowdTest;

use strict;
use warnings;

use Exporter 'import';
use PgSession;
use Test::More;
use Time::HiRes qw(sleep time);

our @EXPORT = qw(make_crowd_functions make_crowd_table fill_crowd_table start_crowd end_crowd crowd_is_right crowd_was_ended);

my $dims = 12;
my $rows = 1500;
my $lock = 471100;

# What the crowd of one database needs. vec() must be there.
sub make_crowd_functions
{
	my ($node, $database) = @_;

	$node->safe_psql($database // 'postgres', qq{
CREATE TABLE crowd_answers AS
	SELECT q, vec(500000 + q, $dims) AS query, array_agg(i ORDER BY distance, i) AS ids
	FROM generate_series(1, 20) q, LATERAL (
		SELECT i, v <-> vec(500000 + q, $dims) AS distance
		FROM (SELECT i, vec(i, $dims) AS v FROM generate_series(1, $rows) i OFFSET 0) r ORDER BY 2 LIMIT 10) n
	GROUP BY q;

-- Search until the test says stop, if it ever does. Counts searches, those that the server answered, those that found no table, those that found it empty.
CREATE PROCEDURE crowd(tables text[], exact boolean, may_be_empty boolean, endless boolean,
	INOUT searches int DEFAULT 0, INOUT by_server int DEFAULT 0, INOUT missing int DEFAULT 0, INOUT empty int DEFAULT 0)
LANGUAGE plpgsql AS \$\$
DECLARE
	answer crowd_answers;
	ids int[];
	one text;
BEGIN
	LOOP
		EXIT WHEN NOT endless AND pg_try_advisory_xact_lock_shared($lock);
		SELECT * INTO answer FROM crowd_answers WHERE q = searches % 20 + 1;
		one := tables[searches % cardinality(tables) + 1];
		searches := searches + 1;
		BEGIN
			EXECUTE format('SELECT array_agg(id ORDER BY d, id) FROM (SELECT id, v <-> \$1 AS d FROM %I ORDER BY v <-> \$1 LIMIT 10) n', one)
				INTO ids USING answer.query;
			by_server := by_server + coalesce((SELECT (path = 'server')::int FROM gpuann_last_scan()), 0);
			IF ids IS NULL AND may_be_empty THEN
				empty := empty + 1;
			ELSIF (SELECT count(DISTINCT i / 100000) FROM unnest(ids) i) IS DISTINCT FROM 1
				OR (exact AND (SELECT array_agg(i % 100000) FROM unnest(ids) i) IS DISTINCT FROM answer.ids)
				OR cardinality(ids) IS DISTINCT FROM 10 THEN
				RAISE EXCEPTION 'wrong answer of %: % instead of %', one, ids, answer.ids;
			END IF;
		EXCEPTION WHEN undefined_table THEN
			missing := missing + 1;
		END;
		COMMIT;
	END LOOP;
END \$\$;
});
}

sub fill_crowd_table
{
	my ($table, $generation) = @_;

	return "INSERT INTO $table SELECT i + 100000 * $generation, vec(i, $dims) FROM generate_series(1, $rows) i;";
}

# SQL that makes a table with its index.
sub make_crowd_table
{
	my ($table, $generation) = @_;

	return "CREATE TABLE $table (id int, v vector($dims));" . fill_crowd_table($table, $generation // 0)
	  . "CREATE INDEX ${table}_v ON $table USING gpuann (v vector_l2_ops);";
}

# Start so many sessions: each searches the tables in turn, every second one exactly. Those of an endless crowd go on until something ends
# them: the session that holds the others back may be ended first.
sub start_crowd
{
	my ($node, %options) = @_;
	my $database = $options{dbname} // 'postgres';
	my $holder = PgSession->new($node, dbname => $database);
	my @sessions;

	$holder->rows("SELECT pg_advisory_lock($lock)");
	foreach my $one (1 .. $options{sessions} // 4)
	{
		my $exact = $one % 2 ? "true" : "false";
		my $session = PgSession->new($node, dbname => $database,
			settings => "-cenable_seqscan=off -cgpuann.exact=$exact " . ($options{settings} // ''));

		$session->send("CALL crowd(ARRAY['" . join("', '", @{ $options{tables} }) . "'], $exact, "
			  . ($options{may_be_empty} ? 'true' : 'false') . ', ' . ($options{endless} ? 'true' : 'false') . ')');
		push @sessions, $session;
	}
	return { holder => $holder, sessions => \@sessions, endless => $options{endless} };
}

# Stop it, unless something else does: its counts, the errors but for those that say that a session is ended, and how many sessions were lost.
sub end_crowd
{
	my ($crowd) = @_;
	my %total = (searches => 0, by_server => 0, missing => 0, empty => 0, errors => [], lost => 0);

	$crowd->{holder}->close unless $crowd->{endless};
	foreach my $session (@{ $crowd->{sessions} })
	{
		if (!$session->is_done(180))
		{
			push @{ $total{errors} }, 'a session hangs';
			next;
		}
		my $answer = $session->receive;

		push @{ $total{errors} }, $answer->{error} if $answer->{error} ne '' && $answer->{state} !~ /^57P0/;
		if ($answer->{lost}) { $total{lost}++; next; }
		my @counts = split /\|/, $answer->{rows}[0] // '0|0|0|0';
		$total{$_} += shift @counts foreach qw(searches by_server missing empty);
		$session->close;
	}
	return \%total;
}

# The test that nobody saw a wrong answer, an error or a hang. Returns the counts.
sub crowd_is_right
{
	my ($crowd, $what) = @_;
	my $total = end_crowd($crowd);

	is_deeply($total->{errors}, [], "$what: every answer was right, nobody saw an error");
	is($total->{lost}, 0, "$what: no session was lost");
	note("$what: $total->{searches} searches, $total->{by_server} by the server, $total->{missing} found no table, $total->{empty} an empty one");
	return $total;
}

# The test that each session of an endless crowd was ended, and that none had seen a wrong answer or an error before.
sub crowd_was_ended
{
	my ($crowd, $what) = @_;
	my $total = end_crowd($crowd);

	is_deeply($total->{errors}, [], "$what: every answer was right until the end");
	is($total->{lost}, scalar @{ $crowd->{sessions} }, "$what: the sessions have ended");
}

1;
