"""What stream hosts are asked to compute, a comparison or a query, and what they say of its result: documents of a job.

Rule: knows nothing of how it is answered, so that the guard of VACUUM, which asks what versions a job needs, loads
neither engine. The same question about the same tables is the same text, so its hash names the job that answers it.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, is_dataclass
from enum import StrEnum
from typing import Any, TypeVar

import orjson
from pydantic import TypeAdapter, ValidationError

from backend.errors import JobResultMissingError
from backend.lake.model import TableRef

FORMAT = 7  # grows when a former host or page would misread the documents
Value = TypeVar("Value")


def to_document(value: Any) -> str:
    """The text of a question or of an answer."""
    body = asdict(value) if is_dataclass(value) and not isinstance(value, type) else value
    return orjson.dumps({"format": FORMAT, **body}, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS).decode()


def of_document(kind: type[Value], text: str, change: Callable[[Any], Mapping[str, Any]] = dict) -> Value:
    """The value in a document, whose body is changed before; raises `JobResultMissingError` for one of another Weir."""
    body = orjson.loads(text)
    if body.pop("format", None) == FORMAT:
        try:
            return TypeAdapter(kind).validate_python(change(body))
        except ValidationError as exc:
            why = exc.errors(include_url=False)[0]["msg"]
            raise JobResultMissingError(f"a document of the job cannot be read: {why}", hint="ask again") from exc
    raise JobResultMissingError("this was asked for or answered by another version of Weir", hint="ask again")


# a comparison --------------------------------------------------------------------------------------------------------


class DiffMethod(StrEnum):
    """How changed rows were found."""

    CHANGE_FEED = "change_feed"
    ROW_ID = "row_id"  # rows of the files that only one state has, paired by the id that row tracking gave them
    KEY_JOIN = "key_join"  # rows of the files that only one state has, paired by a key
    MULTISET = "multiset"  # the same rows without a key: what came and what went
    LOG_ONLY = "log_only"  # `reasons` say why; everything but rows is still there
    SAME_VERSION = "same_version"  # from = to: nothing to find


@dataclass(frozen=True, slots=True)
class Question:
    """What changed between two versions of a table, or between one of it and one of the table `against`?

    `from_version` may be the newer one: what would going back change? `key` and `columns` are as a person gave them
    (None: the key that is found, all columns), `remembered_key` is the one given last. Only changes whose row satisfies
    the SQL `where` before or after are wanted; floats within `tolerance` are equal. `method` is the only one allowed
    (None: the best). At most `row_limit` changed rows come back. At most `max_bytes` of data files are read here,
    unless a method is named; the stream host (`on_host`) reads any amount. `table_ids` tell tables under one path
    apart; where the table was replaced between the two versions, they are compared `across_replace` as two tables.
    `look_in`: what changed rows share is asked of the rows of this table too that they name.
    """

    ref: TableRef
    from_version: int
    to_version: int
    against: TableRef | None = None
    key: tuple[str, ...] | None = None
    remembered_key: tuple[str, ...] | None = None
    columns: tuple[str, ...] | None = None
    where: str | None = None
    tolerance: float = 0.0
    method: DiffMethod | None = None
    row_limit: int = 1_000
    max_bytes: int | None = None
    on_host: bool = False
    table_ids: tuple[str, ...] = ()
    across_replace: bool = False
    look_in: TableRef | None = None


def question_text(question: Question) -> str:
    """The document of a job. Where a table's root lies is each process's own affair."""
    body = asdict(question)
    for table in ("ref", "against"):
        if body[table]:
            body[table] = {"uri": body[table]["uri"], "name": body[table]["name"]}
    return to_document(body)


def question_of(text: str, root_of: Callable[[str], str]) -> Question:
    """`root_of` gives the root above an address; raises `JobError` for a document of another Weir, `PathRefusedError`
    for a table outside every root."""

    def with_roots(body: dict[str, Any]) -> dict[str, Any]:
        given = {name: body[name] for name in ("ref", "against")}
        return body | {name: at and {**at, "root": root_of(at["uri"])} for name, at in given.items()}

    return of_document(Question, text, with_roots)


# a query -------------------------------------------------------------------------------------------------------------


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
        return hashlib.sha256(to_document(self).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class HostAnswer:
    """Of the rows that a host kept: `columns` names c0, c1 … of its table; `is_cut`: there are more; `by`: who computed
    them."""

    columns: tuple[str, ...]
    num_rows: int
    is_cut: bool
    by: str
