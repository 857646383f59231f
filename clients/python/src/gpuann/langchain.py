"""LangChain: an index and query options for langchain_postgres.PGVectorStore."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from langchain_postgres.v2.indexes import BaseIndex, QueryOptions

from . import index_options, named_settings

__all__ = ["GpuannIndex", "GpuannQueryOptions"]


@dataclass
class GpuannIndex(BaseIndex):
    """For PGVectorStore.apply_vector_index()."""

    index_type: str = "gpuann"
    extension_name: str | None = "gpuann"
    # PGVectorStore writes WITH in any case, and SQL wants an option behind it.
    method: Literal["graph", "ivfpq"] = "graph"
    m: int | None = None
    ef_construction: int | None = None
    lists: int | None = None
    quantizer: Literal["rabitq", "pq", "int8"] | None = None
    code_bits: int | None = None
    pq_m: int | None = None
    probes: int | None = None
    ef_search: int | None = None
    mirror: bool | None = None

    def index_options(self) -> str:
        written = index_options(
            method=self.method,
            m=self.m,
            ef_construction=self.ef_construction,
            lists=self.lists,
            quantizer=self.quantizer,
            code_bits=self.code_bits,
            pq_m=self.pq_m,
            probes=self.probes,
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
