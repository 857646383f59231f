# The bundle for GPU hosts, which is packed only where one is at hand: each file of its list is there or can be made, and it has what gpu-check runs.

use strict;
use warnings FATAL => 'all';

use FindBin;
use PostgreSQL::Test::Utils;
use Test::More;

my $top = "$FindBin::RealBin/..";

# Any program stands in for nvcc where nothing is compiled.
$ENV{NVCC} = '/bin/true';
chomp(my @files = `'$top/tools/gpu-bundle' --list`);
is($?, 0, 'the bundle has a list');
my %listed = map { $_ => 1 } @files;
cmp_ok(scalar @files, '>', 500, 'of many files');

chomp(my $pg_config = `. '$top/tools/common.sh' && find_pg_config`);
my @made = grep { !-e "$top/$_" || m{/build/} } @files;
my $said = `make -n -C '$top' -f Makefile CUDA=1 PG_CONFIG='$pg_config' @made 2>&1`;
is($?, 0, 'what is not there can be made') or diag($said);

# What gpu-check runs: programs, by name or with engine, kernels by name, files of t/ by number.
my $script = slurp_file("$top/tools/gpu-check");
my ($kernels) = $script =~ /^\tfor name in (.+); do$/m;
my ($numbers) = $script =~ /^FAULTS=\$\{TAP:-(.+)\}$/m;
my @programs = map { "test/build/$_" } ($script =~ /run_program (\w+) /g), map { "${_}_device" } split / /, $kernels;
is(join(' ', grep { !$listed{$_} } @programs), '', 'it has the programs that gpu-check runs');
is(join(' ', grep { m{^test/build/.*_device$} && !{ map { $_ => 1 } @programs }->{$_} } @files), '', 'and none for a device that it does not run');
my %tests = map { m{^t/(\d+)_.*\.pl$} ? ($1 => 1) : () } @files;
is(join(' ', grep { !$tests{$_} } split / /, $numbers), '', 'it has the files of t/ that gpu-check runs');
is(join(' ', grep { /cuda_emulated|-t?san$/ } @files), '', 'and nothing emulated, nor for sanitizers');
done_testing();
