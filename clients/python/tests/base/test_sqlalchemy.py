"""SQLAlchemy and Alembic, with pgvector's types and SQLAlchemy's own options of an index."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import gpuann
import pytest
from alembic import command
from alembic.autogenerate import compare_metadata, produce_migrations, render_python_code
from alembic.config import Config
from alembic.migration import MigrationContext
from pgvector.sqlalchemy import HALFVEC, VECTOR
from sqlalchemy import Engine, Index, cast, create_engine, select, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from conftest import DIMS, Database, vector


class Base(DeclarativeBase):
    pass


class Item(Base):
    __tablename__ = "items"
    id: Mapped[int] = mapped_column(primary_key=True)
    embedding: Mapped[list[float]] = mapped_column(VECTOR(DIMS))
    __table_args__ = (
        Index(
            "items_embedding",
            "embedding",
            postgresql_using="gpuann",
            postgresql_ops={"embedding": "vector_l2_ops"},
            postgresql_with={"m": 24, "ef_search": 100},
        ),
    )


# Half precision is an expression: SQLAlchemy finds its operator class by the label.
Index(
    "items_half",
    cast(Item.embedding, HALFVEC(DIMS)).label("half"),
    postgresql_using="gpuann",
    postgresql_ops={"half": "halfvec_cosine_ops"},
    postgresql_with={"ef_search": 100},
)

Index(
    "items_lists",
    Item.embedding,
    postgresql_using="gpuann",
    postgresql_ops={"embedding": "vector_ip_ops"},
    postgresql_with={
        "method": "ivfpq",
        "lists": 8,
        "quantizer": "rabitq",
        "code_bits": 4,
        "probes": 8,
    },
)


@pytest.fixture
def engine(items: Database) -> Iterator[Engine]:
    items.run("DROP TABLE items")
    engine = create_engine("postgresql+psycopg:///app")
    Base.metadata.create_all(engine)
    items.fill()
    yield engine
    engine.dispose()


def test_metadata_makes_indexes_that_queries_use(
    engine: Engine, database: Database, scanned: Callable[[str], int]
) -> None:
    assert database.options("items_embedding") == ["ef_search=100", "m=24"]
    scanned("items_embedding"), scanned("items_half")
    with Session(engine) as session:
        for _ in range(7):
            nearest = select(Item.id).order_by(Item.embedding.l2_distance(vector(0.5))).limit(5)
            assert list(session.scalars(nearest)) == database.nearest(vector(0.5))
        half = cast(Item.embedding, HALFVEC(DIMS)).cosine_distance(vector(0.5))
        assert len(list(session.scalars(select(Item.id).order_by(half).limit(5)))) == 5
    assert (scanned("items_embedding"), scanned("items_half")) == (7, 1)


def test_lists_are_made_and_used(
    engine: Engine, database: Database, scanned: Callable[[str], int]
) -> None:
    # The table was empty, and lists stay as the build made them.
    database.run("REINDEX INDEX items_lists")
    assert database.value("SELECT lists FROM gpuann_lists('items_lists')") == 8
    assert "method=ivfpq" in database.options("items_lists")
    scanned("items_lists")
    with Session(engine) as session:
        nearest = select(Item.id).order_by(Item.embedding.max_inner_product(vector(0.5))).limit(5)
        assert list(session.scalars(nearest)) == database.nearest(vector(0.5), "<#>")
    assert scanned("items_lists") == 1


def test_settings_hold_for_a_transaction_of_a_session(engine: Engine) -> None:
    with Session(engine) as session, session.begin():
        session.execute(text(gpuann.set_local(ef_search=300)))
        assert session.scalar(text("SHOW gpuann.ef_search")) == "300"
    with Session(engine) as session:
        assert session.scalar(text("SHOW gpuann.ef_search")) == "-1"


def test_asyncpg_below_sqlalchemy_uses_the_index(
    engine: Engine, database: Database, scanned: Callable[[str], int]
) -> None:
    async def ask() -> list[int]:
        engine = create_async_engine("postgresql+asyncpg:///app")
        async with AsyncSession(engine) as session:
            await session.execute(text(gpuann.set_local(ef_search=300)))
            found = await session.scalars(
                select(Item.id).order_by(Item.embedding.l2_distance(vector(0.5))).limit(5)
            )
            found = list(found)
        await engine.dispose()
        return found

    scanned("items_embedding")
    assert asyncio.run(ask()) == database.nearest(vector(0.5))
    assert scanned("items_embedding") == 1


def test_autogenerate_finds_nothing_to_do(engine: Engine) -> None:
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), Base.metadata) == []


def test_autogenerate_writes_the_index_and_overlooks_a_changed_option(
    engine: Engine, database: Database
) -> None:
    database.run(gpuann.alter_index("items_embedding", ef_search=7))
    database.run("DROP INDEX items_half")
    with engine.connect() as connection:
        found = produce_migrations(MigrationContext.configure(connection), Base.metadata)
    code = render_python_code(found.upgrade_ops)
    assert code.count("op.") == 1
    for written in (
        "items_half",
        "postgresql_using='gpuann'",
        "postgresql_ops={'half': 'halfvec_cosine_ops'}",
        "postgresql_with={'ef_search': 100}",
    ):
        assert written in code


ENV = """
from alembic import context
from sqlalchemy import create_engine

with create_engine("postgresql+psycopg:///app").connect() as connection:
    context.configure(connection=connection, target_metadata=None)
    with context.begin_transaction():
        context.run_migrations()
"""

EXTENSION = """
from alembic import op
import gpuann

revision = "1"
down_revision = None


def upgrade():
    op.execute("CREATE EXTENSION IF NOT EXISTS gpuann CASCADE")


def downgrade():
    op.execute("DROP EXTENSION gpuann")
"""

INDEX = """
from alembic import op
import gpuann

revision = "2"
down_revision = "1"


def upgrade():
    with op.get_context().autocommit_block():
        op.create_index(
            "items_e", "items", ["embedding"],
            postgresql_using="gpuann",
            postgresql_ops={"embedding": "vector_l2_ops"},
            postgresql_with={"ef_search": 100},
            postgresql_concurrently=True,
        )


def downgrade():
    op.drop_index("items_e", "items")
"""

OPTION = """
from alembic import op
import gpuann

revision = "3"
down_revision = "2"


def upgrade():
    op.execute(gpuann.alter_index("items_e", ef_search=200))


def downgrade():
    op.execute(gpuann.alter_index("items_e", ef_search=100))
"""


def test_alembic_makes_changes_and_drops_an_index(items: Database, tmp_path: Path) -> None:
    versions = tmp_path / "versions"
    versions.mkdir()
    (tmp_path / "env.py").write_text(ENV)
    for name, content in (("1_extension", EXTENSION), ("2_index", INDEX), ("3_option", OPTION)):
        (versions / f"{name}.py").write_text(content)
    config = Config()
    config.set_main_option("script_location", str(tmp_path))
    config.set_main_option("path_separator", "os")

    command.upgrade(config, "2")
    assert items.options("items_e") == ["ef_search=100"]
    before = items.file("items_e")
    command.upgrade(config, "head")
    assert items.options("items_e") == ["ef_search=200"]
    command.downgrade(config, "2")
    assert items.options("items_e") == ["ef_search=100"]
    assert items.file("items_e") == before
    command.downgrade(config, "1")
    assert items.value("SELECT to_regclass('items_e')") is None
    command.downgrade(config, "base")
    assert items.value("SELECT count(*) FROM pg_extension WHERE extname = 'gpuann'") == 0
    items.run("CREATE EXTENSION gpuann")
