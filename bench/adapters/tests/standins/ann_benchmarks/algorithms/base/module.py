"""What an algorithm of ann-benchmarks inherits; it calls nothing of it."""

from typing import Any


class BaseANN:
    def done(self) -> None:
        pass

    def get_memory_usage(self) -> float | None:
        raise AssertionError("the adapter says what the index takes, not this process")

    def fit(self, X: Any) -> None:
        raise NotImplementedError

    def query(self, q: Any, n: int) -> Any:
        raise NotImplementedError

    def batch_query(self, X: Any, n: int) -> None:
        raise NotImplementedError

    def get_batch_results(self) -> Any:
        return self.res

    def get_additional(self) -> dict[str, Any]:
        return {}

    def __str__(self) -> str:
        return self.name
