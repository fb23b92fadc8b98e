"""The rows that tell two states apart, read by Delta's own reader: c0, c1 … and `sign`, −1 before and +1 after.

Rule: a file that both states have (path and deletion vector) is not opened. The list of files comes from Delta's
snapshots and goes back into its scan, so deletion vectors, column mapping and partition values are Delta's affair.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructType, VariantType

from backend.changes.prepare import PreparedDiff
from backend.errors import DiffError
from backend.lake.model import Snapshot
from pipelines.jvm.hadoop import spark_uri
from pipelines.specs.tables import quoted

SIGN, ID = "sign", "row_id"


@dataclass(frozen=True, slots=True)
class _State:
    """A table's log and one version of it, both Delta's own objects."""

    log: Any
    snapshot: Any


def signed_rows(session: SparkSession, prepared: PreparedDiff, *, with_ids: bool) -> DataFrame:
    """The rows of the files apart; with the row tracking's ids as `row_id` where asked for."""
    given = prepared.input
    first, second = (open_state(session, side) for side in (given.first, given.second))
    newer = first if given.is_reverse else second
    parts = []
    for state, other, sign in ((first, second, -1), (second, first, 1)):
        files = _apart(session, state, other) if given.is_one_table else state.snapshot.allFiles().collectAsList()
        read_with = state if given.as_of is None else newer
        parts.append(_columns(_read(session, state, read_with, files), prepared.columns, sign, with_ids=with_ids))
    return parts[0].unionAll(parts[1])


def open_state(session: SparkSession, wanted: Snapshot) -> _State:
    """Raises `DiffError` when another table lies there by now."""
    opened = _open(session, wanted)
    if _table_id(opened) != wanted.metadata.id:  # Delta keeps logs that it has read
        path = jvm(session).org.apache.hadoop.fs.Path(spark_uri(wanted.ref.uri))
        jvm(session).org.apache.spark.sql.delta.DeltaLog.invalidateCache(session._jsparkSession, path)
        opened = _open(session, wanted)
    if _table_id(opened) != wanted.metadata.id:
        raise DiffError(
            f"the table was replaced by another one meanwhile: its id is {_table_id(opened)}, not {wanted.metadata.id}",
            hint="compare again",
        )
    return opened


def jvm(session: SparkSession) -> Any:
    """The names of Java and Scala."""
    return session._jvm


def make_active(session: SparkSession) -> None:
    """From here on Delta's own classes work for this session in this thread, with its settings: they take the thread's
    active one."""
    SparkSession._get_j_spark_session_class(jvm(session)).setActiveSession(session._jsparkSession)


def named(name: str) -> Column:
    return F.col(quoted(name))


def holds_map(kind: DataType) -> bool:
    """Whether values of the type cannot be put in an order, as a map's cannot."""
    return _holds(kind, MapType)


def check_types(schema: StructType, columns: Sequence[str]) -> None:
    """Raise `DiffError` for a type that Spark cannot group by."""
    odd = [name for name, field in zip(columns, schema.fields, strict=False) if _holds(field.dataType, VariantType)]
    if odd:
        raise DiffError(
            f"Spark cannot compare values of type variant: {', '.join(odd)}", hint="leave these columns out"
        )


def _open(session: SparkSession, wanted: Snapshot) -> _State:
    java = jvm(session)
    log = java.org.apache.spark.sql.delta.DeltaLog.forTable(session._jsparkSession, spark_uri(wanted.ref.uri))
    none = java.scala.Option.empty()
    return _State(log, log.getSnapshotAt(wanted.version, none, none, False))


def _table_id(state: _State) -> str:
    return str(state.snapshot.metadata().id())


def _apart(session: SparkSession, state: _State, other: _State) -> Any:
    """A Java list of the AddFile actions that the other state does not have."""
    mine, theirs = (_files(session, each) for each in (state, other))
    alone = mine.join(theirs.select("path", "vector"), ["path", "vector"], "left_anti").drop("vector")
    actions = state.snapshot.allFiles()
    return getattr(alone.select(*DataFrame(actions.toDF(), session).columns)._jdf, "as")(
        actions.encoder()
    ).collectAsList()


def _files(session: SparkSession, state: _State) -> DataFrame:
    files = DataFrame(state.snapshot.allFiles().toDF(), session)
    vector = files["deletionVector"]
    parts = [F.coalesce(vector[name].cast("string"), F.lit("")) for name in ("storageType", "pathOrInlineDv", "offset")]
    return files.withColumn("vector", F.concat_ws("|", *parts))


def _read(session: SparkSession, state: _State, read_with: _State, files: Any) -> DataFrame:
    java = jvm(session)
    actions = java.scala.jdk.javaapi.CollectionConverters.asScala(files).toSeq()
    found = state.log.createDataFrame(read_with.snapshot, actions, False, java.scala.Option.empty())
    return DataFrame(found, session)


def _columns(rows: DataFrame, names: Sequence[str], sign: int, *, with_ids: bool) -> DataFrame:
    ids = [F.col("_metadata.row_id").alias(ID)] if with_ids else []
    return rows.select(
        *(named(name).alias(f"c{i}") for i, name in enumerate(names)), *ids, F.lit(sign).cast("long").alias(SIGN)
    )


def _holds(kind: DataType, wanted: type[DataType]) -> bool:
    match kind:
        case _ if isinstance(kind, wanted):
            return True
        case StructType():
            return any(_holds(field.dataType, wanted) for field in kind.fields)
        case ArrayType():
            return _holds(kind.elementType, wanted)
        case MapType():
            return _holds(kind.keyType, wanted) or _holds(kind.valueType, wanted)
    return False
