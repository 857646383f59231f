# Words of the shared area that the server could have written make no view an error, neither now nor after a restart: what is no timestamp is null,
# and everything else in the row is as it was. I6.

use strict;
use warnings;

use Fcntl qw(SEEK_SET);
use FindBin;
use lib $FindBin::RealBin;
use GpuannTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my $node = server_node('main');

make_data($node, 500, 8);
ok(await_mirror($node), 'the mirror is there');

# The area, through the descriptor of it that the postmaster keeps.
sub area
{
	my $pid = (split /\n/, slurp_file($node->data_dir . '/postmaster.pid'))[0];
	my ($path) = grep { (readlink($_) // '') =~ /memfd:gpuann/ } glob("/proc/$pid/fd/*");

	open(my $file, '+<:raw', $path // '') or die "no area: $!";
	return $file;
}

# Write other words where the area has this one; returns how many there were.
sub replace
{
	my ($old, $new) = @_;
	my $file = area();
	my ($bytes, $found, $at) = ('', 0, -1);
	my ($from, $to) = (pack('q', $old), pack('q', $new));

	{
		local $/;
		$bytes = <$file>;
	}
	while (($at = index($bytes, $from, $at + 1)) >= 0)
	{
		next if $at % 8 != 0;
		seek($file, $at, SEEK_SET);
		syswrite($file, $to);
		$found++;
	}
	close $file;
	return $found;
}

sub in_order
{
	my ($what, $scans) = @_;

	is(figure($node, "scans || ' ' || coalesce(stats_reset::text, 'null')"), "$scans null", "$what: the view of indexes is in order");
}

# Too early, as -infinity, and what has no counterpart in PostgreSQL's microseconds since 2000; then one that is shown.
foreach my $word (-210866803200000001, -9222425352054775808, -9223372036854775808, 1)
{
	$node->safe_psql('postgres', "SELECT gpuann_stat_reset('items_v')");
	by_server($node);
	my $scans = figure($node, 'scans');
	my $reset = $node->safe_psql('postgres', "SELECT (extract(epoch FROM stats_reset) * 1000000)::bigint FROM pg_stat_gpuann");

	is(replace($reset, $word), 1, "$word is where the counters were reset");
	if ($word == 1)
	{
		is(figure($node, "stats_reset = 'epoch'::timestamptz + '1 microsecond'"), 't', 'a timestamp is shown');
		next;
	}
	in_order($word, $scans);
	$node->restart;
	ok(await_server($node), 'the server is back');
	in_order("$word, after a restart", $scans);
	ok(await_mirror($node), 'so is the mirror');
}

# When the server was started.
my $started = $node->safe_psql('postgres', 'SELECT extract(epoch FROM started)::bigint FROM gpuann_server_status');

foreach my $word (-9223372036854775808, 9223372036854775807, 9223372036855, -210866803201)
{
	cmp_ok(replace($started, $word), '>=', 1, "$word is where the server was started");
	is(status($node, "state || ' ' || coalesce(started::text, 'null') || ' ' || coalesce(uptime::text, 'null')"), 'ready null null',
		"$word: the view of the server is in order");
	$started = $word;
}
is(by_server($node, 'SET gpuann.exact = on;'), by_table($node), 'answers are right');
$node->stop;
done_testing();
