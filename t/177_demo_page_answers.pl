# demo/web answers with what the paths give and what the table says, on the loopback address only, and refuses what other sites send, what is no
# request of the page, and texts that would be SQL. How the page looks in a browser is for tools/check-browser.

use strict;
use warnings FATAL => 'all';

use FindBin;
use IO::Select;
use IO::Socket::INET;
use IPC::Run;
use JSON::PP;
use lib $FindBin::RealBin;
use GpuannTest;
use PgSession;
use PostgreSQL::Test::Utils;
use ServerTest;
use Test::More;

my $top = "$FindBin::RealBin/..";
plan skip_all => 'there is no Python 3.9 or newer' if system("python3 -c 'import ctypes, sys; sys.exit(sys.version_info < (3, 9))' >/dev/null 2>&1") != 0;

# The demo's schema with packages whose names are SQL, HTML, or of other letters, and two questions.
my $node = server_node('page');
$node->safe_psql('postgres', slurp_file("$top/demo/sql/schema.sql") =~ s/^CREATE EXTENSION.*$//mr);
$node->safe_psql('postgres', q{
	INSERT INTO packages SELECT i, CASE i WHEN 1 THEN 'gimp' WHEN 2 THEN 'gimp-data' WHEN 3 THEN E'o''; DROP TABLE packages; --' WHEN 4 THEN '<b>bold</b>'
		WHEN 5 THEN 'größe%_\\' ELSE 'package' || i END, 'section', i, 'summary of ' || i, vec(i, 384)::halfvec FROM generate_series(1, 300) i;
	INSERT INTO queries SELECT i, NULLIF(i, 1), 'question ' || i, vec(1000 + i, 384)::halfvec FROM generate_series(0, 1) i;
	CREATE INDEX packages_gpuann ON packages USING gpuann (embedding halfvec_l2_ops); ANALYZE});
# So few rows are read faster from the table.
$node->safe_psql('postgres', 'ALTER DATABASE postgres SET enable_seqscan = off');
ok(await('the mirror is ready', sub {
	$node->safe_psql('postgres', 'SELECT id FROM packages ORDER BY embedding <-> (SELECT embedding FROM packages WHERE id = 1) LIMIT 1');
	return figure($node, 'state', 'packages_gpuann') eq 'ready';
}), 'a mirror is there');

# Once it may go on as another account, no module is imported and no file of its own is read: that account may be unable to.
my $confined = <<'END';
import runpy, sys
web, armed = sys.argv[1], []
def hook(event, args):
    if armed and (event == "import" or event == "open" and str(args[0]).startswith(web.rpartition("/")[0])):
        print("refused:", event, args[0], file=sys.stderr, flush=True)
        raise ImportError(str(args[0]))
def profile(frame, event, arg):
    if event == "return" and frame.f_code.co_name == "become_owner":
        armed.append(True)
        sys.setprofile(None)
sys.addaudithook(hook)
sys.setprofile(profile)
sys.argv = sys.argv[1:]
runpy.run_path(web, run_name="__main__")
END
my ($out, $err) = ('', '');
my $web = IPC::Run::start([ 'python3', '-c', $confined, "$top/demo/web", '--port', 0, '-h', $node->host, '-p', $node->port, '-d', 'postgres', '-U', $node->safe_psql('postgres', 'SELECT user') ],
	'<', '/dev/null', '>', \$out, '2>', \$err);
# A test that dies leaves nothing behind.
END { local $?; $web->kill_kill if $web && $web->pumpable; }
ok(await('it says where it is', sub { $web->pump_nb; $out =~ m{^http://127\.0\.0\.1:(\d+)/} || !$web->pumpable }), 'it starts') or diag($err);
my ($port) = $out =~ m{:(\d+)/};

# Send a request as it stands; its status and body.
sub request
{
	my ($text) = @_;
	my $socket = IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $port, Timeout => 60) or return (0, "no connection: $!");

	print $socket $text;
	my $answer = do { local $/; <$socket> } // '';
	my ($status, $head, $body) = $answer =~ m{\AHTTP/1\.\d (\d+)(.*?)\r\n\r\n(.*)\z}s;
	return ($status // 0, $body // $answer, $head // '');
}

# Ask as the page does, with other headers if there are any.
sub get
{
	my ($path, %header) = @_;
	%header = (Host => "127.0.0.1:$port", 'X-Gpuann-Demo' => 1, %header);
	return request("GET $path HTTP/1.0\r\n" . join('', map { "$_: $header{$_}\r\n" } grep { defined $header{$_} } sort keys %header) . "\r\n");
}

sub value
{
	my ($path) = @_;
	my ($status, $body) = get($path);

	is($status, 200, "$path: is answered") or diag($body);
	return decode_json($body);
}

sub escaped { return $_[0] =~ s/([^A-Za-z0-9])/sprintf('%%%02X', ord $1)/ger; }

# ---- answers ----

is_deeply([ map { $_->{name} } @{ value('/api/matches?text=GIMP')->{packages} } ], [qw(gimp gimp-data)], 'packages by a part of their name, the shortest first');
is_deeply([ map { $_->{query} } @{ value('/api/matches?text=stion')->{questions} } ], [ 'question 0', 'question 1' ], 'and questions');
is_deeply([ map { $_->{query} } @{ value('/api/about')->{questions} } ], ['question 0'], 'those that the demo shows are offered');

foreach my $asked ([ 'package=gimp', 'packages', 1 ], [ 'question=1', 'queries', 1 ])
{
	my ($key, $table, $id) = @$asked;
	my $found = value("/api/near?$key&ef=100");
	my @nearest = split /\n/, $node->safe_psql('postgres', "SET enable_indexscan = off; SET enable_seqscan = on; SELECT name FROM packages
		ORDER BY embedding <-> (SELECT embedding FROM $table WHERE id = $id), id LIMIT 10");
	my %path = map { $_->{method} => $_ } @{ $found->{paths} };

	is(join(' ', map { $_->{method} } @{ $found->{paths} }), 'server pages exact', "$key: by all paths");
	is("$path{server}{answered} $path{server}{engine}", 'server ' . engine(), "$key: by the server");
	# Of so few rows comparing all may be cheaper than a search.
	like("$path{pages}{answered} $path{pages}{reason}", qr/^(pages|exact) off$/, "$key: by the pages");
	is($path{exact}{answered}, 'table', "$key: by the table, without a scan of the index");
	foreach my $method (qw(server pages exact))
	{
		is_deeply([ sort map { $_->{name} } @{ $path{$method}{rows} } ], [ sort @nearest ], "$key: $method gives the nearest");
		is("$path{$method}{hits} of $path{$method}{of}", '10 of 10', "$key: $method finds all");
		cmp_ok($path{$method}{ms}, '>', 0, "$key: $method took a time");
	}
}
my $few = value('/api/near?package=gimp&ef=1')->{paths};
is(scalar @{ $_->{rows} }, 10, "ef 1: $_->{method} gives ten all the same") foreach @$few;

my $before = value('/api/statistics');
my $load = value('/api/load?clients=2');
my $after = value('/api/statistics');
cmp_ok($load->{answers}, '>=', 1, 'a load asks');
ok(await('counters have it', sub { $after = decode_json((get('/api/statistics'))[1]); $after->{scans} - $before->{scans} >= $load->{answers} }), 'and the views count it');
is($after->{state}, 'ready', 'the server is ready');

# ---- texts stay texts ----

foreach my $name (q{o'; DROP TABLE packages; --}, '<b>bold</b>', "gr\xc3\xb6\xc3\x9fe%_\\")
{
	is(value('/api/near?package=' . escaped($name))->{paths}[0]{rows}[0]{distance}, 0, "a package of a strange name is found: $name");
	cmp_ok(scalar @{ value('/api/matches?text=' . escaped(substr($name, 0, 9)))->{packages} }, '==', 1, 'and offered');
}
is(scalar @{ value('/api/matches?text=' . escaped($_))->{packages} }, $_ eq '%' || $_ eq '_' || $_ eq '\\' ? 1 : 0, "$_ is no pattern and ends nothing")
  foreach '%', '_', '\\', q{' OR true --}, '$1', '%%';
foreach my $bad ('near?package=', 'near?package=%00', 'near?package=a%00b', 'near?package=' . 'a' x 201, 'near?question=-1', 'near?question=1;drop', 'near?question=1e3',
	'near?question=' . '9' x 30, 'near?package=gimp&ef=0', 'near?package=gimp&ef=1001', 'near?package=gimp&ef=x', 'near?package=gimp&ef=%D9%A1', 'matches', 'load?clients=17', 'load?clients=0')
{
	my ($status, $body) = get("/api/$bad");
	is($status, 400, substr($bad, 0, 40) . ' is refused') or diag($body);
}
is((get("/api/$_"))[0], 404, "$_ is not there") foreach 'near?package=nothing', 'near?question=77', 'drop', '../web';
is((get('http://[x/'))[0], 400, 'an address that is none is refused');
is((get($_))[0], 404, "$_ is not there") foreach '/page', '/index.html', '/../web', '/../../etc/passwd', '/%2e%2e/web', '//etc/passwd';
is($node->safe_psql('postgres', 'SELECT count(*) FROM packages'), 300, 'nothing was dropped');

# ---- the page, and who may ask ----

foreach my $file ([ '/', 'text/html', 'index.html' ], [ '/style.css', 'text/css', 'style.css' ], [ '/page.js', 'text/javascript', 'page.js' ])
{
	my ($path, $kind, $name) = @$file;
	my ($status, $body, $head) = get($path, 'X-Gpuann-Demo' => undef);

	is($status, 200, "$path is sent");
	is($body, slurp_file("$top/demo/page/$name"), "$path: the file");
	like($head, qr/^Content-Type: $kind;/mi, "$path: its kind");
	like($head, qr/^Content-Security-Policy: default-src 'none'; script-src 'self';/mi, "$path: nothing from elsewhere is to be loaded");
	unlike($body, qr{https?://|innerHTML|insertAdjacentHTML|document\.write|\beval\(|\sstyle="|\son\w+="}, "$path: nor is anything named, nor made of texts");
}
is((get('/api/about', 'X-Gpuann-Demo' => undef))[0], 403, 'a request without the header of the page is refused');
is((get('/api/about', 'Sec-Fetch-Site' => $_))[0], 403, "one that comes from another site ($_) too") foreach qw(cross-site same-site);
is((get('/api/about', 'Sec-Fetch-Site' => $_))[0], 200, "one of ours ($_) is not") foreach qw(same-origin none);
foreach my $host ('example.org', "example.org:$port", '127.0.0.1', "127.0.0.1:1$port", "127.0.0.1:$port.example.org", "127.0.0.1:$port\r\nHost: example.org", undef)
{
	is((get($_, Host => $host))[0], 403, 'Host ' . (($host // 'missing') =~ s/\r\n/, /r) . ": $_ is refused") foreach '/', '/api/about';
}
is((get('/api/about', Host => "localhost:$port"))[0], 200, 'localhost is this page');
is((request("$_ /api/about HTTP/1.0\r\nHost: 127.0.0.1:$port\r\nX-Gpuann-Demo: 1\r\nContent-Length: 0\r\n\r\n"))[0], 501, "$_ is refused")
  foreach qw(POST PUT DELETE OPTIONS HEAD CONNECT);

# Only the loopback address listens: no line of the kernel's table has this port on another.
my $hex = sprintf('%04X', $port);
my @listening = map { /^\s*\d+: ([0-9A-F]+):$hex [0-9A-F:]+ 0A / ? $1 : () } split /\n/, slurp_file('/proc/net/tcp') . slurp_file('/proc/net/tcp6');
is(join(' ', @listening), '0100007F', 'it listens on 127.0.0.1 alone');

# ---- too many at once ----

# Who asks while the packages are locked waits; as many as may not wait are told so.
my $locker = PgSession->new($node);
$locker->rows('BEGIN; LOCK packages');
my ($at_once) = slurp_file("$top/demo/web") =~ /^AT_ONCE = (\d+)/m;
my $asking = IO::Select->new;
foreach my $number (1 .. $at_once + 3)
{
	my $socket = IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $port, Timeout => 60) or die "no connection: $!";

	$socket->print("GET /api/matches?text=gimp HTTP/1.0\r\nHost: 127.0.0.1:$port\r\nX-Gpuann-Demo: 1\r\n\r\n");
	$socket->flush;
	$asking->add($socket);
}
ok(await('some are refused', sub { my @answered = $asking->can_read(0); @answered >= 3 }), "beside $at_once that wait none is let in");
foreach my $socket ($asking->can_read(0))
{
	my $answer = do { local $/; <$socket> } // '';

	like($answer, qr{\AHTTP/1\.\d 503 .*^Retry-After: 1\r?$}ms, 'who is not is told when to ask again');
	$asking->remove($socket);
}
is((get('/'))[0], 200, 'the page itself waits for nobody');
$locker->rows('ROLLBACK');
my @ended = map { my $answer = do { local $/; <$_> } // ''; $answer =~ m{\AHTTP/1\.\d (\d+)} ? $1 : 'none' } $asking->handles;
is(join(' ', @ended), join(' ', (200) x $at_once), 'who waits is answered');
ok(await('places are free', sub { (get('/api/about'))[0] == 200 }), 'and places are free again');
$locker->close;

# ---- it outlives the cluster's restart, and ends when told to ----

$node->restart;
ok(await('answers come again', sub { (get('/api/near?package=gimp'))[0] == 200 }), 'sessions that broke are made again');
$web->signal('TERM');
ok($web->finish, 'it ends in order');
unlike($err, qr/Traceback|^refused: /m, 'it met nothing unforeseen, and needed nothing more of the account that started it') or diag($err);
$node->stop;

done_testing();
