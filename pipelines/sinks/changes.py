"""Changes of a key in their order: what a change leaves alone has the value that the change before it left.

Rule: `_weir_change` says where a change came from and what it leaves alone. It is never written. The log orders the
changes of a key, then their file; two that nothing orders end the stream.
"""

from collections.abc import Iterable, Sequence
from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructType

from pipelines.sinks.positions import in_one_log
from pipelines.specs.ends import CHANGE
from pipelines.specs.tables import path_of, quoted

UNCHANGED = "_weir_unchanged"  # paths of columns and of what lies in them, as SQL writes them
_BEFORE, _LIFE, _PLACE = "_weir_before", "_weir_life", "_weir_place"
_SAME_PLACE = "nothing orders two changes of one key, both at %s: %s, and %s"
_PATHS = "ARRAY<STRING>"


def record_of(columns: Iterable[str]) -> Column:
    """Where a row came from, in words, as far as these columns tell."""
    names = set(columns)
    record = F.lit("a change")
    if CHANGE in names:
        record = F.col(f"{CHANGE}.record")
    elif {"topic", "partition", "offset"} <= names:
        record = F.format_string("record %s of partition %s of topic %s", "offset", "partition", "topic")
    elif "file_name" in names:
        record = F.concat(F.lit("a record of "), F.col("file_name"))
    return F.coalesce(record, F.lit("a change"))


def with_unchanged(changes: DataFrame, keep_when_null: Sequence[str] = ()) -> DataFrame:
    """With the paths that a change leaves alone."""
    stated = F.col(f"{CHANGE}.unchanged") if CHANGE in changes.columns else _none()
    is_meant = F.col(f"{CHANGE}.is_partial") if CHANGE in changes.columns else F.lit(False)
    names = (name for name in keep_when_null if name in changes.columns)
    nulls = (F.when(F.col(quoted(name)).isNull() & ~is_meant, quoted(name)) for name in names)
    return changes.withColumn(UNCHANGED, F.array_union(stated, F.array_compact(F.array(*nulls)).cast(_PATHS)))


def refuse_unordered(changes: DataFrame, keys: Sequence[str], sequence: str) -> DataFrame:
    """The same changes; the batch fails at two of a key that differ and have one place in the log, or places of two."""
    if CHANGE not in changes.columns:
        return changes
    at = F.col(quoted(sequence))
    before = F.lag(F.struct(at.alias("at"), F.col(CHANGE).alias("change")))
    earlier, change = F.col(f"{_BEFORE}.change"), F.col(CHANGE)
    same = (at == F.col(f"{_BEFORE}.at")) & (change["content"] != earlier["content"])
    places = []
    if _has_places(changes):
        places, before_it = [change["place"]], earlier["place"]
        is_behind = (change["place"]["file"] == before_it["file"]) & (change["place"] > before_it)
        same = same & ~F.coalesce(is_behind, F.lit(False))
    in_order = Window.partitionBy(*map(quoted, keys)).orderBy(quoted(sequence), *places)
    message = F.format_string(_SAME_PLACE, at.cast("string"), earlier["record"], change["record"])
    checked = F.when(same, F.raise_error(message).cast("boolean")).otherwise(F.lit(True))
    if dict(changes.dtypes)[sequence] == "string":
        checked = checked & in_one_log(at, F.col(f"{_BEFORE}.at"), F.lit(True))
    return changes.withColumn(_BEFORE, before.over(in_order)).where(F.coalesce(checked, F.lit(True))).drop(_BEFORE)


def in_file_order(
    changes: DataFrame, keys: Sequence[str], sequence: str, ends: str, keep_when_null: Sequence[str] = ()
) -> DataFrame:
    """Changes of a key at one place in the log as one: the last of their file, with what those before it set."""
    if not _has_places(changes):
        return changes
    states = with_unchanged(changes, keep_when_null).withColumn(_PLACE, F.col(CHANGE)["place"])
    states = filled(states, (*keys, sequence), (_PLACE,), ends)
    states = states.withColumn(CHANGE, F.col(CHANGE).withField("unchanged", F.col(UNCHANGED))).drop(UNCHANGED)
    last = F.max_by(F.struct(*map(quoted, states.columns)), F.struct(_PLACE))  # a place may be null
    one = states.groupBy(*map(quoted, (*keys, sequence))).agg(last.alias("last"))
    return one.select("last.*").drop(_PLACE)


def _has_places(changes: DataFrame) -> bool:
    return CHANGE in changes.columns and "place" in changes.select(f"{CHANGE}.*").columns


def filled(states: DataFrame, keys: Sequence[str], order: Sequence[str], ends: str) -> DataFrame:
    """Each column with its last value up to this change and since the last that `ends` the row. `_weir_unchanged` is
    then what remains open because nothing here says it."""
    by_key = list(map(quoted, keys))
    in_order = Window.partitionBy(*by_key).orderBy(*map(quoted, order))
    lives = states.withColumn(_LIFE, F.count_if(F.col(ends)).over(in_order))
    in_life = Window.partitionBy(*by_key, _LIFE).orderBy(*map(quoted, order))
    left = {*keys, *order, ends, UNCHANGED, CHANGE}
    fills = {
        field.name: _filled((field.name,), field.dataType, F.col(quoted(field.name)), ends, in_life)
        for field in states.schema
        if field.name not in left
    }
    values = {name: value for name, (value, _) in fills.items()}
    still_open = F.concat(_none(), *(paths for _, paths in fills.values()))
    return lives.withColumns({**values, UNCHANGED: F.when(F.col(_LIFE) == 0, still_open).otherwise(_none())}).drop(
        _LIFE
    )


def _filled(
    path: tuple[str, ...], kind: DataType, value: Column, ends: str, in_life: WindowSpec
) -> tuple[Column, Column]:
    """The value, and the paths of what is not known of it."""
    above = (path_of(path[: length + 1]) for length in range(len(path)))
    is_set = ~reduce(or_, (F.array_contains(UNCHANGED, name) for name in above)) & ~F.col(ends)

    def last(of: Column) -> Column:
        return F.last(F.when(is_set, F.struct(of.alias("v"))), ignorenulls=True).over(in_life)

    this = F.array(F.lit(path_of(path)))
    if not isinstance(kind, StructType):
        known = last(value)
        return known["v"], F.when(known.isNull(), this).otherwise(_none())
    there = last(value.isNotNull())
    parts = {
        field.name: _filled((*path, field.name), field.dataType, value.getField(field.name), ends, in_life)
        for field in kind
    }
    whole = F.struct(*(part.alias(name) for name, (part, _) in parts.items()))
    inner = F.when(there["v"], F.concat(_none(), *(paths for _, paths in parts.values()))).otherwise(_none())
    return F.when(there.isNull() | there["v"], whole), F.when(there.isNull(), this).otherwise(inner)


def merged(path: tuple[str, ...], kind: DataType, new: Column, old: Column) -> Column:
    """The new value, or of what it leaves alone the old one; `s` and `t` are the rows of a MERGE."""
    leaves = F.array_contains(F.col(f"s.{UNCHANGED}"), path_of(path))
    value = new
    if isinstance(kind, StructType):
        parts = (
            merged((*path, field.name), field.dataType, new.getField(field.name), old.getField(field.name)).alias(
                field.name
            )
            for field in kind
        )
        value = F.when(new.isNotNull(), F.struct(*parts))
    return F.when(leaves, old).otherwise(value)


def _none() -> Column:
    return F.array().cast(_PATHS)
