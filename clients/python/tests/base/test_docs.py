"""docs/clients.md: what it shows runs, but for LangChain and LlamaIndex."""

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from conftest import Database
from documents import Snippet, command, python, snippets

FRAMEWORKS = ("LangChain", "LlamaIndex")
SCRIPTS = [
    each for each in snippets("python") if each.heading not in FRAMEWORKS and each.file is None
]
FILES = {each.file: each for each in snippets("python") if each.file is not None}


@pytest.fixture(autouse=True)
def table(database: Database) -> None:
    """What the document says that there is."""
    database.run("DROP SCHEMA public CASCADE")
    database.run("CREATE SCHEMA public")
    database.run("CREATE EXTENSION gpuann CASCADE")
    database.run("CREATE TABLE items (id bigserial PRIMARY KEY, category int, embedding vector(3))")
    database.run(
        "INSERT INTO items (category, embedding) "
        "SELECT i % 10, ARRAY[sin(i), sin(i * 1.7), sin(i * 2.9)]::vector FROM generate_series(1, 5000) i"
    )
    database.run("ANALYZE items")


def test_it_has_its_snippets() -> None:
    assert len(SCRIPTS) >= 4 and len(FILES) >= 5


@pytest.mark.parametrize("snippet", SCRIPTS, ids=lambda snippet: snippet.heading)
def test_python(snippet: Snippet) -> None:
    python(snippet.code)


def test_sql(database: Database) -> None:
    try:
        for snippet in snippets("sql"):
            database.run(snippet.code)
    finally:
        database.run("ALTER DATABASE app RESET ALL")


ALEMBIC = """
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import create_engine

with create_engine("postgresql+psycopg:///app").connect() as connection:
    context = MigrationContext.configure(connection)
    with Operations.context(context), context.begin_transaction():
        upgrade()
    options = "SELECT array_to_string(reloptions, ' ') FROM pg_class WHERE relname = 'items_cosine'"
    assert connection.exec_driver_sql(options).scalar() == "ef_search=200"
    options = options.replace("cosine", "lists")
    assert connection.exec_driver_sql(options).scalar() == (
        "method=ivfpq quantizer=rabitq code_bits=4 probes=50"
    )
    with Operations.context(context), context.begin_transaction():
        downgrade()
"""


def test_alembic_migration() -> None:
    python(FILES["migrations/versions/0001_gpuann.py"].code + ALEMBIC)


DJANGO = """
import django
from django.conf import settings as project
from django.core.management import call_command

project.configure(
    INSTALLED_APPS=["django.contrib.postgres", "search"],
    DATABASES={"default": {"ENGINE": "django.db.backends.postgresql", "NAME": "app"}},
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
)
django.setup()
"""


def test_django_project(database: Database, tmp_path: Path) -> None:
    def django(code: str) -> None:
        # A process has one project, and test_django.py has another.
        # Without bytecode: a model written anew within a second would not be read.
        command([sys.executable, "-c", DJANGO + code], tmp_path, PYTHONDONTWRITEBYTECODE="1")

    def write(name: str) -> None:
        path = tmp_path / f"search/{name}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(FILES[f"search/{name}"].code)

    for name in ("models.py", "migrations/0001_gpuann.py"):
        write(name)
    for directory in ("search", "search/migrations"):
        (tmp_path / directory / "__init__.py").touch()
    django('call_command("makemigrations", "search"); call_command("migrate")')
    assert database.options("page_l2") == ["ef_search=100"]
    write("migrations/0003_ef_search.py")
    write("queries.py")
    # With the model changed likewise, there is nothing left to do.
    models = tmp_path / "search/models.py"
    models.write_text(models.read_text().replace("ef_search=100", "ef_search=200"))
    check = (
        'call_command("migrate"); call_command("makemigrations", "search", check_changes=True)\n'
    )
    django(check + "import search.queries")
    assert database.options("page_l2") == ["ef_search=200"]


def need(condition: object, what: str) -> None:
    if not condition:
        pytest.skip(f"no {what}")


def only(language: str) -> str:
    (snippet,) = snippets(language)
    return snippet.code


@pytest.fixture
def finds_ten(
    database: Database, scanned: Callable[[str], int], tmp_path: Path
) -> Callable[..., None]:
    """Runs a program, which prints how many rows it found, by the index."""

    def run(*arguments: str, **environment: str) -> None:
        database.run("CREATE INDEX items_l2 ON items USING gpuann (embedding vector_l2_ops)")
        scanned("items_l2")
        assert command(list(arguments), tmp_path, **environment).splitlines()[-1] == "10"
        assert scanned("items_l2") == 1

    return run


def test_node(finds_ten: Callable[..., None], tmp_path: Path) -> None:
    need(shutil.which("node"), "node")
    (tmp_path / "probe.js").write_text("require('pg')")
    try:
        command(["node", "probe.js"], tmp_path)
    except AssertionError:
        pytest.skip("no pg for node (NODE_PATH)")
    (tmp_path / "nearest.js").write_text(only("javascript"))
    finds_ten("node", "nearest.js")


def test_go(finds_ten: Callable[..., None], tmp_path: Path) -> None:
    """With GOPATH alone, and the version of pgx that is there."""
    versions = [
        path.name for path in Path(os.environ.get("GOPATH", "")).glob("src/github.com/jackc/pgx/v*")
    ]
    need(shutil.which("go") and versions, "go with pgx in GOPATH")
    version = max(versions)
    (tmp_path / "main.go").write_text(only("go").replace("pgx/v5", f"pgx/{version}"))
    environment = {"GO111MODULE": "off", "GOCACHE": str(tmp_path / "cache")}
    finds_ten("go", "run", "main.go", **environment)


def test_rust(finds_ten: Callable[..., None], tmp_path: Path) -> None:
    registry = os.environ.get("CARGO_REGISTRY", "/usr/share/cargo/registry")
    need(
        shutil.which("cargo") and any(Path(registry).glob("tokio-postgres-*")),
        "cargo with tokio-postgres",
    )
    (tmp_path / "src").mkdir()
    (tmp_path / ".cargo").mkdir()
    (tmp_path / "src/main.rs").write_text(only("rust"))
    (tmp_path / ".cargo/config.toml").write_text(
        f'[source.crates-io]\nreplace-with = "here"\n[source.here]\ndirectory = "{registry}"\n'
    )
    (tmp_path / "Cargo.toml").write_text(
        '[package]\nname = "nearest"\nversion = "0.1.0"\nedition = "2021"\n[dependencies]\n'
        'tokio = { version = "1", features = ["macros", "rt-multi-thread"] }\ntokio-postgres = "0.7"\n'
    )
    finds_ten("cargo", "run", "-q", "--offline")


def test_java(finds_ten: Callable[..., None], tmp_path: Path) -> None:
    driver = "postgresql" in os.environ.get("CLASSPATH", "")
    need(shutil.which("java") and driver, "java with JDBC's driver in CLASSPATH")
    need("JDBC_URL" in os.environ, "address for JDBC, which has no Unix sockets (JDBC_URL)")
    (tmp_path / "Nearest.java").write_text(only("java"))
    finds_ten("java", "Nearest.java")
