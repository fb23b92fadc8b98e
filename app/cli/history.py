"""`weir history|timeline|properties`: who did what, version by version; what happened around a table; how it is
configured.

Rule: without a filter only the commits that are printed are read; with one, as far back as it takes.
"""

from collections.abc import Sequence
from typing import Annotated

import typer

from app import services
from app.cli.commands import TIME, VERSION, AsJson, TableName
from app.cli.lake import at_version, opened
from app.cli.output import Document, Shapes, encoded, print_json, print_list, say, shaped
from app.ui.view.commits import TABLE_CHANGES, changes_sentence, commit_columns, meaning, staged_sentence
from backend.lake.history.history import HistoryFilter, look_back
from backend.lake.lake import Lake
from backend.lake.model import Commit, StreamOrigin, TableRef
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
    print_list(commit_columns(services.now(), {}, changes), commits[:shown])
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
    newest = lake.latest_version(ref) if wanted.until is None else lake.version_at(ref, wanted.until)
    matching, run = list[Commit](), list[Commit]()
    most = 500 if limit is not None else 10**12
    while newest is not None and newest >= 0:
        look = look_back(lake, ref, newest=newest, most=most, since=wanted.since, progress=lambda _: None)
        run += look.looked_at
        matching += look.matching(wanted)
        if look.is_whole or (limit is not None and len(matching) >= limit):
            break
        newest = run[-1].version - 1
    return matching[:limit], run


def timeline(
    name: TableName,
    since: Annotated[str, typer.Option("--since", help=f"Not before {TIME}.")] = "3 h ago",
    until: Annotated[str | None, typer.Option("--until", help=f"Not after {TIME}.")] = None,
    as_json: AsJson = False,
) -> None:
    """What was left out goes to stderr, and into the document."""
    from app.cli.store import streams_and_hosts
    from app.timeline.text import event_columns
    from backend.streams.timeline import load_timeline  # with the store's tables, which no history needs

    (lake, ref), clock = opened(name), services.clock()
    begin, end = parse_time(since, clock), parse_time(until, clock, end_of_day=True) if until else None
    streams, store = streams_and_hosts()[0], services.existing_store()
    happened = load_timeline(lake, store, streams, ref, since=begin, until=end, now=clock.now)
    if as_json:
        print_json(happened)
        return
    print_list(event_columns(clock.now), happened.events)
    for words in happened.left_out:
        say(f"Left out: {words}.", style="yellow", to_stderr=True)


def properties(
    name: TableName,
    at: Annotated[str | None, typer.Option("--at", "--version", help=f"{VERSION}.")] = None,
    compare_with: Annotated[str | None, typer.Option("--compare", help="Another version: what differs.")] = None,
    as_json: AsJson = False,
) -> None:
    """A comparison always reads from the older to the newer version."""
    from app.properties.view import FEATURES, PROPERTIES

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
            print_list(TABLE_CHANGES, changes)
    else:
        print_list(PROPERTIES, sorted(rows, key=lambda row: not row.is_set))
        say()
        print_list(FEATURES, features)
