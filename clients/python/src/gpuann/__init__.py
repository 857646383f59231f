"""SQL for gpuann indexes, to be run by any driver.

The types of vectors are those of pgvector's Python package; this one knows
the index alone: its options, its settings, the statement that makes it.
Frameworks have modules of their own: gpuann.django, gpuann.langchain.
"""

from __future__ import annotations

import re
from typing import Literal, TypedDict, Unpack

__version__ = "0.3.0"
__all__ = ["IndexOptions", "alter_index", "create_index", "index_options", "set_local"]


class IndexOptions(TypedDict, total=False):
    """Options of an index; None is PostgreSQL's default.

    m and ef_construction are a graph's, those from lists on are those of
    method "ivfpq"; the server refuses one that the method does not have.
    """

    method: Literal["graph", "ivfpq"] | None
    m: int | None
    ef_construction: int | None
    lists: int | None
    quantizer: Literal["rabitq", "pq", "int8"] | None
    code_bits: int | None
    pq_m: int | None
    probes: int | None
    ef_search: int | None
    mirror: bool | None


def quote(identifier: str) -> str:
    """Quote an identifier as SQL does."""
    if not identifier or "\0" in identifier:
        raise ValueError(f"not an identifier: {identifier!r}")
    return '"' + identifier.replace('"', '""') + '"'


def _value(value: int | str | bool) -> str:
    """Write a value as PostgreSQL reads it in settings and options."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, str) and not re.fullmatch(r"[A-Za-z0-9_.-]+", value):
        raise ValueError(f"not a value of a gpuann setting or option: {value!r}")
    return str(value)


def index_options(**options: Unpack[IndexOptions]) -> list[str]:
    """Write index options for WITH (...); those that are None are left out."""
    for name in options:
        if name not in IndexOptions.__annotations__:
            raise TypeError(f"gpuann indexes have no option {name!r}")
    return [
        f"{name} = {_value(value)}"  # type: ignore[arg-type]
        for name, value in options.items()
        if value is not None
    ]


def _qualified(name: str, schema: str | None) -> str:
    return quote(name) if schema is None else f"{quote(schema)}.{quote(name)}"


def create_index(
    table: str,
    column: str,
    opclass: str,
    *,
    schema: str | None = None,
    name: str | None = None,
    where: str | None = None,
    concurrently: bool = False,
    if_not_exists: bool = False,
    **options: Unpack[IndexOptions],
) -> str:
    """Write the CREATE INDEX for a column, or an expression in parentheses.

    An expression and where are SQL, and taken as they are.
    """
    words = ["CREATE INDEX"]
    if concurrently:
        words.append("CONCURRENTLY")
    if if_not_exists:
        if name is None:
            raise ValueError("if_not_exists needs a name")
        words.append("IF NOT EXISTS")
    if name is not None:
        words.append(quote(name))
    key = column if column.startswith("(") else quote(column)
    words.append(f"ON {_qualified(table, schema)} USING gpuann ({key} {quote(opclass)})")
    written = index_options(**options)
    if written:
        words.append(f"WITH ({', '.join(written)})")
    if where is not None:
        words.append(f"WHERE {where}")
    return " ".join(words)


def alter_index(name: str, *, schema: str | None = None, **options: Unpack[IndexOptions]) -> str:
    """Write the ALTER INDEX that changes options, without building anew.

    None sets an option back to its default. ef_search, probes and mirror act
    at once, all others with the next REINDEX.
    """
    words = index_options(**options)
    if words:
        words = [f"SET ({', '.join(words)})"]
    default = [option for option, value in options.items() if value is None]
    if default:
        words.append(f"RESET ({', '.join(default)})")
    if len(words) != 1:
        raise ValueError("either set options or reset them")
    return f"ALTER INDEX {_qualified(name, schema)} {words[0]}"


def named_settings(**settings: int | str | bool) -> dict[str, str]:
    """Turn NAME=value into gpuann.NAME and the value as SQL writes it."""
    if not settings:
        raise ValueError("no setting given")
    for name in settings:
        if not re.fullmatch(r"[a-z_]+", name):
            raise ValueError(f"not a name of a setting: {name!r}")
    return {f"gpuann.{name}": _value(value) for name, value in settings.items()}


def set_local(**settings: int | str | bool) -> str:
    """Write the statement that sets gpuann.NAME for the rest of a transaction.

    It is one SELECT whatever the number of settings, because drivers that
    prepare statements take one at a time. Outside of a transaction it has no
    effect: what follows is a transaction of its own.
    """
    return "SELECT " + ", ".join(
        f"set_config('{name}', '{value}', true)"
        for name, value in named_settings(**settings).items()
    )
