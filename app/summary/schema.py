"""The schema of a table: a tree with search, statistics from the log, constraints.

Rule: of thousands of columns one page is shown; statistics of many files are read only when asked for.
"""

from collections.abc import Sequence

import streamlit as st

from app import cache, state
from app.summary.view import schema as view
from app.ui import lists
from app.ui.lake import OpenTable
from app.ui.view.words import PAGE_ROWS
from backend.format import things
from backend.lake.files.stats import ColumnTotals, columns_with_stats
from backend.lake.model import Snapshot
from backend.lake.table.schema import Column, columns, constraints

AUTO_FILES = 20_000  # up to here statistics come unasked
SCHEMA = lists.Look(
    config={
        "Nullable": st.column_config.TextColumn(width=76),
        "Min": st.column_config.TextColumn(width=186),  # "≥ 2026-11-26 22:45:42.123 UTC"
        "Max": st.column_config.TextColumn(width=186),
        "Known for": st.column_config.TextColumn(help="For how many data files the log says it; empty: for all."),
        "Null share": st.column_config.TextColumn(
            width=86, alignment="right", help="Of the rows in those files; ≈: rows were deleted since."
        ),
        "Identity": st.column_config.TextColumn(help="Numbers that the table gives out by itself."),
        "Widened": st.column_config.TextColumn(help="How the type was widened without rewriting files."),
        "Id": st.column_config.TextColumn(help="Column mapping: what stays when a column is renamed."),
        "Name in files": st.column_config.TextColumn(help="Column mapping: the name in the data files."),
    },
    alt="The columns of the table",
)
CONSTRAINTS = lists.Look(alt="Check constraints of the table")


def schema(opened: OpenTable) -> None:
    """The tree, and what must hold for every row; raises `TableCorruptError` for a schema that cannot be read."""
    listed = columns(opened.snapshot.metadata)
    if not listed:
        st.info("**The table has no columns yet.** Its schema is empty at this version.", icon=":material/view_column:")
        return
    st.caption(f"{view.schema_sentence(listed)}.")
    words, with_statistics = _controls(opened.snapshot, listed)
    fitting = view.matching(listed, words)
    if not fitting:
        st.info("**No column matches.** Clear the search.", icon=":material/search_off:")
        return
    above = st.container(key="schema_list")
    start = (lists.chosen_page(len(fitting), key=state.SCHEMA_PAGE) - 1) * PAGE_ROWS
    shown = fitting[start : start + PAGE_ROWS]
    with above:
        part = view.shown_sentence(len(shown), start, len(fitting), len(listed))
        if part:
            st.caption(part)
        totals = _totals(opened.snapshot, shown) if with_statistics else {}
        lists.show(view.schema_frame(shown, totals), SCHEMA, key="schema")
    _constraints(opened)


def _controls(snapshot: Snapshot, listed: Sequence[Column]) -> tuple[str, bool]:
    with st.container(horizontal=True, vertical_alignment="bottom", key="schema_controls"):
        words = st.text_input(
            "Search columns",
            key=state.FIND,
            bind="query-params",
            placeholder=f"Name, type or comment among {len(listed):,}",
            icon=":material/search:",
            width=320,
        )
        many = snapshot.num_files > AUTO_FILES
        shown = st.toggle(
            "Statistics",
            value=not many,
            key=state.STATISTICS,
            bind="query-params",
            help=f"Least and greatest value and nulls, from the log of {things(snapshot.num_files, 'file')}."
            + (" Takes some seconds for so many files." if many else ""),
        )
    return words or "", bool(shown)


def _totals(snapshot: Snapshot, shown: Sequence[Column]) -> dict[str, ColumnTotals]:
    """Of the columns shown that have statistics."""
    with_statistics = set(columns_with_stats(snapshot.metadata))
    names = tuple(dict.fromkeys(column.path for column in shown if column.path in with_statistics))
    totals_of_columns = cache.column_totals(snapshot, names) if names else ()
    st.caption(view.statistics_sentence(totals_of_columns))
    return {totals.column: totals for totals in totals_of_columns}


def _constraints(opened: OpenTable) -> None:
    checks = constraints(opened.snapshot.metadata)
    if checks:
        st.markdown(f"**Check constraints** · {things(len(checks), 'condition')} that every row satisfies")
        lists.show(view.constraints_frame(checks), CONSTRAINTS, key="constraints")
