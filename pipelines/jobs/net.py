"""What is different in the end (net), out of signed rows, computed by Spark: the same arithmetic as in process.

Rule: what does not cancel is exactly the difference of the two states; a key (the row tracking's ids are one) tells
updates then (`backend.changes.compare` says why). Only counts and the asked number of rows leave Spark.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType, FloatType, StructField, StructType
from pyspark.storagelevel import StorageLevel

from backend.changes.changed_rows import Bucket, share_out
from backend.changes.host_job import COMMON
from pipelines.jobs.states import SIGN, holds_map

_ORDER = ("update", "delete", "insert", "duplicate", "null")
_ORDER_COLUMNS = 8
_COMMON_COLUMNS, _COMMON_CHANGES = 12, 3
_WHOLE_TIMES = dict.fromkeys(("timestampFormat", "timestampNTZFormat"), "yyyy-MM-dd'T'HH:mm:ss.SSSSSS")


@dataclass(frozen=True, slots=True)
class NetRows:
    """What did not cancel. `net` has a line a distinct row with its sum `n`; `keyed`, where there is a key, a line a
    key with its `bucket`, and the row before and after. `fields` are c0, c1 …, `key` the columns that name a row."""

    net: DataFrame
    keyed: DataFrame | None
    fields: tuple[StructField, ...]
    key: tuple[str, ...]
    tolerance: float

    @property
    def names(self) -> list[str]:
        return [field.name for field in self.fields]

    def differs(self, field: StructField) -> Column:
        """Whether a column of an updated row changed."""
        before, after = F.col(f"before.{field.name}"), F.col(f"after.{field.name}")
        if holds_map(field.dataType):  # maps have no order, but grouping gave each one order of entries
            before, after = (F.to_json(F.struct(each.alias("v")), _WHOLE_TIMES) for each in (before, after))
        distinct = ~before.eqNullSafe(after)
        if not self.tolerance or not isinstance(field.dataType, FloatType | DoubleType):
            return distinct
        near = F.abs(before.cast("double") - after.cast("double")) <= self.tolerance
        return distinct & ~F.coalesce(near, F.lit(False))

    def unpersist(self) -> None:
        for each in (self.net, self.keyed):
            if each is not None:
                each.unpersist()


@dataclass(frozen=True, slots=True)
class NetCounted:
    """Sizes of the buckets, and per number of a column the updates that touch it."""

    buckets: Mapping[str, Bucket]
    changed_cells: Mapping[int, int]


def net_rows(signed: DataFrame, key: Sequence[int], tolerance: float, satisfies: Column | None = None) -> NetRows:
    """Lazy: the first count of it does the work, the others read what is kept. Only rows that satisfy the condition
    stay, with a key those of their keys too: an update is kept whole."""
    fields = fields_of(signed)
    names = [field.name for field in fields]
    net = signed.groupBy(*names).agg(F.sum(SIGN).alias("n")).filter("n <> 0")
    columns = tuple(f"c{i}" for i in key)
    if not columns:
        net = net if satisfies is None else net.filter(satisfies)
        return NetRows(net.persist(StorageLevel.MEMORY_AND_DISK), None, fields, (), 0.0)
    found = NetRows(net, _keyed(net, names, columns, satisfies), fields, columns, tolerance)
    keyed = found.keyed
    assert keyed is not None
    if tolerance:
        any_differs = reduce(lambda a, b: a | b, (found.differs(field) for field in fields))
        keyed = keyed.filter((F.col("bucket") != "update") | any_differs)
    return NetRows(net, keyed.persist(StorageLevel.MEMORY_AND_DISK), fields, columns, tolerance)


def count(rows: NetRows) -> NetCounted:
    """One pass over what differs."""
    if rows.keyed is None:
        lines = rows.net.select(
            F.when(F.col("n") > 0, "insert").otherwise("delete").alias("bucket"),
            F.lit(1).alias("entries"), *_sides("n"),
        )  # fmt: skip
        cells = []
    else:
        lines = rows.keyed
        update = F.col("bucket") == "update"
        cells = [F.sum((update & rows.differs(field)).cast("long")).alias(field.name) for field in rows.fields]
    sums = [F.sum(name).cast("long").alias(name) for name in ("entries", "added", "removed")]
    found = lines.groupBy("bucket").agg(F.count(F.lit(1)).alias("keys"), *sums, *cells).collect()
    buckets = {row["bucket"]: Bucket(row["keys"], row["entries"], row["added"], row["removed"]) for row in found}
    updates = next((row.asDict() for row in found if row["bucket"] == "update"), {}) if cells else {}
    changed = {i: updates[field.name] for i, field in enumerate(rows.fields) if updates.get(field.name)}
    return NetCounted(buckets, changed)


def have_maps(signed: DataFrame) -> bool:
    """Whether a column holds maps, in whatever depth."""
    return any(holds_map(field.dataType) for field in fields_of(signed))


def put_together(parts: Sequence[NetRows]) -> NetRows:
    """What did not cancel in any of them; no row or key is in two."""
    first = parts[0]
    keyed = [part.keyed for part in parts if part.keyed is not None]
    return replace(
        first,
        net=reduce(DataFrame.unionAll, (part.net for part in parts)),
        keyed=reduce(DataFrame.unionAll, keyed) if keyed else None,
    )


def add_up(one: NetCounted, other: NetCounted) -> NetCounted:
    """The counts of both."""
    buckets, cells = dict(one.buckets), dict(one.changed_cells)
    for name, bucket in other.buckets.items():
        buckets[name] = buckets[name] + bucket if name in buckets else bucket
    for number, changed in other.changed_cells.items():
        cells[number] = cells.get(number, 0) + changed
    return NetCounted(buckets, dict(sorted(cells.items())))


def shares(counted: NetCounted, limit: int) -> tuple[dict[str, int], bool]:
    """How many rows of each bucket are shown, and whether that leaves some out."""
    sizes = {name: counted.buckets[name].changes(name) for name in _ORDER if name in counted.buckets}
    shown = share_out(limit, sizes)
    return shown, sum(sizes.values()) > sum(shown.values())


def shown_rows(rows: NetRows, shown: Mapping[str, int]) -> list[DataFrame]:
    """The first rows of each bucket in the order of the key, as lines of the result."""
    return [_shown(rows, bucket, share) for bucket, share in shown.items() if share > 0]


def common_changes(rows: NetRows, counted: NetCounted) -> DataFrame | None:
    """The changes of each column that most updates share, as lines of the result."""
    numbers = list(counted.changed_cells)[:_COMMON_COLUMNS]
    if not numbers or rows.keyed is None:
        return None
    updates = rows.keyed.filter("bucket = 'update'")
    each = F.array(*(_one_cell(rows, number, numbers) for number in numbers))
    grouped = (
        updates.select(F.inline(each)).filter("differs")
        .groupBy("detail", "before", "after").agg(F.count(F.lit(1)).alias("n")).filter("n > 1")
    )  # fmt: skip
    ordered = [f"c{i}" for i in numbers if not holds_map(rows.fields[i].dataType)]
    order = [F.desc("n"), *(F.asc_nulls_last(f"{side}.{c}") for side in ("before", "after") for c in ordered)]
    rank = F.row_number().over(Window.partitionBy("detail").orderBy(*order))
    kept = grouped.withColumn("rank", rank).filter(F.col("rank") <= _COMMON_CHANGES)
    number = F.col("detail").cast("long") * _COMMON_CHANGES + F.col("rank")
    return kept.select(
        F.lit(COMMON).alias("what"), number.cast("long").alias("number"), "n", "detail",
        *(_filled(rows, side, numbers).alias(side) for side in ("before", "after")),
    )  # fmt: skip


def fields_of(signed: DataFrame) -> tuple[StructField, ...]:
    """c0, c1 …"""
    return tuple(field for field in signed.schema.fields if field.name[:1] == "c" and field.name[1:].isdigit())


def _keyed(net: DataFrame, names: Sequence[str], key: Sequence[str], satisfies: Column | None) -> DataFrame:
    row = F.struct(*names)
    sums = [F.count(F.lit(1)).alias("entries"), *(F.sum(side).alias(name) for name, side in _side_sums("n"))]
    came, went = (F.first(F.when(side, row), ignorenulls=True) for side in (F.col("n") > 0, F.col("n") < 0))
    sides = (came.alias("after"), went.alias("before"))
    if satisfies is None:
        found = net.groupBy(*key).agg(*sums, *sides)
    else:
        found = net.withColumn("kept", satisfies).groupBy(*key).agg(*sums, *sides, F.bool_or("kept").alias("kept"))
        found = found.filter("kept").drop("kept")
    null = reduce(lambda a, b: a | b, (F.col(name).isNull() for name in key))
    bucket = (
        F.when(null, "null")
        .when(F.expr("added = 1 AND removed = 1"), "update")
        .when(F.expr("added = 1 AND removed = 0"), "insert")
        .when(F.expr("added = 0 AND removed = 1"), "delete")
        .otherwise("duplicate")
    )
    return found.withColumn("bucket", bucket)


def _side_sums(name: str) -> tuple[tuple[str, Column], tuple[str, Column]]:
    value = F.col(name)
    return ("added", F.greatest(value, F.lit(0))), ("removed", F.greatest(-value, F.lit(0)))


def _sides(name: str) -> list[Column]:
    return [side.alias(alias) for alias, side in _side_sums(name)]


def _shown(rows: NetRows, bucket: str, share: int) -> DataFrame:
    if rows.keyed is not None and bucket in ("update", "insert", "delete"):
        lines = rows.keyed.filter(F.col("bucket") == bucket).withColumn("n", F.lit(1).cast("long"))
        side = "before" if bucket == "delete" else "after"
    else:
        lines, side = _one_sided(rows, bucket), "row"
    order = [F.asc_nulls_last(name) for name in _order_names(rows, side)]
    first = lines.orderBy(*order, F.asc("n")).limit(share)
    return first.select(
        F.lit(bucket).alias("what"), F.monotonically_increasing_id().alias("number"), "n",
        F.lit(None).cast("string").alias("detail"), "before", "after",
    )  # fmt: skip


def _one_sided(rows: NetRows, bucket: str) -> DataFrame:
    """Net rows one by one: without a key, or those that their key does not tell apart."""
    net = rows.net
    if rows.keyed is None:
        net = net.filter("n > 0" if bucket == "insert" else "n < 0")
    else:
        keys = rows.keyed.filter(F.col("bucket") == bucket).select(*(F.col(k).alias(f"k_{k}") for k in rows.key))
        same = reduce(lambda a, b: a & b, (F.col(k).eqNullSafe(F.col(f"k_{k}")) for k in rows.key))
        net = net.join(keys, same, "left_semi")
    row, came = F.struct(*rows.names), F.col("n") > 0
    return net.select(
        *rows.key, row.alias("row"), F.when(~came, row).alias("before"), F.when(came, row).alias("after"),
        F.abs("n").alias("n"),
    )  # fmt: skip


def _order_names(rows: NetRows, side: str) -> list[str]:
    """The key, then enough of the other columns to make the order stable."""
    rest = [f.name for f in rows.fields if f.name not in rows.key][:_ORDER_COLUMNS]
    ordered = {field.name for field in rows.fields if not holds_map(field.dataType)}
    return [*rows.key, *(f"{side}.{name}" for name in rest if name in ordered)]


def _one_cell(rows: NetRows, number: int, numbers: Sequence[int]) -> Column:
    """A changed cell alone: the other columns are null, so that one type holds the cells of all."""

    def alone(side: str) -> Column:
        cells = (
            (F.col(f"{side}.c{i}") if i == number else F.lit(None).cast(rows.fields[i].dataType)).alias(f"c{i}")
            for i in numbers
        )
        return F.struct(*cells)

    return F.struct(
        F.lit(str(number)).alias("detail"), rows.differs(rows.fields[number]).alias("differs"),
        alone("before").alias("before"), alone("after").alias("after"),
    )  # fmt: skip


def _filled(rows: NetRows, side: str, numbers: Sequence[int]) -> Column:
    cells = (
        (F.col(f"{side}.{f.name}") if i in numbers else F.lit(None).cast(f.dataType)).alias(f.name)
        for i, f in enumerate(rows.fields)
    )
    return F.struct(*cells)


def row_type(signed: DataFrame) -> StructType:
    """The type of `before` and `after`."""
    return StructType([StructField(field.name, field.dataType, nullable=True) for field in fields_of(signed)])
