"""LangChain: PGVectorStore with the package's index, PGVector with one made beside it."""

from collections.abc import Callable, Iterator

import gpuann
import pytest
from gpuann.langchain import GpuannIndex, GpuannQueryOptions
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_postgres import PGEngine, PGVector, PGVectorStore
from langchain_postgres.v2.indexes import DistanceStrategy

from conftest import DIMS, ROWS, Database, vector

VECTOR = f"ARRAY(SELECT sin(i * j * 1.7) FROM generate_series(1, {DIMS}) j)::vector"


class Numbers(Embeddings):
    """The embedding of a number's text is the vector of that row."""

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [vector(float(text)) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        return vector(float(text))


def nearest(database: Database, table: str, text: str, operator: str) -> list[str]:
    """The answer to "0.5" without an index."""
    return [
        row[0]
        for row in database.run(
            f"SELECT {text} FROM {table} ORDER BY (embedding {operator} %s::vector) + 0 LIMIT 5",
            vector(0.5),
        )
    ]


@pytest.fixture(scope="module")
def engine(database: Database) -> PGEngine:
    """A table of PGVectorStore's making, with many rows and no index."""
    database.run("CREATE EXTENSION gpuann CASCADE")
    engine = PGEngine.from_connection_string("postgresql+asyncpg:///app")
    engine.init_vectorstore_table("documents", vector_size=DIMS)
    database.run(
        "INSERT INTO documents (langchain_id, content, embedding) "
        f"SELECT gen_random_uuid(), i::text, {VECTOR} FROM generate_series(1, {ROWS}) i"
    )
    database.run("ANALYZE documents")
    return engine


def test_pgvectorstore_makes_the_index_and_uses_it(
    engine: PGEngine, database: Database, scanned: Callable[[str], int]
) -> None:
    store = PGVectorStore.create_sync(engine, Numbers(), "documents")
    store.apply_vector_index(GpuannIndex(name="documents_embedding", m=20, ef_search=100))
    assert database.options("documents_embedding") == ["ef_search=100", "m=20", "method=graph"]
    expected = nearest(database, "documents", "content", "<=>")
    scanned("documents_embedding")
    for _ in range(7):
        assert [found.page_content for found in store.similarity_search("0.5", k=5)] == expected
    assert scanned("documents_embedding") == 7
    store.drop_vector_index("documents_embedding")


def test_pgvectorstore_makes_lists(
    engine: PGEngine, database: Database, scanned: Callable[[str], int]
) -> None:
    store = PGVectorStore.create_sync(engine, Numbers(), "documents")
    store.apply_vector_index(GpuannIndex(name="documents_lists", method="ivfpq", lists=8, probes=8))
    assert database.options("documents_lists") == ["lists=8", "method=ivfpq", "probes=8"]
    expected = nearest(database, "documents", "content", "<=>")
    scanned("documents_lists")
    assert [found.page_content for found in store.similarity_search("0.5", k=5)] == expected
    assert scanned("documents_lists") == 1
    store.drop_vector_index("documents_lists")


def test_pgvectorstore_sends_query_options(engine: PGEngine, database: Database) -> None:
    store = PGVectorStore.create_sync(
        engine,
        Numbers(),
        "documents",
        distance_strategy=DistanceStrategy.EUCLIDEAN,
        index_query_options=GpuannQueryOptions(ef_search=3, iterative_scan="off"),
    )
    store.apply_vector_index(
        GpuannIndex(name="documents_l2", distance_strategy=DistanceStrategy.EUCLIDEAN),
        concurrently=True,
    )
    # Such a scan ends behind its first ef_search rows.
    expected = nearest(database, "documents", "content", "<->")[:3]
    assert len(store.similarity_search("0.5", k=5)) == 3
    store = PGVectorStore.create_sync(
        engine, Numbers(), "documents", distance_strategy=DistanceStrategy.EUCLIDEAN
    )
    assert [found.page_content for found in store.similarity_search("0.5", k=5)][:3] == expected


@pytest.fixture(scope="module")
def legacy(engine: PGEngine, database: Database) -> Iterator[PGVector]:
    """The older class, with many rows: one of its own, and those put beside it."""
    store = PGVector(
        Numbers(),
        connection="postgresql+psycopg:///app",
        collection_name="numbers",
        embedding_length=DIMS,
        # The test's own database has it.
        create_extension=False,
    )
    store.add_documents([Document("1", id="first", metadata={"odd": True})])
    database.run(
        "INSERT INTO langchain_pg_embedding (id, collection_id, document, embedding, cmetadata) "
        "SELECT i::text, (SELECT uuid FROM langchain_pg_collection), i::text, "
        f"{VECTOR}, jsonb_build_object('odd', i % 2 = 1) FROM generate_series(2, {ROWS}) i"
    )
    database.run("ANALYZE langchain_pg_embedding")
    yield store


def test_pgvector_uses_an_index_made_beside_it(
    legacy: PGVector, database: Database, scanned: Callable[[str], int]
) -> None:
    database.run(
        gpuann.create_index(
            "langchain_pg_embedding", "embedding", "vector_cosine_ops", name="legacy", ef_search=100
        )
    )
    scanned("legacy")
    expected = nearest(database, "langchain_pg_embedding", "document", "<=>")
    assert [found.page_content for found in legacy.similarity_search("0.5", k=5)] == expected
    assert scanned("legacy") == 1


def test_pgvector_filters_by_metadata_and_gets_k_rows(legacy: PGVector) -> None:
    found = legacy.similarity_search("0.5", k=30, filter={"odd": {"$eq": True}})
    assert len(found) == 30 and all(int(each.page_content) % 2 == 1 for each in found)


def test_pgvector_without_a_length_cannot_be_indexed(database: Database) -> None:
    database.run("CREATE TABLE without_length (embedding vector)")
    with pytest.raises(Exception, match="dimensions"):
        database.run(gpuann.create_index("without_length", "embedding", "vector_cosine_ops"))
    # The way out: a cast in the column's type.
    database.run(f"ALTER TABLE without_length ALTER COLUMN embedding TYPE vector({DIMS})")
    database.run(gpuann.create_index("without_length", "embedding", "vector_cosine_ops"))
