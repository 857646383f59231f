"""Runs a backend as cuvs-bench does: all that its configuration lists, built and searched."""

from __future__ import annotations

from typing import Any

from ..backends.base import Dataset
from ..backends.registry import get_backend_class, get_config_loader


class BenchmarkOrchestrator:
    def __init__(self, backend_type: str) -> None:
        self.backend_class = get_backend_class(backend_type)
        self.config_loader = get_config_loader(backend_type)()

    def run_benchmark(
        self,
        force: bool = False,
        dry_run: bool = False,
        count: int = 10,
        batch_size: int = 10000,
        search_mode: str = "latency",
        search_threads: int | None = None,
        **loader_arguments: Any,
    ) -> list:
        """Recall is computed here, from the rows that the backend returns."""
        config, benchmarks = self.config_loader.load(
            count=count, batch_size=batch_size, **loader_arguments
        )
        dataset = Dataset(
            config.name,
            config.base_file,
            config.query_file,
            config.groundtruth_neighbors_file,
            config.distance,
        )
        results: list = []
        for benchmark in benchmarks:
            backend = self.backend_class(benchmark.backend_config)
            built = backend.build(dataset, benchmark.indexes, force=force, dry_run=dry_run)
            results.append(built)
            if not built.success:
                continue
            found = backend.search(
                dataset,
                benchmark.indexes,
                k=count,
                batch_size=batch_size,
                mode=search_mode,
                force=force,
                search_threads=search_threads,
                dry_run=dry_run,
            )
            for result in found if not dry_run else []:
                true = dataset.groundtruth_neighbors[:, :count]
                pairs = zip(result.neighbors.tolist(), true.tolist(), strict=False)
                hits = sum(len(set(one) & set(other)) for one, other in pairs)
                result.recall = hits / true.size
            results += found
        return results
