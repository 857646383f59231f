# gpuann_top shows what happens: rates of the time between two looks, those of the busiest index first, rows, lag and memory as the views have
# them; it goes on when counters are reset, says what is wrong, and needs no privilege.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib $FindBin::RealBin;
use GpuannTest;
use IPC::Run;
use PgSession;
use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my $top = "$FindBin::RealBin/../tools/gpuann_top";
my $dims = 8;
my $node = server_node('top');

# Run it: exit status, output, errors.
sub run_top
{
	my (@options) = @_;
	my ($out, $err) = ('', '');

	IPC::Run::run([ $^X, $top, '-h', $node->host, '-p', $node->port, @options ], '<', \undef, '>', \$out, '2>', \$err);
	return ($? >> 8, $out, $err);
}

# The line of an index, by its heading.
sub line_of
{
	my ($out, $index) = @_;
	my ($head) = $out =~ /^(INDEX .*)$/m;
	my ($line) = $out =~ /^(\Q$index\E .*)$/m;
	my (@heads, %line);

	return {} if !defined $line;
	@heads = split / {2,}/, $head;
	@line{@heads} = split / {2,}/, $line;
	return \%line;
}

make_data($node, 1000, $dims);
$node->safe_psql('postgres', 'CREATE TABLE others AS SELECT * FROM items; CREATE INDEX others_v ON others USING gpuann (v vector_l2_ops); CREATE ROLE watcher LOGIN');
ok(await_mirror($node), 'a mirror is there');
ok(await_mirror($node, 'others_v'), 'and another');

my ($rc, $out, $err) = run_top('-d', 'postgres', '-U', 'watcher', '-i', '0.2', '-n', '1');
is("$rc $err", '0 ', 'one look ends, by an ordinary role');
like($out, qr/^gpuann   \d\d:\d\d:\d\d  database postgres  \d+\.\d s$/m, 'it says when, where and over how long');
like($out, qr/^server   ready  \w+  .+  up \d\d:\d\d:\d\d  restarts 0$/m, 'it shows the server');
like($out, qr/^memory   \S+ [kM]?B of 512 MB used  context 0 B  in main memory 0 B of 0 B$/m, 'its memory') if engine() eq 'cpu';
like($out, qr/^mirrors  2 ready  0 loading$/m, 'and mirrors');
my $line = line_of($out, 'items_v');
is(join(' ', map { $line->{$_} } 'STATE', 'ROWS', 'PENDING', 'SCANS/s', 'SERVER', 'BATCH', 'LAG', 'CHANGES', 'EVICTED'), 'ready 1000 0 0 - - 0 0 0', 'an index at rest')
  or diag($out);
like($line->{MIRROR}, qr/^\d+(\.\d)? [kM]B$/, 'with the memory of its mirror');
unlike($out, qr/\e/, 'it moves no cursor where there is no terminal');

# Scans of one index by the server, of the other by the pages, all the time.
my @sessions = map { PgSession->new($node, settings => '-c enable_seqscan=off' . ($_->[1] // '')) } [ 'items' ], [ 'others', ' -c gpuann.server=off' ];
my $asking = "DO \$\$ BEGIN FOR i IN 1 .. 100000000 LOOP PERFORM id FROM %s ORDER BY v <-> vec(i %% 1000, $dims) LIMIT 3; COMMIT; END LOOP; END \$\$";
$sessions[0]->send(sprintf($asking, 'items'));
$sessions[1]->send(sprintf($asking, 'others'));
ok(await('both indexes are asked', sub { figure($node, 'server_answers') > 100 && figure($node, 'fallback_off', 'others_v') > 100 }), 'both indexes are asked');
($rc, $out, $err) = run_top('-d', 'postgres', '-i', '2', '-n', '2');
is("$rc $err", '0 ', 'two looks end');
is(scalar(my @looks = $out =~ /^INDEX /mg), 2, 'and show two screens');
$line = line_of($out, 'items_v');
cmp_ok($line->{'SCANS/s'} =~ s/k$/000/r, '>', 0, 'scans a second are shown');
is($line->{SERVER}, '100%', 'whom the server answers');
cmp_ok($line->{BATCH}, '>=', 1, 'how many queries are in a batch');
like("$line->{'QUEUE ms'} $line->{'ENGINE ms'}", qr/^\d+\.\d\d \d+\.\d\d$/, 'how long a query takes');
$line = line_of($out, 'others_v');
is($line->{SERVER}, '0%', 'whom the pages answer');
like($line->{'FALLBACKS/s'}, qr/^off \d/, 'and why');
like($out, qr/^rates    \S*[1-9]\S* requests\/s  \S*[1-9]\S* batches\/s  \S+ requests a batch$/m, 'requests and batches of the server are shown');
my @order = $out =~ /^(items_v|others_v) /mg;
my %rate = map { $_ => line_of($out =~ s/.*^(?=INDEX )//smr, $_)->{'SCANS/s'} } qw(items_v others_v);
is(scalar @order, 4, 'both indexes are in both') or diag($out);
SKIP:
{
	skip 'rates in thousands', 1 if grep { /k/ } values %rate;
	is($order[2], $rate{items_v} >= $rate{others_v} ? 'items_v' : 'others_v', 'the busier index comes first');
}

# Counters that begin anew between two looks.
my ($said, $complaint) = ('', '');
my $run = IPC::Run::start([ $^X, $top, '-h', $node->host, '-p', $node->port, '-d', 'postgres', '-i', '0.3', '-n', '6' ], '<', \undef, '>', \$said, '2>', \$complaint);
await('it looks', sub { $run->pump_nb; $said =~ /^INDEX/m });
$node->safe_psql('postgres', 'SELECT gpuann_stat_reset()');
$run->finish;
is($complaint, '', 'counters may be reset meanwhile');
unlike($said, qr/ -\d/, 'rates are never negative');

foreach my $session (@sessions)
{
	$node->safe_psql('postgres', 'SELECT pg_cancel_backend(' . $session->pid . ')');
	$session->receive;
	$session->close;
}

# A mirror that is refused, with the reason; rows that are pending.
$node->safe_psql('postgres', 'ALTER SYSTEM SET gpuann.pending_limit = 1000000; SELECT pg_reload_conf(); ALTER INDEX others_v SET (mirror = off)');
fill_rows($node, 2001, 2007, $dims);
($rc, $out, $err) = run_top('-d', 'postgres', '-i', '0.2', '-n', '1');
is(join(' ', map { line_of($out, 'items_v')->{$_} } 'ROWS', 'PENDING'), '1007 7', 'pending rows are shown') or diag($out);

# What is wrong.
($rc, $out, $err) = run_top('-d', 'nowhere', '-n', '1');
is($rc, 1, 'where it cannot connect it ends') or diag($out);
like($err, qr/^gpuann_top: .*database "nowhere" does not exist/s, 'and says why');
$node->safe_psql('postgres', 'CREATE DATABASE bare');
($rc, $out, $err) = run_top('-d', 'bare', '-n', '1');
like($err, qr/^gpuann_top: .*relation "gpuann_server_status" does not exist/s, 'a database without the extension is named as such');
is((run_top('-n', '1', 'more'))[0], 2, 'arguments that it does not know are refused');
like((run_top('--help'))[1], qr/^usage: gpuann_top /, 'it says how it is used');
($rc, $out, $err) = run_top('-d', 'postgres', '-n', '1', '--psql', '/nonexistent');
like("$rc $err", qr/^1 gpuann_top: cannot run \/nonexistent/, 'without psql it says so');

# Without a server.
$node->append_conf('postgresql.conf', "shared_preload_libraries = ''");
$node->restart;
($rc, $out, $err) = run_top('-d', 'postgres', '-i', '0.1', '-n', '1');
is("$rc $err", '0 ', 'it runs where gpuann is not preloaded');
like($out, qr/^server   off\nerror    gpuann is not in shared_preload_libraries\n\nINDEX .*\n\z/m, 'and says so');
$node->stop;
done_testing();
