"""What feeds what: sources, streams with their tables, and tables beside them, with rows per minute between.

Rule: pure; from declarations and progress. A stream and the table of its name are one node; unknown stays None.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property

from backend.format import span_text
from backend.lake.storage.folder import normal_uri
from backend.stream_model.stream import Progress, StreamDeclaration, StreamState
from backend.streams.verdict import StreamStatus, Verdict

WINDOW = timedelta(minutes=5)
NOT_RUNNING = (StreamState.STOPPED, StreamState.FAILED, StreamState.BACKOFF)
_ALIVE = (StreamState.RUNNING, StreamState.STARTING, StreamState.STOPPING)


@dataclass(frozen=True, slots=True)
class Node:
    """`kind`: files, kafka, rate, postgresql …, table, streaming table, materialized view; stream for one without a
    table of its own. `state` is that of its stream.

    `table`: path below the lake's root, or URI; None for what is no table of the lake.
    """

    name: str
    kind: str
    layer: str | None = None
    state: StreamState | None = None
    table: str | None = None
    because: str = ""


@dataclass(frozen=True, slots=True)
class Edge:
    """Rows per minute that the stream `target` has read from `source` of late; None where that is not known."""

    source: str
    target: str
    rows_per_min: float | None = None


@dataclass(frozen=True)
class Graph:
    """Nodes by name, each once; sources before what reads them."""

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]

    def upstream(self, name: str) -> tuple[str, ...]:
        """Nodes that feed this one, directly or not, nearest first."""
        return _reached(name, self._sources)

    def downstream(self, name: str) -> tuple[str, ...]:
        """Nodes that this one feeds, directly or not, nearest first."""
        return _reached(name, self._readers)

    @cached_property
    def _sources(self) -> Mapping[str, Sequence[str]]:
        return _ways((edge.target, edge.source) for edge in self.edges)

    @cached_property
    def _readers(self) -> Mapping[str, Sequence[str]]:
        return _ways((edge.source, edge.target) for edge in self.edges)


@dataclass(frozen=True, slots=True)
class Lineage:
    """The streams that write and read one table, by name."""

    written_by: tuple[str, ...] = ()
    read_by: tuple[str, ...] = ()


def lineage(graph: Graph, names: Collection[str]) -> Lineage:
    """Who writes and reads the table that goes by any of these names: paths below a root, or its URI."""
    streams = {node.name for node in graph.nodes if node.state is not None}
    tables = [node.name for node in graph.nodes if node.table in names]
    writing = [name for name in tables if name in streams]
    writing += [edge.source for edge in graph.edges if edge.target in tables and edge.target not in streams]
    reading = [edge.target for edge in graph.edges if edge.source in tables and edge.target in streams]
    return Lineage(tuple(dict.fromkeys(writing)), tuple(dict.fromkeys(reading)))


def around(subject: str, statuses: Sequence[StreamStatus]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Streams by name and tables by address that feed a stream or a table's address, and those that it feeds, nearest
    first. By address, since names of tables beside the declared ones may end alike."""
    declared = [status.declaration for status in statuses]
    steps = [(normal_uri(read.uri), one.name) for one in declared for read in one.inputs if read.is_table and read.uri]
    steps += [(one.name, normal_uri(output.uri)) for one in declared for output in one.outputs if output.uri]
    return _reached(subject, _ways((end, start) for start, end in steps)), _reached(subject, _ways(steps))


def streams_reached(uri: str, statuses: Sequence[StreamStatus]) -> tuple[str, ...]:
    """The streams that read the table at an address, and those that read what they write, nearest first."""
    names = {status.declaration.name for status in statuses}
    return tuple(name for name in around(normal_uri(uri), statuses)[1] if name in names)


def build_graph(statuses: Sequence[StreamStatus], recent: Mapping[str, Sequence[Progress]], *, now: datetime) -> Graph:
    """The graph of all declared streams. `recent`: each stream's batches of the last `WINDOW`, with Spark's JSON."""
    names = {status.declaration.sink_table: status.declaration.name for status in statuses}
    sources, own, beside = dict[str, Node](), dict[str, Node](), dict[str, Node]()
    edges: list[Edge] = []
    for status in statuses:
        declared = status.declaration
        kind, table = ("stream", None) if declared.outside else (declared.kind, declared.sink_table)
        own[declared.name] = Node(declared.name, kind, declared.layer, status.state, table, status.because)
        batches = recent.get(declared.name, ())
        for outside in (source for source in declared.inputs if not source.is_table):
            sources[outside.name] = Node(outside.name, outside.kind)
            edges.append(Edge(outside.name, declared.name, _rows_per_min(status, outside.name, batches, now)))
        for table in declared.source_tables:
            name = names.get(table, table)
            if name == table:
                beside.setdefault(_short(table), Node(_short(table), "table", _layer(table), table=table))
            edges.append(
                Edge(names.get(table, _short(table)), declared.name, _rows_per_min(status, table, batches, now))
            )
        if declared.outside:
            beside.setdefault(declared.outside, Node(declared.outside, declared.sink))
            edges.append(Edge(declared.name, declared.outside))
        for table in declared.side_tables:
            beside[_short(table)] = Node(_short(table), "table", _layer(table) or declared.layer, table=table)
            edges.append(Edge(declared.name, _short(table)))
    others = (node for node in beside.values() if node.name not in own and node.name not in sources)
    return Graph((*sources.values(), *own.values(), *others), tuple(edges))


def streams_below(names: Collection[str], statuses: Sequence[StreamStatus], *, now: datetime) -> list[StreamStatus]:
    """The streams that read what these write, directly or not, those nearest to the sources first."""
    graph = build_graph(statuses, {}, now=now)
    reached = {name for chosen in names for name in graph.downstream(chosen)} - set(names)
    return [status for status in in_graph_order(statuses, now=now) if status.declaration.name in reached]


def in_graph_order(statuses: Sequence[StreamStatus], *, now: datetime) -> list[StreamStatus]:
    """Each stream after all that feed it."""
    graph = build_graph(statuses, {}, now=now)
    return sorted(statuses, key=lambda status: len(graph.upstream(status.declaration.name)))


def _rows_per_min(status: StreamStatus, read: str, batches: Iterable[Progress], now: datetime) -> float | None:
    if status.declaration.is_view or status.state is StreamState.UNKNOWN:
        return None  # a view counts versions, not rows
    observed = status.observed
    if observed is None:
        return None
    if status.state not in _ALIVE:
        return 0.0
    began = observed.started_at or now - WINDOW
    span = min(now - began, WINDOW) if now > began else WINDOW
    counted, minutes = [batch for batch in batches if batch.progressed_at > now - span], span.total_seconds() / 60
    rows = [_rows_from(batch, read, status.declaration) for batch in counted]
    return None if None in rows or not minutes else round(sum(row or 0 for row in rows) / minutes, 1)


def reads_several(declared: StreamDeclaration) -> bool:
    """Whether only Spark's JSON says which rows of a batch came from which source."""
    return sum(not source.is_table for source in declared.inputs) + len(declared.source_tables) > 1


def _rows_from(batch: Progress, read: str, declared: StreamDeclaration) -> int | None:
    """Rows of one batch that came from one of the stream's inputs."""
    if not reads_several(declared):
        return batch.num_input_rows
    end = f"/{read.rpartition(' ')[2].strip('/')}"  # of Spark's words: `DeltaSource[file:/lake/bronze/orders]`
    try:
        sources = json.loads(batch.raw_json)["sources"]
        counts = [source["numInputRows"] for source in sources if source["description"].rstrip("]").endswith(end)]
    except (ValueError, KeyError, TypeError):
        return None
    return int(counts[0]) if len(counts) == 1 else None


def _short(table: str) -> str:
    return table if "://" in table else table.rpartition("/")[2]


def _layer(table: str) -> str | None:
    return table.rpartition("/")[0] or None if "://" not in table and not table.startswith("/") else None


def _ways(steps: Iterable[tuple[str, str]]) -> Mapping[str, Sequence[str]]:
    ways: dict[str, list[str]] = {}
    for start, end in steps:
        ways.setdefault(start, []).append(end)
    return ways


def _reached(name: str, ways: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    reached: dict[str, None] = {}
    asked = list(ways.get(name, ()))
    while asked:
        node = asked.pop(0)
        if node not in reached and node != name:
            reached[node] = None
            asked.extend(ways.get(node, ()))
    return tuple(reached)


def with_causes(statuses: Sequence[StreamStatus], *, now: datetime) -> list[StreamStatus]:
    """The same streams; an idle one below a stopped stream says which one starves it: the first one upstream that does
    not run, however many idle ones lie between."""
    writers = {table: status for status in statuses for table in _writes(status)}
    explained = []
    for status in statuses:
        cause = _cause(status, writers, frozenset()) if status.verdict is Verdict.IDLE else None
        if cause is None:
            explained.append(status)
        else:
            because = f"{status.declaration.name} is starved: {_why_stopped(cause, now)}"
            starved_by = cause.declaration.name
            explained.append(replace(status, because=because, starved_by=starved_by))
    return explained


def landing_rows_per_s(statuses: Sequence[StreamStatus]) -> float | None:
    """Rows a second that come from outside: read by streams that read no table which one of these writes, since a row
    is read again in each further layer. None where no such stream runs."""
    written = {table for status in statuses for table in _writes(status)}
    landing = [status for status in statuses if not written.intersection(status.declaration.source_tables)]
    rates = [status.input_rows_per_s for status in landing if status.input_rows_per_s is not None]
    return sum(rates) if rates else None


def _cause(status: StreamStatus, writers: Mapping[str, StreamStatus], seen: frozenset[str]) -> StreamStatus | None:
    for table in status.declaration.source_tables:
        writer = writers.get(table)
        if writer is None or writer.declaration.name in seen or writer is status:
            continue
        if writer.state in NOT_RUNNING:
            return writer
        further = _cause(writer, writers, seen | {status.declaration.name})
        if further is not None and writer.verdict is Verdict.IDLE:
            return further
    return None


def _writes(status: StreamStatus) -> tuple[str, ...]:
    return (status.declaration.sink_table, *status.declaration.side_tables)


def _why_stopped(cause: StreamStatus, now: datetime) -> str:
    """ "bronze_events was stopped by root 2 min ago"."""
    name, observed, wanted = cause.declaration.name, cause.observed, cause.desired
    if cause.state is not StreamState.STOPPED:
        failure = observed.last_failure if observed else None
        when = f" {span_text((now - failure.failed_at).total_seconds())} ago: {failure.error_class}" if failure else ""
        return f"{name} failed{when}"
    if wanted is not None and wanted.wants_stop:
        return f"{name} was stopped by {wanted.actor} {span_text((now - wanted.requested_at).total_seconds())} ago"
    return f"{name} is stopped"
