"""Ways to narrow the filter down without writing it: a box for each type, and a click on a value.

Rule: both only write into the filter, which stays the one truth and stands in the URL.
"""

from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from app import state
from app.ui.view.words import markdown_safe
from backend.errors import LakehouseError
from backend.format import cut
from backend.lake.rows.filters import INTEGERS
from backend.lake.table.schema import Column
from backend.sql.filters import condition_text, narrowed, operators

_MOST = 2**53 - 1  # what a browser's number holds exactly
_FIRST_DAY, _LAST_DAY = date(1, 1, 1), date(9999, 12, 31)
_COLUMN, _OPERATOR, _VALUE = "condition_column", "condition_operator", "condition_value"
_WITHOUT_VALUE = ("IS NULL", "IS NOT NULL")


def boxes(schema: Sequence[Column]) -> None:
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


def _add(kind: str, schema: Sequence[Column]) -> None:
    """Reads the boxes as they are at the click, which may be the one that ended the typing."""
    column, operator = st.session_state[_COLUMN], st.session_state[f"{_OPERATOR}_{kind}"]
    given = None if operator in _WITHOUT_VALUE else st.session_state[f"{_VALUE}_{kind}"]
    if given in (None, "") and operator not in _WITHOUT_VALUE:
        st.toast("Give a value first", icon=":material/edit:")
        return
    try:
        narrow(column, operator, _typed(kind, given), schema)
    except (ValueError, InvalidOperation):
        st.toast(markdown_safe(f"{given!r} does not fit {kind}"), icon=":material/error:")


def _typed(kind: str, given: Any) -> Any:
    if not isinstance(given, str) or kind == "string":
        return given
    if kind == "binary":
        return bytes.fromhex(given)
    return float(given) if kind in ("double", "float") else Decimal(given.strip())


def clicked(field: Column, value: Any, schema: Sequence[Column], slot: DeltaGenerator) -> None:
    """What a value that was clicked can be used for."""
    with slot:
        shown = "NULL" if value is None else cut(str(value), 24)
        st.markdown(f"**{markdown_safe(field.path)}** {markdown_safe(shown)}", width="content")
        for operator in _offered(field.type, value):
            st.button(
                markdown_safe(operator), key=f"narrow_{operator}", on_click=narrow,
                args=(field.path, operator, value, schema), help="Narrow the filter down to these rows",
            )  # fmt: skip


def _offered(kind: str, value: Any) -> tuple[str, ...]:
    possible = operators(kind)
    if value is None or "=" not in possible:
        return _WITHOUT_VALUE
    return tuple(operator for operator in ("=", "<>", ">=", "<=") if operator in possible)


def narrow(column: str, operator: str, value: Any, schema: Sequence[Column]) -> None:
    """For a button's `on_click`: joins a condition to the filter."""
    try:
        kind = next((field.type for field in schema if field.path == column), "")
        more = condition_text(column, operator, value, kind=kind)
        st.session_state[state.WHERE] = narrowed(st.session_state.get(state.WHERE) or "", more, schema)
    except LakehouseError as exc:
        st.toast(markdown_safe(f"{exc.message}; {exc.hint}"), icon=":material/error:")
        return
    state.put({state.SEARCH_FILES: None})
    st.session_state.pop("rows", None)  # other rows: a position chosen in the old ones means nothing
