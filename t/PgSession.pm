# PgSession.pm
#		A session that a test can leave running: PostgreSQL's protocol over the Unix socket, simple queries only, no psql in between.
#
# query() waits for the answer; send() does not, is_done() looks, receive() waits. An answer is a hash: rows (each its columns joined by
# "|"), error (message, or ''), state (SQLSTATE), notices, lost (the connection ended).

package PgSession;

use strict;
use warnings;

use IO::Select;
use IO::Socket::UNIX;

# Connect; undef if there is nobody who answers, or who lets us in.
sub new
{
	my ($class, $node, %options) = @_;
	my $socket = IO::Socket::UNIX->new(Peer => $node->host . '/.s.PGSQL.' . $node->port) or return undef;
	my $self = bless { socket => $socket, buffer => '', select => IO::Select->new($socket) }, $class;
	my $startup = pack('N', 196608) . join("\0", 'user', scalar getpwuid($>), 'database', $options{dbname} // 'postgres',
		($options{settings} ? ('options', $options{settings}) : ())) . "\0\0";

	local $SIG{PIPE} = 'IGNORE';
	$socket->syswrite(pack('N', 4 + length $startup) . $startup);
	$self->{busy} = 1;
	my $answer = $self->receive;
	return $answer->{lost} || $answer->{error} ne '' ? undef : $self;
}

sub pid
{
	my ($self) = @_;
	return $self->{pid};
}

sub send
{
	my ($self, $sql) = @_;

	die 'the session is busy' if $self->{busy};
	local $SIG{PIPE} = 'IGNORE';
	$self->{socket}->syswrite('Q' . pack('N', 5 + length $sql) . "$sql\0");
	$self->{busy} = 1;
}

# Whether receive() would not wait, after so many seconds at most.
sub is_done
{
	my ($self, $seconds) = @_;
	my $end = time + ($seconds // 0);

	while (!$self->message_is_there)
	{
		return 0 if !$self->{select}->can_read($end > time ? $end - time : 0);
		return 1 if !$self->fill;
	}
	return 1;
}

# Read more; false at the end of the connection.
sub fill
{
	my ($self) = @_;
	my $read = $self->{socket}->sysread($self->{buffer}, 65536, length $self->{buffer});

	return defined $read && $read > 0;
}

# Whether the buffer holds everything up to ReadyForQuery.
sub message_is_there
{
	my ($self) = @_;
	my $at = 0;

	while (length($self->{buffer}) >= $at + 5)
	{
		my ($type, $length) = unpack("x$at a N", $self->{buffer});

		return 0 if length($self->{buffer}) < $at + 1 + $length;
		return 1 if $type eq 'Z';
		$at += 1 + $length;
	}
	return 0;
}

sub receive
{
	my ($self) = @_;
	my %answer = (rows => [], error => '', state => '', notices => [], lost => 0);

	die 'nothing was sent' if !$self->{busy};
	for (;;)
	{
		while (length($self->{buffer}) < 5 || length($self->{buffer}) < 1 + unpack('x N', $self->{buffer}))
		{
			next if $self->fill;
			return { %answer, lost => 1 };
		}
		my ($type, $length) = unpack('a N', $self->{buffer});
		my $body = substr($self->{buffer}, 5, $length - 4);
		substr($self->{buffer}, 0, 1 + $length) = '';

		if ($type eq 'D')
		{
			my ($count, @columns) = (unpack('n', $body));
			my $at = 2;

			for (1 .. $count)
			{
				my $bytes = unpack("x$at N", $body);

				$at += 4;
				push @columns, $bytes == 0xFFFFFFFF ? '' : substr($body, $at, $bytes);
				$at += $bytes if $bytes != 0xFFFFFFFF;
			}
			push @{ $answer{rows} }, join('|', @columns);
		}
		elsif ($type eq 'E' || $type eq 'N')
		{
			my %field = map { (substr($_, 0, 1) => substr($_, 1)) } grep { $_ ne '' } split /\0/, $body;

			if ($type eq 'E') { $answer{error} ||= $field{M}; $answer{state} ||= $field{C}; }
			else { push @{ $answer{notices} }, $field{M}; }
		}
		elsif ($type eq 'K') { $self->{pid} = unpack('N', $body); }
		elsif ($type eq 'Z')
		{
			$self->{busy} = 0;
			return \%answer;
		}
	}
}

sub query
{
	my ($self, $sql) = @_;

	$self->send($sql);
	return $self->receive;
}

# The rows of a statement that must not fail, as one string.
sub rows
{
	my ($self, $sql) = @_;
	my $answer = $self->query($sql);

	die "$sql: $answer->{error}" . ($answer->{lost} ? ' (the connection was lost)' : '')
	  if $answer->{error} ne '' || $answer->{lost};
	return join("\n", @{ $answer->{rows} });
}

sub close
{
	my ($self) = @_;

	local $SIG{PIPE} = 'IGNORE';
	$self->{socket}->syswrite('X' . pack('N', 4));
	$self->{socket}->close;
}

1;
