"""docs/clients.md: what it shows of LangChain and LlamaIndex runs."""

import sys
from pathlib import Path

from conftest import Database
from documents import command, snippets


def test_recipes(database: Database, tmp_path: Path) -> None:
    """In a process of their own: PGVector knows one length of vectors in each."""
    recipes = [
        each.code for each in snippets("python") if each.heading in ("LangChain", "LlamaIndex")
    ]
    assert len(recipes) >= 3
    database.run("CREATE EXTENSION gpuann CASCADE")
    command([sys.executable, "-c", "\n".join(recipes)], tmp_path)
    indexed = database.run("SELECT tablename FROM pg_indexes WHERE indexdef LIKE '%USING gpuann%'")
    assert {row[0] for row in indexed} == {"texts", "langchain_pg_embedding", "data_pages"}
