# make check-release counts a part as passed only if it tested something, what pip installs runs as an ordinary user, who runs by tools/as-user
# holds its lock to the end, and a directory that somebody else can have made is not taken for one's own.

use strict;
use warnings FATAL => 'all';

use Cwd qw(abs_path);
use File::Copy;
use FindBin;
use PostgreSQL::Test::Utils;
use Test::More;

my $top = "$FindBin::RealBin/..";
my $work = abs_path(PostgreSQL::Test::Utils::tempdir());

# ---- parts ----

# A tree whose parts end as they are told to: by the exit status in the file of their name.
mkdir "$work/$_" foreach 'tree', 'tree/tools';
copy("$top/tools/$_", "$work/tree/tools/$_") foreach 'check-release', 'common.sh';
my ($lines) = slurp_file("$top/tools/check-release") =~ /^PARTS=\(\n(.*?)^\)$/ms;
my %command = $lines =~ /^\t"(\w+) +([^"]+)"$/mg;
cmp_ok(scalar keys %command, '>=', 8, 'there are parts');
my %script = map { $_ => 1 } map { m{tools/[\w-]+}g } values %command;
foreach my $script (keys %script)
{
	append_to_file("$work/tree/$script", $script eq 'tools/as-user' ? qq{#!/bin/sh\nshift\nexec "\$@"\n} : qq{#!/bin/sh\nexit "\$(cat "\$0.status" 2>/dev/null || echo 0)"\n});
	chmod 0755, "$work/tree/$script";
}

# Run the parts named, or all; what is said last, and the exit status.
sub check_release
{
	my ($parts) = @_;
	local $ENV{PART} = $parts;
	my $said = `bash $work/tree/tools/check-release 2>/dev/null`;

	return ((split /\n/, $said)[-1], $? >> 8);
}

is_deeply([ check_release('') ], [ scalar(keys %command) . ' parts passed, 0 failed', 0 ], 'parts pass');
append_to_file("$work/tree/tools/check-adapters.status", '77');
is_deeply([ check_release('') ], [ keys(%command) - 1 . ' parts passed, 0 failed, 1 skipped', 0 ], 'one that tested nothing is not counted as passed');
is_deeply([ check_release('site adapters') ], [ '1 parts passed, 1 failed', 1 ], 'and has failed where it was asked for');
append_to_file("$work/tree/tools/check-site.status", '1');
is_deeply([ check_release('') ], [ keys(%command) - 2 . ' parts passed, 1 failed, 1 skipped', 1 ], 'one that fails keeps no other from running');

# ---- pip, locks ----

my (@root, @closing);
foreach my $script (sort keys %script)
{
	my $text = slurp_file("$top/$script");

	next if $text !~ /\bpip\b/ || $script eq 'tools/setup';
	push @root, $script if grep { /\Q$script\E/ && !m{tools/as-user \w+ \Q$script\E} } values %command;
}
is(join(' ', @root), '', 'what pip installs, it installs for an ordinary user');
foreach my $script (grep { -f && -x } glob("$top/tools/*"))
{
	push @closing, $script if slurp_file($script) =~ /^\s*exec 9[<>]&-/m;
}
is(join(' ', @closing), '', 'no script lets go of the lock of tools/as-user before it ends');

# ---- directories ----

# Whether the scripts take a directory for their own.
sub taken
{
	my ($directory) = @_;

	return system('bash', '-c', '. "$1/tools/common.sh" && private_directory "$2"', 'bash', $top, $directory) == 0 ? 'taken' : 'refused';
}

is(taken("$work/new"), 'taken', 'a directory is made');
is(sprintf('%o', (stat "$work/new")[2] & 07777), '700', 'for its owner alone');
is(taken("$work/new"), 'taken', 'and found again');
symlink("$work/new", "$work/link") or die;
is(taken("$work/link"), 'refused', 'a link to it is none');
append_to_file("$work/file", '');
is(taken("$work/file"), 'refused', 'nor is a file');
chmod 0755, "$work/new";
is(taken("$work/new"), 'taken', 'others may read it');
foreach my $mode (0775, 0757, 0777, 01777)
{
	chmod $mode, "$work/new";
	is(taken("$work/new"), 'refused', sprintf('not write to it: %o', $mode));
}
is(taken('/'), $> == 0 ? 'taken' : 'refused', "somebody else's is refused");

# Whoever cleans up after the demo runs what lies in its directory: not if somebody else can have put it there.
SKIP:
{
	my $demo = '/var/tmp/gpuann-demo-' . getpwuid($>);

	skip 'root has another directory, or a demo is there', 2 if $> == 0 || -e $demo || -l $demo;
	mkdir $demo or die "$demo: $!";
	mkdir "$demo/$_" or die foreach 'state', 'source', 'source/demo';
	append_to_file("$demo/source/demo/clean", "#!/bin/sh\ntouch '$work/was-run'\n");
	chmod 0755, "$demo/source/demo/clean";
	chmod 0777, $demo;
	isnt(system("'$top/tools/demo-clean' >'$work/cleaned' 2>&1"), 0, 'make demo-clean refuses a directory that others may write to');
	ok(!-e "$work/was-run", 'and runs nothing there');
	chmod 0700, $demo;
	system('rm', '-rf', $demo);
}

done_testing();
