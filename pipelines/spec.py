"""How a user declares a stream, and the registry of declared streams.

Rule: declaring starts nothing. What cannot work (a name twice, two streams on one table) is refused when declared.
"""

import difflib
import importlib
import re
from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import DataFrame

from backend.errors import LakehouseError, SettingsError, StreamNotFoundError
from backend.settings import Settings
from backend.streams.model import StreamDeclaration
from pipelines.expectations import Expectation, OnViolation, names
from pipelines.sinks import Sink
from pipelines.sources import Source
from pipelines.tables import TableSpec

Transform = Callable[[DataFrame], DataFrame]
# A stream's name is also a folder and a label of metrics; an expectation's is part of a column's name.
_NAME = re.compile(r"[a-z0-9_]{1,63}")


class SpecError(LakehouseError):
    """A stream is declared in a way that cannot work."""

    exit_code = 2


@dataclass(frozen=True, slots=True)
class StreamSpec:
    """One stream: every `trigger_interval_s`, `sink` gets the rows of `transform(source)`, judged by `expectations`.

    `trigger_interval_s=None`: process what is there, in as many batches as needed, and end.
    """

    name: str
    description: str
    source: Source
    transform: Transform
    sink: Sink
    trigger_interval_s: float | None = 10.0
    expectations: tuple[Expectation, ...] = ()

    @property
    def quarantining(self) -> tuple[str, ...]:
        return tuple(names(self.expectations, OnViolation.QUARANTINE))

    def tables(self) -> tuple[TableSpec, ...]:
        """Every table that the stream reads or writes."""
        return (*self.source.tables(), *self.sink.tables())

    def checkpoint_location(self, settings: Settings) -> str:
        return str(settings.home / "checkpoints" / self.name)

    def declaration(self, settings: Settings) -> StreamDeclaration:
        """What the control store, pages and commands know about the stream."""
        return StreamDeclaration(
            name=self.name,
            description=self.description,
            source=self.source.describe(),
            sink_uri=self.sink.table.uri(settings),
            sink_table=f"{self.sink.table.layer}/{self.sink.table.name}",
            source_tables=tuple(f"{table.layer}/{table.name}" for table in self.source.tables()),
            layer=self.sink.table.layer,
            trigger_interval_ms=round((self.trigger_interval_s or 0) * 1_000),
            checkpoint_location=self.checkpoint_location(settings),
            expectations=tuple(expectation.name for expectation in self.expectations),
        )


class Registry:
    """The declared streams by name, in the order of their declaration."""

    def __init__(self) -> None:
        self._specs: dict[str, StreamSpec] = {}

    def add(self, spec: StreamSpec) -> None:
        """Declare a stream; raises `SpecError` when it cannot work beside the others."""
        _check(spec)
        if spec.name in self._specs:
            raise SpecError(f"stream {spec.name} is declared twice", hint="give each stream a name of its own")
        for other in self._specs.values():
            if shared := {t.name for t in spec.sink.tables()} & {t.name for t in other.sink.tables()}:
                raise SpecError(
                    f"streams {other.name} and {spec.name} both write {', '.join(sorted(shared))}",
                    hint="let one stream write a table; union the inputs in its transform",
                )
        self._specs[spec.name] = spec

    def get(self, name: str) -> StreamSpec:
        """The stream of this name; raises `StreamNotFoundError` naming the nearest one."""
        if name in self._specs:
            return self._specs[name]
        near = difflib.get_close_matches(name, self._specs, n=1)
        hint = f"did you mean {near[0]}?" if near else f"declared are: {', '.join(self._specs) or 'none'}"
        raise StreamNotFoundError(f"no stream is named {name}", hint=hint)

    def names(self) -> tuple[str, ...]:
        return tuple(self._specs)

    def specs(self) -> tuple[StreamSpec, ...]:
        return tuple(self._specs.values())


def load_registry(settings: Settings) -> Registry:
    """The streams that the modules named by `host.pipelines` register; raises `SettingsError` or `SpecError`."""
    registry = Registry()
    for module in settings.host.pipelines:
        _register(module, registry, settings)
    return registry


def _register(module: str, registry: Registry, settings: Settings) -> None:
    try:
        register = importlib.import_module(module).register
    except ModuleNotFoundError as exc:
        raise SettingsError(
            f"host.pipelines names {module}, which cannot be imported: {exc}",
            hint="name an installed module, or add its folder to PYTHONPATH",
        ) from exc
    except AttributeError as exc:
        raise SettingsError(
            f"module {module} declares no streams: it has no function register(registry, settings)",
            hint="pipelines/demo/__init__.py shows one",
        ) from exc
    register(registry, settings)


def _check(spec: StreamSpec) -> None:
    if not _NAME.fullmatch(spec.name):
        raise SpecError(f"stream name {spec.name!r} is not allowed", hint="use a-z, 0-9 and _, at most 63 characters")
    if spec.trigger_interval_s is not None and spec.trigger_interval_s <= 0:
        raise SpecError(f"stream {spec.name}: the trigger interval must be above 0 s", hint="5 to 10 s is usual")
    judged = [expectation.name for expectation in spec.expectations]
    if len(set(judged)) < len(judged) or not all(_NAME.fullmatch(name) for name in judged):
        raise SpecError(f"stream {spec.name}: expectation names must differ and use a-z, 0-9 and _", hint="rename one")
    if spec.quarantining and not spec.sink.takes_quarantine:
        raise SpecError(
            f"stream {spec.name}: {', '.join(spec.quarantining)} wants a quarantine, and its sink has none",
            hint="use QuarantineSink, or another policy",
        )
