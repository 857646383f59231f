"""Django: an index, migration operations, and settings of a transaction.

Fields, distances and VectorExtension are those of pgvector.django.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal, Unpack

from django.contrib.postgres.indexes import PostgresIndex
from django.contrib.postgres.operations import CreateExtension
from django.db import router, transaction
from django.db.migrations.operations.base import Operation

from . import IndexOptions, alter_index, index_options, set_local

__all__ = ["AlterGpuannIndex", "GpuannExtension", "GpuannIndex", "settings"]


class GpuannIndex(PostgresIndex):
    """An index USING gpuann in a model's Meta.indexes; it needs opclasses."""

    suffix = "gpuann"

    def __init__(
        self,
        *expressions: Any,
        method: Literal["graph", "ivfpq"] | None = None,
        m: int | None = None,
        ef_construction: int | None = None,
        lists: int | None = None,
        quantizer: Literal["rabitq", "pq", "int8"] | None = None,
        code_bits: int | None = None,
        pq_m: int | None = None,
        probes: int | None = None,
        ef_search: int | None = None,
        mirror: bool | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*expressions, **kwargs)
        self.options: IndexOptions = {
            "method": method,
            "m": m,
            "ef_construction": ef_construction,
            "lists": lists,
            "quantizer": quantizer,
            "code_bits": code_bits,
            "pq_m": pq_m,
            "probes": probes,
            "ef_search": ef_search,
            "mirror": mirror,
        }

    def deconstruct(self) -> tuple[str, tuple[Any, ...], dict[str, Any]]:
        path, args, kwargs = super().deconstruct()
        kwargs.update((name, value) for name, value in self.options.items() if value is not None)
        return path, args, kwargs

    def get_with_params(self) -> list[str]:
        return index_options(**self.options)


class GpuannExtension(CreateExtension):
    """CREATE EXTENSION gpuann, and vector where it is not there.

    Backwards it drops gpuann alone: columns need vector.
    """

    def __init__(self) -> None:
        super().__init__("gpuann")

    def database_forwards(
        self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any
    ) -> None:
        connection = schema_editor.connection
        if (
            connection.vendor == "postgresql"
            and router.allow_migrate(connection.alias, app_label)
            and not self.extension_exists(schema_editor, self.name)
        ):
            schema_editor.execute("CREATE EXTENSION IF NOT EXISTS gpuann CASCADE")
        # What Django does behind an extension: register types anew.
        super().database_forwards(app_label, schema_editor, from_state, to_state)


class AlterGpuannIndex(Operation):
    """Change options of an index in place.

    Django's own migration for a change in Meta.indexes drops the index and
    builds it again; with this operation before it, makemigrations finds
    nothing left to do. None is the default. Use it for ef_search, probes and
    mirror, which need no build.
    """

    reversible = True

    def __init__(self, model_name: str, name: str, **options: Unpack[IndexOptions]) -> None:
        index_options(**options)
        if not options:
            raise ValueError("no option given")
        self.model_name = model_name
        self.name = name
        self.options = options

    def deconstruct(self) -> tuple[str, list[Any], dict[str, Any]]:
        kwargs = {"model_name": self.model_name, "name": self.name, **self.options}
        return self.__class__.__qualname__, [], kwargs

    def _indexes(self, app_label: str, state: Any) -> list[Any]:
        return state.models[app_label, self.model_name.lower()].options["indexes"]

    def _index(self, app_label: str, state: Any) -> GpuannIndex:
        for index in self._indexes(app_label, state):
            if index.name == self.name and isinstance(index, GpuannIndex):
                return index
        raise ValueError(f"{app_label}.{self.model_name} has no GpuannIndex {self.name!r}")

    def state_forwards(self, app_label: str, state: Any) -> None:
        old = self._index(app_label, state)
        new = old.clone()
        new.options = {**old.options, **self.options}
        indexes = [new if index is old else index for index in self._indexes(app_label, state)]
        state.models[app_label, self.model_name.lower()].options["indexes"] = indexes
        state.reload_model(app_label, self.model_name.lower(), delay=True)

    def _alter(self, app_label: str, schema_editor: Any, state: Any) -> None:
        connection = schema_editor.connection
        if connection.vendor != "postgresql" or not router.allow_migrate(
            connection.alias, app_label, model_name=self.model_name.lower()
        ):
            return
        options = self._index(app_label, state).options
        for name in self.options:
            schema_editor.execute(
                alter_index(self.name, **{name: options[name]})  # type: ignore
            )

    def database_forwards(
        self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any
    ) -> None:
        self._alter(app_label, schema_editor, to_state)

    def database_backwards(
        self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any
    ) -> None:
        # Backwards, to_state is the state before this operation.
        self._alter(app_label, schema_editor, to_state)

    def describe(self) -> str:
        return f"Alter options of gpuann index {self.name} on {self.model_name}"

    @property
    def migration_name_fragment(self) -> str:
        return f"alter_{self.name.lower()}"


@contextmanager
def settings(using: str | None = None, **settings: int | str | bool) -> Iterator[None]:
    """Run a block in a transaction with gpuann.NAME set for it.

    Inside of an outer transaction.atomic() they hold until that one ends.
    """
    with transaction.atomic(using=using):
        with transaction.get_connection(using).cursor() as cursor:
            cursor.execute(set_local(**settings))
        yield
