"""gpuann: rows by binary COPY, queries by prepared statements with binary vectors."""

import logging
import time
from collections.abc import Generator
from contextlib import contextmanager
from copy import copy
from typing import Any

import numpy as np
import psycopg
from pgvector import HalfVector, Vector
from pgvector.psycopg import register_vector
from psycopg import sql

from vectordb_bench.backend.filter import Filter, FilterOp

from ..api import VectorDB
from .config import GpuannIndexConfig

log = logging.getLogger(__name__)

READY_TIMEOUT = 3600
# What a row of a heap page can hold without its vector being moved out.
PLAIN_BYTES = 7900


class Gpuann(VectorDB):
    thread_safe: bool = False
    supported_filter_types: list[FilterOp] = [
        FilterOp.NonFilter,
        FilterOp.NumGE,
        FilterOp.StrEqual,
    ]

    def __init__(
        self,
        dim: int,
        db_config: dict[str, Any],
        db_case_config: GpuannIndexConfig,
        collection_name: str | None = None,
        drop_old: bool = False,
        with_scalar_labels: bool = False,
        **kwargs: Any,
    ) -> None:
        self.name = "Gpuann"
        self.dim = dim
        self.connect_config = db_config["connect_config"]
        self.case_config = db_case_config
        self.with_scalar_labels = with_scalar_labels
        table = db_config["table_name"]
        self.table = sql.Identifier("public", table)
        self.index = sql.Identifier("public", f"{table}_embedding")
        self._index_name = f"{table}_embedding"
        self._half = db_case_config.column_type == "halfvec"
        self.conn: psycopg.Connection | None = None
        self.cursor: psycopg.Cursor | None = None
        self.prepare_filter(Filter(type=FilterOp.NonFilter))
        if drop_old:
            with psycopg.connect(**self.connect_config, autocommit=True) as connection:
                connection.execute("CREATE EXTENSION IF NOT EXISTS gpuann CASCADE")
            with self._connected():
                self._create_table()
                if db_case_config.create_index_before_load:
                    self._create_index()

    @contextmanager
    def _connected(self) -> Generator[None, None, None]:
        with psycopg.connect(**self.connect_config, autocommit=True) as conn:
            register_vector(conn)
            self.conn, self.cursor = conn, conn.cursor()
            try:
                yield
            finally:
                self.conn = self.cursor = None

    @contextmanager
    def init(self) -> Generator[None, None, None]:
        with self._connected():
            self._set(self.case_config.session_param())
            yield

    def copy_for_thread(self) -> "Gpuann":
        other = copy(self)
        other.conn = other.cursor = None
        return other

    def _set(self, settings: dict[str, Any]) -> None:
        for name, value in settings.items():
            self.cursor.execute("SELECT set_config(%s, %s, false)", (name, str(value)))

    def _create_table(self) -> None:
        label = sql.SQL(", label varchar(64)" if self.with_scalar_labels else "")
        self.cursor.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(self.table))
        self.cursor.execute(
            sql.SQL("CREATE TABLE {} (id bigint PRIMARY KEY, embedding {}({}){})").format(
                self.table, sql.SQL(self.case_config.column_type), sql.Literal(self.dim), label
            )
        )
        if self.dim * (2 if self._half else 4) <= PLAIN_BYTES:
            self.cursor.execute(
                sql.SQL("ALTER TABLE {} ALTER COLUMN embedding SET STORAGE PLAIN").format(
                    self.table
                )
            )

    def _create_index(self) -> None:
        param = self.case_config.index_param()
        self._set(param["settings"])
        options = sql.SQL(", ").join(
            sql.SQL("{} = {}").format(sql.Identifier(name), sql.Literal(str(value).lower()))
            for name, value in param["options"].items()
        )
        statement = sql.SQL("CREATE INDEX {} ON {} USING gpuann (embedding {}) WITH ({})").format(
            sql.Identifier(self._index_name),
            self.table,
            sql.Identifier(param["opclass"]),
            options,
        )
        log.info(statement.as_string(self.conn))
        self.cursor.execute(statement)

    def _value(self, statement: str, *parameters: Any) -> Any:
        return self.cursor.execute(statement, parameters).fetchone()[0]

    def _regclass(self) -> str:
        return self.index.as_string(self.conn)

    def optimize(self, data_size: int | None = None) -> None:
        """Build the index unless it is there, and wait until its rows are linked and mirrored."""
        self.cursor.execute(sql.SQL("ANALYZE {}").format(self.table))
        if self._value("SELECT to_regclass(%s) IS NULL", self._regclass()):
            self._create_index()
        self._value("SELECT gpuann_link(%s::regclass)", self._regclass())
        # Without a server, pages answer and there is nothing to wait for.
        mirrored = self._value(
            "SELECT CASE WHEN current_setting('gpuann.server')::bool"
            " AND state NOT IN ('off', 'no_gpu') THEN gpuann_prewarm(%s::regclass) END"
            " FROM gpuann_server_status",
            self._regclass(),
        )
        if mirrored is None:
            log.warning("gpuann has no server here: its pages will answer")
            return
        deadline = time.monotonic() + READY_TIMEOUT
        while not self.is_current():
            if time.monotonic() > deadline:
                msg = f"the mirror of {self._index_name} was not current within {READY_TIMEOUT} s"
                raise TimeoutError(msg)
            time.sleep(0.1)
        log.info(f"the mirror of {self._index_name} is ready: {mirrored} bytes")

    def is_current(self) -> bool:
        """Whether the mirror answers, and has seen every row and every link."""
        row = self.cursor.execute(
            "SELECT state = 'ready' AND mirror_lag = 0 AND mirror_change_lag = 0"
            " FROM pg_stat_gpuann WHERE indexrelid = %s::regclass",
            (self._regclass(),),
        ).fetchone()
        return row is not None and row[0] is True

    def insert_embeddings(
        self,
        embeddings: list[list[float]],
        metadata: list[int],
        labels_data: list[str] | None = None,
        **kwargs: Any,
    ) -> tuple[int, Exception | None]:
        types = ["int8", self.case_config.column_type]
        columns = [metadata, map(self._vector, embeddings)]
        if self.with_scalar_labels:
            types.append("varchar")
            columns.append(labels_data)
        statement = sql.SQL("COPY {} FROM STDIN (FORMAT binary)").format(self.table)
        try:
            with self.cursor.copy(statement) as rows:
                rows.set_types(types)
                for row in zip(*columns, strict=True):
                    rows.write_row((int(row[0]), *row[1:]))
        except Exception as error:
            log.warning(f"rows could not be inserted: {error}")
            return 0, error
        return len(metadata), None

    def _vector(self, embedding: list[float]) -> Vector | HalfVector:
        if self._half:
            return HalfVector(np.asarray(embedding, dtype=np.float16))
        return Vector(np.asarray(embedding, dtype=np.float32))

    def prepare_filter(self, filters: Filter) -> None:
        if filters.type == FilterOp.NumGE:
            where = sql.SQL(" WHERE id >= {}").format(sql.Literal(filters.int_value))
        elif filters.type == FilterOp.StrEqual:
            where = sql.SQL(" WHERE label = {}").format(sql.Literal(filters.label_value))
        else:
            where = sql.SQL("")
        operator = sql.SQL(self.case_config.search_param()["operator"])
        self._search = sql.SQL("SELECT id FROM {}{} ORDER BY embedding {} %b LIMIT %b").format(
            self.table, where, operator
        )

    def search_embedding(self, query: list[float], k: int = 100, **kwargs: Any) -> list[int]:
        found = self.cursor.execute(
            self._search, (self._vector(query), k), prepare=True, binary=True
        )
        return [row[0] for row in found]
