"""The streams of other Spark applications, from the events that `weir_attach` leaves in the store's inbox.

Rule: pure. Such a stream has no desired state: nobody here starts or stops it. An event that cannot be read is left
out; one application's events reach no stream but its own.
"""

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from backend.errors import LakehouseError
from backend.lake.storage.folder import is_within, normal_uri
from backend.stream_model.progress import parse_progress, spark_time
from backend.stream_model.stream import (
    ATTACHED,
    AttachedApp,
    HostHeartbeat,
    InputKind,
    Observed,
    Progress,
    StreamDeclaration,
    StreamFailure,
    StreamInput,
    StreamState,
)

LONGEST_NAME = 120
LONGEST_MESSAGE = 2_000
_SOURCE = re.compile(r"(?P<kind>Delta|FileStream|KafkaV\d|Rate)\w*\[(?P<what>.*?)\]?", re.S)
_TOPICS = re.compile(r"Subscribe\w*\[(.*)\]", re.S)
_TRIGGER = re.compile(r"ProcessingTimeTrigger\((\d+)\)")
_SHUT_DOWN = re.compile(r"SparkContext (was|has been) shut ?down|stopped SparkContext")
_ERROR_CLASS = re.compile(r"\[([A-Z][A-Z0-9_.]+)\]")


@dataclass(frozen=True, slots=True)
class AttachedEvent:
    """`at`: when the store took it, by its own clock."""

    app_id: str
    at: datetime
    body: str


@dataclass(slots=True)
class Attached:
    """What is known of attached streams, by name, and of their applications, by id; `take` brings it up to date.

    `hosted`: the names of streams that hosts run, which no application may take.
    """

    roots: Sequence[str]
    apps: dict[str, AttachedApp]
    declarations: dict[str, StreamDeclaration]
    observed: dict[str, Observed]
    hosted: Collection[str] = ()
    progress: list[Progress] = field(default_factory=list)
    signs: dict[str, datetime] = field(default_factory=dict)
    changed: set[str] = field(default_factory=set)
    reported: set[str] = field(default_factory=set)
    unreadable: int = 0

    def take(self, events: Iterable[AttachedEvent]) -> None:
        """In the order in which they were written."""
        for event in events:
            try:
                body = json.loads(event.body)
                self._take(event, body["event"], body)
            except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError, LakehouseError):
                self.unreadable += 1

    def _take(self, event: AttachedEvent, kind: str, body: Mapping[str, Any]) -> None:
        if kind == "beat":
            self.apps[event.app_id] = _app(event, body, self.apps.get(event.app_id))
            self.reported.add(event.app_id)
            return
        app = self.apps[event.app_id]
        match kind:
            case "started":
                self._start(app, event.at, body)
            case "progress":
                self._progress(app, event.at, parse_progress(body["progress"]))
            case "idle":
                self.signs[self._of_run(app, body)] = spark_time(body["at"])
            case "terminated":
                self._end(self._of_run(app, body), event.at, body["problem"])
            case "ended":
                for name, seen in self.observed.items():
                    if seen.host_id == app.host.host_id and seen.state.flows:
                        self._end(name, event.at, None)

    def _start(self, app: AttachedApp, at: datetime, body: Mapping[str, Any]) -> str:
        name = self._name(app, body.get("query"), body["id"])
        trigger = _TRIGGER.search(str(body.get("trigger")))
        declared = self.declarations.get(name) or _blank(app, name)
        self.declarations[name] = replace(
            declared,
            pipeline=app.name,
            trigger_interval_ms=int(trigger[1]) if trigger else declared.trigger_interval_ms,
            checkpoint_location=_uri(str(body.get("checkpoint") or declared.checkpoint_location)),
        )
        self.observed[name] = Observed(
            name, StreamState.RUNNING, app.host.host_id, 0, at, str(body["id"]), str(body["run_id"]), at
        )
        self.changed.add(name)
        return name

    def _progress(self, app: AttachedApp, at: datetime, batch: Progress) -> None:
        name, ended_at = self._name(app, batch.stream, batch.query_id), batch.ended_at  # no time is later than 9999
        seen = self.observed.get(name)
        if seen is None or seen.run_id != batch.run_id:  # its start was lost while the store was away
            self._start(app, at, {"query": batch.stream, "id": batch.query_id, "run_id": batch.run_id})
        self.progress.append(replace(batch, stream=name))
        self.signs[name] = ended_at
        described = _with_ends(self.declarations[name], json.loads(batch.raw_json), self.roots)
        if described != self.declarations[name]:
            self.declarations[name] = described
            self.changed.add(name)

    def _end(self, name: str, at: datetime, problem: str | None) -> None:
        seen = self.observed[name]
        if problem and _SHUT_DOWN.search(problem):
            problem = None  # its application ended beneath it
        state = StreamState.FAILED if problem else StreamState.STOPPED
        failures = (_failure(problem, at),) if problem else ()
        self.observed[name] = replace(seen, state=state, observed_at=at, failures=failures)
        self.changed.add(name)

    def _name(self, app: AttachedApp, query: str | None, query_id: str) -> str:
        name = _one_line(f"{app.name}.{query or query_id[:8]}")[:LONGEST_NAME]
        if name in self.hosted:
            raise KeyError(name)
        return name

    def _of_run(self, app: AttachedApp, body: Mapping[str, Any]) -> str:
        """Raises `KeyError` for a run that is not known, or another application's."""
        run_id = body["run_id"]
        for name, seen in self.observed.items():
            if seen.run_id == run_id and seen.host_id == app.host.host_id:
                return name
        raise KeyError(run_id)


def _app(event: AttachedEvent, body: Mapping[str, Any], before: AttachedApp | None) -> AttachedApp:
    host = HostHeartbeat(
        event.app_id,
        str(body["hostname"]),
        int(body["pid"]),
        before.host.started_at if before else event.at,
        event.at,
        str(body["spark_version"]),
        body.get("spark_ui_url"),
    )
    return AttachedApp(_one_line(str(body["name"]))[:LONGEST_NAME], host)


def _blank(app: AttachedApp, name: str) -> StreamDeclaration:
    return StreamDeclaration(
        name=name,
        description=f"A query of the Spark application {app.name}, which runs it.",
        source="not told yet",
        sink_uri="",
        sink_table="",
        source_tables=(),
        layer=None,
        trigger_interval_ms=0,
        checkpoint_location="",
        kind=ATTACHED,
        reset_allowed=False,
    )


def _with_ends(declared: StreamDeclaration, event: Mapping[str, Any], roots: Sequence[str]) -> StreamDeclaration:
    """With what it reads and writes, as a batch's JSON describes that."""
    inputs = tuple(_input(str(each.get("description")), roots) for each in event.get("sources") or ())
    sink = str((event.get("sink") or {}).get("description"))
    delta = _SOURCE.fullmatch(sink)
    uri = _uri(delta["what"]) if delta and delta["kind"] == "Delta" else ""
    path = _path(uri, roots) if uri else ""
    return replace(
        declared,
        source=", ".join(each.name for each in inputs) or declared.source,
        inputs=inputs,
        source_tables=tuple(source.name for source in inputs if source.is_table),
        sink_uri=uri,
        sink_table=path,
        layer=path.partition("/")[0] if "/" in path and not path.startswith("/") and "://" not in path else None,
        sink=declared.sink if uri else "sink",
        outside="" if uri else re.split(r"[\[@$]", sink)[0].rpartition(".")[2],
    )


def _input(description: str, roots: Sequence[str]) -> StreamInput:
    match = _SOURCE.fullmatch(description)
    if match is None:
        return StreamInput(InputKind.OTHER, description)
    what = match["what"]
    match match["kind"]:
        case "Delta":
            uri = _uri(what)
            return StreamInput(InputKind.TABLE, _path(uri, roots), uri)
        case "FileStream":
            return StreamInput(InputKind.FILES, f"files in {_uri(what)}", _uri(what))
        case "Rate":
            return StreamInput(InputKind.RATE, "made-up rows")
    topics = _TOPICS.fullmatch(what)
    return StreamInput(InputKind.KAFKA, f"Kafka {topics[1] if topics else what}")


def _uri(hadoop: str) -> str:
    """ "file:/lake/a" is "/lake/a", "s3a://b/c" is "s3://b/c"."""
    plain = re.sub(r"^file:/+", "/", hadoop)
    return re.sub(r"^s3[an]://", "s3://", plain)


def _path(uri: str, roots: Sequence[str]) -> str:
    """Below the lake's root, as other streams name their tables; the URI where it lies elsewhere."""
    normal = normal_uri(uri)
    inside = [root for root in map(normal_uri, roots) if is_within(normal, root) and normal != root]
    return normal[len(max(inside, key=len)) :].strip("/") if inside else uri


def _failure(problem: str, at: datetime) -> StreamFailure:
    """The innermost cause that Spark's text names."""
    lines = [line.strip() for line in problem.splitlines() if line.strip()]
    causes = [line.removeprefix("Caused by:").strip() for line in lines if line.startswith("Caused by:")]
    last = (causes or lines or ["no message"])[-1 if causes else 0]
    named = _ERROR_CLASS.search(last) or _ERROR_CLASS.search(problem)
    if named:
        message = last[last.index(named[0]) :] if named[0] in last else last
        return StreamFailure(named[1], message.partition(" SQLSTATE: ")[0][:LONGEST_MESSAGE], None, at)
    java_class, colon, message = last.partition(": ")
    error_class = java_class.rpartition(".")[2] if colon else "Unknown"
    return StreamFailure(error_class[:LONGEST_NAME], (message or last)[:LONGEST_MESSAGE], None, at)


def _one_line(text: str) -> str:
    return " ".join(text.split())
