"""Puts the client into VectorDBBench, which finds clients by what its own files list.

    python register.py              into the installed package vectordb_bench
    python register.py DIRECTORY    into a source tree: the directory vectordb_bench

Running it again replaces the client's files; what it adds to the lists it adds once.
"""

from __future__ import annotations

import importlib.util
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).parent

# The lines of PgVector, behind or before which those of Gpuann are put.
MEMBER = '    PgVector = "PgVector"\n'
BRANCH = "        if self == DB.PgVector:\n"
IMPORT = "from ..backend.clients.pgvector.cli import PgVectorHNSW\n"
COMMAND = "cli.add_command(PgVectorHNSW)\n"

# In the order of the properties of DB: client, connection, options of the index.
BRANCHES = (
    ("gpuann", "Gpuann", "Gpuann"),
    ("config", "GpuannConfig", "GpuannConfig"),
    ("config", "_gpuann_case_config", "_gpuann_case_config.get(index_type)"),
)


def find_package() -> Path:
    """The installed package's directory, without importing it."""
    spec = importlib.util.find_spec("vectordb_bench")
    if spec is None or spec.origin is None:
        raise SystemExit("register.py: there is no package vectordb_bench here")
    return Path(spec.origin).parent


def pieces(path: Path, text: str, anchor: str, times: int) -> list[str]:
    """Split a file's text at a line that must be there so many times."""
    found = text.split(anchor)
    if len(found) != times + 1:
        raise SystemExit(
            f"register.py: {path} is not as expected: {anchor.strip()!r} is there "
            f"{len(found) - 1} times, not {times}"
        )
    return found


def add_database(path: Path) -> None:
    """List the client in the enumeration DB."""
    text = path.read_text()
    if "Gpuann" in text:
        return
    head, tail = pieces(path, text, MEMBER, 1)
    text = head + MEMBER + '    Gpuann = "Gpuann"\n' + tail
    parts = pieces(path, text, BRANCH, len(BRANCHES))
    for i, (module, name, returned) in enumerate(BRANCHES):
        parts[i] += (
            "        if self == DB.Gpuann:\n"
            f"            from .gpuann.{module} import {name}\n\n"
            f"            return {returned}\n\n"
        )
    path.write_text(BRANCH.join(parts))


def add_commands(path: Path) -> None:
    """List the client's commands."""
    text = path.read_text()
    if "Gpuann" in text:
        return
    head, tail = pieces(path, text, IMPORT, 1)
    text = (
        head + "from ..backend.clients.gpuann.cli import GpuannGraph, GpuannIVFPQ\n" + IMPORT + tail
    )
    head, tail = pieces(path, text, COMMAND, 1)
    added = "cli.add_command(GpuannGraph)\ncli.add_command(GpuannIVFPQ)\n"
    path.write_text(head + added + COMMAND + tail)


def main(arguments: list[str]) -> None:
    package = Path(arguments[0]) if arguments else find_package()
    clients = package / "backend" / "clients"
    if not (clients / "__init__.py").exists():
        raise SystemExit(f"register.py: {package} is not VectorDBBench's package")
    shutil.copytree(
        HERE / "gpuann",
        clients / "gpuann",
        ignore=shutil.ignore_patterns("__pycache__"),
        dirs_exist_ok=True,
    )
    add_database(clients / "__init__.py")
    add_commands(package / "cli" / "vectordbbench.py")
    print(f"registered with {package}")


if __name__ == "__main__":
    main(sys.argv[1:])
