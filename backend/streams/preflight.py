"""Whether a stream can go on, told before its start: a list of checks, each of which reads, judges and says what helps.

Rule: without Spark, and without changing anything. What could not be looked at is unknown, never ok; only a failed
check says that the stream cannot go on. Cause and remedy of a fault are `backend.streams.faults`'s.
Source: Spark's MicroBatchExecution.populateStartOffsets for the checkpoint.
"""

import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

from backend.errors import (
    CheckpointError,
    LakehouseError,
    PathRefusedError,
    StorageError,
    StreamNotFoundError,
    StreamRefusedError,
    TableNotFoundError,
)
from backend.format import bytes_text, duration_text, things, utc_text
from backend.lake.lake import Lake
from backend.lake.storage.folder import Folder, is_remote, normal_uri
from backend.lake.storage.storage import declared_folder
from backend.lake.table.properties import keys_before
from backend.settings import Settings
from backend.store.leases import stream_resource
from backend.store.store import ControlStore
from backend.stream_model.overrides import TABLE_CHANGES
from backend.stream_model.stream import Desired, DesiredState, InputKind, Lease, Progress, StreamDeclaration
from backend.streams import faults
from backend.streams.checkpoint import (
    StreamCheckpoint,
    check_commit,
    query_id,
    read_checkpoint,
    read_offsets,
    read_positions,
)
from backend.streams.faults import Check, Outcome, Preflight
from backend.streams.preflight_sources import Positions, check_folders, check_table_sources, check_topics
from backend.streams.reconcile import why_nobody_can
from backend.streams.table_changes import DeclaredChange, PresentTable, approved_changes, table_changes

# A small stream's offsets, its spilled shuffles and the files of one batch need about this much.
LEAST_ROOM_BYTES = 1 << 30
STATE_COPIES = (
    3  # Spark writes a new snapshot of the state before it deletes the old one, a batch's changes beside both
)
MOST_PARTITIONS = 50  # of the state that are looked at
_NO_STORES = ("_metadata", "SSTs")  # folders of a partition that hold no versions
_SINKS_OF_THE_HOST = ("kafka", "postgresql")


@dataclass(frozen=True, slots=True)
class PlannedStart:
    """What each check may look at. `checkpoint`: None where its folder cannot be looked at, and `problem` says why.
    `query`: its id, None where nothing can be read of it; `sources`: how many its last offsets hold. `last`: the
    stream's newest batch."""

    settings: Settings
    lake: Lake
    store: ControlStore
    declared: StreamDeclaration
    others: Sequence[StreamDeclaration]
    desired: Mapping[str, Desired]
    leases: Mapping[str, Lease]
    last: Progress | None
    now: datetime
    checkpoint: StreamCheckpoint | None = None
    problem: str = ""
    query: str | None = None
    sources: int | None = None
    positions: Positions = field(default_factory=Positions)

    @property
    def planned(self) -> int | None:
        """The newest batch of the checkpoint."""
        return max((*self.checkpoint.planned, *self.checkpoint.finished), default=None) if self.checkpoint else None

    def lease_of(self, stream: str) -> Lease | None:
        return self.leases.get(stream_resource(stream))


def preflight(settings: Settings, lake: Lake, store: ControlStore, name: str, *, now: datetime) -> Preflight:
    """All checks, in the order in which a start would meet them; raises `StreamNotFoundError` or `StoreError`, and
    `StreamRefusedError` for a stream that another application runs."""
    start = _load_start(settings, lake, store, name, now=now)
    return Preflight(name, tuple(found for check in CHECKS for found in check(start)))


def checks_behind(
    settings: Settings, lake: Lake, store: ControlStore, name: str, batch: int, *, now: datetime
) -> list[Check]:
    """Those of the checkpoint and of the sources, as if the checkpoint ended with this batch."""
    start = _load_start(settings, lake, store, name, now=now, until=batch)
    return [*check_checkpoint(start), *check_sources(start)]


def _load_start(
    settings: Settings, lake: Lake, store: ControlStore, name: str, *, now: datetime, until: int | None = None
) -> PlannedStart:
    declarations = store.declarations()
    if name not in declarations:
        names = ", ".join(declarations)
        raise StreamNotFoundError(f"no stream {name!r}", hint=f"streams: {names}" if names else "no host declared any")
    declared = declarations[name]
    if declared.is_attached:
        raise StreamRefusedError(f"{name}: another Spark application runs it", hint=f"look into {declared.pipeline}")
    others = [other for other in declarations.values() if other.name != name]
    last = next(iter(store.progress(name, limit=1, raw=False)), None)
    start = PlannedStart(settings, lake, store, declared, others, store.desired(), store.leases(), last, now)
    try:
        folder = declared_folder(settings, declared.checkpoint_location)
        checkpoint = read_checkpoint(folder)
    except LakehouseError as exc:
        return replace(start, problem=exc.message, positions=Positions(unknown=exc.message))
    checkpoint = checkpoint if until is None else checkpoint.until(until)
    planned, again = checkpoint.planned, checkpoint.processed_batch
    if planned and planned[-1] > 0:
        again = planned[-1] - 1
    query: str | None = None
    sources: int | None = None
    with suppress(LakehouseError):  # the checkpoint's own check tells
        query = query_id(folder)
    try:
        sources = len(read_offsets(folder, planned[-1]).sources) if planned else None
        stands, began = (read_positions(folder, batch) for batch in (checkpoint.processed_batch, again))
        positions = Positions(stands, began)
    except LakehouseError as exc:
        positions = Positions(unknown=f"where the stream stands is not known: {exc.message}")
    return replace(start, checkpoint=checkpoint, query=query, sources=sources, positions=positions)


# the checkpoint ------------------------------------------------------------------------------------------------------


def check_checkpoint(start: PlannedStart) -> Iterator[Check]:
    """Whether Spark can read it, and which batch it begins with."""
    checkpoint, problem, damage = start.checkpoint, start.problem, list[Check]()
    try:
        damage += _damage(start, checkpoint) if checkpoint and not checkpoint.is_empty else ()
    except LakehouseError as exc:
        problem = exc.message
    if checkpoint is None or problem:
        yield Check(faults.CHECKPOINT, Outcome.UNKNOWN, problem, "Let Weir read the folder of the checkpoint.")
        return
    if checkpoint.is_empty:
        yield Check(faults.CHECKPOINT, Outcome.OK, "It is empty: the stream begins as declared")
        return
    yield from damage
    if damage:
        return
    planned = checkpoint.planned
    last = f"batch {planned[-1]}" if planned else "no batch"
    yield Check(faults.CHECKPOINT, Outcome.OK, f"Whole, up to {last} of query {start.query}")
    if planned and not checkpoint.finished:
        outcome = Outcome.WARNING if planned[-1] > 0 else Outcome.OK  # the first batch may be under way
        yield faults.COMMITS_GONE.found(f"No batch has a commit: {last} runs again", outcome=outcome)


def _damage(start: PlannedStart, checkpoint: StreamCheckpoint) -> Iterator[Check]:
    """What is wrong with each file that a start reads: of the offsets, Spark takes the last two."""
    folder, planned, finished = checkpoint.folder, checkpoint.planned, checkpoint.finished
    if not checkpoint.has_metadata:
        detail = f"metadata is missing, though the checkpoint has batch {start.planned}"
        yield faults.METADATA_MISSING.found(detail)
    else:
        try:
            query_id(folder)
        except CheckpointError as exc:
            yield faults.METADATA_GARBAGE.found(exc.message)
    if finished and (not planned or finished[-1] > planned[-1]):
        detail = f"offsets/{finished[-1]} is missing, and commits/{finished[-1]} is there"
        yield faults.OFFSETS_MISSING.found(detail)
    reads: list[tuple[Callable[[Folder, int], object], int]] = []
    for batch in (planned[-1], planned[-1] - 1) if planned else ():
        reads += [(read_offsets, batch)] if batch >= 0 else []
    for read, batch in [*reads, *((check_commit, batch) for batch in finished[-1:])]:
        try:
            read(folder, batch)
        except CheckpointError as exc:
            has_commit = f"; batch {batch} has {'a' if batch in finished else 'no'} commit"
            yield faults.OFFSETS_DAMAGED.found(f"{exc.message}{has_commit if read is read_offsets else ''}")
    keeps_state = start.last is not None and start.last.state_rows is not None
    if lost := next(lost_state(folder, finished, keeps_state=keeps_state), ""):
        yield faults.STATE_LOST.found(lost)


def lost_state(folder: Folder, finished: Sequence[int], *, keeps_state: bool) -> Iterator[str]:
    """What is missing of the state: a store goes on with the version that the last finished batch wrote.

    `keeps_state`: the stream's last batch told of state. Without the folder nothing else tells that it needs one.
    Source: HDFSBackedStateStoreProvider and RocksDBFileManager of Spark (`state/<operator>/<partition>[/<store>]`,
    then the version and an ending; batch 0 writes version 1).
    """
    operators = [entry.name for entry in folder.list("state") if entry.name.isdigit()]
    if finished and keeps_state and not operators:
        yield f"state is gone, though the stream kept rows there at batch {finished[-1]}"
    partitions = [
        f"state/{operator}/{entry.name}" for operator in operators for entry in folder.list(f"state/{operator}")
    ]
    for partition in [path for path in partitions if path.rpartition("/")[2].isdigit()][:MOST_PARTITIONS]:
        entries = folder.list(partition)
        stores = [f"{partition}/{entry.name}" for entry in entries if entry.is_folder and entry.name not in _NO_STORES]
        listed = {store: folder.list(store) for store in stores} or {partition: entries}
        for store, files in listed.items():
            versions = [int(match[0]) for file in files if (match := re.match(r"\d+", file.name))]
            if finished and finished[-1] + 1 not in versions:
                ends = f"ends with version {max(versions)}" if versions else "is empty"
                yield f"{store} {ends}; batch {finished[-1]} wrote version {finished[-1] + 1}"


def check_definition(start: PlannedStart) -> Iterator[Check]:
    """Whether it has as many sources as its checkpoint; nothing where Spark may count one that is read twice as one."""
    read = [source.name for source in start.declared.inputs if not source.is_static]
    if start.sources is None or not read or len(set(read)) < len(read):
        return
    now = 1 if start.declared.is_view else len(read)  # a view's versions are one source, however many tables
    if now == start.sources:
        yield Check(faults.DEFINITION, Outcome.OK, f"It reads {things(now, 'source')}, as the checkpoint does")
    else:
        yield faults.SOURCES_CHANGED.found(f"It reads {things(now, 'source')}, the checkpoint has {start.sources}")


# who runs it ---------------------------------------------------------------------------------------------------------


def check_owner(start: PlannedStart) -> Iterator[Check]:
    """Who holds the stream's lease, or can take it."""
    hosts = {host.host_id: host for host in start.store.hosts()}
    alive = [host for host in hosts.values() if host.silent_s(start.now) <= start.settings.host.heartbeat_stale_s]
    lease = start.lease_of(start.declared.name)
    outcome, detail, remedy = Outcome.WARNING, "", ""
    if lease is not None and lease.owner in [host.host_id for host in alive]:
        outcome, detail = Outcome.OK, f"Host {lease.owner} holds the lease and is alive"
    elif lease is not None:
        owner = hosts.get(lease.owner)
        silence = f"silent for {duration_text(owner.silent_s(start.now))}" if owner else "and has never been heard of"
        detail = f"Host {lease.owner} holds the lease until {utc_text(lease.expires_at)}, {silence}"
        remedy = "Wait until the lease ends: another host takes the stream then. End the silent host if it still runs."
    elif nobody_can := why_nobody_can(start.declared, alive):
        detail = f"{nobody_can[0].upper()}{nobody_can[1:]}"
        remedy = "Start a host that has it in WEIR_HOST__TAGS, or change the stream's tag `host`."
    elif alive:
        able = [host for host in alive if start.declared.host_tags <= set(host.tags)]
        outcome, detail = Outcome.OK, f"The lease is free; {things(len(able), 'host')} can take it"
    else:
        detail, remedy = "No host is alive: a start is carried out when one comes", "Start a host."
    yield Check(faults.OWNER, outcome, detail, remedy)


def check_others(start: PlannedStart) -> Iterator[Check]:
    """Which other streams would meet it: on its checkpoint, or on one of its tables."""
    declared, own, is_alone = start.declared, start.lease_of(start.declared.name), True
    place, uris = declared.checkpoint_location.rstrip("/"), {output.uri for output in declared.outputs} - {""}
    for other in start.others:
        desired, lease = start.desired.get(other.name), start.lease_of(other.name)
        is_wanted = desired is not None and desired.state is DesiredState.RUNNING
        if other.checkpoint_location.rstrip("/") == place:
            is_alone, detail = False, f"{other.name} has the same checkpoint{' and is wanted running' * is_wanted}"
            yield faults.SECOND_START.found(detail, outcome=Outcome.FAILED if is_wanted else Outcome.WARNING)
        if is_wanted and lease is not None and any(output.uri in uris for output in other.outputs):
            is_foreign = own is None or own.owner != lease.owner
            is_alone, detail = False, f"{other.name} writes the same table; host {lease.owner} runs it"
            yield faults.SINK_LEASED.found(detail, outcome=Outcome.FAILED if is_foreign else Outcome.WARNING)
    if is_alone:
        yield Check(faults.OTHERS, Outcome.OK, "No other stream has this checkpoint, or runs on this sink")


# what it reads, where it writes --------------------------------------------------------------------------------------


def check_sources(start: PlannedStart) -> Iterator[Check]:
    """Whether what the stream has yet to read is there."""
    declared = start.declared
    observed = start.store.observed().get(declared.name)
    failure = None if observed is None or observed.state.flows else observed.last_failure
    batch = start.checkpoint.planned[-1] if start.checkpoint and start.checkpoint.planned else None
    topics = start.store.topic_ends().get(declared.name, ())
    yield from check_table_sources(start.lake, declared, start.positions)
    files = [source for source in declared.inputs if source.kind == InputKind.FILES]
    yield from check_folders(start.settings, declared, files, failure, batch)
    yield from check_topics(declared, start.positions, topics, now=start.now)


def check_sink(start: PlannedStart) -> Iterator[Check]:
    """Whether its tables are there, and whether they have more batches of this query than the checkpoint."""
    declared, checkpoint, planned = start.declared, start.checkpoint, start.planned
    if declared.outside:
        is_hosts = declared.sink in _SINKS_OF_THE_HOST
        looks = "the host looks at it when the stream starts" if is_hosts else "nobody here can look"
        yield Check(faults.SINK, Outcome.UNKNOWN, f"{declared.writes_to}: {looks}")
        return
    files, batches = 0, list[int]()
    for output in declared.outputs:
        try:
            table = start.lake.snapshot(start.lake.find(output.uri))
            files += table.num_files
            queries = (start.query, f"{declared.name}:{start.query}") if start.query else ()
            batches += [batch for query in queries if (batch := table.transactions.get(query)) is not None]
        except TableNotFoundError:
            if planned is None:
                yield Check(faults.SINK, Outcome.OK, "It is not there yet; the host makes it")
                return
            detail = f"The table is gone, though the checkpoint has batch {planned}"
            detail += ": the rows before it will not come back"
            yield Check(faults.SINK, Outcome.FAILED, detail, f"Put the table back. {faults.ELSE_RESET}.")
            return
        except (PathRefusedError, StorageError) as exc:
            yield Check(faults.SINK, Outcome.UNKNOWN, exc.message)
            return
        except LakehouseError as exc:
            yield Check(faults.SINK, Outcome.FAILED, exc.message, "Make the table readable again.")
            return
        keys = next((of.keys for of in declared.tables if of.uri == output.uri), ())
        if table.num_files and (before := keys_before(table.metadata.configuration, keys)):
            yield faults.KEYS_CHANGED.found(f"The table is keyed by {before}, the stream declares other keys")
            return
    if checkpoint is not None and checkpoint.is_empty and files:
        detail = f"The checkpoint is empty and the table holds {things(files, 'file')}: all is written again"
        remedy = "Empty the table first, unless its sink finds rows by a key."
        yield Check(faults.SINK, Outcome.WARNING, detail, remedy)
    elif not batches:
        yield Check(faults.SINK, Outcome.OK, "Readable; it names no batch of this query yet")
    elif planned is None or max(batches) > planned:
        end = "no batch" if planned is None else f"batch {planned}"
        detail = f"The table has batch {max(batches)} of this query, the checkpoint ends with {end}"
        yield faults.OLD_CHECKPOINT.found(detail)
    else:
        detail = f"Its last batch of this query is {max(batches)}; the checkpoint agrees"
        yield Check(faults.SINK, Outcome.OK, detail)


def check_tables(start: PlannedStart) -> Iterator[Check]:
    """What the next start sets of its tables, and what of that waits for somebody's word."""
    name, wanted, changes = start.declared.name, start.desired.get(start.declared.name), list[DeclaredChange]()
    for table in start.declared.tables:
        try:
            changes += table_changes(table, PresentTable.of(start.lake.snapshot(start.lake.find(table.uri))))
        except LakehouseError:
            continue  # the sink's check tells, and a start that finds none makes it
    approved = approved_changes(wanted.overrides.get(TABLE_CHANGES, "") if wanted else "")
    due = [change for change in changes if change.is_due(approved)]
    waiting = [change for change in changes if not change.is_due(approved)]
    if due or (start.declared.tables and not waiting):
        detail = f"A start sets {'; '.join(map(str, due))}" if due else "No table that is there differs"
        yield Check(faults.TABLES, Outcome.OK, detail)
    for change in waiting:
        given = ",".join(sorted({*approved - {""}, change.what}))
        word = f'weir restart {name} --set "{TABLE_CHANGES}={given}" --reason "…"'
        remedy = f"Let a start set it: {word}" if change.is_possible else "Declare it as it is, or write another table."
        yield Check(faults.TABLES, Outcome.WARNING, f"{change}: {change.waits}", remedy)


def check_room(start: PlannedStart) -> Iterator[Check]:
    """Whether the disk of the checkpoint has room for the state."""
    location, free_bytes = start.declared.checkpoint_location, None
    place = Path(normal_uri(location))
    with suppress(OSError):
        if not is_remote(location):
            free_bytes = shutil.disk_usage(next(at for at in (place, *place.parents) if at.exists())).free
    yield room_for(free_bytes, start.last.state_bytes if start.last else None)


def room_for(free_bytes: int | None, state_bytes: int | None = None) -> Check:
    """`free_bytes`: None where the checkpoint lies on no disk of this machine."""
    if free_bytes is None:
        return Check(faults.ROOM, Outcome.UNKNOWN, "The checkpoint lies on no disk of this machine")
    needed = max(LEAST_ROOM_BYTES, STATE_COPIES * (state_bytes or 0))
    detail = f"{bytes_text(free_bytes)} free on the disk of the checkpoint"
    if state_bytes:
        detail += f"; the state takes {bytes_text(state_bytes)} of memory"
    if free_bytes >= needed:
        return Check(faults.ROOM, Outcome.OK, detail)
    remedy = "Free space, or move the checkpoint to a larger disk while the stream is stopped."
    return Check(faults.ROOM, Outcome.WARNING, f"{detail}; {bytes_text(needed)} or more are safe", remedy)


CHECKS: tuple[Callable[[PlannedStart], Iterable[Check]], ...] = (
    *(check_checkpoint, check_definition, check_owner, check_others, check_sources),
    *(check_sink, check_tables, check_room),
)
