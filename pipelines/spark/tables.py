"""Tables of streams: what declared functions return for them, how they are made, and how they grow.

Rule: `Analysis` plans every function on rows that never come, so it reads and writes nothing. A table that exists is
altered only as `evolution` allows: columns are added, types are widened, nothing goes.
"""

import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace
from graphlib import TopologicalSorter
from typing import Any

import structlog
from delta.tables import DeltaTable, DeltaTableBuilder
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from backend.errors import LakehouseError
from backend.lake.model import Metadata
from backend.lake.table.properties import KEYS, explain_properties, keys_before
from backend.settings import Settings
from backend.streams.faults import RESET
from backend.streams.table_changes import PresentTable, table_changes
from pipelines.jvm.failures import SpecError, describe
from pipelines.sinks.changes import FEED
from pipelines.spark.writing import quarantine_schema
from pipelines.specs.ends import CHANGE, ExportSink, Inputs
from pipelines.specs.expectations import BROKEN
from pipelines.specs.streams import Registry, StreamKind, StreamSpec, ViewSpec
from pipelines.specs.tables import Evolution, Problem, TableSpec, parse_schema, quoted, within_reach

log = structlog.get_logger()
_WHOLE = ("tinyint", "smallint", "int", "bigint")
TableSchemas = list[tuple[TableSpec, StructType]]


def in_order(registry: Registry) -> tuple[StreamSpec, ...]:
    """Streams after those whose tables they read; raises `CycleError`."""
    writers = {table.name: stream.name for stream in registry.streams for table in stream.writes}
    read = {stream.name: registry.tables_read(stream) for stream in registry.streams}
    graph = {name: {writers[table] for table in tables if table in writers} for name, tables in read.items()}
    return tuple(registry.get(name) for name in TopologicalSorter(graph).static_order())


@dataclass(slots=True)
class Analysis:
    """What each function returns.

    `streams`: each after those whose tables it reads. `schemas`: columns of each table that a stream writes, by name.
    `problems`: why a function or its table cannot work. A stream that reads a table without known columns is left out:
    its input's problem is named already.
    """

    registry: Registry
    session: SparkSession
    settings: Settings
    streams: tuple[StreamSpec, ...] = ()
    schemas: dict[str, StructType] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def run(self) -> "Analysis":
        declared, self.streams = self.registry.tables(), in_order(self.registry)
        for stream in self.streams:
            inputs = self.registry.tables_read(stream)
            if all(name in self.schemas for name in inputs if name in declared):
                self._analyse(stream)
        return self

    def _analyse(self, stream: StreamSpec) -> None:
        inputs = replace(self.registry.inputs(self.session, self.settings, stream.name), schemas=self.schemas)
        inputs = replace(inputs, views={view.name: self._read_of(view) for view in self.registry.views})
        if stream.kind is StreamKind.MATERIALIZED_VIEW:
            inputs = replace(inputs, versions={})
        try:
            within_reach(self.settings, self.settings.checkpoints_uri)
            rows = stream.rows(inputs)
            tables = table_schemas(self.session, stream, rows.schema)
            _require_one_row_a_key(stream, rows)
            for table, schema in tables:
                _require_known_properties(self.session, table)
                self._keep(stream, table, schema)
        except _ViewError as exc:  # its own problem, however many streams read it
            if exc.problem not in self.problems:
                self.problems.append(exc.problem)
        except Exception as exc:  # noqa: BLE001 (job boundary: the function is a user's)
            self.problems.append(_problem(stream, exc))

    def _read_of(self, view: ViewSpec) -> Callable[[Inputs], DataFrame]:
        def read(inputs: Inputs) -> DataFrame:
            try:
                return view.read(inputs)
            except _ViewError:  # of a view that it reads
                raise
            except Exception as exc:
                raise _ViewError(_problem(view, exc)) from exc

        return read

    def _keep(self, stream: StreamSpec, table: TableSpec, schema: StructType) -> None:
        uri = table.spark_uri(self.settings)
        has_feed = str(table.properties.get("delta.enableChangeDataFeed")).lower() == "true"
        if has_feed and (taken := [name for name in schema.names if name.lower() in FEED]):
            hint = f"rename it in the function: rows.withColumnRenamed('{taken[0]}', 'source{taken[0]}')"
            message = f"{table.name} has a change feed, whose own columns are {', '.join(taken)}"
            self.problems.append(Problem(stream.declared_at, stream.name, message, hint))
            return
        if stream.kind is StreamKind.MATERIALIZED_VIEW or not DeltaTable.isDeltaTable(self.session, uri):
            self.schemas[table.name] = schema
            return
        properties, num_files = properties_of(self.session, uri) if table.keys else ({}, 0)
        before = keys_before(properties, table.keys)
        if before and num_files:
            hint = f"keep those keys, or start over: weir reset {stream.name} --level full"
            self.problems.append(Problem(stream.declared_at, stream.name, keys_changed(table, before), hint))
        present = self.session.read.format("delta").load(uri).schema
        added, _, refused = difference(present, schema, table.evolution)
        self.schemas[table.name] = StructType([*present, *added])
        if refused and not before:
            hint = "allow it by evolution='add columns' or 'widen types', or write another table"
            self.problems.append(
                Problem(stream.declared_at, stream.name, f"rows do not fit {table.name}: {'; '.join(refused)}", hint)
            )


def _require_one_row_a_key(stream: StreamSpec, rows: DataFrame) -> None:
    """Raises `SpecError` where nothing in the plan makes one row of several: `update` would write each of them."""
    if any(destination.sink.kind == "update" for destination in stream.destinations):
        plan = rows._jdf.queryExecution().analyzed().toString()
        if not re.search(r"^[\s:|+-]*(Aggregate|Deduplicate|FlatMapGroups|TransformWith)", plan, re.MULTILINE):
            hint = "aggregate by these keys, or use upsert(keys=…, sequence=…), by which the newest row wins"
            raise SpecError("update: its rows are no aggregate, so a key may come twice", hint=hint)


def _require_known_properties(session: SparkSession, table: TableSpec) -> None:
    """Raises `SpecError` for what Delta would refuse, or keep as a tag although it is misspelled."""
    jvm: Any = session._jvm
    delta = jvm.org.apache.spark.sql.delta
    for key, value in table.properties.items():
        if not isinstance(value, str):
            raise SpecError(f"{table.name}: the property {key} is no text", hint=f'write it in quotes: "{key}": "…"')
        near = explain_properties(Metadata(table.name, "", configuration={key: value}))[0].suggestion or ""
        if near.startswith("delta.") and near.lower() != key.lower():
            raise SpecError(f"{table.name}: {key} is no property of Delta", hint=f"did you mean {near}?")
        asked = jvm.PythonUtils.toScalaMap({key: value})
        try:
            delta.DeltaConfigs.validateConfigurations(asked)
            delta.actions.TableFeatureProtocolUtils.getSupportedFeaturesFromTableConfigs(asked)
        except (PySparkException, Py4JJavaError) as exc:
            message = f"{table.name}: {key}={value}: {describe(exc)[1]}"
            raise SpecError(message, hint="correct its table_properties") from exc


class _ViewError(Exception):
    """A view's function cannot work."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem


def _problem(spec: StreamSpec | ViewSpec, exc: Exception) -> Problem:
    if isinstance(exc, LakehouseError):
        return Problem(spec.declared_at, spec.name, exc.message, exc.hint)
    return Problem(spec.declared_at, spec.name, ": ".join(describe(exc)))


def table_schemas(session: SparkSession, stream: StreamSpec, rows: StructType) -> TableSchemas:
    """Each table that the stream writes with its columns, for judged rows of this schema; raises `SpecError`."""
    derived = zip(stream.writes, _derived(session, stream, rows), strict=True)
    return [(table, _declared(session, table, schema)) for table, schema in derived]


def _derived(session: SparkSession, stream: StreamSpec, rows: StructType) -> Iterator[StructType]:
    returned = StructType([column for column in rows if column.name != BROKEN])
    plain = StructType([column for column in returned if column.name != CHANGE])
    if isinstance(stream.sink, ExportSink):
        stream.sink.judge(session.createDataFrame([], plain))
    for destination in stream.destinations:
        if destination.where:  # planned, so that a column that is missing is reported
            session.createDataFrame([], plain).where(destination.where)
        yield destination.sink.table_schema(plain)
        for _ in destination.sink.beside(destination.table):
            yield destination.sink.beside_schema(plain)
    if stream.quarantine:
        yield quarantine_schema(returned)
    if stream.dead_letters:
        yield parse_schema(session, stream.dead_letters.schema or "")


def _declared(session: SparkSession, table: TableSpec, rows: StructType) -> StructType:
    """The columns that a table declares, all of which the rows must have."""
    if table.schema is None:
        return rows
    declared = parse_schema(session, table.schema)
    if missing := [name for name in declared.names if name not in rows.names]:
        raise SpecError(
            f"schema of {table.name} has {', '.join(missing)}, which the function does not return",
            hint=f"it returns {', '.join(rows.names)}",
        )
    return declared


class SchemaMismatchError(LakehouseError):
    """A function's rows do not fit the table that its stream writes."""

    exit_code = 2


def create_table(session: SparkSession, table: TableSpec, schema: StructType, uri: str) -> None:
    """Create the table unless it exists."""
    _create(DeltaTable.createIfNotExists(session), table, schema, uri)


def _create(builder: DeltaTableBuilder, table: TableSpec, schema: StructType, uri: str) -> None:
    builder = builder.location(uri).addColumns(schema)
    if table.comment:
        builder = builder.comment(table.comment)
    # Delta refuses such names as `sum(amount)` in a table without column mapping
    odd = any(set(" ,;{}()\n\t=") & set(column.name) for column in schema)
    mapping = {"delta.columnMapping.mode": "name"} if odd else {}
    keys = {KEYS: ", ".join(table.keys)} if table.keys else {}
    for key, value in {**mapping, **table.properties, **keys}.items():
        builder = builder.property(key, value)
    if table.partition_cols:
        builder = builder.partitionedBy(*table.partition_cols)
    if table.cluster_by:
        builder = builder.clusterBy(*table.cluster_by)
    builder.execute()


def fit_table(session: SparkSession, table: TableSpec, schema: StructType, uri: str) -> None:
    """Make the table that is there fit rows of this schema, as far as `evolution` allows.

    Raises `SchemaMismatchError` with the difference, line by line.
    """
    properties, num_files = properties_of(session, uri) if table.keys else ({}, 0)
    other = keys_before(properties, table.keys)
    if other and num_files:
        raise SchemaMismatchError(keys_changed(table, other), hint=RESET)
    present = session.read.format("delta").load(uri).schema
    added, widened, refused = difference(present, schema, table.evolution)
    if refused and other:  # it was emptied, to be written by these keys
        _create(DeltaTable.replace(session), table, schema, uri)
        return
    if refused:
        raise SchemaMismatchError(
            f"rows do not fit table {table.name}: " + "; ".join(refused),
            hint="change the function, allow it by evolution='add columns' or 'widen types', or write another table",
        )
    where = f"delta.{quoted(uri)}"
    if added:
        columns = ", ".join(f"{quoted(column.name)} {_in_sql(column.dataType)}" for column in added)
        session.sql(f"ALTER TABLE {where} ADD COLUMNS ({columns})")
    if widened:
        session.sql(f"ALTER TABLE {where} SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')")
    for column in widened:
        session.sql(f"ALTER TABLE {where} ALTER COLUMN {quoted(column.name)} TYPE {_in_sql(column.dataType)}")
    if table.keys and (other or KEYS not in properties):
        session.sql(f"ALTER TABLE {where} SET TBLPROPERTIES ('{KEYS}' = {_text(', '.join(table.keys))})")


def keys_changed(table: TableSpec, before: str) -> str:
    return f"{table.name} is keyed by {before}, but declared with {', '.join(table.keys)}"


def properties_of(session: SparkSession, uri: str) -> tuple[dict[str, str], int]:
    """Properties of the table, and how many files it has."""
    properties, num_files = DeltaTable.forPath(session, uri).detail().select("properties", "numFiles").collect()[0]
    return properties, num_files


def change_table(session: SparkSession, table: TableSpec, settings: Settings, approved: Collection[str]) -> None:
    """Let what is declared of the table reach it, if it is there already: what may be set at once, and what an operator
    gave a word for. One commit for comment and properties, one for clustering; none where nothing differs."""
    declared, uri = table.declared(settings), table.spark_uri(settings)
    if not (declared.comment or declared.properties or declared.cluster_by):
        return
    row = DeltaTable.forPath(session, uri).detail().collect()[0]
    columns = tuple(row["clusteringColumns"] or ()), tuple(row["partitionColumns"])
    present = PresentTable(row["description"] or "", row["properties"], frozenset(row["tableFeatures"]), *columns)
    due = [change for change in table_changes(declared, present) if change.is_due(approved)]
    where = f"delta.{quoted(uri)}"
    if texts := [f"{_text(c.what)} = {_text(c.after)}" for c in due if c.what != "cluster_by"]:
        session.sql(f"ALTER TABLE {where} SET TBLPROPERTIES ({', '.join(texts)})")
    if any(change.what == "cluster_by" for change in due):
        session.sql(f"ALTER TABLE {where} CLUSTER BY ({', '.join(map(quoted, declared.cluster_by))})")
    for change in due:
        log.info("table_changed", table=change.table, what=change.what, before=change.before, after=change.after)


def _text(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _in_sql(kind: DataType) -> str:
    """A type as SQL reads it: names within it are of whoever sends the rows, and quoted as columns are."""
    match kind:
        case StructType():
            return f"struct<{', '.join(f'{quoted(field.name)}: {_in_sql(field.dataType)}' for field in kind)}>"
        case ArrayType():
            return f"array<{_in_sql(kind.elementType)}>"
        case MapType():
            return f"map<{_in_sql(kind.keyType)}, {_in_sql(kind.valueType)}>"
    return kind.simpleString()


def difference(
    present: StructType, rows: StructType, evolution: Evolution
) -> tuple[list[StructField], list[StructField], list[str]]:
    """Columns to add, columns to widen, and in words what keeps rows from a table: `+ column type` is new, `~ column:
    type → type` changed."""
    columns = {column.name.lower(): column for column in present}
    added, widened, refused = [], [], []
    for column in rows:
        old = columns.get(column.name.lower())
        if old is None and evolution is Evolution.FAIL:
            refused.append(f"+ {column.name} {column.dataType.simpleString()}")
        elif old is None:
            added.append(column)
        elif not _takes(old.dataType, column.dataType):
            if evolution is Evolution.WIDEN and _takes(column.dataType, old.dataType):
                widened.append(column)
            else:
                refused.append(f"~ {column.name}: {old.dataType.simpleString()} → {column.dataType.simpleString()}")
    return added, widened, refused


def _takes(wide: DataType, narrow: DataType) -> bool:
    """Whether every value of one type is a value of the other. Types within structs must be the same."""
    into, of = wide.simpleString(), narrow.simpleString()
    if into == of or of == "void":
        return True
    if into in _WHOLE and of in _WHOLE:
        return _WHOLE.index(of) <= _WHOLE.index(into)
    return (into == "double" and of in ("float", *_WHOLE[:3])) or (into == "float" and of in _WHOLE[:2])
