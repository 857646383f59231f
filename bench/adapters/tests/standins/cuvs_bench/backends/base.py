"""What a backend of cuvs-bench is given, inherits and returns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np


def read_vectors(path: str, type_: type) -> np.ndarray:
    """A file of cuvs-bench: rows and columns as uint32, then the values."""
    content = np.fromfile(path, dtype=np.uint32)
    rows, columns = content[:2]
    return content[2:].view(type_).reshape(rows, columns)


@dataclass
class Dataset:
    """Vectors are read when they are first asked for."""

    name: str
    base_file: str
    query_file: str
    groundtruth_neighbors_file: str
    distance_metric: str = "euclidean"

    @cached_property
    def training_vectors(self) -> np.ndarray:
        return read_vectors(self.base_file, np.float32)

    @cached_property
    def query_vectors(self) -> np.ndarray:
        return read_vectors(self.query_file, np.float32)

    @cached_property
    def groundtruth_neighbors(self) -> np.ndarray:
        return read_vectors(self.groundtruth_neighbors_file, np.int32)


@dataclass
class BuildResult:
    index_path: str
    build_time_seconds: float
    index_size_bytes: int
    algorithm: str
    build_params: dict[str, Any]
    metadata: dict[str, Any] = field(default_factory=dict)
    success: bool = True
    error_message: str | None = None


@dataclass
class SearchResult:
    neighbors: np.ndarray
    distances: np.ndarray
    search_time_ms: float
    queries_per_second: float
    recall: float
    algorithm: str
    search_params: list[dict[str, Any]]
    latency_percentiles: dict[str, float] | None = None
    gpu_time_seconds: float | None = None
    cpu_time_seconds: float | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    success: bool = True
    error_message: str | None = None


class BenchmarkBackend(ABC):
    default_algorithm: str | None = None

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config

    @property
    @abstractmethod
    def algo(self) -> str: ...

    @abstractmethod
    def build(
        self, dataset: Dataset, indexes: list, force: bool = False, dry_run: bool = False
    ) -> BuildResult: ...

    @abstractmethod
    def search(
        self,
        dataset: Dataset,
        indexes: list,
        k: int,
        batch_size: int = 10000,
        mode: str = "latency",
        force: bool = False,
        search_threads: int | None = None,
        dry_run: bool = False,
    ) -> list[SearchResult]: ...

    @classmethod
    def result_failure_message(cls, results: list) -> str | None:
        return None

    def _check_network_available(self) -> bool:
        return False

    def _pre_flight_check(self) -> str | None:
        if self.config.get("requires_network") and not self._check_network_available():
            return "no_network"
        return None
