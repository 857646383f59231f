"""The statements of the package itself, on a live server."""

import re

import gpuann
import psycopg
import pytest

from conftest import DIMS, Database, vector
from documents import CLIENTS_MD


def test_the_package_has_the_version_of_the_extension(items: Database) -> None:
    version = items.value("SELECT extversion FROM pg_extension WHERE extname = 'gpuann'")
    assert gpuann.__version__.startswith(version)


def test_an_index_is_made_with_its_options(items: Database) -> None:
    items.run(
        gpuann.create_index(
            "items", "embedding", "vector_l2_ops", name="e", m=24, ef_search=80, mirror=False
        )
    )
    assert items.options("e") == ["ef_search=80", "m=24", "mirror=off"]


def test_an_index_is_made_of_an_expression_for_some_rows(items: Database) -> None:
    items.run(
        gpuann.create_index(
            "items",
            f"((embedding::halfvec({DIMS})))",
            "halfvec_l2_ops",
            schema="public",
            name="h",
            where="id > 5",
            concurrently=True,
            if_not_exists=True,
        )
    )
    definition = items.value("SELECT pg_get_indexdef('h'::regclass)")
    assert f"(embedding)::halfvec({DIMS})" in definition and "WHERE (id > 5)" in definition


def test_names_are_quoted(items: Database) -> None:
    name = 'an "index"; DROP TABLE items'
    items.run('CREATE TABLE "odd ""name" (LIKE items)')
    items.run(gpuann.create_index('odd "name', "embedding", "vector_l2_ops", name=name))
    items.run(gpuann.alter_index(name, ef_search=50))
    assert items.options(name) == ["ef_search=50"]
    with pytest.raises(ValueError):
        gpuann.create_index("", "embedding", "vector_l2_ops")


def test_options_change_without_a_build(items: Database) -> None:
    items.run(gpuann.create_index("items", "embedding", "vector_l2_ops", name="c", m=20))
    before = items.file("c")
    items.run(gpuann.alter_index("c", schema="public", ef_search=200, mirror=True))
    assert items.options("c") == ["ef_search=200", "m=20", "mirror=on"]
    items.run(gpuann.alter_index("c", ef_search=None))
    assert items.options("c") == ["m=20", "mirror=on"]
    assert items.file("c") == before


def test_the_package_knows_every_option_of_the_server(items: Database) -> None:
    """PostgreSQL names the ones that it knows not; each of ours it takes, by its method."""
    lists = {"lists": 10, "quantizer": "pq", "code_bits": 8, "pq_m": 4, "probes": 3}
    for method, options in (
        ("graph", {"m": 8, "ef_construction": 32}),
        ("ivfpq", lists),
    ):
        items.run(
            gpuann.create_index(
                "items",
                "embedding",
                "vector_l2_ops",
                name=method,
                method=method,
                ef_search=20,
                mirror=True,
                **options,
            )
        )
        written = {"method": method, "ef_search": 20, "mirror": "on", **options}
        assert items.options(method) == sorted(f"{name}={value}" for name, value in written.items())
    reference = (CLIENTS_MD.parent / "reference.md").read_text()
    documented = re.findall(
        r"^\| `([a-z_]+)` \|[^\n]*\| (?:when the index is built|with the next scan) \|",
        reference,
        re.M,
    )
    assert sorted(documented) == sorted(gpuann.IndexOptions.__annotations__)


def test_lists_are_searched_as_broadly_as_the_option_says(items: Database) -> None:
    items.run(
        gpuann.create_index(
            "items", "embedding", "vector_cosine_ops", name="l", method="ivfpq", lists=50
        )
    )
    assert items.value("SELECT lists FROM gpuann_lists('l')") == 50
    before = items.file("l")
    items.run(gpuann.alter_index("l", probes=50))
    assert items.file("l") == before
    query = "SELECT id FROM items ORDER BY embedding <=> %s::vector LIMIT 5"
    expected = items.nearest(vector(0.5), "<=>")
    assert [row[0] for row in items.run(query, vector(0.5))] == expected
    visited = "SELECT visited FROM gpuann_last_scan()"
    with items.connection.transaction():
        # Pages compare other rows than the server, which may come between.
        items.run("SET LOCAL gpuann.server = off")
        items.run(query, vector(0.5))
        broad = items.value(visited)
        items.run(gpuann.set_local(probes=1, rerank=1))
        items.run(query, vector(0.5))
        assert items.value(visited) < broad
    items.run(gpuann.alter_index("l", probes=None))
    assert items.options("l") == ["lists=50", "method=ivfpq"]


def test_options_of_the_other_method_are_refused_by_the_server(items: Database) -> None:
    for options in ({"method": "ivfpq", "m": 16}, {"lists": 10}):
        with pytest.raises(psycopg.Error, match="is not one of method"):
            items.run(gpuann.create_index("items", "embedding", "vector_l2_ops", **options))


def test_options_and_values_that_cannot_be_are_refused() -> None:
    with pytest.raises(TypeError):
        gpuann.create_index("items", "embedding", "vector_l2_ops", list=100)
    with pytest.raises(ValueError):
        gpuann.set_local(iterative_scan="off'; --")
    with pytest.raises(ValueError):
        gpuann.set_local(**{"ef_search; --": 1})
    for call in (lambda: gpuann.set_local(), lambda: gpuann.alter_index("e")):
        with pytest.raises(ValueError):
            call()


def test_settings_hold_for_one_transaction(items: Database) -> None:
    show = "SELECT current_setting('gpuann.ef_search'), current_setting('gpuann.exact')"
    with items.connection.transaction():
        items.run(gpuann.set_local(ef_search=200, exact=True))
        assert items.run(show) == [("200", "on")]
    assert items.run(show) == [("-1", "off")]
    # Outside of one they are without effect.
    items.run(gpuann.set_local(ef_search=200))
    assert items.run(show) == [("-1", "off")]


def test_a_setting_that_does_not_exist_is_an_error(items: Database) -> None:
    with pytest.raises(psycopg.Error, match="gpuann.ef_serach"):
        items.run(gpuann.set_local(ef_serach=200))


def test_the_index_option_is_what_a_scan_uses(items: Database) -> None:
    items.run(gpuann.create_index("items", "embedding", "vector_l2_ops", name="o", ef_search=20))
    query = "EXPLAIN (ANALYZE) SELECT id FROM items ORDER BY embedding <-> %s::vector LIMIT 5"
    for ef in (20, 300):
        items.run(gpuann.alter_index("o", ef_search=ef))
        plan = "\n".join(row[0] for row in items.run(query, vector(0.5)))
        assert f" ef={ef} " in plan, plan
