"""Which rows can differ at all, found by Spark: sums of hashes instead of a shuffle of whole rows.

Rule: that of `backend.diff.sieve`, with Spark's hash, which leaves out nulls: (1, null) and (null, 1) have one, and so
have null, [] and [null]. So nulls and sizes are hashed beside values. A second pass reads only rows of places that do
not cancel, in parts that hold all rows of a key.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, StructField, StructType

from backend.diff.sieve import PLACES, likely_keys
from pipelines.jobs.net import fields_of
from pipelines.jobs.states import SIGN

MOST_PARTS = 8  # each reads every file once more
_MANY_VALUES = 40_000_000
_SPARSE = 0.5  # of all places: where more differ, looking up each row's place costs more than it saves
_PLACE = "place"


@dataclass(frozen=True, slots=True)
class Part:
    """Signed rows, and how many they are."""

    rows: DataFrame
    num_rows: int


@dataclass(frozen=True, slots=True)
class Sieved:
    """`parts` hold the rows that can differ and `num_rows` are all; about `differing` keys (without a key: rows)
    differ, None where that cannot be told. `places` is kept until the parts are read."""

    parts: tuple[Part, ...]
    num_rows: int
    differing: int | None
    places: DataFrame


def sieve(signed: DataFrame, key: Sequence[int]) -> Sieved:
    """One pass over all rows; `key` are places of columns, () for none. No column may hold maps: Spark does not hash
    them."""
    names = [field.name for field in fields_of(signed)]
    place = F.pmod(F.xxhash64(*(names[i] for i in key) if key else names), F.lit(PLACES))
    placed = signed.withColumn(_PLACE, place)
    places = _places(placed, names).persist()
    found = places.groupBy("differs").agg(F.sum("entries"), F.count(F.lit(1))).collect()
    sums = {row[0]: (int(row[1]), int(row[2])) for row in found}
    (same, _), (suspect, differing) = sums.get(False, (0, 0)), sums.get(True, (0, 0))
    is_sparse = differing < _SPARSE * PLACES
    count = math.ceil((suspect if is_sparse else same + suspect) * len(names) / _MANY_VALUES)
    parts = _parts(placed, places, min(MOST_PARTS, max(1, count)), is_sparse=is_sparse)
    return Sieved(parts, same + suspect, likely_keys(differing), places)


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


def _parts(placed: DataFrame, places: DataFrame, count: int, *, is_sparse: bool) -> tuple[Part, ...]:
    kept, number = (places.filter("differs") if is_sparse else places), F.col(_PLACE) % count
    sizes = {row[0]: int(row[1]) for row in kept.groupBy(number).agg(F.sum("entries")).collect()}
    parts = []
    for each in range(count):
        rows = placed.filter(number == each)
        if is_sparse:
            wanted = kept.filter(number == each).select(_PLACE)
            rows = rows.join(F.broadcast(wanted), _PLACE, "left_semi")
        parts.append(Part(rows.drop(_PLACE), sizes.get(each, 0)))
    return tuple(parts)


def _places(placed: DataFrame, names: Sequence[str]) -> DataFrame:
    """A line a place: its rows, and whether they do not cancel. A sum that overflows does not."""
    row = row_hash([placed.schema[name] for name in names])
    halves = (F.shiftright(row, 32), row.bitwiseAND(F.lit(0xFFFFFFFF)))
    sums = [F.try_sum(F.col(SIGN) * half) for half in halves]
    cancels = (F.col("n") == 0) & (F.col("high") == 0) & (F.col("low") == 0)
    return (
        placed.groupBy(_PLACE)
        .agg(
            F.count(F.lit(1)).alias("entries"), F.sum(SIGN).alias("n"), sums[0].alias("high"), sums[1].alias("low"),
        )
        .select(_PLACE, "entries", F.coalesce(~cancels, F.lit(True)).alias("differs"))
    )  # fmt: skip
