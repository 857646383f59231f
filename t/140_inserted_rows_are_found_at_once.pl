# Every committed row is found at once, by the session that wrote it and by others, while others search (I3): through the
# server and through the pages. bench/insert_under_load does it; this test runs it small and reads its report.

use strict;
use warnings FATAL => 'all';

use Cwd qw(abs_path);
use File::Basename qw(dirname);
use Test::More;

my $bench = dirname(abs_path(__FILE__)) . '/../bench/insert_under_load';
chomp(my $bindir = $ENV{GPUANN_BINDIR} // `pg_config --bindir`);

local $ENV{GPUANN_BINDIR} = $bindir;
local $ENV{GPUANN_BENCH_STATE} = ($ENV{TESTDATADIR} // '/var/tmp') . "/insert-$$";
delete local @ENV{qw(PGHOST PGPORT PGUSER PGDATABASE)};

my @paths = qw(cpu pages);
my @report = `'$bench' -n 5000 -i 1000 -w 4 -c 4 -p '@paths'`;
is($?, 0, 'the run ends well');

for my $path (@paths)
{
	my ($line) = grep { /^\| \Q$path\E \|/ } @report;
	my @fields = split /\s*\|\s*/, $line // '';

	# path, queries per second before and during, inserts per second, checks, answered by, missed at once, at the end, lost
	cmp_ok($fields[5] // 0, '>=', 1000, "$path: every row was checked");
	like($fields[6] // '', qr/\b\Q$path\E \d+/, "$path: answered by it");
	is($fields[7], '0', "$path: no row was missed");
	is($fields[9], '0', "$path: no row was lost");
}

done_testing();
