"""Which rows can differ at all, found by Spark: sums of hashes instead of a shuffle of whole rows.

Rule: rows fall into slots by a hash of their key. Where a slot's signed count and signed sum of a second hash are 0,
all its rows cancel: two different sets would have to agree in a count and a sum of 64-bit hashes. A second pass reads
only rows of the other slots, in parts that hold all rows of a key. Spark's hash leaves out nulls: (1, null) and
(null, 1) have one, and so have null, [] and [null]. So nulls and sizes are hashed beside values.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, StructField, StructType

from pipelines.jobs.net import fields_of
from pipelines.jobs.states import SIGN

_SPARSE = 0.5  # of all slots: where more differ, looking up each row's slot costs more than it saves
_SLOT = "slot"


@dataclass(frozen=True, slots=True)
class SparkLimits:
    """From `compiled_bytes` of files on, compiling plans pays for itself. From `prefiltered_bytes` on, rows are read
    twice: first which can differ at all, by `slots` sums, then these in parts of about `values_a_part`, at most
    `most_parts` since each reads every file once more."""

    compiled_bytes: int = 4 * 1024**2
    prefiltered_bytes: int = 128 * 1024**2
    slots: int = 1 << 20
    values_a_part: int = 40_000_000
    most_parts: int = 8


@dataclass(frozen=True, slots=True)
class Part:
    """Signed rows, and how many they are."""

    rows: DataFrame
    num_rows: int


@dataclass(frozen=True, slots=True)
class Prefiltered:
    """`parts` hold the rows that can differ, `num_rows` are all. `slots` is kept until the parts are read."""

    parts: tuple[Part, ...]
    num_rows: int
    slots: DataFrame


def prefilter(signed: DataFrame, key: Sequence[int], limits: SparkLimits) -> Prefiltered:
    """One pass over all rows; `key` are numbers of columns, () for none. No column may hold maps: Spark does not hash
    them."""
    names = [field.name for field in fields_of(signed)]
    slot = F.pmod(F.xxhash64(*(names[i] for i in key) if key else names), F.lit(limits.slots))
    slotted = signed.withColumn(_SLOT, slot)
    slots = _slots(slotted, names).persist()
    found = slots.groupBy("differs").agg(F.sum("entries"), F.count(F.lit(1))).collect()
    sums = {row[0]: (int(row[1]), int(row[2])) for row in found}
    (same, _), (suspect, differing) = sums.get(False, (0, 0)), sums.get(True, (0, 0))
    is_sparse = differing < _SPARSE * limits.slots
    count = math.ceil((suspect if is_sparse else same + suspect) * len(names) / limits.values_a_part)
    parts = _parts(slotted, slots, min(limits.most_parts, max(1, count)), is_sparse=is_sparse)
    return Prefiltered(parts, same + suspect, slots)


def row_hash(fields: Sequence[StructField]) -> Column:
    """64 bits, different for different rows but by chance; none of these columns may hold maps."""
    return F.xxhash64(*(told for field in fields for told in _told(F.col(field.name), field.dataType)), F.lit("weir"))


def _told(value: Column, kind: DataType) -> list[Column]:
    """What tells a value from every other one when it is hashed without nulls."""
    if isinstance(kind, StructType):
        inner = (_told(value.getField(field.name), field.dataType) for field in kind.fields)
        return [value.isNull(), *(told for each in inner for told in each)]
    if isinstance(kind, ArrayType):
        elements = F.transform(value, lambda element: F.xxhash64(*_told(element, kind.elementType)))
        return [F.coalesce(F.size(value), F.lit(-1)), elements]
    return [value.isNull(), value]


def _parts(slotted: DataFrame, slots: DataFrame, count: int, *, is_sparse: bool) -> tuple[Part, ...]:
    kept, number = (slots.filter("differs") if is_sparse else slots), F.col(_SLOT) % count
    sizes = {row[0]: int(row[1]) for row in kept.groupBy(number).agg(F.sum("entries")).collect()}
    parts = []
    for each in range(count):
        rows = slotted.filter(number == each)
        if is_sparse:
            wanted = kept.filter(number == each).select(_SLOT)
            rows = rows.join(F.broadcast(wanted), _SLOT, "left_semi")
        parts.append(Part(rows.drop(_SLOT), sizes.get(each, 0)))
    return tuple(parts)


def _slots(slotted: DataFrame, names: Sequence[str]) -> DataFrame:
    """A line a slot: its rows, and whether they do not cancel. A sum that overflows does not."""
    row = row_hash([slotted.schema[name] for name in names])
    halves = (F.shiftright(row, 32), row.bitwiseAND(F.lit(0xFFFFFFFF)))
    sums = [F.try_sum(F.col(SIGN) * half) for half in halves]
    cancels = (F.col("n") == 0) & (F.col("high") == 0) & (F.col("low") == 0)
    return (
        slotted.groupBy(_SLOT)
        .agg(
            F.count(F.lit(1)).alias("entries"), F.sum(SIGN).alias("n"), sums[0].alias("high"), sums[1].alias("low"),
        )
        .select(_SLOT, "entries", F.coalesce(~cancels, F.lit(True)).alias("differs"))
    )  # fmt: skip
