"""A rewind: a table as it was, and the stream that writes it before the batches that it wrote since.

Rule: `load_rewind` reads, `plan_rewind` is pure. Where nobody can tell which batches those were, or their source can no
longer be read, nothing is rewound.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime

from backend.errors import CheckpointError, StorageError, StreamRefusedError, TableNotFoundError
from backend.lake.lake import Lake
from backend.lake.model import Commit, Snapshot, TableRef
from backend.lake.storage.storage import declared_folder
from backend.maintenance.model import ActPreview, Restore, Rewind, TableAct
from backend.maintenance.readers import Users
from backend.maintenance.restore import MOST_COMMITS, RestoreFacts, load_restore, plan_restore
from backend.settings import Settings
from backend.store.store import ControlStore
from backend.stream_model.backlog import Backlog
from backend.stream_model.stream import StreamDeclaration
from backend.streams.backlog import BacklogReader
from backend.streams.checkpoint import query_id, read_checkpoint
from backend.streams.preflight.judges import judge_checkpoint, judge_sources
from backend.streams.preflight.model import Check, Outcome
from backend.streams.preflight.reading import load_evidence
from backend.streams.reset import downstream, reads_again, twice_outside, why_not_stopped
from backend.streams.status import statuses
from backend.streams.verdict import StreamStatus

_PASSING = ("skipChangeCommits", "ignoreChanges")  # options with which a stream reads on behind a restore


@dataclass(frozen=True, slots=True)
class TableBack:
    """One of the stream's tables: its latest version, and the one that becomes the latest again."""

    uri: str
    name: str
    version: int
    to_version: int


@dataclass(frozen=True, slots=True)
class RewindFacts:
    """`batch`: the last that stays done; `last_batch`: the last that was. `tables`: all that go back, the one that was
    asked for first; `versions`: the latest of each table of the stream, by URI. `checks`: what a start behind `batch`
    meets that is not known to be well."""

    declared: StreamDeclaration
    batch: int
    last_batch: int
    tables: tuple[TableBack, ...]
    versions: Mapping[str, int]
    restored: RestoreFacts
    again: Backlog
    checks: tuple[Check, ...]
    downstream: tuple[str, ...]


def preview_rewind(
    settings: Settings, lake: Lake, store: ControlStore | None, table: Snapshot, asked: Rewind, users: Users,
    *, now: datetime,
) -> ActPreview:  # fmt: skip
    """Refused, too, where the checkpoint cannot be read."""
    try:
        facts = load_rewind(settings, lake, store, table, asked, users, now=now)
    except (StreamRefusedError, CheckpointError, StorageError) as exc:
        act = TableAct(table.ref.uri, table.ref.name, table.version, asked)
        return ActPreview(act, "", refused=exc.message, way_out=exc.hint, typed=True)
    return plan_rewind(table, asked, facts, users)


def load_rewind(
    settings: Settings, lake: Lake, store: ControlStore | None, table: Snapshot, asked: Rewind, users: Users,
    *, now: datetime,
) -> RewindFacts:  # fmt: skip
    """Raises `StreamRefusedError` where it cannot be, with what helps."""
    streams = statuses(store, now=now, heartbeat_stale_s=settings.host.heartbeat_stale_s) if store else []
    status = _writer(streams, users, table.ref.name)
    declared = status.declaration
    if why := why_not_stopped(status):
        raise StreamRefusedError(f"{declared.name}: {why}", hint=f"weir stop {declared.name}")
    assert store is not None
    checkpoint = read_checkpoint(folder := declared_folder(settings, declared.checkpoint_location))
    query = query_id(folder)
    commits = lake.history(
        table.ref, starting_version=asked.to_version + 1, ending_version=asked.to_version + MOST_COMMITS
    )
    batch = min(_batches(commits, query, declared.name), default=0) - 1
    kept = sorted({*checkpoint.planned} & {*checkpoint.finished})
    if batch not in kept:
        raise _not_kept(declared, batch, kept)
    evidence = load_evidence(settings, lake, store, declared.name, now=now, until=batch)
    checks = [*judge_checkpoint(evidence.checkpoint), *judge_sources(evidence)]
    topics = store.topic_ends().get(declared.name, ())
    others = _other_tables(lake, declared, table.ref)
    back = [TableBack(table.ref.uri, table.ref.name, table.version, asked.to_version)]
    back += filter(None, (_goes_back(lake, other, query, batch, now) for other in others))
    return RewindFacts(
        declared,
        batch,
        checkpoint.planned[-1],
        tuple(back),
        {each.ref.uri: each.version for each in (table, *others)},
        load_restore(lake, table, Restore(asked.to_version), now),
        BacklogReader(settings, lake).from_batch(declared, batch, topics, now=now),
        tuple(check for check in checks if check.outcome is not Outcome.OK),
        tuple(downstream(declared, [each.declaration for each in streams], passing=_PASSING)),
    )


def plan_rewind(table: Snapshot, asked: Rewind, facts: RewindFacts, users: Users) -> ActPreview:
    """As a restore of the table, with what the stream does then."""
    name = facts.declared.name
    readers_are_told = replace(users, readers=(), writers=())  # what follows says it of all of the stream's tables
    restore = plan_restore(table, Restore(asked.to_version, keeps_properties=True), facts.restored, readers_are_told)
    failed = next((check for check in facts.checks if check.outcome is Outcome.FAILED), None)
    again = f"{facts.batch + 1} to {facts.last_batch}" if facts.last_batch > facts.batch + 1 else str(facts.last_batch)
    notes = [
        f"{name} goes back to the end of batch {facts.batch}: its next start reads again what batch {again} read, with "
        f"the code as it is then ({reads_again(facts.again)})"
    ]
    notes += [f"{back.name}, now v{back.version}, becomes v{back.to_version} again" for back in facts.tables[1:]]
    unsure = [f"{check.name}: {check.detail}" for check in facts.checks if check.outcome is not Outcome.FAILED]
    return replace(
        restore,
        act=TableAct(table.ref.uri, table.ref.name, table.version, replace(asked, stream=name)),
        figures={**restore.figures, "batch": facts.batch, "rows_again": facts.again.rows},
        notes=(*notes, *restore.notes),
        risks=(*restore.risks, *facts.downstream, *twice_outside(facts.declared), *unsure),
        way_back=f"`weir reset {name} --level undo` takes both back",
        refused=restore.refused or (f"{failed.name}: {failed.detail}" if failed else ""),
        way_out=restore.way_out or (failed.remedy if failed else ""),
    )


def _writer(streams: Sequence[StreamStatus], users: Users, table: str) -> StreamStatus:
    """The one stream that writes the table, and that a host here runs from a checkpoint."""
    names = sorted({writer.stream for writer in users.writers})
    if len(names) != 1:
        why = f"{', '.join(names)} write it" if names else "no declared stream writes it"
        raise StreamRefusedError(f"{table}: {why}", hint=f"`weir restore {table}` brings the table back alone")
    status = next(status for status in streams if status.declaration.name == names[0])
    if status.declaration.is_attached:
        why = f"another Spark application runs {names[0]}"
        raise StreamRefusedError(why, hint="restore the table, and set its checkpoint back there")
    if status.declaration.is_view:
        raise StreamRefusedError(f"{names[0]} is computed from all rows each time", hint="restore the table alone")
    return status


def _batches(commits: Iterable[Commit], query: str, stream: str) -> list[int]:
    """What the stream wrote in these commits; one of another query has no place in its checkpoint."""
    batches = []
    for commit in commits:
        if commit.origin is None or commit.origin.batch_id is None:
            continue
        if commit.origin.query_id != query:
            raise StreamRefusedError(
                f"v{commit.version} was written before the checkpoint of {stream} was set aside, or by another query",
                hint=f"choose a later version, or `weir reset {stream}`",
            )
        batches.append(commit.origin.batch_id)
    if not batches:
        raise StreamRefusedError(f"{stream} wrote nothing since that version", hint="restore the table alone")
    return batches


def _not_kept(declared: StreamDeclaration, batch: int, kept: Sequence[int]) -> StreamRefusedError:
    if batch < 0:
        why, hint = f"it is older than the first batch of {declared.name}", "--level full reads all again"
    else:
        oldest = f"batch {kept[0]} is the oldest" if kept else "there is none"
        why, hint = f"the checkpoint of {declared.name} no longer keeps batch {batch}: {oldest}", "choose a later one"
    return StreamRefusedError(why, hint=f"{hint}: weir reset {declared.name}" if batch < 0 else hint)


def _other_tables(lake: Lake, declared: StreamDeclaration, ref: TableRef) -> list[Snapshot]:
    """Further destinations, quarantine, dead letters: those that are there."""
    tables = []
    for table in declared.tables:
        if table.uri != ref.uri:
            with suppress(TableNotFoundError):
                tables.append(lake.snapshot(lake.find(table.uri)))
    return tables


def _goes_back(lake: Lake, table: Snapshot, query: str, batch: int, now: datetime) -> TableBack | None:
    """None where nothing was written to it behind that batch."""
    to_version: int | None = None
    for commit in (commits := lake.history(table.ref, limit=MOST_COMMITS)):
        origin = commit.origin
        if origin is None or origin.query_id != query or origin.batch_id is None:
            continue
        if origin.batch_id <= batch:
            break
        to_version = commit.version - 1
    else:
        if len(commits) == MOST_COMMITS or to_version == -1:
            raise StreamRefusedError(f"the log of {table.ref.name} does not say what it held behind batch {batch}")
    if to_version is None:
        return None
    if refused := load_restore(lake, table, Restore(to_version), now).refused:
        raise StreamRefusedError(f"{table.ref.name} cannot go back to v{to_version}: {refused}")
    return TableBack(table.ref.uri, table.ref.name, table.version, to_version)
