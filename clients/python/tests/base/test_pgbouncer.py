"""PgBouncer in transaction mode: which settings reach a query, and which stray."""

import asyncio
import os
import shutil
import subprocess
import time
from collections.abc import Iterator

import asyncpg
import gpuann
import psycopg
import pytest
from pgvector import Vector
from pgvector.psycopg import register_vector

from conftest import Database, vector

PGBOUNCER = shutil.which("pgbouncer", path=os.environ["PATH"] + ":/usr/sbin")
pytestmark = pytest.mark.skipif(
    PGBOUNCER is None or os.getuid() == 0, reason="no pgbouncer, which does not run as root"
)
QUERY = "SELECT id FROM items ORDER BY embedding <-> %s LIMIT 5"
PORT = 54331


@pytest.fixture(scope="module")
def pooler(
    indexed: Database, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, object]]:
    """How to connect to a PgBouncer that has one connection to the server."""
    directory = tmp_path_factory.mktemp("pgbouncer")
    (directory / "users").write_text('"postgres" ""\n')
    (directory / "ini").write_text(
        f"""[databases]
app = host={os.environ["PGHOST"]} port={os.environ["PGPORT"]} user=postgres
[pgbouncer]
listen_addr =
listen_port = {PORT}
unix_socket_dir = {directory}
auth_type = trust
admin_users = postgres
auth_file = {directory}/users
pool_mode = transaction
default_pool_size = 1
logfile = {directory}/log
"""
    )
    process = subprocess.Popen(
        [PGBOUNCER, directory / "ini"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    socket = directory / f".s.PGSQL.{PORT}"
    deadline = time.monotonic() + 60
    while not socket.exists():
        assert process.poll() is None and time.monotonic() < deadline, (
            directory / "log"
        ).read_text()
        time.sleep(0.05)
    yield {"host": str(directory), "port": PORT, "dbname": "app"}
    process.terminate()
    process.wait()


def connect(pooler: dict[str, object]) -> psycopg.Connection:
    connection = psycopg.connect(**pooler, autocommit=True, prepare_threshold=None)
    register_vector(connection)
    return connection


def test_queries_use_the_index_and_its_option(pooler: dict[str, object], indexed: Database) -> None:
    with connect(pooler) as connection:
        plan = "\n".join(
            row[0]
            for row in connection.execute("EXPLAIN (ANALYZE) " + QUERY, (Vector(vector(0.5)),))
        )
        assert " ef=100 " in plan
        for _ in range(10):
            found = [row[0] for row in connection.execute(QUERY, (Vector(vector(0.5)),))]
            assert found == indexed.nearest(vector(0.5))


def test_set_strays_into_other_clients(pooler: dict[str, object]) -> None:
    with connect(pooler) as one, connect(pooler) as another:
        one.execute("SET gpuann.ef_search = 77")
        assert another.execute("SHOW gpuann.ef_search").fetchone() == ("77",)
        another.execute("RESET gpuann.ef_search")
        assert one.execute("SHOW gpuann.ef_search").fetchone() == ("-1",)


def test_set_local_stays_in_its_transaction(pooler: dict[str, object]) -> None:
    with connect(pooler) as one, connect(pooler) as another:
        with one.transaction():
            one.execute(gpuann.set_local(ef_search=88))
            assert one.execute("SHOW gpuann.ef_search").fetchone() == ("88",)
        assert another.execute("SHOW gpuann.ef_search").fetchone() == ("-1",)


def test_the_startup_parameter_options_is_refused(pooler: dict[str, object]) -> None:
    with pytest.raises(psycopg.OperationalError, match="options"):
        psycopg.connect(**pooler, options="-c gpuann.ef_search=99")


def test_settings_of_the_database_arrive_with_new_server_connections(
    pooler: dict[str, object], indexed: Database
) -> None:
    indexed.run("ALTER DATABASE app SET gpuann.ef_search = 130")
    try:
        with connect(pooler) as connection:
            # The pool's connection to the server is older than the setting.
            assert connection.execute("SHOW gpuann.ef_search").fetchone() == ("-1",)
        with psycopg.connect(**{**pooler, "dbname": "pgbouncer"}, autocommit=True) as console:
            console.execute("RECONNECT")
        with connect(pooler) as connection:
            assert connection.execute("SHOW gpuann.ef_search").fetchone() == ("130",)
    finally:
        indexed.run("ALTER DATABASE app RESET ALL")


def test_asyncpg_needs_no_statement_cache(pooler: dict[str, object], indexed: Database) -> None:
    async def ask() -> list[int]:
        connection = await asyncpg.connect(
            host=pooler["host"], port=pooler["port"], database="app", statement_cache_size=0
        )
        query = "SELECT id FROM items ORDER BY embedding <-> $1 LIMIT 5"
        for _ in range(3):
            found = await connection.fetch(query, str(vector(0.5)))
        await connection.close()
        return [row["id"] for row in found]

    assert asyncio.run(ask()) == indexed.nearest(vector(0.5))
