"""Change events of databases, as Debezium writes them, and nested documents, as flat rows.

Rule: pure functions of a DataFrame, to be called in a declared function. `position` orders changes as the database
made them, whatever order they arrive in.
"""

from collections.abc import Sequence
from typing import Literal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, StructType

Flavour = Literal["postgresql", "mysql", "mongodb"]
_SOURCE = "STRUCT<lsn: BIGINT, file: STRING, pos: BIGINT, row: INT, ord: BIGINT, ts_ms: BIGINT>"
_UPDATE = "STRUCT<updatedFields: STRING, removedFields: ARRAY<STRING>>"
_TRUNCATED = (
    "the source truncated the table: take such changes in by debezium(…, truncations=True) and "
    """upsert(…, truncated="op = 't'"), or reset the stream with a full refresh"""
)


def debezium(
    rows: DataFrame,
    schema: str,
    *,
    flavour: Flavour = "postgresql",
    value: str = "value",
    keep: Sequence[str] = (),
    truncations: bool = False,
) -> DataFrame:
    """Envelopes in the column `value` (JSON text or bytes) as `op`, the row's columns, `position` and `changed_at`.

    `schema` is DDL text of the row. `op`: c, u, d, r (snapshot). A deletion has the row as it was, as far as the
    database sends it. Envelopes with their schema beside the payload are taken as well. Tombstones are left out.
    A truncation (`op` t) fails the batch, or with `truncations` is a row without columns for a sink's `truncated`.
    MongoDB: documents are JSON text; a partial update has its fields, and null elsewhere.
    `keep`: columns of `rows` that stay beside, such as the record's `key`.
    """
    image = "STRING" if flavour == "mongodb" else f"STRUCT<{schema}>"
    envelope = f"STRUCT<op: STRING, before: {image}, after: {image}, source: {_SOURCE}, ts_ms: BIGINT"
    envelope += f", updateDescription: {_UPDATE}>"
    text = F.col(value).cast("string")
    whole = F.from_json(text, f"payload {envelope}")
    parsed = F.coalesce(whole["payload"], F.from_json(text, envelope))
    events = rows.where(F.col(value).isNotNull()).withColumn("_event", parsed)
    if not truncations:
        truncates = F.when(F.col("_event.op") == "t", F.raise_error(F.lit(_TRUNCATED)).cast("boolean"))
        events = events.where(truncates.otherwise(F.lit(True)))
    row = _document(schema) if flavour == "mongodb" else F.coalesce("_event.after", "_event.before")
    events = events.withColumn("_row", row)
    position = _position(flavour).alias("position")
    return events.select(*keep, "_event.op", "_row.*", position, F.timestamp_millis("_event.ts_ms").alias("changed_at"))


def flatten(rows: DataFrame, *, separator: str = "_") -> DataFrame:
    """Every column of a struct, however deep, as a column of its own: `address.city` becomes `address_city`."""
    columns = [path for field in rows.schema for path in _leaves(field.dataType, (field.name,))]
    return rows.select(*(F.col(".".join(f"`{part}`" for part in path)).alias(separator.join(path)) for path in columns))


def children(rows: DataFrame, array: str, *, keys: Sequence[str]) -> DataFrame:
    """One row for each element of an array column, with the parent's keys and its place (`position_in_parent`, from 0).

    Elements that are structs become columns, flattened; others are the column `value`.
    """
    element = rows.schema[array].dataType
    is_struct = isinstance(element, ArrayType) and isinstance(element.elementType, StructType)
    opened = rows.select(*keys, F.posexplode(array).alias("position_in_parent", "value"))
    return flatten(opened.select(*keys, "position_in_parent", "value.*")) if is_struct else opened


def _document(schema: str) -> Column:
    """A MongoDB document, or the fields that a partial update names."""
    texts = ("_event.after", "_event.updateDescription.updatedFields", "_event.before")
    return F.from_json(F.coalesce(*texts), schema)


def _position(flavour: Flavour) -> Column:
    """Text that sorts as the database's log does."""
    if flavour == "postgresql":
        return F.lpad(F.col("_event.source.lsn").cast("string"), 20, "0")
    if flavour == "mysql":
        place = F.lpad(F.col("_event.source.pos").cast("string"), 20, "0")
        row = F.lpad(F.coalesce(F.col("_event.source.row"), F.lit(0)).cast("string"), 10, "0")
        return F.concat_ws(":", F.col("_event.source.file"), place, row)
    moment = F.lpad(F.col("_event.source.ts_ms").cast("string"), 20, "0")
    return F.concat_ws(":", moment, F.lpad(F.coalesce(F.col("_event.source.ord"), F.lit(0)).cast("string"), 10, "0"))


def _leaves(kind: object, path: tuple[str, ...]) -> list[tuple[str, ...]]:
    if not isinstance(kind, StructType):
        return [path]
    return [leaf for field in kind for leaf in _leaves(field.dataType, (*path, field.name))]
