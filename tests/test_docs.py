"""The documents name files that are there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCS = sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))
PATHS = re.compile(r"`((?:app|attach|backend|bench|deploy|docs|pages|pipelines|tests)/[\w./]*)`")


@pytest.mark.parametrize("document", ["CONTRIBUTING.md", "README.md", *DOCS])
def test_every_path_that_a_document_names_is_there(document: str) -> None:
    named = PATHS.findall((ROOT / document).read_text())
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_the_architecture_names_what_a_newcomer_looks_for() -> None:
    named = PATHS.findall((ROOT / "docs/architecture.md").read_text())
    assert len(named) > 40
    assert {"backend/changes/compare.py", "backend/sql/expression.py", "backend/streams/verdict.py"} <= set(named)
