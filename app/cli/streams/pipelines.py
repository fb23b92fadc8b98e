"""`weir pipelines check|graph|latency`.

Rule: declarations are Spark code, so they are checked by a process of their own; what runs is read from the store.
"""

import json
import os
import subprocess
import sys

from app.cli.output import now, print_json, print_table, say
from app.cli.streams import documents
from app.cli.streams.listing import control_store, known_streams
from app.cli.tables.lake import services
from backend.errors import LakehouseError
from backend.format import duration_text, utc_text
from backend.streams.backlog.reader import BacklogReader
from backend.streams.graph import Graph, build_graph
from backend.streams.latency import LayerLatency, pipeline_latencies, read_trails
from backend.streams.recent import RecentBatches

CHECK_LIMIT_S = 300
_FOUND = 1  # the checker's exit code when it found problems


class CheckError(LakehouseError):
    """The declared pipelines could not be checked."""


def check(module: str | None, *, as_json: bool) -> int:
    """All that is wrong with the declared pipelines; 0 when nothing is, 2 when something is."""
    services()  # refuses wrong settings in the usual words
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


def graph(*, as_json: bool) -> int:
    found = _graph()
    if as_json:
        print_json(documents.graph(found))
        return 0
    if not found.nodes:
        say("No streams: no host has declared any yet.")
        return 0
    kinds = {node.name: node for node in found.nodes}
    rows = (
        (
            edge.source,
            edge.target,
            kinds[edge.target].state.value if kinds[edge.target].state else "–",
            "–" if edge.rows_per_min is None else f"{edge.rows_per_min:,.0f}",
        )
        for edge in found.edges
    )
    print_table(("from", "to", "state", "rows/min"), rows, right=("rows/min",))
    return 0


def latency(*, as_json: bool) -> int:
    found = _latencies()
    if as_json:
        print_json([documents.layer_latency(pipeline, each) for pipeline, each in found])
        return 0
    if not found:
        say("No streams: no host has declared any yet.")
        return 0
    rows = (
        (
            pipeline,
            each.layer,
            duration_text(each.seconds),
            utc_text(each.complete_until),
            each.slowest or "–",
        )
        for pipeline, each in found
    )
    print_table(("pipeline", "layer", "latency", "complete until", "slowest"), rows, right=("latency",))
    for name in dict.fromkeys(name for _, each in found for name in each.unknown):
        say(f"{name}: not known how far it and what feeds it have read", style="dim")
    return 0


def _latencies() -> list[tuple[str, LayerLatency]]:
    """Those of each pipeline, in the order of the graph."""
    settings, lake = services()
    statuses, _ = known_streams(settings)
    with control_store(settings) as store:
        if store is None:
            return []
        trails = read_trails(store, BacklogReader(settings, lake), statuses, now=store.now())
    return pipeline_latencies(statuses, trails)


def _graph() -> Graph:
    settings, _ = services()
    statuses, _ = known_streams(settings)
    with control_store(settings) as store:
        declared = [status.declaration for status in statuses]
        recent = RecentBatches().read(store, declared, now=now()) if store else {}
    return build_graph(statuses, recent, now=now())


def _failure(ended: subprocess.CompletedProcess[str]) -> CheckError:
    lines = ended.stderr.strip().splitlines() or ["it said nothing"]
    said = {line.split(": ", 1)[0]: line.split(": ", 1)[-1] for line in lines if line.startswith(("error: ", "hint: "))}
    error = CheckError(said.get("error", lines[-1]), hint=said.get("hint", "see python -m pipelines.declare.check"))
    error.exit_code = ended.returncode if said else 1
    return error
