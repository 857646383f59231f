"""LlamaIndex: PGVectorStore without its hnsw_kwargs, and an index made beside it."""

import asyncio
from collections.abc import Callable, Iterator

import gpuann
import pytest
from llama_index.core.schema import TextNode
from llama_index.core.vector_stores.types import (
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
    VectorStoreQuery,
)
from llama_index.vector_stores.postgres import PGVectorStore
from sqlalchemy import text

from conftest import DIMS, ROWS, Database, vector

SYNC = "postgresql+psycopg2:///app"
ASYNC = "postgresql+asyncpg:///app"


@pytest.fixture(scope="module")
def store(database: Database) -> Iterator[PGVectorStore]:
    database.run("CREATE EXTENSION gpuann CASCADE")
    store = PGVectorStore(
        connection_string=SYNC,
        async_connection_string=ASYNC,
        table_name="numbers",
        embed_dim=DIMS,
        use_jsonb=True,
    )
    store.add(
        [
            TextNode(text=str(i), id_=str(i), embedding=vector(i), metadata={"i": i})
            for i in range(1, ROWS + 1)
        ]
    )
    # As in docs/clients.md: by the store's own connections, and in the store's schema.
    with store.client.begin() as connection:
        statement = gpuann.create_index(
            "data_numbers",
            "embedding",
            "vector_cosine_ops",
            schema=store.schema_name,
            name="numbers_embedding",
            ef_search=100,
        )
        connection.execute(text(statement))
    database.run("ANALYZE data_numbers")
    yield store
    asyncio.run(store.close())


def nearest(database: Database) -> list[str]:
    return [
        row[0]
        for row in database.run(
            "SELECT node_id FROM data_numbers ORDER BY (embedding <=> %s::vector) + 0 LIMIT 5",
            vector(0.5),
        )
    ]


def test_queries_use_the_index(
    store: PGVectorStore, database: Database, scanned: Callable[[str], int]
) -> None:
    scanned("numbers_embedding")
    for _ in range(7):
        assert store.query(
            VectorStoreQuery(query_embedding=vector(0.5), similarity_top_k=5)
        ).ids == nearest(database)
    assert scanned("numbers_embedding") == 7


def test_asynchronous_queries_use_it_too(
    store: PGVectorStore, database: Database, scanned: Callable[[str], int]
) -> None:
    scanned("numbers_embedding")
    query = VectorStoreQuery(query_embedding=vector(0.5), similarity_top_k=5)
    assert asyncio.run(store.aquery(query)).ids == nearest(database)
    assert scanned("numbers_embedding") == 1


def test_filters_get_as_many_rows_as_are_asked_for(store: PGVectorStore) -> None:
    few = MetadataFilters(
        filters=[MetadataFilter(key="i", value=ROWS - 100, operator=FilterOperator.GT)]
    )
    query = VectorStoreQuery(query_embedding=vector(0.5), similarity_top_k=60, filters=few)
    found = store.query(query)
    assert len(found.ids) == 60 and all(int(each) > ROWS - 100 for each in found.ids)
    assert found.similarities == sorted(found.similarities, reverse=True)


def test_hnsw_kwargs_would_make_an_hnsw_index(store: PGVectorStore, database: Database) -> None:
    """What docs/clients.md warns of."""
    other = PGVectorStore(
        connection_string=SYNC,
        async_connection_string=ASYNC,
        table_name="others",
        embed_dim=DIMS,
        hnsw_kwargs={"hnsw_m": 16, "hnsw_ef_construction": 64, "hnsw_ef_search": 50},
    )
    other.add([TextNode(text="1", id_="1", embedding=vector(1))])
    definition = database.value(
        "SELECT indexdef FROM pg_indexes WHERE indexname = 'data_others_embedding_idx'"
    )
    assert "USING hnsw" in definition
    other.query(VectorStoreQuery(query_embedding=vector(0.5), similarity_top_k=1))
    # Its SET is a session's: the next one to have the connection has it too.
    with other.client.connect() as connection:
        assert connection.execute(text("SHOW hnsw.ef_search")).scalar() == "50"
    asyncio.run(other.close())


def test_half_precision_is_indexed_by_cosine(
    database: Database, scanned: Callable[[str], int]
) -> None:
    half = PGVectorStore(
        connection_string=SYNC,
        async_connection_string=ASYNC,
        table_name="halves",
        embed_dim=DIMS,
        use_halfvec=True,
    )
    half.add([TextNode(text="1", id_="1", embedding=vector(1))])
    database.run(
        "INSERT INTO data_halves (text, node_id, embedding, metadata_) "
        "SELECT text, node_id, embedding, metadata_ FROM data_numbers WHERE node_id <> '1'"
    )
    database.run(
        gpuann.create_index(
            "data_halves", "embedding", "halfvec_cosine_ops", name="halves", ef_search=100
        )
    )
    database.run("ANALYZE data_halves")
    scanned("halves")
    found = half.query(VectorStoreQuery(query_embedding=vector(0.5), similarity_top_k=5))
    assert len(found.ids) == 5 and scanned("halves") == 1
    asyncio.run(half.close())
