"""Values that the store keeps, to rows of its tables and back.

Rule: a round trip gives an equal value; nothing here touches a database. A field is a column of the same name: times as
the database has them, what is nested as JSON. Only where a table differs from that is it said below. A row that cannot
be read is a `ValueError`, which leaves the store as a `StoreError`.
"""

import logging
import re
import zlib
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ArgsKwargs

from backend.expectations.model import Judgement
from backend.jobs.model import Job, JobProgress
from backend.store.packed import pack, unpack
from backend.store.schema import PROGRESS_LONG, ROLLUP_SUMS
from backend.stream_model.backlog import Backlog
from backend.stream_model.rollup import Rollup, Sum
from backend.stream_model.stream import Desired, HostHeartbeat, Observed, Progress, StreamDeclaration, TopicEnds

Row = Mapping[Any, Any]  # keys are column names; SQLAlchemy types them more widely
Value = TypeVar("Value")

_JOB_ID = re.compile(r"[0-9a-f]{12}")  # it names folders, which hosts delete
_MOST_NAMED = 1_000
UNREADABLE: dict[str, None] = {}  # what was passed over, by table and key
_log = logging.getLogger(__name__)


_ADAPTERS: dict[object, TypeAdapter[Any]] = {}  # each takes a millisecond to make


def _adapter(kind: Any) -> TypeAdapter[Any]:
    if kind not in _ADAPTERS:
        _ADAPTERS[kind] = TypeAdapter(kind)
    return _ADAPTERS[kind]


def value_of(kind: type[Value], row: Row) -> Value:
    """A value from a row or from JSON; columns that are no field of it are passed over."""
    try:
        value: Value = _adapter(kind).validate_python(row if isinstance(row, dict) else dict(row))
    except ValidationError as exc:
        error = exc.errors(include_url=False)[0]
        raise ValueError(f"{'.'.join(map(str, error['loc']))}: {error['msg']}") from exc
    return value


def readable(read: Callable[[Row], Value], table: str, rows: Iterable[Row]) -> list[Value]:
    """Those that can be read. One that another version of Weir wrote, or a stranger, keeps nobody from the others: it
    is passed over, and the log names it once."""
    values = []
    for row in rows:
        try:
            values.append(read(row))
        except (ValueError, TypeError, KeyError, zlib.error) as exc:
            name = f"{table} {next(iter(row.values()))!r:.80}"
            if name not in UNREADABLE and len(UNREADABLE) < _MOST_NAMED:
                UNREADABLE[name] = None
                _log.warning("a row of the control store cannot be read: %s: %.200s", name, exc)
    return values


def json_of(value: object) -> dict[str, Any]:
    body: dict[str, Any] = _adapter(type(value)).dump_python(value, mode="json")
    return body


def row_of(value: object) -> dict[str, Any]:
    return {
        name: at if isinstance(at := getattr(value, name), datetime) else field
        for name, field in json_of(value).items()
    }


def desired_of(row: Row) -> Desired:
    return value_of(Desired, {**row, "overrides": row["overrides"] or {}})


def declaration_of(row: Row) -> StreamDeclaration:
    return value_of(StreamDeclaration, {**row["body"], "name": row["name"]})


def topic_ends_row(value: TopicEnds) -> dict[str, Any]:
    body = json_of(value)
    return {"stream": body.pop("stream"), "source": body.pop("source"), "at": value.at, "body": body}


def topic_ends_of(row: Row) -> TopicEnds:
    return value_of(TopicEnds, {**row["body"], **{name: row[name] for name in ("stream", "source", "at")}})


def backlog_row(stream: str, value: Backlog) -> dict[str, Any]:
    body = json_of(value)
    del body["seen_at"]
    return {"stream": stream, "seen_at": value.seen_at, "body": body}


def backlog_of(row: Row) -> tuple[str, Backlog]:
    """With its stream."""
    return row["stream"], value_of(Backlog, {**row["body"], "seen_at": row["seen_at"]})


def judgement_row(value: Judgement) -> dict[str, Any]:
    expectation = value.expectation
    key = {"uri": expectation.uri, "name": expectation.name, "pipeline": expectation.pipeline}
    return row_of(value) | key


def observed_row(value: Observed) -> dict[str, Any]:
    """Without `last_trigger_at`: the listener owns that column."""
    return {name: field for name, field in row_of(value).items() if name != "last_trigger_at"}


def progress_row(value: Progress) -> dict[str, Any]:
    row = row_of(value)
    return row | {"raw": pack(row.pop("raw_json"))}


def progress_of(row: Row) -> Progress:
    """What was not asked for is empty."""
    fields = {name: field for name, field in row.items() if field is not None or name not in PROGRESS_LONG}
    return value_of(Progress, fields | {"raw_json": unpack(fields["raw"]) if "raw" in fields else ""})


def rollup_row(value: Rollup) -> dict[str, Any]:
    """Without its stream, its grain and its place in time."""
    row = row_of(value)
    for name in ROLLUP_SUMS:
        row |= {name: row[name]["total"], f"{name}_known": row[name]["known"]}
    row["expectations"] = [list(total.values()) for total in row["expectations"]]  # their names in each row cost much
    return row


def rollup_of(row: Row) -> Rollup:
    fields = dict(row)
    for name in ROLLUP_SUMS:
        fields[name] = Sum(fields[name], fields[f"{name}_known"])
    fields["expectations"] = [ArgsKwargs(tuple(total)) for total in fields["expectations"]]
    return value_of(Rollup, fields)


def host_of(row: Row) -> HostHeartbeat:
    """Also of an attached application, which has no tags and runs no stream of ours."""
    return value_of(HostHeartbeat, {name: field for name, field in row.items() if field is not None})


def job_row(value: Job) -> dict[str, Any]:
    row = row_of(value)
    del row["progress"]
    return row | job_progress_row(value.progress)


def job_progress_row(value: JobProgress) -> dict[str, Any]:
    return {"phase": value.phase, "done_units": value.done, "total_units": value.total}


def job_of(row: Row) -> Job:
    if not _JOB_ID.fullmatch(row["job_id"]):
        raise ValueError("job_id: it is no name of a job")
    progress = {"phase": row["phase"], "done": row["done_units"], "total": row["total_units"]}
    return value_of(Job, {**row, "progress": progress})
