"""asyncpg with pgvector's types."""

import asyncio
from collections.abc import Callable

import asyncpg
import gpuann
import pytest
from pgvector import Vector
from pgvector.asyncpg import register_vector

from conftest import ROWS, Database, vector

QUERY = "SELECT id FROM items ORDER BY embedding <-> $1 LIMIT $2"


def test_vectors_go_in_binary_and_use_the_index(
    indexed: Database, scanned: Callable[[str], int]
) -> None:
    async def ask() -> None:
        connection = await asyncpg.connect()
        await register_vector(connection)
        for _ in range(10):
            found = [row["id"] for row in await connection.fetch(QUERY, Vector(vector(0.5)), 5)]
            assert found == indexed.nearest(vector(0.5))
        # A list is enough for its codec.
        assert len(await connection.fetch(QUERY, vector(0.5), 5)) == 5
        found = await connection.fetchval("SELECT embedding FROM items WHERE id = 7")
        assert found.to_list() == pytest.approx(vector(7), abs=1e-6)
        rows = [(ROWS + i, Vector([v + 10 for v in vector(i)])) for i in range(100)]
        await connection.copy_records_to_table("items", records=rows)
        assert await connection.fetchval(QUERY, [v + 10 for v in vector(7)], 1) == ROWS + 7
        await connection.close()

    scanned("e")
    asyncio.run(ask())
    assert scanned("e") == 12


def test_a_pool_resets_settings_and_keeps_the_codec(indexed: Database) -> None:
    async def ask() -> None:
        async with asyncpg.create_pool(min_size=1, max_size=1, init=register_vector) as pool:
            async with pool.acquire() as connection:
                await connection.execute("SET gpuann.ef_search = 77")
            async with pool.acquire() as connection:
                # asyncpg sends RESET ALL when a connection comes back.
                assert await connection.fetchval("SHOW gpuann.ef_search") == "-1"
                async with connection.transaction():
                    await connection.execute(gpuann.set_local(ef_search=88))
                    assert await connection.fetchval("SHOW gpuann.ef_search") == "88"
                    assert len(await connection.fetch(QUERY, Vector(vector(1)), 3)) == 3
                assert await connection.fetchval("SHOW gpuann.ef_search") == "-1"

    asyncio.run(ask())


def test_text_needs_no_codec(indexed: Database, scanned: Callable[[str], int]) -> None:
    async def ask() -> list[int]:
        connection = await asyncpg.connect()
        found = await connection.fetch(QUERY, str(vector(0.5)), 5)
        await connection.close()
        return [row["id"] for row in found]

    scanned("e")
    assert asyncio.run(ask()) == indexed.nearest(vector(0.5))
    assert scanned("e") == 1
