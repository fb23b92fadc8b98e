"""What a query of another Spark application reports, event by event."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa

from backend.stream_model.attached import AttachedEvent

NOW = datetime(2026, 11, 23, 10, tzinfo=UTC)
RUN, ID = "run-1", "12345678-aaaa"
SOURCES = [
    {"description": "DeltaSource[file:/lake/bronze/orders]", "endOffset": {}},
    {"description": "KafkaV2[Subscribe[orders,returns]]", "endOffset": {}},
    {"description": "FileStreamSource[s3a://landing/a b]", "endOffset": {}},
    {"description": "RateStreamV2[rowsPerSecond=1, numPartitions=default", "endOffset": {}},
    {"description": "org.example.OwnSource@1", "endOffset": {}},
]


def event(kind: str, app: str = "app-1", seconds: int = 0, **facts: Any) -> AttachedEvent:
    return AttachedEvent(app, NOW + timedelta(seconds=seconds), json.dumps({"event": kind, **facts}))


def beat(app: str = "app-1", seconds: int = 0, name: str = "etl") -> AttachedEvent:
    told = {"name": name, "hostname": "vm", "pid": 7, "spark_version": "3.5.8", "spark_ui_url": None}
    return event("beat", app, seconds, **told)


def started(app: str = "app-1", run_id: str = RUN, query: str | None = "orders") -> AttachedEvent:
    facts = {"trigger": "ProcessingTimeTrigger(5000)", "checkpoint": "file:/cp/orders"}
    return event("started", app, 1, id=ID, run_id=run_id, query=query, **facts)


def progress(batch: int = 3, run_id: str = RUN, name: str | None = "orders", **more: Any) -> AttachedEvent:
    told = {
        "id": ID,
        "runId": run_id,
        "name": name,
        "batchId": batch,
        "timestamp": "2026-11-23T10:00:02.000Z",
        "numInputRows": 5,
        "durationMs": {"triggerExecution": 1_000},
        "sources": SOURCES,
        "sink": {"description": "DeltaSink[file:/lake/silver/orders]"},
    }
    return event("progress", seconds=2, progress=json.dumps({**told, **more}))


INBOX = sa.table("attached_event", sa.column("app_id"), sa.column("body"), sa.column("at"))


def report(inbox: sa.Engine, *events: AttachedEvent) -> None:
    """As applications write them: two columns of one table."""
    with inbox.begin() as connection:
        connection.execute(sa.insert(INBOX), [{"app_id": event.app_id, "body": event.body} for event in events])


def waiting(inbox: sa.Engine) -> int:
    with inbox.connect() as connection:
        return int(connection.execute(sa.select(sa.func.count()).select_from(INBOX)).scalar_one())
