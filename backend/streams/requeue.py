"""Rows of a quarantine that go through their stream once more: what is asked, whether it may be, and what it comes to.

Rule: reads alone. SQL over one row chooses rows and repairs them, in DuckDB's dialect, as conditions on rows are
everywhere. What a row was when it was quarantined stays until it is in the stream's table.
"""

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

from backend.access import Actor
from backend.errors import JobError, QueryError, StreamError, StreamRefusedError
from backend.format import things
from backend.jobs.model import Job, JobKind, JobRequest
from backend.lake.lake import Lake
from backend.lake.table.schema import column_names
from backend.sql.expression import check_row_condition, check_value
from backend.stream_model.stream import StreamDeclaration
from backend.streams.reset import TIME_LIMIT_S
from backend.streams.verdict import StreamStatus, why_not_stopped

REASON = ("broken_expectations", "stream", "batch_id", "quarantined_at")  # what a quarantine adds to a row
_SUFFIX = "_quarantine"
_IN_ORDER = "it hands changes on in the order of its source's versions: a repaired one would follow newer ones"
_TOO_LATE = {
    "complete": "each batch replaces its table: mend the source, and the next batch has the row",
    "update": "its rows are results that have no order: a repaired one might replace a newer one",
    "kafka": _IN_ORDER,
    "postgresql": _IN_ORDER,
}


@dataclass(frozen=True, slots=True)
class RequeueRequest:
    """`version`: of the quarantine; what came later stays there. `where` chooses rows, all of them if empty. `repairs`:
    columns with their new values, computed from the row as it was."""

    stream: str
    version: int
    where: str = ""
    repairs: Mapping[str, str] = field(default_factory=dict)

    def text(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def parse(cls, text: str) -> "RequeueRequest":
        """Raises `StreamError` for what is no request."""
        try:
            body = json.loads(text)
            return cls(str(body["stream"]), int(body["version"]), str(body["where"]), dict(body["repairs"]))
        except (ValueError, KeyError, TypeError) as exc:
            raise StreamError(f"a requeue cannot be read: {exc}") from exc


@dataclass(frozen=True, slots=True)
class Sample:
    """One chosen row: as it lies there, repaired, the expectations that it then breaks, and whether it goes."""

    before: Mapping[str, object]
    after: Mapping[str, object]
    broken: tuple[str, ...]
    goes: bool


@dataclass(frozen=True, slots=True)
class RequeueAnswer:
    """What requeueing rows would come to, or came to: `met` of the `chosen` rows go, the others stay.

    `broken`: rows that stay, by each expectation that they break. `warned`: rows that go, by each that only warns.
    """

    chosen: int
    met: int
    broken: Mapping[str, int] = field(default_factory=dict)
    warned: Mapping[str, int] = field(default_factory=dict)
    samples: tuple[Sample, ...] = ()

    @property
    def left(self) -> int:
        return self.chosen - self.met

    def sentence(self) -> str:
        """ "12 of 15 rows requeued; 3 stay: 2 break priced, 1 breaks known"."""
        stay = f"; {self.left:,} {'stays' if self.left == 1 else 'stay'}: {breaking(self.broken)}" if self.left else ""
        return f"{self.met:,} of {things(self.chosen, 'row')} requeued{stay}"

    def text(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def of(cls, job: Job) -> "RequeueAnswer":
        """What a job counted or did. Raises `JobError` where it failed, or left what is no answer."""
        try:
            body = json.loads(job.require_answer())
            samples = (Sample(**{**sample, "broken": tuple(sample["broken"])}) for sample in body["samples"])
            return cls(**{**body, "samples": tuple(samples)})
        except (ValueError, KeyError, TypeError) as exc:
            raise JobError(f"the answer of the job cannot be read: {exc}", hint="preview it again") from exc


def breaking(broken: Mapping[str, int]) -> str:
    """ "2 break priced, 1 breaks known"."""
    return ", ".join(f"{rows:,} {'breaks' if rows == 1 else 'break'} {name}" for name, rows in broken.items())


def quarantine_of(declared: StreamDeclaration) -> str | None:
    """The table of the rows that it quarantined, by path below the lake's root."""
    return next((table for table in declared.side_tables if table.endswith(_SUFFIX)), None)


def why_never(declared: StreamDeclaration) -> str:
    """Why no row of it can be requeued, whatever its state; empty where one can."""
    if declared.is_attached:
        return f"another Spark application runs it: {declared.pipeline}"
    if quarantine_of(declared) is None:
        return "none of its expectations quarantines rows"
    sinks = (declared.sink, *(output.sink for output in declared.also))
    return next((_TOO_LATE[sink] for sink in sinks if sink in _TOO_LATE), "")


def why_not(status: StreamStatus) -> str:
    """Why it may not be done now; empty where it may."""
    return why_never(status.declaration) or why_not_stopped(status)


def parse_repairs(lines: Sequence[str]) -> dict[str, str]:
    """ "amount = abs(amount)" for each column; raises `QueryError`."""
    repairs: dict[str, str] = {}
    for line in lines:
        name, equals, value = line.partition("=")
        column = name.strip()
        if column.startswith('"') and column.endswith('"') and len(column) > 1:
            column = column[1:-1].replace('""', '"')
        if not equals or not column or not value.strip():
            raise QueryError(f"{line.strip()!r} is no repair", hint="such as amount = abs(amount)")
        if column in repairs:
            raise QueryError(f"{column} is repaired twice", hint="one value for each column")
        repairs[column] = value.strip()
    return repairs


def checked(request: RequeueRequest, columns: Sequence[str]) -> RequeueRequest:
    """The same with columns as the quarantine spells them; raises `QueryError` for what may not run there."""
    if request.where:
        check_row_condition(request.where, columns)
    own = {name.lower(): name for name in columns if name not in REASON}
    repairs = {}
    for column, value in request.repairs.items():
        name = column if column in columns and column not in REASON else own.get(column.lower())
        if name is None:
            raise QueryError(
                f"there is no column {column!r} to repair", hint=f"its columns are {', '.join(own.values())}"
            )
        check_value(value, columns)
        repairs[name] = value
    return RequeueRequest(request.stream, request.version, request.where, repairs)


def requeue_job(request: RequeueRequest, *, actor: Actor, reason: str, kind: JobKind = JobKind.REQUEUE) -> JobRequest:
    """What a host is asked; each is a job of its own, whoever asked the same before."""
    fingerprint = f"{kind} {uuid.uuid4().hex}"
    given = {"version": str(request.version), **({"where": request.where} if request.where else {})}
    given |= {f"set {column}": value for column, value in request.repairs.items()}
    return JobRequest(kind, request.stream, fingerprint, request.text(), actor, reason, TIME_LIMIT_S, given)


def preview_job(request: RequeueRequest, *, actor: Actor) -> JobRequest:
    """The same, of which nothing is written."""
    reason = "to see what requeueing rows would do"
    return requeue_job(request, actor=actor, reason=reason, kind=JobKind.REQUEUE_PREVIEW)


def load_request(lake: Lake, declared: StreamDeclaration, where: str, repairs: Sequence[str]) -> RequeueRequest:
    """The request for the quarantine's rows of now; `repairs` as people write them.

    Raises `QueryError` for SQL that may not run, `StreamRefusedError`, or a `TableError`.
    """
    quarantine = quarantine_of(declared)
    if quarantine is None or why_never(declared):
        raise StreamRefusedError(f"{declared.name}: {why_never(declared)}")
    snapshot = lake.snapshot(lake.find(quarantine))
    request = RequeueRequest(declared.name, snapshot.version, where.strip(), parse_repairs(repairs))
    return checked(request, list(column_names(snapshot.metadata)))
