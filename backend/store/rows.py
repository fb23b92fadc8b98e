"""Values of `backend.stream_model` to rows of the store and back.

Rule: a round trip gives an equal value; nothing here touches a database.
"""

from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Any

from backend.expectations.model import ExpectationKind, Finding, Judgement, State, TableExpectation
from backend.jobs.model import Job, JobKind, JobProgress, JobState
from backend.store.packed import pack, unpack
from backend.store.schema import ROLLUP_SUMS
from backend.stream_model.batches import ExpectationTotal
from backend.stream_model.rollup import Rollup, Sum
from backend.stream_model.stream import (
    AuditEntry,
    Desired,
    DesiredState,
    ExpectationCount,
    HostHeartbeat,
    Lease,
    Observed,
    Output,
    Progress,
    StreamDeclaration,
    StreamFailure,
    StreamInput,
    StreamState,
    TopicEnds,
)

Row = Mapping[Any, Any]  # keys are column names; SQLAlchemy types them more widely


def desired_of(row: Row) -> Desired:
    return Desired(**{**row, "state": DesiredState(row["state"]), "overrides": row["overrides"] or {}})


def declaration_body(value: StreamDeclaration) -> dict[str, Any]:
    return asdict(value)


def declaration_of(body: Row) -> StreamDeclaration:
    lists = {key: tuple(body.get(key, ())) for key in ("source_tables", "expectations", "side_tables")}
    inputs = tuple(StreamInput(**each) for each in body.get("inputs", ()))
    also = tuple(Output(**each) for each in body.get("also", ()))
    return StreamDeclaration(**{**body, **lists, "inputs": inputs, "also": also})


_OFFSETS = ("firsts", "ends", "starts", "read")


def topic_ends_row(value: TopicEnds) -> dict[str, Any]:
    body = asdict(value)
    row = {name: body.pop(name) for name in ("stream", "source", "at")}
    unread = {
        topic: {partition: [offset, at.isoformat()] for partition, (offset, at) in of.items()}
        for topic, of in value.unread.items()
    }
    return {**row, "body": {**body, "unread": unread}}


def topic_ends_of(row: Row) -> TopicEnds:
    """JSON has texts for keys; partitions are numbers."""
    body = row["body"]
    offsets = {
        name: {topic: {int(partition): offset for partition, offset in of.items()} for topic, of in body[name].items()}
        for name in _OFFSETS
        if name in body
    }
    unread = {
        topic: {int(partition): (offset, datetime.fromisoformat(at)) for partition, (offset, at) in of.items()}
        for topic, of in body["unread"].items()
    }
    return TopicEnds(
        row["stream"], row["source"], row["at"], **offsets, unread=unread,
        retention_ms=body["retention_ms"], problem=body["problem"],
    )  # fmt: skip


_FINDING_TIMES = ("since", "last_data_at")


def judgement_row(value: Judgement) -> dict[str, Any]:
    finding = asdict(value.finding)
    times = {name: at.isoformat() if (at := finding[name]) else None for name in _FINDING_TIMES}
    return {
        "uri": value.expectation.uri,
        "name": value.expectation.name,
        "pipeline": value.expectation.pipeline,
        "host_id": value.host_id,
        "judged_at": value.judged_at,
        "broken_since": value.broken_since,
        "expectation": asdict(value.expectation),
        "finding": finding | times,
    }


def judgement_of(row: Row) -> Judgement:
    said, found = dict(row["expectation"]), dict(row["finding"])
    said |= {"kind": ExpectationKind(said["kind"]), "columns": tuple(said["columns"])}
    found |= {name: datetime.fromisoformat(at) if (at := found[name]) else None for name in _FINDING_TIMES}
    found |= {"state": State(found["state"]), "examples": tuple(found["examples"])}
    found |= {"usual": tuple(found["usual"]) if found["usual"] else None}
    return Judgement(TableExpectation(**said), Finding(**found), row["host_id"], row["judged_at"], row["broken_since"])


def observed_row(value: Observed) -> dict[str, Any]:
    """Without `last_trigger_at`: the listener owns that column."""
    row = {name: getattr(value, name) for name in value.__dataclass_fields__ if name != "last_trigger_at"}
    return {**row, "state": str(value.state), "failures": [_failure_row(failure) for failure in value.failures]}


def observed_of(row: Row) -> Observed:
    failures = tuple(_failure_of(failure) for failure in row["failures"])
    return Observed(**{**row, "state": StreamState(row["state"]), "failures": failures})


def progress_row(value: Progress) -> dict[str, Any]:
    row = {name: getattr(value, name) for name in value.__dataclass_fields__ if name != "raw_json"}
    return {
        **row,
        "durations_ms": dict(value.durations_ms),
        "expectations": [asdict(count) for count in value.expectations],
        "raw": pack(value.raw_json),
    }


def progress_of(row: Row) -> Progress:
    fields = {key: value for key, value in row.items() if key not in ("id", "raw", "counted")}
    expectations = tuple(ExpectationCount(**count) for count in row["expectations"])
    raw_json = unpack(row["raw"]) if "raw" in row else ""
    return Progress(**{**fields, "expectations": expectations, "raw_json": raw_json})


def rollup_row(value: Rollup) -> dict[str, Any]:
    """Without its stream, its grain and its place in time."""
    row = {name: getattr(value, name) for name in value.__dataclass_fields__}
    for name in ROLLUP_SUMS:
        row |= {name: row[name].total, f"{name}_known": row[name].known}
    failed_at = [each.last_failed_at.isoformat() if each.last_failed_at else None for each in value.expectations]
    totals = [[each.name, each.passed, each.failed, at] for each, at in zip(value.expectations, failed_at, strict=True)]
    return row | {"phases_ms": dict(value.phases_ms), "expectations": totals}


def rollup_of(row: Row) -> Rollup:
    fields = {name: row[name] for name in Rollup.__dataclass_fields__}
    for name in ROLLUP_SUMS:
        fields[name] = Sum(row[name], row[f"{name}_known"])
    totals = [
        ExpectationTotal(name, passed, failed, datetime.fromisoformat(at) if at else None)
        for name, passed, failed, at in row["expectations"]
    ]
    return Rollup(**fields | {"expectations": tuple(totals)})


def host_of(row: Row) -> HostHeartbeat:
    """Also of an attached application, which has no tags and runs no stream of ours."""
    lists = {key: tuple(row.get(key) or ()) for key in ("tags", "streams")}
    return HostHeartbeat(**{**row, **lists})


def lease_of(row: Row) -> Lease:
    return Lease(**row)


def audit_of(row: Row) -> AuditEntry:
    return AuditEntry(**{key: value for key, value in row.items() if key != "id"})


def job_row(value: Job) -> dict[str, Any]:
    row = {name: getattr(value, name) for name in value.__dataclass_fields__ if name != "progress"}
    return {**row, "kind": str(value.kind), "state": str(value.state), **job_progress_row(value.progress)}


def job_progress_row(value: JobProgress) -> dict[str, Any]:
    return {"phase": value.phase, "done_units": value.done, "total_units": value.total}


def job_of(row: Row) -> Job:
    progress = JobProgress(row["phase"], row["done_units"], row["total_units"])
    fields = {key: value for key, value in row.items() if key not in ("phase", "done_units", "total_units")}
    state, kind = JobState(row["state"]), JobKind(row["kind"])
    return Job(**{**fields, "kind": kind, "state": state, "progress": progress})


def _failure_row(failure: StreamFailure) -> dict[str, Any]:
    return {**asdict(failure), "failed_at": failure.failed_at.isoformat()}


def _failure_of(row: Row) -> StreamFailure:
    return StreamFailure(**{**row, "failed_at": datetime.fromisoformat(row["failed_at"])})
