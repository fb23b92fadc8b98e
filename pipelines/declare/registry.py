"""The registry: every declared stream and view, loaded from the modules that settings name.

Rule: it holds what was declared, right or wrong; `pipelines.declare.check` says what cannot work.
"""

import difflib
import importlib
from collections.abc import Iterable, Iterator, Mapping
from types import ModuleType

from pyspark.sql import SparkSession

from backend.errors import SettingsError, StreamNotFoundError
from backend.expectations.model import TableExpectation
from backend.lake.storage.storage import declared_folder
from backend.settings import Settings
from backend.stream_model.overrides import LIMITS
from backend.stream_model.stream import Output, StreamDeclaration, StreamInput
from backend.streams.reset.starts import read_starts
from pipelines.declare.pipeline import Pipeline
from pipelines.declare.spec import Problem, StreamSpec, ViewSpec
from pipelines.declare.table_expectations import TableExpectations
from pipelines.sources.base import Inputs, Source
from pipelines.sources.delta import DeltaSource
from pipelines.sources.files import FileSource
from pipelines.sources.kafka import KafkaSource
from pipelines.spark.tables import TableSpec

# Options of a reader that decide what it reads. Others stay with the host: one of them may be a secret.
TOLD_OPTIONS = {
    *("startingVersion", "startingTimestamp", "skipChangeCommits", "ignoreDeletes", "ignoreChanges"),
    *("withEventTimeOrder", "failOnDataLoss", "maxFileAge", "cleanSource"),
    *("recursiveFileLookup", "pathGlobFilter", "schemaTrackingLocation", *LIMITS),
}


class Registry:
    """The declared streams and views, in the order of their declaration. Names may be there twice."""

    def __init__(
        self,
        streams: Iterable[StreamSpec] = (),
        views: Iterable[ViewSpec] = (),
        problems: Iterable[Problem] = (),
        expected: Iterable[TableExpectations] = (),
    ) -> None:
        self.streams = tuple(streams)
        self.views = tuple(views)
        self.problems = tuple(problems)  # found while declaring
        self.expected = tuple(expected)  # of tables

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
        return frozenset({each.pipeline for each in self.streams} | {each.pipeline for each in self.expected})

    def tables(self) -> dict[str, TableSpec]:
        """Every table that a stream writes, by name."""
        return {table.name: table for stream in self.streams for table in stream.writes}

    def table_expectations(self, settings: Settings) -> tuple[TableExpectation, ...]:
        """What is expected of tables, in the order of their declaration."""
        tables = self.tables()
        return tuple(each for of_table in self.expected for each in of_table.declared(tables, settings))

    def through_views(self, names: Iterable[str]) -> tuple[str, ...]:
        """The tables behind these names: a view stands for what it reads."""
        views = {view.name: view for view in self.views}
        found: dict[str, None] = {}
        asked, seen = list(names), set[str]()
        while asked:
            name = asked.pop(0)
            if name in views and name not in seen:
                seen.add(name)
                asked.extend(table for source in views[name].sources for table in source.tables)
            elif name not in views:
                found[name] = None
        return tuple(found)

    def behind_views(self, sources: Iterable[Source], seen: frozenset[str] = frozenset()) -> Iterator[Source]:
        """The sources themselves: a view stands for what it reads."""
        views = {view.name: view for view in self.views}
        for source in sources:
            view = views.get(source.table) if isinstance(source, DeltaSource) else None
            if view is None:
                yield source
            elif view.name not in seen:
                yield from self.behind_views(view.sources, seen | {view.name})

    def _input(self, source: Source, settings: Settings) -> StreamInput:
        match source:
            case DeltaSource():
                table = self.tables().get(source.table)
                name, uri = (table.path, table.uri(settings)) if table else (source.table, source.table)
                return StreamInput(source.kind, name, uri, _said(source.options))
            case FileSource():
                uri = source.folder if "://" in source.folder else str(settings.home / source.folder)
                return StreamInput(source.kind, source.describe(), uri, _said(source.options))
            case KafkaSource():
                plain = {key: value for key, value in source.options.items() if isinstance(value, str)}
                return StreamInput(source.kind, source.describe(), options=_said(plain))
        return StreamInput(source.kind, source.describe())

    def inputs(self, session: SparkSession, settings: Settings, stream: str) -> Inputs:
        """What a stream's sources read with."""
        uris = {name: table.uri(settings) for name, table in self.tables().items()}
        views = {view.name: view.read for view in self.views}
        starts = read_starts(declared_folder(settings, self.get(stream).checkpoint_location(settings)))
        return Inputs(session, settings, stream, uris, views, starts=starts)

    def declarations(self, settings: Settings) -> tuple[StreamDeclaration, ...]:
        return tuple(self.declaration(stream, settings) for stream in self.streams)

    def declaration(self, stream: StreamSpec, settings: Settings) -> StreamDeclaration:
        """What the control store, pages and commands know about the stream."""
        declared = self.tables()
        read = self.through_views(stream.reads)
        return StreamDeclaration(
            name=stream.name,
            description=stream.table.comment,
            source=", ".join(source.describe() for source in stream.sources),
            sink_uri="" if stream.outside else stream.table.uri(settings),
            sink_table="" if stream.outside else stream.table.path,
            source_tables=tuple(declared[name].path if name in declared else name for name in read),
            layer=stream.table.layer,
            trigger_interval_ms=round((stream.trigger_interval_s or 0) * 1_000),
            checkpoint_location=stream.checkpoint_location(settings),
            expectations=tuple(expectation.name for expectation in stream.expectations),
            kind=stream.kind.value,
            pipeline=stream.pipeline,
            inputs=tuple(self._input(source, settings) for source in self.behind_views(stream.sources)),
            side_tables=tuple(table.path for table in stream.beside),
            tags=dict(stream.tags),
            spark_conf=dict(stream.spark_conf),
            reset_allowed=stream.reset_allowed,
            sink=stream.sink.kind,
            outside=stream.outside,
            also=tuple(Output(each.table.path, each.table.uri(settings), each.sink.kind) for each in stream.also),
        )


def _said(options: Mapping[str, str]) -> dict[str, str]:
    return {name: options[name] for name in sorted(TOLD_OPTIONS & options.keys())}


def load_registry(settings: Settings) -> Registry:
    """What the modules named by `host.pipelines` declare; raises `SettingsError`.

    A module holds `Pipeline` values, or a function `pipelines(settings)` that returns some.
    """
    declared: list[Pipeline] = []
    for name in settings.host.pipelines:
        declared += [pipeline for pipeline in _pipelines_of(_import(name), settings) if pipeline not in declared]
    return Registry(
        (stream for pipeline in declared for stream in pipeline.streams),
        (view for pipeline in declared for view in pipeline.views),
        (problem for pipeline in declared for problem in pipeline.problems),
        (expected for pipeline in declared for expected in pipeline.expected),
    )


def _import(name: str) -> ModuleType:
    try:
        if not name or name.startswith("."):
            raise ModuleNotFoundError("it is no whole name of a module", name=name)
        return importlib.import_module(name)
    except ModuleNotFoundError as exc:
        if not f"{name}.".startswith(f"{exc.name}."):  # the module is there, and what it imports is not
            raise
        raise SettingsError(
            f"host.pipelines names {name!r}, which cannot be imported: {exc}",
            hint="name an installed module, or add its folder to PYTHONPATH",
        ) from exc


def _pipelines_of(module: ModuleType, settings: Settings) -> list[Pipeline]:
    made = getattr(module, "pipelines", None)
    found = made(settings) if callable(made) else [each for each in vars(module).values() if isinstance(each, Pipeline)]
    if not found:
        raise SettingsError(
            f"module {module.__name__} declares no streams: it holds no Pipeline",
            hint='shop = Pipeline("shop"), and @shop.streaming_table(…) above a function; docs/pipelines.md shows more',
        )
    return list(found)
