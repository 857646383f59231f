# What belongs to other modules of PostgreSQL is not written, and read only where a comment says why that is safe: the sources name it nowhere else.

use strict;
use warnings;

use FindBin;
use Test::More;

my $src = "$FindBin::RealBin/../src";

# Which sources name a pattern; comments count too, for they should not speak of what is not there.
sub named_in
{
	my ($pattern) = @_;
	my @found;

	foreach my $file (grep { !m{/src/(engine|server)/} } sort glob("$src/*.[ch] $src/*/*.[ch]"))
	{
		open(my $source, '<', $file) or die "$file: $!";
		my $text = do { local $/; <$source> };
		push @found, $file =~ s{.*/}{}r if $text =~ $pattern;
	}
	return join(' ', @found);
}

is(named_in(qr/buf_internals\.h/), 'buffer_hints.h', 'one header knows buffer descriptors');
is(named_in(qr/BufferDescriptorGetContentLock/), '', 'a page is locked by LockBuffer only');
is(named_in(qr/xs_cbuf|IndexFetchHeapData|heap_page_prune/), '', "the table's fetch and its pages are the table's");
is(named_in(qr/pthread/), '', 'a process that reads shared buffers has one thread: others are the engine\'s, which knows none');
is(named_in(qr/pgstat_info/), 'buffer_hints.c', 'counters of a relation are counted up where blocks are read');
is(named_in(qr/RM_GENERIC_ID/), 'append_wal.c', 'one file writes records in the form of another module');
done_testing();
