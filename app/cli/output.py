"""How answers leave: one JSON document, or lines and tables for people; errors as sentences.

Rule: JSON is an encoding of the values that the pages show as well: a dataclass is an object of its fields, in
snake_case, times are ISO 8601 UTC, sizes integers, unknown and NaN null. Keys are a contract with scripts: where a key
is to differ from its field, the command says so in a `Shapes`. What was written by others reaches a terminal through
here alone, and cannot drive it.
"""

import json
import re
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from unicodedata import combining, east_asian_width

import typer

from backend.sql.values import json_value

if TYPE_CHECKING:
    from rich.console import Console

WIDEST = 60  # characters of a cell
_CONTROLS = re.compile(r"[\x7f-\x9f]")  # control characters that `json` leaves as they are

Document = dict[str, Any]
Shape = Callable[[Any], Document]
Shapes = Mapping[type, Shape]  # how objects of a class become documents, where not by `fields_of`
BY_FIELDS: Shapes = MappingProxyType({})


def print_json(value: Any, shapes: Shapes = BY_FIELDS) -> None:
    """Print a value as one document; lone surrogates of broken texts leave as JSON escapes."""
    text = json.dumps(encoded(value, shapes), ensure_ascii=False, allow_nan=False, indent=2)
    text = _CONTROLS.sub(lambda control: f"\\u{ord(control[0]):04x}", text)
    typer.echo(text.encode("utf-8", "backslashreplace"))


def encoded(value: Any, shapes: Shapes = BY_FIELDS) -> Any:
    """A value as JSON can hold it, through and through."""
    if shape := shapes.get(type(value)):
        value = shape(value)
    elif hasattr(value, "__dataclass_fields__"):
        value = fields_of(value)
    elif hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, Mapping):
        return {str(key): encoded(item, shapes) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [encoded(item, shapes) for item in value]
    if isinstance(value, AbstractSet):
        return sorted(encoded(item, shapes) for item in value)
    return json_value(value)


def fields_of(value: Any) -> Document:
    """A dataclass as a document; what its fields hold stays as it is."""
    return {name: getattr(value, name) for name in value.__dataclass_fields__}


def shaped(*names: str, without: Collection[str] = (), empty_is_null: Collection[str] = (), **paths: str) -> Shape:
    """The document of a class whose keys are not its fields alone.

    `names`: derived attributes; `paths`: other keys, as `key="path.to.attribute"`, null where the path ends early at
    None. `empty_is_null`: keys whose "" or 0 says that there is nothing.
    """
    chosen = only(*names, **paths)

    def shape(value: Any) -> Document:
        document = {key: item for key, item in fields_of(value).items() if key not in without} | chosen(value)
        return document | {key: document[key] or None for key in empty_is_null}

    return shape


def only(*names: str, empty_is_null: Collection[str] = (), **paths: str) -> Shape:
    """The document of a class of which scripts get a part: these attributes, named as for `shaped`."""
    attributes = {name: name for name in names} | paths

    def shape(value: Any) -> Document:
        document = {key: _attribute(value, path) for key, path in attributes.items()}
        return document | {key: document[key] or None for key in empty_is_null}

    return shape


def _attribute(value: Any, path: str) -> Any:
    for name in path.split("."):
        if value is None:
            return None
        value = getattr(value, name)
    return value


def console(*, to_stderr: bool = False) -> "Console":
    """A terminal of its real width; a pipe or file gets lines that are never wrapped."""
    from rich.console import Console

    found = Console(highlight=False, emoji=False, stderr=to_stderr)
    return found if found.is_terminal else Console(highlight=False, emoji=False, stderr=to_stderr, width=10_000)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, right: Sequence[str] = ()) -> None:
    """A table without frames; the columns named in `right` are numbers. `rich`, which takes seconds for three thousand
    rows, folds alone what is too wide for a terminal."""
    lines = [tuple(one_line(text) for text in line) for line in (columns, *rows)]
    widths = [max(map(_width, column)) for column in zip(*lines, strict=True)]
    screen = console()
    if not screen.is_terminal or sum(widths) + 2 * len(widths) - 2 <= screen.width:
        columns_of = [(width, name in right) for width, name in zip(widths, columns, strict=True)]
        head, *body = (
            "  ".join(_padded(*pair) for pair in zip(line, columns_of, strict=True)).rstrip() for line in lines
        )
        say(head, style="bold")
        sys.stdout.write("".join(f"{line}\n" for line in body))  # typer takes a terminal without Unicode for broken
        return
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for name, head in zip(columns, lines[0], strict=True):
        table.add_column(Text(head), justify="right" if name in right else "left", overflow="fold")
    for line in lines[1:]:
        table.add_row(*map(Text, line))
    screen.print(table, soft_wrap=False)


def cell(value: object) -> str:
    """A value of a row, cut to what a table can show; JSON and files have it whole."""
    plain = json_value(value)
    text = "null" if plain is None else str(plain)
    return text if len(text) <= WIDEST else f"{text[: WIDEST - 1]}…"


def _width(text: str) -> int:
    """Cells of a terminal."""
    if text.isascii():
        return len(text)
    return sum(2 if east_asian_width(c) in "WF" else 0 if combining(c) else 1 for c in text)


def _padded(text: str, column: tuple[int, bool]) -> str:
    """`column`: its width, and whether it holds numbers."""
    width, is_number = column
    space = " " * (width - _width(text))
    return space + text if is_number else text + space


def say(text: str = "", *, style: str = "", to_stderr: bool = False) -> None:
    """One line for people, literally (no markup)."""
    console(to_stderr=to_stderr).print(one_line(text), style=style or None, markup=False, soft_wrap=True)


def fail(message: str, hint: str = "", code: int = 1) -> int:
    """Say on stderr what is wrong and what to do; return the exit code."""
    sys.stderr.write(f"error: {one_line(message)}\n")
    if hint:
        sys.stderr.write(f"hint: {one_line(hint)}\n")
    return code


def one_line(text: str) -> str:
    """Text of a user or a log: without line breaks and control characters, which could rewrite a terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else "�" if c not in "\n\t\r" else " " for c in text)
