"""Runs the snippets of docs/clients.md, each as it stands there."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

CLIENTS_MD = Path(__file__).parents[3] / "docs" / "clients.md"


@dataclass
class Snippet:
    heading: str
    language: str
    code: str

    @property
    def file(self) -> str | None:
        """The file that its first line says it is."""
        match = re.match(r"(?:#|//) (\S+\.\w+)\n", self.code)
        return match[1] if match else None


def snippets(*languages: str) -> list[Snippet]:
    found, heading = [], ""
    for match in re.finditer(
        r"^#+ ([^\n]*)$|^```(\w+)\n(.*?)^```$", CLIENTS_MD.read_text(), re.M | re.S
    ):
        if match[1]:
            heading = match[1]
        elif match[2] in languages:
            found.append(Snippet(heading, match[2], match[3]))
    return found


def python(code: str) -> None:
    """Run a script here, in a namespace of its own."""
    exec(compile(code, str(CLIENTS_MD), "exec", dont_inherit=True), {"__name__": "__main__"})


def command(arguments: list[str], directory: Path, **environment: str) -> str:
    """Run a program in a directory, and print what it said if it fails."""
    done = subprocess.run(
        arguments,
        cwd=directory,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout
