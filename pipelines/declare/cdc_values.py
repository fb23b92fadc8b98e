"""What an envelope's row becomes, column by column: Debezium's encodings and MongoDB's Extended JSON, type by type.

A row comes whole, or as what a partial update of MongoDB names of it.

Rule: a value is one of its column's type, or it does not fit. Where JSON does not say what a number or a text means and
nobody declared it, it does not fit. A column that a change leaves alone is named, and never taken for null.
"""

import base64
import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import or_
from typing import Literal

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    VariantType,
)

from pipelines.sinks.changes import no_paths
from pipelines.specs.tables import path_of

Decimals = Literal["precise", "string"]
TimeUnit = Literal["milliseconds", "microseconds", "nanoseconds"]
FIELDS = "MAP<STRING, VARIANT>"
_CONNECT, _DEBEZIUM = "org.apache.kafka.connect.data", "io.debezium.time"
_DAYS = (f"{_DEBEZIUM}.Date", f"{_CONNECT}.Date")
_UNITS: dict[TimeUnit, tuple[str, ...]] = {  # the names that schemas give them
    "milliseconds": (f"{_DEBEZIUM}.Timestamp", f"{_CONNECT}.Timestamp"),
    "microseconds": (f"{_DEBEZIUM}.MicroTimestamp",),
    "nanoseconds": (f"{_DEBEZIUM}.NanoTimestamp",),
}
_WRAPPERS = ("numberLong", "numberInt", "numberDouble", "numberDecimal", "oid", "uuid", "symbol")
_UNWRAPPED = (*(f"$['${name}']" for name in _WRAPPERS), "$['$binary']['base64']", "$['$binary']")
_NUMBER = r"^[+-]?\d+(\.\d+)?([eE][+-]?\d+)?$"
_DAY = r"^[+-]?\d{4,6}-\d\d-\d\d"


@dataclass(frozen=True, slots=True)
class Encoding:
    """How a column's values are written: by the connector's modes, as they were declared, and by what the record's own
    schema says of the column.

    `unavailable` stands for a value that a change leaves alone. `has_schema` is false where a record has no schema;
    `name` and `scale` are null where it says nothing.
    """

    is_mongodb: bool
    decimals: Decimals | None
    unit: TimeUnit | None
    unavailable: str
    has_schema: Column = field(default_factory=lambda: F.lit(False))
    name: Column = field(default_factory=lambda: F.lit(None).cast("string"))
    scale: Column = field(default_factory=lambda: F.lit(None).cast("string"))

    @property
    def within(self) -> "Encoding":
        """Of what lies within the column's values, of which no schema says anything."""
        return Encoding(self.is_mongodb, self.decimals, self.unit, self.unavailable)


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
        F.concat(*(F.coalesce(some, no_paths()) for some in paths)).alias("touched"),
        (F.lit(is_mongodb) & (envelope["op"] == "u") & is_null(after) & update.isNotNull()).alias("is_partial"),
        F.when(envelope["op"] != "r", content).alias("content"),  # a snapshot may repeat any change
    )


def sent_of(image: Column, name: str, encoding: Encoding) -> Column:
    """What was sent of a column, a VARIANT: in the row, in the row before where the new one lacks it, or in the key."""
    value, earlier = (F.try_element_at(image[part], F.lit(name)) for part in ("fields", "before"))
    value = F.when(_is_left(value, encoding) & ~is_null(earlier), earlier).otherwise(value)
    return F.coalesce(value, F.try_element_at(image["key"], F.lit(name)))


def type_of(types: Column, name: str) -> Column:
    """What the record's own schema says of a column."""
    return F.get(F.filter(types, lambda column: column["field"] == name), F.lit(0))


def fit(sent: Column, column: StructField, encoding: Encoding, *, image: Column, types: Column) -> Fit:
    """A column of a change. `types`: what the record's own schema says of columns, null without one."""
    own = type_of(types, column.name)
    encoding = replace(encoding, has_schema=types.isNotNull(), name=own["name"], scale=own["parameters"]["scale"])
    left = F.coalesce(_is_left(sent, encoding), F.lit(False))
    value, misfits = fitted(sent, column.dataType, encoding)
    unchanged = F.when(left, F.array(F.lit(path_of([column.name])))).otherwise(no_paths())
    if not encoding.is_mongodb or column.name == "_id":
        return Fit(value, misfits & ~left, unchanged)
    part, is_partial = _part((column.name,), column.dataType, image, encoding), image["is_partial"]
    return Fit(
        F.when(is_partial, part.value).otherwise(value),
        F.when(is_partial, part.misfits).otherwise(misfits & ~left),
        F.when(is_partial, part.unchanged).otherwise(unchanged),
    )


def _part(path: tuple[str, ...], kind: DataType, image: Column, encoding: Encoding) -> Fit:
    """What a partial update says of a field: its value, that it is removed, something within it, or nothing."""
    name = ".".join(path)
    is_set = F.coalesce(F.map_contains_key(image["updated"], name), F.lit(False))
    is_removed = F.coalesce(F.array_contains(image["removed"], name), F.lit(False))
    is_within = F.exists(image["touched"], lambda touched: touched.startswith(f"{name}."))
    value, misfits = fitted(F.try_element_at(image["updated"], F.lit(name)), kind, encoding)
    left, this = F.when(is_set | is_removed, no_paths()), F.array(F.lit(path_of(path)))
    if not isinstance(kind, StructType):  # an element of a list, or a key of a map, cannot be set on its own
        unchanged = left.when(is_within, no_paths()).otherwise(this)
        return Fit(value, F.when(is_set, misfits).otherwise(is_within), unchanged)
    parts = {field.name: _part((*path, field.name), field.dataType, image, encoding.within) for field in kind}
    inner = F.struct(*(part.value.alias(name) for name, part in parts.items()))
    unchanged = F.concat(no_paths(), *(part.unchanged for part in parts.values()))
    return Fit(
        F.when(is_set, value).when(is_within, inner),
        F.when(is_set, misfits).otherwise(is_within & any_of(part.misfits for part in parts.values())),
        left.when(is_within, unchanged).otherwise(this),
    )


def _is_left(value: Column, encoding: Encoding) -> Column:
    """Whether a placeholder was sent: as text, as bytes, in a list, in a map, or as a list of bytes."""
    unavailable, raw = encoding.unavailable, encoding.unavailable.encode()
    forms = ([unavailable], {unavailable: unavailable}, list(raw))
    texts = (json.dumps(form, separators=(",", ":")) for form in forms)
    return text_of(value).isin(unavailable, base64.b64encode(raw).decode(), *texts)


def fitted(value: Column, kind: DataType, encoding: Encoding) -> tuple[Column, Column]:
    """A VARIANT as a value of this type, and whether it does not fit."""
    match kind:
        case VariantType():
            return value, F.lit(False)
        case StructType() | ArrayType() | MapType():
            is_text = F.schema_of_variant(value) == "STRING"  # a column of JSON is sent as its text
            opened = F.when(is_text, F.try_parse_json(text_of(value))).otherwise(value)
            result, misfits = _container(opened, kind, encoding.within)
        case _:
            result, misfits = _scalar(value, kind, encoding), F.lit(False)
    return result, ~is_null(value) & (result.isNull() | misfits)


def is_null(value: Column) -> Column:
    """Whether a VARIANT is null, or is not there."""
    return value.isNull() | F.is_variant_null(value)


def text_of(value: Column) -> Column:
    return F.try_variant_get(value, "$", "string")


def fields_of(value: Column) -> Column:
    """An object's fields, each a VARIANT; null for anything else."""
    return F.try_variant_get(value, "$", FIELDS)


def _container(value: Column, kind: DataType, encoding: Encoding) -> tuple[Column, Column]:
    """The value, and whether something within it does not fit."""
    match kind:
        case ArrayType():
            items = F.try_variant_get(value, "$", "ARRAY<VARIANT>")
            result = F.transform(items, lambda item: fitted(item, kind.elementType, encoding)[0])
            return result, F.exists(items, lambda item: fitted(item, kind.elementType, encoding)[1])
        case MapType():
            fields = fields_of(value)
            result = F.transform_values(fields, lambda _, item: fitted(item, kind.valueType, encoding)[0])
            misfits = F.exists(F.map_values(fields), lambda item: fitted(item, kind.valueType, encoding)[1])
            return result.try_cast(kind), misfits
    assert isinstance(kind, StructType)
    fields = fields_of(value)
    parts = [(field, *fitted(F.try_element_at(fields, F.lit(field.name)), field.dataType, encoding)) for field in kind]
    result = F.when(fields.isNotNull(), F.struct(*(part.alias(field.name) for field, part, _ in parts)))
    return result, any_of(misfits for _, _, misfits in parts)


def any_of(conditions: Iterable[Column]) -> Column:
    """Whether one of these conditions is met."""
    return reduce(or_, conditions, F.lit(False))


def _scalar(value: Column, kind: DataType, encoding: Encoding) -> Column:
    plain = value
    if encoding.is_mongodb:  # Extended JSON's `{"$numberLong": "5"}` as "5"
        inner = (F.try_variant_get(value, path, "variant") for path in _UNWRAPPED)
        is_wrapped = F.schema_of_variant(value).startswith("OBJECT")
        plain = F.when(is_wrapped, F.coalesce(*inner, value)).otherwise(value)
    text, is_text = text_of(plain), F.schema_of_variant(plain) == "STRING"
    match kind:
        case StringType():
            return text
        case BooleanType():
            return F.when(~is_text, text.try_cast("boolean"))  # 0 and 1 as well
        case BinaryType():
            return F.when(is_text, F.try_to_binary(text, F.lit("base64")))
        case DecimalType():
            return _decimal(plain, kind, encoding)
        case DateType():
            return _date(value, encoding)
        case TimestampType() | TimestampNTZType():
            return _moment(value, kind, encoding)
        case FloatType() | DoubleType():
            number = text.try_cast(kind)
            return F.when((F.abs(number) != float("inf")) | text.rlike("(?i)inf"), number)  # else beyond its range
    return text.try_cast(kind)


def _decimal(value: Column, kind: DecimalType, encoding: Encoding) -> Column:
    """A number, a number's text, or the base64 of its unscaled bytes. Which of both a text is, its schema says, or who
    declared it, or its characters where they can be but one."""
    text, scale = text_of(value), F.coalesce(encoding.scale.try_cast("int"), F.lit(kind.scale))
    number = F.when(text.rlike(_NUMBER) | (F.schema_of_variant(value) == "DOUBLE"), text.try_cast(kind))
    if encoding.is_mongodb:
        return number
    of_bytes, any_scale = _of_bytes(text, scale, kind), F.try_variant_get(value, "$.scale", "int")
    declared = {"precise": of_bytes, "string": number}.get(encoding.decimals or "")
    if declared is None:
        could_be_both = text.rlike(_NUMBER) & _bytes(text).isNotNull()
        declared = F.when(~could_be_both, F.coalesce(number, of_bytes))
    by_schema = F.when(encoding.name == f"{_CONNECT}.Decimal", of_bytes).when(encoding.name.isNull(), number)
    by_text = F.when(encoding.has_schema, by_schema).otherwise(declared)
    variable = _of_bytes(F.try_variant_get(value, "$.value", "string"), any_scale, kind)
    shape = F.schema_of_variant(value)
    return F.when(shape == "STRING", by_text).when(shape.startswith("OBJECT"), variable).otherwise(number)


def _bytes(text: Column) -> Column:
    return F.when((F.length(text) % 4 == 0) & (text != ""), F.try_to_binary(text, F.lit("base64")))


def _of_bytes(text: Column, scale: Column, kind: DecimalType) -> Column:
    """A big-endian number in two's complement of at most 16 bytes, as base64, without its point."""
    digits = F.hex(_bytes(text))
    whole = F.lpad(digits, 32, F.when(F.left(digits, F.lit(1)) >= "8", "F").otherwise("0"))
    high = F.conv(F.substring(whole, 1, 16), 16, -10).cast("decimal(20,0)")
    low = F.conv(F.substring(whole, 17, 16), 16, 10).cast("decimal(20,0)")
    half, is_below = F.lit("18446744073709551616").cast("decimal(20,0)"), high < 0  # towards 0: 39 digits are too many
    unscaled = F.try_add(F.try_multiply(high + is_below.cast("int"), half), low - F.when(is_below, half).otherwise(0))
    pointed = F.concat(unscaled.cast("string"), F.lit("E"), (-scale).cast("string"))
    return F.when(F.length(digits) <= 32, pointed.try_cast(kind))


def _date(value: Column, encoding: Encoding) -> Column:
    """Days since 1970, or a day's text. MongoDB knows moments alone: midnight is a day."""
    text = text_of(value)
    if encoding.is_mongodb:
        moment = _moment(F.when(F.schema_of_variant(value).startswith("OBJECT"), value), TimestampType(), encoding)
        midnight = F.when(F.date_trunc("day", moment) == moment, moment.cast("date"))
        return F.coalesce(midnight, F.when(text.rlike(f"{_DAY}$"), text.try_cast("date")))
    is_days = (F.schema_of_variant(value) == "BIGINT") & (encoding.name.isNull() | encoding.name.isin(*_DAYS))
    days = F.date_from_unix_date(F.when(is_days, text.try_cast("int")))
    return F.coalesce(days, F.when(text.rlike(f"{_DAY}Z?$"), F.regexp_replace(text, "Z$", "").try_cast("date")))


def _moment(value: Column, kind: DataType, encoding: Encoding) -> Column:
    """A number of a unit that is known, or a moment's text; of nanoseconds whole microseconds."""
    dates = (F.try_variant_get(value, path, "variant") for path in ("$['$date']['$numberLong']", "$['$date']"))
    date = F.coalesce(*dates) if encoding.is_mongodb else F.lit(None).cast("variant")
    text, is_number = text_of(F.coalesce(date, value)), F.schema_of_variant(value) == "BIGINT"
    number = text.try_cast("bigint")
    by_name = (F.when(encoding.name.isin(*names), _micros(number, unit)) for unit, names in _UNITS.items())
    declared = _micros(number, encoding.unit) if encoding.unit else F.lit(None).cast("bigint")
    micros = F.when(date.isNotNull(), _micros(number, "milliseconds"))
    micros = micros.when(is_number, F.when(encoding.name.isNull(), declared).otherwise(F.coalesce(*by_name)))
    of_number = F.timestamp_micros(micros)
    if isinstance(kind, TimestampNTZType):
        of_number = F.to_utc_timestamp(of_number, F.current_timezone()).cast(kind)
    return F.coalesce(of_number, F.when(text.rlike(rf"{_DAY}([T ]\d\d:.*)?$"), text.try_cast(kind)))


def _micros(number: Column, unit: TimeUnit) -> Column:
    match unit:
        case "milliseconds":
            return F.try_multiply(number, F.lit(1_000))
        case "microseconds":
            return number
    return F.call_function("div", number - F.pmod(number, F.lit(1_000)), F.lit(1_000))
