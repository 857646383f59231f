"""Django: a project with one application, from its migrations to its queries."""

import io
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import django
import pytest
from django.conf import settings

from conftest import DIMS, ROWS, Database, vector

MODELS = """
from django.contrib.postgres.indexes import OpClass
from django.db import models
from django.db.models.functions import Cast
from gpuann.django import GpuannIndex
from pgvector.django import HalfVectorField, VectorField


class Item(models.Model):
    id = models.IntegerField(primary_key=True)
    embedding = VectorField(dimensions=DIMS)

    class Meta:
        db_table = "items"
        indexes = [
            GpuannIndex(
                fields=["embedding"], name="items_embedding", opclasses=["vector_l2_ops"],
                m=24, ef_search=EF_SEARCH,
            ),
            GpuannIndex(
                OpClass(Cast("embedding", HalfVectorField(dimensions=DIMS)), name="halfvec_l2_ops"),
                name="items_half",
            ),
            GpuannIndex(
                fields=["embedding"], name="items_lists", opclasses=["vector_ip_ops"],
                method="ivfpq", lists=8, quantizer="pq", code_bits=8, pq_m=4, probes=4,
            ),
        ]
"""

# What the index with lists has, as PostgreSQL shows it.
LISTS = ["code_bits=8", "lists=8", "method=ivfpq", "pq_m=4", "probes=4", "quantizer=pq"]

EXTENSION = """
from django.db import migrations
from gpuann.django import GpuannExtension


class Migration(migrations.Migration):
    dependencies = []
    operations = [GpuannExtension()]
"""

OPTION = """
from django.db import migrations
from gpuann.django import AlterGpuannIndex


class Migration(migrations.Migration):
    dependencies = [("items", "0002_initial")]
    operations = [
        AlterGpuannIndex("item", "items_embedding", ef_search=300, m=None),
        AlterGpuannIndex("item", "items_lists", probes=8),
    ]
"""

CONCURRENTLY = """
from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations
from gpuann.django import GpuannIndex


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("items", "0003_option")]
    operations = [
        AddIndexConcurrently(
            "item", GpuannIndex(fields=["embedding"], name="later", opclasses=["vector_cosine_ops"])
        )
    ]
"""


@pytest.fixture(scope="module")
def project(database: Database, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A project whose application is migrated to its first index, and full of rows."""
    directory = tmp_path_factory.mktemp("project")
    application = directory / "items"
    (application / "migrations").mkdir(parents=True)
    (application / "__init__.py").touch()
    (application / "migrations" / "__init__.py").touch()
    (application / "migrations" / "0001_extension.py").write_text(EXTENSION)
    write_models(directory, "200")
    sys.path.insert(0, str(directory))
    settings.configure(
        INSTALLED_APPS=["django.contrib.postgres", "items"],
        DATABASES={
            "default": {
                "ENGINE": "django.db.backends.postgresql",
                "NAME": "app",
                "HOST": os.environ["PGHOST"],
                "PORT": os.environ["PGPORT"],
                "USER": os.environ.get("PGUSER", ""),
            }
        },
        DEFAULT_AUTO_FIELD="django.db.models.AutoField",
    )
    django.setup()
    manage("makemigrations", "items")
    assert (application / "migrations" / "0002_initial.py").exists()
    manage("migrate")
    database.fill()
    yield directory
    from django.db import connections

    connections.close_all()
    sys.path.remove(str(directory))


def write_models(directory: Path, ef_search: str) -> None:
    source = MODELS.replace("DIMS", str(DIMS)).replace("EF_SEARCH", ef_search)
    (directory / "items" / "models.py").write_text(source)


def manage(*arguments: str, **options: object) -> str:
    from django.core.management import call_command

    output = io.StringIO()
    call_command(*arguments, stdout=output, **options)
    return output.getvalue()


def nearest(limit: int = 5) -> list[int]:
    from items.models import Item
    from pgvector.django import L2Distance

    return list(
        Item.objects.order_by(L2Distance("embedding", vector(0.5))).values_list("id", flat=True)[
            :limit
        ]
    )


def test_a_migration_installs_the_extension_and_makes_the_index(
    project: Path, database: Database
) -> None:
    assert database.options("items_embedding") == ["ef_search=200", "m=24"]
    assert database.options("items_lists") == LISTS
    assert "USING gpuann" in database.value("SELECT pg_get_indexdef('items_embedding'::regclass)")
    assert f"::halfvec({DIMS})) halfvec_l2_ops" in database.value(
        "SELECT pg_get_indexdef('items_half'::regclass)"
    )


def test_makemigrations_finds_no_difference(project: Path) -> None:
    assert "No changes detected" in manage(
        "makemigrations", "items", check_changes=True, dry_run=True
    )


def test_a_queryset_uses_the_index(
    project: Path, database: Database, scanned: Callable[[str], int]
) -> None:
    scanned("items_embedding")
    assert nearest() == database.nearest(vector(0.5))
    assert scanned("items_embedding") == 1


def test_a_filter_gets_all_rows_that_it_asks_for(project: Path, database: Database) -> None:
    from items.models import Item
    from pgvector.django import L2Distance

    distance = L2Distance("embedding", vector(0.5))
    found = (
        Item.objects.filter(id__gt=ROWS - 50).annotate(distance=distance).order_by("distance")[:40]
    )
    assert len(found) == 40
    assert [item.distance for item in found] == sorted(item.distance for item in found)


def test_settings_hold_for_a_block(project: Path) -> None:
    from django.db import connection
    from gpuann.django import settings

    def shown() -> str:
        with connection.cursor() as cursor:
            cursor.execute("SHOW gpuann.ef_search")
            return cursor.fetchone()[0]

    with settings(ef_search=150):
        assert shown() == "150"
        assert len(nearest()) == 5
    assert shown() == "-1"


def test_an_option_changes_in_place_and_back(project: Path, database: Database) -> None:
    migration = project / "items" / "migrations" / "0003_option.py"
    migration.write_text(OPTION)
    before = database.file("items_embedding")
    assert "ALTER INDEX" in manage("sqlmigrate", "items", "0003")
    manage("migrate", "items", "0003")
    assert database.options("items_embedding") == ["ef_search=300"]
    assert "probes=8" in database.options("items_lists")
    manage("migrate", "items", "0002")
    assert database.options("items_embedding") == ["ef_search=200", "m=24"]
    assert database.options("items_lists") == LISTS
    manage("migrate", "items", "0003")
    assert database.file("items_embedding") == before


def test_after_that_makemigrations_wants_nothing_else(project: Path) -> None:
    from django.apps import apps
    from django.db.migrations.autodetector import MigrationAutodetector
    from django.db.migrations.loader import MigrationLoader
    from django.db.migrations.state import ProjectState

    after = MigrationLoader(None, ignore_no_migrations=True).project_state()
    wanted = ProjectState.from_apps(apps)
    graph, _, lists = wanted.models["items", "item"].options["indexes"]
    graph.options = {**graph.options, "m": None, "ef_search": 300}
    lists.options = {**lists.options, "probes": 8}
    assert MigrationAutodetector(after, wanted)._detect_changes() == {}


def test_an_index_is_made_concurrently(project: Path, database: Database) -> None:
    (project / "items" / "migrations" / "0004_later.py").write_text(CONCURRENTLY)
    manage("migrate", "items", "0004")
    assert database.value("SELECT indisvalid FROM pg_index WHERE indexrelid = 'later'::regclass")


def test_going_back_drops_everything_but_vector(project: Path, database: Database) -> None:
    manage("migrate", "items", "zero")
    extensions = {row[0] for row in database.run("SELECT extname FROM pg_extension")}
    assert "gpuann" not in extensions and "vector" in extensions


def test_what_the_operation_cannot_do_it_refuses() -> None:
    from gpuann.django import AlterGpuannIndex

    with pytest.raises(TypeError):
        AlterGpuannIndex("item", "items_embedding", list=10)
    with pytest.raises(ValueError):
        AlterGpuannIndex("item", "items_embedding")
