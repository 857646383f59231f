# Links between documents lead to files, and to headings in them; curves are drawn from the reports; the site's navigation names every document; and every piece of SQL in README.md
# and docs/ runs as it stands there, unless it says that it is for another system; that of docs/recipes.md gives the same rows with and without the index.

use strict;
use warnings FATAL => 'all';

use File::Basename;
use FindBin;
use lib $FindBin::RealBin;
use GpuannTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $top = "$FindBin::RealBin/..";
my @files = map { glob("$top/$_") } '*.md', '*/*.md', '*/*/*.md';

# ---- links ----


sub is_heading
{
	my ($file, $anchor) = @_;
	my @headings = slurp_file($file) =~ s/^```.*?^```$//gmsr =~ /^#+ +(.*)$/mg;

	return grep { (lc($_) =~ s/[^\w\- ]//gr) =~ s/ /-/gr eq $anchor } @headings;
}

cmp_ok(scalar @files, '>=', 50, 'there are documents');
my @broken;
my $links = 0;
foreach my $file (@files)
{
	foreach my $link (grep { !/^(?:https?|mailto):/ } slurp_file($file) =~ s/^```.*?^```$//gmsr =~ /\]\(([^)\s]+)\)/g)
	{
		my ($path, $anchor) = split /#/, $link;
		my $target = $path eq '' ? $file : dirname($file) . "/$path";

		$links++;
		push @broken, substr($file, length("$top/")) . ": $link" if !-e $target || (defined $anchor && !is_heading($target, $anchor));
	}
}
is(join("\n", @broken), '', "links lead somewhere, $links of them");

# The site: what its navigation names is there, and every document for users and developers is in it.
my @pages = slurp_file("$top/mkdocs.yml") =~ /^ +- .*: (\S+\.md)$/mg;
is(join(' ', grep { !-f "$top/$_" } @pages), '', 'the site names pages that exist');
my %named = map { $_ => 1 } @pages;
is(join(' ', grep { !$named{$_} } map { substr($_, length("$top/")) } glob("$top/*.md $top/docs/*.md")), '', 'and every document');
SKIP:
{
	skip 'there is no mkdocs', 1 if system('mkdocs --version >/dev/null 2>&1') != 0;
	is(system("$top/tools/site >&2"), 0, 'mkdocs finds nothing wrong');
}

# Curves: what docs/benchmarks.md shows is what the reports say.
SKIP:
{
	skip 'there is no Python 3', 1 if system('python3 --version >/dev/null 2>&1') != 0;
	is(system("'$top/bench/plot' --check >&2"), 0, 'the curves are drawn from the reports');
}
cmp_ok(-s $_, '<', 100_000, substr($_, length("$top/")) . ': is small') foreach glob("$top/docs/images/*.svg");
cmp_ok(-s $_, '<', 150_000, substr($_, length("$top/")) . ': is small') foreach glob("$top/docs/images/*.png");

# ---- SQL ----

# A mark before a block, "<!-- not run: WHY -->", says that it is not for this PostgreSQL.
my $node = new_node('documents', preload => 'gpuann', conf => ['gpuann.engine = cpu']);
my ($pieces, $marked, $fresh) = (0, 0, 0);

# Run a piece on a table of its own, whose vectors are as the piece wants them.
sub piece_runs
{
	my ($name, $sql) = @_;
	my $what = "$name: " . ($sql =~ /^(.*)/)[0];
	my $dims = $sql =~ /\((\d{3,})\)/ ? $1 : 3;
	my $type = $sql =~ /\(embedding halfvec/ ? 'halfvec' : 'vector';
	my $database = 'postgres';
	my $before = "DROP TABLE IF EXISTS items; CREATE TABLE items (id int, category int, embedding $type($dims));
		INSERT INTO items SELECT i, i % 10, ARRAY(SELECT sin(i * j) FROM generate_series(1, $dims) j)::vector FROM generate_series(1, 50) i;";
	my ($rc, $out, $err);

	if ($sql =~ /CREATE EXTENSION/)
	{
		$database = 'fresh' . ++$fresh;
		$before = '';
		$node->safe_psql('postgres', "CREATE DATABASE $database");
	}
	$sql =~ s/\$1/(SELECT embedding FROM items LIMIT 1)/g;
	($rc, $out, $err) = $node->psql($database, "$before\n\\set ON_ERROR_STOP on\n$sql");
	is($rc, 0, $what) or diag($err);
}

# A recipe gives the same rows by the index as by PostgreSQL alone. Nothing of it stays.
sub recipe_holds
{
	my ($sql) = @_;
	my ($what) = $sql =~ /^(?:SELECT|WITH|INSERT)\b(.*)/m;
	my $before = "CREATE TABLE items AS SELECT i AS id, i % 10 AS category, ARRAY(SELECT sin(i * j) FROM generate_series(1, 3) j)::vector(3) AS embedding
		FROM generate_series(1, 50) i;";
	my @found;

	$sql =~ s/\$1/(SELECT embedding FROM items WHERE id = 7)/g;
	foreach my $settings ('SET LOCAL enable_seqscan = off; SET LOCAL enable_sort = off;', 'SET LOCAL gpuann.plan_node = off; SET LOCAL enable_indexscan = off;')
	{
		my ($rc, $out, $err) = $node->psql('postgres', "DROP TABLE IF EXISTS items; BEGIN; $before\n$settings\n\\set ON_ERROR_STOP on\n$sql\nROLLBACK;");

		is($rc, 0, "recipes.md:$what") or diag($err);
		push @found, $out;
	}
	is($found[0], $found[1], "recipes.md:$what: the same rows without the index");
	like($found[0], qr/\d/, "recipes.md:$what: there are rows");
}

foreach my $file ("$top/README.md", glob("$top/docs/*.md"))
{
	my $text = slurp_file($file);
	my $name = basename($file);

	while ($text =~ /^(?:<!-- not run: ([^\n]*?) -->\n+)?```sql\n(.*?)^```$/gms)
	{
		my ($why, $sql) = ($1, $2);

		if (defined $why) { cmp_ok(length $why, '>', 0, "$name: says why it is not run: " . ($sql =~ /^(.*)/)[0]); $marked++; next }
		if ($name eq 'recipes.md') { recipe_holds($sql) }
		else { piece_runs($name, $sql) }
		$pieces++;
	}

	# SQL that is only indented would escape.
	my @escaped = map { /\A(.*)/ } $text =~ s/^```.*?^```$//gmsr =~ /\n\n(?<!-->\n\n) {4}((?:SELECT|CREATE|ALTER|INSERT|SET|DROP|WITH)\b[^\n]*)/g;
	is(join("\n", @escaped), '', "$name: no SQL stands outside of a block that is run");
}
# The quick start prints what README.md shows.
my ($quick, $shown) = slurp_file("$top/README.md") =~ /^## Quick start.*?^```sql\n(.*?)^```\n+```\n(.*?)^```$/ms;
$node->safe_psql('postgres', 'CREATE DATABASE quick');
my (undef, $printed) = $node->psql('quick', $quick // '');
is($printed, ($shown // 'nothing') =~ s/\n\n/\n/r =~ s/\n\z//r, 'the quick start prints what README.md shows');

cmp_ok($pieces, '>=', 5, "there is SQL, $pieces pieces; $marked are for other systems");
$node->stop;

done_testing();
