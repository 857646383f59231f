"""psycopg 3 with pgvector's types."""

from collections.abc import Callable, Iterator

import gpuann
import psycopg
import pytest
from pgvector import Vector
from pgvector.psycopg import register_vector
from psycopg.adapt import PyFormat, Transformer
from psycopg.pq import Format
from psycopg_pool import ConnectionPool

from conftest import ROWS, Database, vector

QUERY = "SELECT id FROM items ORDER BY embedding <-> %s LIMIT %s"


@pytest.fixture
def connection(indexed: Database) -> Iterator[psycopg.Connection]:
    with psycopg.connect(autocommit=True) as connection:
        register_vector(connection)
        yield connection


def test_vectors_go_out_in_binary_and_use_the_index(
    connection: psycopg.Connection, database: Database, scanned: Callable[[str], int]
) -> None:
    query = Vector(vector(0.5))
    assert Transformer(connection).get_dumper(query, PyFormat.AUTO).format == Format.BINARY
    scanned("e")
    # Often enough for a prepared statement, and for PostgreSQL to consider a generic plan.
    for _ in range(15):
        found = [row[0] for row in connection.execute(QUERY, (query, 5))]
        assert found == database.nearest(vector(0.5))
    assert scanned("e") == 15


def test_vectors_come_in_binary(connection: psycopg.Connection) -> None:
    cursor = connection.cursor(binary=True)
    (found,) = cursor.execute("SELECT embedding FROM items WHERE id = 7").fetchone()
    assert cursor.pgresult.fformat(0) == Format.BINARY
    assert found.to_list() == pytest.approx(vector(7), abs=1e-6)


def test_a_list_needs_a_cast(connection: psycopg.Connection, scanned: Callable[[str], int]) -> None:
    with pytest.raises(psycopg.errors.UndefinedFunction):
        connection.execute(QUERY, (vector(0.5), 5))
    scanned("e")
    connection.execute(QUERY.replace("%s", "%s::vector", 1), (vector(0.5), 5)).fetchall()
    assert scanned("e") == 1


def test_rows_are_copied_in_binary(connection: psycopg.Connection, database: Database) -> None:
    with connection.cursor().copy("COPY items (id, embedding) FROM STDIN (FORMAT binary)") as copy:
        copy.set_types(["int4", "vector"])
        for i in range(ROWS, ROWS + 500):
            copy.write_row((i, Vector([v + 10 for v in vector(i)])))
    far = [v + 10 for v in vector(ROWS + 7)]
    assert [row[0] for row in connection.execute(QUERY, (Vector(far), 1))] == [ROWS + 7]


def test_a_pool_gives_settings_away_but_not_those_of_a_transaction(
    connection: psycopg.Connection,
) -> None:
    with ConnectionPool(min_size=1, max_size=1, configure=register_vector, open=True) as pool:
        with pool.connection() as one:
            one.execute("SET gpuann.ef_search = 77")
        with pool.connection() as another:
            # Why docs/clients.md advises against SET.
            assert another.execute("SHOW gpuann.ef_search").fetchone() == ("77",)
            another.execute("RESET gpuann.ef_search")
        with pool.connection() as one:
            one.execute(gpuann.set_local(ef_search=88))
            assert one.execute("SHOW gpuann.ef_search").fetchone() == ("88",)
            assert len(one.execute(QUERY, (Vector(vector(1)), 3)).fetchall()) == 3
        with pool.connection() as another:
            assert another.execute("SHOW gpuann.ef_search").fetchone() == ("-1",)


def test_settings_of_database_and_role_reach_new_connections(database: Database) -> None:
    database.run("DROP ROLE IF EXISTS gpuann_reader")
    database.run("CREATE ROLE gpuann_reader LOGIN")
    database.run("ALTER DATABASE app SET gpuann.ef_search = 120")
    database.run("ALTER ROLE gpuann_reader IN DATABASE app SET gpuann.ef_search = 60")
    try:
        for role, expected in (("postgres", "120"), ("gpuann_reader", "60")):
            with psycopg.connect(user=role) as connection:
                assert connection.execute("SHOW gpuann.ef_search").fetchone() == (expected,)
        # A role's own settings are its own to set, without a superuser.
        with psycopg.connect(user="gpuann_reader", autocommit=True) as connection:
            connection.execute(
                "ALTER ROLE gpuann_reader SET gpuann.iterative_scan = 'strict_order'"
            )
        with psycopg.connect(user="gpuann_reader") as connection:
            assert connection.execute("SHOW gpuann.iterative_scan").fetchone() == ("strict_order",)
    finally:
        database.run("ALTER DATABASE app RESET ALL")
        database.run("DROP ROLE gpuann_reader")
