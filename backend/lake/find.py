"""Which tables hold a word: in their name, columns, comments, description, owner or properties.

Rule: pure. Every word must be found somewhere in a table; what it was found in is said, the strongest place first.
"""

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from operator import itemgetter

from backend.lake.model import TableCard, UnreadableTable

Table = TableCard | UnreadableTable
MOST_MATCHES = 6  # said of one table by whoever says them to a person


class Where(IntEnum):
    """Where a word was found, the strongest place first."""

    NAME = 0
    COLUMN = 1
    DESCRIPTION = 2
    OWNER = 3
    COMMENT = 4
    PROPERTY = 5
    PROBLEM = 6


@dataclass(frozen=True, slots=True)
class Match:
    """One thing of a table that holds a word. `subject` is the column or the property; `text` what is said there."""

    where: Where
    subject: str
    text: str


@dataclass(frozen=True, slots=True)
class _Entry:
    """A table's places as a search sees them, the strongest first: `texts` folded, one for each; `whole` is all."""

    table: Table
    places: tuple[tuple[Where, str, str], ...]
    texts: tuple[str, ...]
    whole: str


@dataclass(frozen=True, slots=True)
class FoundTable:
    """A table that holds every word."""

    entry: _Entry
    wanted: tuple[str, ...]

    @property
    def table(self) -> Table:
        return self.entry.table

    def matches(self) -> tuple[Match, ...]:
        """Everything that holds one of the words, strongest first."""
        texts = self.entry.texts
        hits = [number for number, text in enumerate(texts) if any(word in text for word in self.wanted)]
        hits.sort(key=lambda number: min(self._distance(number, word) for word in self.wanted if word in texts[number]))
        return tuple(Match(*self.entry.places[number]) for number in hits)

    @property
    def distance(self) -> int:
        """From the best answer: 0 where each word is the whole name. A look at the strongest place of each alone."""
        texts, total = self.entry.texts, 0
        for word in self.wanted:
            near = 0 if word in texts[0] else texts.index(word) if word in texts else None
            first = next(n for n, text in enumerate(texts) if word in text) if near is None else near
            total += self._distance(first, word)
        return total

    def _distance(self, number: int, word: str) -> int:
        own = self.entry.texts[number].replace(".", "/").rpartition("/")[2]
        closeness = 0 if own == word else 1 if own.startswith(word) else 2
        return 3 * self.entry.places[number][0] + closeness


class LakeFinder:
    """All words of a lake, made anew for the tables alone that changed. Not for several threads at once."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}

    def find(self, tables: Iterable[Table], words: str) -> list[FoundTable]:
        """Every table that holds all the words, best first: each word as a whole name, a part of one, a column, …"""
        before, self._entries = self._entries, {}
        for table in tables:
            entry = before.get(table.ref.uri)
            if entry is None or entry.table is not table:
                places = tuple(sorted(_places(table), key=itemgetter(0)))
                texts = tuple(sys.intern(_searched(*place).casefold()) for place in places)  # columns repeat in a lake
                entry = _Entry(table, places, texts, "\n".join(texts))
            self._entries[table.ref.uri] = entry
        if not (wanted := tuple(words.casefold().split())):
            return []
        entries = (entry for entry in self._entries.values() if all(word in entry.whole for word in wanted))
        results = [FoundTable(entry, wanted) for entry in entries]
        return sorted(results, key=lambda entry: (entry.distance, entry.table.ref.name))


def _places(table: Table) -> Iterator[tuple[Where, str, str]]:
    """Everything of a table that a word may be in, as the arguments of a `Match`."""
    yield Where.NAME, table.ref.name, ""
    if isinstance(table, UnreadableTable):
        yield Where.PROBLEM, "", table.reason
        return
    if table.description:
        yield Where.DESCRIPTION, "", table.description
    if table.owner:
        yield Where.OWNER, "", table.owner
    for column in table.columns:
        yield Where.COLUMN, column.path, column.type
        if column.comment:
            yield Where.COMMENT, column.path, column.comment
    yield from ((Where.PROPERTY, key, value) for key, value in table.properties.items() if value != table.owner)


def _searched(where: Where, subject: str, text: str) -> str:
    """A type, or the name of a commented column, is shown and not searched."""
    if where is Where.COLUMN:
        return subject
    return text if where is Where.COMMENT else f"{subject} {text}".strip()
