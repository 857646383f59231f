"""What a configuration of cuvs-bench inherits and returns."""

from __future__ import annotations

import itertools
import os
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

import yaml


@dataclass
class IndexConfig:
    name: str
    algo: str
    build_param: dict[str, Any]
    search_params: list[dict[str, Any]]
    file: str


@dataclass
class BenchmarkConfig:
    indexes: list[IndexConfig]
    backend_config: dict[str, Any] = field(default_factory=dict)


@dataclass
class DatasetConfig:
    name: str
    base_file: str
    query_file: str
    groundtruth_neighbors_file: str
    distance: str = "euclidean"


def _combinations(options: dict[str, list]) -> list[dict[str, Any]]:
    return [dict(zip(options, chosen)) for chosen in itertools.product(*options.values())]


class ConfigLoader(ABC):
    """load() reads the data set and expands groups; the hooks below are a backend's."""

    config_path: str

    def load(self, dataset: str, dataset_path: str, **kwargs: Any) -> tuple:
        listed = kwargs.get("dataset_configuration") or os.path.join(
            self.config_path, "datasets", "datasets.yaml"
        )
        (conf,) = [each for each in self.load_yaml_file(listed) if each["name"] == dataset]
        files = ("base_file", "query_file", "groundtruth_neighbors_file")
        config = DatasetConfig(
            name=dataset,
            distance=conf["distance"],
            **{name: os.path.join(dataset_path, conf[name]) for name in files},
        )
        expanded = [
            (
                algorithm,
                group,
                options,
                _combinations(options["build"]),
                _combinations(options["search"]),
                meta,
            )
            for algorithm, group, options, meta in self._discover_algo_groups(
                conf, dataset, dataset_path, **kwargs
            )
        ]
        return config, self._build_benchmark_configs(
            config, conf, dataset, dataset_path, expanded, **kwargs
        )

    def load_yaml_file(self, file_path: str) -> Any:
        with open(file_path) as file:
            return yaml.safe_load(file)

    @property
    @abstractmethod
    def backend_type(self) -> str: ...

    @abstractmethod
    def _discover_algo_groups(
        self, dataset_conf: dict, dataset: str, dataset_path: str, **kwargs: Any
    ) -> list[tuple[str, str, dict, dict]]: ...

    @abstractmethod
    def _build_benchmark_configs(
        self,
        dataset_config: DatasetConfig,
        dataset_conf: dict,
        dataset: str,
        dataset_path: str,
        expanded_groups: list,
        **kwargs: Any,
    ) -> list[BenchmarkConfig]: ...
