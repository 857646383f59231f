# Inserts, updates, deletes, vacuums, links and scans of several sessions at once: no error, nothing lost, nothing twice.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use GpuannTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $dims = 16;
my $node = new_node('storm', conf => [ 'gpuann.pending_limit = 300', "deadlock_timeout = '100ms'" ]);

make_data($node, 1500, $dims);
$node->safe_psql('postgres', 'CREATE UNIQUE INDEX ON items (id)');

# Each script in one client or two, for the same time.
my %scripts = (
	insert => "\\set id random(100000, 999999)\nINSERT INTO items VALUES (:id, vec(:id, $dims)) ON CONFLICT DO NOTHING;\n",
	update => "\\set id random(1, 1500)\nUPDATE items SET v = vec(:id + (random() * 100)::int, $dims) WHERE id = :id;\n",
	delete => "\\set id random(100000, 999999)\nDELETE FROM items WHERE id >= :id AND id < :id + 4000;\n",
	vacuum => "VACUUM items;\n\\sleep 100 ms\n",
	link => "SELECT gpuann_link('items_v');\n\\sleep 70 ms\n",
	scan => "\\set id random(1, 1500)\nSET enable_seqscan = off;\n"
	  . "SELECT 1 / (count(*) = 15 AND count(DISTINCT ctid) = 15)::int FROM (SELECT ctid FROM items ORDER BY v <-> vec(:id, $dims) LIMIT 15) s;\n",
	drain => "SET enable_seqscan = off; SET enable_sort = off;\n"
	  . "SELECT 1 / (count(*) = (SELECT count(*) FROM items WHERE v IS NOT NULL))::int FROM (SELECT ctid FROM items ORDER BY v <-> vec(1, $dims)) s;\n\\sleep 200 ms\n",
	check => "SELECT gpuann_check('items_v');\n\\sleep 500 ms\n",
);
my @files;
my $directory = PostgreSQL::Test::Utils::tempdir();

foreach my $name (sort keys %scripts)
{
	my $file = "$directory/$name.sql";

	PostgreSQL::Test::Utils::append_to_file($file, $scripts{$name});
	push @files, $file;
}

my @running;
my %output;
foreach my $file (@files)
{
	$output{$file} = '';
	push @running, IPC::Run::start(
		[ 'pgbench', '-n', '-c', $file =~ /insert/ ? 2 : 1, '-T', 15, '-f', $file, $node->connstr('postgres') ],
		'>', \$output{$file}, '2>&1');
}
foreach my $i (0 .. $#running)
{
	$running[$i]->finish;
	ok(!$running[$i]->result(0) && $output{ $files[$i] } !~ /ERROR|FATAL|aborted/, "no session failed: " . ($files[$i] =~ s{.*/}{}r))
	  or diag($output{ $files[$i] });
	my ($done) = $output{ $files[$i] } =~ /transactions actually processed: (\d+)/;
	note("$done times " . ($files[$i] =~ s{.*/}{}r));
	cmp_ok($done, '>', 5, 'it did its work');
}
right_after($node, 'after the storm');
$node->safe_psql('postgres', 'VACUUM items');
right_after($node, 'after the storm, vacuumed');
$node->stop;

done_testing();
