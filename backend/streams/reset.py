"""A stream's checkpoint set aside: what a reset reads again and from where, what it risks, and the one plan by which a
host moves a checkpoint, whether it resets the stream, takes that back, or rewinds it with a table.

Rule: nothing is thrown away. The plan is written down before anything is done, in a folder of the job's own beside the
checkpoint that it sets aside, where an undo finds it; nobody deletes it. A table is only written to by commits that a
restore takes back.
"""

import json
import re
import uuid
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from types import MappingProxyType

import orjson

from backend.access import Actor
from backend.errors import LakehouseError, StreamError, StreamNotFoundError, StreamRefusedError, VersionFormatError
from backend.format import bytes_text, things
from backend.jobs.model import Job, JobKind, JobRequest
from backend.lake.lake import Lake
from backend.lake.storage.storage import declared_folder
from backend.settings import Settings
from backend.store.store import ControlStore
from backend.stream_model.backlog import Backlog
from backend.stream_model.stream import (
    RESET_ALLOWED,
    InputKind,
    StreamDeclaration,
    StreamInput,
)
from backend.streams.backlog import BacklogReader
from backend.streams.checkpoint import KafkaPosition, Starts, begun_at, key_of, parse_position
from backend.streams.verdict import StreamStatus, why_not_stopped
from backend.times import FORMS, Clock, parse_time

TIME_LIMIT_S = 3_600.0
NOTE, CHECKPOINT = "reset.json", "checkpoint"
_FOLDER = ".set_aside"  # among the checkpoints, so that moving one is a rename


class ResetLevel(StrEnum):
    REPROCESS = "reprocess"  # a new checkpoint; the table stays
    FROM = "from"  # the same, from a version, an offset or a time on
    FULL = "full"  # a new checkpoint and an empty table
    UNDO = "undo"  # the checkpoint that was set aside last, and the table as it was then


AGAIN = (ResetLevel.REPROCESS, ResetLevel.FROM)  # the table stays as it is
EFFECTS: Mapping[ResetLevel, str] = {
    ResetLevel.REPROCESS: "its checkpoint is set aside; its next start reads its sources from their beginning",
    ResetLevel.FROM: "its checkpoint is set aside; its next start reads its sources from there on",
    ResetLevel.FULL: "its checkpoint is set aside and its tables are emptied; its next start fills them anew",
    ResetLevel.UNDO: "the checkpoint set aside last comes back, and its tables are restored to what they were then",
}
_PASSES = frozenset({"skipChangeCommits"})  # readers with such an option pass over a commit that takes rows away
_PASSING = {ResetLevel.FULL: _PASSES | {"ignoreDeletes", "ignoreChanges"}}  # which drops whole files, and adds none
_TWICE = {
    "kafka": "each row is sent again, with a new position",
    "postgresql": "rows are written over by key, and those that the source has no longer stay",
}


@dataclass(frozen=True, slots=True)
class ResetRequest:
    """What a host is asked to do; where the stream's checkpoint and tables lie, it knows itself. `starts`: of FROM."""

    stream: str
    level: ResetLevel
    starts: Starts = field(default_factory=dict)

    def text(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def parse(cls, text: str) -> "ResetRequest":
        """Raises `StreamError` for what is no request."""
        try:
            body = json.loads(text)
            return cls(str(body["stream"]), ResetLevel(body["level"]), dict(body.get("starts") or {}))
        except (ValueError, KeyError, TypeError) as exc:
            raise StreamError(f"a reset cannot be read: {exc}") from exc


# the plan of a move ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TableBack:
    """One of a stream's tables: its latest version, and the one that becomes the latest again."""

    uri: str
    name: str
    version: int
    to_version: int


@dataclass(frozen=True, slots=True)
class CheckpointMove:
    """What one job does to a stream's checkpoint and tables. `versions`: of its tables by Spark's URI, before anything
    was done. `undoes`: the job whose checkpoint comes back. `batch`: the last that stays done of a rewind, and `tables`
    that go back with it; None: nothing of the checkpoint stays."""

    job_id: str
    level: str
    at: datetime
    actor: str
    reason: str
    versions: dict[str, int]
    undoes: str | None = None
    batch: int | None = None
    tables: tuple[TableBack, ...] = ()

    @classmethod
    def of(
        cls, job: Job, level: str, versions: dict[str, int], *, undoes: str | None = None, batch: int | None = None,
        tables: tuple[TableBack, ...] = (),
    ) -> "CheckpointMove":  # fmt: skip
        return cls(job.job_id, level, job.requested_at, job.actor, job.reason, versions, undoes, batch, tables)

    def text(self) -> str:
        return orjson.dumps(self).decode()


def set_aside_folder(settings: Settings, stream: str) -> str:
    return f"{settings.checkpoints_uri}/{_FOLDER}/{stream}"


def read_move(settings: Settings, stream: str, job_id: str) -> CheckpointMove | None:
    """What that job wrote down; None where it has not begun."""
    folder = declared_folder(settings, set_aside_folder(settings, stream))
    if folder.stat(f"{job_id}/{NOTE}") is None:
        return None
    body = json.loads(folder.read(f"{job_id}/{NOTE}"))
    tables = tuple(TableBack(**table) for table in body.get("tables", ()))
    return CheckpointMove(**{**body, "at": datetime.fromisoformat(body["at"]), "tables": tables})


def set_aside(settings: Settings, stream: str) -> list[str]:
    """Moves that can be taken back, by the jobs that did them, oldest first."""
    folder = declared_folder(settings, set_aside_folder(settings, stream))
    names = [entry.name for entry in folder.list("") if folder.holds(f"{entry.name}/{CHECKPOINT}")]
    moves = [move for name in names if (move := read_move(settings, stream, name))]
    return [move.job_id for move in sorted(moves, key=lambda move: move.at)]


# what a reset would do -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ResetPreview:
    """`refused`: why it may not be done; empty where it may. `again`: what is read again, None for an undo."""

    stream: str
    level: ResetLevel
    refused: str
    effect: str
    again: Backlog | None
    risks: tuple[str, ...]
    downstream: tuple[str, ...]


def load_preview(
    settings: Settings,
    lake: Lake,
    store: ControlStore,
    statuses: Sequence[StreamStatus],
    *,
    name: str,
    level: ResetLevel,
    now: datetime,
    starts: Starts = MappingProxyType({}),
) -> ResetPreview:
    """`starts`: where each source begins, of FROM. Raises `StreamNotFoundError` or `StoreError`."""
    named = {status.declaration.name: status for status in statuses}
    if name not in named:
        raise StreamNotFoundError(f"no stream {name!r}", hint=f"streams: {', '.join(named) or 'none'}")
    declared = named[name].declaration
    topics = store.topic_ends().get(name, ())
    again = BacklogReader(settings, lake).look(begun_at(declared, starts), (), topics, now=now).from_start()
    return preview(
        named[name],
        level,
        [status.declaration for status in statuses],
        again=again,
        set_aside=set_aside(settings, name),
        kept=kept_by(lake, declared, level),
    )


def preview(
    status: StreamStatus,
    level: ResetLevel,
    others: Sequence[StreamDeclaration],
    *,
    again: Backlog | None,
    set_aside: Sequence[str],
    kept: str = "",
) -> ResetPreview:
    """`again`: what a first start would read; `set_aside`: the names of earlier checkpoints, oldest first.

    `kept`: which of its tables may not be touched by its own properties, and why; see `why_kept`.
    """
    declared = status.declaration
    return ResetPreview(
        declared.name,
        level,
        why_refused(declared, why_not_stopped(status), level, set_aside, kept),
        EFFECTS[level],
        None if level is ResetLevel.UNDO else again,
        tuple(_risks(declared, level)),
        tuple(downstream(declared, others, passing=_PASSING.get(level, _PASSES), doubles=level in AGAIN)),
    )


def kept_by(lake: Lake, declared: StreamDeclaration, level: ResetLevel) -> str:
    """Why one of its tables may not be touched; one that cannot be read, or is not there, is not known to say so."""
    tables = {output.uri: output.table for output in declared.outputs}
    for uri, name in {**{table.uri: table.table for table in declared.tables}, **tables}.items():
        with suppress(LakehouseError):
            if why := why_kept(name, lake.snapshot(lake.find(uri)).metadata.configuration, level):
                return why
    return ""


def why_kept(table: str, properties: Mapping[str, str], level: ResetLevel) -> str:
    """Why a table's own properties forbid such a reset; empty where they do not."""
    if level is not ResetLevel.UNDO and properties.get(RESET_ALLOWED, "").lower() == "false":
        return f"{table} has {RESET_ALLOWED}=false: its source no longer holds what it does"
    if level is ResetLevel.FULL and properties.get("delta.appendOnly", "").lower() == "true":
        return f"{table} is append-only: take delta.appendOnly from it first, or reprocess"
    return ""


def reset_job(request: ResetRequest, *, actor: Actor, reason: str) -> JobRequest:
    """What a host is asked; each is a job of its own, whoever asked the same before."""
    fingerprint = f"reset {uuid.uuid4().hex}"
    given = {"level": str(request.level), **({"from": json.dumps(request.starts)} if request.starts else {})}
    return JobRequest(JobKind.RESET, request.stream, fingerprint, request.text(), actor, reason, TIME_LIMIT_S, given)


def reads_again(again: Backlog | None) -> str:
    """ "1.2 M rows, 3 files, 12 MB", or that nobody knows."""
    if again is None:
        return "nothing"
    parts = [things(again.rows, "row")] if again.rows is not None else []
    parts += [things(again.files, "file")] if again.files is not None else []
    parts += [bytes_text(again.size_bytes)] if again.size_bytes is not None else []
    unknown = f"; {again.unknown}" if again.unknown else ""
    return (", ".join(parts) or "nobody knows how much") + unknown


def why_refused(
    declared: StreamDeclaration, running: str, level: ResetLevel, set_aside: Sequence[str], kept: str
) -> str:
    """Why a reset may not be done; empty where it may. `running`: why its checkpoint may not be touched now."""
    if declared.is_attached:
        return f"another Spark application runs it: {declared.pipeline}"
    if declared.outside and level is ResetLevel.FULL:
        return f"nobody here empties {declared.writes_to}: empty it yourself, then reprocess"
    if not declared.reset_allowed and level is not ResetLevel.UNDO:
        return "it is declared with reset_allowed=False: its source no longer holds what its table does"
    if kept or running:
        return kept or running
    if level is ResetLevel.FROM and (declared.is_view or not declared.inputs):
        return "a view is computed from all rows each time"
    if level is ResetLevel.UNDO and not set_aside:
        return "it has no checkpoint that was set aside"
    return ""


def _risks(declared: StreamDeclaration, level: ResetLevel) -> list[str]:
    if level is ResetLevel.UNDO:
        stays = f"{declared.writes_to} keeps what the stream wrote since the reset"
        return [stays if declared.outside else "what the stream wrote since the reset leaves its tables"]
    risks = twice_outside(declared)
    for table in (output.table for output in declared.outputs if level in AGAIN and output.sink == "append"):
        risks.append(f"{table} keeps its rows: each row that is read again is there twice")
    if level is ResetLevel.FROM:
        risks.append("what lies before that place and was not read yet is never read")
    if declared.is_view:
        risks.append("none: a view is computed from all rows each time")
    if any(source.kind == InputKind.KAFKA for source in declared.inputs):
        risks.append("what its topics no longer hold is not read again")
    if any(each.is_table for each in declared.inputs) and not declared.is_view:
        risks.append("rows come as its sources hold them now: what they were before an update or a delete is not read")
    return risks


def downstream(
    declared: StreamDeclaration,
    others: Sequence[StreamDeclaration],
    *,
    passing: Collection[str] = _PASSES,
    doubles: bool = False,
) -> list[str]:
    """What each stream that reads its tables will see. `passing`: options with which a reader passes over what takes
    rows away; `doubles`: nothing is taken away, and rows come twice."""
    lines, sinks = [], {output.uri: output.sink for output in declared.outputs}
    for other in others:
        reads = [source for source in other.inputs if source.is_table and source.uri in sinks]
        if not reads or other.name == declared.name:
            continue
        read = reads[0]
        if other.is_view:
            lines.append(f"{other.name} is computed anew")
        elif read.kind == InputKind.CHANGE_FEED:
            lines.append(f"{other.name} gets each change as a change: deletes, then inserts")
        elif doubles and sinks[read.uri] == "append":
            lines.append(f"{other.name} gets the doubled rows as new ones")
        elif any(read.options.get(name, "").lower() == "true" for name in passing):
            lines.append(f"{other.name} passes over the commit that takes rows away, and gets the new rows as new ones")
        else:
            lines.append(f"{other.name} fails at the commit that takes rows away: reset it as well")
    return lines


def twice_outside(declared: StreamDeclaration) -> list[str]:
    """What becomes of rows that are sent again to where nobody here can take them back."""
    twice = _TWICE.get(declared.sink, "nobody here knows what it does with rows that come twice")
    return [f"{declared.writes_to} keeps what it holds: {twice}"] if declared.outside else []


# where it begins anew ------------------------------------------------------------------------------------------------


def parse_starts(lake: Lake, declared: StreamDeclaration, wheres: Sequence[str], clock: Clock) -> Starts:
    """What people write: "42", "2 h ago", "2026-11-23 10:00", "latest", or `SOURCE=…` for each of several sources.

    Raises `StreamRefusedError` for what cannot be, or a `LakehouseError` where a table cannot be read.
    """
    named = {source.name: source for source in declared.inputs if source.has_place}
    given: dict[str, str] = {}
    for where in wheres:
        name, equals, rest = where.partition("=")
        if equals and name in named:
            given[name] = rest.strip()
        elif len(named) == 1:
            given[next(iter(named))] = where.strip()
    if missing := sorted(named.keys() - given.keys()):
        hint = ", ".join(f"--from '{name}=…'" for name in missing)
        raise StreamRefusedError(f"{declared.name}: each source needs a place to begin at", hint=f"say {hint}")
    return {key_of(named[name]): _options(lake, named[name], where, clock) for name, where in given.items()}


def _options(lake: Lake, source: StreamInput, where: str, clock: Clock) -> Mapping[str, str]:
    match source.kind:
        case InputKind.TABLE | InputKind.CHANGE_FEED:
            return {"startingVersion": str(_version(lake, source, where, clock))}
        case InputKind.KAFKA:
            return _of_topics(source, where, clock)
    raise StreamRefusedError(
        f"{source.name}: nobody can begin within a source of kind {source.kind}", hint="reprocess all instead"
    )


def _version(lake: Lake, source: StreamInput, where: str, clock: Clock) -> int:
    ref = lake.find(source.uri)
    latest = lake.latest_version(ref)
    if re.fullmatch(r"v?\d{1,18}", where):
        version = int(where.removeprefix("v"))
    elif where == "latest":
        version = latest + 1
    else:
        before = _time(where, source, clock) - timedelta(microseconds=1)
        held = lake.version_at(ref, before)
        version = 0 if held is None else held + 1
    if version > latest + 1:
        raise StreamRefusedError(f"{source.name} has no version {version}", hint=f"the latest is {latest}")
    if version <= latest and not lake.history(ref, limit=1, starting_version=version, ending_version=version):
        raise StreamRefusedError(f"version {version} of {source.name} is no longer in its log", hint="begin later")
    return version


def _of_topics(source: StreamInput, where: str, clock: Clock) -> Mapping[str, str]:
    if where in ("earliest", "latest"):
        return {"startingOffsets": where}
    if where.startswith("{"):
        if not isinstance(parse_position(where), KafkaPosition):
            raise StreamRefusedError(f"{source.name}: these are no offsets", hint='{"topic": {"0": 42, "1": 7}}')
        return {"startingOffsets": where}
    millis = round(_time(where, source, clock).timestamp() * 1_000)
    return {"startingTimestamp": str(millis), "startingOffsetsByTimestampStrategy": "latest"}


def _time(where: str, source: StreamInput, clock: Clock) -> datetime:
    try:
        return parse_time(where, clock)
    except VersionFormatError as exc:
        wanted = "a version" if source.is_table else "offsets as JSON, earliest"
        hint = f"{wanted}, latest, or a time: {FORMS}"
        raise StreamRefusedError(f"{where!r} is no place in {source.name}", hint=hint) from exc
