"""Databases for the tests.

The cluster is the one that PGHOST, PGPORT and PGUSER name, a superuser's.
Each test module has a database "app" of its own: what documents say of a
database works as it stands there.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import gpuann
import psycopg
import pytest

DIMS = 16
ROWS = 5000


def vector(i: float) -> list[float]:
    """The vector of row i, as Database.fill() computes it in SQL."""
    return [math.sin(i * j * 1.7) for j in range(1, DIMS + 1)]


@dataclass
class Database:
    connection: psycopg.Connection

    def run(self, sql: str, *parameters: object) -> list[tuple]:
        cursor = self.connection.execute(sql, parameters or None)
        return cursor.fetchall() if cursor.description else []

    def value(self, sql: str, *parameters: object) -> object:
        return self.run(sql, *parameters)[0][0]

    def fill(self) -> None:
        """Insert ROWS rows into items, and let the planner know of them."""
        self.run("CREATE SCHEMA IF NOT EXISTS kept")
        self.run(
            "CREATE TABLE IF NOT EXISTS kept.vectors AS SELECT i AS id, "
            f"ARRAY(SELECT sin(i * j * 1.7) FROM generate_series(1, {DIMS}) j)::vector AS embedding "
            f"FROM generate_series(1, {ROWS}) i"
        )
        self.run("INSERT INTO items (id, embedding) SELECT id, embedding FROM kept.vectors")
        self.run("ANALYZE items")

    def make_items(self) -> None:
        """A table without an index, in a database with the extension."""
        self.run("CREATE EXTENSION IF NOT EXISTS gpuann CASCADE")
        self.run("DROP TABLE IF EXISTS items")
        self.run(f"CREATE TABLE items (id int, embedding vector({DIMS}))")
        self.fill()

    def nearest(self, query: list[float], operator: str = "<->", limit: int = 5) -> list[int]:
        """The answer without an index: no index has this expression."""
        return [
            row[0]
            for row in self.run(
                f"SELECT id FROM items ORDER BY (embedding {operator} %s::vector) + 0 LIMIT {limit}",
                query,
            )
        ]

    def scans(self, index: str) -> int:
        """How many scans of the index have ended, in any session."""
        return self.value(
            "SELECT coalesce(sum(scans), 0) FROM pg_stat_gpuann WHERE indexrelname = %s", index
        )

    def options(self, index: str) -> list[str]:
        return sorted(self.value("SELECT reloptions FROM pg_class WHERE relname = %s", index) or [])

    def file(self, index: str) -> int:
        """The index's file: another one if it was built again."""
        return self.value("SELECT relfilenode FROM pg_class WHERE relname = %s", index)


@pytest.fixture(scope="module")
def database() -> Iterator[Database]:
    with psycopg.connect(dbname="postgres", autocommit=True) as connection:
        connection.execute("DROP DATABASE IF EXISTS app WITH (FORCE)")
        connection.execute("CREATE DATABASE app")
        os.environ["PGDATABASE"] = "app"
        with psycopg.connect(dbname="app", autocommit=True) as inside:
            yield Database(inside)
        del os.environ["PGDATABASE"]
        connection.execute("DROP DATABASE app WITH (FORCE)")


@pytest.fixture
def items(database: Database) -> Database:
    """A table for one test, to make indexes on."""
    database.make_items()
    return database


@pytest.fixture(scope="module")
def indexed(database: Database) -> Database:
    """A table with an index, e, for all tests of a module."""
    database.make_items()
    database.run(
        gpuann.create_index("items", "embedding", "vector_l2_ops", name="e", ef_search=100)
    )
    return database


@pytest.fixture
def scanned(database: Database) -> Callable[[str], int]:
    """scanned(index) tells how many scans there were since the last call."""
    before: dict[str, int] = {}

    def since(index: str) -> int:
        now = database.scans(index)
        difference = now - before.get(index, 0)
        before[index] = now
        return difference

    return since
