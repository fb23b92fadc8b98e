"""What records say: JSON text as columns, for records of topics and lines of files, and Avro as such text.

Rule: a text is one JSON value, whole and alone, or it is broken: nothing that follows the value is passed over. A value
that is not one of its declared type is a misfit, also where Spark would make another value of it. An Avro record that
cannot be decoded says why. A registry that does not answer fails the batch: no record is lost. Spark's Python workers
import this module to decode Avro, so it imports no declaration and no settings.
Wire format: https://docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop/index.html
"""

import base64
import io
import json
import math
import secrets
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from datetime import time as time_of_day
from decimal import Decimal
from functools import cache, reduce
from operator import or_
from pathlib import Path
from typing import Any
from uuid import UUID

import fastavro
from fastavro.types import Schema
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

from pipelines.jvm.failures import SpecError

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
    """Rows with their `_weir_text` parsed, and whether it is whole and fits.

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


_PATIENCE_S = 10.0  # for one answer of a registry
_ABSENT_S = 10.0  # an id that it does not know is asked for again after this time
_MAGIC, _PREFIX = 0, 5  # a byte, and the schema's id in four
_ACCEPT = "application/vnd.schemaregistry.v1+json"


class RegistryError(Exception):
    """A schema registry does not answer. Spark passes the message on alone, so it ends with the next step."""


class _BadRecordError(Exception):
    """A record's bytes are no Avro of its schema."""


_Decoded = tuple[str | None, str | None]


def avro_by_schema(schema: Schema) -> Callable[[bytes | None], _Decoded]:
    """Decodes records of one schema into `json`, a record as text, and `problem`, why there is none."""
    return lambda value: (None, None) if value is None else _as_json(value, lambda: schema)


def avro_by_registry(registry: str, login: str | None) -> Callable[[bytes | None], _Decoded]:
    """Decodes records that begin with the id of a schema in the registry."""

    def decode(value: bytes | None) -> _Decoded:
        if value is None:
            return None, None
        if len(value) < _PREFIX or value[0] != _MAGIC:
            bytes_are = f"begins with the byte {value[0]:#04x}, not with 0x00" if value else "is empty"
            return None, f"not Avro behind a schema's id: it {bytes_are}"
        number = int.from_bytes(value[1:_PREFIX], "big")
        return _as_json(value[_PREFIX:], lambda: _registry_at(registry, login).schema(number))

    return decode


def _as_json(payload: bytes, schema: Callable[[], Schema]) -> _Decoded:
    stream = io.BytesIO(payload)
    try:
        known = schema()
        try:
            record = fastavro.schemaless_reader(stream, known, None)
        except Exception as exc:  # noqa: BLE001 (bytes that are not of this schema end in many kinds of error)
            return None, f"not Avro of its schema: {type(exc).__name__}: {exc}".rstrip(": ")
        if left := len(payload) - stream.tell():
            return None, f"not Avro of its schema: {left} bytes follow the record"
        return json.dumps(_plain(record)), None
    except _BadRecordError as exc:
        return None, str(exc)


def _plain(value: Any) -> Any:
    """A value in the forms that Spark's reader of JSON takes for the column's type."""
    match value:
        case Mapping():
            return {str(key): _plain(item) for key, item in value.items()}
        case str() | bool() | int() | float() | None:
            return value
        case bytes():
            return base64.b64encode(value).decode()
        case Decimal() | UUID():
            return str(value)
        case datetime() | date() | time_of_day():
            return value.isoformat()
        case Sequence():
            return [_plain(item) for item in value]
    raise _BadRecordError(f"a value of type {type(value).__name__} is not known here")


def avro_schema_of(file: str) -> Schema:
    try:
        return fastavro.parse_schema(json.loads(Path(file).read_text(encoding="utf-8")))
    except OSError as exc:
        raise SpecError(f"kafka: {file} cannot be read: {exc.strerror}", hint="avro_schema names a file") from exc
    except Exception as exc:  # JSON's errors, and many of fastavro's
        raise SpecError(f"kafka: {file} is no Avro schema: {exc}", hint="write it as JSON, in one file") from exc


@dataclass
class _Registry:
    """A registry's schemas by id, which never change.

    Not confluent-kafka's client: these fifty lines would be thirty, for six more packages on every executor (a wheel of
    5 MB, with librdkafka in it), and 28 MB and 0.15 s in each Python worker. Its deserializer takes bytes that follow a
    record.
    """

    url: str
    login: str | None = field(repr=False)
    _schemas: dict[int, Schema] = field(default_factory=dict)
    _absent: dict[int, float] = field(default_factory=dict)

    def schema(self, number: int) -> Schema:
        """Raises `RegistryError`, or `_BadRecordError` where it knows no such schema."""
        if number not in self._schemas and time.monotonic() - self._absent.get(number, -math.inf) > _ABSENT_S:
            answer = self._get(f"/schemas/ids/{number}")
            if answer is None or answer.get("schemaType", "AVRO") != "AVRO":
                self._absent[number] = time.monotonic()
            else:
                named: dict[str, Any] = {}
                self._read_references(answer, named)
                self._schemas[number] = fastavro.parse_schema(json.loads(answer["schema"]), named)
        if number not in self._schemas:
            raise _BadRecordError(f"the registry knows no Avro schema {number}")
        return self._schemas[number]

    def _read_references(self, answer: Mapping[str, Any], named: dict[str, Any]) -> None:
        for reference in answer.get("references") or ():
            other = self._get(f"/subjects/{reference['subject']}/versions/{reference['version']}")
            if other is not None:
                self._read_references(other, named)
                fastavro.parse_schema(json.loads(other["schema"]), named)

    def _get(self, path: str) -> dict[str, Any] | None:
        """The answer, None where it is "not found"."""
        request = urllib.request.Request(self.url.rstrip("/") + path, headers={"Accept": _ACCEPT})
        if self.login:
            request.add_header("Authorization", "Basic " + base64.b64encode(self.login.encode()).decode())
        try:
            with urllib.request.urlopen(request, timeout=_PATIENCE_S) as answer:
                return dict(json.loads(answer.read()))
        except (OSError, ValueError) as exc:
            if (code := getattr(exc, "code", None)) == 404:
                return None
            why = f"HTTP {code}" if code else getattr(exc, "reason", exc)
            next_step = "the batch runs again by itself: see that the registry is up, and its login"
            raise RegistryError(f"the schema registry at {self.url} did not answer: {why} ({next_step})") from exc


@cache
def _registry_at(url: str, login: str | None) -> _Registry:
    """One for each of Spark's Python workers: it keeps answers over batches."""
    return _Registry(url, login)
