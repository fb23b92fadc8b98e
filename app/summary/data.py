"""Rows of a table: columns, a filter, and the rows themselves.

Rule: the URL holds what was asked. Where the filter is wrong the answer says where, and no row is read.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from app import navigation, services, state
from app.summary import narrowing
from app.summary.view import data as view
from app.summary.view.snippets import Asked, export_command, names, snippets, statement
from app.ui import lists
from app.ui.export import ExportOffer, export_button
from app.ui.frame import OpenTable
from app.ui.view.words import markdown_safe
from backend.format import things
from backend.lake.history.history import example_condition
from backend.lake.model import Snapshot
from backend.lake.rows.filters import RowFilter
from backend.lake.rows.rows import SEARCH_FILES, RowPage, RowQuery
from backend.lake.table.schema import Column, read_schema, readable_names
from backend.lake.table.schema import columns as schema_columns
from backend.sql.export import exported_rows
from backend.sql.filters import negated, parse_filter, within

_HELP = (
    "SQL over one row, as everywhere in Weir: = <> < <= > >=, IN (…), BETWEEN … AND …, LIKE, IS NULL, IS NAN, joined "
    "by AND, OR, NOT and brackets; functions such as lower(name) too. Text and times in 'single quotes', odd names in "
    '"double quotes", fields of a struct with a dot.'
)


def rows(opened: OpenTable, *, limit: int) -> None:
    """The first rows at the version looked at that the filter lets through."""
    snapshot = opened.snapshot
    schema = schema_columns(snapshot.metadata)
    columns, left_out = readable_names(snapshot.metadata), read_schema(snapshot.metadata.schema_json).left_out
    with st.container(horizontal=True, vertical_alignment="bottom", key="data_columns"):
        shown = [name for name in _columns(columns) if name in columns]
        order = _order(schema)
    text = _filter(opened, schema)
    where = parse_filter(text, schema)
    chosen = tuple(shown or columns[: view.MOST_COLUMNS])
    query = RowQuery(chosen, where, limit, search_files=max(SEARCH_FILES, state.whole(state.SEARCH_FILES) or 0))
    with st.spinner(f"Reading rows of {markdown_safe(opened.ref.name)} v{snapshot.version} …", show_time=True):
        page = _found(opened, query)
    with st.container(horizontal=True, vertical_alignment="center", key="found"):
        sentence = view.rows_sentence(page, snapshot.version, filtered=where is not None)
        st.caption(markdown_safe(f"{sentence} {view.order_sentence(page, order)}".strip()), width="content")
        if left_out:
            st.caption(markdown_safe(f"Left out, of a type that cannot be read here: {', '.join(left_out)}."))
        clicked = st.container(horizontal=True, vertical_alignment="center", gap="xsmall", key="clicked")
        if columns:
            every = tuple(shown or columns)
            export_button(_offer(snapshot, (every, names(columns, every)), (where, text)))
        asked = Asked(snapshot.ref, snapshot.version, names(columns, chosen), where)
        _copy(asked)
        navigation.query_link(statement(asked))
        if where is not None and page.rows.num_rows and snapshot.version:
            since = {state.CONDITION: negated(text), state.BAD: snapshot.version}
            navigation.table_link(snapshot.ref.name, "First bad version", since, page="bisect")
    if page.files_left and where is not None and page.rows.num_rows < limit:
        further = {state.SEARCH_FILES: 10 * (query.search_files or SEARCH_FILES)}
        st.button("Search further", key="search_further", icon=":material/search:", on_click=state.put, args=(further,))
    if page.rows.num_rows:
        _list(opened, view.in_order(page.rows, order), schema, clicked)


def _found(opened: OpenTable, query: RowQuery) -> RowPage:
    """The rows, looked for until this viewer leaves or asks for something else; raises `QueryError` at the limit."""
    limit_s = math.inf
    if query.where is not None:  # a search that goes further has longer
        limit_s = services.settings().lake.filter_time_limit_s * (query.search_files or SEARCH_FILES) / SEARCH_FILES
    return within(
        limit_s,
        query.where,
        lambda where, token: services.lake().find_rows(opened.snapshot, replace(query, where=where, check=token.check)),
        waiting=st.empty().empty,  # here Streamlit ends a run that nobody waits for
    )


def _filter(opened: OpenTable, schema: Sequence[Column]) -> str:
    with st.container(horizontal=True, vertical_alignment="bottom", key="data_filter"):
        text = st.text_input(
            "Filter", key=state.WHERE, bind="query-params", help=_HELP, on_change=_forget_search,
            placeholder=example_condition(opened.snapshot.metadata, is_good=True),
        )  # fmt: skip
        if schema:
            narrowing.boxes(schema)
    return text or ""


def _order(schema: Sequence[Column]) -> str | None:
    return st.selectbox(
        "Sort", view.orders(schema), None, key=state.ORDER, bind="query-params", placeholder="As read", width=220,
        help="Of the rows that were read, not of the whole table",
    )  # fmt: skip


def _offer(
    snapshot: Snapshot,
    columns: tuple[tuple[str, ...], tuple[str, ...] | None],
    filter_: tuple[RowFilter | None, str],
) -> ExportOffer:
    """The rows of the page without its limit. `columns`: all of them, and those to name."""
    (every, named), (where, text) = columns, filter_
    name, version = snapshot.ref.name, snapshot.version
    return ExportOffer(
        f"{name} v{version}",
        lambda form: exported_rows(services.lake(), snapshot, every, where, form),
        (snapshot.ref.uri, snapshot.metadata.id, version, every, text),
        f"Filter: {text.strip()}" if where is not None else "",
        partial(export_command, name, version, columns=named, where=text.strip()),
    )


def _copy(asked: Asked) -> None:
    """The same rows, without a limit, as code for other tools."""
    with st.popover("Copy as", icon=":material/content_copy:", key="copy_as"):
        st.caption(f"Every row of v{asked.version} with these columns and this filter")
        for tool, (language, code) in snippets(asked).items():
            st.markdown(f"**{tool}**")
            st.code(code, language=language, wrap_lines=True)


def _columns(columns: Sequence[str]) -> list[str]:
    every = (
        f"All {things(len(columns), 'column')}" if len(columns) <= view.MOST_COLUMNS else f"First {view.MOST_COLUMNS}"
    )
    return list(st.multiselect("Columns", columns, key=state.COLUMNS, bind="query-params", placeholder=every))


def _forget_search() -> None:
    state.put({state.SEARCH_FILES: None})


def _list(opened: OpenTable, rows: pa.Table, schema: Sequence[Column], clicked: DeltaGenerator) -> None:
    shown, event = lists.exact_rows(
        rows, key="rows", alt=f"Rows of {opened.ref.name}", on_select="rerun", selection_mode="single-cell"
    )
    cell = lists.opened_cell(event, "rows")
    place = view.place_of(shown, cell) if cell else None
    if place is not None:
        field = next(column for column in schema if column.depth == 0 and column.path == rows.column_names[place[1]])
        narrowing.clicked(field, view.value_at(rows, *place), schema, clicked)
