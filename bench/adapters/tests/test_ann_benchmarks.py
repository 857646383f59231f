"""The module for ann-benchmarks, called as by its runner, with a stand-in of its base class."""

from __future__ import annotations

import importlib
import itertools
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy
import psycopg
import pytest
import yaml

from conftest import ADAPTERS, K, STANDINS, Data, counted, options

INDEX = "ann_benchmarks_gpuann_embedding"
CONFIG = yaml.safe_load((ADAPTERS / "ann_benchmarks/gpuann/config.yml").read_text())


@pytest.fixture(scope="module")
def module(
    database: psycopg.Connection, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ModuleType]:
    """The adapter where the framework has it: ann_benchmarks.algorithms.gpuann.module."""
    tree = tmp_path_factory.mktemp("framework")
    shutil.copytree(STANDINS / "ann_benchmarks", tree / "ann_benchmarks")
    shutil.copytree(ADAPTERS / "ann_benchmarks/gpuann", tree / "ann_benchmarks/algorithms/gpuann")
    sys.path.insert(0, str(tree))
    yield importlib.import_module("ann_benchmarks.algorithms.gpuann.module")
    sys.path.remove(str(tree))


def expanded(options: dict[str, Any]) -> list[dict[str, Any]]:
    """Every combination of a group of options, as the framework expands it."""
    values = [value if isinstance(value, list) else [value] for value in options.values()]
    return [dict(zip(options, chosen)) for chosen in itertools.product(*values)]


def entries() -> list[tuple[str, dict[str, Any]]]:
    """The metrics and entries of config.yml; "any" stands for two."""
    found = []
    for metrics in CONFIG.values():
        for metric, algorithms in metrics.items():
            for name in ("angular", "euclidean") if metric == "any" else (metric,):
                found += [(name, algorithm) for algorithm in algorithms]
    return found


@pytest.mark.parametrize(
    ("metric", "entry"), entries(), ids=lambda each: each if isinstance(each, str) else each["name"]
)
def test_every_entry_of_the_configuration_can_be_made(
    module: ModuleType, database: psycopg.Connection, metric: str, entry: dict[str, Any]
) -> None:
    assert entry["module"] == "ann_benchmarks.algorithms.gpuann"
    constructor = getattr(module, entry["constructor"])
    for group in entry["run_groups"].values():
        (options,) = group["arg_groups"]
        settings = len(module.QUERY_SETTINGS[entry["base_args"][1]])
        assert 1 <= len(group["query_args"]) <= settings
        for each in expanded(options):
            arguments = [metric if each == "@metric" else each for each in entry["base_args"]]
            algorithm = constructor(*arguments, each)
            assert all(f"{name}={value}" in str(algorithm) for name, value in each.items())


RUNS = [
    ("euclidean", "l2", "graph", {"m": 16, "ef_construction": 80}, [20], [200]),
    ("angular", "cosine", "graph", {}, [20], [200]),
    ("euclidean", "l2", "ivfpq", {"lists": 60, "quantizer": "rabitq", "code_bits": 4}, [1], [60]),
    (
        "angular",
        "cosine",
        "ivfpq",
        {"quantizer": "pq", "code_bits": 8, "pq_m": 8},
        [4, 1],
        [60, 50],
    ),
]


@pytest.mark.parametrize(
    ("metric", "distance", "method", "given", "narrow", "broad"),
    RUNS,
    ids=[f"{metric} {method}" for metric, _, method, *_ in RUNS],
)
def test_a_run_finds_the_nearest(
    module: ModuleType,
    database: psycopg.Connection,
    data: Data,
    metric: str,
    distance: str,
    method: str,
    given: dict[str, Any],
    narrow: list[int],
    broad: list[int],
) -> None:
    algorithm = module.Gpuann(metric, method, given)
    assert algorithm.get_memory_usage() == 0
    algorithm.fit(data.rows)
    assert options(database, INDEX) == {
        "method": method,
        **{name: str(value) for name, value in given.items()},
    }
    assert algorithm.get_memory_usage() > data.rows.nbytes / 1024 / 8
    before = counted(database, INDEX)
    recalls = []
    for arguments in (narrow, broad):
        algorithm.set_query_arguments(*arguments)
        assert str(arguments[0]) in str(algorithm)
        answers = [algorithm.query(query, K) for query in data.queries]
        assert all(len(answer) == K for answer in answers)
        recalls.append(data.recall(answers, distance))
        # The batch has the same settings, and so the same answers.
        algorithm.batch_query(data.queries, K)
        assert algorithm.get_batch_results() == answers
    assert recalls[0] <= recalls[1] and recalls[1] > 0.97, recalls
    additional = algorithm.get_additional()
    assert additional["gpuann_path"] == "server" and additional["gpuann_engine"] == "cpu"
    assert additional["gpuann_mirror_bytes"] > 0
    algorithm.done()
    after = counted(database, INDEX)
    assert (after[0] - before[0], after[1] - before[1]) == (4 * len(data.queries), 0)


def test_rows_of_bits_are_found(module: ModuleType, database: psycopg.Connection) -> None:
    random = numpy.random.default_rng(3)
    rows = random.random((2000, 64)) < 0.5
    algorithm = module.Gpuann("hamming", "graph", {"m": 16, "ef_construction": 100})
    algorithm.fit(rows)
    algorithm.set_query_arguments(200)
    for query in rows[:20]:
        distances = (rows ^ query).sum(axis=1)
        found = distances[algorithm.query(query, K)]
        assert found[0] == 0 and found.max() <= numpy.sort(distances)[K - 1] + 1
    algorithm.done()


def test_pages_answer_where_the_server_is_off(
    module: ModuleType,
    database: psycopg.Connection,
    data: Data,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PGOPTIONS", "-c gpuann.server=off")
    algorithm = module.Gpuann("euclidean", "graph", {})
    algorithm.fit(data.rows)
    algorithm.set_query_arguments(200)
    answers = [algorithm.query(query, K) for query in data.queries]
    assert data.recall(answers, "l2") > 0.97
    assert algorithm.get_additional()["gpuann_path"] == "pages"
    algorithm.done()


def test_queries_are_prepared_once_and_vectors_sent_in_binary(
    module: ModuleType, database: psycopg.Connection, data: Data
) -> None:
    algorithm = module.Gpuann("euclidean", "graph", {})
    algorithm.fit(data.rows[:500])
    for query in data.queries[:20]:
        algorithm.query(query, K)
    prepared = algorithm.connection.execute(
        "SELECT generic_plans + custom_plans, parameter_types::text[] FROM pg_prepared_statements"
        " WHERE statement LIKE 'SELECT id FROM%'"
    ).fetchall()
    assert [(row[0], row[1][0]) for row in prepared] == [(20, "vector")], prepared
    assert b"\0" in algorithm._vector(data.queries[0]).to_binary()[:4]
    algorithm.done()


def test_what_cannot_be_is_refused(module: ModuleType) -> None:
    with pytest.raises(ValueError):
        module.Gpuann("euclidean", "graph", {}).set_query_arguments(40, 1)
    for metric, method, given in (
        ("jaccard", "graph", {}),
        ("euclidean", "ivfpq", {"m": 16}),
        ("euclidean", "graph", {"lists": 10}),
    ):
        with pytest.raises(ValueError):
            module.Gpuann(metric, method, given)


def test_the_image_has_what_the_module_needs() -> None:
    """No container runtime is at hand: what the Dockerfile names is compared with the tree."""
    dockerfile = (ADAPTERS / "ann_benchmarks/gpuann/Dockerfile").read_text()
    assert dockerfile.startswith("FROM ann-benchmarks\n")
    source = Path(ADAPTERS / "ann_benchmarks/gpuann/module.py").read_text()
    for role in ('"user": "ann"', '"password": "ann"', '"dbname": "ann"'):
        assert role in source
    assert "LOGIN PASSWORD 'ann'" in dockerfile and "createdb -O ann ann" in dockerfile
