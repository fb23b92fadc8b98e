"""Values of Arrow columns as Python's own, and a name for each column. Days and moments that Python's calendar (years 1
to 9999) does not reach are texts, as Spark and ISO 8601 write them: `+10000-01-01`, `-0044-03-15T10:00:00Z`.

Rule: pure; each value has one text, whoever shows it, and `far_number` reads that text.
"""

import re
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

WHOLE = b"whole"  # marks a field of decimals that hold whole numbers of any size
_DAY_US = 86_400 * 10**6
_LEAP_DAYS, _LEAP_YEARS = 146_097, 400  # after so many the calendar repeats itself
_FIRST_DAY = -719_162  # 0001-01-01
_INFINITE_DAY, _INFINITE_US = 2**31 - 1, 2**63 - 1
_FAR = re.compile(r"([+-]?\d{4,9})-(\d\d-\d\d)(?:[T ](\d\d:\d\d:\d\d(?:\.\d{1,6})?)(Z|[+-]\d\d(?::\d\d)?)?)?")
_DUCKDB = re.compile(r"(\d{4,})-(\d\d-\d\d)( \(BC\))?(?: (\d\d:\d\d:\d\d(?:\.\d+)?)(\+00)?)?")


def cells(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """As `to_pylist`, which fails on such days and moments."""
    try:
        values: list[Any] = column.to_pylist()
    except (ValueError, OverflowError):
        return [cell(value) for value in column]
    return values


def distinct_names(names: Sequence[str], form: str = "{} ({})") -> list[str]:
    """Column names, each once, by `form` with a number: a join may give two of one name."""
    numbers, distinct = Counter[str](), dict[str, None]()
    for name in names:
        own = name
        while own in distinct:
            numbers[name] += 1
            own = form.format(name, numbers[name] + 1)
        distinct[own] = None
    return list(distinct)


def row_cells(table: pa.Table | pa.RecordBatch) -> list[dict[str, Any]]:
    """The same of each row, by its columns' names; whole numbers where the field is marked so."""
    columns = list(map(cells, table.columns))
    for place, field in enumerate(table.schema):
        if WHOLE in (field.metadata or ()):
            columns[place] = [value if value is None else int(value) for value in columns[place]]
    return [dict(zip(table.schema.names, values, strict=True)) for values in zip(*columns, strict=True)]


def cell(value: pa.Scalar) -> Any:
    """One value; raises `ValueError` or `OverflowError` for what is none of Delta's types."""
    try:
        return value.as_py()
    except (ValueError, OverflowError):
        kind = value.type
    if pt.is_date32(kind):
        return day_text(value.value)
    if pt.is_timestamp(kind) and kind.unit == "us":
        return moment_text(value.value, zoned=kind.tz is not None)
    if pt.is_struct(kind):
        return {field.name: cell(value[number]) for number, field in enumerate(kind)}
    if pt.is_map(kind):
        return [(cell(entry[0]), cell(entry[1])) for entry in value.values]
    if pt.is_nested(kind):
        return [cell(item) for item in value.values]
    raise ValueError(f"a value of type {kind} has no text")


def day_text(days: int) -> str:
    """A day by its number since 1970, DuckDB's infinite ones among them."""
    if abs(days) == _INFINITE_DAY:
        return "infinity" if days > 0 else "-infinity"
    cycles = (days - _FIRST_DAY) // _LEAP_DAYS
    near = datetime(1970, 1, 1) + timedelta(days=days - cycles * _LEAP_DAYS)
    year = near.year + cycles * _LEAP_YEARS
    sign = "-" if year < 0 else "+" if year > 9999 else ""
    return f"{sign}{abs(year):04}-{near:%m-%d}"


def moment_text(microseconds: int, *, zoned: bool) -> str:
    if abs(microseconds) == _INFINITE_US:
        return "infinity" if microseconds > 0 else "-infinity"
    days, rest = divmod(microseconds, _DAY_US)
    return f"{day_text(days)}T{(datetime.min + timedelta(microseconds=rest)).time().isoformat()}{'Z' if zoned else ''}"


def far_number(text: str) -> int | None:
    """Days since 1970 of a day, microseconds of a moment (of UTC where it names no zone); None for another text."""
    match = _FAR.fullmatch(text)
    if match is None:
        return None
    year = int(match[1])
    cycles = (year - 1) // _LEAP_YEARS
    try:
        clock = f"{match[3] or '00:00:00'}{match[4] or 'Z'}"
        near = datetime.fromisoformat(f"{year - cycles * _LEAP_YEARS:04}-{match[2]}T{clock}")
    except ValueError:  # the 31st of June
        return None
    since = near - datetime(1970, 1, 1, tzinfo=UTC)
    days = since.days + cycles * _LEAP_DAYS
    return days * _DAY_US + since.seconds * 10**6 + since.microseconds if match[3] else days


def from_duckdb(value: Any, kind: Any) -> Any:
    """A value that DuckDB gave, of its type: its own texts of such days and moments are Weir's."""
    if isinstance(value, str) and kind.id in ("date", "timestamp", "timestamp with time zone"):
        match = _DUCKDB.fullmatch(value)
        if match is None:
            return value
        year = 1 - int(match[1]) if match[3] else int(match[1])
        sign = "-" if year < 0 else "+" if year > 9999 else ""
        number = far_number(f"{sign}{abs(year):04}-{match[2]}{f'T{match[4]}' if match[4] else ''}")
        if number is None:
            return value
        return day_text(number) if kind.id == "date" else moment_text(number, zoned=match[5] is not None)
    if isinstance(value, dict) and kind.id == "struct":
        return {name: from_duckdb(value[name], inner) for name, inner in kind.children}
    if isinstance(value, dict) and kind.id == "map":
        (_, key), (_, item) = kind.children
        return {from_duckdb(k, key): from_duckdb(v, item) for k, v in value.items()}
    if isinstance(value, list):
        return [from_duckdb(item, kind.children[0][1]) for item in value]
    return value
