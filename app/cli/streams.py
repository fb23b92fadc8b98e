"""`weir streams|stream`, `weir pipelines check|graph|latency`.

Rule: reads through the control store; a store that does not exist is not made by asking for it. Declarations are Spark
code, so they are checked by a process of their own.
"""

import json
import os
import subprocess
import sys
from operator import itemgetter
from typing import TYPE_CHECKING, Annotated

import typer

from app import services
from app.cli.commands import AsJson, StreamName
from app.cli.output import Document, Shapes, fields_of, only, print_json, print_list, say, shaped
from app.cli.store import NO_HOST_HINT, BacklogLooks, is_host_alive, stream_named, streams_and_hosts
from app.columns import Column, Columns, document
from app.ui.states import observed_of, stream_columns, verdict_of
from app.ui.view.theme import state_text
from backend.errors import LakehouseError
from backend.format import UNKNOWN, ago, rate_text, things, utc_text, value_text
from backend.stream_model.backlog import (
    Backlog,
    SourceBacklog,
    data_loss_sentence,
    source_sentence,
    waiting,
)
from backend.stream_model.overrides import Setting, overridden_text
from backend.stream_model.progress import observed_metrics
from backend.stream_model.stream import Desired, Progress, StreamFailure, StreamState
from backend.streams.faults import Fault, recognise
from backend.streams.graph import Edge, Graph, build_graph
from backend.streams.verdict import StreamStatus

if TYPE_CHECKING:
    from backend.streams.latency import LayerLatency

CHECK_LIMIT_S = 300
_FOUND = 1  # the checker's exit code when it found problems


def streams(as_json: AsJson = False) -> None:
    statuses, hosts = streams_and_hosts(BacklogLooks())
    if as_json:
        print_json([line(status) for status in statuses], SHAPES)
        return
    if not statuses:
        say("No streams: no host has declared any yet.")
        say(NO_HOST_HINT, style="dim")
        return
    print_list(stream_columns(services.now()), statuses)
    ours = [status for status in statuses if not status.declaration.is_attached]
    if ours and not is_host_alive(hosts):
        say(f"No host is alive: {things(len(ours), 'stream')} of this lake cannot move.", style="yellow")


def stream(name: StreamName, as_json: AsJson = False) -> None:
    from app.streams.text import pace_text  # with what reads and repairs rows: 0.3 s that a list does not need

    status = stream_named(name, streams_and_hosts(BacklogLooks())[0])
    if as_json:
        print_json(line(status) | _rest(status), SHAPES)
        return
    declaration, progress, now = status.declaration, status.progress, services.now()
    say(f"{name} · {state_text(observed_of(status))} · {state_text(verdict_of(status))}", style="bold")
    say(declaration.description)
    say(status.because)
    say()
    wish, dropped, loss = status.desired, status.rows_dropped_by_watermark, None
    waits = list[str]()
    if status.backlog is not None:
        waits = [f"{source.name}: {source_sentence(source, now=now)}" for source in status.backlog.sources]
        loss = status.backlog.data_loss
    too_late = f" · {things(dropped, 'row')} dropped as too late in its newest batches" if dropped else ""
    lines = {
        "desired": f"{wish.state} ({wish.actor}, {ago(wish.requested_at, now)}: {wish.reason})" if wish else UNKNOWN,
        "host": (status.observed.host_id if status.observed else None) or "–",
        "source": declaration.source,
        "sink": f"{declaration.writes_to}" + (f" ({declaration.sink_uri})" if declaration.sink_uri else ""),
        "trigger": pace_text(declaration),
        **({"overrides": overridden_text(status.overrides)} if status.overrides else {}),
        "checkpoint": declaration.checkpoint_location,
        "query id": (status.observed.query_id if status.observed else None) or "–",
        "batch": f"{progress.batch_id} · {ago(progress.progressed_at, now)}" if progress else "–",
        "rates": f"in {rate_text(status.input_rows_per_s)}, out {rate_text(status.processed_rows_per_s)}",
        "watermark": f"{utc_text(progress.watermark) if progress else '–'}{too_late}",
    }
    for label, text in lines.items():
        say(f"{label:<11} {text}")
    for place, text in enumerate([*waits, *([data_loss_sentence(loss, now=now)] if loss else ())]):
        say(f"{'' if place else 'waits':<11} {text}")
    for place, metric in enumerate(observed_metrics(progress)):
        say(f"{'' if place else 'observed':<11} {metric.observation}.{metric.name} {value_text(metric.value)}")
    _say_failures(status)


# JSON ------------------------------------------------------------------------------------------------------------


_SOURCE = only("name", "kind", "lost", "data_loss", "detail", "unknown")
_STREAM = only(
    "state",
    "verdict",
    "because",
    "input_rows_per_s",
    "processed_rows_per_s",
    "backlog",
    "starved_by",
    "rows_dropped_by_watermark",
    empty_is_null=("sink_table",),
    desired="desired.state",
    batch_id="progress.batch_id",
    last_progress_at="progress.progressed_at",
    **{name: f"observed.{name}" for name in ("query_id", "run_id", "host_id")},
    since="observed.observed_at",
    seen_at="host.beat_at",
    observed_at="observed.observed_at",  # the same as `since`, as it was called before
    data_loss_at="backlog.data_loss.at",
    **{name: f"declaration.{name}" for name in ("name", "layer", "sink_table", "writes_to")},
)
_DECLARED = (
    "description",
    "source",
    "source_tables",
    "sink_uri",
    "trigger_interval_ms",
    "checkpoint_location",
    "expectations",
    "kind",
    "pipeline",
    "side_tables",
    "also",
    "tags",
    "reset_allowed",
)
_DETAILS = only(
    "progress",
    "overrides",
    empty_is_null=("sink_uri",),
    request="desired",
    started_at="observed.started_at",
    next_start_at="observed.next_start_at",
    **{name: f"declaration.{name}" for name in _DECLARED},
)
SHAPES: Shapes = {
    Backlog: lambda waits: waiting(waits) | {"oldest_unread_at": waits.oldest_unread_at, "drain_s": waits.drain_s},
    SourceBacklog: lambda source: (
        _SOURCE(source) | {"backlog": waiting(source) | {"oldest_unread_at": source.oldest_unread_at}}
    ),
    StreamFailure: lambda failure: fields_of(failure) | {"faults": recognise(failure)},
    Fault: only("name", "cause", "remedy"),
    Progress: shaped(without=("raw_json", "stream")),
    Setting: only("key", "declared", "now"),
    Desired: only("generation", "reason", "actor", at="requested_at"),
}


def line(status: StreamStatus) -> Document:
    """What `weir streams` prints of one."""
    observed = status.observed
    # A stream that runs again has no error any more.
    is_troubled = observed is not None and observed.state in (StreamState.FAILED, StreamState.BACKOFF)
    failure = observed.last_failure if observed and is_troubled else None
    return _STREAM(status) | {"error": f"{failure.error_class}: {failure.message}" if failure else None}


def _rest(status: StreamStatus) -> Document:
    """What `weir stream` adds."""
    return _DETAILS(status) | {
        "sources": status.backlog.sources if status.backlog else [],
        "failures": status.observed.failures if status.observed else [],
        "metrics": observed_metrics(status.progress),
    }


# for people ------------------------------------------------------------------------------------------------------


def _say_failures(status: StreamStatus) -> None:
    observed = status.observed
    if observed is None or observed.last_failure is None:
        return
    for failure in observed.failures:
        say(f"failed {ago(failure.failed_at, services.now())}: {failure.error_class}: {failure.message}", style="red")
    for fault in recognise(observed.last_failure):
        say(f"{fault.name}. {fault.cause}")
        say(f"→ {fault.remedy}")
    say(f"`weir preflight {status.declaration.name}` shows what stands against a restart.", style="dim")


# pipelines --------------------------------------------------------------------------------------------------------


class CheckError(LakehouseError):
    """The declared pipelines could not be checked."""


def check(
    module: Annotated[str | None, typer.Argument(help="A Python module; else those of `host.pipelines`.")] = None,
    as_json: AsJson = False,
) -> int:
    """All that is wrong with the declared pipelines; 0 when nothing is, 2 when something is."""
    services.settings()  # refuses wrong settings in the usual words
    command = [sys.executable, "-m", "pipelines.declare.check", *([module] if module else [])]
    try:
        ended = subprocess.run(
            command, capture_output=True, text=True, timeout=CHECK_LIMIT_S, check=False, env={**os.environ}
        )
    except subprocess.TimeoutExpired as exc:
        raise CheckError(f"the check took over {CHECK_LIMIT_S} s", hint="look for code that runs on import") from exc
    problems = [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("{")]
    if ended.returncode not in (0, _FOUND):
        raise _check_error(ended)
    if as_json:
        print_json({"ok": not problems, "problems": problems})
    elif not problems:
        say("Nothing is wrong: every stream can start.")
    for problem in () if as_json else problems:
        say(f"{problem['file']}:{problem['line']}: {problem['name']}: {problem['message']}", style="red")
        if problem["hint"]:
            say(f"    {problem['hint']}", style="dim")
    return 2 if problems else 0


def graph(as_json: AsJson = False) -> None:
    from backend.streams.status import RecentBatches

    statuses, store, now = streams_and_hosts()[0], services.existing_store(), services.now()
    declared = [status.declaration for status in statuses]
    graph = build_graph(statuses, RecentBatches().read(store, declared, now=now) if store else {}, now=now)
    if as_json:
        print_json(graph)
        return
    if not graph.nodes:
        say("No streams: no host has declared any yet.")
        return
    print_list(edge_columns(graph), graph.edges)


def edge_columns(graph: Graph) -> list[Column[Edge]]:
    """What a stream reads, and how fast."""
    states = {node.name: state_text(node.state) if node.state else None for node in graph.nodes}
    return [
        Column("From", lambda edge: edge.source, key="source"),
        Column("To", lambda edge: edge.target, key="target"),
        Column("State", lambda edge: states[edge.target]),
        Column("Rows/min", lambda edge: edge.rows_per_min, "count", key="rows_per_min"),
    ]


def latency(as_json: AsJson = False) -> None:
    from backend.streams.backlog import BacklogReader
    from backend.streams.latency import pipeline_latencies, read_trails

    latencies, store = [], services.existing_store()
    if store is not None:
        statuses, reader = streams_and_hosts()[0], BacklogReader(services.settings(), services.own_lake())
        latencies = pipeline_latencies(statuses, read_trails(store, reader, statuses, now=store.now()))
    if as_json:
        print_json([document(LATENCIES, latency) | {"unknown": latency[1].unknown} for latency in latencies])
        return
    if not latencies:
        say("No streams: no host has declared any yet.")
        return
    print_list(LATENCIES, latencies)
    for name in dict.fromkeys(name for _, layer in latencies for name in layer.unknown):
        say(f"{name}: not known how far it and what feeds it have read", style="dim")


LATENCIES: "Columns[tuple[str, LayerLatency]]" = (
    Column("Pipeline", itemgetter(0), key="pipeline"),
    Column("Layer", lambda latency: latency[1].layer, key="layer"),
    Column("Latency", lambda latency: latency[1].seconds, "duration", key="latency_s"),
    Column("Complete until", lambda latency: latency[1].complete_until, "moment", key="complete_until"),
    Column("Slowest", lambda latency: latency[1].slowest, key="slowest"),
)


def _check_error(ended: subprocess.CompletedProcess[str]) -> CheckError:
    lines = ended.stderr.strip().splitlines() or ["it printed nothing"]
    answer = {
        line.split(": ", 1)[0]: line.split(": ", 1)[-1] for line in lines if line.startswith(("error: ", "hint: "))
    }
    error = CheckError(answer.get("error", lines[-1]), hint=answer.get("hint", "see python -m pipelines.declare.check"))
    error.exit_code = ended.returncode if answer else 1
    return error
