# The WAL record of an append, which append_wal.c writes, has the form of the server's own generic records. The same rows are appended to two indexes, to
# one by append_wal.c and to the other by GenericXLog: the records name the same blocks in the same way, pg_waldump reads both alike, and both make, by one
# description of the form, the old pages into the new ones. Then the server's own replay takes them: after a crash every page is compared with its image.
#
# On a PostgreSQL whose generic records are of another form the server's do not fit the description any more, or ours do not pass its replay. That
# the test would find a wrong form is shown with one.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use GpuannTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use constant { PAGE => 8192, SEGMENT => 16 * 1024 * 1024, GENERIC => 20, IMAGE => 0x10, DATA => 0x20, SAME_REL => 0x80, HOLE => 1, APPLY => 2, COMPRESSED => 0x1C };

my $node = new_node('form', preload => 'gpuann', no_checksums => 1, conf => [ 'full_page_writes = off', "wal_consistency_checking = 'generic'", 'gpuann.server = off', 'wal_keep_size = 512MB' ]);
my $probe = ($node->psql('postgres', 'SHOW gpuann.row_log'))[0];

if ($probe ne '0')
{
	$node->stop;
	plan skip_all => 'this is no test build';
}

sub sql { return $node->safe_psql('postgres', $_[0]); }

# ---- WAL and pages, as they are in files ----

sub lsn_number
{
	my ($high, $low) = map { hex } split m{/}, $_[0];
	return ($high << 32) + $low;
}

sub read_at
{
	my ($path, $offset, $length) = @_;
	my $bytes = '';

	open(my $file, '<:raw', $path) or return '';
	seek($file, $offset, 0);
	read($file, $bytes, $length);
	return $bytes;
}

# The file that holds a position of WAL.
sub segment_of
{
	my $number = int($_[0] / SEGMENT);
	return sprintf('%s/pg_wal/%08X%08X%08X', $node->data_dir, 1, int($number / 256), $number % 256);
}

# What stands between two positions of WAL, without page headers.
sub wal_between
{
	my ($from, $to) = @_;
	my $stream = '';

	while ($from < $to)
	{
		my $header = $from % SEGMENT == 0 ? 40 : $from % PAGE == 0 ? 24 : 0;
		my $end = $from - $from % PAGE + PAGE;

		$from += $header;
		$end = $to if $end > $to;
		$stream .= read_at(segment_of($from), $from % SEGMENT, $end - $from);
		$from = $end;
	}
	return $stream;
}

# A record's references to blocks: block, flags, image and data of each.
sub parse_record
{
	my ($record) = @_;
	my ($at, $total, $relation, @blocks) = (24, 0, '');

	# Heads come first, then what they speak of. Generic records have no main data.
	while (length($record) - $at > $total)
	{
		my %block;

		return undef if $at + 8 > length $record || ord(substr($record, $at, 1)) > 32;

		@block{qw(id flags bytes)} = unpack('C C v', substr($record, $at, 4));
		$at += 4;
		if ($block{flags} & IMAGE)
		{
			@block{qw(image_bytes hole info)} = unpack('v v C', substr($record, $at, 5));
			$at += 5;
			$at += 2 if ($block{info} & COMPRESSED) && ($block{info} & HOLE);
		}
		if (!($block{flags} & SAME_REL))
		{
			$relation = join('/', unpack('V3', substr($record, $at, 12)));
			$at += 12;
		}
		$block{relation} = $relation;
		$block{block} = unpack('V', substr($record, $at, 4));
		$at += 4;
		$total += $block{bytes} + ($block{image_bytes} // 0);
		push @blocks, \%block;
	}
	foreach my $block (@blocks)
	{
		$block->{image} = substr($record, $at, $block->{image_bytes} // 0);
		$at += $block->{image_bytes} // 0;
		$block->{data} = substr($record, $at, $block->{bytes});
		$at += $block->{bytes};
	}
	return $at == length $record ? \@blocks : undef;
}

# The generic records between two positions, each a list of block references.
sub generic_records
{
	my ($from, $to) = @_;
	my $stream = wal_between($from, $to);
	my @records;

	for (my $at = 0; $at + 24 <= length $stream;)
	{
		my ($length, $rmgr) = unpack('V x13 C', substr($stream, $at, 18));

		last if $length < 24;
		push @records, parse_record(substr($stream, $at, $length)) if $rmgr == GENERIC;
		$at += ($length + 7) & ~7;
	}
	return @records;
}

# Replay a reference on a page: runs of offset, length, bytes; then the gap is cleared.
sub replay
{
	my ($page, $block) = @_;
	my ($at, $lower, $upper) = (0);

	if (($block->{flags} & IMAGE) && ($block->{info} & APPLY))
	{
		my $gap = PAGE - $block->{image_bytes};
		return substr($block->{image}, 0, $block->{hole}) . "\0" x $gap . substr($block->{image}, $block->{hole});
	}
	while ($at < length $block->{data})
	{
		my ($offset, $length) = unpack('v v', substr($block->{data}, $at, 4));

		return '' if $offset + $length > PAGE || $at + 4 + $length > length $block->{data};
		substr($page, $offset, $length) = substr($block->{data}, $at + 4, $length);
		$at += 4 + $length;
	}
	($lower, $upper) = unpack('v v', substr($page, 12, 4));
	substr($page, $lower, $upper - $lower) = "\0" x ($upper - $lower) if $lower < $upper && $upper <= PAGE;
	return $page;
}

# A page but for its LSN and checksum.
sub contents
{
	return substr($_[0], 10);
}

sub file_of
{
	return $node->data_dir . '/' . sql("SELECT pg_relation_filepath('$_[0]')");
}

sub block_of
{
	my ($file, $block) = @_;
	my $page = read_at($file, $block * PAGE, PAGE);

	return $page . "\0" x (PAGE - length $page);
}

# Change an index, and say what its records were: how each names its blocks, and how many pages they do not make what they are.
sub observe
{
	my ($index, $change) = @_;
	my $file = file_of($index);
	my ($number) = $file =~ /(\d+)$/;
	my ($from, $to, @records, %pages, @shape, $before);

	sql('CHECKPOINT');
	$before = slurp_file($file);
	$from = sql('SELECT pg_current_wal_insert_lsn()');
	sql($change);
	$to = sql('SELECT pg_current_wal_insert_lsn()');
	sql('CHECKPOINT');
	@records = generic_records(lsn_number($from), lsn_number($to));
	foreach my $blocks (@records)
	{
		my @named;

		foreach my $block (@{ $blocks // [] })
		{
			my $n = $block->{block};
			my $image = ($block->{flags} & IMAGE) && ($block->{info} & APPLY) ? 'image' : 'runs';

			next unless $block->{relation} =~ /\/$number$/;
			push @named, "$n $image";
			$pages{$n} //= do { my $page = substr($before, $n * PAGE < length $before ? $n * PAGE : length $before, PAGE); $page . "\0" x (PAGE - length $page) };
			$pages{$n} = replay($pages{$n}, $block) if $pages{$n} ne '';
		}
		push @shape, join(', ', @named) || 'unreadable';
	}

	my @dumped = map { join(', ', map { /FPW/ && !/for WAL verification/ ? 'image' : 'runs' } /blkref #\d+: [^;]*?(?=blkref|$)/g) }
	  grep { /rmgr: Generic/ } split /\n/, run_waldump($from, $to);
	my $wrong = grep { $pages{$_} eq '' || contents($pages{$_}) ne contents(block_of($file, $_)) } keys %pages;

	return { shape => \@shape, dumped => \@dumped, wrong => $wrong, pages => scalar keys %pages };
}

sub run_waldump
{
	my ($from, $to) = @_;
	my ($out, $err) = ('', '');

	# Files are named, or it may look at one that is not written yet.
	IPC::Run::run([ 'pg_waldump', '-s', $from, '-e', $to, map { segment_of(lsn_number($_)) } $from, $to ], '>', \$out, '2>', \$err)
	  or diag("pg_waldump -s $from -e $to: $err");
	return $out;
}

# ---- the same appends twice ----

my $vectors = 'SELECT array_agg(i + j)::vector FROM generate_series(1, D) j';
# Of the second ones the index includes a column, whose record is written before.
my %shapes = ('a vector on one page' => 8, 'a vector across two pages' => 1500, 'a vector on more than two' => 5000);

sub rows
{
	my ($table, $dims, $from, $to) = @_;
	return "INSERT INTO $table SELECT i, (SELECT array_agg(noise(i, j)::real ORDER BY j)::vector FROM generate_series(1, $dims) j) FROM generate_series($from, $to) i";
}

foreach my $what (sort keys %shapes)
{
	my $dims = $shapes{$what};
	my @steps = (
		[ 'the first rows', sub { rows($_[0], $dims, 1, 3) } ],
		[ 'a row more', sub { rows($_[0], $dims, 4, 4) } ],
		[ 'many rows', sub { rows($_[0], $dims, 5, $dims == 8 ? 1500 : 60) } ],
		[ 'linking them', sub { "SELECT gpuann_link('$_[0]_v'), gpuann_link('$_[0]_v')" }, 'server only' ],
		[ 'VACUUM', sub { "DELETE FROM $_[0] WHERE id % 2 = 0; VACUUM $_[0]" }, 'server only' ],
		[ 'used slots', sub { rows($_[0], $dims, 2001, 2010) } ]);

	foreach my $table ("direct_$dims", "generic_$dims")
	{
		sql("CREATE TABLE $table (id int, v vector($dims)); CREATE INDEX ${table}_v ON $table USING gpuann (v vector_l2_ops) "
			  . ($dims == 1500 ? 'INCLUDE (id) ' : '') . 'WITH (m = 4)');
	}
	foreach my $step (@steps)
	{
		my ($name, $change, $server_only) = @$step;
		my %seen;

		foreach my $form (qw(direct generic))
		{
			my ($head, $rest) = $change->("${form}_$dims") =~ /^(DELETE[^;]*;)?(.*)$/s;

			sql($head) if $head;
			$seen{$form} = observe("${form}_${dims}_v", $server_only ? $rest : "SET gpuann.row_log = $form; $rest");
			cmp_ok($seen{$form}->{pages}, '>', 0, "$what, $name, $form: there are records");
			is($seen{$form}->{wrong}, 0, "$what, $name, $form: they make the pages what they are");
		}
		next if $server_only;
		is_deeply($seen{direct}->{shape}, $seen{generic}->{shape}, "$what, $name: they name the same blocks in the same way");
		is_deeply($seen{direct}->{dumped}, $seen{generic}->{dumped}, "$what, $name: pg_waldump reads them alike");
		is(scalar @{ $seen{direct}->{dumped} }, scalar @{ $seen{direct}->{shape} }, "$what, $name: and reads them all");
	}
}

# ---- replay ----

# Append rows of every shape since the last checkpoint, crash, and recover; every page is compared with its image.
sub recovers
{
	my ($what, $form) = @_;

	foreach my $dims (values %shapes)
	{
		sql("SET gpuann.row_log = $form; " . rows("direct_$dims", $dims, 3001, 3030) . '; CHECKPOINT; ' . rows("direct_$dims", $dims, 3031, 3060) . ';');
		sql("DELETE FROM direct_$dims WHERE id > 3020; VACUUM direct_$dims; SET gpuann.row_log = $form; " . rows("direct_$dims", $dims, 3061, 3070));
	}
	$node->stop('immediate');
	return $node->start(fail_ok => 1);
}

foreach my $setting ("full_page_writes = off", "full_page_writes = on\nwal_compression = off", "full_page_writes = on\nwal_compression = pglz")
{
	(my $what = $setting) =~ s/\n/, /;
	$node->append_conf('postgresql.conf', $setting);
	$node->restart;
	ok(recovers($what, 'direct'), "$what: recovery takes the records");
	check_index($node, $what, "direct_${_}_v") foreach values %shapes;
}
$node->stop;
system_or_bail('pg_checksums', '-D', $node->data_dir, sql_free_checksums() ? '--enable' : '--check');
$node->start;
ok(recovers('checksums', 'direct'), 'checksums: recovery takes the records');
check_index($node, 'checksums', "direct_${_}_v") foreach values %shapes;

# ---- a wrong form is found ----

$node->append_conf('postgresql.conf', 'full_page_writes = off');
$node->restart;
my $broken = observe('direct_8_v', 'SET gpuann.row_log = broken; ' . rows('direct_8', 8, 5001, 5001));
cmp_ok($broken->{wrong}, '>', 0, 'a wrong offset: the description of the form finds it');
sql('SET gpuann.row_log = broken; ' . rows('direct_8', 8, 5002, 5002));
$node->stop('immediate');
ok(!$node->start(fail_ok => 1), 'a wrong offset: recovery refuses it');
like(slurp_file($node->logfile), qr/FATAL:  (?:inconsistent|invalid) page.*\n.*WAL redo at .* for Generic/, 'a wrong offset: and says why');

# Whether checksums are off.
sub sql_free_checksums
{
	return `pg_controldata -D '@{[ $node->data_dir ]}'` =~ /Data page checksum version:\s+0/;
}

done_testing();
