"""docs/clients.md: what it shows of LangChain and LlamaIndex runs."""

from pathlib import Path

import pytest

from conftest import Database
from documents import Snippet, python, snippets

SCRIPTS = [each for each in snippets("python") if each.heading in ("LangChain", "LlamaIndex")]


def test_it_has_its_snippets() -> None:
    assert len(SCRIPTS) >= 3


@pytest.mark.parametrize("snippet", SCRIPTS, ids=lambda snippet: snippet.heading)
def test_python(snippet: Snippet, database: Database, tmp_path: Path) -> None:
    database.run("CREATE EXTENSION IF NOT EXISTS gpuann CASCADE")
    python(snippet.code, tmp_path)
