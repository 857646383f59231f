"""gpuann for ann-benchmarks: an index in PostgreSQL, answered by its server or from its pages.

The connection is what libpq finds (PGHOST, PGPORT, PGUSER, ...), overridden by
ANN_BENCHMARKS_PG_HOST, _PORT, _USER, _PASSWORD and _DBNAME. Without any of these, and unless
ANN_BENCHMARKS_PG_START_SERVICE is false, the image's PostgreSQL is started.

ANN_BENCHMARKS_PG_BATCH_CONNECTIONS: how many connections ask at once in batch mode, 32 by itself.
"""

import os
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

import numpy
import psycopg
from pgvector import Bit, Vector
from pgvector.psycopg import register_vector

from ..base.module import BaseANN

# Metric: the column's type, its operator class, its operator.
METRICS = {
    "angular": ("vector", "vector_cosine_ops", "<=>"),
    "euclidean": ("vector", "vector_l2_ops", "<->"),
    "hamming": ("bit", "bit_hamming_ops", "<~>"),
}
BUILD_OPTIONS = {
    "graph": ("m", "ef_construction"),
    "ivfpq": ("lists", "quantizer", "code_bits", "pq_m"),
}
# What set_query_arguments() takes, in this order.
QUERY_SETTINGS = {
    "graph": ("gpuann.ef_search",),
    "ivfpq": ("gpuann.probes", "gpuann.rerank"),
}
TABLE = "ann_benchmarks_gpuann"
INDEX = f"{TABLE}_embedding"
PLAIN_BYTES = 7900
READY_TIMEOUT = 3600
BATCH_CONNECTIONS = 32


def connection_parameters():
    """Connection parameters out of the environment."""
    names = ("host", "port", "user", "password", "dbname")
    given = {name: os.getenv(f"ANN_BENCHMARKS_PG_{name.upper()}", "").strip() for name in names}
    return {name: value for name, value in given.items() if value}


def start_service(parameters):
    """Start the image's PostgreSQL unless the environment names one, and say how to reach it."""
    start = os.getenv("ANN_BENCHMARKS_PG_START_SERVICE", "true").strip().lower()
    if parameters or "PGHOST" in os.environ or start in ("false", "0", "no"):
        return parameters
    subprocess.run(["service", "postgresql", "start"], check=True)
    return {"user": "ann", "password": "ann", "dbname": "ann", "host": "localhost"}


class Gpuann(BaseANN):
    """One index of method graph or ivfpq. Options that are left out have gpuann's defaults."""

    def __init__(self, metric, method, options):
        if metric not in METRICS:
            raise ValueError(f"gpuann has no operator class for metric {metric}")
        unknown = set(options) - set(BUILD_OPTIONS[method])
        if unknown:
            raise ValueError(f"method {method} has no options {', '.join(sorted(unknown))}")
        self.type, self.opclass, operator = METRICS[metric]
        self.method = method
        self.options = dict(options)
        self.settings = {}
        self.statement = f"SELECT id FROM {TABLE} ORDER BY embedding {operator} %b LIMIT %b"
        self.parameters = {}
        self.connection = None
        self.pool = []
        self.res = []

    def fit(self, X):
        self.done()
        self.parameters = start_service(connection_parameters())
        self.connection = self._connect()
        self._load(X)
        written = ", ".join(f"{name} = {value}" for name, value in self.options.items())
        self.connection.execute(
            f"CREATE INDEX {INDEX} ON {TABLE} USING gpuann (embedding {self.opclass})"
            f" WITH (method = {self.method}{', ' if written else ''}{written})"
        )
        self._await_mirror()

    def _connect(self):
        """A connection that prepares each statement at its first use, with this run's settings."""
        connection = psycopg.connect(**self.parameters, autocommit=True)
        connection.prepare_threshold = 0
        if self.connection is None:
            connection.execute("CREATE EXTENSION IF NOT EXISTS gpuann CASCADE")
        register_vector(connection)
        self._apply(connection)
        return connection

    def _apply(self, connection):
        for name, value in self.settings.items():
            connection.execute("SELECT set_config(%s, %s, false)", (name, str(value)))

    def _load(self, X):
        rows, dims = X.shape
        connection = self.connection
        connection.execute(f"DROP TABLE IF EXISTS {TABLE}")
        connection.execute(f"CREATE TABLE {TABLE} (id int, embedding {self.type}({dims}))")
        if self.type == "bit" or dims * 4 <= PLAIN_BYTES:
            connection.execute(f"ALTER TABLE {TABLE} ALTER COLUMN embedding SET STORAGE PLAIN")
        with connection.cursor().copy(f"COPY {TABLE} FROM STDIN (FORMAT binary)") as copy:
            copy.set_types(["int4", self.type])
            for i in range(rows):
                copy.write_row((i, self._vector(X[i])))
        connection.execute(f"ANALYZE {TABLE}")

    def _vector(self, v):
        """A vector as it goes to the server in binary."""
        if self.type == "bit":
            return Bit(numpy.asarray(v, dtype=bool))
        return Vector(numpy.asarray(v, dtype=numpy.float32))

    def _await_mirror(self):
        """Wait until the server has all of the index. Without a server its pages answer."""
        self.connection.execute("SELECT gpuann_link(%s::regclass)", (INDEX,))
        mirrored = self._value(
            "SELECT CASE WHEN current_setting('gpuann.server')::bool"
            " AND state NOT IN ('off', 'no_gpu') THEN gpuann_prewarm(%s::regclass) END"
            " FROM gpuann_server_status",
            INDEX,
        )
        if mirrored is None:
            print("gpuann has no server here: its pages will answer")
            return
        deadline = time.monotonic() + READY_TIMEOUT
        while not self._value(
            "SELECT state = 'ready' AND mirror_lag = 0 AND mirror_change_lag = 0"
            " FROM pg_stat_gpuann WHERE indexrelid = %s::regclass",
            INDEX,
        ):
            if time.monotonic() > deadline:
                raise TimeoutError(f"the mirror was not current within {READY_TIMEOUT} s")
            time.sleep(0.1)

    def _value(self, statement, *parameters):
        row = self.connection.execute(statement, parameters).fetchone()
        return None if row is None else row[0]

    def set_query_arguments(self, *arguments):
        names = QUERY_SETTINGS[self.method]
        if len(arguments) > len(names):
            raise ValueError(f"method {self.method} has {len(names)} query arguments")
        self.settings = dict(zip(names, arguments))
        for connection in [self.connection, *self.pool]:
            self._apply(connection)

    def query(self, v, n):
        cursor = self.connection.execute(self.statement, (self._vector(v), n), binary=True)
        return [row[0] for row in cursor]

    def batch_query(self, X, n):
        """Ask all queries at once: each connection sends its share without awaiting answers."""
        wanted = int(os.getenv("ANN_BENCHMARKS_PG_BATCH_CONNECTIONS", str(BATCH_CONNECTIONS)))
        while len(self.pool) < min(wanted, len(X)):
            self.pool.append(self._connect())
        shares = numpy.array_split(numpy.arange(len(X)), len(self.pool))
        answers = [None] * len(X)

        def ask(connection, share):
            cursor = connection.cursor(binary=True)
            cursor.executemany(
                self.statement, [(self._vector(X[i]), n) for i in share], returning=True
            )
            for i in share:
                answers[i] = [row[0] for row in cursor]
                cursor.nextset()

        with ThreadPoolExecutor(len(self.pool)) as threads:
            list(threads.map(ask, self.pool, shares))
        self.res = answers

    def get_memory_usage(self):
        """The index's file in kB; the server's copy is reported by get_additional()."""
        if self.connection is None:
            return 0
        return self._value("SELECT pg_relation_size(%s::regclass) / 1024.0::float8", INDEX)

    def get_additional(self):
        """Who answered last, and what the server's copy takes."""
        if self.connection is None:
            return {}
        path, engine = self.connection.execute(
            "SELECT path, engine FROM gpuann_last_scan()"
        ).fetchone()
        mirror = self._value(
            "SELECT mirror_bytes FROM pg_stat_gpuann WHERE indexrelid = %s::regclass", INDEX
        )
        return {
            "gpuann_path": path or "",
            "gpuann_engine": engine or "",
            "gpuann_mirror_bytes": int(mirror or 0),
        }

    def done(self):
        for connection in [self.connection, *self.pool]:
            if connection is not None:
                connection.close()
        self.connection = None
        self.pool = []

    def __str__(self):
        settings = {name.partition(".")[2]: value for name, value in self.settings.items()}
        written = ", ".join(f"{k}={v}" for k, v in {**self.options, **settings}.items())
        return f"Gpuann({self.method}{', ' if written else ''}{written})"
