"""LangChain: an index and query options for langchain_postgres.PGVectorStore."""

from __future__ import annotations

from dataclasses import dataclass

from langchain_postgres.v2.indexes import BaseIndex, QueryOptions

from . import index_options, named_settings

__all__ = ["GpuannIndex", "GpuannQueryOptions"]


@dataclass
class GpuannIndex(BaseIndex):
    """For PGVectorStore.apply_vector_index()."""

    index_type: str = "gpuann"
    extension_name: str | None = "gpuann"
    # PGVectorStore writes WITH in any case, and SQL wants an option behind it.
    m: int = 16
    ef_construction: int | None = None
    ef_search: int | None = None
    mirror: bool | None = None

    def index_options(self) -> str:
        written = index_options(
            m=self.m,
            ef_construction=self.ef_construction,
            ef_search=self.ef_search,
            mirror=self.mirror,
        )
        return f"({', '.join(written)})"


class GpuannQueryOptions(QueryOptions):
    """For PGVectorStore's index_query_options: settings, sent by SET LOCAL."""

    def __init__(self, **settings: int | str | bool) -> None:
        self.settings = named_settings(**settings)

    def to_parameter(self) -> list[str]:
        return [f"{name} = '{value}'" for name, value in self.settings.items()]

    def to_string(self) -> str:
        return ", ".join(self.to_parameter())
