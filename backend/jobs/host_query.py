"""A query that a stream host is asked for, and what it says of the rows that it kept, as documents of a job.

Rule: plain values that page, terminal, host and the guard of VACUUM read alike. The same statement over the same
versions of the same tables is the same text, so its hash names the job that answers it.
"""

import hashlib
from dataclasses import asdict, dataclass
from typing import Any

import orjson

from backend.errors import JobError

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
        return _to_json(self)

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
        return _to_json(self)

    @classmethod
    def of(cls, document: str) -> "HostAnswer":
        """Raises `JobError` for a document of another Weir."""
        body = _body(document)
        return cls(tuple(body["columns"]), body["num_rows"], body["is_cut"], body["by"])


def _to_json(value: HostQuery | HostAnswer) -> str:
    return orjson.dumps({"format": FORMAT, **asdict(value)}).decode()


def _body(document: str) -> dict[str, Any]:
    body = orjson.loads(document)
    if body.pop("format", None) != FORMAT:
        raise JobError("this query was asked for or answered by another version of Weir", hint="run it again")
    return dict(body)
