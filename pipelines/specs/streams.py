"""A stream and a view as they were declared, and the registry of all of them.

Rule: a spec starts nothing and refuses nothing: right or wrong, it is held as it was declared.
`pipelines.declare.check` finds what cannot work, all of it at once.
"""

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from enum import StrEnum

from pyspark.sql import DataFrame, SparkSession

from backend.errors import StreamNotFoundError
from backend.expectations.model import TableExpectation
from backend.format import interval_s
from backend.lake.storage.storage import declared_folder
from backend.settings import Settings
from backend.stream_model.overrides import TRIGGER, require_settable, spark_conf_of
from backend.stream_model.stream import RESET_ALLOWED
from backend.streams.checkpoint import read_starts
from pipelines.jvm.failures import SpecError
from pipelines.specs.ends import CHANGE, Destination, ExportSink, Inputs, Sink, StreamSource, Target
from pipelines.specs.expectations import Expectation, OnViolation, TableExpectations, judged_rows, names
from pipelines.specs.tables import NOWHERE, Evolution, Place, Problem, TableSpec

Function = Callable[..., DataFrame]
LETTER = (  # of a database's change, as far as its record has them
    *("topic STRING", "partition INT", "offset BIGINT", "timestamp TIMESTAMP", "file_name STRING"),
    *("key BINARY", "value BINARY", "reason STRING"),
)


@dataclass(slots=True)
class Call:
    """A declared function's call, for what is called within it.

    `keys`: what its sinks apply changes by. `keeps_letters`: whether a table keeps what it cannot take. `reads_files`:
    whether it reads nothing else. `unwraps`: whether a database's changes were unwrapped in it.
    """

    keys: frozenset[str]
    keeps_letters: bool
    reads_files: bool
    unwraps: bool = False


CALL: ContextVar[Call | None] = ContextVar("the declared function that is called", default=None)


class StreamKind(StrEnum):
    STREAMING_TABLE = "streaming table"
    MATERIALIZED_VIEW = "materialized view"


@dataclass(frozen=True, slots=True)
class ViewSpec:
    """A named transformation that other streams read; it is computed within each of them."""

    name: str
    sources: tuple[StreamSource, ...]
    function: Function
    declared_at: Place

    def read(self, inputs: Inputs) -> DataFrame:
        return self.function(*(source.read(inputs) for source in self.sources))


@dataclass(frozen=True, slots=True)
class StreamSpec:
    """One stream: every `trigger_interval_s`, `sink` gets the rows of `function(sources)`, judged by `expectations`.

    `trigger_interval_s=None`: process what is there, in as many batches as needed, and end. A materialized view's
    sources are read whole, when one has moved on. `also`: further tables that get the rows of each batch. `unwraps`:
    the columns by which it applies a database's changes; None where its function unwraps none.
    """

    name: str
    table: TableSpec
    sources: tuple[StreamSource, ...]
    function: Function
    sink: Sink | ExportSink
    trigger_interval_s: float | None = 10.0
    expectations: tuple[Expectation, ...] = ()
    kind: StreamKind = StreamKind.STREAMING_TABLE
    pipeline: str = ""
    spark_conf: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    reset_allowed: bool = True
    declared_at: Place = NOWHERE
    also: tuple[Destination, ...] = ()
    unwraps: frozenset[str] | None = None

    @property
    def destinations(self) -> tuple[Destination, ...]:
        """Tables of the lake that take its rows, its own first."""
        own = () if isinstance(self.sink, ExportSink) else (Destination(self.table, self.sink),)
        return (*own, *self.also)

    @property
    def quarantine(self) -> TableSpec | None:
        """Where rows go that break a quarantining expectation: beside the table."""
        if not names(self.expectations, OnViolation.QUARANTINE):
            return None
        comment = f"Rows that broke an expectation of {self.name}, as its function returned them, with the reason"
        name, about = f"{self.table.name}_quarantine", self.table
        evolution = Evolution.ADD if about.evolution is Evolution.FAIL else about.evolution  # it takes what is there
        return TableSpec(name, about.layer, comment, properties=about.owners, evolution=evolution)

    @property
    def may_be_reset(self) -> bool:
        """Whether it may be read again from its start: as declared, and by the properties of its tables."""
        allowed = [str(table.properties.get(RESET_ALLOWED, "true")).lower() for table in self.writes]
        return self.reset_allowed and "false" not in allowed

    @property
    def dead_letters(self) -> TableSpec | None:
        """Where records go that its sources or its function cannot make rows of: beside the table."""
        unwrapped = () if self.unwraps is None else LETTER
        columns = dict.fromkeys((*(column for source in self.sources for column in source.letters), *unwrapped))
        if not columns:
            return None
        comment = f"Records that {self.name} cannot parse, as their bytes, with the reason"
        name, about = f"{self.name}_dead_letters", self.table
        return TableSpec(name, about.layer, comment, schema=", ".join(columns), properties=about.owners)

    @property
    def reads(self) -> tuple[str, ...]:
        """Tables and views that it reads, by name or URI."""
        return tuple(dict.fromkeys(name for source in self.sources for name in source.tables))

    @property
    def outside(self) -> str:
        """What it writes instead of a table of its own: a topic or a database's table; else empty."""
        return self.sink.outside if isinstance(self.sink, ExportSink) else ""

    @property
    def beside(self) -> tuple[TableSpec, ...]:
        """Tables that it writes beside its own."""
        return self.writes if self.outside else self.writes[1:]

    @property
    def writes(self) -> tuple[TableSpec, ...]:
        """Every table that it writes, its own first."""
        apart = tuple(filter(None, (self.quarantine, self.dead_letters)))
        return (*(table for destination in self.destinations for table in destination.writes), *apart)

    def rows(self, inputs: Inputs) -> DataFrame:
        """What the function returns, judged: with `_broken_expectations` where there are any."""
        reads_files = all(source.kind == "files" for source in self.sources)
        call = Call(self.unwraps or frozenset(), keeps_letters=self.unwraps is not None, reads_files=reads_files)
        token = CALL.set(call)
        try:
            rows = self.function(*(source.read(inputs) for source in self.sources))
        finally:
            CALL.reset(token)
        is_ordered = any(output.sink.kind in ("upsert", "history") for output in self.destinations)
        if call.unwraps and is_ordered and CHANGE not in rows.columns:
            raise SpecError(
                f"the function leaves out {CHANGE}, which says what a change does not touch",
                hint=f'keep it: select(…, "{CHANGE}"); no table has it',
            )
        return judged_rows(rows.drop(CHANGE) if self.outside else rows, self.expectations)

    def target(self, settings: Settings) -> Target:
        return Target(self.name, self.table, {table.name: table.spark_uri(settings) for table in self.writes})

    def with_overrides(self, overrides: Mapping[str, str]) -> "StreamSpec":
        """As it runs when a person gave it another trigger or other Spark settings.

        Raises `OverrideError`: what the store holds was not checked by this host, or by an older one.
        """
        require_settable(self.name, overrides)
        trigger_s = interval_s(overrides[TRIGGER]) if TRIGGER in overrides else self.trigger_interval_s
        return replace(self, trigger_interval_s=trigger_s, spark_conf={**self.spark_conf, **spark_conf_of(overrides)})

    def checkpoint_location(self, settings: Settings) -> str:
        return f"{settings.checkpoints_uri}/{self.name}"


@dataclass(frozen=True, slots=True)
class Registry:
    """The declared streams and views, in the order of their declaration. Names may be there twice.

    `problems`: found while declaring. `expected`: of tables.
    """

    streams: Sequence[StreamSpec] = ()
    views: Sequence[ViewSpec] = ()
    problems: Sequence[Problem] = ()
    expected: Sequence[TableExpectations] = ()

    @property
    def declared(self) -> tuple[StreamSpec | ViewSpec, ...]:
        """Streams, then views."""
        return (*self.streams, *self.views)

    def get(self, name: str) -> StreamSpec:
        """The stream of this name; raises `StreamNotFoundError` naming the nearest one."""
        for stream in self.streams:
            if stream.name == name:
                return stream
        near = difflib.get_close_matches(name, self.names(), n=1)
        hint = f"did you mean {near[0]}?" if near else f"declared are: {', '.join(self.names()) or 'none'}"
        raise StreamNotFoundError(f"no stream is named {name}", hint=hint)

    def names(self) -> tuple[str, ...]:
        return tuple(stream.name for stream in self.streams)

    def pipelines(self) -> frozenset[str]:
        """The names of those that declare a stream or expect something of a table."""
        return frozenset({stream.pipeline for stream in self.streams} | {stream.pipeline for stream in self.expected})

    def tables(self) -> dict[str, TableSpec]:
        """Every table that a stream writes, by name."""
        return {table.name: table for stream in self.streams for table in stream.writes}

    def table_expectations(self, settings: Settings) -> tuple[TableExpectation, ...]:
        """What is expected of tables, in the order of their declaration."""
        tables = self.tables()
        return tuple(expectation for of_table in self.expected for expectation in of_table.declared(tables, settings))

    def tables_read(self, stream: StreamSpec) -> tuple[str, ...]:
        """The tables that a stream reads, also behind views, by name or URI."""
        sources = self.behind_views(stream.sources)
        return tuple(dict.fromkeys(name for source in sources for name in source.tables))

    def behind_views(
        self, sources: Iterable[StreamSource], seen: frozenset[str] = frozenset()
    ) -> Iterator[StreamSource]:
        """The sources themselves: a view stands for what it reads."""
        views = {view.name: view for view in self.views}
        for source in sources:
            view = next((views[name] for name in source.tables if name in views), None)
            if view is None:
                yield source
            elif view.name not in seen:
                yield from self.behind_views(view.sources, seen | {view.name})

    def inputs(self, session: SparkSession, settings: Settings, stream: str) -> Inputs:
        """What a stream's sources read with."""
        uris = {name: table.uri(settings) for name, table in self.tables().items()}
        views = {view.name: view.read for view in self.views}
        starts = read_starts(declared_folder(settings, self.get(stream).checkpoint_location(settings)))
        return Inputs(session, settings, stream, uris, views, starts=starts)
