# PgvectorTest.pm
#		What pgvector's own TAP tests, adapted by tools/pgvector-tests, need beside the settings in TEMP_CONFIG.
#
# With GPUANN_PGVECTOR_PATH=server, a statement that forces the index is the server's to answer: it waits until every mirror is ready and has
# nothing to catch up, and runs with gpuann.fallback = error.

package PgvectorTest;

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use Test::More;
use Time::HiRes qw(sleep time);

my $by_server = ($ENV{GPUANN_PGVECTOR_PATH} // '') eq 'server';
my $safe_psql = PostgreSQL::Test::Cluster->can('safe_psql');

# Wait until the mirrors that a statement wants, which runs until then over pages, are there.
sub await_mirrors
{
	my ($node, $sql) = @_;
	my $until = time + 600;

	until ($safe_psql->($node, 'postgres', "SELECT count(*) > 0 AND bool_and(state = 'ready' AND mirror_lag = 0) FROM pg_stat_gpuann") eq 't')
	{
		if (time > $until)
		{
			diag('waited in vain for the mirrors');
			return;
		}
		$safe_psql->($node, 'postgres', $sql);
		sleep 0.1;
	}
}

if ($by_server)
{
	no warnings 'redefine';
	*PostgreSQL::Test::Cluster::safe_psql = sub {
		my ($node, $database, $sql, @more) = @_;

		if ($sql =~ /enable_seqscan = off/)
		{
			await_mirrors($node, $sql);
			$sql = "SET gpuann.fallback = error; $sql";
		}
		return $safe_psql->($node, $database, $sql, @more);
	};
}

1;
