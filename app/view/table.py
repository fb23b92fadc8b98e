"""A table's summary: facts in words, the schema as a frame, and rows shown exactly.

Rule: pure; a value is never rounded by the way to the screen: decimals and integers beyond 2^53 become text, binary
becomes hex, nested values become JSON.
"""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from app.view.format import count_text, percent, things
from backend.lake.model import Commit, RowPage, SchemaField, Snapshot, Timeline, VersionTotals

EXACT_INTEGER = 2**53  # beyond, a browser's number loses digits
MOST_HEX_BYTES = 32
MOST_TEXT = 2_000  # characters of one cell
MOST_COLUMNS = 50
SPARK_POINTS = 60


# schema ----------------------------------------------------------------------------------------------------------


def schema_frame(fields: Iterable[SchemaField]) -> pd.DataFrame:
    """One row a field, nested ones indented under their parent."""
    rows = [
        {
            "Column": "    " * field.depth + field.path.rsplit(".", 1)[-1] if field.depth else field.path,
            "Type": field.type,
            "Nullable": "yes" if field.nullable else "no",
            "Partition": "partition key" if field.is_partition else "",
            "Comment": field.comment or "",
        }
        for field in fields
    ]
    return pd.DataFrame(rows, columns=["Column", "Type", "Nullable", "Partition", "Comment"])


def schema_sentence(fields: Sequence[SchemaField]) -> str:
    """ "12 columns (3 not null), partitioned by day, country"."""
    top = [field for field in fields if field.depth == 0]
    required = sum(not field.nullable for field in top)
    keys = [field.path for field in top if field.is_partition]
    parts = things(len(top), "column") + (f" ({count_text(required)} not null)" if required else "")
    return f"{parts}, partitioned by {', '.join(keys)}" if keys else f"{parts}, not partitioned"


# rows ------------------------------------------------------------------------------------------------------------


def preview_frame(rows: pa.Table) -> pd.DataFrame:
    """Rows as they are: numbers a browser can hold stay numbers, everything else becomes exact text."""
    names = _distinct(rows.column_names)
    columns = {name: shown_column(rows.column(index)) for index, name in enumerate(names)}
    return pd.DataFrame(columns, index=range(rows.num_rows))


def shown_column(column: pa.ChunkedArray) -> pd.Series:
    """One column for the screen."""
    kind = column.type
    if pt.is_dictionary(kind):
        column = column.cast(kind.value_type)
        kind = column.type
    if pt.is_integer(kind):
        return _integers(column)
    if pt.is_floating(kind):
        return pd.Series(
            [_number(value) for value in column.to_pylist()], dtype="object" if _odd(column) else "float64"
        )
    if pt.is_boolean(kind):
        return pd.Series(column.to_pylist(), dtype="boolean")
    if pt.is_timestamp(kind):
        return pd.Series([_timestamp_text(value) for value in _microseconds(column)], dtype="object")
    return pd.Series([cell_text(value) for value in column.to_pylist()], dtype="object")


def cell_text(value: Any) -> str | None:
    """One value as exact text; None stays None."""
    if value is None:
        return None
    if isinstance(value, bytes):
        text = value[:MOST_HEX_BYTES].hex(" ")
        return f"{text} … ({len(value):,} bytes)" if len(value) > MOST_HEX_BYTES else text
    if isinstance(value, str):
        text = value
    elif isinstance(value, Decimal):
        text = format(value, "f")
    elif isinstance(value, dict | list | tuple):
        text = json.dumps(_plain(value), ensure_ascii=False)
    else:
        text = str(value)
    return text if len(text) <= MOST_TEXT else f"{text[:MOST_TEXT]} … ({len(text):,} characters)"


def preview_sentence(page: RowPage, version: int) -> str:
    """Says how many rows are shown, of how many, and whether the cap cut."""
    shown = things(page.rows.num_rows, "row")
    if not page.truncated:
        return f"All {shown} of v{version}."
    if page.total_rows is None:
        return f"The first {shown} of v{version}; there are more."
    return f"The first {shown} of {count_text(page.total_rows)} in v{version}."


def _integers(column: pa.ChunkedArray) -> pd.Series:
    bounds = pc.min_max(column).as_py()
    low, high = bounds["min"], bounds["max"]
    if low is not None and (low < -EXACT_INTEGER or high > EXACT_INTEGER):
        return pd.Series([None if value is None else str(value) for value in column.to_pylist()], dtype="object")
    return pd.Series(column.to_pylist(), dtype="Int64")


def _odd(column: pa.ChunkedArray) -> bool:
    """Whether a floating column holds NaN or infinity, which JSON and pandas confuse with null."""
    finite = pc.is_finite(column)
    return pc.all(finite, skip_nulls=True).as_py() is False


def _number(value: float | None) -> float | str | None:
    if value is None or value - value == 0:  # only NaN and the infinities differ from themselves
        return value
    return str(value)


def _microseconds(column: pa.ChunkedArray) -> list[datetime | None]:
    return list(column.cast(pa.timestamp("us", tz=column.type.tz), safe=False).to_pylist())


def _timestamp_text(value: datetime | None) -> str | None:
    return None if value is None else value.isoformat(sep=" ")


def _plain(value: Any) -> Any:
    """Nested values as JSON can hold them; map entries as pairs."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, bytes | Decimal | date | timedelta) or (isinstance(value, float) and value - value != 0):
        return cell_text(value)
    return value


def _distinct(names: Sequence[str]) -> list[str]:
    """Column names, made distinct where a table holds one twice in different case or form."""
    seen: Counter[str] = Counter()
    distinct = []
    for name in names:
        seen[name] += 1
        distinct.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return distinct


# facts -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Trend:
    """One figure over the last versions, and its change against 24 h before (None: nothing to compare with)."""

    points: tuple[int, ...]
    change: int | None


def trend(timeline: Timeline, figure: str, now: datetime) -> Trend:
    """`figure` is a field of `VersionTotals`: num_rows, num_files, size_bytes or small_files."""
    known = [(totals, getattr(totals, figure)) for totals in timeline.totals if getattr(totals, figure) is not None]
    step = max(1, -(-len(known) // SPARK_POINTS))
    points = tuple(value for _, value in reversed(known[::-1][::step]))
    before = _a_day_before([totals for totals, _ in known], now)
    change = known[-1][1] - getattr(before, figure) if before and known else None
    return Trend(points, change)


def _a_day_before(totals: Sequence[VersionTotals], now: datetime) -> VersionTotals | None:
    limit = now - timedelta(days=1)
    older = [item for item in totals if item.committed_at and item.committed_at <= limit]
    return older[-1] if older else None


def writers_sentence(commits: Sequence[Commit]) -> str:
    """Who wrote the last commits: streams by name, else the engine and user."""
    if not commits:
        return "No commit in the log says who writes this table."
    counts = Counter(_writer(commit) for commit in commits)
    parts = [f"{name} ({count_text(count)})" if len(counts) > 1 else name for name, count in counts.most_common(3)]
    rest = len(counts) - 3
    if rest > 0:
        parts.append(f"{things(rest, 'other')}")
    many = f"Last {things(len(commits), 'commit')}" if len(commits) > 1 else "Its only commit is"
    return f"{many} by {', '.join(parts)}."


def _writer(commit: Commit) -> str:
    if commit.origin and commit.origin.stream:
        return f"stream {commit.origin.stream}"
    if commit.origin and commit.origin.query_id:
        return f"stream query {commit.origin.query_id[:8]}"
    named = " by ".join(part for part in (commit.engine, commit.user) if part)
    return named or "an unnamed writer"


def facts(snapshot: Snapshot) -> dict[str, str]:
    """What the log says of the table itself, for a two-column list."""
    metadata, protocol = snapshot.metadata, snapshot.protocol
    features = ", ".join(protocol.features) or "none"
    rows = {
        "Description": metadata.description or "",
        "Partitioned by": ", ".join(metadata.partition_columns) or "not partitioned",
        "Protocol": f"reader {protocol.min_reader_version}, writer {protocol.min_writer_version}",
        "Table features": features,
        "Table id": metadata.id,
        "Rows known from": "statistics of every file"
        if snapshot.num_rows is not None
        else "not known: files lack statistics",
    }
    return {key: value for key, value in rows.items() if value}


def small_share_text(small_files: int, num_files: int) -> str:
    """The share of small files, with "no files" instead of a division by nothing."""
    return percent(small_files / num_files) if num_files else "no files"
