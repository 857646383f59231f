"""Databases for the tests, and their results as TAP (with GPUANN_TAP set).

The cluster is the one that PGHOST, PGPORT and PGUSER name, a superuser's.
Each test module has a database "app" of its own: what documents say of a
database works as it stands there.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass

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

    def fill(self, table: str = "items", columns: str = "id, embedding") -> None:
        """Insert ROWS rows of vectors, and let the planner know of them."""
        self.run(
            f"INSERT INTO {table} ({columns}) SELECT i, "
            f"ARRAY(SELECT sin(i * j * 1.7) FROM generate_series(1, {DIMS}) j)::vector "
            f"FROM generate_series(1, {ROWS}) i"
        )
        self.run(f"ANALYZE {table}")

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
    """A table without an index, in a database with the extension."""
    database.run("CREATE EXTENSION IF NOT EXISTS gpuann CASCADE")
    database.run("DROP TABLE IF EXISTS items")
    database.run(f"CREATE TABLE items (id int, embedding vector({DIMS}))")
    database.fill()
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


def tap(ok: bool, name: str, directive: str = "") -> None:
    print(f"{'' if ok else 'not '}ok - {name}{directive}", flush=True)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if "GPUANN_TAP" not in os.environ:
        return
    path, _, function = report.nodeid.partition("::")
    module = os.path.basename(path).removesuffix(".py").removeprefix("test_")
    name = f"{module}: {function.removeprefix('test_').replace('_', ' ')}".replace("#", "")
    if report.skipped:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        tap(True, name, f" # SKIP {str(reason).removeprefix('Skipped: ')}")
    elif report.when == "call" or report.failed:
        tap(report.passed, name)


def pytest_report_teststatus(report: pytest.TestReport) -> tuple[str, str, str] | None:
    """TAP in place of dots."""
    return (
        (report.outcome if report.when == "call" else "", "", "")
        if "GPUANN_TAP" in os.environ
        else None
    )


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if "GPUANN_TAP" in os.environ and report.failed:
        tap(False, f"{report.nodeid} can be read")
