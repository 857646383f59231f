# Random operations of several sessions, the index against a plain table that takes the same changes: exact answers are equal, a drained
# scan gives every row once, whatever came before it, crashes too. From pages alone, and with server and mirror worker.
#
# Sessions act one after another, but their transactions overlap; who writes which row is settled, so nobody waits. The seed printed
# reproduces a run: GPUANN_SEED=... GPUANN_LONG=1 makes the run long.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use GpuannTest;
use PgSession;
use Time::HiRes qw(sleep time);
use Test::More;

my $sessions = 4;
my $epochs = $ENV{GPUANN_LONG} ? 40 : 4;
my $operations = $ENV{GPUANN_LONG} ? 5000 : 2000;	# of each epoch
my $most_seconds = $ENV{GPUANN_LONG} ? 1500 : 100;	# on a slow machine the run ends early
my $seed = $ENV{GPUANN_SEED} // int(rand(2**31));

my ($node, $with_server, @sessions, $class, $dims, $indexed, $next_id, @done, $failed, %count);

sub pick { return $_[int(rand(@_))]; }
sub chance { return rand() < $_[0]; }

# A value and whether it is indexed. Small whole numbers: distances are exact in single precision, and many are equal.
sub value
{
	my @elements;
	my $zero = chance(0.02);

	return ('NULL', 'false') if chance(0.03);
	srand_vector() if chance(0.1);
	return ("B'" . join('', map { $zero ? 0 : int(rand(2)) } 1 .. $dims) . "'", 'true') if $class->{type} eq 'bit';
	@elements = chance(0.1) ? (1) x $dims : map { $zero ? 0 : int(rand(17)) - 8 } 1 .. $dims;
	return ("'[" . join(',', @elements) . "]'",
		$class->{operator} eq '<=>' && !grep({ $_ != 0 } @elements) ? 'false' : 'true');
}

sub srand_vector { rand() for 1 .. 3; }

sub query_value
{
	my ($value, $is_indexed);

	do { ($value, $is_indexed) = value(); } until $is_indexed eq 'true';
	return $value . ($class->{type} eq 'bit' ? "::bit($dims)" : "::$class->{type}");
}

# Note a failure, once.
sub wrong
{
	my ($what) = @_;

	return if $failed;
	$failed = 1;
	fail("seed $seed: $what");
	diag("operator class $class->{name}, $dims dimensions; the last of " . @done . " operations:\n" . join("\n", @done[ -12 .. -1 ]));
}

# Let a session do something that must not fail; returns its rows.
sub act
{
	my ($session, $kind, $sql) = @_;
	my $answer;

	push @done, "$session->{number}: $sql";
	$answer = $session->{connection}->query($sql);
	wrong("$kind: $answer->{error}" . ($answer->{lost} ? 'the connection was lost' : '')) if $answer->{error} ne '' || $answer->{lost};
	return $answer->{rows};
}

# The same change to both tables.
sub change
{
	my ($session, $kind, $sql) = @_;

	act($session, $kind, "$sql; " . $sql =~ s/\bitems\b/plain/r);
}

sub own_ids
{
	my ($session, $most) = @_;

	return join(',', map { int(rand($next_id / $sessions + 1)) * $sessions + $session->{number} } 1 .. 1 + int(rand($most)));
}

sub insert_rows
{
	my ($session) = @_;
	my @rows;

	for (1 .. 1 + int(rand(chance(0.05) ? 400 : 12)))
	{
		my ($value, $is_indexed) = value();

		push @rows, '(' . ($next_id * $sessions + $session->{number}) . ", $value, " . int(rand(10)) . ", $is_indexed)";
		$next_id++;
	}
	change($session, 'insert', 'INSERT INTO items VALUES ' . join(', ', @rows));
}

sub update_rows
{
	my ($session) = @_;
	my ($value, $is_indexed) = value();

	change($session, 'update', "UPDATE items SET v = $value, indexed = $is_indexed WHERE id IN (" . own_ids($session, 10) . ')');
}

sub touch_rows
{
	my ($session) = @_;
	change($session, 'touch', 'UPDATE items SET w = (w + 1) % 10 WHERE id IN (' . own_ids($session, 40) . ')');
}

sub delete_rows
{
	my ($session) = @_;

	return change($session, 'delete', "DELETE FROM items WHERE id % $sessions = $session->{number} AND w = " . int(rand(10))) if chance(0.1);
	change($session, 'delete', 'DELETE FROM items WHERE id IN (' . own_ids($session, 30) . ')');
}

# An error inside a transaction, or inside a savepoint.
sub bad_insert
{
	my ($session) = @_;
	my $sql = 'INSERT INTO items VALUES (1, ' . ($class->{type} eq 'bit' ? "B'1'" : "'[1]'") . ', 1, true)';
	my $savepoint = $session->{depth} > 0;

	return if $dims == 1;
	act($session, 'savepoint', 'SAVEPOINT before_error') if $savepoint;
	change($session, 'insert', 'INSERT INTO items SELECT -1 - id, v, w, indexed FROM items WHERE id IN (' . own_ids($session, 5) . ')') if $savepoint;
	push @done, "$session->{number}: $sql";
	wrong('an insert of wrong dimensions succeeded') if $session->{connection}->query($sql)->{error} eq '';
	act($session, 'rollback', 'ROLLBACK TO before_error; RELEASE before_error') if $savepoint;
}

sub begin
{
	my ($session) = @_;

	if ($session->{depth} == 0)
	{
		act($session, 'begin', 'BEGIN' . pick('', ' ISOLATION LEVEL REPEATABLE READ'));
	}
	else
	{
		return if $session->{depth} > 5;
		act($session, 'savepoint', "SAVEPOINT s$session->{depth}");
	}
	$session->{depth}++;
}

# End a savepoint or the transaction, one way or the other; a few are prepared first.
sub end
{
	my ($session) = @_;
	my $good = chance(0.7);

	return if $session->{depth} == 0;
	close_cursor($session) if $session->{cursor} && $session->{cursor} >= $session->{depth};
	$session->{depth}--;
	if ($session->{depth} > 0)
	{
		act($session, 'end', $good ? "RELEASE s$session->{depth}" : "ROLLBACK TO s$session->{depth}; RELEASE s$session->{depth}");
	}
	elsif (chance(0.1))
	{
		act($session, 'prepare', "PREPARE TRANSACTION 't$session->{number}'");
		link_rows() if chance(0.5);
		act($session, 'end', ($good ? 'COMMIT' : 'ROLLBACK') . " PREPARED 't$session->{number}'");
	}
	else
	{
		act($session, 'end', $good ? 'COMMIT' : 'ROLLBACK');
	}
}

sub end_all
{
	my ($session) = @_;
	end($session) while $session->{depth} > 0 && !$failed;
}

# Where scans of a session take their answers from, and how.
sub scan_settings
{
	my ($exact) = @_;

	return 'SET gpuann.exact = ' . ($exact ? 'on' : 'off') . '; SET gpuann.ef_search = ' . pick(1, 5, 40, 200)
	  . '; SET gpuann.probes = ' . pick(-1, 1, 1000) . '; SET gpuann.rerank = ' . pick(-1, -1, 1, 20) . '; SET gpuann.iterative_scan = ' . pick('complete', 'relaxed_order')
	  . '; SET work_mem = ' . pick("'64kB'", "'4MB'") . '; SET gpuann.server = ' . ($with_server ? pick('on', 'off') : 'off') . '; ';
}

# "id|distance" of both tables: the same distances, the same rows but for those at the last distance.
sub compare_nearest
{
	my ($session) = @_;
	my $query = query_value();
	my $limit = pick(1, 5, 20, 100, 1000);
	my $filter = chance(0.2) ? 'w = ' . int(rand(10)) : 'true';
	my $nearest = "SELECT '%s', id, (v $class->{operator} $query)::float8 FROM %s WHERE $filter%s ORDER BY v $class->{operator} $query LIMIT $limit; ";
	my $rows = act($session, 'nearest', scan_settings(1) . sprintf($nearest, 'items', 'items', '') . sprintf($nearest, 'plain', 'plain', ' AND indexed'));
	my (%distances, %ids);

	foreach my $row (@$rows)
	{
		my ($table, $id, $distance) = split /\|/, $row;

		push @{ $distances{$table} }, $distance;
		$ids{$table}{$id} = $distance;
	}
	my @found = @{ $distances{items} // [] };
	my @right = @{ $distances{plain} // [] };
	my $last = @right ? $right[-1] - 1e-5 : 0;

	return wrong('exact: ' . @found . ' rows rather than ' . @right) if @found != @right;
	wrong('exact: other distances') if grep { abs($found[$_] - $right[$_]) > 1e-5 } 0 .. $#right;
	wrong('exact: other rows') if grep { $ids{plain}{$_} < $last && !exists $ids{items}{$_} } keys %{ $ids{plain} // {} };
}

# Every row of the table, each once.
sub compare_all
{
	my ($session) = @_;
	my $query = query_value();
	my $rows = act($session, 'drain', scan_settings(chance(0.2))
		  . "SELECT count(*), count(DISTINCT id), sum(id) FROM (SELECT id FROM items ORDER BY v $class->{operator} $query) s;"
		  . 'SELECT count(*), count(DISTINCT id), sum(id) FROM plain WHERE indexed');

	wrong("drained: $rows->[0] rather than $rows->[1]") if @$rows == 2 && $rows->[0] ne $rows->[1];
}

# A cursor that others change the table under.
sub open_cursor
{
	my ($session) = @_;

	return if $session->{depth} == 0 || $session->{cursor};
	$session->{cursor} = $session->{depth};
	act($session, 'cursor', scan_settings(chance(0.2)) . "DECLARE c CURSOR FOR SELECT id FROM items ORDER BY v $class->{operator} " . query_value()
		  . '; DECLARE p CURSOR FOR SELECT id FROM plain WHERE indexed');
	$session->{fetched} = [];
}

sub fetch_cursor
{
	my ($session) = @_;
	push @{ $session->{fetched} }, @{ act($session, 'fetch', 'FETCH ' . pick(1, 10, 100) . ' FROM c') } if $session->{cursor};
}

sub close_cursor
{
	my ($session) = @_;
	my $rest = act($session, 'fetch', 'FETCH ALL FROM c');
	my $right = act($session, 'fetch', 'FETCH ALL FROM p');
	my @found = sort { $a <=> $b } @{ $session->{fetched} }, @$rest;

	wrong('a cursor gave ' . @found . ' rows rather than ' . @$right) if "@found" ne join(' ', sort { $a <=> $b } @$right);
	act($session, 'close', 'CLOSE c; CLOSE p');
	$session->{cursor} = 0;
}

# ---- what is done to the index; the last session is never in a transaction ----

sub keeper { return $sessions[-1]; }

# Freezing waits for pages that cursors have pinned.
sub vacuum
{
	my $options = pick('', '(FREEZE) ', '(PARALLEL 2) ');

	$options = '' if $options =~ /FREEZE/ && grep { $_->{cursor} } @sessions;
	act(keeper(), 'vacuum', "VACUUM ${options}items");
}

sub link_rows { act(keeper(), 'link', "SELECT gpuann_link('items_v')"); }

sub check
{
	end_all($_) foreach @sessions;
	act(keeper(), 'check', "SELECT gpuann_check('items_v')");
}

sub rebuild
{
	end_all($_) foreach @sessions;
	act(keeper(), 'rebuild', pick('REINDEX INDEX items_v', 'REINDEX INDEX CONCURRENTLY items_v', 'REINDEX TABLE CONCURRENTLY items',
			'BEGIN; DROP INDEX items_v; ROLLBACK', "DROP INDEX items_v; $class->{create}", 'VACUUM FULL items',
			"BEGIN; REINDEX INDEX items_v; INSERT INTO items SELECT * FROM items WHERE false; ROLLBACK",
			'ALTER INDEX items_v SET TABLESPACE elsewhere', 'ALTER INDEX items_v SET TABLESPACE pg_default',
			'ALTER TABLE items SET UNLOGGED; ALTER TABLE items SET LOGGED'));
}

sub truncate
{
	my $session = keeper();

	end_all($_) foreach @sessions;
	change($session, 'truncate', 'BEGIN; TRUNCATE items') if chance(0.5);
	act($session, 'truncate', pick('ROLLBACK', 'BEGIN; TRUNCATE items; TRUNCATE plain; INSERT INTO items SELECT * FROM plain; COMMIT'));
}

sub settings
{
	act($_, 'settings', 'SET gpuann.pending_limit = ' . pick(0, 50, 1000, 100000) . '; SET maintenance_work_mem = ' . pick("'1MB'", "'16MB'"))
	  foreach @sessions;
}

sub crash
{
	push @done, 'crash';
	$node->stop('immediate');
	$node->start;
	connect_all();
}

sub connect_all
{
	@sessions = map {
		{
			number => $_, depth => 0, cursor => 0,
			connection => PgSession->new($node, settings => '-cenable_seqscan=off -cenable_sort=on -cclient_min_messages=warning -csynchronous_commit=off -cstatement_timeout=120s')
		}
	} 0 .. $sessions;
}

# What is done how often; the second number is of a session in a transaction.
my @weights = (
	[ \&insert_rows, 20 ], [ \&update_rows, 15 ], [ \&touch_rows, 6 ], [ \&delete_rows, 8 ], [ \&bad_insert, 2 ], [ \&begin, 12 ], [ \&end, 14 ],
	[ \&compare_nearest, 10 ], [ \&compare_all, 5 ], [ \&open_cursor, 4 ], [ \&fetch_cursor, 8 ],
	[ \&vacuum, 1.5 ], [ \&link_rows, 1.5 ], [ \&check, 0.4 ], [ \&rebuild, 0.25 ], [ \&truncate, 0.08 ], [ \&settings, 0.2 ], [ \&crash, 0.08 ]);
my $weight = 0;
$weight += $_->[1] foreach @weights;

sub epoch
{
	my ($classes, $end) = @_;
	my $type;

	$class = { %{ pick(@$classes) } };
	$dims = $class->{type} eq 'bit' ? pick(1, 16, 100) : pick(1, 3, 8, 40, chance(0.2) ? 900 : 16);
	$type = "$class->{type}($dims)";
	my $m = pick(2, 4, 16);
	my $options = "m = $m, ef_construction = " . pick(2 * $m, 64);
	$options = 'method = ivfpq, lists = ' . pick(1, 5, 40) . ', ' . pick('code_bits = 1', 'code_bits = 5', 'quantizer = int8', 'quantizer = pq')
	  if $class->{name} =~ /_(l2|ip|cosine)_ops$/ && chance(0.4);
	# What filters and updates are of, in every second table.
	my $include = pick('', 'INCLUDE (w, id)');
	$class->{create} = "CREATE INDEX items_v ON items USING gpuann (v $class->{name}) $include WITH ($options)";
	$next_id = 1;
	@done = ();
	connect_all() if !@sessions;
	# A crash that comes soon takes no table along.
	act(keeper(), 'create', "SET LOCAL synchronous_commit = on; DROP TABLE IF EXISTS items, plain; CREATE TABLE items (id int, v $type, w int, indexed bool)
		WITH (fillfactor = " . pick(100, 70) . ", vacuum_truncate = off); CREATE TABLE plain (LIKE items); $class->{create}");
	settings();
	foreach (1 .. $operations)
	{
		my $at = rand() * $weight;
		my $session = $sessions[ int(rand($sessions)) ];

		foreach my $one (@weights)
		{
			next if ($at -= $one->[1]) >= 0;
			$one->[0]->($session);
			last;
		}
		return if $failed || time > $end;
		splice(@done, 0, 1000) if @done > 2000;
		$count{operations}++;
	}
	check();
	compare_all(keeper());
}

foreach my $where ('pages', 'server')
{
	$with_server = $where eq 'server';
	$node = new_node("random_$where", preload => $with_server ? 'gpuann' : '',
		conf => [ 'max_prepared_transactions = 10', 'allow_in_place_tablespaces = on', $with_server ? 'gpuann.engine = cpu' : '' ]);
	$node->safe_psql('postgres', "CREATE TABLESPACE elsewhere LOCATION ''");

	my @classes = map { my %class; @class{qw(name type operator)} = split /\|/; \%class } split /\n/, $node->safe_psql('postgres', q{
		SELECT DISTINCT opcname, typname, oprname FROM pg_opclass JOIN pg_am ON pg_am.oid = opcmethod AND amname = 'gpuann'
		JOIN pg_type ON pg_type.oid = opcintype JOIN pg_amop ON amopfamily = opcfamily AND amoplefttype = opcintype
		JOIN pg_operator ON pg_operator.oid = amopopr ORDER BY 1});
	my $end = time + $most_seconds / 2;

	srand($seed);
	note("seed $seed, $where, operator classes: " . join(' ', map { $_->{name} } @classes));
	$failed = 0;
	%count = (operations => 0);
	@sessions = ();
	foreach (1 .. $epochs / 2)
	{
		epoch(\@classes, $end) if !$failed && time < $end;
	}
	ok(!$failed, "$where: seed $seed");
	note("$count{operations} operations");
	$_->{connection}->close foreach @sessions;
	$node->stop($failed ? 'immediate' : 'fast');
}

done_testing();
