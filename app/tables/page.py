"""Widgets of the list of all tables: search and filters, the list, its pages.

Rule: everything chosen is in the URL; tables are shown as they arrive and nothing waits for the rest.
"""

from collections.abc import Mapping, Sequence

import streamlit as st

from app import cache, navigation, services, state
from app.columns import Column
from app.errors import boundary
from app.tables import view
from app.ui import lists
from app.ui.lake import Table
from app.ui.live import empty_lake, live_lake, reading_progress
from backend.health.health import JudgedTable
from backend.lake.find import FoundTable
from backend.sql.export import FORMATS

_ALT = "Tables of the lake with layer, rows, files, size, small files, last commit and owner"


def tables() -> None:
    """The list of tables, kept fresh."""

    def region() -> None:
        with boundary():
            _list()

    live_lake(region)


def _list() -> None:
    """Filters, totals in words, one page of the list."""
    reading = cache.lake_reading()
    if reading.is_complete and not reading.tables:
        empty_lake()
        return
    query = _filters(reading.tables)
    reading_progress(reading)
    limits = view.ListLimits(services.now(), services.settings().health.stale_after_s, cache.not_as_expected())
    results = cache.find(query.words) if query.words.strip() else None
    searched = reading.tables if results is None else [result.table for result in results]
    matching = view.select(searched, query, limits)
    st.markdown(f"**{view.found_sentence(matching, reading, query)}**")
    if matching:
        _page(matching, results or (), limits, cache.judged(reading) if query.is_of_health else None)
    elif reading.is_complete:
        st.info("**No table matches.** Remove a word or a filter.", icon=":material/search_off:")

        def clear() -> None:
            for key, value in ((state.SEARCH, ""), (state.LAYER, []), (state.OWNER, []), (state.SHOW, view.ALL)):
                st.session_state[key] = value

        st.button("Clear search and filters", key="clear", on_click=clear)


def _filters(tables: Sequence[Table]) -> view.Query:
    with st.container(horizontal=True, key="table_filters"):
        words = st.text_input(
            "Search", key=state.SEARCH, bind="query-params", live="200ms", width=280, on_change=state.first_page,
            type="search", placeholder="Name, column, owner, property", icon=":material/search:",
        )  # fmt: skip
        layers: list[str] = []
        if state.get_strs(state.LAYER) or any(table.ref.layer for table in tables):
            layers = st.pills(
                "Layer", view.LAYERS, selection_mode="multi", key=state.LAYER, bind="query-params",
                on_change=state.first_page,
            )  # fmt: skip
        shown = st.segmented_control(
            "Show",
            view.SHOWN,
            default=view.ALL,
            required=True,
            key=state.SHOW,
            bind="query-params",
            on_change=state.first_page,
        )
        owners = view.owners(tables, state.get_strs(state.OWNER))
        chosen = st.multiselect(
            "Owner", owners, key=state.OWNER, bind="query-params", on_change=state.first_page, width=205,
            placeholder="All owners" if owners else "No table names one",
        )  # fmt: skip
        order = st.selectbox(
            "Sort by", view.ORDERS, key=state.SORT, bind="query-params", on_change=state.first_page, width=190
        )
    return view.Query(words or "", tuple(layers), tuple(chosen), shown or view.ALL, order or view.ORDERS[0])


def _page(
    matching: Sequence[Table], results: Sequence[FoundTable], limits: view.ListLimits,
    judged: Mapping[str, JudgedTable] | None,
) -> None:  # fmt: skip
    ratio = services.settings().health.small_file_ratio

    def columns_of(tables: Sequence[Table]) -> list[Column[Table]]:
        return view.catalog_columns(tables, limits.now, ratio, results, judged)

    slot, rows, which = lists.paged(matching, key="table_list")
    with slot:
        whole = " Search and filters look through all of them." if which else ""
        with st.container(horizontal=True, vertical_alignment="center"):
            st.caption(f"{which}{whole} Click a row to open the table.".strip(), width="stretch")
            st.download_button(
                "CSV",
                data=lambda: view.catalog_csv(columns_of(matching), matching),
                file_name="tables.csv", mime=FORMATS["csv"].media_type, key="export_tables", icon=":material/download:",
                on_click="ignore", type="tertiary", help="Every table of this list with its figures.",
            )  # fmt: skip
        names = [table.ref.name for table in rows]
        name = lists.choose(columns_of(rows), rows, key="catalog", names=names, alt=_ALT)
    if name is not None:
        navigation.go("table" if judged is None else "health", {state.TABLE: name})
