"""A list declared once, as columns: page, terminal and JSON render the same declaration, so that they cannot disagree.

Rule: pure, and free of pandas, which the terminal does without. A value is a number or a text, None where it is not
known; a number sorts by itself and shows as its format writes it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any, Generic, Literal, TypeVar

from backend.format import (
    UNKNOWN,
    ago_short_text,
    ago_text,
    bytes_text,
    count_exact,
    count_text,
    duration_text,
    ms_text,
    percent,
    rate_text,
    utc_text,
)

_BLOCKS = "▁▂▃▄▅▆▇█"

Row = TypeVar("Row")


NUMBERS: Mapping[str, Callable[[Any], str]] = {
    "bytes": bytes_text,
    "count": count_text,
    "about": lambda number: f"≈ {count_text(number)}",
    "exact": lambda number: count_exact(int(number)),
    "plain": lambda number: str(int(number)),
    "version": lambda number: f"v{int(number)}",
    "ago": ago_text,
    "ago_short": ago_short_text,
    "duration": duration_text,
    "ms": ms_text,
    "rate": rate_text,
    "percent": percent,
}
TEXTS: Mapping[str, Callable[[Any], str]] = {
    "text": str,
    "layer": str,  # in its colour
    "state": str,  # a glyph and a word, in the word's colour
    "figure": str,  # digits, perhaps with a sign: to the right
    "moment": utc_text,
    "yes": lambda is_so: "yes" if is_so else "no",
}
FORMATS: Mapping[str, Callable[[Any], str]] = {
    **NUMBERS,
    **TEXTS,
    "bars": lambda shares: "".join(_BLOCKS[ceil(share * 7)] for share in shares),  # nothing but 0 is the lowest
    "line": lambda numbers: " ".join(map(count_text, numbers)),
}


@dataclass(frozen=True, slots=True)
class Column(Generic[Row]):
    """A column: its head, and what it says of a row.

    `format`: a name of `FORMATS`; `key`: that of the same value in the row's JSON document; `on`: the one place that
    has it; `is_optional`: left out where it says nothing of any row.
    """

    name: str
    value: Callable[[Row], Any]
    format: str = "text"
    help: str | None = None
    width: int | Literal["small", "medium", "large"] | None = None
    key: str | None = None
    on: Literal["page", "terminal"] | None = None
    is_optional: bool = False

    @property
    def is_right(self) -> bool:
        """Whether it stands to the right."""
        return self.format in NUMBERS or self.format == "figure"

    def text(self, row: Row) -> str:
        """The cell in words."""
        value = self.value(row)
        return UNKNOWN if value is None else FORMATS[self.format](value)


Columns = Sequence[Column[Row]]


def shown(columns: Columns[Row], rows: Sequence[Row], place: Literal["page", "terminal"]) -> list[Column[Row]]:
    """The columns of a place, without the optional ones that are blank in every row."""
    here = [column for column in columns if column.on in (None, place)]
    blank: tuple[object, ...] = ("", [], None)
    return [column for column in here if not (column.is_optional and all(column.value(row) in blank for row in rows))]


def document(columns: Columns[Row], row: Row) -> dict[str, Any]:
    """What JSON says of a row: the values that have a key."""
    return {column.key: column.value(row) for column in columns if column.key}
