# A release is of one piece: META.json is as PGXN wants it, every place that names the version names the same, the change log knows each version
# that was published, and make dist packs every file of the tree, from which the makefile would install everything.

use strict;
use warnings FATAL => 'all';

use Encode qw(decode);
use File::Basename;
use File::Path qw(make_path);
use FindBin;
use IO::Uncompress::Unzip qw($UnzipError);
use JSON::PP;
use PostgreSQL::Test::Utils;
use Test::More;

my $top = "$FindBin::RealBin/..";
my $meta = decode_json(slurp_file("$top/META.json"));
my ($control) = slurp_file("$top/control/gpuann.control") =~ /^default_version = '(.*?)'$/m;
my $semver = qr/(?:0|[1-9]\d*)\.(?:0|[1-9]\d*)\.(?:0|[1-9]\d*)(?:-[0-9A-Za-z.-]+)?/;

# ---- META.json, by version 1.0 of PGXN's Meta Spec ----

my @wrong;
my %is = (
	text => sub { !ref $_[0] && length $_[0] > 0 },
	term => sub { !ref $_[0] && $_[0] =~ m{^[^/\\\s[:cntrl:]]{2,}$} },
	version => sub { !ref $_[0] && $_[0] =~ /^$semver$/ },
	range => sub { !ref $_[0] && $_[0] =~ /^(?:0|(?:(?:[=!]=|[<>]=?)\s*)?$semver(?:,\s*(?:(?:[=!]=|[<>]=?)\s*)?$semver)*)$/ },
	uri => sub { !ref $_[0] && $_[0] =~ m{^[a-z][a-z0-9+.-]*://[^\s<>"]+$} },
	address => sub { !ref $_[0] && $_[0] =~ /^[^\s@]+@[^\s@]+\.[^\s@]+$/ },
	file => sub { !ref $_[0] && $_[0] !~ m{^/|\\|\.\.} && -f "$top/$_[0]" },
	status => sub { $_[0] =~ /^(?:stable|testing|unstable)$/ },
	texts => sub { ref $_[0] eq 'ARRAY' ? @{ $_[0] } > 0 && !grep { ref || $_ eq '' } @{ $_[0] } : length $_[0] > 0 },
	tags => sub { ref $_[0] eq 'ARRAY' && @{ $_[0] } > 0 && !grep { ref || !m{^[^/\\[:cntrl:]]{2,255}$} } @{ $_[0] } },
	spec => sub { $_[0] =~ /^1\.0\.\d+$/ });

# Check the keys of a map: those that must be there end with "!". Others begin with x_.
sub map_is
{
	my ($where, $map, %keys) = @_;

	return push @wrong, "$where: is no map" if ref $map ne 'HASH';
	my %known = map { s/!$//r => $keys{$_} } keys %keys;
	push @wrong, map { "$where: $_ is missing" } grep { !exists $map->{$_} } map { /^(.*)!$/ ? $1 : () } keys %keys;
	foreach my $key (sort keys %$map)
	{
		next if $key =~ /^x_./i;
		if (!$known{$key}) { push @wrong, "$where: $key is unknown" }
		elsif ($known{$key} ne 'map' && !$is{ $known{$key} }->($map->{$key})) { push @wrong, "$where: $key is no $known{$key}" }
	}
}

map_is('META.json', $meta, 'name!' => 'term', 'version!' => 'version', 'abstract!' => 'text', 'maintainer!' => 'texts', 'license!' => 'texts',
	'provides!' => 'map', 'meta-spec!' => 'map', description => 'text', generated_by => 'text', tags => 'tags', no_index => 'map', prereqs => 'map',
	release_status => 'status', resources => 'map');
map_is('meta-spec', $meta->{'meta-spec'}, 'version!' => 'spec', url => 'uri');
map_is("provides.$_", $meta->{provides}{$_}, 'file!' => 'file', 'version!' => 'version', abstract => 'text', docfile => 'file') foreach sort keys %{ $meta->{provides} };
map_is('resources', $meta->{resources}, homepage => 'uri', bugtracker => 'map', repository => 'map');
map_is('resources.bugtracker', $meta->{resources}{bugtracker}, web => 'uri', mailto => 'address') if exists $meta->{resources}{bugtracker};
map_is('resources.repository', $meta->{resources}{repository}, web => 'uri', url => 'uri', type => 'text') if exists $meta->{resources}{repository};
foreach my $phase (sort keys %{ $meta->{prereqs} })
{
	push @wrong, "prereqs: no phase $phase" if $phase !~ /^(?:configure|build|test|runtime|develop)$/;
	foreach my $relation (sort keys %{ $meta->{prereqs}{$phase} })
	{
		my $needed = $meta->{prereqs}{$phase}{$relation};

		push @wrong, "prereqs.$phase: no relation $relation" if $relation !~ /^(?:requires|recommends|suggests|conflicts)$/;
		push @wrong, map { "prereqs.$phase.$relation: $_ has no version" } grep { !$is{range}->($needed->{$_}) } sort keys %$needed;
	}
}
is(join("\n", @wrong), '', 'META.json is as PGXN wants it');
push @wrong, map { "no $_" } grep { !exists $meta->{$_} } qw(release_status resources generated_by prereqs tags description);
is(join("\n", @wrong), '', 'and says all that PGXN shows');
is($meta->{license}, 'postgresql', 'the licence is that of LICENSE');
like(slurp_file("$top/LICENSE"), qr/PostgreSQL Licen[sc]e/, 'which names it');

# ---- versions ----

# The extension's version has no third number, unless that is one of its own.
is($meta->{version} =~ s/^(\d+\.\d+)\.0$/$1/r, $control, 'META.json and control/gpuann.control name one version');
is($meta->{provides}{gpuann}{version}, $meta->{version}, 'so does what META.json says of the extension');
foreach my $place ([ 'README.md', qr/^Version (\d+(?:\.\d+)+)\./m ], [ 'docs/reference.md', qr/of gpuann, version (\d+(?:\.\d+)+)\./ ])
{
	my ($file, $pattern) = @$place;
	is((slurp_file("$top/$file") =~ $pattern)[0], $control, "$file names it too");
}
is((slurp_file("$top/debian/changelog") =~ /^gpuann \((\S+)\)/)[0], $meta->{version}, "so does the Debian package's change log");
my @scripts = map { basename($_) } glob("$top/control/gpuann--*.sql");
cmp_ok(scalar(grep { /--\Q$control\E\.sql$/ } @scripts), '>=', 1, 'a script installs that version, or updates to it');
# What has changed since the newest version stands above it; it gets a number, here and everywhere else, when it is published or changes SQL.
my @changes = slurp_file("$top/CHANGELOG.md") =~ /^## (.*)$/mg;
my $open = $changes[0] eq 'Unreleased' ? shift @changes : undef;
like($changes[0] // '', qr/^\Q$meta->{version}\E \((?:unreleased|\d{4}-\d\d-\d\d)\)$/, 'the change log begins with it');
foreach my $version (sort map { /--([0-9.]+)\.sql$/ } @scripts)
{
	is(scalar(grep { /^\Q$version\E(?:\.0)? \(/ } @changes), 1, "$version is in the change log");
}
is(join("\n", grep { !/^\d+(?:\.\d+)+ \(\d{4}-\d\d-\d\d\)$/ } $open ? @changes : @changes[ 1 .. $#changes ]), '', 'each earlier version was published on a day');
unlike(join('', map { slurp_file("$top/$_") } 'Makefile', 'GNUmakefile'), qr/\b\Q$control\E\.\d\b|^\w*VERSION\s*[:?]?=/m, 'the makefiles name no version of their own');

# ---- the archive ----

SKIP:
{
	my $copy = PostgreSQL::Test::Utils::tempdir() . '/checkout';
	my ($said, %packed);

	skip 'there is no git', 1 if system('git --version >/dev/null 2>&1') != 0;

	# A checkout: what runs the tests may be a copy without its history.
	make_path($copy);
	my $made = system('bash', '-c', <<'COMMANDS', 'bash', $top, $copy);
set -eu
. "$1/tools/common.sh"
source_files | tar -C "$1" --null --no-recursion -T - -cf - | tar -C "$2" -xf -
cd "$2"
git init -q . && git add -A
git -c user.name=test -c user.email=test@localhost -c commit.gpgsign=false commit -qm 'Everything'
COMMANDS
	is($made, 0, 'a checkout is made');
	$said = `make -s -C '$copy' dist 2>&1`;
	like($said, qr{^\S+/build/gpuann-\Q$meta->{version}\E\.zip\n\z}, 'make dist names the archive');
	my ($archive) = $said =~ m{(\S+\.zip)};
	my $unzip = IO::Uncompress::Unzip->new($archive) or die "$archive: $UnzipError";
	do
	{
		my $name = $unzip->getHeaderInfo->{Name};
		my $text = do { local $/; <$unzip> } // '';
		$packed{$name} = $text if $name !~ m{/$};
	} while $unzip->nextStream > 0;
	my @tracked = map { decode('UTF-8', $_) } split /\0/, `git -C '$copy' ls-files -z`;
	is(join("\n", sort keys %packed), join("\n", sort map { "gpuann-$meta->{version}/$_" } @tracked), 'it holds every file of the tree, below one directory');
	my @others = grep { !/\.gz$/ && $packed{"gpuann-$meta->{version}/$_"} ne slurp_file("$copy/$_") } @tracked;
	is(join("\n", @others), '', 'as they are');

	# Unpacked, it is complete: make finds what it would build and install.
	my $unpacked = PostgreSQL::Test::Utils::tempdir() . '/unpacked';
	foreach my $name (keys %packed)
	{
		make_path(dirname("$unpacked/$name"));
		append_to_file("$unpacked/$name", $packed{$name});
	}
	my $install = `make -s -n -C '$unpacked/gpuann-$meta->{version}' NVCC= install 2>&1`;
	is($?, 0, 'make finds its sources in it') or diag($install);
	like($install, qr/\b\Q$_\E\b/, "and would install $_") foreach 'gpuann.control', @scripts, 'gpuann_top', 'gpuann-server', 'gpuann.so';
}
done_testing();
