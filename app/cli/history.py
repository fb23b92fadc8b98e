"""`weir history|timeline|properties`: who did what, version by version; what happened around a table; how it is
configured.

Rule: without a filter only the commits that are printed are read; with one, as far back as it takes.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Annotated

import typer

from app import services
from app.cli.commands import TIME, VERSION, AsJson, TableName
from app.cli.lake import at_version, opened
from app.cli.output import Document, Shapes, encoded, print_json, print_table, say, shaped
from app.ui.view.commits import change_text, changes_sentence, changes_text, meaning, staged_sentence
from backend.format import bytes_text, count_text, utc_text
from backend.lake.history.history import HistoryFilter, look_back, stream_of
from backend.lake.lake import Lake
from backend.lake.model import Commit, OperationMetrics, StreamOrigin, TableRef
from backend.lake.table.metadata_diff import InForce, TableChange, compare, load_metadata_changes
from backend.lake.table.properties import explain_features, explain_properties, ownership
from backend.times import parse_time

NEWEST = 30  # commits on a terminal
COMMITS: Shapes = {
    Commit: shaped(without=("origin", "metadata", "protocol", "partitions"), stream="origin"),
    StreamOrigin: shaped(without=("stream",), name="stream"),
    TableChange: shaped(empty_is_null=("trait",)),
}


def history(
    name: TableName,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="So many of the newest commits.")] = None,
    operation: Annotated[list[str] | None, typer.Option("--operation", help="Only commits of this operation.")] = None,
    user: Annotated[list[str] | None, typer.Option("--user", help="Only commits of this user.")] = None,
    engine: Annotated[list[str] | None, typer.Option("--engine", help="Only commits of this engine.")] = None,
    stream: Annotated[list[str] | None, typer.Option("--stream", help="Only commits of this stream.")] = None,
    since: Annotated[str | None, typer.Option("--since", help=f"Not before {TIME}.")] = None,
    until: Annotated[str | None, typer.Option("--until", help=f"Not after {TIME}.")] = None,
    as_json: AsJson = False,
) -> None:
    (lake, ref), clock = opened(name), services.clock()
    wanted = HistoryFilter(
        frozenset(operation or ()),
        frozenset(user or ()),
        frozenset(engine or ()),
        frozenset(stream or ()),
        since=parse_time(since, clock) if since else None,
        until=parse_time(until, clock, end_of_day=True) if until else None,
    )
    shown = limit or NEWEST
    commits, run = _find(lake, ref, wanted, limit if as_json else shown + 1)
    changes = load_metadata_changes(lake, ref, run)
    if as_json:
        print_json([commit_document(commit, changes.get(commit.version, ())) for commit in commits])
        return
    print_table(
        ("version", "when", "operation", "rows", "files", "bytes", "who", "engine", "changed"),
        (_row(commit, changes.get(commit.version, ())) for commit in commits[:shown]),
        right=("version",),
    )
    if staged := lake.staged_versions(ref):
        say(staged_sentence(staged), style="yellow")
    if len(commits) > shown:
        say(f"Older commits are not shown: --limit {2 * shown}", style="dim")


def commit_document(commit: Commit, changes: Sequence[TableChange] = ()) -> Document:
    """A commit as `--json` prints it, with what it changed of the table itself."""
    document: Document = encoded(commit, COMMITS)
    return document | {"changes": encoded(changes, COMMITS)}


def _find(
    lake: Lake, ref: TableRef, wanted: HistoryFilter, limit: int | None
) -> tuple[Sequence[Commit], Sequence[Commit]]:
    """The commits that fit, newest first, and the run that they are of. With a filter, portion by portion until enough
    fit or nothing is left."""
    if wanted.is_empty:
        commits = lake.history(ref, limit=limit)
        return commits, commits
    newest: int | None = lake.latest_version(ref)
    matching: list[Commit] = []
    run: list[Commit] = []
    if wanted.until is not None:
        newest = lake.version_at(ref, wanted.until)
    most = 500 if limit is not None else 10**12
    while newest is not None and newest >= 0:
        look = look_back(lake, ref, newest=newest, most=most, since=wanted.since, progress=lambda _: None)
        run += look.looked_at
        matching += look.matching(wanted)
        if look.is_whole or (limit is not None and len(matching) >= limit):
            break
        newest = run[-1].version - 1
    return matching[:limit], run


def _row(commit: Commit, changes: Sequence[TableChange]) -> tuple[str, ...]:
    metrics = commit.metrics
    return (
        f"v{commit.version}",
        utc_text(commit.committed_at),
        commit.operation or "–",
        _signed((("+", metrics.rows_inserted), ("~", metrics.rows_updated), ("−", metrics.rows_deleted))),
        _files_words(metrics),
        _signed((("+", metrics.bytes_added), ("−", metrics.bytes_removed)), bytes_text),
        stream_of(commit, {}) or commit.user or "–",
        commit.engine or "–",
        changes_text(changes),
    )


def _files_words(metrics: OperationMetrics) -> str:
    if metrics.files_to_delete is not None:
        return f"was to delete {count_text(metrics.files_to_delete)}"
    if metrics.files_vacuumed is not None:
        return f"{count_text(metrics.files_vacuumed)} vacuumed"
    return _signed((("+", metrics.files_added), ("−", metrics.files_removed)))


def _signed(parts: Iterable[tuple[str, int | None]], text: Callable[[int], str] = count_text) -> str:
    return " ".join(f"{sign}{text(number)}" for sign, number in parts if number) or "–"


def timeline(
    name: TableName,
    since: Annotated[str, typer.Option("--since", help=f"Not before {TIME}.")] = "3 h ago",
    until: Annotated[str | None, typer.Option("--until", help=f"Not after {TIME}.")] = None,
    as_json: AsJson = False,
) -> None:
    """What was left out goes to stderr, and into the document."""
    from app.cli.store import streams_and_hosts
    from backend.streams.timeline import load_timeline  # with the store's tables, which no history needs

    (lake, ref), clock = opened(name), services.clock()
    begin, end = parse_time(since, clock), parse_time(until, clock, end_of_day=True) if until else None
    streams, store = streams_and_hosts()[0], services.existing_store()
    happened = load_timeline(lake, store, streams, ref, since=begin, until=end, now=clock.now)
    if as_json:
        print_json(happened)
        return
    rows = ((utc_text(event.at), event.lane, event.kind, event.what) for event in happened.events)
    print_table(("when", "where", "kind", "what"), rows)
    for words in happened.left_out:
        say(f"Left out: {words}.", style="yellow", to_stderr=True)


def properties(
    name: TableName,
    at: Annotated[str | None, typer.Option("--at", "--version", help=f"{VERSION}.")] = None,
    compare_with: Annotated[str | None, typer.Option("--compare", help="Another version: what differs.")] = None,
    as_json: AsJson = False,
) -> None:
    """A comparison always reads from the older to the newer version."""
    snapshot = at_version(name, at)
    rows, features = explain_properties(snapshot.metadata), explain_features(snapshot.protocol)
    document: Document = {
        "version": snapshot.version,
        "properties": rows,
        "features": features,
        "protocol": snapshot.protocol,
        "ownership": ownership(snapshot.metadata),
    }
    if compare_with is not None:
        old, new = sorted((snapshot, at_version(name, compare_with)), key=lambda one: one.version)
        changes = compare(InForce(old.metadata, old.protocol), InForce(new.metadata, new.protocol))
        document["compare"] = {
            "from_version": old.version,
            "to_version": new.version,
            "changes": [COMMITS[TableChange](change) | {"meaning": meaning(change) or None} for change in changes],
        }
    if as_json:
        print_json(document)
    elif compare_with is not None:
        say(f"v{old.version} → v{new.version} · {changes_sentence(changes)}", style="bold")
        if changes:
            print_table(("change", "meaning"), ((change_text(change), meaning(change)) for change in changes))
    else:
        print_table(
            ("property", "value", "default", "meaning"),
            (
                (
                    row.key,
                    "–" if row.value is None else row.value,
                    "–" if row.default is None else row.default,
                    f"! {row.problem} {row.suggestion or ''}".strip() if row.problem else row.meaning,
                )
                for row in sorted(rows, key=lambda row: not row.is_set)
            ),
        )
        say()
        print_table(
            ("feature", "reader", "writer", "meaning"),
            ((f.name, "yes" if f.in_reader else "", "yes" if f.in_writer else "", f.meaning) for f in features),
        )
