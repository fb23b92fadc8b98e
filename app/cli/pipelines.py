"""`weir pipelines check|graph|latency`.

Rule: declarations are Spark code, so they are checked by a process of their own; what runs is read from the store, by
modules that a check does not wait for.
"""

import json
import os
import subprocess
import sys
from typing import Annotated

import typer

from app import services
from app.cli.options import AsJson
from app.cli.output import only, print_json, print_table, say
from backend.errors import LakehouseError
from backend.format import duration_text, utc_text

CHECK_LIMIT_S = 300
_FOUND = 1  # the checker's exit code when it found problems
_LATENCY = only("layer", "complete_until", "slowest", "unknown", latency_s="seconds")


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
        raise _failure(ended)
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
    from app.cli.store import streams_and_hosts
    from backend.streams.graph import build_graph
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
    states = {node.name: node.state for node in graph.nodes}
    print_table(
        ("from", "to", "state", "rows/min"),
        (
            (
                edge.source,
                edge.target,
                states[edge.target] or "–",
                "–" if edge.rows_per_min is None else f"{edge.rows_per_min:,.0f}",
            )
            for edge in graph.edges
        ),
        right=("rows/min",),
    )


def latency(as_json: AsJson = False) -> None:
    from app.cli.store import streams_and_hosts
    from backend.streams.backlog import BacklogReader
    from backend.streams.latency import pipeline_latencies, read_trails

    latencies, store = [], services.existing_store()
    if store is not None:
        statuses, reader = streams_and_hosts()[0], BacklogReader(services.settings(), services.lake())
        latencies = pipeline_latencies(statuses, read_trails(store, reader, statuses, now=store.now()))
    if as_json:
        print_json([{"pipeline": pipeline} | _LATENCY(layer) for pipeline, layer in latencies])
        return
    if not latencies:
        say("No streams: no host has declared any yet.")
        return
    print_table(
        ("pipeline", "layer", "latency", "complete until", "slowest"),
        (
            (
                pipeline,
                layer.layer,
                duration_text(layer.seconds),
                utc_text(layer.complete_until),
                layer.slowest or "–",
            )
            for pipeline, layer in latencies
        ),
        right=("latency",),
    )
    for name in dict.fromkeys(name for _, layer in latencies for name in layer.unknown):
        say(f"{name}: not known how far it and what feeds it have read", style="dim")


def _failure(ended: subprocess.CompletedProcess[str]) -> CheckError:
    lines = ended.stderr.strip().splitlines() or ["it printed nothing"]
    answer = {
        line.split(": ", 1)[0]: line.split(": ", 1)[-1] for line in lines if line.startswith(("error: ", "hint: "))
    }
    error = CheckError(answer.get("error", lines[-1]), hint=answer.get("hint", "see python -m pipelines.declare.check"))
    error.exit_code = ended.returncode if answer else 1
    return error
