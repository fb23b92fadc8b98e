"""`weir history`: who did what, version by version.

Rule: without a filter only the commits that are printed are read; with one, as far back as it takes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from app.cli.output import now, print_json, print_table, say
from app.cli.tables import documents
from app.cli.tables.lake import opened
from app.history.view.filters import moment_of
from app.ui.view.table_changes import changes_text
from backend.format import bytes_text, count_text, utc_text
from backend.lake.history.history_filter import HistoryFilter, look_back, newest_until, stream_of
from backend.lake.history.metadata_changes import TableChange, load_metadata_changes
from backend.lake.lake import Lake
from backend.lake.model import Commit, OperationMetrics, TableRef

NEWEST = 30  # commits on a terminal
EVERYTHING = 10**12


@dataclass(frozen=True, slots=True)
class Request:
    """What to list: so many, of these groups (fields of `HistoryFilter`), of this time."""

    limit: int | None = None
    groups: Mapping[str, Sequence[str] | None] = field(default_factory=dict)
    since: str | None = None
    until: str | None = None


@dataclass(frozen=True, slots=True)
class ListedCommits:
    """The commits that fit, newest first, and what those of the run they came from changed."""

    commits: Sequence[Commit]
    changes: Mapping[int, Sequence[TableChange]]


def history(name: str, request: Request, *, as_json: bool) -> int:
    lake, ref = opened(name)
    if as_json:
        found = _find(lake, ref, request, request.limit)
        print_json([documents.commit(each, found.changes.get(each.version, ())) for each in found.commits])
        return 0
    shown = request.limit or NEWEST
    found = _find(lake, ref, request, shown + 1)
    print_table(
        ("version", "when", "operation", "rows", "files", "bytes", "who", "engine", "changed"),
        (_row(commit, found.changes.get(commit.version, ())) for commit in found.commits[:shown]),
        right=("version",),
    )
    if len(found.commits) > shown:
        say(f"Older commits are not shown: --limit {2 * shown}", style="dim")
    return 0


def _find(lake: Lake, ref: TableRef, request: Request, limit: int | None) -> ListedCommits:
    clock = now()
    since, until = (
        moment_of(text, clock, end_of_day=end) for text, end in ((request.since, False), (request.until, True))
    )
    groups = {name: frozenset(values or ()) for name, values in request.groups.items()}
    wanted = HistoryFilter(**groups, since=since, until=until)  # type: ignore[arg-type]
    if wanted.is_empty:
        run = lake.history(ref, limit=limit)
        return ListedCommits(run, load_metadata_changes(lake, ref, run))
    return _look(lake, ref, wanted, limit)


def _look(lake: Lake, ref: TableRef, wanted: HistoryFilter, limit: int | None) -> ListedCommits:
    """Portion by portion until enough fit or nothing is left."""
    newest = lake.latest_version(ref)
    found: list[Commit] = []
    run: list[Commit] = []
    if wanted.until is not None:
        spans = lake.versions(ref)
        newest = newest_until(lake, ref, wanted.until, first=spans[0][0] if spans else 0, latest=newest)
    most = 500 if limit is not None else EVERYTHING
    while newest >= 0:
        look = look_back(lake, ref, newest=newest, most=most, since=wanted.since, progress=lambda _: None)
        run += look.looked_at
        found += look.matching(wanted)
        if look.is_whole or (limit is not None and len(found) >= limit):
            break
        newest = run[-1].version - 1
    return ListedCommits(found if limit is None else found[:limit], load_metadata_changes(lake, ref, run))


def _row(commit: Commit, changes: Sequence[TableChange]) -> tuple[str, ...]:
    return (
        f"v{commit.version}",
        utc_text(commit.committed_at),
        commit.operation or "–",
        _rows_words(commit.metrics),
        _files_words(commit.metrics),
        _bytes_words(commit.metrics),
        stream_of(commit, {}) or commit.user or "–",
        commit.engine or "–",
        changes_text(changes),
    )


def _rows_words(metrics: OperationMetrics) -> str:
    parts = (("+", metrics.rows_inserted), ("~", metrics.rows_updated), ("−", metrics.rows_deleted))
    return " ".join(f"{sign}{count_text(count)}" for sign, count in parts if count) or "–"


def _files_words(metrics: OperationMetrics) -> str:
    if metrics.files_vacuumed is not None:
        return f"{count_text(metrics.files_vacuumed)} vacuumed"
    parts = (("+", metrics.files_added), ("−", metrics.files_removed))
    return " ".join(f"{sign}{count_text(count)}" for sign, count in parts if count) or "–"


def _bytes_words(metrics: OperationMetrics) -> str:
    parts = (("+", metrics.bytes_added), ("−", metrics.bytes_removed))
    return " ".join(f"{sign}{bytes_text(size)}" for sign, size in parts if size) or "–"
