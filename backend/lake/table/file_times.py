"""Days and moments in data files that a reader would take for others: counted in the calendar before 1582 (Julian), or
beyond 64 bits of nanoseconds.

Rule: a file's footer says whether it may hold such; only then are its columns of time looked into. What cannot be
counted anew as Spark counts it is refused by name.
Source: Spark's `DataSourceUtils.getRebaseSpec` and `RebaseDateTime`.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as pt

from backend.errors import UnsupportedFeatureError

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


def in_old_calendar(source: pa.NativeFile) -> pq.ParquetFile | None:
    """The file where a value of it means another day in the old calendar, else None."""
    if may_be_old(source) and holds_old_times(file := opened(source)):
        return file
    return None


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


def write_rebased(file: pq.ParquetFile, target: Path, path: str) -> None:
    """A copy of a file with its old times counted as Spark reads them. Raises `UnsupportedFeatureError`, which names
    it by `path`, for those inside of nested columns, and for moments whose clock was not UTC's."""
    footer = file.metadata
    old, zone = old_columns(footer), (footer.metadata or {}).get(_ZONE, b"of its writer")
    int96 = {name for name, is_int96 in _columns_of_time(footer) if is_int96}
    schema = pa.schema([f.with_type(_UTC_MOMENT) if f.name in int96 else f for f in file.schema_arrow])
    with pq.ParquetWriter(target, schema) as writer:
        for batch in file.iter_batches():
            for number, field in enumerate(batch.schema):
                column, head = batch.column(number), f"{field.name}."
                if not any(f"{name}.".startswith(head) for name in old) or not any(map(_is_old, _flat(column))):
                    continue
                if pt.is_nested(field.type) or (pt.is_timestamp(field.type) and zone not in _UTC):
                    where = (
                        "inside of" if pt.is_nested(field.type) else f"by the clock {zone.decode(errors='replace')} in"
                    )
                    raise UnsupportedFeatureError(
                        f"{path} holds times {where} column {field.name} in the calendar before 1582",
                        hint="the log's numbers still hold; Spark reads these rows, and may write them anew",
                    )
                batch = batch.set_column(number, field, _rebased(column))
            writer.write_batch(batch.cast(schema))


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
