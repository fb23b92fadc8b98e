"""Widgets of a table's summary: key figures, whether to trust it, schema, details.

Rule: figures are those of the version looked at; only the trend and the age speak of now.
"""

from dataclasses import dataclass

import streamlit as st

from app import cache, context, errors
from app.summary.view import summary as view
from app.ui import lists
from app.ui.figures import figure_row
from app.ui.format import (
    ago,
    bytes_exact,
    bytes_text,
    count_exact,
    count_text,
    markdown_safe,
    moment_help,
    signed,
    signed_bytes,
)
from app.ui.frame import OpenTable

RECENT_COMMITS = 20


@dataclass(frozen=True, slots=True)
class Figure:
    """One key figure; `field` names it in `VersionTotals`."""

    label: str
    value: str
    help: str
    field: str


def key_figures(opened: OpenTable) -> None:
    """Rows, files, size and small files with their trend over versions, and the age of the version."""
    snapshot, now = opened.snapshot, context.now()
    timeline = context.lake().timeline(opened.ref)
    small = cache.distribution(snapshot).small_files
    share = view.small_share_text(small, snapshot.num_files)
    of_files = f"{count_exact(small)} of {count_exact(snapshot.num_files)} files are small."
    figures = (
        Figure("Rows", count_text(snapshot.num_rows), _rows_help(snapshot.num_rows), "num_rows"),
        Figure("Files", count_text(snapshot.num_files), f"{count_exact(snapshot.num_files)} files", "num_files"),
        Figure("Size", bytes_text(snapshot.size_bytes), bytes_exact(snapshot.size_bytes), "size_bytes"),
        Figure("Small files", share, of_files, "small_files"),
    )
    with figure_row("summary_figures"):
        for figure in figures:
            _metric(figure, view.trend(timeline, figure.field, now) if opened.is_latest else None)
        st.metric(
            "Last commit" if opened.is_latest else "Committed",
            ago(snapshot.committed_at, now),
            delta=_last_operation(opened),
            delta_color="off",
            delta_arrow="off",
            help=moment_help(snapshot.committed_at, context.timezone()),
            border=True,
            height="stretch",
        )


def _metric(figure: Figure, trend: view.Trend | None) -> None:
    change = trend.change if trend else None
    words = signed_bytes(change) if figure.field == "size_bytes" else signed(change)
    st.metric(
        figure.label,
        figure.value,
        delta=words.replace("−", "-") if change else change,  # Streamlit reads the sign, and a 0 as unchanged
        delta_color="primary",
        delta_description="in 24 h" if change is not None else None,
        help=figure.help,
        chart_data=list(trend.points) if trend and len(trend.points) > 1 else None,
        border=True,
        height="stretch",
    )


def _rows_help(num_rows: int | None) -> str:
    if num_rows is None:
        return "Not known: at least one file has no statistics, and Weir does not count rows by reading them all."
    return f"{count_exact(num_rows)} rows, by the statistics of every file less rows deleted by deletion vectors."


def _last_operation(opened: OpenTable) -> str | None:
    version = opened.snapshot.version
    commits = context.lake().history(opened.ref, limit=1, starting_version=version, ending_version=version)
    return commits[0].operation if commits else None


def trust(opened: OpenTable) -> None:
    """Who writes the table, and what the reading of its log found odd."""
    version = opened.snapshot.version
    commits = context.lake().history(opened.ref, limit=RECENT_COMMITS, ending_version=version)
    st.markdown(markdown_safe(view.writers_sentence(commits)))
    for finding in opened.snapshot.findings:
        st.warning(markdown_safe(errors.sentence(finding)), icon=":material/warning:")


def details(opened: OpenTable) -> None:
    """What the log says of the table itself."""
    lists.facts(view.facts(opened.snapshot) | {"Created": moment_help(opened.snapshot.metadata.created_at)})
