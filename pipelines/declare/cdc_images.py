"""The row that an envelope of Debezium holds, column by column: whole, or what MongoDB's partial updates name of it.

Rule: a column that a change leaves alone is named, and never taken for null.
"""

import base64
import json
from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructField, StructType

from pipelines.declare.cdc_values import Decimals, Encoding, TimeUnit, any_of, fields_of, fitted, is_null, text_of
from pipelines.specs.tables import path_of

_PATHS = "ARRAY<STRING>"


@dataclass(frozen=True, slots=True)
class Modes:
    """How the connector was told to write a column's values; `unavailable` stands for one that is left alone."""

    is_mongodb: bool
    decimals: Decimals | None
    unit: TimeUnit | None
    unavailable: str


@dataclass(frozen=True, slots=True)
class Fit:
    """A column's value, whether what was sent does not fit it, and the paths in it that the change leaves alone."""

    value: Column
    misfits: Column
    unchanged: Column


def image_of(event: Column, *, is_mongodb: bool) -> Column:
    """An envelope's row: `fields`, `before`, `key` as maps of VARIANTs; of a partial update `updated`, such a map by
    dotted path, `removed`, and `touched`, every path that it names; `content`, a hash of what was sent."""
    envelope, key = event["envelope"], event["key"]
    after, before, update = envelope["after"], envelope["before"], envelope["updateDescription"]
    sent = (F.coalesce(text, F.lit("")) for text in (text_of(after), text_of(before), F.to_json(update)))
    content = F.xxhash64(envelope["op"], *sent)
    key = F.coalesce(fields_of(F.try_element_at(key, F.lit("payload"))), key)
    if is_mongodb:  # documents are text
        after, before = F.try_parse_json(text_of(after)), F.try_parse_json(text_of(before))
        own_id = F.try_element_at(key, F.lit("id"))
        key = F.create_map(F.lit("_id"), F.coalesce(F.try_parse_json(text_of(own_id)), own_id))
    updated, removed = fields_of(F.try_parse_json(update["updatedFields"])), update["removedFields"]
    paths = (F.map_keys(updated), removed, update["truncatedArrays"]["field"])
    return F.struct(
        fields_of(F.when(envelope["op"] == "d", before).otherwise(after)).alias("fields"),
        fields_of(before).alias("before"),
        key.alias("key"),
        updated.alias("updated"),
        removed.alias("removed"),
        F.concat(*(F.coalesce(some, _none()) for some in paths)).alias("touched"),
        (F.lit(is_mongodb) & (envelope["op"] == "u") & is_null(after) & update.isNotNull()).alias("is_partial"),
        F.when(envelope["op"] != "r", content).alias("content"),  # a snapshot may repeat any change
    )


def sent_of(image: Column, name: str, modes: Modes) -> Column:
    """What was sent of a column, a VARIANT: in the row, in the row before where the new one lacks it, or in the key."""
    value, earlier = (F.try_element_at(image[part], F.lit(name)) for part in ("fields", "before"))
    value = F.when(_is_left(value, modes) & ~is_null(earlier), earlier).otherwise(value)
    return F.coalesce(value, F.try_element_at(image["key"], F.lit(name)))


def type_of(types: Column, name: str) -> Column:
    """What the record's own schema says of a column."""
    return F.get(F.filter(types, lambda column: column["field"] == name), F.lit(0))


def fit(sent: Column, field: StructField, modes: Modes, *, image: Column, types: Column) -> Fit:
    """A column of a change. `types`: what the record's own schema says of columns, null without one."""
    own = type_of(types, field.name)
    scale, has_schema = own["parameters"]["scale"], types.isNotNull()
    encoding = Encoding(modes.is_mongodb, modes.decimals, modes.unit, has_schema, own["name"], scale)
    left = F.coalesce(_is_left(sent, modes), F.lit(False))
    value, misfits = fitted(sent, field.dataType, encoding)
    whole = Fit(value, misfits & ~left, F.when(left, F.array(F.lit(path_of([field.name])))).otherwise(_none()))
    if not modes.is_mongodb or field.name == "_id":
        return whole
    part = _part((field.name,), field.dataType, image, encoding)
    return Fit(
        F.when(image["is_partial"], part.value).otherwise(whole.value),
        F.when(image["is_partial"], part.misfits).otherwise(whole.misfits),
        F.when(image["is_partial"], part.unchanged).otherwise(whole.unchanged),
    )


def _part(path: tuple[str, ...], kind: DataType, image: Column, encoding: Encoding) -> Fit:
    """What a partial update says of a field: its value, that it is removed, something within it, or nothing."""
    name = ".".join(path)
    is_set = F.coalesce(F.map_contains_key(image["updated"], name), F.lit(False))
    is_removed = F.coalesce(F.array_contains(image["removed"], name), F.lit(False))
    is_within = F.exists(image["touched"], lambda touched: touched.startswith(f"{name}."))
    value, misfits = fitted(F.try_element_at(image["updated"], F.lit(name)), kind, encoding)
    left, this = F.when(is_set | is_removed, _none()), F.array(F.lit(path_of(path)))
    if not isinstance(kind, StructType):  # an element of a list, or a key of a map, cannot be set on its own
        return Fit(value, F.when(is_set, misfits).otherwise(is_within), left.when(is_within, _none()).otherwise(this))
    parts = {field.name: _part((*path, field.name), field.dataType, image, encoding.within) for field in kind}
    inner = F.struct(*(part.value.alias(name) for name, part in parts.items()))
    unchanged = F.concat(_none(), *(part.unchanged for part in parts.values()))
    return Fit(
        F.when(is_set, value).when(is_within, inner),
        F.when(is_set, misfits).otherwise(is_within & any_of(part.misfits for part in parts.values())),
        left.when(is_within, unchanged).otherwise(this),
    )


def _is_left(value: Column, modes: Modes) -> Column:
    """Whether a placeholder was sent: as text, as bytes, in a list, in a map, or as a list of bytes."""
    raw = modes.unavailable.encode()
    forms = ([modes.unavailable], {modes.unavailable: modes.unavailable}, list(raw))
    texts = (json.dumps(form, separators=(",", ":")) for form in forms)
    return text_of(value).isin(modes.unavailable, base64.b64encode(raw).decode(), *texts)


def _none() -> Column:
    return F.array().cast(_PATHS)
