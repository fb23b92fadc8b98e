"""From the modules that settings name to a registry, and from that to what the control store knows of streams."""

import importlib
import inspect
from collections.abc import Mapping
from textwrap import dedent
from types import ModuleType

from backend.errors import SettingsError
from backend.format import cut
from backend.redaction import without_secrets
from backend.settings import Settings
from backend.stream_model.overrides import LIMITS
from backend.stream_model.stream import Output, StreamDeclaration, StreamInput
from pipelines.declare.pipeline import Pipeline
from pipelines.sources.files import FileSource
from pipelines.sources.kafka import KafkaSource
from pipelines.sources.spark import DeltaSource
from pipelines.specs.registry import Registry
from pipelines.specs.sources import StreamSource
from pipelines.specs.streams import Function, StreamSpec

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
    declared = registry.tables()
    read = registry.through_views(stream.reads)
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
