# What installs gpuann names what is there: the RPM packages hold what make install installs, the Dockerfiles run scripts and copy files of
# this tree, which .dockerignore does not keep from them, compose.yaml mounts files that exist and gives them what they ask for, CloudNativePG's
# files agree with the extension, and the workflows of public runners call commands of the makefile. Linters and real builds are parts of
# make check-release.

use strict;
use warnings FATAL => 'all';

use File::Basename;
use FindBin;
use JSON::PP;
use PostgreSQL::Test::Utils;
use Test::More;

my $top = "$FindBin::RealBin/..";
my $version = decode_json(slurp_file("$top/META.json"))->{version};
my ($extension) = slurp_file("$top/control/gpuann.control") =~ /^default_version = '(.*?)'$/m;
my @wrong;

# ---- RPM ----

my $spec = slurp_file("$top/rpm/gpuann.spec");
is(($spec =~ /^Version:\s*(\S+)$/m)[0], $version, 'the RPM packages are of this version');
like($spec, qr/^%changelog\n\* \w{3} \w{3} \d\d \d{4} .* - \Q$version\E-/m, 'their change log begins with it');
is(join(' ', sort map { basename($_) } $spec =~ /^(?:%\{pginstdir\}|%\{pgsharedir\})(\S+)$/mg),
	join(' ', sort 'gpuann.so', 'gpuann-server', 'gpuann_cuda.so', 'gpuann.control', 'gpuann--*.sql', map { basename($_) } glob("$top/tools/gpuann_*")),
	'they hold all that make install installs');
foreach my $other ('debian/control.in', 'META.json')
{
	my ($asked) = slurp_file("$top/$other") =~ /(?:pgvector \(>= |"vector": ")(\d+\.\d+\.\d+)/;
	is_deeply([ grep { $_ ne $asked } $spec =~ /pgvector_\S+ >= (\S+)/g ], [], "and ask for the pgvector that $other asks for");
}

# ---- images ----

my @ignored = map { s{([.+()])}{\\$1}gr =~ s{\*\*/}{\0}gr =~ s{\*}{[^/]*}gr =~ s{\0}{(?:.*/)?}gr } grep { /^[^#\s]/ } split /\n/, slurp_file("$top/.dockerignore");
my $ignored = join '|', @ignored;

# What a build in an image needs of the tree.
my @needed = map { substr($_, length("$top/")) } map { glob("$top/$_") } 'Makefile', 'LICENSE', 'control/*', 'docker/*', 'src/*/*.[ch]', 'src/*/*/*.[ch]',
  'cuda/*/*.cu*', 'cuda/exports.map', 'tools/gpuann_*', 'tools/test-programs.mk';
cmp_ok(scalar @needed, '>', 100, 'there are sources');
is(join(' ', grep { m{^(?:$ignored)(?:/|$)} } @needed), '', '.dockerignore keeps none of them from the images');

my @dockerfiles = ('docker/Dockerfile', 'docker/Dockerfile.cuda', 'docker/cloudnative-pg/Dockerfile');
foreach my $file (@dockerfiles)
{
	my $text = slurp_file("$top/$file") =~ s/^#.*\n//mgr =~ s/\\\n\s*//gr;
	my %stage = map { $_ => 1 } $text =~ /^FROM \S+ AS (\w+)$/mg;
	my %argument = $text =~ /^ARG (\w+)="?(.*?)"?$/mg;

	@wrong = ();
	foreach my $script ($text =~ m{\b(docker/[\w-]+)}g) { push @wrong, "$script is no program" if !-x "$top/$script" }
	foreach my $script ($text =~ /^RUN (.*)$/mg) { push @wrong, "RUN $script: calls no script of docker/" if $script !~ m{^(?:docker|/usr/local/share/gpuann)/[\w-]+( /\w+)*(?: && docker/[\w-]+( /\w+)*)*$} }
	foreach my $from ($text =~ /^COPY --from=(\w+)/mg) { push @wrong, "no stage $from" if !$stage{$from} }
	foreach my $image ($text =~ /^FROM (\S+)/mg)
	{
		$image =~ s/\$\{(\w+)\}/$argument{$1} \/\/ "?"/ge;
		push @wrong, "FROM $image: which version?" if $image ne 'scratch' && $image !~ /^[\w.\/-]+:\d[\w.-]*$/;
	}
	is(join("\n", @wrong), '', "$file: names scripts, stages and versions that there are");
}
foreach my $script (glob("$top/docker/*"))
{
	next if -d $script || slurp_file($script) !~ m{^#!/bin/sh\n};
	is(system('sh', '-n', $script), 0, basename($script) . ': sh can read it');
	like(slurp_file($script), qr/^set -eu$/m, 'and it ends where a command fails');
}

# ---- compose.yaml, and what it mounts ----

my $compose = slurp_file("$top/docker/compose.yaml");
my %mounted = $compose =~ m{^ +- (\.\.?/[\w./-]+):(/[\w./-]+):ro$}mg;
cmp_ok(scalar keys %mounted, '>=', 7, 'compose.yaml mounts files');
is(join(' ', grep { !-f "$top/docker/$_" } sort keys %mounted), '', 'which are there');
my %at = map { $_ => 1 } values %mounted;
@wrong = map { "$_ is not mounted" } grep { !$at{$_} } slurp_file("$top/docker/prometheus.yaml") =~ m{^ +- (/\S+)$}mg, $compose =~ /EXTEND_QUERY_PATH: (\S+)/;
my ($boards) = slurp_file("$top/docker/grafana/dashboards.yaml") =~ /path: (\S+)/;
push @wrong, 'no dashboard is mounted for Grafana' if !grep { dirname($_) eq $boards } keys %at;
my %services = map { $_ => 1 } ($compose =~ /^services:\n(.*?)^\w/ms)[0] =~ /^  (\w+):$/mg;
push @wrong, map { "no service $_" } grep { !$services{$_} } map { /(\w+):\d+/ } slurp_file("$top/docker/prometheus.yaml") =~ /targets: \["(.*?)"\]/,
  slurp_file("$top/docker/grafana/datasources.yaml") =~ m{url: http://(\S+)}, $compose =~ m{DATA_SOURCE_URI: (\S+)/};
push @wrong, map { "image $_: which version?" } grep { !/:(?:v?\d[\w.]*|\$\{PG_MAJOR:-\d+\})$/ } $compose =~ /^ +image: (\S+)$/mg;
push @wrong, map { "port $_ is open to others" } grep { !/^127\.0\.0\.1:/ } ($compose =~ /^ +- "([\d.:]+)"$/mg);
is(join("\n", @wrong), '', 'its services find each other and their files');
my ($role) = slurp_file("$top/docker/initdb.sh") =~ /CREATE ROLE (\w+) LOGIN/;
is(($compose =~ /DATA_SOURCE_USER: (\w+)/)[0], $role, "the exporter's role is the one that is made");
like($compose, qr/EXPORTER_PASSWORD:/, 'with the password that it is given') if slurp_file("$top/docker/initdb.sh") =~ /getenv password EXPORTER_PASSWORD/;

# ---- CloudNativePG ----

my $metadata = slurp_file("$top/docker/cloudnative-pg/metadata.hcl");
is(($metadata =~ /^ +sql_name += "(.*)"$/m)[0], 'gpuann', "CloudNativePG's metadata name the extension");
is(($metadata =~ /^ +sql += "(.*)"$/m)[0], $extension, 'and its version');
is(($metadata =~ /^ +package = "(.*)"$/m)[0], $version, "and this release's");
my $cluster = slurp_file("$top/docker/cloudnative-pg/cluster.yaml");
is(join(' ', sort $cluster =~ m{reference: \S+/(\w+):\S+$}mg), 'gpuann pgvector', 'the example of a cluster has the images of both extensions');
like($cluster, qr/shared_preload_libraries:\n +- gpuann$/m, 'and preloads gpuann');
is(join(' ', ($cluster =~ /^  extensions:\n(.*)\z/ms)[0] =~ /- name: (\w+)/g), 'vector gpuann', 'its database gets vector before gpuann');
like($cluster, qr{/gpuann:\Q$extension\E-18-}, 'of this version');

# ---- public runners ----

my ($targets) = slurp_file("$top/GNUmakefile") =~ /^OURS = (.*)$/m;
my ($parts) = slurp_file("$top/tools/check-release") =~ /^PARTS=\(\n(.*?)^\)$/ms;
my %part = $parts =~ m{^\t"(\w+) +([^\s"]+)}mg;
is(join(' ', grep { !-x "$top/$_" } values %part), '', 'make check-release has a program for each part');
my $commands = 0;
@wrong = ();
foreach my $workflow (glob("$top/.github/workflows/*.yaml"))
{
	foreach my $command (slurp_file($workflow) =~ /run: (make .*)$/mg)
	{
		my ($target, $rest) = $command =~ /^make (\S+)(.*)$/;

		$commands++;
		push @wrong, "$command: no such target" if " $targets " !~ / \Q$target\E /;
		push @wrong, map { "$command: no part $_" } grep { !$part{$_} } map { split } $rest =~ /PART="(.*?)"/;
	}
}
cmp_ok($commands, '>=', 2, 'public runners make something');
is(join("\n", @wrong), '', 'by commands that there are');

done_testing();
