"""The preflight's checks of what a stream has yet to read: tables by their logs, folders, topics as hosts report them.

Rule: a check claims only what was looked at; what one source cannot tell keeps no other from being looked at.
Source: Delta's DeltaSource for what lies ahead of a position.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from urllib.parse import unquote

from backend.errors import LakehouseError, PathRefusedError, StorageError
from backend.format import things
from backend.lake.history.change_feed import rest_of_snapshot
from backend.lake.lake import Lake
from backend.lake.model import Commit, Metadata, Snapshot, TableRef
from backend.lake.storage.folder import Folder, is_within, normal_uri
from backend.lake.storage.storage import declared_folder
from backend.lake.table.metadata_diff import SchemaDiff, diff_schemas
from backend.settings import Settings
from backend.stream_model.stream import InputKind, StreamDeclaration, StreamFailure, StreamInput, TopicEnds
from backend.streams import faults
from backend.streams.checkpoint import DeltaPosition, KafkaPosition, Position, matched
from backend.streams.faults import Check, Outcome
from backend.streams.unread import has_pattern, kafka_backlog, named_elsewhere, without_read

MOST_VERSIONS = 1_000  # unread commits looked at
MOST_FILES = 200  # unread files looked for, those first that VACUUM may delete
EXAMPLES = 3


@dataclass(frozen=True, slots=True)
class Positions:
    """Where each source stands by the checkpoint, by its number; `began`: where the last planned batch began, which
    Spark plans once more also when it is finished. `unknown`: why nobody can tell."""

    stands: Mapping[int, Position] = field(default_factory=dict)
    began: Mapping[int, Position] = field(default_factory=dict)
    unknown: str = ""


@dataclass(frozen=True, slots=True)
class Unread:
    """A commit that a stream has yet to read: how many files it brings, and how many it took out of the table."""

    commit: Commit
    files: int
    removed: int

    def __str__(self) -> str:
        return f"v{self.commit.version} ({self.commit.operation or 'unknown'})"


# tables --------------------------------------------------------------------------------------------------------------


def check_table_sources(lake: Lake, declared: StreamDeclaration, positions: Positions) -> Iterator[Check]:
    """Whether each table is the one that the checkpoint knows, and whether what is unread can be read."""
    sources = [source for source in declared.inputs if source.is_table]
    present = [_present(lake, source) for source in sources]
    read = [] if declared.is_view else [number for number, source in enumerate(sources) if not source.is_static]
    ids = [snapshot.metadata.id if isinstance(snapshot := present[number], Snapshot) else None for number in read]
    placed = matched([sources[number] for number in read], list(positions.stands.items()), ids)
    at = {read[number]: place for number, place in placed.items()}
    for number, (source, snapshot) in enumerate(zip(sources, present, strict=True)):
        place, position = at.get(number, (-1, None))
        readable = f"{faults.READABLE} of {source.name}"
        if isinstance(snapshot, Check):
            yield snapshot
        elif number in read and positions.unknown:
            yield Check(readable, Outcome.UNKNOWN, positions.unknown)
        elif not isinstance(position, DeltaPosition):
            reads_all = source.kind == InputKind.PRESENT_ROWS
            why = "each batch reads all of its rows" if reads_all else "the checkpoint holds no position in it"
            yield Check(readable, Outcome.OK, f"Readable at v{snapshot.version}; {why}")
        elif position.table_id != snapshot.metadata.id:
            detail = f"The checkpoint knows table {position.table_id}; {source.name} is now {snapshot.metadata.id}"
            yield faults.SOURCE_RECREATED.found(detail, of=source.name)
        else:
            began = positions.began.get(place)
            since = began if isinstance(began, DeltaPosition) and began.table_id == position.table_id else position
            yield from _check_ahead(lake, source, snapshot, position, since)


def _present(lake: Lake, source: StreamInput) -> Snapshot | Check:
    name = f"{faults.READABLE} of {source.name}"
    try:
        return lake.snapshot(lake.find(source.uri))
    except (PathRefusedError, StorageError) as exc:
        return Check(name, Outcome.UNKNOWN, exc.message)
    except LakehouseError as exc:
        return Check(name, Outcome.FAILED, exc.message, "Make the table readable again.")


def _check_ahead(
    lake: Lake, source: StreamInput, present: Snapshot, position: DeltaPosition, since: DeltaPosition
) -> Iterator[Check]:
    """`since`: from where a start needs the log."""
    ref, of, first = present.ref, source.name, position.version
    try:
        first_kept = _first_kept(lake, present, since)
    except LakehouseError as exc:
        yield Check(f"{faults.READABLE} of {of}", Outcome.UNKNOWN, exc.message)
        return
    yield Check(
        f"{faults.TABLE_ID} of {of}", Outcome.OK, f"It is the table that the checkpoint knows: {present.metadata.id}"
    )
    yield _check_start(source, first, present.version, since.version, first_kept)
    last, feed = min(present.version, first + MOST_VERSIONS - 1), source.kind == InputKind.CHANGE_FEED
    unread, paths, removed, far = list[Unread](), list[str](), set[str](), ""
    try:
        if first <= present.version:
            arrivals = lake.arrivals(ref, first + position.is_initial, last, feed=feed)
            history = lake.history(ref, starting_version=first, ending_version=last)
            commits = {commit.version: commit for commit in history}
            for arrival in without_read(lake, ref, source, position, arrivals):
                paths += arrival.paths
                removed |= {*arrival.removed}
                if commit := commits.get(arrival.version):
                    taken = len(arrival.removed) if arrival.removes_rows else 0
                    unread.append(Unread(commit, arrival.files, taken))
            if unread and (end := unread[-1].commit.version) < present.version:
                far = f", as far as was looked: v{end} of {present.version}"
            if position.is_initial:
                initial, replaced = _initial_files(lake, ref, position)
                paths, removed = [*initial, *paths], removed | replaced
        yield check_files(of, paths, removed, lambda chosen: lake.has_files(ref, chosen), far)
    except LakehouseError as exc:
        yield Check(f"{faults.UNREAD_FILES} of {of}", Outcome.UNKNOWN, exc.message)
        if not unread:
            return
    read_with: Metadata | None = None
    with suppress(LakehouseError):  # the check says so
        read_with = lake.snapshot(ref, max(0, position.version - (not position.is_initial))).metadata
    yield check_schema(of, read_with, present.metadata, unread, far)
    if source.kind == InputKind.TABLE:
        yield check_rows(source, unread, far)


def _first_kept(lake: Lake, present: Snapshot, since: DeltaPosition) -> int | None:
    """From where on the log is there for a start; an initial snapshot needs the state of its version."""
    needed, spans, runs = since.version, lake.versions(present.ref), lake.retention_facts(present.ref).listed
    if since.is_initial and any(low <= needed <= high for low, high in spans):
        return needed
    first_kept = next((max(low, needed) for low, high in runs if high >= needed), None)
    if since.is_initial and first_kept == needed:
        return None if first_kept == present.version else first_kept + 1
    return first_kept


def _check_start(source: StreamInput, first: int, latest: int, needed: int, first_kept: int | None) -> Check:
    name = f"{faults.START_VERSION} of {source.name}"
    if needed > latest:
        return Check(name, Outcome.OK, f"All is read: the stream waits for v{first}")
    if first_kept == needed:
        going = f"waits for v{first}" if first > latest else f"goes on with v{first} of {latest}"
        return Check(name, Outcome.OK, f"The stream {going}; the log still has all from v{needed} on")
    end = latest if first_kept is None else first_kept - 1
    versions = f"v{needed}" if needed == end else f"v{needed} to v{end}"
    lost = f"{_things_are(end - needed + 1, 'version')} no longer in the log ({versions})"
    if source.options.get("failOnDataLoss", "").lower() == "false":
        detail = f"{lost}: the stream passes over them, as failOnDataLoss=false says"
        return faults.LOG_CLEANED.found(detail, of=source.name, outcome=Outcome.WARNING)
    again = ", where Spark plans the last batch again" if needed < first else ""
    return faults.LOG_CLEANED.found(f"A start needs the log from v{needed} on{again}. {lost}", of=source.name)


def _initial_files(lake: Lake, ref: TableRef, position: DeltaPosition) -> tuple[list[str], set[str]]:
    """Unread paths of the snapshot that is read first, in the order of Delta's source, and those of them that the
    latest version no longer has."""
    files = lake.snapshot(ref, position.version).columns(["path", "modified_at"])
    paths = rest_of_snapshot(files, 0 if position.by_event_time else position.files_read)["path"].to_pylist()
    return paths, set(paths) - set(lake.snapshot(ref).columns(["path"])["path"].to_pylist())


def check_files(
    of: str, paths: Sequence[str], removed: set[str], has_files: Callable[[Sequence[str]], Sequence[bool]], far: str
) -> Check:
    """`removed`: those that later commits took out; `far`: how far was looked, where that is not to the end."""
    name = f"{faults.UNREAD_FILES} of {of}"
    if not paths:
        return Check(name, Outcome.OK, "No file is unread")
    replaced = [path for path in paths if path in removed]
    chosen = [*replaced, *(path for path in paths if path not in removed)][:MOST_FILES]
    missing = [path for path, is_there in zip(chosen, has_files(chosen), strict=True) if not is_there]
    looked = f"looked for {len(chosen):,} of {things(len(paths), 'unread file')}, "
    looked += f"{len(replaced):,} of them replaced since" if replaced else "none of them replaced since"
    if missing:
        examples = ", ".join(missing[:EXAMPLES])
        detail = f"{_things_are(len(missing), 'file')} gone ({looked}{far}): {examples}"
        return faults.FILE_VACUUMED.found(detail, of=of)
    outcome = Outcome.UNKNOWN if len(chosen) < len(replaced) else Outcome.OK
    return Check(name, outcome, f"All that were looked for are there ({looked}{far})")


def check_schema(
    of: str, read_with: Metadata | None, present: Metadata, unread: Sequence[Unread], far: str = ""
) -> Check:
    """`read_with`: the columns at the stream's position, None where nobody can tell."""
    name, same = f"{faults.SCHEMA} of {of}", f"No unread commit changes the columns{far}"
    changes = [change for change in unread if change.commit.metadata is not None]
    if not changes:
        return Check(name, Outcome.OK, same)
    if read_with is None:
        return Check(name, Outcome.UNKNOWN, "The columns at the stream's position are no longer in the log")
    try:
        diff = diff_schemas(read_with, present)
        passing = [diff_schemas(change.commit.metadata, present) for change in changes if change.commit.metadata]
    except LakehouseError as exc:
        return Check(name, Outcome.UNKNOWN, exc.message)
    breaks = any(  # rows written before cannot be read with the columns after: Delta takes added columns alone
        each.dropped
        or each.renamed
        or any(c.what != "comment" and (c.what, c.after) != ("nullability", "nullable") for c in each.changed)
        for each in (diff, *passing)
    )
    if not breaks and diff.is_empty:
        return Check(name, Outcome.OK, same)
    changed = "; ".join(_words(diff)) or "columns change and change back"
    if not breaks and not diff.added:
        return Check(name, Outcome.OK, f"Unread commits change what no row depends on: {changed}")
    ahead = f"{', '.join(map(str, changes[:EXAMPLES]))} ahead: {changed}"
    if breaks:
        return faults.SCHEMA_CHANGED.found(ahead, of=of)
    detail = f"{ahead}. A start takes the new columns; a stream that runs stops there once"
    return faults.SCHEMA_CHANGED.found(detail, of=of, outcome=Outcome.WARNING)


def _words(diff: SchemaDiff) -> Iterator[str]:
    yield from (f"adds {change.path} ({change.kind})" for change in diff.added)
    yield from (f"drops {change.path} ({change.kind})" for change in diff.dropped)
    yield from (f"renames {old} to {new}" for old, new in diff.renamed)
    yield from (f"{change.what} of {change.path}: {change.before} → {change.after}" for change in diff.changed)


def check_rows(source: StreamInput, unread: Sequence[Unread], far: str = "") -> Check:
    """Whether each commit ahead appends, or the source's options let the stream go on."""
    name = f"{faults.APPENDS} of {source.name}"
    changing = [commit for commit in unread if commit.removed]
    if not changing:
        return Check(name, Outcome.OK, f"{'Every unread commit appends' if unread else 'No commit is unread'}{far}")
    options = {option for option, value in source.options.items() if value.lower() == "true"}
    passes = bool(options & {"skipChangeCommits", "ignoreChanges"})
    refused = [] if passes else [commit for commit in changing if commit.files or "ignoreDeletes" not in options]
    first, *others = refused or changing
    detail = f"{first} takes out {things(first.removed, 'file')}"
    detail += f", and {len(others)} more such commits" if others else ""
    if refused:
        return (faults.ROWS_CHANGED if first.files else faults.ROWS_DELETED).found(detail, of=source.name)
    if any(commit.files for commit in changing) and "skipChangeCommits" not in options:
        detail += "; with ignoreChanges all rows of the files written instead are read, most of them once more"
        return faults.ROWS_CHANGED.found(detail, of=source.name, outcome=Outcome.WARNING)
    return Check(name, Outcome.OK, f"{detail}; the source's options let the stream go on")


# folders, topics -----------------------------------------------------------------------------------------------------


def check_folders(
    settings: Settings, declared: StreamDeclaration, sources: Sequence[StreamInput], failure: StreamFailure | None,
    batch: int | None,
) -> Iterator[Check]:  # fmt: skip
    """Whether each is there, with the file that the stream ended at. `failure`: why it does not run; `batch`: the
    newest that the checkpoint has planned."""
    elsewhere = ""
    with suppress(LakehouseError):  # the checkpoint's own check tells
        if sources and batch is not None:
            elsewhere = named_elsewhere(sources, declared_folder(settings, declared.checkpoint_location), batch)
    for number, source in enumerate(sources):
        outcome, detail, ended_at = Outcome.UNKNOWN, "The declaration names no single folder", ""
        try:
            if source.uri and not has_pattern(source.uri):
                folder = declared_folder(settings, source.uri)
                outcome, detail = Outcome.OK, "The folder is there and can be listed"
                if folder.holds(""):
                    folder.list_after("", "\uffff")  # whether it may be listed, without its names
                    ended_at = unreadable(folder, failure)
                else:
                    outcome, detail = Outcome.FAILED, f"{source.uri} does not exist"
        except PathRefusedError as exc:
            outcome, detail = Outcome.UNKNOWN, exc.message
        except LakehouseError as exc:
            outcome, detail = Outcome.FAILED, exc.message
        remedy = "Make the folder, or let Weir and the host read it." if outcome is Outcome.FAILED else ""
        yield Check(f"{faults.READABLE} of {source.name}", outcome, detail, remedy)
        if ended_at:
            ended = f"The stream ended at {ended_at}, which has not changed since"
            yield faults.FILE_UNREADABLE.found(ended, of=source.name)
        if elsewhere and not number:
            named = f"The checkpoint names {elsewhere}, which is not below {source.uri}"
            yield faults.FOLDER_ELSEWHERE.found(named, of=source.name)


def unreadable(folder: Folder, failure: StreamFailure | None) -> str:
    """The file of this folder that a stream could not read, where it is there as it was then."""
    named = re.search(r"while reading file (.+?)\.(?:\s|$)", failure.message if failure else "")
    if failure is None or named is None or not faults.FILE_UNREADABLE.explains(failure):
        return ""
    path = unquote(normal_uri(named[1]))
    if not is_within(path, folder.uri):
        return ""
    file = folder.stat(path.removeprefix(folder.uri).lstrip("/"))
    is_new = file is None or (file.modified_at is not None and file.modified_at > failure.failed_at)
    return "" if is_new else path


def check_topics(
    declared: StreamDeclaration, positions: Positions, reported: Iterable[TopicEnds], *, now: datetime
) -> Iterator[Check]:
    """Whether the broker still has what is unread, as a host last reported from it."""
    sources = [source for source in declared.inputs if source.kind == InputKind.KAFKA]
    placed = matched(sources, list(positions.stands.items()), [None] * len(sources))
    by_name = {ends.source: ends for ends in reported}
    for number, source in enumerate(sources):
        name, ends = f"{faults.RECORDS} of {source.name}", by_name.get(source.name)
        _, position = placed.get(number, (-1, None))
        backlog = kafka_backlog(source, position if isinstance(position, KafkaPosition) else None, ends, now=now)
        if ends is None or ends.problem:
            yield Check(name, Outcome.UNKNOWN, f"Only a host can ask the broker: {backlog.unknown}")
        elif backlog.rows is None or backlog.lost:
            goes_on = source.options.get("failOnDataLoss", "").lower() == "false"
            outcome = Outcome.WARNING if goes_on else Outcome.FAILED
            yield faults.RECORDS_LOST.found(backlog.detail or backlog.unknown, of=source.name, outcome=outcome)
        else:
            detail = f"{things(backlog.rows, 'record')} unread, none of them deleted"
            outcome, but = (Outcome.UNKNOWN, f", but {backlog.unknown}") if backlog.unknown else (Outcome.OK, "")
            yield Check(name, outcome, f"{detail}{but}")


def _things_are(count: int, one: str) -> str:
    return f"{things(count, one)} {'is' if count == 1 else 'are'}"
