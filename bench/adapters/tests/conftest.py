"""Rows, queries and exact answers for the adapters' tests, and a database for each module.

The cluster is the one that PGHOST, PGPORT and PGUSER name, a superuser's.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy
import psycopg
import pytest

ADAPTERS = Path(__file__).parents[1]
STANDINS = Path(__file__).parent / "standins"
ROWS, QUERIES, DIMS, K = 6000, 100, 32, 10


@dataclass
class Data:
    """Clustered vectors, queries of the same distribution, and the nearest rows of each."""

    rows: numpy.ndarray
    queries: numpy.ndarray

    def nearest(self, metric: str, k: int = K) -> numpy.ndarray:
        """Exact answers, in double: metric is l2, cosine or ip."""
        rows, queries = self.rows.astype(float), self.queries.astype(float)
        if metric == "cosine":
            rows = rows / numpy.linalg.norm(rows, axis=1, keepdims=True)
            queries = queries / numpy.linalg.norm(queries, axis=1, keepdims=True)
        distances = -(queries @ rows.T)
        if metric == "l2":
            distances += (rows**2).sum(axis=1) / 2
        return numpy.argsort(distances, axis=1, kind="stable")[:, :k]

    def recall(self, answers: list[list[int]], metric: str) -> float:
        truth = self.nearest(metric)
        found = [len(set(answer) & set(true)) for answer, true in zip(answers, truth, strict=True)]
        return sum(found) / truth.size


@pytest.fixture(scope="session")
def data() -> Data:
    random = numpy.random.default_rng(7)
    centres = random.standard_normal((60, DIMS))
    both = centres[random.integers(60, size=ROWS + QUERIES)] + 0.4 * random.standard_normal(
        (ROWS + QUERIES, DIMS)
    )
    both = both.astype(numpy.float32)
    return Data(both[:ROWS], both[ROWS:])


@pytest.fixture(scope="module")
def database() -> Iterator[psycopg.Connection]:
    """A new database, which PGDATABASE names."""
    with psycopg.connect(dbname="postgres", autocommit=True) as connection:
        connection.execute("DROP DATABASE IF EXISTS adapters WITH (FORCE)")
        connection.execute("CREATE DATABASE adapters")
        before = os.environ.get("PGDATABASE")
        os.environ["PGDATABASE"] = "adapters"
        with psycopg.connect(autocommit=True) as inside:
            yield inside
        if before is None:
            del os.environ["PGDATABASE"]
        else:
            os.environ["PGDATABASE"] = before
        connection.execute("DROP DATABASE adapters WITH (FORCE)")


def counted(database: psycopg.Connection, index: str) -> tuple[int, int]:
    """Of an index: the answers by the server, and those from pages."""
    return database.execute(
        "SELECT coalesce(sum(server_answers), 0)::int, coalesce(sum(page_answers), 0)::int"
        " FROM pg_stat_gpuann WHERE indexrelname = %s",
        (index,),
    ).fetchone()


def options(database: psycopg.Connection, index: str) -> dict[str, str]:
    (written,) = database.execute(
        "SELECT reloptions FROM pg_class WHERE relname = %s", (index,)
    ).fetchone()
    return dict(option.split("=", 1) for option in written)
