"""`make texts`: every sentence that a person may read in pages, terminal and errors, with its place, to be read aloud.

Rule: a text is a literal of two words or more that is no docstring, SQL, log line or pattern; what is put into an
f-string stands as `{…}`. Docs are read as they are.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = ("app", "pages", "backend", "pipelines", "attach")
_CODE = re.compile(
    r"^\s*(SELECT|WITH|INSERT|UPDATE|DELETE|CREATE|ALTER|DROP|COPY|PRAGMA|SET|ATTACH|DESCRIBE)\b|[{};]\s*\n|=>|\(\?|"
    r"^\.st-|</|^\w+ (IS|AS|IN|LIKE|AND|OR) ",
    re.S,
)
_WORDS = re.compile(r"[A-Za-z]{2,}[^A-Za-z]+[A-Za-z]{2,}")
MOST_WORDS = 20  # of a sentence


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Line and text of each in a module, in their order."""
    tree = ast.parse(path.read_text())
    silent = {
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            silent |= {id(part) for part in ast.walk(node)} - {id(node)}
    for node in ast.walk(tree):
        if id(node) not in silent and isinstance(node, ast.Constant | ast.JoinedStr):
            text = _text(node)
            if _WORDS.search(text) and not _CODE.search(text):
                yield node.lineno, " ".join(text.split())


def _text(node: ast.Constant | ast.JoinedStr) -> str:
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    parts = [part.value if isinstance(part, ast.Constant) else "{…}" for part in node.values]
    return "".join(str(part) for part in parts)


def longest_sentence(text: str) -> int:
    """In words."""
    return max(len(sentence.split()) for sentence in re.split(r"[.;:?!] ", text))


def main() -> None:
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            for line, text in texts(path):
                mark = "!" if longest_sentence(text) > MOST_WORDS else " "
                sys.stdout.write(f"{mark} {path.relative_to(ROOT)}:{line}: {text}\n")


if __name__ == "__main__":
    main()
