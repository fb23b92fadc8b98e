"""How answers leave: one JSON document, or lines and tables for people; errors as sentences.

Rule: JSON is an encoding of the values that the pages show as well: a dataclass is an object of its fields, in
snake_case, times are ISO 8601 UTC, sizes integers, unknown is null. Keys are a contract with scripts: where a key
is to differ from its field, the command says so in a `Shapes`. What was written by others reaches a terminal through
here alone, and cannot drive it.
"""

import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from functools import partial
from itertools import zip_longest
from types import MappingProxyType
from typing import Any
from unicodedata import combining, east_asian_width

import typer

from app.columns import Columns, Row, shown
from backend.redaction import without_secrets
from backend.sql.values import json_value

WIDEST = 60  # characters of a value in a table
NARROWEST = 8  # a terminal in which no column may be wider is too narrow: its own wrapping has to do
_GAP = "  "
_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33"}
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


def shaped(
    *names: str, without: Collection[str] | None = (), empty_is_null: Collection[str] = (), **paths: str
) -> Shape:
    """The document of a class whose keys are not its fields alone.

    `names`: derived attributes; `paths`: other keys, as `key="path.to.attribute"`, null where the path ends early at
    None. `without`: fields left out, None for all. `empty_is_null`: keys whose "" or 0 says that there is nothing.
    """
    attributes = {name: name for name in names} | paths

    def shape(value: Any) -> Document:
        own = {} if without is None else fields_of(value)
        document = {key: item for key, item in own.items() if key not in (without or ())}
        document |= {key: _attribute(value, path) for key, path in attributes.items()}
        return document | {key: document[key] or None for key in empty_is_null}

    return shape


only = partial(shaped, without=None)  # of a class of which scripts get a part: these attributes alone


def _attribute(value: Any, path: str) -> Any:
    for name in path.split("."):
        if value is None:
            return None
        value = getattr(value, name)
    return value


def print_list(columns: Columns[Row], rows: Sequence[Row]) -> None:
    """A list in the words of its page; numbers stand to the right."""
    listed = shown(columns, rows, "terminal")
    heads = [column.name.lower() for column in listed]
    right = [column.name.lower() for column in listed if column.is_right]
    print_table(heads, ([column.text(row) for column in listed] for row in rows), right=right)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, right: Sequence[str] = ()) -> None:
    """A table without frames; the columns named in `right` are numbers."""
    is_terminal = sys.stdout.isatty()
    width = shutil.get_terminal_size().columns if is_terminal else None
    heading, *body = table_lines((columns, *rows), [name in right for name in columns], width)
    for line in heading:
        say(line, style="bold")
    sys.stdout.write("".join(f"{line}\n" for lines in body for line in lines))


def table_lines(rows: Iterable[Sequence[str]], are_numbers: Sequence[bool], width: int | None) -> list[list[str]]:
    """The lines of each row, its cells one below the other; a cell is folded where the table is wider than `width`."""
    cells = [tuple(one_line(text) for text in row) for row in rows]
    widths = [max(map(_width, column)) for column in zip(*cells, strict=True)]
    while width is not None and sum(widths) + len(_GAP) * (len(widths) - 1) > width and max(widths) > NARROWEST:
        widths[widths.index(max(widths))] -= 1
    columns = list(zip(widths, are_numbers, strict=True))
    return [
        [
            _GAP.join(_padded(text, *column) for text, column in zip(line, columns, strict=True)).rstrip()
            for line in zip_longest(*map(_folded, row, widths), fillvalue="")
        ]
        for row in cells
    ]


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


def _folded(text: str, width: int) -> list[str]:
    """A cell as lines of at most this width, broken between words where there are any."""
    lines = [text]
    while _width(lines[-1]) > width:
        line = lines.pop()
        end = next(end for end in range(len(line), 0, -1) if end == 1 or _width(line[:end]) <= width)
        end = line.rfind(" ", 1, end + 1) if " " in line[1 : end + 1] else end
        lines += [line[:end], line[end:].lstrip()]
    return lines


def _padded(text: str, width: int, is_number: bool) -> str:
    space = " " * (width - _width(text))
    return space + text if is_number else text + space


def say(text: str = "", *, style: str = "", to_stderr: bool = False) -> None:
    """One line for people; a style is for terminals that know colours."""
    stream, text = sys.stderr if to_stderr else sys.stdout, one_line(text)
    if style and stream.isatty() and os.environ.get("TERM") != "dumb" and not os.environ.get("NO_COLOR"):
        text = f"\x1b[{';'.join(_STYLES[word] for word in style.split())}m{text}\x1b[0m"
    stream.write(f"{text}\n")


@contextmanager
def status_line() -> Iterator[Callable[[str], None] | None]:
    """What says how far something is: in one line of the terminal, gone at the end; None where stderr is none."""
    if not sys.stderr.isatty():
        yield None
        return

    def update(text: str) -> None:
        width = shutil.get_terminal_size().columns - 1
        sys.stderr.write(f"\r\x1b[K{_folded(one_line(text), width)[0]}")
        sys.stderr.flush()

    try:
        yield update
    finally:
        sys.stderr.write("\r\x1b[K")


def fail(message: str, hint: str = "", code: int = 1) -> int:
    """Say on stderr what is wrong and what to do; return the exit code."""
    sys.stderr.write(f"error: {one_line(without_secrets(message))}\n")
    if hint:
        sys.stderr.write(f"hint: {one_line(without_secrets(hint))}\n")
    return code


def one_line(text: str) -> str:
    """Text of a user or a log: without line breaks and control characters, which could rewrite a terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else "�" if c not in "\n\t\r\u2003" else " " for c in text)
