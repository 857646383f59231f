"""The client for VectorDBBench, run by that package's own commands on a data set of this test's."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy
import polars
import psycopg
import pytest
import vectordb_bench

from conftest import ADAPTERS, DIMS, K, QUERIES, ROWS, Data, counted, options

ADAPTER = ADAPTERS / "vectordb_bench"
INDEX = "vdbbench_gpuann_embedding"


def register(package: Path) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, ADAPTER / "register.py", package], capture_output=True, text=True
    )


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the installed package, with the client registered."""
    copy = tmp_path_factory.mktemp("package") / "vectordb_bench"
    shutil.copytree(
        Path(vectordb_bench.__file__).parent,
        copy,
        ignore=shutil.ignore_patterns("results", "fig", "__pycache__"),
    )
    done = register(copy)
    assert done.returncode == 0, done.stderr
    return copy


@pytest.fixture(scope="module")
def dataset(data: Data, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of a custom data set, for metric L2."""
    directory = tmp_path_factory.mktemp("dataset")
    for name, vectors in (("train", data.rows), ("test", data.queries)):
        frame = polars.DataFrame(
            {"id": numpy.arange(len(vectors)), "emb": list(vectors)},
            schema_overrides={"emb": polars.List(polars.Float32)},
        )
        frame.write_parquet(directory / f"{name}.parquet")
    truth = polars.DataFrame(
        {"id": numpy.arange(QUERIES), "neighbors_id": list(data.nearest("l2", 100))}
    )
    truth.write_parquet(directory / "neighbors.parquet")
    return directory


def bench(package: Path, dataset: Path, results: Path, command: str, *arguments: str) -> Any:
    """Run a command of VectorDBBench; the case's part of the result that it has written."""
    given = {
        "--host": os.environ["PGHOST"],
        "--port": os.environ["PGPORT"],
        "--user-name": os.environ.get("PGUSER", "postgres"),
        "--db-name": os.environ["PGDATABASE"],
        "--case-type": "PerformanceCustomDataset",
        "--custom-case-name": "small",
        "--custom-dataset-name": "small",
        "--custom-dataset-dir": str(dataset),
        "--custom-dataset-size": str(ROWS),
        "--custom-dataset-dim": str(DIMS),
        "--custom-dataset-metric-type": "L2",
        "--custom-dataset-file-count": "1",
        "--k": str(K),
        "--num-concurrency": "2",
        "--concurrency-duration": "2",
        "--load-concurrency": "1",
        "--insert-batch-size": "500",
        "--db-label": "test",
    }
    words = [word for pair in given.items() for word in pair]
    done = subprocess.run(
        [sys.executable, "-m", "vectordb_bench.cli.vectordbbench", command, *words, *arguments],
        cwd=results,
        env={
            **os.environ,
            "PYTHONPATH": str(package.parent),
            "RESULTS_LOCAL_DIR": str(results),
            "LOG_FILE": str(results / "log"),
            "DATASET_LOCAL_DIR": str(results / "cache"),
        },
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
    )
    files = list(results.rglob("result_*.json"))
    assert done.returncode == 0 and len(files) == 1, done.stdout[-6000:]
    read_back(package, files[0])
    (case,) = json.loads(files[0].read_text())["results"]
    return case


READ_BACK = """
import sys
from pathlib import Path
from vectordb_bench.models import TestResult

(case,) = TestResult.read_file(Path(sys.argv[1])).results
assert type(case.task_config.db_config).__name__ == "GpuannConfig"
assert type(case.task_config.db_case_config).__name__ in ("GpuannGraphConfig", "GpuannIVFPQConfig")
"""


def read_back(package: Path, file: Path) -> None:
    """VectorDBBench reads results again to show them."""
    subprocess.run(
        [sys.executable, "-c", READ_BACK, file],
        cwd=file.parent,
        env={**os.environ, "PYTHONPATH": str(package.parent), "LOG_FILE": str(file.parent / "log")},
        check=True,
    )


RUNS = {
    "graph": ("gpuanngraph", {"m": 16, "ef_construction": 80}, {"ef-search": 200}),
    "graph, inserted into": ("gpuanngraph", {"m": 12}, {"ef-search": 200}),
    "rabitq": ("gpuannivfpq", {"lists": 60, "quantizer": "rabitq", "code_bits": 4}, {"probes": 60}),
    "pq": (
        "gpuannivfpq",
        {"lists": 40, "quantizer": "pq", "code_bits": 8, "pq_m": 8},
        {"probes": 40, "rerank": 50},
    ),
    "int8 of halfvec": ("gpuannivfpq", {"quantizer": "int8"}, {"probes": 100}),
}


@pytest.mark.parametrize("run", RUNS)
def test_a_case_runs_and_finds_the_nearest(
    package: Path, dataset: Path, database: psycopg.Connection, tmp_path: Path, run: str
) -> None:
    command, build, search = RUNS[run]
    words = [f"--{k.replace('_', '-')}={v}" for k, v in {**build, **search}.items()]
    words += ["--column-type=halfvec"] if "halfvec" in run else []
    words += ["--create-index-before-load"] if "inserted" in run else []
    database.execute("DROP TABLE IF EXISTS vdbbench_gpuann")
    case = bench(package, dataset, tmp_path, command, *words, "--maintenance-work-mem=64MB")
    method = "graph" if command == "gpuanngraph" else "ivfpq"
    assert options(database, INDEX) == {
        "method": method,
        **{name: str(value) for name, value in build.items()},
    }
    (type_name,) = database.execute(
        "SELECT format_type(atttypid, -1) FROM pg_attribute"
        " WHERE attrelid = 'vdbbench_gpuann'::regclass AND attname = 'embedding'"
    ).fetchone()
    assert type_name == ("halfvec" if "halfvec" in run else "vector")
    assert case["task_config"]["db"] == "Gpuann"
    assert case["metrics"]["recall"] > 0.97, case["metrics"]
    assert case["metrics"]["qps"] > 0
    # Every search was answered by the server: it had been waited for.
    by_server, from_pages = counted(database, INDEX)
    assert by_server > QUERIES and from_pages == 0


def test_registering_again_changes_nothing(package: Path) -> None:
    def content() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in package.rglob("*.py")}

    before = content()
    assert register(package).returncode == 0
    assert content() == before


def test_a_package_that_is_not_as_expected_stays_as_it_is(package: Path, tmp_path: Path) -> None:
    other = tmp_path / "vectordb_bench"
    clients = other / "backend/clients/__init__.py"
    clients.parent.mkdir(parents=True)
    clients.write_text("class DB(Enum):\n    Milvus = 'Milvus'\n")
    done = register(other)
    assert done.returncode != 0 and "is not as expected" in done.stderr
    assert clients.read_text() == "class DB(Enum):\n    Milvus = 'Milvus'\n"


CLIENT = """
from contextlib import ExitStack
from vectordb_bench.backend.clients import DB
from vectordb_bench.backend.clients.api import IndexType, MetricType
from vectordb_bench.backend.filter import IntFilter, LabelFilter, non_filter
from pydantic import SecretStr
import os, pickle

config = DB.Gpuann.config_cls(
    host=os.environ["PGHOST"], port=int(os.environ["PGPORT"]), db_name=os.environ["PGDATABASE"],
    table_name="filtered",
)
for index_type in (IndexType.HNSW, IndexType.IVFPQ):
    case = DB.Gpuann.case_config_cls(index_type)(metric_type=MetricType.COSINE)
    client = DB.Gpuann.init_cls(
        dim=3, db_config=config.to_dict(), db_case_config=case, drop_old=True,
        with_scalar_labels=True,
    )
    vectors = [[1.0, i / 1000, 0.0] for i in range(1000)]
    labels = ["label_1p" if i % 100 == 0 else "label_99p" for i in range(1000)]
    with client.init():
        done = client.insert_embeddings(vectors, list(range(1000)), labels_data=labels)
        assert done == (1000, None)
        client.optimize()
        assert client.is_current()
    client = pickle.loads(pickle.dumps(client)).copy_for_thread()
    with client.init():
        for filters, expected in (
            (non_filter, list(range(10))),
            (IntFilter(int_value=990, filter_rate=0.99), list(range(990, 1000))),
            (LabelFilter(label_percentage=0.01), list(range(0, 1000, 100))),
        ):
            client.prepare_filter(filters)
            assert client.filter_supported(filters)
            assert client.search_embedding([1.0, 0.0, 0.0], k=10) == expected
        # Rows that come later are found without another build.
        done = client.insert_embeddings([[1.0, -0.001, 0.0]], [1000], labels_data=["label_1p"])
        assert done == (1, None)
        client.prepare_filter(non_filter)
        assert 1000 in client.search_embedding([1.0, -0.002, 0.0], k=3)
        client.optimize()
        assert client.search_embedding([1.0, -0.002, 0.0], k=1) == [1000]
        count, error = client.insert_embeddings([[1.0, 0.0]], [1001], labels_data=[""])
        assert count == 0 and error is not None
"""


def test_filters_and_later_rows(
    package: Path, database: psycopg.Connection, tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CLIENT],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(package.parent), "LOG_FILE": str(tmp_path / "log")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-4000:]
