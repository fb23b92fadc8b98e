"""What a reader takes for something else in data files: days and moments of another calendar, columns under other
names, structs that lack fields; and the copies in which it does not.

Rule: a file's footer says whether it may hold such, and only then more of it is looked into; nothing else of a file is
changed. Times before 1582 (Julian) or beyond 64 bits of nanoseconds that cannot be counted anew as Spark counts them
are refused by name. A name that a file has as the table writes it is never taken for another's, unless the table finds
its columns by ids. A field that came after the file was written is null; deltalake (1.6.6, tried) cannot read such a
file where the struct lies in a map or an array.
Source: Spark's `DataSourceUtils.getRebaseSpec` and `RebaseDateTime`, and its parquet reader, which matches names
without case, nested and physical ones as well (tried); Delta protocol, "Column Mapping", for the ids.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as pt

from backend.errors import UnsupportedFeatureError
from backend.lake.model import FileNumbers, Metadata, Snapshot
from backend.lake.table.schema import PARTS, columns, physical_name, read_schema

OLD_DAYS, OLD_INT96 = b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96"
_VERSION, _ZONE = b"org.apache.spark.version", b"org.apache.spark.timeZone"
_OLD_VERSION = re.compile(re.escape(_VERSION) + rb"\x18.(?:[12]\.|3\.0)", re.DOTALL)  # as Thrift has the next text
_UTC = (b"UTC", b"Etc/UTC", b"Z", b"GMT", b"Etc/GMT", b"Universal", b"Zulu")
_GREGORIAN_DAY = -141_427  # 1582-10-15
_DAY_US = 86_400 * 10**6
_SAME_CLOCKS_US = -25_567 * _DAY_US  # 1900-01-01: from here on Java's two calendars agree in every time zone
_NANOSECONDS_US = 2**63 // 1000
_UTC_MOMENT = pa.timestamp("us", "UTC")
_EPOCH = 2_440_588  # 1970-01-01 as a Julian day number
Whole = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Misreading:
    """Why a reader cannot take a file as it is, and the copy that it can: its schema, and each batch of rows there."""

    why: str
    file: pq.ParquetFile
    schema: pa.Schema
    corrected: Callable[[pa.RecordBatch], pa.RecordBatch]

    def write(self, copy: Path) -> None:
        with pq.ParquetWriter(copy, self.schema) as writer:
            for batch in self.file.iter_batches():
                writer.write_batch(self.corrected(batch))


def checks(metadata: Metadata, path: str, *, by_case: bool) -> list[Callable[[pa.NativeFile], Misreading | None]]:
    """What readers may get wrong in a file of such a table, in the order in which it is corrected. `path` names the
    file in errors; `by_case`: a reader that tells names apart by case."""
    schema_json, names = metadata.schema_json, [partial(misspelled, metadata=metadata)] if by_case else []
    has_times = '"date"' in schema_json or '"timestamp"' in schema_json
    return [
        *([partial(old_calendar, path=path)] if has_times else []),
        *(names if goes_by_id(metadata) else []),  # before whatever goes by names
        *([partial(lacking, schema_json=schema_json)] if _collections(schema_json) else []),
        *names,
    ]


# times -----------------------------------------------------------------------------------------------------------


def old_columns(footer: pq.FileMetaData) -> list[str]:
    """The columns of time (dotted) that were counted in the old calendar, as Spark tells it: by its mark, or by the
    version that wrote the file."""
    marks = footer.metadata or {}
    version = re.match(rb"(\d+)\.(\d+)", marks.get(_VERSION, b""))
    written_by = (int(version[1]), int(version[2])) if version else (3, 1)
    is_old = {True: OLD_INT96 in marks or written_by < (3, 1), False: OLD_DAYS in marks or written_by < (3, 0)}
    return [path for path, is_int96 in _columns_of_time(footer) if is_old[is_int96]] if any(is_old.values()) else []


def may_be_old(source: pa.NativeFile) -> bool:
    """Whether a footer holds such a mark or version: a look through its bytes, for to parse a wide one takes long."""
    footer = footer_bytes(source)
    return OLD_DAYS in footer or OLD_INT96 in footer or _OLD_VERSION.search(footer) is not None


def footer_bytes(source: pa.NativeFile) -> bytes:
    """A footer as it is written; b"" of a file that does not end with one."""
    end = max(0, source.size() - 8)
    source.seek(end)
    tail = source.read(8)
    start = end - int.from_bytes(tail[:4], "little")
    if start < 0 or tail[4:] != b"PAR1":
        return b""
    source.seek(start)
    footer: bytes = source.read(end - start)
    return footer


def opened(source: pa.NativeFile) -> pq.ParquetFile:
    """Its INT96 are microseconds, which hold all that Spark writes."""
    return pq.ParquetFile(source, coerce_int96_timestamp_unit="us")


def holds_old_times(file: pq.ParquetFile) -> bool:
    """Whether a value means another day in the old calendar."""
    columns = old_columns(file.metadata)
    return bool(columns) and any(_is_old(leaf) for leaf in _leaves(file, columns))


def old_calendar(source: pa.NativeFile, path: str) -> Misreading | None:
    """Days counted in the calendar before 1582, of a file that has some; its copy counts them as Spark reads them.

    To write it raises `UnsupportedFeatureError` for those inside of nested columns, and for moments whose clock was not
    UTC's."""
    if not may_be_old(source) or not holds_old_times(file := opened(source)):
        return None
    footer = file.metadata
    old, zone = old_columns(footer), (footer.metadata or {}).get(_ZONE, b"of its writer")
    int96 = {name for name, is_int96 in _columns_of_time(footer) if is_int96}
    schema = pa.schema([f.with_type(_UTC_MOMENT) if f.name in int96 else f for f in file.schema_arrow])

    def rebased(batch: pa.RecordBatch) -> pa.RecordBatch:
        for number, field in enumerate(batch.schema):
            column, head = batch.column(number), f"{field.name}."
            if not any(f"{name}.".startswith(head) for name in old) or not any(map(_is_old, _flat(column))):
                continue
            if pt.is_nested(field.type) or (pt.is_timestamp(field.type) and zone not in _UTC):
                where = "inside of" if pt.is_nested(field.type) else f"by the clock {zone.decode(errors='replace')} in"
                raise UnsupportedFeatureError(
                    f"{path} holds times {where} column {field.name} in the calendar before 1582",
                    hint="the log's numbers still hold; Spark reads these rows, and may write them anew",
                )
            batch = batch.set_column(number, field, _rebased(column))
        return batch.cast(schema)

    return Misreading("counts days in the calendar before 1582", file, schema, rebased)


def why_misread(file: pq.ParquetFile) -> str | None:
    """What a reader that knows neither the old calendar nor INT96 would get wrong."""
    if holds_old_times(file):
        return "times before 1582 or 1900 in the old calendar"
    int96 = [path for path, is_int96 in _columns_of_time(file.metadata) if is_int96]
    for leaf in _leaves(file, int96) if int96 else ():
        ends = pc.min_max(_microseconds(leaf)).as_py()
        if ends["min"] is not None and not -_NANOSECONDS_US < ends["min"] <= ends["max"] < _NANOSECONDS_US:
            return "times before 1677 or after 2262 as INT96"
    return None


def _columns_of_time(footer: pq.FileMetaData) -> Iterator[tuple[str, bool]]:
    """The paths of leaves, and whether they are INT96."""
    for number in range(footer.num_columns):
        leaf = footer.schema.column(number)
        is_int96, logical = leaf.physical_type == "INT96", str(leaf.logical_type)
        if is_int96 or logical == "Date" or logical.startswith("Timestamp(isAdjustedToUTC=true"):
            yield leaf.path, is_int96


def _leaves(file: pq.ParquetFile, columns: list[str]) -> Iterator[pa.Array]:
    for batch in file.iter_batches(columns=columns):
        for column in batch.columns:
            yield from _flat(column)


def _flat(array: pa.Array) -> Iterator[pa.Array]:
    """The arrays of time inside of one."""
    if pt.is_struct(array.type):
        for inner in array.flatten():
            yield from _flat(inner)
    elif pt.is_nested(array.type):
        yield from _flat(array.values)
    elif pt.is_date(array.type) or pt.is_timestamp(array.type):
        yield array


def _microseconds(leaf: pa.Array) -> pa.Array:
    return leaf.cast(pa.timestamp("us"), safe=False).cast(pa.int64())


def _is_old(leaf: pa.Array) -> bool:
    is_day = pt.is_date(leaf.type)
    lowest = pc.min(leaf.cast(pa.int32()) if is_day else _microseconds(leaf)).as_py()
    return lowest is not None and lowest < (_GREGORIAN_DAY if is_day else _SAME_CLOCKS_US)


def _rebased(leaf: pa.Array) -> pa.Array:
    if pt.is_date(leaf.type):
        days = leaf.cast(pa.int32()).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
        return pa.array(_gregorian(days).astype(np.int32), mask=_nulls(leaf)).cast(leaf.type)
    moments = _microseconds(leaf).fill_null(0).to_numpy(zero_copy_only=False)
    days = np.floor_divide(moments, _DAY_US)
    fresh = moments + (_gregorian(days) - days) * _DAY_US
    return pa.array(fresh, mask=_nulls(leaf)).cast(pa.timestamp("us", leaf.type.tz)).cast(leaf.type)


def _nulls(leaf: pa.Array) -> npt.NDArray[np.bool_]:
    return np.asarray(leaf.is_null().to_numpy(zero_copy_only=False), np.bool_)


def _gregorian(days: Whole) -> Whole:
    """Days since 1970 by which the Gregorian calendar, drawn out to before it began, calls days what the Julian did."""
    shifted = days + _EPOCH + 32_082  # since March of a year 4800 before
    year = (4 * shifted + 3) // 1461
    day = shifted - 1461 * year // 4
    fresh = day + 365 * year + year // 4 - year // 100 + year // 400 - 32_044 - _EPOCH
    return np.where(days < _GREGORIAN_DAY, fresh, days)


# names -----------------------------------------------------------------------------------------------------------

MISSPELLED = "columns under other names than the table gives them"
_ID, _FILE_ID = "delta.columnMapping.id", b"PARQUET:field_id"
_SHORT = 128  # bytes of a name whose length Thrift writes as one
_TEXT = r'"(?:[^"\\]|\\.)*"'
_VALUE = rf":\s*(?:{_TEXT}|[^\s\"{{\[,}}]+)"  # of a key in statistics
_KEY = re.compile(r'"((?:[^"\\]|\\.)*)":')


def misspelled(source: pa.NativeFile, metadata: Metadata) -> Misreading | None:
    """Names in another case or of other columns, for which deltalake (1.6.6, tried) gives nulls or the other column's
    values, and no error; the copy has the table's names. Raises `ValueError` where a file has one of them twice."""
    by_id = goes_by_id(metadata)
    footer = b"" if by_id else footer_bytes(source)  # a look through its bytes, for to parse a wide one takes long
    if all(name in footer for name in _encoded_names(metadata.schema_json, metadata.partition_columns)):
        return None
    file = opened(source)
    own = file.schema_arrow
    schema = pa.schema(list(_spelled(pa.struct(list(own)), orjson.loads(metadata.schema_json), by_id=by_id)))
    if schema.names == own.names and schema.types == own.types:
        return None
    kind = pa.struct(list(schema))

    def spelled(batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.RecordBatch.from_struct_array(batch.to_struct_array().view(kind))

    return Misreading(f"has {MISSPELLED}", file, schema, spelled)


def perhaps_misspelled(snapshot: Snapshot) -> FileNumbers:
    """The files of which the log's statistics do not say that they name columns as the table does."""
    stats = pc.fill_null(snapshot.columns(["stats"])["stats"].cast(pa.string()), "")
    shapes = pc.replace_substring_regex(stats, _VALUE, ":")
    names = dict.fromkeys(_names(orjson.loads(snapshot.metadata.schema_json)))
    lower = {name.lower() for name in names}

    def names_alike(shape: str) -> bool:
        known = [key for key in _KEY.findall(shape) if key.lower() in lower]
        return bool(known) and all(key in names for key in known)

    alike = pa.array(filter(names_alike, shapes.unique().to_pylist()), pa.string())
    return np.flatnonzero(~pc.is_in(shapes, value_set=alike).to_numpy()).astype(np.int64)


@lru_cache(maxsize=64)
def _encoded_names(schema_json: str, partition_columns: tuple[str, ...]) -> tuple[bytes, ...]:
    """The names that files of the table have, each once, as a footer writes them."""
    struct = orjson.loads(schema_json)
    stored = [field for field in struct["fields"] if field["name"] not in partition_columns]
    texts = dict.fromkeys(name.encode() for name in _names({**struct, "fields": stored}))
    return tuple(bytes([len(text)]) + text if len(text) < _SHORT else text for text in texts)


def _names(kind: Any) -> Iterator[str]:
    for field in kind["fields"] if isinstance(kind, Mapping) and kind["type"] == "struct" else ():
        yield physical_name(field)
        yield from _names(field["type"])
    for inner in PARTS if isinstance(kind, Mapping) else ():
        yield from _names(kind.get(inner))


def goes_by_id(metadata: Metadata) -> bool:
    """Whether field ids tell which column of a file is which, whatever its name."""
    return metadata.configuration.get("delta.columnMapping.mode", "").lower() == "id"


def _spelled(kind: pa.DataType, declared: Any, *, by_id: bool) -> pa.DataType:
    """A type of a file with the names of the table's type."""
    if not isinstance(declared, Mapping):
        return kind
    if pt.is_struct(kind) and declared["type"] == "struct":
        types = {physical_name(field): field["type"] for field in declared["fields"]}
        own = {field.name for field in kind}
        table_names = {name.lower(): name for name in types if name not in own}
        named = (
            _named_by_id(kind, declared["fields"])
            if by_id
            else [(f, f.name if f.name in types else table_names.get(f.name.lower(), f.name)) for f in kind]
        )
        return pa.struct([
            field.with_name(name).with_type(_spelled(field.type, types[name], by_id=by_id)) if name in types
            else field.with_name(name)
            for field, name in named
        ])  # fmt: skip
    if pt.is_map(kind) and declared["type"] == "map":
        key, item = ((kind.key_type, declared["keyType"]), (kind.item_type, declared["valueType"]))
        return pa.map_(_spelled(*key, by_id=by_id), _spelled(*item, by_id=by_id))
    if pt.is_list(kind) and declared["type"] == "array":
        return pa.list_(kind.value_field.with_type(_spelled(kind.value_type, declared["elementType"], by_id=by_id)))
    return kind


def _named_by_id(kind: pa.StructType, declared: Any) -> list[tuple[pa.Field, str]]:
    """A file's fields with the table's names of their ids. One without an id keeps its name; that of an id which the
    table does not have stands in no other's way."""
    names = {str((field.get("metadata") or {}).get(_ID)): physical_name(field) for field in declared}
    ids = [(field, (field.metadata or {}).get(_FILE_ID, b"").decode()) for field in kind]
    named = [(field, names.get(number, f"{field.name} {number}" if number else field.name)) for field, number in ids]
    if len({name for _, name in named}) < len(named):
        raise ValueError("two columns of one field id, or of one name")
    return named


# fields of collections -------------------------------------------------------------------------------------------

_PLAIN = {
    "string": pa.string(), "long": pa.int64(), "integer": pa.int32(), "short": pa.int16(), "byte": pa.int8(),
    "float": pa.float32(), "double": pa.float64(), "boolean": pa.bool_(), "binary": pa.binary(), "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"), "timestamp_ntz": pa.timestamp("us"),
}  # fmt: skip


@lru_cache(maxsize=256)
def _collections(schema_json: str) -> Mapping[str, Any]:
    """The types of the outermost columns that hold a struct within a map or an array, by the names in files."""
    readable = read_schema(schema_json).json
    types = {physical_name(field): field["type"] for field in orjson.loads(readable)["fields"]}
    inner = columns(Metadata("", readable))
    held = {column.physical[0] for column in inner if column.in_collection and column.kind == "struct"}
    return {name: kind for name, kind in types.items() if name in held}


def lacking(source: pa.NativeFile, schema_json: str) -> Misreading | None:
    """Maps and arrays whose structs got fields since; the copy has every field."""
    file = opened(source)
    schema = file.schema_arrow
    kinds = {
        name: kind
        for name, kind in _collections(schema_json).items()
        if name in schema.names and _lacks(schema.field(name).type, kind)
    }
    if not kinds:
        return None
    for at, field in enumerate(schema):
        if field.name in kinds:
            filled = _filled(pa.array([], field.type), kinds[field.name])
            schema = schema.set(at, field.with_type(filled.type))

    def completed(batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = [
            _filled(column, kinds[name]) if name in kinds else column
            for name, column in zip(batch.schema.names, batch.columns, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    return Misreading(f"lacks fields within {', '.join(kinds)}", file, schema, completed)


def _lacks(stored: pa.DataType, kind: Any) -> bool:
    """Whether a column as a file holds it lacks a field of its type."""
    if pt.is_struct(stored) and kind["type"] == "struct":
        types = {field.name.lower(): field.type for field in stored}
        wanted = {physical_name(field).lower(): field["type"] for field in kind["fields"]}
        return any(name not in types or _lacks(types[name], inner) for name, inner in wanted.items())
    if pt.is_map(stored):
        return _lacks(stored.key_type, kind["keyType"]) or _lacks(stored.item_type, kind["valueType"])
    return pt.is_list(stored) and _lacks(stored.value_type, kind["elementType"])


def _filled(values: pa.Array, kind: Any) -> pa.Array:
    if isinstance(kind, str):
        return values
    if pt.is_struct(values.type):
        stored = dict(zip((field.name.lower() for field in values.type), values.flatten(), strict=True))
        types = {physical_name(field): field["type"] for field in kind["fields"]}
        parts = {
            name: _filled(stored[name.lower()], inner)
            if name.lower() in stored
            else pa.nulls(len(values), _arrow(inner))
            for name, inner in types.items()
        }
        return pa.StructArray.from_arrays(list(parts.values()), list(parts), mask=values.is_null())
    ends = values.offsets.to_numpy()
    start, end = (int(ends[0]), int(ends[-1])) if len(ends) else (0, 0)
    mask = np.append(values.is_null().to_numpy(zero_copy_only=False), False)
    offsets = pa.array(ends - start if len(ends) else np.zeros(1, np.int32), pa.int32(), mask=mask)
    if pt.is_map(values.type):
        keys, items = (part.slice(start, end - start) for part in (values.keys, values.items))
        return pa.MapArray.from_arrays(offsets, _filled(keys, kind["keyType"]), _filled(items, kind["valueType"]))
    return pa.ListArray.from_arrays(offsets, _filled(values.values.slice(start, end - start), kind["elementType"]))


def _arrow(kind: Any) -> pa.DataType:
    if isinstance(kind, str):
        if kind.startswith("decimal("):
            return pa.decimal128(*map(int, kind.removeprefix("decimal(").rstrip(")").split(",")))
        return _PLAIN.get(kind, pa.null())
    if kind["type"] == "struct":
        return pa.struct([(physical_name(field), _arrow(field["type"])) for field in kind["fields"]])
    if kind["type"] == "map":
        return pa.map_(_arrow(kind["keyType"]), _arrow(kind["valueType"]))
    return pa.list_(_arrow(kind["elementType"]))
