"""The registry: every declared stream and view.

Rule: it holds what was declared, right or wrong; `pipelines.declare.check` says what cannot work.
"""

import difflib
from collections.abc import Iterable, Iterator

from pyspark.sql import SparkSession

from backend.errors import StreamNotFoundError
from backend.expectations.model import TableExpectation
from backend.lake.storage.storage import declared_folder
from backend.settings import Settings
from backend.streams.reset import read_starts
from pipelines.specs.sources import Inputs, StreamSource
from pipelines.specs.streams import Problem, StreamSpec, ViewSpec
from pipelines.specs.table_expectations import TableExpectations
from pipelines.specs.tables import TableSpec


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
        return frozenset({stream.pipeline for stream in self.streams} | {stream.pipeline for stream in self.expected})

    def tables(self) -> dict[str, TableSpec]:
        """Every table that a stream writes, by name."""
        return {table.name: table for stream in self.streams for table in stream.writes}

    def table_expectations(self, settings: Settings) -> tuple[TableExpectation, ...]:
        """What is expected of tables, in the order of their declaration."""
        tables = self.tables()
        return tuple(expectation for of_table in self.expected for expectation in of_table.declared(tables, settings))

    def through_views(self, names: Iterable[str]) -> tuple[str, ...]:
        """The tables behind these names: a view stands for what it reads."""
        views = {view.name: view for view in self.views}
        tables: dict[str, None] = {}
        waiting, seen = list(names), set[str]()
        while waiting:
            name = waiting.pop(0)
            if name in views and name not in seen:
                seen.add(name)
                waiting.extend(table for source in views[name].sources for table in source.tables)
            elif name not in views:
                tables[name] = None
        return tuple(tables)

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
