"""Tables of streams: made before the first batch, and grown when rows change shape.

Rule: a table that exists is altered only as `evolution` allows: columns are added, types are widened, nothing goes.
"""

from collections.abc import Collection

import structlog
from delta.tables import DeltaTable, DeltaTableBuilder
from pyspark.sql import SparkSession
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from backend.errors import LakehouseError
from backend.lake.table.properties import KEYS, keys_before
from backend.settings import Settings
from backend.streams.faults import RESET
from backend.streams.table_changes import PresentTable, table_changes
from pipelines.specs.tables import Evolution, TableSpec, quoted

log = structlog.get_logger()


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
    keys = {KEYS: ", ".join(table.keys)} if table.keys else {}
    for key, value in {**_column_mapping(schema), **table.properties, **keys}.items():
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
    added, widened, refused = _difference(present, schema, table.evolution)
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
    return f"{table.name} holds rows by the keys {before}, and is declared with {', '.join(table.keys)}"


def properties_of(session: SparkSession, uri: str) -> tuple[dict[str, str], int]:
    """Those of the table, and how many files it has."""
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
    """As SQL reads it: names within a type are whoever's the rows are, and quoted as columns are."""
    match kind:
        case StructType():
            return f"struct<{', '.join(f'{quoted(field.name)}: {_in_sql(field.dataType)}' for field in kind)}>"
        case ArrayType():
            return f"array<{_in_sql(kind.elementType)}>"
        case MapType():
            return f"map<{_in_sql(kind.keyType)}, {_in_sql(kind.valueType)}>"
    return kind.simpleString()


def differences(present: StructType, rows: StructType, evolution: Evolution) -> list[str]:
    """What keeps rows from a table, in words: `+ column type` is new, `~ column: type → type` changed."""
    return _difference(present, rows, evolution)[2]


def _difference(
    present: StructType, rows: StructType, evolution: Evolution
) -> tuple[list[StructField], list[StructField], list[str]]:
    """Columns to add, columns to widen, and what cannot be done."""
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


_WHOLE = ("tinyint", "smallint", "int", "bigint")


def _takes(wide: DataType, narrow: DataType) -> bool:
    """Whether every value of one type is a value of the other. Types within structs must be the same."""
    into, of = wide.simpleString(), narrow.simpleString()
    if into == of or of == "void":
        return True
    if into in _WHOLE and of in _WHOLE:
        return _WHOLE.index(of) <= _WHOLE.index(into)
    return (into == "double" and of in ("float", *_WHOLE[:3])) or (into == "float" and of in _WHOLE[:2])


def _column_mapping(schema: StructType) -> dict[str, str]:
    """Delta refuses such names as `sum(amount)` in a table without column mapping."""
    odd = any(set(" ,;{}()\n\t=") & set(column.name) for column in schema)
    return {"delta.columnMapping.mode": "name"} if odd else {}
