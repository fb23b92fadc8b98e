"""`weir history`: who did what, version by version.

Rule: without a filter only the commits that are printed are read; with one, as far back as it takes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from app import services
from app.cli.output import Document, Shapes, encoded, print_json, print_table, say, shaped
from app.cli.tables.lake import opened
from app.ui.view.commits import changes_text, staged_sentence
from backend.format import bytes_text, count_text, utc_text
from backend.lake.history.history import HistoryFilter, look_back, stream_of
from backend.lake.lake import Lake
from backend.lake.model import Commit, OperationMetrics, StreamOrigin, TableRef
from backend.lake.table.metadata_diff import TableChange, load_metadata_changes
from backend.times import parse_time

NEWEST = 30  # commits on a terminal
EVERYTHING = 10**12
COMMITS: Shapes = {
    Commit: shaped(without=("origin", "metadata", "protocol", "partitions"), stream="origin"),
    StreamOrigin: shaped(without=("stream",), name="stream"),
    TableChange: shaped(empty_is_null=("trait",)),
}


@dataclass(frozen=True, slots=True)
class HistoryQuery:
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


def history(name: str, query: HistoryQuery, *, as_json: bool) -> int:
    lake, ref = opened(name)
    if as_json:
        listed = _find(lake, ref, query, query.limit)
        print_json([commit_document(commit, listed.changes.get(commit.version, ())) for commit in listed.commits])
        return 0
    shown = query.limit or NEWEST
    listed = _find(lake, ref, query, shown + 1)
    print_table(
        ("version", "when", "operation", "rows", "files", "bytes", "who", "engine", "changed"),
        (_row(commit, listed.changes.get(commit.version, ())) for commit in listed.commits[:shown]),
        right=("version",),
    )
    if staged := lake.staged_versions(ref):
        say(staged_sentence(staged), style="yellow")
    if len(listed.commits) > shown:
        say(f"Older commits are not shown: --limit {2 * shown}", style="dim")
    return 0


def commit_document(commit: Commit, changes: Sequence[TableChange] = ()) -> Document:
    """A commit as `--json` prints it, with what it changed of the table itself."""
    document: Document = encoded(commit, COMMITS)
    return document | {"changes": encoded(changes, COMMITS)}


def _find(lake: Lake, ref: TableRef, query: HistoryQuery, limit: int | None) -> ListedCommits:
    ends, clock = ((query.since, False), (query.until, True)), services.clock()
    since, until = (parse_time(text, clock, end_of_day=is_end) if text else None for text, is_end in ends)
    groups = {name: frozenset(values or ()) for name, values in query.groups.items()}
    wanted = HistoryFilter(**groups, since=since, until=until)  # type: ignore[arg-type]
    if wanted.is_empty:
        run = lake.history(ref, limit=limit)
        return ListedCommits(run, load_metadata_changes(lake, ref, run))
    return _look(lake, ref, wanted, limit)


def _look(lake: Lake, ref: TableRef, wanted: HistoryFilter, limit: int | None) -> ListedCommits:
    """Portion by portion until enough fit or nothing is left."""
    newest: int | None = lake.latest_version(ref)
    matching: list[Commit] = []
    run: list[Commit] = []
    if wanted.until is not None:
        newest = lake.version_at(ref, wanted.until)
    most = 500 if limit is not None else EVERYTHING
    while newest is not None and newest >= 0:
        look = look_back(lake, ref, newest=newest, most=most, since=wanted.since, progress=lambda _: None)
        run += look.looked_at
        matching += look.matching(wanted)
        if look.is_whole or (limit is not None and len(matching) >= limit):
            break
        newest = run[-1].version - 1
    return ListedCommits(matching if limit is None else matching[:limit], load_metadata_changes(lake, ref, run))


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
    if metrics.files_to_delete is not None:
        return f"was to delete {count_text(metrics.files_to_delete)}"
    if metrics.files_vacuumed is not None:
        return f"{count_text(metrics.files_vacuumed)} vacuumed"
    parts = (("+", metrics.files_added), ("−", metrics.files_removed))
    return " ".join(f"{sign}{count_text(count)}" for sign, count in parts if count) or "–"


def _bytes_words(metrics: OperationMetrics) -> str:
    parts = (("+", metrics.bytes_added), ("−", metrics.bytes_removed))
    return " ".join(f"{sign}{bytes_text(size)}" for sign, size in parts if size) or "–"
