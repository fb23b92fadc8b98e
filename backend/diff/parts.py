"""Files that can be compared apart from the others, because none of their keys can stand in a file of another part.

Rule: what a file's footer says of its keys decides which files go together; whoever reads them holds the footer to it
(`backend.diff.join`).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from operator import attrgetter
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

_ORDERED = (int, date, str)  # of these Python, parquet and DuckDB have one order


@dataclass(frozen=True, slots=True)
class KeyedFile:
    """A data file, by its place among those of the first (0) or the second side (1), and between which values one
    column of its rows lies."""

    place: int
    side: int
    num_rows: int
    low: Any
    high: Any


@dataclass(frozen=True, slots=True)
class FilesPart:
    """Files of both sides that hold all rows of either with a value from `low` to `high` in one column."""

    files: tuple[KeyedFile, ...]

    @property
    def num_rows(self) -> int:
        return sum(file.num_rows for file in self.files)

    @property
    def low(self) -> Any:
        return min(file.low for file in self.files)

    @property
    def high(self) -> Any:
        return max(file.high for file in self.files)

    def places(self, side: int) -> list[int]:
        return [file.place for file in self.files if file.side == side]


def keyed_files(sides: Iterable[Sequence[str]], column: str) -> list[KeyedFile] | None:
    """The files of both sides that have rows, by their footers; None where one does not tell the column's values, or
    cannot be read: whoever reads its rows says why."""
    found = []
    for side, paths in enumerate(sides):
        for place, path in enumerate(paths):
            try:
                footer = pq.read_metadata(path)
            except (OSError, pa.ArrowException):
                return None
            bounds = _bounds(footer, column) if footer.num_rows else ()
            if bounds is None:
                return None
            if bounds:
                found.append(KeyedFile(place, side, footer.num_rows, *bounds))
    return found


def split(files: Iterable[KeyedFile], most_rows: int) -> list[FilesPart] | None:
    """Parts of at most so many rows, in the order of the column's values; None where files that share values have
    more."""
    parts: list[FilesPart] = []
    for group in _sharing(sorted(files, key=attrgetter("low"))):
        part = FilesPart(tuple(group))
        if part.num_rows > most_rows:
            return None
        if parts and parts[-1].num_rows + part.num_rows <= most_rows:
            parts[-1] = FilesPart((*parts[-1].files, *part.files))
        else:
            parts.append(part)
    return parts


def _sharing(files: Iterable[KeyedFile]) -> Iterator[list[KeyedFile]]:
    """Files in the order of their lowest value, those together whose values lie between each other's."""
    group: list[KeyedFile] = []
    high: Any = None
    for file in files:
        if group and file.low > high:
            yield group
            group = []
        high = max(high, file.high) if group else file.high
        group.append(file)
    if group:
        yield group


def _bounds(footer: pq.FileMetaData, column: str) -> tuple[Any, Any] | None:
    """None where they are not said, or of a type without a plain order. Nulls have no place among them: rows with such
    a key are set apart."""
    place = next((i for i in range(footer.num_columns) if footer.schema.column(i).path == column), None)
    if place is None:
        return None
    lows, highs = [], []
    for group in range(footer.num_row_groups):
        said = footer.row_group(group).column(place).statistics
        if said is None or not said.has_min_max:
            return None
        lows.append(said.min)
        highs.append(said.max)
    if any(type(value) not in _ORDERED for value in (*lows, *highs)):
        return None
    return min(lows), max(highs)
