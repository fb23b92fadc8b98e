"""The list of all tables: what was asked for, which tables fit, in which order, and in what words.

Rule: pure; an unknown number is sorted last and never counted as 0; a reading under way says how far it is.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import pyarrow as pa

from app.columns import NUMBERS, Column, Columns, shown
from app.ui.lake import (
    MOST_TO_MERGE,
    NOT_AS_EXPECTED,
    SMALL,
    STALE,
    STALEST,
    TO_MERGE,
    UNREADABLE,
    LakeReading,
    Table,
    health_columns,
    lake_totals,
    match_words,
    table_columns,
    totals_sentence,
)
from backend.format import age_s, count_text, things
from backend.health.health import JudgedTable
from backend.health.model import Severity
from backend.health.rules import merge_gain
from backend.lake.find import FoundTable
from backend.lake.model import TableCard, UnreadableTable
from backend.sql.export import FORMATS, encoded

LAYERS = ("bronze", "silver", "gold", "no layer")
MOST_TEXT = 300  # characters of a reason in a row; the table's page has the whole

ALL = "All"
SHOWN = (ALL, UNREADABLE, STALE, SMALL, TO_MERGE, NOT_AS_EXPECTED)


@dataclass(frozen=True, slots=True)
class Query:
    """What a viewer asked for: each word must be found (`LakeFinder`), one of the layers and of the owners must fit."""

    words: str = ""
    layers: tuple[str, ...] = ()
    owners: tuple[str, ...] = ()
    shown: str = ALL
    order: str = "Name"

    @property
    def is_of_health(self) -> bool:
        """Whether it asks for what maintenance would help, so that the list says what it finds."""
        return self.shown in (SMALL, TO_MERGE) or self.order == MOST_TO_MERGE

    @property
    def is_narrow(self) -> bool:
        return bool(self.words.split() or self.layers or self.owners or self.shown != ALL)


@dataclass(frozen=True, slots=True)
class ListLimits:
    """By which a table counts as stale; `unexpected` are the addresses of those with an expectation that is not met."""

    now: datetime
    stale_after_s: float
    unexpected: frozenset[str] = frozenset()


# name of an order → the number by which the largest comes first
_ORDERS: dict[str, Callable[[Table, datetime], float | None]] = {
    STALEST: lambda table, now: age_s(table.last_commit_at, now),
    "Newest commit": lambda table, now: None if (age := age_s(table.last_commit_at, now)) is None else -age,
    "Size": lambda table, _: table.size_bytes if isinstance(table, TableCard) else None,
    "Files": lambda table, _: table.num_files if isinstance(table, TableCard) else None,
    "Rows": lambda table, _: table.num_rows if isinstance(table, TableCard) else None,
    MOST_TO_MERGE: lambda table, _: merge_gain(table).spared if isinstance(table, TableCard) else None,
}
ORDERS = ("Name", *_ORDERS)


def select(tables: Iterable[Table], query: Query, limits: ListLimits) -> list[Table]:
    """Of tables that hold a query's words, those it asks for, in its order; equals by name, unknown numbers last."""
    fits = [table for table in tables if _fits(table, query, limits)]
    by_name = sorted(fits, key=lambda table: table.ref.name.casefold())
    number = _ORDERS.get(query.order)
    if number is None:
        return by_name
    numbers = {id(table): number(table, limits.now) for table in by_name}
    return sorted(by_name, key=lambda table: (numbers[id(table)] is None, -(numbers[id(table)] or 0)))


def _fits(table: Table, query: Query, limits: ListLimits) -> bool:
    if query.layers and (table.ref.layer or LAYERS[-1]) not in query.layers:
        return False
    card = table if isinstance(table, TableCard) else None
    if query.owners and (card is None or card.owner not in query.owners):
        return False
    if query.shown == UNREADABLE:
        return card is None
    if query.shown == STALE:
        age = age_s(table.last_commit_at, limits.now)
        return age is not None and age > limits.stale_after_s
    if query.shown == NOT_AS_EXPECTED:
        return table.ref.uri in limits.unexpected
    if query.shown in (TO_MERGE, SMALL):
        gain = merge_gain(card) if card else None
        is_urgent = gain is not None and gain.merge_severity is Severity.WARNING
        return is_urgent if query.shown == TO_MERGE else gain is not None and gain.small_files_matter
    return True


def owners(tables: Iterable[Table], chosen: Iterable[str] = ()) -> list[str]:
    """Every owner there is, and those chosen even where no table read so far has them."""
    there = {table.owner for table in tables if isinstance(table, TableCard) and table.owner}
    return sorted(there | set(chosen), key=str.casefold)


# words -----------------------------------------------------------------------------------------------------------


def found_sentence(matching: Sequence[Table], reading: LakeReading, query: Query) -> str:
    """What the list comes to: "38 of 2,000 tables · 1.2 M rows · …", and what of it is not known yet."""
    totals = totals_sentence(lake_totals(matching))
    if matching and all(isinstance(table, UnreadableTable) for table in matching):  # no number of theirs is known
        totals = f"{things(len(matching), 'table')} · {count_text(len(matching))} unreadable"
    if query.is_narrow:
        head, _, rest = totals.partition(" · ")
        totals = f"{count_text(len(matching))} of {things(reading.num_read, 'table')} match · {rest}" if rest else head
    if query.is_of_health:
        gains = [merge_gain(table) for table in matching if isinstance(table, TableCard)]
        files = things(sum(gain.num_files for gain in gains), "file")
        totals += f" · merging would spare {count_text(sum(gain.spared for gain in gains))} of {files}"
    return totals if reading.is_complete else f"So far: {totals}"


# columns ---------------------------------------------------------------------------------------------------------


def catalog_columns(
    tables: Sequence[Table], now: datetime, small_file_ratio: float, results: Iterable[FoundTable] = (),
    judged: Mapping[str, JudgedTable] | None = None,
) -> list[Column[Table]]:  # fmt: skip
    """The columns of these tables. `results`: where a search found its words; `judged`: with what maintenance finds."""
    uris = {table.ref.uri for table in tables}
    places = {uri: match_words(result) or None for result in results if (uri := result.table.ref.uri) in uris}

    def version_text(table: Table) -> str:
        text = f"v{table.version}" if table.version is not None else ""
        return f"unreadable {text}".strip() if isinstance(table, UnreadableTable) else text

    def why(field: str) -> Callable[[Table], str | None]:
        return lambda table: getattr(table, field)[:MOST_TEXT] if isinstance(table, UnreadableTable) else None

    name, layer, version, *numbers = table_columns(now, small_file_ratio)
    numbers.append(Column("Operation", lambda table: table.last_operation, help="The last commit's operation."))
    if all(isinstance(table, UnreadableTable) for table in tables):  # room for the reasons
        numbers = []
    return [
        name,
        layer,
        Column("Found in", lambda table: places.get(table.ref.uri), is_optional=True, width=300,
               help="Where the search words were found."),
        *(health_columns(now, judged) if judged is not None else ()),
        replace(version, value=version_text),
        *numbers,
        Column("Owner", lambda table: table.owner if isinstance(table, TableCard) else None, is_optional=True,
               help="`catalog.team_name`, else the e-mail or Slack channel set there."),
        Column("Classification", lambda table: table.classification if isinstance(table, TableCard) else None,
               is_optional=True, help="`catalog.table.classification`"),
        Column("Problem", why("reason"), is_optional=True, width=330, help="Why the table cannot be read."),
        Column("What to do", why("hint"), is_optional=True, width=290),
        Column("Committed at", lambda table: table.last_commit_at, "moment", "The last commit, exact."),
    ]  # fmt: skip


def catalog_csv(columns: Columns[Table], tables: Sequence[Table]) -> bytes:
    """The rows as a file, numbers as they are: sizes in bytes, ages in seconds."""

    def cell(column: Column[Table], table: Table) -> object:
        value = column.value(table)
        return value if value is None or column.format in NUMBERS else column.text(table)

    listed = shown(columns, tables, "page")
    rows = pa.table({column.name: [cell(column, table) for table in tables] for column in listed})
    return b"".join(piece for _, piece in encoded(rows.to_reader(), FORMATS["csv"]))
