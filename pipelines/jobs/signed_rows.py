"""The rows that tell two states apart, read by Delta: c0, c1 … and `sign`, −1 for a row that went, 1 for one that came.

Rule: of two states a file that both have (path and deletion vector) is not opened. Of a feed all rows are read; what
each commit did is counted by Spark and never collected row by row.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DoubleType,
    FloatType,
    MapType,
    StructField,
    StructType,
    VariantType,
)

from backend.changes.model import BY_ROW_ID, DiffMethod
from backend.changes.plan import PreparedDiff
from backend.changes.read import DiffInput
from backend.errors import DiffError
from backend.lake.model import Snapshot
from pipelines.jvm.delta import DeltaState, open_state
from pipelines.jvm.hadoop import spark_uri
from pipelines.specs.tables import quoted

FEEDS = (DiffMethod.CHANGE_FEED, DiffMethod.SPARK_CHANGES)
SIGN, ID = "sign", "row_id"
_CHANGE_TYPE, _COMMIT_VERSION = "_change_type", "_commit_version"


def signed_rows(session: SparkSession, prepared: PreparedDiff, method: DiffMethod) -> DataFrame:
    """The rows that the method compares, with the row tracking's ids as `row_id` where it takes them; of a feed with
    commit version and change type.

    Raises `DiffError` where the method would misread the table, or another table lies there by now.
    """
    given = prepared.input
    first, second = (opened(session, snapshot) for snapshot in (given.first, given.second))
    if method in FEEDS:
        went, came = (1, -1) if given.is_reverse else (-1, 1)
        signs = F.when(F.col(_CHANGE_TYPE).isin("insert", "update_postimage"), came).otherwise(went)
        return _numbered(_feed(session, given, method), prepared, method, signs, _CHANGE_TYPE, _COMMIT_VERSION)
    newer = first if given.is_reverse else second
    parts = []
    for state, other, sign in ((first, second, -1), (second, first, 1)):
        files = state.files_not_in(other) if given.is_one_table else state.files()
        rows = state.rows(files, as_of=state if given.as_of is None else newer)
        parts.append(_numbered(rows, prepared, method, F.lit(sign)))
    return parts[0].unionAll(parts[1])


def gross_counts(signed: DataFrame) -> tuple[tuple[int, str, int], ...]:
    """What each commit of a feed did: (commit version, type of Delta's change feed, rows). An insert and a delete of
    one row id in one commit are its update."""
    if ID not in signed.columns:
        by_kind = signed.groupBy(_COMMIT_VERSION, _CHANGE_TYPE).count().collect()
        return tuple(sorted((int(version), str(kind), int(rows)) for version, kind, rows in by_kind))
    kinds = (F.count_if(F.col(_CHANGE_TYPE) == kind).alias(kind) for kind in ("insert", "delete"))
    by_row = signed.groupBy(_COMMIT_VERSION, ID).agg(*kinds).withColumn("both", F.least("insert", "delete"))
    counts = (
        (int(version), kind, int(rows))
        for version, came, went, both in by_row.groupBy(_COMMIT_VERSION).sum("insert", "delete", "both").collect()
        for kind, rows in (
            ("insert", came - both), ("delete", went - both), ("update_preimage", both), ("update_postimage", both)
        )
        if rows
    )  # fmt: skip
    return tuple(sorted(counts))


def fields_of(signed: DataFrame) -> tuple[StructField, ...]:
    """c0, c1 …"""
    return tuple(field for field in signed.schema.fields if field.name[:1] == "c" and field.name[1:].isdigit())


def holds_map(kind: DataType) -> bool:
    """Whether values of the type cannot be put in an order, as a map's cannot."""
    return any(isinstance(part, MapType) for part in nested(kind))


def check_types(signed: DataFrame, columns: Sequence[str]) -> None:
    """Raise `DiffError` for a type that Spark cannot group by."""
    kinds = {name: field.dataType for name, field in zip(columns, fields_of(signed), strict=True)}
    if odd := [name for name, kind in kinds.items() if any(isinstance(part, VariantType) for part in nested(kind))]:
        raise DiffError(
            f"Spark cannot compare values of type variant: {', '.join(odd)}", hint="leave these columns out"
        )


def nested(kind: DataType) -> Iterator[DataType]:
    """The type and all within it."""
    yield kind
    match kind:
        case StructType():
            inner = [field.dataType for field in kind.fields]
        case ArrayType():
            inner = [kind.elementType]
        case MapType():
            inner = [kind.keyType, kind.valueType]
        case _:
            inner = []
    for part in inner:
        yield from nested(part)


def _numbered(rows: DataFrame, prepared: PreparedDiff, method: DiffMethod, sign: Column, *more: str) -> DataFrame:
    ids = [F.col("_metadata.row_id").alias(ID)] if method in BY_ROW_ID else []
    kinds = {field.name: field.dataType for field in rows.schema.fields}
    columns = (_zeros_alike(F.col(quoted(name)), kinds[name]).alias(f"c{i}") for i, name in enumerate(prepared.columns))
    return rows.select(*columns, *ids, sign.cast("long").alias(SIGN), *more)


def _zeros_alike(value: Column, kind: DataType, *, is_inside: bool = False) -> Column:
    """With −0.0 as 0.0 in the values of maps: grouping (Spark 4.2, tried) takes the two for one everywhere else."""
    match kind:
        case FloatType() | DoubleType() if is_inside:
            return value + F.lit(0.0).cast(kind)
        case StructType() if is_inside or holds_map(kind):
            fields = (
                _zeros_alike(value.getField(field.name), field.dataType, is_inside=is_inside).alias(field.name)
                for field in kind.fields
            )
            return F.when(value.isNotNull(), F.struct(*fields))
        case ArrayType() if is_inside or holds_map(kind):
            return F.transform(value, lambda item: _zeros_alike(item, kind.elementType, is_inside=is_inside))
        case MapType():
            return F.transform_values(value, lambda _, item: _zeros_alike(item, kind.valueType, is_inside=True))
    return value


def opened(session: SparkSession, wanted: Snapshot) -> DeltaState:
    """Raises `DiffError` where another table lies there by now."""
    state = open_state(session, wanted.ref.uri, wanted.version, wanted.metadata.id)
    if state is None:
        raise DiffError("the table was replaced by another one meanwhile", hint="compare again")
    return state


def _feed(session: SparkSession, given: DiffInput, method: DiffMethod) -> DataFrame:
    """The commits between the two versions, by Delta's change feed or by Spark's CHANGES clause, which row tracking
    answers."""
    first, last, uri = given.low + 1, given.high, spark_uri(given.second.ref.uri)
    if method is DiffMethod.CHANGE_FEED:
        reader = session.read.format("delta").option("readChangeFeed", "true")
        return reader.option("startingVersion", first).option("endingVersion", last).load(uri)
    _require_one_protocol(session, given.second, first, last)
    session.conf.set("spark.databricks.delta.changelogV2.enabled", "true")
    return session.sql(f"SELECT * FROM delta.{quoted(uri)} CHANGES FROM VERSION {first} TO VERSION {last}")


def _require_one_protocol(session: SparkSession, table: Snapshot, first: int, last: int) -> None:
    """Delta 4.4 reads the whole range with the protocol of its first commit: where deletion vectors were turned on
    later it leaves rows out and makes others up, without a word (tried)."""
    before, after = (opened(session, replace(table, version=v)).snapshot.protocol() for v in (first, last))
    if not before.equals(after):
        raise DiffError(f"the table's protocol changed between v{first} and v{last}, which Spark's CHANGES misreads")
