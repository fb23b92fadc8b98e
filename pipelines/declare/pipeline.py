"""How a user declares a pipeline, a function for each table in the words of `pyspark.pipelines`, and what it becomes:
the registry of the modules that settings name, and what the control store knows of its streams.

Rule: declaring starts nothing. What is wrong is kept with its file and line, so that all of it is reported at once.
"""

import importlib
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from textwrap import dedent
from types import CellType, CodeType, FunctionType, ModuleType
from typing import TypeVar

from backend.errors import SettingsError
from backend.format import cut
from backend.format import interval_s as seconds_of
from backend.redaction import without_secrets
from backend.settings import Settings
from backend.stream_model.overrides import AVAILABLE_NOW, LIMITS
from backend.stream_model.stream import Output, StreamDeclaration, StreamInput
from pipelines.declare.cdc import debezium
from pipelines.jvm.failures import SpecError
from pipelines.sinks.commits import append
from pipelines.sources.files import FileSource
from pipelines.sources.kafka import KafkaSource
from pipelines.sources.spark import DeltaSource, JdbcSource, SparkSource, table
from pipelines.specs.ends import Destination, ExportSink, Into, Sink, StreamSource
from pipelines.specs.expectations import Expectation, TableExpectations, TableRule
from pipelines.specs.streams import Function, Registry, StreamKind, StreamSpec, ViewSpec
from pipelines.specs.tables import Evolution, Place, Problem, TableSpec

_F = TypeVar("_F", bound=Function)
_JUDGED = DeltaSource | FileSource | JdbcSource | KafkaSource | SparkSource  # sources that say what is wrong with them
Sources = StreamSource | Sequence[StreamSource]


@dataclass(slots=True, eq=False)
class Pipeline:
    """Streams that belong together. Its decorators declare one table each; a stream has its table's name."""

    name: str
    streams: list[StreamSpec] = field(default_factory=list)
    views: list[ViewSpec] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    expected: list[TableExpectations] = field(default_factory=list)

    def streaming_table(
        self,
        name: str,
        *,
        source: Sources,
        sink: Sink | ExportSink | None = None,
        also: Sequence[Into] = (),
        trigger: str = "10 seconds",
        expectations: Sequence[Expectation] = (),
        reset_allowed: bool = True,
        spark_conf: Mapping[str, str] | None = None,
        tags: Mapping[str, str] | None = None,
        **about_table: object,
    ) -> Callable[[_F], _F]:
        """Declare a stream: the function takes a DataFrame for each source and returns the rows of the sink.

        `sink` is `append()` by default; one that writes outside the lake leaves it without a table.
        `also`: further tables for the same rows, `into(name, sink)` each.
        `trigger`: "10 seconds", or "available now" to read what is there
        and end. `reset_allowed=False` keeps a table whose source has expired from a full refresh. About the table:
        `layer` (else the name's first word), `comment`, `schema` (DDL), `table_properties`, `owner`,
        `partition_cols`, `cluster_by`, `evolution` ("fail", "add columns", "widen types"), `location`.
        """

        def declare(function: _F) -> _F:
            place = _place(function)
            stream = replace(
                self._stream(name, function, _listed(source), trigger, about_table),
                sink=sink or append(),
                expectations=tuple(expectations),
                spark_conf=dict(spark_conf or {}),
                tags=dict(tags or {}),
                reset_allowed=reset_allowed,
                also=tuple(self._also(destination, name, place, function) for destination in also),
            )
            if calls(function, debezium):
                keys = frozenset(key for output in stream.destinations for key in output.sink.keys)
                stream = replace(stream, unwraps=keys)
            self._take_in(stream)
            if isinstance(stream.sink, ExportSink):
                self.problems += [Problem(place, name, *problem) for problem in stream.sink.problems()]
                if idle := sorted(about_table.keys() - {"layer", "comment", "owner"}):
                    message, kind = f"{', '.join(idle)}: it has no table of its own", stream.sink.kind
                    self.problems.append(Problem(place, name, message, f"leave it out: {kind} holds what it writes"))
            return function

        return declare

    def materialized_view(
        self,
        name: str,
        *,
        refresh: str = "1 minute",
        source: Sources | None = None,
        spark_conf: Mapping[str, str] | None = None,
        tags: Mapping[str, str] | None = None,
        **about_table: object,
    ) -> Callable[[_F], _F]:
        """Declare a table that is recomputed whole, at most every `refresh`, when an input has moved on.

        The function's parameters are the names of the tables or views that it reads, unless `source` names them.
        """

        def declare(function: _F) -> _F:
            named = [table(name) for name in inspect.signature(function).parameters]
            sources = _listed(source) if source is not None else tuple(named)
            stream = replace(
                self._stream(name, function, sources, refresh, about_table),
                kind=StreamKind.MATERIALIZED_VIEW,
                spark_conf=dict(spark_conf or {}),
                tags=dict(tags or {}),
            )
            self._take_in(stream)
            return function

        return declare

    def temporary_view(self, name: str | None = None, *, source: Sources) -> Callable[[_F], _F]:
        """Declare rows that other functions read by this name. Nothing is stored: each reader computes them."""

        def declare(function: _F) -> _F:
            view = ViewSpec(name or function.__name__, _listed(source), function, _place(function))
            self._take_in(view)
            if any(source.letters for source in view.sources):
                message = "a view cannot keep records that cannot be parsed"
                hint = 'read them by a streaming table, or say misfit="fail"'
                self.problems.append(Problem(view.declared_at, view.name, message, hint))
            return function

        return declare

    def expect_table(self, table: str, *rules: TableRule) -> None:
        """Say what a table should be like, whoever writes it: one that a stream declares by name, any other by URI.

        Rules are `fresh("15 minutes")`, `rows_per_day()`, `unique("order_id")` and
        `references("customer_id", "silver_customers.id")`; the stream host judges them.
        """
        frame = sys._getframe(1)
        place = Place(frame.f_code.co_filename, frame.f_lineno)
        self.expected.append(TableExpectations(table, rules, self.name, place))

    def _stream(
        self, name: str, function: Function, sources: Sequence[StreamSource], trigger: str, about: Mapping[str, object]
    ) -> StreamSpec:
        """What every stream says of itself; appended rows, unless it says otherwise."""
        place = _place(function)
        own_table = self._table(name, place, function, about)
        try:
            interval_s = trigger_s(trigger)
        except SpecError as exc:
            interval_s = None
            self.problems.append(Problem(place, name, exc.message, exc.hint))
        stream = StreamSpec(name, own_table, tuple(sources), function, append(), interval_s, pipeline=self.name)
        return replace(stream, declared_at=place)

    def _take_in(self, spec: StreamSpec | ViewSpec) -> None:
        """Among the declared ones, with what is wrong with its sources."""
        if isinstance(spec, StreamSpec):
            self.streams.append(spec)
        else:
            self.views.append(spec)
        judged = [source for source in spec.sources if isinstance(source, _JUDGED)]
        self.problems += [Problem(spec.declared_at, spec.name, *why) for source in judged for why in source.problems()]

    def _also(self, each: Into, name: str, place: Place, function: Function) -> Destination:
        table, sink = self._table(each.name, place, function, each.about), each.sink
        if isinstance(sink, ExportSink):
            message = f"{sink.kind} cannot be one of several destinations"
            self.problems.append(Problem(place, name, message, f"give it a stream of its own that reads {name}"))
            sink = append()
        return Destination(table, sink, each.where)

    def _table(self, name: str, place: Place, function: Function, about: Mapping[str, object]) -> TableSpec:
        try:
            return _table_spec(name, function, **about)  # type: ignore[arg-type]
        except (TypeError, ValueError) as exc:
            self.problems.append(Problem(place, name, str(exc).removeprefix("_table_spec() ")))
            return TableSpec(name, name.split("_")[0])


def trigger_s(trigger: str) -> float | None:
    """Seconds of a processing-time trigger, None for "available now"; raises `SpecError`."""
    if trigger == AVAILABLE_NOW:
        return None
    hint = 'write "10 seconds", "1 minute" or "available now"'
    if trigger.startswith("continuous"):
        raise SpecError("continuous processing writes no Delta table and is not exactly once", hint=hint)
    seconds = seconds_of(trigger)
    if seconds is None:
        raise SpecError(f"trigger {trigger!r} is not understood", hint=hint)
    return seconds


def _table_spec(
    name: str,
    function: Function,
    *,
    layer: str | None = None,
    comment: str | None = None,
    schema: str | None = None,
    table_properties: Mapping[str, str] | None = None,
    owner: str | None = None,
    partition_cols: Sequence[str] = (),
    cluster_by: Sequence[str] = (),
    evolution: str = "fail",
    location: str | None = None,
) -> TableSpec:
    first_line = (inspect.getdoc(function) or "").split("\n", maxsplit=1)[0]
    owners = {"catalog.team_name": owner} if owner else {}
    return TableSpec(
        name=name,
        layer=layer or name.split("_")[0],
        comment=first_line if comment is None else comment,
        schema=schema,
        properties={**owners, **(table_properties or {})},
        partition_cols=tuple(partition_cols),
        cluster_by=tuple(cluster_by),
        evolution=Evolution(evolution),
        location=location,
    )


def _listed(source: Sources) -> tuple[StreamSource, ...]:
    return tuple(source) if isinstance(source, Sequence) else (source,)


def _place(function: Function) -> Place:
    code = inspect.unwrap(function).__code__
    return Place(code.co_filename, code.co_firstlineno)


def calls(function: object, wanted: Function) -> bool:
    """Whether a function names another: itself, or in a function of its package that it names."""
    waiting, seen, package = [function], set[int](), None
    while waiting:
        function = waiting.pop()
        while isinstance(function, partial):
            function = function.func
        if function is wanted:
            return True
        function = inspect.unwrap(function) if isinstance(function, FunctionType) else function
        if not isinstance(function, FunctionType) or id(function) in seen:
            continue
        seen.add(id(function))
        own = (function.__module__ or "").partition(".")[0]  # none where code is run from a text
        package = own if package is None else package
        if own == package:
            waiting += _named_in(function)
    return False


def _named_in(function: FunctionType) -> Iterator[object]:
    """The values of the names that a function's code has, of inner functions as well."""
    codes, names = [function.__code__], set[str]()
    while codes:
        code = codes.pop()
        names.update(code.co_names, code.co_freevars)
        codes += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    scope = {**function.__globals__, **{name: cell.cell_contents for name, cell in cells if cell != CellType()}}
    for value in (scope[name] for name in names if name in scope):
        yield value
        if isinstance(value, ModuleType):
            yield from (getattr(value, name, None) for name in names)


# Options of a reader that decide what it reads. Others stay with the host: one of them may be a secret.
SHOWN_OPTIONS = {
    *("startingVersion", "startingTimestamp", "skipChangeCommits", "ignoreDeletes", "ignoreChanges"),
    *("failOnDataLoss", "maxFileAge", "cleanSource"),
    *("recursiveFileLookup", "pathGlobFilter", "schemaTrackingLocation", *LIMITS),
}
MOST_CODE = 8_000  # characters of a function that are published


def load_registry(settings: Settings) -> Registry:
    """What the modules named by `host.pipelines` declare; raises `SettingsError`.

    A module holds `Pipeline` values, or a function `pipelines(settings)` that returns some.
    """
    declared: list[Pipeline] = []
    for name in settings.host.pipelines:
        declared += [pipeline for pipeline in _pipelines_of(_import(name), settings) if pipeline not in declared]
    return Registry(
        [stream for pipeline in declared for stream in pipeline.streams],
        [view for pipeline in declared for view in pipeline.views],
        [problem for pipeline in declared for problem in pipeline.problems],
        [expected for pipeline in declared for expected in pipeline.expected],
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
    of_module = [value for value in vars(module).values() if isinstance(value, Pipeline)]
    declared = made(settings) if callable(made) else of_module
    if not declared:
        raise SettingsError(
            f"module {module.__name__} declares no streams: it holds no Pipeline",
            hint='shop = Pipeline("shop"), and @shop.streaming_table(…) above a function; docs/pipelines.md shows more',
        )
    return list(declared)


def declarations(registry: Registry, settings: Settings) -> tuple[StreamDeclaration, ...]:
    return tuple(declaration(registry, stream, settings) for stream in registry.streams)


def declaration(registry: Registry, stream: StreamSpec, settings: Settings) -> StreamDeclaration:
    """What the control store, pages and commands know about the stream."""
    declared, read = registry.tables(), registry.tables_read(stream)
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
        inputs=tuple(_input(registry, source, settings) for source in registry.behind_views(stream.sources)),
        side_tables=tuple(table.path for table in stream.beside),
        tags=dict(stream.tags),
        spark_conf=dict(stream.spark_conf),
        reset_allowed=stream.may_be_reset,
        sink=stream.sink.kind,
        outside=stream.outside,
        tables=tuple(table.declared(settings) for table in stream.writes),
        also=tuple(Output(output.table.path, output.table.uri(settings), output.sink.kind) for output in stream.also),
        code=_code(stream.function),
    )


def _code(function: Function) -> str:
    """The text of a declared function, decorators and all; empty where it stands in no file."""
    try:
        text = dedent(inspect.getsource(inspect.unwrap(function)))
    except (OSError, TypeError):
        return ""
    return cut(without_secrets(text).rstrip(), MOST_CODE)


def _input(registry: Registry, source: StreamSource, settings: Settings) -> StreamInput:
    match source:
        case DeltaSource():
            table = registry.tables().get(source.table)
            name, uri = (table.path, table.uri(settings)) if table else (source.table, source.table)
            return StreamInput(source.kind, name, uri, _shown(source.options))
        case FileSource():
            uri = source.folder if "://" in source.folder else str(settings.home / source.folder)
            return StreamInput(source.kind, source.describe(), uri, _shown(source.options))
        case KafkaSource():
            plain = {key: value for key, value in source.options.items() if isinstance(value, str)}
            return StreamInput(source.kind, source.describe(), options=_shown(plain))
    return StreamInput(source.kind, source.describe())


def _shown(options: Mapping[str, str]) -> dict[str, str]:
    return {name: options[name] for name in sorted(SHOWN_OPTIONS & options.keys())}
