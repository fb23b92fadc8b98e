"""What the evidence says of a stream's start: one judge a question, each pure.

Rule: a judge claims only what was looked at. Cause and remedy of a fault are `backend.streams.faults`'s.
Sources: Spark's MicroBatchExecution.populateStartOffsets for the checkpoint; Delta's DeltaSource for what lies ahead.
"""

from collections.abc import Iterator
from datetime import datetime

from backend.errors import LakehouseError
from backend.format import bytes_text, duration_text, things, utc_text
from backend.lake.table.metadata_diff import SchemaDiff, diff_schemas
from backend.stream_model.overrides import TABLE_CHANGES
from backend.stream_model.stream import DesiredState, InputKind, Lease, StreamDeclaration
from backend.streams import faults
from backend.streams.faults import Fault
from backend.streams.preflight.model import (
    Check,
    CheckpointSeen,
    FilesLookedFor,
    FolderSeen,
    Outcome,
    Owners,
    Preflight,
    PreflightEvidence,
    RoomSeen,
    SinkSeen,
    TableSeen,
    TopicsSeen,
    Unread,
)
from backend.streams.reconcile import why_nobody_can
from backend.streams.table_changes import approved_changes
from backend.streams.unread import kafka_backlog

# A small stream's offsets, its spilled shuffles and the files of one batch need about this much.
LEAST_ROOM_BYTES = 1 << 30
# Spark writes a new snapshot of the state before it deletes the old one, and a batch's changes beside both.
STATE_COPIES = 3
EXAMPLES = 3


def judge(evidence: PreflightEvidence) -> Preflight:
    """All checks, in the order in which a start would meet them."""
    return Preflight(
        evidence.declaration.name,
        (
            *judge_checkpoint(evidence.checkpoint),
            *judge_definition(evidence.declaration, evidence.checkpoint),
            *judge_owners(evidence),
            *judge_sources(evidence),
            judge_sink(evidence.sink, evidence.checkpoint),
            *judge_changes(evidence),
            judge_room(evidence.room),
        ),
    )


def judge_sources(evidence: PreflightEvidence) -> Iterator[Check]:
    """Whether what the stream has yet to read is there."""
    for table in evidence.tables:
        yield from judge_table(table)
    for folder in evidence.folders:
        yield from judge_folder(folder)
    for topics in evidence.topics:
        yield judge_topics(topics, now=evidence.seen_at)


# the checkpoint ------------------------------------------------------------------------------------------------------


def judge_checkpoint(seen: CheckpointSeen) -> Iterator[Check]:
    """Whether Spark can read it, and which batch it begins with."""
    if seen.problem:
        yield Check(faults.CHECKPOINT, Outcome.UNKNOWN, seen.problem, "Let Weir read the folder of the checkpoint.")
        return
    if seen.is_empty:
        yield Check(faults.CHECKPOINT, Outcome.OK, "It is empty: the stream begins as declared")
        return
    damage = tuple(_damage(seen))
    yield from damage
    if damage:
        return
    yield Check(faults.CHECKPOINT, Outcome.OK, f"Whole, up to {_batch(seen.planned)} of query {seen.query_id}")
    if seen.planned and not seen.finished:
        outcome = Outcome.WARNING if seen.planned[-1] > 0 else Outcome.OK  # the first batch may be under way
        detail = f"No batch has a commit: batch {seen.planned[-1]} runs again"
        yield _failed(faults.COMMITS_GONE, detail, outcome=outcome)


def _damage(seen: CheckpointSeen) -> Iterator[Check]:
    last = seen.planned[-1] if seen.planned else None
    end = max((*seen.planned, *seen.finished), default=0)
    if not seen.has_metadata:
        yield _failed(faults.METADATA_MISSING, f"metadata is missing, though the checkpoint has batch {end}")
    elif seen.damage_of("metadata"):
        yield _failed(faults.METADATA_GARBAGE, seen.damage_of("metadata"))
    if seen.finished and (last is None or seen.finished[-1] > last):
        detail = f"offsets/{seen.finished[-1]} is missing, and commits/{seen.finished[-1]} is there"
        yield _failed(faults.OFFSETS_MISSING, detail)
    for file, damage in seen.damage:
        if file != "metadata":
            yield _failed(faults.OFFSETS_DAMAGED, f"{damage}{_ended(file, seen)}")
    if seen.state_lost:
        yield _failed(faults.STATE_LOST, seen.state_lost)


def _ended(file: str, seen: CheckpointSeen) -> str:
    folder, _, batch = file.partition("/")
    if folder != "offsets":
        return ""
    return f"; batch {batch} has {'a' if int(batch) in seen.finished else 'no'} commit"


def _batch(planned: tuple[int, ...]) -> str:
    return f"batch {planned[-1]}" if planned else "no batch"


def judge_definition(declared: StreamDeclaration, seen: CheckpointSeen) -> Iterator[Check]:
    """Whether it has as many sources as its checkpoint; nothing where Spark may count one that is read twice as one."""
    read = [source.name for source in declared.inputs if not source.is_static]
    if seen.sources is None or not read or len(set(read)) < len(read):
        return
    now = 1 if declared.is_view else len(read)  # a view's versions are one source, however many tables
    if now == seen.sources:
        yield Check(faults.DEFINITION, Outcome.OK, f"It reads {things(now, 'source')}, as the checkpoint does")
        return
    detail = f"It reads {things(now, 'source')}, the checkpoint has {seen.sources}"
    yield _failed(faults.SOURCES_CHANGED, detail)


# who runs it ---------------------------------------------------------------------------------------------------------


def judge_owners(evidence: PreflightEvidence) -> Iterator[Check]:
    """Who holds the stream's lease, and which other streams would meet it."""
    owners, declared = evidence.owners, evidence.declaration
    yield _of_lease(evidence, owners.leases.get(declared.name))
    conflicts = [*_same_checkpoint(owners, declared), *_same_sink(owners, declared)]
    yield from conflicts
    if not conflicts:
        yield Check(faults.OTHERS, Outcome.OK, "No other stream has this checkpoint, or runs on this sink")


def _of_lease(evidence: PreflightEvidence, lease: Lease | None) -> Check:
    owners = evidence.owners
    alive = [host for host in owners.hosts if _silent_s(evidence, host) is None]
    if lease is None:
        able = [host for host in alive if evidence.declaration.host_tags <= set(owners.hosts[host].tags)]
        if nobody_can := why_nobody_can(evidence.declaration, [owners.hosts[host] for host in alive]):
            remedy = "Start a host that has it in WEIR_HOST__TAGS, or change the stream's tag `host`."
            return Check(faults.OWNER, Outcome.WARNING, f"{nobody_can[0].upper()}{nobody_can[1:]}", remedy)
        if alive:
            return Check(faults.OWNER, Outcome.OK, f"The lease is free; {things(len(able), 'host')} can take it")
        return Check(
            faults.OWNER, Outcome.WARNING, "No host is alive: a start is carried out when one comes", "Start a host."
        )
    silent_s = _silent_s(evidence, lease.owner)
    if silent_s is None:
        return Check(faults.OWNER, Outcome.OK, f"Host {lease.owner} holds the lease and is alive")
    return Check(
        faults.OWNER,
        Outcome.WARNING,
        f"Host {lease.owner} holds the lease until {utc_text(lease.expires_at)}, {_silence(silent_s)}",
        "Wait until the lease ends: another host takes the stream then. End the silent host if it still runs.",
    )


def _silent_s(evidence: PreflightEvidence, host_id: str) -> float | None:
    """None while the host is alive."""
    host = evidence.owners.hosts.get(host_id)
    if host is None:
        return float("inf")
    silent_s = host.silent_s(evidence.seen_at)
    return silent_s if silent_s > evidence.owners.heartbeat_stale_s else None


def _silence(silent_s: float) -> str:
    return "and has never been heard of" if silent_s == float("inf") else f"silent for {duration_text(silent_s)}"


def _same_checkpoint(owners: Owners, declared: StreamDeclaration) -> Iterator[Check]:
    place = declared.checkpoint_location.rstrip("/")
    for other in owners.others:
        if other.checkpoint_location.rstrip("/") == place:
            wanted = _is_wanted(owners, other.name)
            detail = f"{other.name} has the same checkpoint" + (" and is wanted running" if wanted else "")
            yield _failed(faults.SECOND_START, detail, outcome=Outcome.FAILED if wanted else Outcome.WARNING)


def _same_sink(owners: Owners, declared: StreamDeclaration) -> Iterator[Check]:
    own, uris = owners.leases.get(declared.name), {output.uri for output in declared.outputs} - {""}
    for other in owners.others:
        lease = owners.leases.get(other.name)
        shares = any(each.uri in uris for each in other.outputs)
        if shares and lease is not None and _is_wanted(owners, other.name):
            foreign = own is None or own.owner != lease.owner
            detail = f"{other.name} writes the same table; host {lease.owner} runs it"
            yield _failed(faults.SINK_LEASED, detail, outcome=Outcome.FAILED if foreign else Outcome.WARNING)


def _is_wanted(owners: Owners, name: str) -> bool:
    wanted = owners.desired.get(name)
    return wanted is not None and wanted.state is DesiredState.RUNNING


# a source that is a table --------------------------------------------------------------------------------------------


def judge_table(seen: TableSeen) -> Iterator[Check]:
    """Whether the table is the one that the checkpoint knows, and whether what is unread can be read."""
    if seen.problem or (seen.skipped and seen.first is None):
        outcome = Outcome.FAILED if seen.problem else Outcome.UNKNOWN
        remedy = "Make the table readable again." if seen.problem else ""
        yield Check(_of(faults.READABLE, seen), outcome, seen.problem or seen.skipped, remedy)
        return
    if seen.first is None or seen.table_id is None:
        yield Check(_of(faults.READABLE, seen), Outcome.OK, f"Readable at v{seen.latest}{_why_no_position(seen)}")
        return
    name = _of(faults.TABLE_ID, seen)
    if seen.table_id != seen.present_id:
        detail = f"The checkpoint knows table {seen.table_id}; {seen.source.name} is now {seen.present_id}"
        yield _failed(faults.SOURCE_RECREATED, detail, name=name)
        return
    yield Check(name, Outcome.OK, f"It is the table that the checkpoint knows: {seen.table_id}")
    yield _of_start(seen, seen.first)
    if seen.skipped:
        yield Check(_of(faults.UNREAD_FILES, seen), Outcome.UNKNOWN, seen.skipped)
    elif seen.files is not None:
        yield _of_files(seen, seen.files)
    yield _of_schema(seen)
    if seen.source.kind == InputKind.TABLE:
        yield _of_rows(seen)


def _why_no_position(seen: TableSeen) -> str:
    if seen.source.kind == InputKind.PRESENT_ROWS:
        return "; each batch reads all of its rows"
    return "; the checkpoint holds no position in it"


def _of_start(seen: TableSeen, first: int) -> Check:
    name = _of(faults.START_VERSION, seen)
    needed = first if seen.needed is None else seen.needed
    if needed > seen.latest:
        return Check(name, Outcome.OK, f"All is read: the stream waits for v{first}")
    if seen.first_kept == needed:
        going = f"waits for v{first}" if first > seen.latest else f"goes on with v{first} of {seen.latest}"
        return Check(name, Outcome.OK, f"The stream {going}; the log still has all from v{needed} on")
    end = seen.latest + 1 if seen.first_kept is None else seen.first_kept
    lost = f"{_things_are(end - needed, 'version')} no longer in the log ({_versions(needed, end - 1)})"
    if seen.source.options.get("failOnDataLoss", "").lower() == "false":
        detail = f"{lost}: the stream passes over them, as failOnDataLoss=false says"
        return _failed(faults.LOG_CLEANED, detail, name=name, outcome=Outcome.WARNING)
    again = ", where Spark plans the last batch again" if needed < first else ""
    return _failed(faults.LOG_CLEANED, f"A start needs the log from v{needed} on{again}. {lost}", name=name)


def _of_files(seen: TableSeen, files: FilesLookedFor) -> Check:
    name = _of(faults.UNREAD_FILES, seen)
    if not files.unread:
        return Check(name, Outcome.OK, "No file is unread")
    looked = f"looked for {files.looked:,} of {things(files.unread, 'unread file')}"
    looked += f", {files.replaced:,} of them replaced since" if files.replaced else ", none of them replaced since"
    looked += _looked(seen)
    if files.missing:
        examples = ", ".join(files.missing[:EXAMPLES])
        detail = f"{_things_are(len(files.missing), 'file')} gone ({looked}): {examples}"
        return _failed(faults.FILE_VACUUMED, detail, name=name)
    if files.looked < files.replaced:
        return Check(name, Outcome.UNKNOWN, f"All that were looked for are there ({looked})")
    return Check(name, Outcome.OK, f"All that were looked for are there ({looked})")


def _of_schema(seen: TableSeen) -> Check:
    name = _of(faults.SCHEMA, seen)
    changes = [unread for unread in seen.unread if unread.commit.metadata is not None]
    if not changes:
        return Check(name, Outcome.OK, f"No unread commit changes the columns{_looked(seen)}")
    if seen.read_with is None or seen.present is None:
        return Check(name, Outcome.UNKNOWN, "The columns at the stream's position are no longer in the log")
    try:
        diff = diff_schemas(seen.read_with, seen.present)
        passing = [diff_schemas(change.commit.metadata, seen.present) for change in changes if change.commit.metadata]
    except LakehouseError as exc:
        return Check(name, Outcome.UNKNOWN, exc.message)
    if diff.is_empty and not any(_breaks(step) for step in passing):
        return Check(name, Outcome.OK, f"No unread commit changes the columns{_looked(seen)}")
    breaking = _breaks(diff) or any(_breaks(step) for step in passing)
    changed = "; ".join(_words(diff)) or "columns change and change back"
    if not breaking and not diff.added:
        return Check(name, Outcome.OK, f"Unread commits change what no row depends on: {changed}")
    where = ", ".join(map(_commit, changes[:EXAMPLES]))
    ahead = f"{where} ahead: {changed}"
    if breaking:
        return _failed(faults.SCHEMA_CHANGED, ahead, name=name)
    detail = f"{ahead}. A start takes the new columns; a stream that runs stops there once"
    return _failed(faults.SCHEMA_CHANGED, detail, name=name, outcome=Outcome.WARNING)


def _breaks(diff: SchemaDiff) -> bool:
    """Whether rows written before cannot be read with the columns after: Delta takes added columns alone."""
    traits = [c for c in diff.changed if c.what != "comment" and (c.what, c.after) != ("nullability", "nullable")]
    return bool(diff.dropped or diff.renamed or traits)


def _words(diff: SchemaDiff) -> Iterator[str]:
    yield from (f"adds {change.path} ({change.type})" for change in diff.added)
    yield from (f"drops {change.path} ({change.type})" for change in diff.dropped)
    yield from (f"renames {old} to {new}" for old, new in diff.renamed)
    yield from (f"{change.what} of {change.path}: {change.before} → {change.after}" for change in diff.changed)


def _commit(unread: Unread) -> str:
    return f"v{unread.commit.version} ({unread.commit.operation or 'unknown'})"


def _looked(seen: TableSeen) -> str:
    """How far was looked, where that is not to the end."""
    last = seen.unread[-1].commit.version if seen.unread else seen.latest
    return f", as far as was looked: v{last} of {seen.latest}" if last < seen.latest else ""


def _of_rows(seen: TableSeen) -> Check:
    name = _of(faults.APPENDS, seen)
    changing = [unread for unread in seen.unread if unread.removed]
    if not changing:
        appended = "Every unread commit appends" if seen.unread else "No commit is unread"
        return Check(name, Outcome.OK, f"{appended}{_looked(seen)}")
    refused = [unread for unread in changing if not _passes(unread, seen)]
    first = (refused or changing)[0]
    detail = f"{_commit(first)} takes out {things(first.removed, 'file')}"
    more = f", and {len(refused or changing) - 1} more such commits" if len(refused or changing) > 1 else ""
    if refused:
        return _failed(faults.ROWS_CHANGED if first.files else faults.ROWS_DELETED, f"{detail}{more}", name=name)
    if any(unread.files for unread in changing) and "skipChangeCommits" not in _set_options(seen):
        detail += f"{more}; with ignoreChanges all rows of the files written instead are read, most of them once more"
        return _failed(faults.ROWS_CHANGED, detail, name=name, outcome=Outcome.WARNING)
    return Check(name, Outcome.OK, f"{detail}{more}; the source's options let the stream go on")


def _set_options(seen: TableSeen) -> set[str]:
    return {name for name, value in seen.source.options.items() if value.lower() == "true"}


def _passes(commit: Unread, seen: TableSeen) -> bool:
    options = _set_options(seen)
    return bool(options & {"skipChangeCommits", "ignoreChanges"}) or (not commit.files and "ignoreDeletes" in options)


# other sources, sink, disk -------------------------------------------------------------------------------------------


def judge_folder(seen: FolderSeen) -> Iterator[Check]:
    name = f"{faults.READABLE} of {seen.source.name}"
    if seen.is_there is None:
        yield Check(name, Outcome.UNKNOWN, seen.problem)
    elif not seen.is_there:
        yield Check(name, Outcome.FAILED, seen.problem, "Make the folder, or let Weir and the host read it.")
    else:
        yield Check(name, Outcome.OK, "The folder is there and can be listed")
    if seen.unreadable:
        detail = f"The stream ended at {seen.unreadable}, which has not changed since"
        yield _failed(faults.FILE_UNREADABLE, detail, name=f"{faults.UNREAD_FILES} of {seen.source.name}")
    if seen.elsewhere:
        detail = f"The checkpoint names {seen.elsewhere}, which is not below {seen.source.uri}"
        yield _failed(faults.FOLDER_ELSEWHERE, detail, name=f"{faults.UNREAD_FILES} of {seen.source.name}")


def judge_topics(seen: TopicsSeen, *, now: datetime) -> Check:
    """Whether the broker still has what is unread, as a host last reported from it."""
    name, reported = f"{faults.RECORDS} of {seen.source.name}", seen.reported
    backlog = kafka_backlog(seen.source, seen.position, reported, now=now)
    if reported is None or reported.problem:
        return Check(name, Outcome.UNKNOWN, f"Only a host can ask the broker: {backlog.unknown}")
    if backlog.rows is None or backlog.lost:
        goes_on = seen.source.options.get("failOnDataLoss", "").lower() == "false"
        outcome = Outcome.WARNING if goes_on else Outcome.FAILED
        return _failed(faults.RECORDS_LOST, backlog.detail or backlog.unknown, name=name, outcome=outcome)
    detail = f"{things(backlog.rows, 'record')} unread, none of them deleted"
    if backlog.unknown:
        return Check(name, Outcome.UNKNOWN, f"{detail}, but {backlog.unknown}")
    return Check(name, Outcome.OK, detail)


def judge_sink(sink: SinkSeen, checkpoint: CheckpointSeen) -> Check:
    """Whether the table is there, and whether it has more batches of this query than the checkpoint."""
    if sink.problem:
        remedy = "" if sink.exists is None else "Make the table readable again."
        return Check(faults.SINK, Outcome.UNKNOWN if sink.exists is None else Outcome.FAILED, sink.problem, remedy)
    planned = max((*checkpoint.planned, *checkpoint.finished), default=None)
    if not sink.exists:
        return _without_sink(planned)
    if sink.keys_before:
        return _failed(faults.KEYS_CHANGED, f"Its rows are written by the keys {sink.keys_before}, others are declared")
    if planned is None and checkpoint.is_empty and sink.files and not checkpoint.problem:
        detail = f"The checkpoint is empty and the table holds {things(sink.files, 'file')}: all is written again"
        remedy = "Empty the table first, unless its sink finds rows by a key."
        return Check(faults.SINK, Outcome.WARNING, detail, remedy)
    if sink.last_batch is None:
        return Check(faults.SINK, Outcome.OK, "Readable; it names no batch of this query yet")
    if planned is None or sink.last_batch > planned:
        end = "no batch" if planned is None else f"batch {planned}"
        detail = f"The table has batch {sink.last_batch} of this query, the checkpoint ends with {end}"
        return _failed(faults.OLD_CHECKPOINT, detail)
    return Check(faults.SINK, Outcome.OK, f"Its last batch of this query is {sink.last_batch}; the checkpoint agrees")


def _without_sink(planned: int | None) -> Check:
    if planned is None:
        return Check(faults.SINK, Outcome.OK, "It is not there yet; the host makes it")
    return Check(
        faults.SINK,
        Outcome.FAILED,
        f"The table is gone, though the checkpoint has batch {planned}: the rows before it will not come back",
        f"Put the table back. {faults.ELSE_RESET}.",
    )


def judge_changes(evidence: PreflightEvidence) -> Iterator[Check]:
    """What the next start sets of its tables, and what of that waits for somebody's word."""
    name, wanted = evidence.declaration.name, evidence.owners.desired.get(evidence.declaration.name)
    approved = approved_changes(wanted.overrides.get(TABLE_CHANGES, "") if wanted else "")
    due = [change for change in evidence.changes if change.is_due(approved)]
    waiting = [change for change in evidence.changes if not change.is_due(approved)]
    if due or (evidence.declaration.tables and not waiting):
        detail = f"A start sets {'; '.join(map(str, due))}" if due else "No table that is there differs"
        yield Check(faults.TABLES, Outcome.OK, detail)
    for change in waiting:
        given = ",".join(sorted({*approved - {""}, change.what}))
        word = f'weir restart {name} --set "{TABLE_CHANGES}={given}" --reason "…"'
        remedy = f"Let a start set it: {word}" if change.is_possible else "Declare it as it is, or write another table."
        yield Check(faults.TABLES, Outcome.WARNING, f"{change}: {change.waits}", remedy)


def judge_room(room: RoomSeen) -> Check:
    if room.free_bytes is None:
        return Check(faults.ROOM, Outcome.UNKNOWN, "The checkpoint lies on no disk of this machine")
    needed = max(LEAST_ROOM_BYTES, STATE_COPIES * (room.state_bytes or 0))
    detail = f"{bytes_text(room.free_bytes)} free on the disk of the checkpoint"
    if room.state_bytes:
        detail += f"; the state takes {bytes_text(room.state_bytes)} of memory"
    if room.free_bytes >= needed:
        return Check(faults.ROOM, Outcome.OK, detail)
    remedy = "Free space, or move the checkpoint to a larger disk while the stream is stopped."
    return Check(faults.ROOM, Outcome.WARNING, f"{detail}; {bytes_text(needed)} or more are safe", remedy)


def _things_are(count: int, one: str) -> str:
    return f"{things(count, one)} {'is' if count == 1 else 'are'}"


def _of(name: str, seen: TableSeen) -> str:
    return f"{name} of {seen.source.name}"


def _versions(first: int, last: int) -> str:
    return f"v{first}" if first == last else f"v{first} to v{last}"


def _failed(fault: Fault, detail: str, *, name: str = "", outcome: Outcome = Outcome.FAILED) -> Check:
    return Check(name or fault.check, outcome, detail, fault.remedy)
