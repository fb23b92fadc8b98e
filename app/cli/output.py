"""How answers leave: one JSON document, or lines and tables for people; errors as sentences.

Rule: JSON is plain data in snake_case: times ISO 8601 UTC, sizes integers, unknown and NaN null.
"""

import json
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import typer

from backend.diff.values import json_value

if TYPE_CHECKING:
    from rich.console import Console


def print_json(document: Any) -> None:
    """Print one document; lone surrogates of broken texts leave as JSON escapes."""
    text = json.dumps(json_value(document), ensure_ascii=False, allow_nan=False, indent=2)
    typer.echo(text.encode("utf-8", "backslashreplace"))


def console(*, to_stderr: bool = False) -> "Console":
    """A terminal of its real width; a pipe or file gets lines that are never wrapped."""
    from rich.console import Console

    found = Console(highlight=False, stderr=to_stderr)
    return found if found.is_terminal else Console(highlight=False, stderr=to_stderr, width=10_000)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, right: Sequence[str] = ()) -> None:
    """A table without frames; the columns named in `right` are numbers."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for name in columns:
        table.add_column(name, justify="right" if name in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(one_line(cell)) for cell in row))
    console().print(table, soft_wrap=False)


def say(text: str = "", *, style: str = "", to_stderr: bool = False) -> None:
    """A line for people, literally (no markup)."""
    console(to_stderr=to_stderr).print(text, style=style or None, markup=False, soft_wrap=True)


def fail(message: str, hint: str = "", code: int = 1) -> int:
    """Say on stderr what is wrong and what to do; return the exit code."""
    sys.stderr.write(f"error: {message}\n")
    if hint:
        sys.stderr.write(f"hint: {hint}\n")
    return code


def one_line(text: str) -> str:
    """Text of a user or a log: without line breaks and control characters, which could rewrite a terminal."""
    return "".join(c if c.isprintable() else "�" if c not in "\n\t\r" else " " for c in text)


def now() -> datetime:
    return datetime.now(UTC)
