"""One data file: its row groups and columns as frames, and what log and footer disagree about.

Rule: pure; sizes are those of the footer, and a list that is cut says so.
"""

import json

import pandas as pd

from app.ui.view.words import KeyFigure
from backend.format import UNKNOWN, bytes_exact, bytes_text, count_exact, count_text, percent, things
from backend.lake.files.footer import FileFooter, LoggedFile, log_statistics

MOST_COLUMNS = 300
MOST_GROUPS = 200
MOST_STATISTICS = 20_000


def key_figures(footer: FileFooter) -> list[KeyFigure]:
    """Rows, deleted rows, size, row groups and columns."""
    logged = footer.logged
    return [
        KeyFigure("Rows", count_text(footer.num_rows), count_exact(footer.num_rows)),
        KeyFigure("Deleted", count_text(logged.deleted_rows), "Rows that the deletion vector marks."),
        KeyFigure("Size", bytes_text(logged.size_bytes), bytes_exact(logged.size_bytes)),
        KeyFigure("Row groups", count_text(footer.num_groups), "Readers skip whole row groups by their bounds."),
        KeyFigure("Columns", count_text(footer.num_columns), "Leaf columns, fields of nested ones each."),
    ]


def footer_sentence(footer: FileFooter) -> str:
    """Who wrote the file, how it is packed, and whether the log's row count is the footer's."""
    raw = sum(column.uncompressed_bytes for column in footer.columns)
    parts = [f"Written by {footer.created_by or 'an unnamed writer'}, parquet {footer.format_version}."]
    if raw:
        parts.append(f"{bytes_text(raw)} packed to {bytes_text(footer.compressed_bytes)}.")
    rows = footer.logged.num_records
    if rows is not None and rows != footer.num_rows:
        parts.append(f"The log says {things(rows, 'row')}, the file {things(footer.num_rows, 'row')}: they disagree.")
    if footer.logged.deleted_rows and footer.num_rows:
        parts.append(f"{percent(footer.logged.deleted_rows / footer.num_rows)} of its rows are deleted.")
    if footer.num_columns > MOST_COLUMNS:
        parts.append(f"The {MOST_COLUMNS} largest of {things(len(footer.columns), 'column')} are shown.")
    if footer.num_groups > len(footer.groups):
        parts.append(f"Sizes are those of the first {things(len(footer.groups), 'row group')}.")
    return " ".join(parts)


def columns_frame(footer: FileFooter) -> pd.DataFrame:
    """One row a leaf column, the largest first."""
    total = footer.compressed_bytes or 1
    ordered = sorted(footer.columns, key=lambda column: -column.compressed_bytes)[:MOST_COLUMNS]
    rows = [
        {
            "Column": column.path,
            "Compressed": column.compressed_bytes,
            "Share": column.compressed_bytes / total,
            "Uncompressed": column.uncompressed_bytes,
            "Compression": column.compression,
            "Encodings": ", ".join(column.encodings),
            "Nulls": column.null_count,
            "Minimum": UNKNOWN if column.minimum is None else column.minimum,
            "Maximum": UNKNOWN if column.maximum is None else column.maximum,
            "Type": column.type,
        }
        for column in ordered
    ]
    frame = pd.DataFrame(rows)
    return frame.astype({"Nulls": "Int64"}) if rows else frame


def groups_frame(footer: FileFooter) -> pd.DataFrame:
    """One row a row group, in the file's order."""
    rows = [
        {
            "Row group": group.number,
            "Rows": group.num_rows,
            "Compressed": group.compressed_bytes,
            "Uncompressed": group.uncompressed_bytes,
        }
        for group in footer.groups[:MOST_GROUPS]
    ]
    return pd.DataFrame(rows, columns=["Row group", "Rows", "Compressed", "Uncompressed"])


def statistics_text(logged: LoggedFile) -> str:
    """The log's statistics of the file, as written, indented."""
    statistics = log_statistics(logged.stats)
    if statistics is None:
        return "The log holds no statistics of this file." if logged.stats is None else logged.stats[:MOST_STATISTICS]
    text = json.dumps(statistics, indent=2, ensure_ascii=False)
    return text if len(text) <= MOST_STATISTICS else f"{text[:MOST_STATISTICS]}\n… {len(text):,} characters"
