"""How to reach the database, and the options of both kinds of index."""

from abc import abstractmethod
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, SecretStr, model_validator

from ..api import DBCaseConfig, DBConfig, IndexType, MetricType

# For each metric the last part of the operator class, and the operator.
_METRICS = {
    MetricType.L2: ("l2_ops", "<->"),
    MetricType.IP: ("ip_ops", "<#>"),
    MetricType.DP: ("ip_ops", "<#>"),
    MetricType.COSINE: ("cosine_ops", "<=>"),
}


class GpuannConfig(DBConfig):
    """host may be a directory with a socket; without a password none is sent."""

    # A result without a password is read back.
    _extra_empty_skip: ClassVar[frozenset[str]] = frozenset({"password"})

    user_name: SecretStr = SecretStr("postgres")
    password: SecretStr = SecretStr("")
    host: str = "localhost"
    port: int = 5432
    db_name: str = "postgres"
    table_name: str = "vdbbench_gpuann"

    def to_dict(self) -> dict[str, Any]:
        connect = {
            "host": self.host,
            "port": self.port,
            "dbname": self.db_name,
            "user": self.user_name.get_secret_value(),
            "password": self.password.get_secret_value(),
        }
        return {
            "connect_config": {name: value for name, value in connect.items() if value != ""},
            "table_name": self.table_name,
        }


class GpuannIndexConfig(BaseModel, DBCaseConfig):
    """What both kinds share. None leaves a value to the server's own default."""

    index: IndexType
    metric_type: MetricType | None = None
    column_type: Literal["vector", "halfvec"] = "vector"
    create_index_before_load: bool = False
    iterative_scan: Literal["complete", "strict_order", "relaxed_order", "off"] | None = None
    mirror: bool | None = None
    maintenance_work_mem: str | None = None
    max_parallel_workers: int | None = None

    @abstractmethod
    def build_options(self) -> dict[str, Any]:
        """Options for WITH (...), those that are None included."""

    @abstractmethod
    def breadth(self) -> dict[str, Any]:
        """Settings that say how broadly a session searches."""

    def _metric(self) -> tuple[str, str]:
        if self.metric_type not in _METRICS:
            msg = f"gpuann has no operator class of {self.column_type} for {self.metric_type}"
            raise ValueError(msg)
        return _METRICS[self.metric_type]

    def index_param(self) -> dict[str, Any]:
        options = {**self.build_options(), "mirror": self.mirror}
        settings = {
            "maintenance_work_mem": self.maintenance_work_mem,
            "max_parallel_maintenance_workers": self.max_parallel_workers,
        }
        return {
            "opclass": f"{self.column_type}_{self._metric()[0]}",
            "options": {name: value for name, value in options.items() if value is not None},
            "settings": {name: value for name, value in settings.items() if value is not None},
        }

    def search_param(self) -> dict[str, Any]:
        return {"operator": self._metric()[1]}

    def session_param(self) -> dict[str, Any]:
        settings = {**self.breadth(), "gpuann.iterative_scan": self.iterative_scan}
        return {name: value for name, value in settings.items() if value is not None}


class GpuannGraphConfig(GpuannIndexConfig):
    """method = graph."""

    index: IndexType = IndexType.HNSW
    m: int | None = None
    ef_construction: int | None = None
    ef_search: int | None = None

    def build_options(self) -> dict[str, Any]:
        return {"method": "graph", "m": self.m, "ef_construction": self.ef_construction}

    def breadth(self) -> dict[str, Any]:
        return {"gpuann.ef_search": self.ef_search}


class GpuannIVFPQConfig(GpuannIndexConfig):
    """method = ivfpq. Its lists are those of the rows that are there when it is built."""

    index: IndexType = IndexType.IVFPQ
    lists: int | None = None
    quantizer: Literal["rabitq", "pq", "int8"] | None = None
    code_bits: int | None = None
    pq_m: int | None = None
    probes: int | None = None
    rerank: int | None = None

    @model_validator(mode="after")
    def _built_after_the_load(self) -> "GpuannIVFPQConfig":
        if self.create_index_before_load:
            msg = "an index with lists that is built on an empty table has one list"
            raise ValueError(msg)
        return self

    def build_options(self) -> dict[str, Any]:
        return {
            "method": "ivfpq",
            "lists": self.lists,
            "quantizer": self.quantizer,
            "code_bits": self.code_bits,
            "pq_m": self.pq_m,
        }

    def breadth(self) -> dict[str, Any]:
        return {"gpuann.probes": self.probes, "gpuann.rerank": self.rerank}


_gpuann_case_config = {
    IndexType.HNSW: GpuannGraphConfig,
    IndexType.IVFPQ: GpuannIVFPQConfig,
}
