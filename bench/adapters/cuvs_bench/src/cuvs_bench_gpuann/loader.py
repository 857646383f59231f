"""What is to be run: the groups of gpuann_*.yaml, each combination of build options an index."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

from cuvs_bench.orchestrator import config_loaders
from cuvs_bench.orchestrator.config_loaders import BenchmarkConfig, ConfigLoader, IndexConfig

HERE = Path(__file__).parent / "config"
# Arguments that go on to the backend.
CONNECTION = ("host", "port", "user", "password", "dbname", "column_type")


def _named(given: str | None) -> set[str]:
    return {name.strip() for name in (given or "").split(",") if name.strip()}


class GpuannConfigLoader(ConfigLoader):
    def __init__(self, config_path: str | os.PathLike[str] | None = None) -> None:
        # Data sets are those that cuvs-bench knows, algorithms are gpuann's.
        known = Path(config_loaders.__file__).parents[1] / "config"
        self.config_path = os.fspath(config_path or known)

    @property
    def backend_type(self) -> str:
        return "gpuann"

    def _files(self, configuration: str | None) -> list[Path]:
        """gpuann's own files, and those of --configuration, which may be a file or a directory."""
        found = sorted((HERE / "algos").glob("gpuann_*.yaml"))
        if configuration:
            given = Path(configuration)
            found += sorted(given.glob("gpuann_*.y*ml")) if given.is_dir() else [given]
        return found

    def _discover_algo_groups(
        self, dataset_conf: dict, dataset: str, dataset_path: str, **kwargs: Any
    ) -> list[tuple[str, str, dict, dict]]:
        algorithms, groups = _named(kwargs.get("algorithms")), _named(kwargs.get("groups"))
        pairs = {tuple(each.split(".", 1)) for each in _named(kwargs.get("algo_groups"))}
        chosen: dict[tuple[str, str], dict] = {}
        for path in self._files(kwargs.get("algorithm_configuration")):
            content = self.load_yaml_file(os.fspath(path))
            name = content["name"]
            for group, options in content.get("groups", {}).items():
                wanted = (not algorithms or name in algorithms) and (not groups or group in groups)
                if wanted or (name, group) in pairs:
                    chosen[name, group] = options
        return [(name, group, options, {}) for (name, group), options in chosen.items()]

    def _build_benchmark_configs(
        self,
        dataset_config: Any,
        dataset_conf: dict,
        dataset: str,
        dataset_path: str,
        expanded_groups: list[tuple[str, str, dict, list, list, dict]],
        **kwargs: Any,
    ) -> list[BenchmarkConfig]:
        connection = {name: kwargs[name] for name in CONNECTION if kwargs.get(name) is not None}
        subset = kwargs.get("subset_size")
        configurations = []
        for algorithm, group, _, builds, searches, _ in expanded_groups:
            for build in builds:
                written = ".".join(f"{name}{value}" for name, value in build.items())
                label = f"{algorithm}.{group}" + (f".{written}" if written else "")
                index = IndexConfig(
                    name=label,
                    algo=algorithm,
                    build_param=build,
                    search_params=searches,
                    file=_table(dataset, subset, connection.get("column_type"), label),
                )
                backend = {"name": label, "algo": algorithm, "requires_network": True, **connection}
                configurations.append(BenchmarkConfig(indexes=[index], backend_config=backend))
        return configurations


def _table(*parts: Any) -> str:
    """The table of an index: there is one for each, so that a later run finds it built."""
    return "cuvs_bench_" + hashlib.sha256(repr(parts).encode()).hexdigest()[:24]
