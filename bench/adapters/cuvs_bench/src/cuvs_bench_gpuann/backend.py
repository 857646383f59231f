"""Builds indexes in PostgreSQL and searches them, with binary COPY and prepared statements."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import numpy as np
import psycopg
from cuvs_bench.backends.base import BenchmarkBackend, BuildResult, SearchResult
from pgvector import HalfVector, Vector
from pgvector.psycopg import register_vector

# Metric: the last part of the operator class, the operator.
METRICS = {
    "euclidean": ("l2_ops", "<->"),
    "inner_product": ("ip_ops", "<#>"),
    "cosine": ("cosine_ops", "<=>"),
    "angular": ("cosine_ops", "<=>"),
}
METHODS = {"gpuann_graph": "graph", "gpuann_ivfpq": "ivfpq"}
SETTINGS = ("ef_search", "probes", "rerank")
PARAMETERS = ("host", "port", "user", "password", "dbname")
PLAIN_BYTES = 7900
READY_TIMEOUT = 3600


class GpuannBackend(BenchmarkBackend):
    default_algorithm = "gpuann_graph"

    @classmethod
    def result_failure_message(cls, results: Sequence[Any]) -> str | None:
        """A run that failed is one for the command too."""
        failed = [str(result.error_message) for result in results if not result.success]
        return "; ".join(failed) or None

    @property
    def algo(self) -> str:
        return self.config.get("algo", self.default_algorithm)

    def _type(self) -> str:
        return self.config.get("column_type", "vector")

    def _connect(self) -> psycopg.Connection:
        given = {name: self.config[name] for name in PARAMETERS if name in self.config}
        connection = psycopg.connect(**given, autocommit=True)
        connection.prepare_threshold = 0
        return connection

    def _check_network_available(self) -> bool:
        try:
            self._connect().close()
        except psycopg.OperationalError:
            return False
        return True

    def _vector(self, row: np.ndarray) -> Vector | HalfVector:
        if self._type() == "halfvec":
            return HalfVector(np.asarray(row, dtype=np.float16))
        return Vector(np.asarray(row, dtype=np.float32))

    def build(
        self, dataset: Any, indexes: list, force: bool = False, dry_run: bool = False
    ) -> BuildResult:
        index = indexes[0]
        result = BuildResult(
            index_path=index.file,
            build_time_seconds=0.0,
            index_size_bytes=0,
            algorithm=self.algo,
            build_params=dict(index.build_param),
        )
        if dry_run:
            result.metadata = {"dry_run": True}
            return result
        try:
            if reason := self._pre_flight_check():
                raise RuntimeError(f"the database cannot be reached: {reason}")
            with closing(self._connect()) as connection:
                connection.execute("CREATE EXTENSION IF NOT EXISTS gpuann CASCADE")
                register_vector(connection)
                if force or not _value(
                    connection, "SELECT to_regclass(%s) IS NOT NULL", _index_name(index.file)
                ):
                    self._load(connection, index.file, dataset.training_vectors)
                    result.build_time_seconds = self._make_index(connection, dataset, index)
                mirror = _await_mirror(connection, _index_name(index.file))
                result.index_size_bytes = _value(
                    connection, "SELECT pg_relation_size(%s::regclass)", _index_name(index.file)
                )
                result.metadata = {"mirror_bytes": mirror}
        except Exception as error:
            result.success, result.error_message = False, _said(error)
        return result

    def _load(self, connection: psycopg.Connection, table: str, rows: np.ndarray) -> None:
        dims = rows.shape[1]
        connection.execute(f"DROP TABLE IF EXISTS {table}")
        connection.execute(f"CREATE TABLE {table} (id int8, embedding {self._type()}({dims}))")
        if dims * (2 if self._type() == "halfvec" else 4) <= PLAIN_BYTES:
            connection.execute(f"ALTER TABLE {table} ALTER COLUMN embedding SET STORAGE PLAIN")
        with connection.cursor().copy(f"COPY {table} FROM STDIN (FORMAT binary)") as copy:
            copy.set_types(["int8", self._type()])
            for i, row in enumerate(rows):
                copy.write_row((i, self._vector(row)))
        connection.execute(f"ANALYZE {table}")

    def _make_index(self, connection: psycopg.Connection, dataset: Any, index: Any) -> float:
        """Build the index; the seconds that CREATE INDEX took."""
        options = {"method": METHODS[self.algo], **index.build_param}
        written = ", ".join(f"{name} = {value}" for name, value in options.items())
        opclass = f"{self._type()}_{_metric(dataset)[0]}"
        began = time.perf_counter()
        connection.execute(
            f"CREATE INDEX {_index_name(index.file)} ON {index.file}"
            f" USING gpuann (embedding {opclass}) WITH ({written})"
        )
        return time.perf_counter() - began

    def search(
        self,
        dataset: Any,
        indexes: list,
        k: int,
        batch_size: int = 10000,
        mode: str = "latency",
        force: bool = False,
        search_threads: int | None = None,
        dry_run: bool = False,
    ) -> list[SearchResult]:
        """One result for each set of search parameters.

        latency: one connection, each query sent when the one before is answered. throughput:
        search_threads connections (by itself 16) share the queries, and each sends batch_size of
        them before it reads the answers.
        """
        index = indexes[0]
        results = []
        for parameters in index.search_params or [{}]:
            result = SearchResult(
                neighbors=np.empty((0, k), dtype=np.int64),
                distances=np.empty((0, k), dtype=np.float32),
                search_time_ms=0.0,
                queries_per_second=0.0,
                recall=0.0,
                algorithm=self.algo,
                search_params=[dict(parameters)],
            )
            results.append(result)
            if dry_run:
                result.metadata = {"dry_run": True}
                continue
            try:
                if reason := self._pre_flight_check():
                    raise RuntimeError(f"the database cannot be reached: {reason}")
                threads = 1 if mode == "latency" else search_threads or 16
                size = 1 if mode == "latency" else batch_size
                self._search(result, dataset, index.file, parameters, k, threads, size)
                result.metadata["mode"] = mode
            except Exception as error:
                result.success, result.error_message = False, _said(error)
        return results

    def _search(
        self,
        result: SearchResult,
        dataset: Any,
        table: str,
        parameters: dict[str, Any],
        k: int,
        threads: int,
        size: int,
    ) -> None:
        queries = [self._vector(row) for row in dataset.query_vectors]
        operator = _metric(dataset)[1]
        statement = (
            f"SELECT id, embedding {operator} %(query)b FROM {table}"
            f" ORDER BY embedding {operator} %(query)b LIMIT %(k)b"
        )
        asked = [{"query": query, "k": k} for query in queries]
        neighbors = np.full((len(queries), k), -1, dtype=np.int64)
        distances = np.full((len(queries), k), np.inf, dtype=np.float32)
        times = np.zeros(len(queries))
        shares = np.array_split(np.arange(len(queries)), min(threads, len(queries)))
        connections = [self._session(parameters) for _ in shares]

        def ask(connection: psycopg.Connection, share: np.ndarray) -> None:
            cursor = connection.cursor(binary=True)
            for batch in _batches(share, size):
                began = time.perf_counter()
                if size == 1:
                    cursor.execute(statement, asked[batch[0]])
                else:
                    cursor.executemany(statement, [asked[i] for i in batch], returning=True)
                for i in batch:
                    for place, (row, distance) in enumerate(cursor):
                        neighbors[i, place], distances[i, place] = row, distance
                    cursor.nextset()
                times[batch] = time.perf_counter() - began

        try:
            # What a session does once (catalog, prepared statement, mirror) is not a query's time.
            for connection in connections:
                connection.execute(statement, asked[0], binary=True)
            began = time.perf_counter()
            with ThreadPoolExecutor(len(shares)) as pool:
                list(pool.map(ask, connections, shares))
            elapsed = time.perf_counter() - began
            path, engine = (
                connections[0]
                .execute("SELECT path, coalesce(engine, '') FROM gpuann_last_scan()")
                .fetchone()
            )
        finally:
            for connection in connections:
                connection.close()
        result.neighbors, result.distances = neighbors, distances
        result.search_time_ms = elapsed * 1000
        result.queries_per_second = len(queries) / elapsed
        result.latency_percentiles = {
            f"p{share}": float(np.percentile(times, share) * 1000) for share in (50, 95, 99)
        }
        result.metadata = {"path": path, "engine": engine, "connections": len(shares)}

    def _session(self, parameters: dict[str, Any]) -> psycopg.Connection:
        """A connection with search parameters set."""
        unknown = set(parameters) - set(SETTINGS)
        if unknown:
            raise ValueError(f"not search parameters of gpuann: {', '.join(sorted(unknown))}")
        connection = self._connect()
        register_vector(connection)
        for name, value in parameters.items():
            connection.execute("SELECT set_config(%s, %s, false)", (f"gpuann.{name}", str(value)))
        return connection


def _index_name(table: str) -> str:
    return f"{table}_embedding"


def _metric(dataset: Any) -> tuple[str, str]:
    if dataset.distance_metric not in METRICS:
        raise ValueError(f"gpuann has no operator class for {dataset.distance_metric}")
    return METRICS[dataset.distance_metric]


def _batches(share: np.ndarray, size: int) -> Iterator[np.ndarray]:
    for begin in range(0, len(share), size):
        yield share[begin : begin + size]


def _value(connection: psycopg.Connection, statement: str, *parameters: Any) -> Any:
    row = connection.execute(statement, parameters).fetchone()
    return None if row is None else row[0]


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _await_mirror(connection: psycopg.Connection, index: str) -> int:
    """Wait until the server has all of the index; its bytes there. 0: pages answer."""
    connection.execute("SELECT gpuann_link(%s::regclass)", (index,))
    mirrored = _value(
        connection,
        "SELECT CASE WHEN current_setting('gpuann.server')::bool AND state NOT IN ('off', 'no_gpu')"
        " THEN gpuann_prewarm(%s::regclass) END FROM gpuann_server_status",
        index,
    )
    if mirrored is None:
        return 0
    deadline = time.monotonic() + READY_TIMEOUT
    while not _value(
        connection,
        "SELECT state = 'ready' AND mirror_lag = 0 AND mirror_change_lag = 0"
        " FROM pg_stat_gpuann WHERE indexrelid = %s::regclass",
        index,
    ):
        if time.monotonic() > deadline:
            raise TimeoutError(f"the mirror was not current within {READY_TIMEOUT} s")
        time.sleep(0.1)
    return mirrored
