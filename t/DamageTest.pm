# DamageTest.pm
#		What the tests of damaged indexes share: a database that is copied for each case, damage in its file, statements on it.
#
# The copy is made file by file and nobody has read it when its index is damaged, so no page of it is in the buffer pool, and
# table and index are as they were in every case.

package DamageTest;

use strict;
use warnings;

use Exporter 'import';
use IPC::Run;
use GpuannTest;
use PostgreSQL::Test::Utils;
use Test::More;

our @EXPORT = qw(PAGE HEADER TAIL META SEED LIST NODE VECTOR RECORD graph_row_at pages_of whole_file keep_template with_damage run_steps);

use constant {
	PAGE => 8192, HEADER => 24, TAIL => 8192 - 16,
	META => 1, SEED => 2, LIST => 3, NODE => 4, VECTOR => 5, RECORD => 12,
};

# Where on its page the i-th graph row of a node page is: behind the records, on a multiple of 64.
sub graph_row_at
{
	my ($i, $degree) = @_;
	my $slots = int((TAIL - HEADER) / (RECORD + 4 * $degree));
	my $rows = sub { return int((HEADER + RECORD * $slots + 63) / 64) * 64; };

	$slots-- while $rows->() + 4 * $degree * $slots > TAIL;
	return $rows->() + 4 * $degree * $i;
}

# Keep the database postgres, as it is, as a template: its name, and where and what the file of an index in it is.
sub keep_template
{
	my ($node, $name, $index) = @_;
	my $path;

	$node->safe_psql('postgres', "CREATE DATABASE $name TEMPLATE postgres STRATEGY file_copy");
	$path = $node->safe_psql('postgres', "SELECT pg_relation_filepath('$index')");
	$path =~ s{.*/}{};
	$node->safe_psql('postgres', 'CHECKPOINT');
	return { node => $node, name => $name, index => $index, file => $path,
		bytes => PostgreSQL::Test::Utils::slurp_file(file_in($node, $name, $path)) };
}

# The path of a relation file in a database.
sub file_in
{
	my ($node, $database, $file) = @_;
	return $node->data_dir . '/base/' . $node->safe_psql('postgres', "SELECT oid FROM pg_database WHERE datname = '$database'")
	  . "/$file";
}

# The blocks of a kind, in a template's index.
sub pages_of
{
	my ($template, $kind) = @_;

	return grep { unpack('v', substr($template->{bytes}, $_ * PAGE + TAIL + 12, 2)) == $kind }
	  0 .. length($template->{bytes}) / PAGE - 1;
}

# Run something in a copy of the template whose index has other bytes at an offset, or none, not even a file, from there on; the
# copy's name is its argument.
sub with_damage
{
	my ($template, $offset, $bytes, $run) = @_;
	my $node = $template->{node};
	my @result;

	$node->safe_psql('postgres', "CREATE DATABASE damaged TEMPLATE $template->{name} STRATEGY file_copy");
	open(my $out, '+<', file_in($node, 'damaged', $template->{file})) or die "damaged: $!";
	binmode $out;
	seek($out, $offset, 0) or die "seek: $!";
	print $out $bytes;
	truncate($out, $offset) if $bytes eq '';
	close $out;
	@result = $run->('damaged');
	$node->safe_psql('postgres', 'DROP DATABASE damaged WITH (FORCE)');
	return @result;
}

# Run steps, [name, statements], in one session; returns what each printed, errors with their codes included.
sub run_steps
{
	my ($node, $database, @steps) = @_;
	my $script = "\\set VERBOSITY verbose\n" . join('', map { "\\echo === $_->[0]\n$_->[1]\n" } @steps);
	my ($out, %said) = ('');

	IPC::Run::run([ 'psql', '-XAtq', '-d', $node->connstr($database), '-f', '-' ], '<', \$script, '>&', \$out);
	foreach my $part (split /^=== /m, $out)
	{
		$said{$1} = $2 if $part =~ /^(\S+)\n(.*)\z/s;
	}
	return \%said;
}

1;
