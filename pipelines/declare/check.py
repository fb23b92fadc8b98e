"""Reports all that is wrong with the declared streams at once, each with file and line, before anything starts.

Rule: `find_problems` needs no Spark; `columns_problems` judges what `Analysis` found, which reads no row. Run as
`python -m pipelines.declare.check [MODULE]`: problems as JSON lines.
"""

import difflib
import json
import re
import sys
import tempfile
import traceback
from collections.abc import Iterator, Mapping
from functools import partial
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from pyspark.sql.types import StructType

from backend.errors import LakehouseError, SettingsError
from backend.expectations.model import ExpectationKind
from backend.lake.lake import Lake
from backend.lake.storage.folder import normal_uri
from backend.lake.table.schema import column_names
from backend.settings import Settings, load_settings
from pipelines.declare.pipeline import load_registry
from pipelines.spark.session import open_session
from pipelines.spark.tables import Analysis
from pipelines.specs.expectations import OnViolation
from pipelines.specs.streams import Registry, StreamKind, StreamSpec
from pipelines.specs.tables import Place, Problem

# A stream's name is also a folder and a label of metrics; an expectation's is part of a column's name.
_NAME = re.compile(r"[a-z0-9_]{1,63}")
_LONGEST = 1_000  # characters of what pages, logs and metrics repeat
_ONE_OF_SEVERAL = ("append", "upsert", "history")  # the others need an output mode of their own, or another system


class PipelineError(LakehouseError):
    """Declarations that cannot work together; the message lists all of them."""

    exit_code = 2


def find_problems(registry: Registry) -> tuple[Problem, ...]:
    """What cannot work, as far as names tell."""
    problems = (
        *registry.problems,
        *_repeated(registry),
        *(problem for stream in registry.streams for problem in _stream_problems(stream)),
        *_shared_tables(registry),
        *_unknown_inputs(registry),
        *_cycles(registry),
        *_expectations_problems(registry),
    )
    return tuple(dict.fromkeys(problems))


def refuse_problems(registry: Registry) -> None:
    """Raises `PipelineError` with every problem in it."""
    if problems := find_problems(registry):
        raise PipelineError(
            "\n".join(["streams are declared in a way that cannot work:", *map(str, problems)]),
            hint="weir pipelines check says the same without starting anything",
        )


def _repeated(registry: Registry) -> Iterator[Problem]:
    first: dict[str, Place] = {}
    for spec in registry.declared:
        if spec.name in first:
            yield Problem(spec.declared_at, spec.name, f"is declared twice, first at {first[spec.name]}", "rename one")
        first.setdefault(spec.name, spec.declared_at)
        if not _NAME.fullmatch(spec.name):
            yield Problem(spec.declared_at, repr(spec.name), "is no name", "use a-z, 0-9 and _, at most 63 characters")


def _stream_problems(stream: StreamSpec) -> Iterator[Problem]:
    problem = partial(Problem, stream.declared_at, stream.name)
    named = [expectation.name for expectation in stream.expectations]
    if len(set(named)) < len(named) or not all(_NAME.fullmatch(name) for name in named):
        yield problem("names of expectations must differ and use a-z, 0-9 and _", "rename one")
    for expectation in stream.expectations:
        if expectation.on_violation not in list(OnViolation):
            message = f"expectation {expectation.name}: on_violation={expectation.on_violation!r} is not known"
            yield problem(message, f"use {', '.join(OnViolation)}")
    # What would make a folder elsewhere, or a line of its own on a page or in a log.
    texts: dict[str, tuple[str, ...]] = {f"its pipeline {stream.pipeline!r:.80}": (stream.pipeline,)}
    texts |= {f"its tag {name!r:.80}": (name, value) for name, value in stream.tags.items()}
    for table in stream.writes:
        folders = table.layer.split("/")
        if not {"", ".", ".."}.isdisjoint(folders) or not {"\\", "%", ":"}.isdisjoint(table.layer):
            message = f"its layer {table.layer!r:.80} is no folder below the lake's tables"
            yield problem(message, "name one, such as silver")
        texts[f"its layer {table.layer!r:.80}"] = (table.layer,)
        texts[f"the location of {table.name!r:.80}"] = (table.location or "",)
    for what, parts in texts.items():
        if not all(part.isprintable() and len(part) <= _LONGEST for part in map(str, parts)):
            message = f"{what} is too long, or holds what no line shows"
            yield problem(message, f"use one line of at most {_LONGEST} characters")
    for kind in dict.fromkeys([stream.sink.kind, *(destination.sink.kind for destination in stream.also)]):
        if stream.also and kind not in _ONE_OF_SEVERAL:
            yield problem(f"{kind} cannot be one of several destinations", f"use {', '.join(_ONE_OF_SEVERAL)}")
    written = [name for table in stream.writes for name in (table.name, table.location) if name]
    for name in dict.fromkeys(name for name in written if written.count(name) > 1):
        yield problem(f"writes {name} twice in a batch", "rename one destination")
    for name in (destination.table.name for destination in stream.also if not _NAME.fullmatch(destination.table.name)):
        yield problem(f"{name!r} is no name of a table", "use a-z, 0-9 and _, at most 63 characters")
    if not stream.sources:
        yield problem("reads nothing", "name a source, or a table as a parameter")


def _shared_tables(registry: Registry) -> Iterator[Problem]:
    """Two writers of one table, also of a database's. A topic may have several."""
    owners: dict[str, StreamSpec] = {}
    for stream in registry.streams:
        written = [(table.location or table.path, table.name) for table in stream.writes]
        written += [(stream.outside, stream.outside)] * (stream.sink.kind == "postgresql")
        for where, name in written:
            other = owners.setdefault(where, stream)
            if other is not stream and other.name != stream.name:
                message = f"writes {name}, as {other.name} at {other.declared_at} does"
                yield Problem(stream.declared_at, stream.name, message, "unite the inputs in one function")


def _unknown_inputs(registry: Registry) -> Iterator[Problem]:
    declared_names = {*registry.tables(), *(view.name for view in registry.views)}
    for spec in registry.declared:
        for name in dict.fromkeys(name for source in spec.sources for name in source.tables):
            if name in declared_names or "/" in name:
                continue
            near = difflib.get_close_matches(name, declared_names, n=1)
            hint = f"did you mean {near[0]}?" if near else "declare it, or name a table by its URI"
            yield Problem(spec.declared_at, spec.name, f"reads {name}, which is not declared", hint)


def _expectations_problems(registry: Registry) -> Iterator[Problem]:
    tables, first = registry.tables(), dict[tuple[object, ...], Place]()
    is_view = StreamKind.MATERIALIZED_VIEW
    anew = {
        stream.table.name for stream in registry.streams if stream.kind is is_view or stream.sink.kind == "complete"
    }
    for expected in registry.expected:
        yield from expected.problems(tables)
        for rule in expected.rules:
            if rule.kind is ExpectationKind.ROWS_PER_DAY and expected.table in anew:
                message = "rows_per_day: it is written anew each time, so no rows are new"
                yield Problem(expected.declared_at, expected.table, message, "expect it of a table that it reads")
            key = expected.table, rule.kind, rule.columns, rule.refers_to
            if key in first:
                yield Problem(
                    expected.declared_at, expected.table, f"{rule.kind} is expected twice, first at {first[key]}"
                )
            first.setdefault(key, expected.declared_at)


def _cycles(registry: Registry) -> Iterator[Problem]:
    graph = {view.name: {name for source in view.sources for name in source.tables} for view in registry.views}
    graph |= {stream.name: set(stream.reads) for stream in registry.streams}
    aliases = {table.name: stream.name for stream in registry.streams for table in stream.writes}
    try:
        TopologicalSorter(
            {name: {aliases.get(table, table) for table in reads} for name, reads in graph.items()}
        ).prepare()
    except CycleError as exc:
        around = list(reversed(exc.args[1]))
        first = next(spec for spec in registry.declared if spec.name == around[0])
        yield Problem(
            first.declared_at, first.name, f"reads what comes of itself: {' → '.join(around)}", "cut the cycle"
        )


def check(settings: Settings) -> list[Problem]:
    """Everything that is wrong with the declared pipelines; starts a small Spark of its own where names are right."""
    try:
        registry = load_registry(settings)
    except SettingsError:
        raise
    except Exception as exc:  # noqa: BLE001 (a user's module)
        return [_failed_import(exc)]
    if problems := find_problems(registry):
        return list(problems)
    with tempfile.TemporaryDirectory(prefix="weir-check-") as folder:
        session = open_session(load_settings(home=Path(folder), spark={"master": "local[1]"}))
        try:
            analysis = Analysis(registry, session, settings).run()
            of_columns = columns_problems(registry, analysis.schemas, settings)
            return list(dict.fromkeys([*analysis.problems, *of_columns]))
        finally:
            session.stop()


def columns_problems(registry: Registry, schemas: Mapping[str, StructType], settings: Settings) -> Iterator[Problem]:
    """Columns of expectations that their tables lack; tables of others have to be there."""
    lake, tables = Lake(settings), registry.tables()
    for expected in registry.expected:
        wanted: dict[str, list[str]] = {expected.table: []}
        for rule in expected.rules:
            wanted[expected.table] += rule.columns
            if rule.refers_to:
                wanted.setdefault(rule.other[0], []).append(rule.other[1])
        for name, columns in wanted.items():
            if name in tables and name not in schemas:
                continue  # its own problem is reported already
            try:
                snapshot = None if name in tables else lake.snapshot(lake.find(normal_uri(name)))
                there = list(column_names(snapshot.metadata)) if snapshot else schemas[name].names
            except LakehouseError as exc:
                yield Problem(expected.declared_at, expected.table, exc.message, exc.hint)
                continue
            present = {name.lower() for name in there}
            for column in dict.fromkeys(name for name in columns if name.lower() not in present):
                message, hint = f"{name} has no column {column}", f"it has {', '.join(there)}"
                yield Problem(expected.declared_at, expected.table, message, hint)


def _failed_import(exc: Exception) -> Problem:
    if isinstance(exc, SyntaxError):
        return Problem(Place(exc.filename or "", exc.lineno or 0), "module", f"SyntaxError: {exc.msg}")
    ours = str(Path(__file__).parents[1])
    frames = [frame for frame in traceback.extract_tb(exc.__traceback__) if "importlib" not in frame.filename]
    theirs = [frame for frame in frames if not frame.filename.startswith(ours)] or frames
    return Problem(Place(theirs[-1].filename, theirs[-1].lineno or 0), "module", f"{type(exc).__name__}: {exc}")


def main(modules: list[str]) -> int:
    settings = load_settings(host={"pipelines": modules}) if modules else load_settings()
    try:
        problems = check(settings)
    except LakehouseError as exc:
        sys.stderr.write(f"error: {exc.message}\nhint: {exc.hint}\n")
        return exc.exit_code
    for problem in problems:
        place = {"file": problem.declared_at.file, "line": problem.declared_at.line}
        sys.stdout.write(
            json.dumps({**place, "name": problem.name, "message": problem.message, "hint": problem.hint}) + "\n"
        )
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
