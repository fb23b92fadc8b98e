"""What comparisons and queries leave behind: one small Delta table each, below `jobs.results_uri`; and the query that a
stream host is asked for, with what it says of the rows that it kept, as documents of a job.

Rule: read only; the host that ran the job writes its table, and deletes it with the job. The documents are plain values
that page, terminal, host and the guard of VACUUM read alike. The same statement over the same versions of the same
tables is the same text, so its hash names the job that answers it.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Protocol

import orjson

from backend.errors import JobError, JobResultMissingError, ObjectMissingError, TableError
from backend.jobs.model import Job
from backend.lake.lake import Lake
from backend.lake.model import Snapshot, TableRef
from backend.lake.storage.folder import normal_uri
from backend.settings import Settings

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT = 1  # grows when a former host or page would misread the documents


@dataclass(frozen=True, slots=True)
class PinnedRead:
    """One place where the statement names a table: which one lies there, and at which version it is read."""

    uri: str
    table: str
    version: int
    table_id: str


@dataclass(frozen=True, slots=True)
class HostQuery:
    """A statement as it was typed, and what it reads, in the order of its plan."""

    text: str
    reads: tuple[PinnedRead, ...]

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    def to_json(self) -> str:
        return orjson.dumps({"format": FORMAT, **asdict(self)}).decode()

    @classmethod
    def of(cls, document: str) -> "HostQuery":
        """Raises `JobError` for a document of another Weir."""
        body = _body(document)
        return cls(body["text"], tuple(PinnedRead(**read) for read in body["reads"]))


@dataclass(frozen=True, slots=True)
class HostAnswer:
    """Of the rows that a host kept: `columns` names c0, c1 … of its table; `is_cut`: there are more; `by`: who computed
    them."""

    columns: tuple[str, ...]
    num_rows: int
    is_cut: bool
    by: str

    def to_json(self) -> str:
        return orjson.dumps({"format": FORMAT, **asdict(self)}).decode()

    @classmethod
    def of(cls, document: str) -> "HostAnswer":
        """Raises `JobError` for a document of another Weir."""
        body = _body(document)
        return cls(tuple(body["columns"]), body["num_rows"], body["is_cut"], body["by"])


def _body(document: str) -> dict[str, Any]:
    body = orjson.loads(document)
    if body.pop("format", None) != FORMAT:
        raise JobError("this query was asked for or answered by another version of Weir", hint="run it again")
    return dict(body)


class ResultLake(Protocol):
    """The part of `backend.lake.lake.Lake` that reads results."""

    def snapshot(self, ref: TableRef, version: int | None = None) -> Snapshot: ...

    def read_files(
        self, snapshot: Snapshot, files: "pa.Table | None" = None, *, columns: Sequence[str] | None = None
    ) -> "pa.RecordBatchReader": ...


def results_lake(settings: Settings) -> Lake:
    """A lake of the folder that hosts write results to, and of nothing else."""
    lake = settings.lake.model_copy(update={"roots": [settings.results_uri]})
    return Lake(settings.model_copy(update={"lake": lake}))


def read_result(lake: ResultLake, settings: Settings, job: Job, columns: Sequence[str], *, again: str) -> "pa.Table":
    """The rows that a job left, `again` is what to do without them; raises `JobError` where it found nothing,
    `JobResultMissingError`."""
    if job.result_uri is None:
        raise JobError(f"job {job.job_id} has no result: {job.error or f'it is {job.state}'}", hint=job.hint)
    ref = TableRef(normal_uri(job.result_uri), job.job_id, normal_uri(settings.results_uri))
    try:
        return lake.read_files(lake.snapshot(ref), columns=list(columns)).read_all()
    except (TableError, ObjectMissingError) as exc:
        raise JobResultMissingError(
            f"the result of job {job.job_id} cannot be read: {exc.message}", hint=again
        ) from exc
