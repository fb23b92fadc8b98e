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


def anchors(document: Path) -> set[str]:
    text = re.sub(r"^```.*?^```", "", document.read_text(), flags=re.DOTALL | re.MULTILINE)
    heads = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("document", ["CHANGELOG.md", "CONTRIBUTING.md", "README.md", *DOCS])
def test_every_link_of_a_document_leads_to_a_file_and_a_heading(document: str) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#\s]*)#?([^)\s]*)\)", (ROOT / document).read_text())
    targets = [((ROOT / document).parent / path if path else ROOT / document, anchor) for path, anchor in links]
    assert [path for path, _ in targets if not path.exists()] == []
    assert [(path, anchor) for path, anchor in targets if anchor and anchor not in anchors(path)] == []


def test_the_architecture_names_what_a_newcomer_looks_for() -> None:
    named = PATHS.findall((ROOT / "docs/architecture.md").read_text())
    assert len(named) > 40
    assert {"backend/changes/compare.py", "backend/sql/expression.py", "backend/streams/verdict.py"} <= set(named)
