"""JSON text as columns: one parser for the records of topics and the lines of files.

Rule: a text is one JSON value, whole and alone, or it is broken: nothing that follows the value is passed over. A value
that is not one of its declared type is a misfit, also where Spark would make another value of it.
"""

import secrets
from collections.abc import Iterator, Mapping
from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    ByteType,
    DataType,
    DateType,
    DoubleType,
    FloatType,
    IntegerType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

TEXT = "_weir_text"
WHOLE = "_weir_whole"  # whether the text is one JSON object, or null, alone
FITS = "_weir_fits"  # and whether each of its values is one of its column's type
_PARSED, _MISFIT = "_weir_parsed", "_weir_misfit"
_ALL, _END = "all", f"end_{secrets.token_hex(8)}"  # no text can know it, so none can stand in for the end
_CALENDAR = ("0001-01-01", "10000-01-01")  # the years that have four digits
_NEXT = r"\}\s*\{"  # where one object ends and another begins, unless it stands within a string
_ESCAPED, _STRING = r"(?s)\\.", r"""\"[^\"]*+\"|'[^']*+'"""


def documents(text: Column) -> Column:
    """The objects in a text, one behind the other or in a list, each as text; the whole text where they cannot be told
    apart: where what looks like an end stands within a string as well."""
    bare = F.regexp_replace(F.regexp_replace(text, _ESCAPED, ""), _STRING, "")
    told_apart = F.regexp_count(bare, F.lit(_NEXT)) == F.regexp_count(text, F.lit(_NEXT))
    items = F.try_variant_get(F.try_parse_json(text), "$", "array<variant>")  # exact, as copies to text are not
    is_list = text.rlike(r"^\s*\[") & _is_alone(_wrapped(text))
    several = F.when(text.rlike(_NEXT) & told_apart, F.split(text, r"(?<=\})\s*(?=\{)"))
    return F.coalesce(F.when(is_list, F.transform(items, lambda item: F.to_json(item))), several, F.array(text))


def judged(texts: DataFrame, schema: StructType, options: Mapping[str, str]) -> DataFrame:
    """The same rows with `_weir_text` parsed, and whether it is whole and fits.

    from_json reads one value and ignores what follows it, so the text is parsed as the one element of a list within an
    object of ours. A text that closes the list is not alone in that object. The condition on the partition's number is
    always true. Spark takes it for one that can change, so it parses each text once, not once more for the filter.
    """
    wrapped = _wrapped(F.concat(F.lit("["), F.col(TEXT), F.lit("]")))
    columns = StructType().add(_ALL, ArrayType(_read_as(schema))).add(_END, IntegerType()).add(_MISFIT, StringType())
    once = F.when(F.spark_partition_id() >= 0, wrapped)
    parsed = F.from_json(once, columns, {**options, "columnNameOfCorruptRecord": _MISFIT})
    ended = F.col(f"{_PARSED}.{_END}").isNotNull() & (F.size(f"{_PARSED}.{_ALL}") == 1) & F.is_valid_utf8(TEXT)
    alone = F.when(F.contains(F.col(TEXT), F.lit("]")), _is_alone(wrapped)).otherwise(F.lit(True))
    is_object = _row().isNotNull() | F.col(f"{_PARSED}.{_MISFIT}").isNull()  # not a number, a text or a list
    is_whole = ended & alone & is_object
    fits = F.col(f"{_PARSED}.{_MISFIT}").isNull() & ~_any(_misfits(_row(), schema))
    texts = texts.withColumn(_PARSED, parsed).withColumn(WHOLE, F.coalesce(is_whole, F.lit(False)))
    return texts.withColumn(FITS, F.col(WHOLE) & fits)


def columns_of(schema: StructType) -> list[Column]:
    """The columns of judged texts; null where a value does not fit."""
    values = ((field, _row().getField(field.name)) for field in schema)
    return [
        F.when(F.col(WHOLE) & ~_any(_misfits(value, field.dataType)), value)
        .cast(field.dataType)
        .alias(field.name, metadata=field.metadata)
        for field, value in values
    ]


def reason(schema: StructType) -> Column:
    """Why a text is broken or does not fit. Looked into for such texts alone."""
    json = F.try_parse_json(TEXT)
    values = [F.try_variant_get(json, f"$['{field.name}']", "variant") for field in schema]
    misfits = [
        F.when(
            column.isNull() & (F.lit(not field.nullable) | (value.isNotNull() & ~F.is_variant_null(value))), field.name
        )
        for field, value, column in zip(schema, values, columns_of(schema), strict=True)
    ]
    names = F.array_join(F.array_compact(F.array(*misfits)), ", ")
    return (
        F.when(~F.is_valid_utf8(TEXT), "not UTF-8")
        .when(json.isNull(), "not JSON")
        .when(~F.schema_of_variant(json).startswith("OBJECT"), "not a JSON object")
        .when(~F.col(WHOLE), "more follows the JSON object")
        .when(names != "", F.concat(F.lit("does not fit the schema: "), names))
        .otherwise("does not fit the schema")
    )


def refusal(record: Column, why: Column) -> Column:
    """A condition that nothing meets: it ends the stream, and names the record."""
    return F.raise_error(F.concat(record, F.lit(" cannot be parsed: "), why)).cast("boolean")


def _row() -> Column:
    return F.get(f"{_PARSED}.{_ALL}", 0)


def _wrapped(value: Column) -> Column:
    return F.concat(F.lit(f'{{"{_ALL}":'), value, F.lit(f',"{_END}":1}}'))


def _is_alone(wrapped: Column) -> Column:
    """Whether nothing stands beside the value that was wrapped. The second look knows NaN as well."""
    keys = F.coalesce(F.json_object_keys(wrapped), F.map_keys(F.from_json(wrapped, "MAP<STRING, STRING>")))
    return keys == F.array(F.lit(_ALL), F.lit(_END))


def _read_as(kind: DataType) -> DataType:
    """Spark's reader takes 200 for a tinyint, and makes -56 of it."""
    match kind:
        case ByteType():
            return ShortType()
        case StructType():
            return StructType([StructField(field.name, _read_as(field.dataType)) for field in kind])
        case ArrayType():
            return ArrayType(_read_as(kind.elementType))
        case MapType():
            return MapType(kind.keyType, _read_as(kind.valueType))
    return kind


def _misfits(value: Column, kind: DataType) -> Iterator[Column]:
    """Where a value that was read is not what the text says, or none where one must be."""
    match kind:
        case ByteType():
            yield ~value.between(-128, 127)
        case FloatType() | DoubleType():  # beyond the type's range
            yield (F.abs(value) == F.lit(float("inf"))) & ~F.col(TEXT).rlike("(?i)inf")
        case DateType() | TimestampType():  # milliseconds, taken for seconds
            first, beyond = (F.lit(day).cast(kind) for day in _CALENDAR)
            yield (value < first) | (value >= beyond)
        case StructType():
            for field in kind:
                part = value.getField(field.name)
                yield from _misfits(part, field.dataType)
                if not field.nullable:
                    yield value.isNotNull() & part.isNull()
        case ArrayType() | MapType():
            inner = kind.elementType if isinstance(kind, ArrayType) else kind.valueType
            if any(True for _ in _misfits(value, inner)):
                items = value if isinstance(kind, ArrayType) else F.map_values(value)
                yield F.exists(items, lambda item: _any(_misfits(item, inner)))


def _any(conditions: Iterator[Column]) -> Column:
    return reduce(or_, (F.coalesce(condition, F.lit(False)) for condition in conditions), F.lit(False))
