"""The backend for cuvs-bench, driven as by its orchestrator, with stand-ins of its classes."""

from __future__ import annotations

import importlib
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy
import psycopg
import pytest
import yaml

from conftest import ADAPTERS, K, QUERIES, STANDINS, Data, options

PLUGIN = ADAPTERS / "cuvs_bench"
Run = Callable[..., list]


@pytest.fixture(scope="module")
def registered() -> Iterator[None]:
    """The plug-in, registered by the entry points that its pyproject.toml names."""
    paths = [str(STANDINS), str(PLUGIN / "src")]
    sys.path[:0] = paths
    project = tomllib.loads((PLUGIN / "pyproject.toml").read_text())["project"]
    for group in ("cuvs_bench.backends", "cuvs_bench.config_loaders"):
        module, _, function = project["entry-points"][group]["gpuann"].partition(":")
        getattr(importlib.import_module(module), function)()
    yield
    for path in paths:
        sys.path.remove(path)


def write(path: Path, values: numpy.ndarray) -> None:
    with path.open("wb") as file:
        numpy.array(values.shape, dtype=numpy.uint32).tofile(file)
        values.tofile(file)


@pytest.fixture(scope="module")
def run(
    registered: None,
    data: Data,
    database: psycopg.Connection,
    tmp_path_factory: pytest.TempPathFactory,
) -> Run:
    """Run algorithms on the data set, for one distance or another."""
    from cuvs_bench.orchestrator import BenchmarkOrchestrator

    directory = tmp_path_factory.mktemp("data")
    write(directory / "base.fbin", data.rows)
    write(directory / "query.fbin", data.queries)
    listed = []
    for distance, metric in (("euclidean", "l2"), ("inner_product", "ip"), ("cosine", "cosine")):
        truth = data.nearest(metric, 100).astype(numpy.int32)
        write(directory / f"{metric}.ibin", truth)
        listed.append(
            {
                "name": distance,
                "distance": distance,
                "base_file": "base.fbin",
                "query_file": "query.fbin",
                "groundtruth_neighbors_file": f"{metric}.ibin",
            }
        )
    (directory / "datasets.yaml").write_text(yaml.safe_dump(listed))

    def run(dataset: str = "euclidean", **arguments: Any) -> list:
        return BenchmarkOrchestrator("gpuann").run_benchmark(
            dataset=dataset,
            dataset_path=str(directory),
            dataset_configuration=str(directory / "datasets.yaml"),
            **{"groups": "test", "count": K, **arguments},
        )

    return run


@pytest.mark.parametrize("algorithm", ["gpuann_graph", "gpuann_ivfpq"])
@pytest.mark.parametrize("dataset", ["euclidean", "inner_product", "cosine"])
def test_a_run_builds_and_finds_the_nearest(
    run: Run, database: psycopg.Connection, data: Data, algorithm: str, dataset: str
) -> None:
    build, narrow, broad = run(dataset, algorithms=algorithm)
    assert build.success, build.error_message
    assert build.algorithm == algorithm and build.build_time_seconds > 0
    assert build.index_size_bytes > data.rows.nbytes / 8 and build.metadata["mirror_bytes"] > 0
    written = options(database, f"{build.index_path}_embedding")
    assert written.items() >= {name: str(v) for name, v in build.build_params.items()}.items()
    assert written["method"] == algorithm.removeprefix("gpuann_")
    for result in (narrow, broad):
        assert result.success, result.error_message
        assert result.neighbors.shape == (QUERIES, K) and (result.neighbors >= 0).all()
        assert (numpy.diff(result.distances, axis=1) >= 0).all()
        assert result.metadata["path"] == "server" and result.metadata["engine"] == "cpu"
        assert 0 < result.latency_percentiles["p50"] <= result.latency_percentiles["p99"]
        assert result.queries_per_second > 0
    assert narrow.recall <= broad.recall and broad.recall > 0.97, (narrow.recall, broad.recall)


def test_throughput_shares_queries_among_connections(run: Run) -> None:
    alone = run(algorithms="gpuann_graph")[2]
    shared = run(
        algorithms="gpuann_graph", search_mode="throughput", search_threads=4, batch_size=7
    )[2]
    assert shared.success and shared.metadata["connections"] == 4
    assert (shared.neighbors == alone.neighbors).all()


def test_an_index_that_is_there_is_built_again_only_by_force(
    run: Run, database: psycopg.Connection
) -> None:
    def file() -> int:
        return database.execute(
            "SELECT oid::int FROM pg_class WHERE relname = %s", (f"{build.index_path}_embedding",)
        ).fetchone()[0]

    build = run(algorithms="gpuann_graph")[0]
    before = file()
    assert run(algorithms="gpuann_graph")[0].build_time_seconds == 0 and file() == before
    assert run(algorithms="gpuann_graph", force=True)[0].build_time_seconds > 0 and file() != before


def test_half_precision_and_groups_of_ones_own(run: Run, tmp_path: Path) -> None:
    own = tmp_path / "gpuann_ivfpq.yaml"
    group = {"build": {"lists": [40], "quantizer": ["int8"]}, "search": {"probes": [40]}}
    own.write_text(yaml.safe_dump({"name": "gpuann_ivfpq", "groups": {"own": group}}))
    build, found = run(algorithm_configuration=str(own), groups="own", column_type="halfvec")
    assert build.success and found.recall > 0.97, (build.error_message, found)


def test_a_dry_run_touches_nothing(run: Run, database: psycopg.Connection) -> None:
    def tables() -> int:
        return database.execute(
            "SELECT count(*) FROM pg_class WHERE relname LIKE 'cuvs_bench%'"
        ).fetchone()[0]

    before = tables()
    results = run("cosine", groups="base,int8,pq", dry_run=True)
    assert all(each.success and each.metadata["dry_run"] for each in results)
    assert tables() == before
    # Every group of both files is expanded: 6 graphs, 4 + 1 + 1 indexes with lists.
    assert sum(hasattr(each, "build_params") for each in results) == 12


def test_failures_are_results_and_end_the_command(run: Run) -> None:
    from cuvs_bench.backends.registry import get_backend_class

    unreachable = run(algorithms="gpuann_graph", host="/nonexistent", force=True)
    assert [each.success for each in unreachable] == [False]
    message = get_backend_class("gpuann").result_failure_message(unreachable)
    assert "cannot be reached" in message
    assert get_backend_class("gpuann").result_failure_message([]) is None


def test_every_group_has_only_options_that_the_server_takes(
    run: Run, database: psycopg.Connection
) -> None:
    database.execute("CREATE TABLE tried (v vector(32))")
    for path in (PLUGIN / "src/cuvs_bench_gpuann/config/algos").glob("*.yaml"):
        content = yaml.safe_load(path.read_text())
        method = content["name"].removeprefix("gpuann_")
        for group in content["groups"].values():
            given = {name: values[-1] for name, values in group["build"].items()}
            written = ", ".join(f"{name} = {value}" for name, value in given.items())
            database.execute(
                "CREATE INDEX ON tried USING gpuann (v vector_l2_ops)"
                f" WITH (method = {method}, {written})"
            )
            for name, values in group["search"].items():
                database.execute(
                    "SELECT set_config(%s, %s, false)", (f"gpuann.{name}", str(values[-1]))
                )
