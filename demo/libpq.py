"""libpq.py
As much of libpq as the demo's page needs, by ctypes: PostgreSQL's client library is on every machine that runs the
demo, a driver for Python is not. Values travel as parameters, never inside a statement.
"""
import ctypes
import ctypes.util
import os
import subprocess

CONNECTION_OK = 0
COMMAND_OK = 1
TUPLES_OK = 2


class DatabaseError(Exception):
    """What the server, or libpq, says went wrong."""


def find_library(bindir):
    """Load libpq: the system's, or that of the PostgreSQL whose programs are in bindir."""
    for name in filter(None, ["libpq.so.5", ctypes.util.find_library("pq")]):
        try:
            return declare(ctypes.CDLL(name))
        except OSError:
            continue
    if bindir:
        libdir = subprocess.run([os.path.join(bindir, "pg_config"), "--libdir"], capture_output=True, text=True)
        return declare(ctypes.CDLL(os.path.join(libdir.stdout.strip(), "libpq.so.5")))
    raise DatabaseError("libpq was not found (Debian: libpq5)")


def declare(library):
    """Give the functions that are used their types."""
    pointer, text, number = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int
    texts, numbers = ctypes.POINTER(text), ctypes.POINTER(number)
    for name, result, arguments in (
            ("PQconnectdbParams", pointer, [texts, texts, number]),
            ("PQstatus", number, [pointer]),
            ("PQerrorMessage", text, [pointer]),
            ("PQfinish", None, [pointer]),
            ("PQprepare", pointer, [pointer, text, text, number, pointer]),
            ("PQexecPrepared", pointer, [pointer, text, number, texts, numbers, numbers, number]),
            ("PQresultStatus", number, [pointer]),
            ("PQresultErrorMessage", text, [pointer]),
            ("PQntuples", number, [pointer]),
            ("PQnfields", number, [pointer]),
            ("PQgetisnull", number, [pointer, number, number]),
            ("PQgetvalue", text, [pointer, number, number]),
            ("PQclear", None, [pointer])):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


def encoded(value):
    """A parameter as libpq takes it: text in UTF-8 that ends with a zero byte, so it may hold none; None is NULL."""
    if value is None:
        return None
    raw = str(value).encode()
    if b"\0" in raw:
        raise ValueError("a text holds a zero byte")
    return raw


def array(values):
    """A C array of texts."""
    return (ctypes.c_char_p * len(values))(*values)


class Connection:
    """One session. Not for two threads at once."""

    def __init__(self, library, options):
        self.library = library
        self.prepared = {}
        names = [name.encode() for name in options] + [None]
        values = [encoded(value) for value in options.values()] + [None]
        self.session = library.PQconnectdbParams(array(names), array(values), 0)
        if library.PQstatus(self.session) != CONNECTION_OK:
            message = self.message()
            self.close()
            raise DatabaseError(message)

    def message(self):
        """What libpq says went wrong last."""
        return self.library.PQerrorMessage(self.session).decode(errors="replace").strip()

    def close(self):
        """End the session."""
        if self.session:
            self.library.PQfinish(self.session)
            self.session = None

    def prepare(self, statement):
        """The name under which the session knows a statement, prepared at its first use."""
        if statement not in self.prepared:
            name = b"s%d" % len(self.prepared)
            self.take(self.library.PQprepare(self.session, name, statement.encode(), 0, None))
            self.prepared[statement] = name
        return self.prepared[statement]

    def ask(self, statement, *parameters):
        """Run a statement with parameters $1, $2, ...; its rows, as tuples of texts and None."""
        name = self.prepare(statement)
        values = array([encoded(value) for value in parameters])
        return self.take(self.library.PQexecPrepared(self.session, name, len(parameters), values, None, None, 0))

    def take(self, result):
        """The rows of a result, which is given back to libpq."""
        library = self.library
        try:
            if library.PQresultStatus(result) not in (COMMAND_OK, TUPLES_OK):
                said = library.PQresultErrorMessage(result).decode(errors="replace").strip()
                raise DatabaseError(said or self.message())
            fields = range(library.PQnfields(result))
            return [tuple(None if library.PQgetisnull(result, row, field)
                          else library.PQgetvalue(result, row, field).decode() for field in fields)
                    for row in range(library.PQntuples(result))]
        finally:
            library.PQclear(result)
