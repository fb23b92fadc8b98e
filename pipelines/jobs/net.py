"""What is different in the end (net), out of signed rows, by Spark: one sum of whole rows, one look at each key.

Rule: as in process (`backend.changes.compare`), what does not cancel is exactly the difference of the two states, and a
key tells the updates in it. Equality is Spark's own grouping: no hash decides anything.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, DoubleType, FloatType, MapType, StructField, StructType

from backend.changes.changed_rows import COMMON_CHANGES, ORDER_COLUMNS, RowBucket, bucket_sizes, share_out
from backend.changes.host_job import COMMON
from pipelines.jobs.signed_rows import SIGN, fields_of, holds_map


@dataclass(frozen=True, slots=True)
class NetRows:
    """A line a changed row: its `bucket`, the row `before` and `after` (structs of c0, c1 …; one is null but in
    updates), and `n`, how often it came (< 0: went). `key` are the columns that name a row."""

    lines: DataFrame
    fields: tuple[StructField, ...]
    key: tuple[str, ...]
    tolerance: float

    def of_bucket(self, bucket: str) -> DataFrame:
        """Its lines, with the row as `row`: as it is after the change, of a deleted one before."""
        return self.lines.filter(F.col("bucket") == bucket).withColumn("row", F.coalesce("after", "before"))

    def differs(self, field: StructField) -> Column:
        """Whether a column of an updated row changed."""
        before, after = F.col(f"before.{field.name}"), F.col(f"after.{field.name}")
        if self.tolerance or holds_map(field.dataType):
            return ~_near(field.dataType, before, after, self.tolerance)
        return ~before.eqNullSafe(after)


def _near(kind: DataType, before: Column, after: Column, tolerance: float) -> Column:
    """Whether values are equal, or are but for floats in them that are within the tolerance. Maps have no order, but
    grouping gave each one order of entries."""
    match kind:
        case FloatType() | DoubleType():
            near = F.abs(before.cast("double") - after.cast("double")) <= tolerance
            return before.eqNullSafe(after) | F.coalesce(near, F.lit(False))
        case StructType():
            parts = (_near(f.dataType, before.getField(f.name), after.getField(f.name), tolerance) for f in kind)
            near = reduce(lambda a, b: a & b, parts, before.isNotNull() & after.isNotNull())
        case ArrayType():
            of_item = kind.elementType
            pairs = F.zip_with(before, after, lambda x, y: _near(of_item, x, y, tolerance))
            near = (F.size(before) == F.size(after)) & F.forall(pairs, lambda is_near: is_near)
        case MapType():
            sides = [(part(before), part(after)) for part in (F.map_keys, F.map_values)]
            kinds = (ArrayType(kind.keyType), ArrayType(kind.valueType))
            near = reduce(
                lambda a, b: a & b, (_near(k, *side, tolerance) for k, side in zip(kinds, sides, strict=True))
            )
        case _:
            return before.eqNullSafe(after)
    return (before.isNull() & after.isNull()) | F.coalesce(near, F.lit(False))


def net_rows(signed: DataFrame, key: Sequence[int], tolerance: float, satisfies: Column | None = None) -> NetRows:
    """Lazy. Only rows that satisfy the condition stay, with a key the other rows of their keys too."""
    fields = fields_of(signed)
    row, came = F.struct(*(field.name for field in fields)), F.col("n") > 0
    lines = (
        signed.groupBy(*(field.name for field in fields)).agg(F.sum(SIGN).alias("n")).filter("n <> 0")
        .withColumn("wanted", F.lit(True) if satisfies is None else satisfies)
        .withColumns({"before": F.when(~came, row), "after": F.when(came, row)})
    )  # fmt: skip
    names = tuple(f"c{i}" for i in key)
    lines = _by_key(lines, names) if key else lines.withColumn("bucket", F.when(came, "insert").otherwise("delete"))
    rows = NetRows(lines.filter("wanted").select("bucket", "before", "after", "n"), fields, names, tolerance)
    if key and tolerance:
        any_differs = reduce(lambda a, b: a | b, (rows.differs(field) for field in fields))
        rows = replace(rows, lines=rows.lines.filter((F.col("bucket") != "update") | any_differs))
    return rows


def _by_key(lines: DataFrame, key: Sequence[str]) -> DataFrame:
    """A key names a row where no side has it twice: its two rows become one line. Those of other keys are set apart."""
    of_key, n = Window.partitionBy(*key), F.col("n")
    added, removed = (F.sum(F.greatest(side, F.lit(0))).over(of_key) for side in (n, -n))
    is_null = reduce(lambda a, b: a | b, (F.col(name).isNull() for name in key))
    bucket = (
        F.when(is_null, "null")
        .when((added == 1) & (removed == 1), "update")
        .when((added == 1) & (removed == 0), "insert")
        .when((added == 0) & (removed == 1), "delete")
        .otherwise("duplicate")
    )
    is_update = F.col("bucket") == "update"
    went = F.when(is_update, F.first("before", ignorenulls=True).over(of_key)).otherwise(F.col("before"))
    lines = lines.withColumns({"bucket": bucket, "wanted": F.bool_or("wanted").over(of_key)})
    return lines.withColumn("before", went).filter(~is_update | (n > 0))


def count(rows: NetRows) -> tuple[dict[str, RowBucket], dict[int, int]]:
    """Sizes of the buckets, and per number of a column the updates that touch it."""
    is_update = F.col("bucket") == "update"
    sides = (
        F.sum(F.when(F.col(side).isNotNull(), F.abs("n")).otherwise(0)).alias(name)
        for name, side in (("added", "after"), ("removed", "before"))
    )
    fields = rows.fields if rows.key else ()
    cells = (F.count_if(is_update & rows.differs(field)).alias(field.name) for field in fields)
    sums = rows.lines.groupBy("bucket").agg(F.count(F.lit(1)).alias("lines"), *sides, *cells).collect()
    buckets = {row["bucket"]: RowBucket(row["lines"], row["lines"], row["added"], row["removed"]) for row in sums}
    if "duplicate" in buckets:
        keys = rows.of_bucket("duplicate").select(*(f"row.{name}" for name in rows.key)).distinct().count()
        buckets["duplicate"] = replace(buckets["duplicate"], keys=keys)
    touched = next((row for row in sums if row["bucket"] == "update"), None)
    return buckets, {i: touched[field.name] for i, field in enumerate(fields) if touched and touched[field.name]}


def kept_lines(rows: NetRows, buckets: Mapping[str, RowBucket], limit: int, most: int) -> list[DataFrame]:
    """All changed rows as lines of the result where they are at most `most`, else the first `limit` of them; each
    bucket in the order of the key, then of enough of the other columns to make it stable."""
    sizes = bucket_sizes(buckets)
    shares = sizes if sum(sizes.values()) <= most else share_out(limit, sizes)
    rest = [field.name for field in rows.fields if field.name not in rows.key][:ORDER_COLUMNS]
    ordered = {field.name for field in rows.fields if not holds_map(field.dataType)}
    order = [F.asc_nulls_last(f"row.{name}") for name in (*rows.key, *rest) if name in ordered]
    kept = []
    for bucket, share in shares.items():
        lines = rows.of_bucket(bucket).orderBy(*order, "n")
        if share:
            kept.append(_lines(lines if share == sizes[bucket] else lines.limit(share), bucket, F.abs("n")))
    return kept


def common_lines(rows: NetRows, number: int) -> DataFrame:
    """The changes of one column that most updates share, each as one of these updates."""
    field = rows.fields[number]
    cells = [F.col(f"{side}.{field.name}") for side in ("before", "after")]
    examples = (F.first(side).alias(side) for side in ("before", "after"))
    changes = rows.of_bucket("update").filter(rows.differs(field)).groupBy(*cells)
    shared = changes.agg(F.count(F.lit(1)).alias("n"), *examples).filter("n > 1")
    order = () if holds_map(field.dataType) else (cell.asc_nulls_last() for cell in cells)
    top = shared.orderBy(F.desc("n"), *order).limit(COMMON_CHANGES)
    return _lines(top, COMMON, F.col("n"), number * COMMON_CHANGES, str(number))


def _lines(rows: DataFrame, what: str, n: Column, first: int = 0, detail: str | None = None) -> DataFrame:
    number = F.lit(first) + F.monotonically_increasing_id()
    return rows.select(
        F.lit(what).alias("what"), number.alias("number"), n.alias("n"),
        F.lit(detail).cast("string").alias("detail"), "before", "after",
    )  # fmt: skip
