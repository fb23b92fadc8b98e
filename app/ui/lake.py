"""The lake as far as it is read, and what its tables add up to: one reading in the background for all viewers.

Rule: nobody waits for a big lake. A reading starts when someone looks and the last one is old; whoever looks gets what
has arrived, and how much is still to come. Totals say what they could not count. No Streamlit here.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

from app.columns import Column
from app.ui.view.theme import state_text
from app.ui.view.words import sentence
from backend.format import age_s, bytes_text, count_text, cut, percent, things
from backend.health.model import HealthEvidence, MaintenanceRun, Recommendation, Severity
from backend.health.rules import gain_text, merge_gain, severity_of, small_files_text
from backend.lake.catalog import Listing
from backend.lake.find import MOST_MATCHES, FoundTable, Match, Where
from backend.lake.model import Snapshot, TableCard, TableRef, UnreadableTable

if TYPE_CHECKING:  # what judges tables, no reader of the lake loads
    from backend.health.health import JudgedTable

PATIENCE_S = 1.5  # a small lake is waited for, so that its pages are whole at once
BIG_PATIENCE_S = 0.5  # so is a big one whose cards another process kept
REFRESH_PATIENCE_S = 0.3  # what is known is shown rather than waited for
SMALL_LAKE = 100  # tables
REST = 4  # times the length of a pass, at least, before the next

# What the list of tables can be narrowed to and sorted by, as links to it say.
UNREADABLE, STALE, SMALL, TO_MERGE = "Cannot be read", "Stale", "Many small files", "Worth merging"
NOT_AS_EXPECTED = "Not as expected"
STALEST, MOST_TO_MERGE = "Stalest", "Most to merge"

Table = TableCard | UnreadableTable


@dataclass(frozen=True, slots=True)
class OpenTable:
    """The table a page shows, at the version it shows."""

    ref: TableRef
    snapshot: Snapshot
    latest_version: int

    @property
    def is_latest(self) -> bool:
        return self.snapshot.version == self.latest_version


class Catalog(Protocol):
    """What is read: the lake, or a stand-in of a test."""

    def found(self) -> Listing: ...
    def read_cards(self, refs: Sequence[TableRef]) -> Iterator[Table]: ...


@dataclass(frozen=True, slots=True, eq=False)
class LakeReading:
    """Tables read so far, in the catalog's order; `names` are all that were found. Each reading is a value of its own.

    `is_listed`: it is known which tables there are. A later reading replaces the known tables one by one.
    """

    tables: tuple[Table, ...]
    read_at: datetime
    names: tuple[str, ...]
    is_listed: bool = True

    @property
    def num_read(self) -> int:
        return len(self.tables)

    @property
    def num_found(self) -> int:
        return len(self.names)

    @property
    def is_complete(self) -> bool:
        return self.is_listed and self.num_read == self.num_found


class LakeReader:
    """Thread-safe. `reading()` is what pages ask."""

    def __init__(self, catalog: Catalog, *, refresh_s: float, now: Callable[[], datetime]) -> None:
        self._catalog, self._refresh_s, self._now = catalog, refresh_s, now
        self._changed = threading.Condition()
        self._listing: Listing | None = None
        self._tables: dict[str, Table] = {}
        self._read_at: datetime | None = None
        self._running = False
        self._started_s = self._due_s = 0.0
        self._failure: Exception | None = None
        self._made: LakeReading | None = None

    def reading(self) -> LakeReading:
        """What is known now; raises the error that ended the last pass."""
        with self._changed:
            self._begin_if_due()
            patience_s = PATIENCE_S if self._read_at is None else REFRESH_PATIENCE_S
            self._wait(patience_s, lambda: not self._running or self._listing is not None)
            is_big = self._listing is not None and len(self._listing.refs) > SMALL_LAKE
            self._wait(min(patience_s, BIG_PATIENCE_S) if is_big else patience_s, lambda: not self._running)
            return self._known()

    def known(self, *, refresh_after_s: float) -> LakeReading:
        """The same without waiting at all; a pass begins only where the last one is older."""
        with self._changed:
            try:
                return self._known()  # before a new pass forgets why the last one failed
            finally:
                if self._read_at is None or (self._now() - self._read_at).total_seconds() >= refresh_after_s:
                    self._begin_if_due()

    def _begin_if_due(self) -> None:
        if not self._running and time.monotonic() >= self._due_s:
            self._running, self._failure, self._started_s = True, None, time.monotonic()
            threading.Thread(target=self._read, name="lake-reading", daemon=True).start()

    def _known(self) -> LakeReading:
        if self._failure is not None and not self._running:
            raise self._failure
        if self._made is None:
            listing = self._listing or Listing(())
            read = (self._tables[ref.uri] for ref in listing.refs if ref.uri in self._tables)
            refs = (*listing.refs, *(problem.ref for problem in listing.problems))
            self._made = LakeReading(
                tables=(*read, *listing.problems),
                read_at=self._read_at or self._now(),
                names=tuple(ref.name for ref in refs),
                is_listed=self._listing is not None,
            )
        return self._made

    def _wait(self, patience_s: float, enough: Callable[[], bool]) -> None:
        """Until there is enough, at most so long after the pass began."""
        self._changed.wait_for(enough, max(0.0, self._started_s + patience_s - time.monotonic()))

    def _read(self) -> None:
        started_s = time.monotonic()
        try:
            listing = self._catalog.found()
            with self._changed:
                self._listing, self._made = listing, None
                self._changed.notify_all()
            for table in self._catalog.read_cards(listing.refs):
                with self._changed:
                    self._tables[table.ref.uri], self._made = table, None
            self._end(started_s, None, listing)
        except Exception as exc:  # noqa: BLE001 - the thread's boundary: whoever looks next is told
            self._end(started_s, exc, None)

    def _end(self, started_s: float, failure: Exception | None, listing: Listing | None) -> None:
        took_s = time.monotonic() - started_s
        with self._changed:
            if listing is not None:
                there = {ref.uri for ref in listing.refs}
                self._tables = {uri: table for uri, table in self._tables.items() if uri in there}
                self._read_at = self._now()
            self._failure, self._running, self._made = failure, False, None
            self._due_s = started_s + took_s + max(self._refresh_s, REST * took_s if failure is None else 0)
            self._changed.notify_all()


# totals --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LakeTotals:
    """The whole lake in figures. `num_rows` counts only tables that know their rows; None where none does."""

    num_tables: int
    unreadable: int
    num_rows: int | None
    rows_unknown_in: int
    num_files: int
    size_bytes: int
    small_files: int


def lake_totals(tables: Iterable[Table]) -> LakeTotals:
    """Adds up what the cards know."""
    found = list(tables)
    cards = [table for table in found if isinstance(table, TableCard)]
    known = [card.num_rows for card in cards if card.num_rows is not None]
    return LakeTotals(
        num_tables=len(found),
        unreadable=len(found) - len(cards),
        num_rows=sum(known) if known or not found else None,
        rows_unknown_in=len(cards) - len(known),
        num_files=sum(card.num_files for card in cards),
        size_bytes=sum(card.size_bytes for card in cards),
        small_files=sum(card.small_files for card in cards),
    )


def totals_sentence(totals: LakeTotals) -> str:
    """ "7 tables · 1.2 M rows · 1,204 files · 38.2 MB"."""
    rows = "rows unknown" if totals.num_rows is None else f"{count_text(totals.num_rows)} rows"
    if totals.rows_unknown_in and totals.num_rows is not None:
        rows = f"{rows} (unknown in {things(totals.rows_unknown_in, 'table')})"
    parts = [things(totals.num_tables, "table"), rows, things(totals.num_files, "file"), bytes_text(totals.size_bytes)]
    if totals.unreadable:
        parts.append(f"{count_text(totals.unreadable)} unreadable")
    return " · ".join(parts)


# one table -------------------------------------------------------------------------------------------------------


def table_columns(now: datetime, small_file_ratio: float) -> tuple[Column[Table], ...]:
    """What every list of tables shows; of a table that cannot be read its numbers are not known."""

    def of_card(value: Callable[[TableCard], object]) -> Callable[[Table], object]:
        return lambda table: value(table) if isinstance(table, TableCard) else None

    def version_text(table: Table) -> str:
        return "unreadable" if isinstance(table, UnreadableTable) else f"v{table.version}"

    def age(table: Table) -> float | None:
        since = age_s(table.last_commit_at, now)
        return None if since is None else max(0.0, since)  # one ahead of this clock is now

    small = f"Files below {percent(small_file_ratio)} of the target size. OK: merging them would gain readers nothing"
    return (
        Column("Table", lambda table: table.ref.name, width=192, key="name"),
        Column("Layer", lambda table: table.ref.layer, "layer", key="layer", is_optional=True),
        Column("Version", version_text, help="The latest version, or that the table cannot be read.", width=104),
        Column("Rows", of_card(lambda card: card.num_rows), "count",
               "Live rows by the files' statistics; – unknown.", key="num_rows"),
        Column("Files", of_card(lambda card: card.num_files), "count",
               "Data files of the latest version.", key="num_files"),
        Column("Size", of_card(lambda card: card.size_bytes), "bytes",
               "Bytes of these files, without those of older versions.", key="size_bytes"),
        Column("Small files", of_card(lambda card: small_files_text(merge_gain(card))),
               help=f"{small} worth a remark.", width=88),
        Column("Last commit", age, "ago", "How long ago anything was committed."),
    )  # fmt: skip


PENDING, UNKNOWN_STATE = "… being judged", "? Unknown"


def health_columns(now: datetime, judged: "Mapping[str, JudgedTable]") -> tuple[Column[Table], ...]:
    """What maintenance finds of a table: what its card tells at once, then its judgement in `judged`, by address."""

    def problem(table: Table) -> str:
        if isinstance(table, UnreadableTable):
            return table.reason
        return judged[table.ref.uri].problem if table.ref.uri in judged else ""

    def judgement(table: Table) -> str:
        severity: Severity | None = severity_of(table)
        severity = None if severity is Severity.FINE else severity
        if (health := judged.get(table.ref.uri)) is not None:
            severity = health.severity if health.evidence else None
        if severity is None:
            return UNKNOWN_STATE if problem(table) else PENDING
        return state_text(severity.value)

    def advice(table: Table) -> Recommendation | None:
        health = judged.get(table.ref.uri)
        return health.recommendations(now)[0] if health and health.evidence else None

    def finding(table: Table) -> str | None:
        if first := advice(table):
            return first.finding
        if isinstance(table, UnreadableTable) or problem(table):
            return problem(table)
        return gain_text(merge_gain(table)) if severity_of(table) is not Severity.FINE else None

    def next_step(table: Table) -> str | None:
        if isinstance(table, UnreadableTable):
            return table.hint
        first = advice(table)  # the table's own page has all
        return sentence(first.next_step.split(". ")[0]) if first else None

    def of_evidence(value: Callable[[HealthEvidence], object]) -> Callable[[Table], object]:
        return lambda table: (
            value(health.evidence) if (health := judged.get(table.ref.uri)) and health.evidence else None
        )

    def since(run: MaintenanceRun | None) -> float | None:
        return age_s(run.at, now) if run else None

    return (
        Column("Judgement", judgement),
        Column("Finding", finding, width=395),
        Column("Next step", next_step, width=338, on="page"),
        Column("Spared", lambda table: merge_gain(table).spared if isinstance(table, TableCard) else None, "count",
               "Files that a full read need no longer open after merging"),
        Column("Last OPTIMIZE", of_evidence(lambda evidence: since(evidence.last_optimize)), "ago"),
        Column("Last VACUUM", of_evidence(lambda evidence: since(evidence.last_vacuum)), "ago"),
        Column("Since checkpoint", of_evidence(lambda evidence: evidence.log.commits_since_checkpoint), "count",
               "Commits that readers replay one by one"),
    )  # fmt: skip


# where a search found its words ------------------------------------------------------------------------------------

_MOST_TEXT = 70
_PLACES = {
    Where.NAME: "name",
    Where.COLUMN: "column",
    Where.DESCRIPTION: "description",
    Where.OWNER: "owner",
    Where.COMMENT: "comment of",
    Where.PROPERTY: "property",
    Where.PROBLEM: "problem",
}


def match_words(result: FoundTable) -> str:
    """ "column customer_id bigint · comment of id: the customer", without the name, which stands beside."""
    matches = [_match_text(match) for match in result.matches() if match.where is not Where.NAME]
    left = len(matches) - MOST_MATCHES
    return " · ".join([*matches[:MOST_MATCHES], *([f"and {left:,} more"] if left > 0 else [])])


def _match_text(match: Match) -> str:
    place = _PLACES[match.where]
    if match.where is Where.COLUMN:
        return f"{place} {match.subject} {cut(match.text, 30)}"
    if match.where in (Where.COMMENT, Where.PROPERTY):
        return f"{place} {match.subject}: {cut(match.text, _MOST_TEXT)}"
    return f"{place}: {cut(match.text, _MOST_TEXT)}"
