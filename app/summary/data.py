"""Rows of a table: columns, a filter with ways to narrow it down without writing it, the rows; their profile.

Rule: the URL holds what was asked; boxes and clicks only write into the filter. Where the filter is wrong the answer
says where, and no row is read. For a profile no data file is opened before a person asked; one once read is kept.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from functools import partial
from typing import Any

import pyarrow as pa
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from app import cache, navigation, services, state, viewer
from app.services import once
from app.summary import text as words
from app.summary.view import data as view
from app.summary.view.data import Asked, export_command, names, snippets, statement
from app.ui import lists, work
from app.ui.export import ExportOffer, exact_rows, export_button
from app.ui.lake import OpenTable
from app.ui.view.words import markdown_safe
from backend.cells import cell
from backend.errors import LakehouseError
from backend.format import cut, things
from backend.lake.history.history import example_condition, resolve_version
from backend.lake.model import Snapshot
from backend.lake.rows.filters import INTEGERS
from backend.lake.rows.rows import SEARCH_FILES, RowPage, RowQuery
from backend.lake.table.schema import SchemaColumn, read_schema, readable_names
from backend.lake.table.schema import columns as schema_columns
from backend.sql import numbers
from backend.sql.export import exported_rows
from backend.sql.filters import condition_text, narrowed, negated, operators, parse_filter, within
from backend.sql.numbers import NumbersProgress, Profile, from_log, profiled, readable, with_statistics

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
    many = len(columns) > view.MOST_COLUMNS
    every_column = f"First {view.MOST_COLUMNS}" if many else f"All {things(len(columns), 'column')}"
    with st.container(horizontal=True, vertical_alignment="bottom", key="data_columns"):
        named = st.multiselect(
            "Columns", columns, key=state.COLUMNS, bind="query-params", placeholder=every_column
        )  # fmt: skip
        shown = [name for name in named if name in columns]
        order = st.selectbox(
            "Sort", view.orders(schema), None, key=state.ORDER, bind="query-params", placeholder="As read", width=220,
            help="Of the rows that were read, not of the whole table",
        )  # fmt: skip
    with st.container(horizontal=True, vertical_alignment="bottom", key="data_filter"):
        text = st.text_input(
            "Filter", key=state.WHERE, bind="query-params", help=_HELP,
            on_change=lambda: state.set_params({state.SEARCH_FILES: None}),
            placeholder=example_condition(snapshot.metadata, is_good=True),
        ) or ""  # fmt: skip
        if schema:
            _condition_boxes(schema)
    where = parse_filter(text, schema)
    chosen = tuple(shown or columns[: view.MOST_COLUMNS])
    query = RowQuery(chosen, where, limit, search_files=max(SEARCH_FILES, state.get_int(state.SEARCH_FILES) or 0))
    with st.spinner(f"Reading rows of {markdown_safe(opened.ref.name)} v{snapshot.version} …", show_time=True):
        page = _found(opened, query)
    with st.container(horizontal=True, vertical_alignment="center", key="found"):
        sentence = view.rows_sentence(page, snapshot.version, filtered=where is not None)
        of_these = " Sorted among these rows alone." if order and page.truncated else ""
        st.caption(markdown_safe(f"{sentence}{of_these}"), width="content")
        if left_out:
            st.caption(markdown_safe(f"Left out, of a type that cannot be read here: {', '.join(left_out)}."))
        clicked = st.container(horizontal=True, vertical_alignment="center", gap="xsmall", key="clicked")
        if columns:
            every = tuple(shown or columns)  # of the page without its limit
            command = partial(
                export_command, snapshot.ref.name, snapshot.version, columns=names(columns, every), where=text.strip()
            )
            offer = ExportOffer(
                f"{snapshot.ref.name} v{snapshot.version}",
                lambda form: exported_rows(viewer.lake(), snapshot, every, where, form),
                f"Filter: {text.strip()}" if where is not None else view.every_row_sentence(snapshot),
                command,
            )
            export_button(offer)
        asked = Asked(snapshot.ref, snapshot.version, names(columns, chosen), where)
        _copy(asked)
        navigation.query_link(statement(asked))
        if where is not None and page.rows.num_rows and snapshot.version:
            since: navigation.Params = {state.CONDITION: negated(text), state.BAD: snapshot.version}
            navigation.table_link(snapshot.ref.name, "First bad version", since, page="bisect")
    if page.files_left and where is not None and page.rows.num_rows < limit:
        further = {state.SEARCH_FILES: 10 * (query.search_files or SEARCH_FILES)}
        st.button(
            "Search further", key="search_further", icon=":material/search:", on_click=state.set_params, args=(further,)
        )
    if page.rows.num_rows:
        _list(opened, view.in_order(page.rows, order), schema, clicked)


def _found(opened: OpenTable, query: RowQuery) -> RowPage:
    """The rows, looked for until this viewer leaves or asks for something else; raises `QueryError` at the limit."""
    limit_s, lake = math.inf, viewer.lake()
    if query.where is not None:  # a search that goes further has longer
        limit_s = services.settings().lake.filter_time_limit_s * (query.search_files or SEARCH_FILES) / SEARCH_FILES
    return within(
        limit_s,
        query.where,
        lambda where, token: lake.find_rows(opened.snapshot, replace(query, where=where, check=token.check)),
        waiting=st.empty().empty,  # here Streamlit ends a run that nobody waits for
    )


@st.fragment
def _copy(asked: Asked) -> None:
    """The same rows, without a limit, as code for other tools, made once somebody looks."""
    with st.popover("Copy as", icon=":material/content_copy:", key="copy_as", on_change="rerun") as opened:
        if not opened.open:
            return
        st.caption(f"Every row of v{asked.version} with these columns and this filter")
        for tool, (language, code) in snippets(asked).items():
            st.markdown(f"**{tool}**")
            st.code(code, language=language, wrap_lines=True)


def _list(opened: OpenTable, rows: pa.Table, schema: Sequence[SchemaColumn], clicked: DeltaGenerator) -> None:
    shown, event = exact_rows(
        rows, key="rows", alt=f"Rows of {opened.ref.name}", on_select="rerun", selection_mode="single-cell"
    )
    row, column = lists.opened_cell(event, "rows") or (0, None)
    names = list(shown.types)
    if column in names and row < len(shown.frame):
        number = names.index(column)
        field = next(each for each in schema if each.depth == 0 and each.path == rows.column_names[number])
        _narrowing_buttons(field, cell(rows.column(number)[row]), schema, clicked)


# narrowing the filter down: a box for each type, and a click on a value -----------------------------------------------


_MOST = 2**53 - 1  # what a browser's number holds exactly
_FIRST_DAY, _LAST_DAY = date(1, 1, 1), date(9999, 12, 31)
_COLUMN, _OPERATOR, _VALUE = "condition_column", "condition_operator", "condition_value"
_WITHOUT_VALUE = ("IS NULL", "IS NOT NULL")


def _condition_boxes(schema: Sequence[SchemaColumn]) -> None:
    """A condition from boxes: column, comparison, and a value in a box of the column's type."""
    fields = {field.path: field for field in schema if field.depth == 0}
    with st.popover("Add condition", icon=":material/filter_alt:", key="add_condition"):
        column = st.selectbox("Column", list(fields), key=_COLUMN)
        kind = fields[column].type
        operator = st.selectbox("Comparison", operators(kind), key=f"{_OPERATOR}_{kind}")
        if operator not in _WITHOUT_VALUE:
            _box(kind, f"{_VALUE}_{kind}", hint="new%" if operator.endswith("LIKE") else None)
        st.button("Add", key="condition_add", icon=":material/add:", help="Joined to the filter by AND",
                  on_click=_add, args=(kind, schema))  # fmt: skip


def _box(kind: str, key: str, *, hint: str | None) -> None:
    if kind == "boolean":
        st.selectbox("Value", [True, False], key=key, format_func=str)
    elif kind == "date":
        st.date_input("Value", None, _FIRST_DAY, _LAST_DAY, key=key, format="YYYY-MM-DD")
    elif kind in ("timestamp", "timestamp_ntz"):
        low, high = datetime(1, 1, 1), datetime(9999, 12, 31)
        label = "Value (UTC)" if kind == "timestamp" else "Value (without zone)"
        st.datetime_input(label, None, low, high, key=key, format="YYYY-MM-DD", step=60)
    elif kind in INTEGERS:
        st.number_input("Value", -_MOST, _MOST, None, step=1, key=key)
    else:
        st.text_input("Value", key=key, placeholder=hint)


def _add(kind: str, schema: Sequence[SchemaColumn]) -> None:
    """Reads the boxes as they are at the click, which may be the one that ended the typing."""
    column, operator = st.session_state[_COLUMN], st.session_state[f"{_OPERATOR}_{kind}"]
    given: Any = None if operator in _WITHOUT_VALUE else st.session_state[f"{_VALUE}_{kind}"]
    if given in (None, "") and operator not in _WITHOUT_VALUE:
        st.toast("Give a value first", icon=":material/edit:")
        return
    read: dict[str, Callable[[str], Any]] = {"string": str, "binary": bytes.fromhex, "double": float, "float": float}
    try:
        narrow(column, operator, read.get(kind, Decimal)(given) if isinstance(given, str) else given, schema)
    except (ValueError, InvalidOperation):
        st.toast(markdown_safe(f"{given!r} does not fit {kind}"), icon=":material/error:")


def _narrowing_buttons(field: SchemaColumn, value: Any, schema: Sequence[SchemaColumn], slot: DeltaGenerator) -> None:
    """What a value that was clicked can be used for."""
    possible = operators(field.type)
    is_comparable = value is not None and "=" in possible
    with slot:
        shown = "NULL" if value is None else cut(str(value), 24)
        st.markdown(f"**{markdown_safe(field.path)}** {markdown_safe(shown)}", width="content")
        for operator in ("=", "<>", ">=", "<=") if is_comparable else _WITHOUT_VALUE:
            if operator in possible:
                st.button(
                    markdown_safe(operator), key=f"narrow_{operator}", on_click=narrow,
                    args=(field.path, operator, value, schema), help="Narrow the filter down to these rows",
                )  # fmt: skip


def narrow(column: str, operator: str, value: Any, schema: Sequence[SchemaColumn]) -> None:
    """For a button's `on_click`: joins a condition to the filter."""
    try:
        kind = next((field.type for field in schema if field.path == column), "")
        more = condition_text(column, operator, value, kind=kind)
        st.session_state[state.WHERE] = narrowed(st.session_state.get(state.WHERE) or "", more, schema)
    except LakehouseError as exc:
        st.toast(markdown_safe(f"{exc.message}; {exc.hint}"), icon=":material/error:")
        return
    state.set_params({state.SEARCH_FILES: None})
    st.session_state.pop("rows", None)  # other rows: a position chosen in the old ones means nothing


# what the columns hold: from the log, or exact from the rows after a click, beside another version's ------------------

profiles = once(numbers.profiles)  # that were read from rows


def profile(opened: OpenTable) -> None:
    """The controls, what stands out, and the columns; raises what `resolve_version` and the lake raise."""
    snapshot = opened.snapshot
    if not profiled(snapshot):
        st.info("**The table has no columns yet.**", icon=":material/view_column:")
        return
    with st.container(horizontal=True, vertical_alignment="bottom", key="profile_controls"):
        named = st.text_input(
            "Compare with version", key=state.COMPARE, bind="query-params", placeholder="118, -5, latest, a time",
            icon=":material/compare_arrows:", width=260,
        )  # fmt: skip
        button = st.container(horizontal=True, vertical_alignment="center", key="profile_button")
    lake, snapshots = viewer.lake(), [snapshot]
    if named := (named or "").strip():
        other = lake.snapshot(opened.ref, resolve_version(lake, opened.ref, named, viewer.clock()))
        snapshots = [snapshot] if other.version == snapshot.version else [other, snapshot]
    read = _read(snapshots, button)
    profiles_shown = [
        read.get(snapshot.version)
        or from_log(snapshot, cache.column_totals(snapshot, tuple(with_statistics(snapshot))))
        for snapshot in snapshots
    ]
    caption = words.source_sentence(profiles_shown[-1])
    if len(profiles_shown) == 2:
        caption += f" {words.differing_sentence(*profiles_shown)}"
    st.caption(markdown_safe(caption))
    shown = profiles_shown[-1]
    against = words.differences(profiles_shown[0], shown) if len(profiles_shown) == 2 else {}
    differing_first = sorted(shown.columns, key=lambda column: column.column not in against)
    lists.show(words.profile_columns(shown, against), differing_first, key="profile", alt="Profile of the columns")


def _read(snapshots: list[Snapshot], button: DeltaGenerator) -> dict[int, Profile]:
    """Profiles by version that were read from the rows, perhaps now; nothing is read before a person asked."""
    known_of, versions = profiles(), [snapshot.version for snapshot in snapshots]
    known = {
        value.version: value for snapshot in snapshots for value in known_of.known(snapshot, "", [snapshot.version])
    }
    missing = [snapshot for snapshot in snapshots if snapshot.version not in known]
    ref = snapshots[0].ref
    name = f"profile_{ref.uri}_{versions}"
    if missing and not work.is_asked(name):
        size, files = (sum(getattr(snapshot, total) for snapshot in missing) for total in ("size_bytes", "num_files"))
        with button:
            st.button("Read the rows", key="read_profile", icon=":material/play_arrow:", on_click=work.ask,
                      args=(name,))  # fmt: skip
            st.caption(words.cost_sentence(size, files))
    elif missing:
        last = work.run(lambda: known_of.over(viewer.lake(), ref, "", versions), key="profile", tell=_tell(missing))
        known |= {value.version: value for value in last.values} if last else {}
    return readable(list(known.values()))


def _tell(missing: list[Snapshot]) -> Callable[[NumbersProgress[Profile]], tuple[float, str]]:
    rows = {snapshot.version: snapshot.num_rows for snapshot in missing}

    def tell(step: NumbersProgress[Profile]) -> tuple[float, str]:
        total = rows.get(step.version or -1)
        share = step.rows_read / (2 * total) if total else 0.0
        done = (len(step.values) + min(1.0, share)) / max(1, step.total)
        return done, f"v{step.version}: {step.rows_read:,} rows read"

    return tell
