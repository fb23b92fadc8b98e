"""Saved queries on the page: the button that saves what was just asked, and those that anybody saved.

Rule: a saved query is everybody's to open; it runs once somebody says so. Saving and removing is the act of a named
person with a reason.
"""

from typing import NamedTuple

import streamlit as st

from app import errors, navigation, services, state, viewer
from app.query import view
from app.ui import dialogs
from app.ui.view.words import markdown_safe
from backend.format import ago, cut
from backend.sql.saved import LONGEST_NAME, Chart, SavedQuery

_SAVE, _REMOVE = "query_save", "query_remove"


class _Unsaved(NamedTuple):
    text: str
    chart: Chart | None


def link_params(text: str, chart: Chart | None, pins: str = "") -> navigation.Params:
    """What opens a statement on Query, at these versions and drawn like this."""
    params: dict[str, state.Value] = {state.QUERY: text, state.VERSIONS: pins or None}
    if chart is None:
        return params
    drawn = {state.CHART: chart.kind, state.CHART_X: chart.x or None, state.CHART_Y: chart.y}
    return {**params, **drawn, state.CHART_COLOUR: chart.colour or view.ONE_COLOUR, state.VIEW: "Chart"}


def queries() -> list[SavedQuery]:
    """By name; raises `StoreError`."""
    store = services.existing_store()
    return store.saved.all() if store else []


def save_button(text: str, chart: Chart | None) -> None:
    """Opens the dialog on the next full run; off where nobody may act here."""
    blocked = viewer.read_only_reason()
    effect = markdown_safe(blocked) if blocked else "By name, for everybody; with a chart it can be a tile"
    if st.button("Save…", key="query_save", icon=":material/bookmark_add:", disabled=blocked is not None, help=effect):
        dialogs.open_dialog(_SAVE, _Unsaved(text, chart))


def saved_dialogs() -> None:
    """Called once by the page: says what was just done, and opens the dialog that is due."""
    dialogs.dialog(_SAVE, _save, title=lambda _: "Save this query?", width="small")
    dialogs.dialog(_REMOVE, _remove, title=lambda query: f"Remove {query.name}?", width="small")


def saved() -> None:
    """All saved queries, to be found by name or owner."""
    with errors.boundary():
        by_label = {f"{query.name} · {query.owner}": query for query in queries()}
        if not by_label:
            return
        with st.popover("Saved", icon=":material/bookmark:", key="query_saved"):
            label = st.selectbox("Saved queries", list(by_label), None, key="query_saved_name", placeholder="Search")
            if label in by_label:
                _one(by_label[label])


def _one(query: SavedQuery) -> None:
    st.code(cut(query.text, 2_000), language="sql")
    st.caption(markdown_safe(f"{query.owner} saved it {ago(query.saved_at, services.now())}."))
    with st.container(horizontal=True, key="query_saved_buttons"):
        navigation.page_link("query", "Open", link_params(query.text, query.chart), icon=":material/terminal:")
        blocked = viewer.read_only_reason()
        help_text = markdown_safe(blocked) if blocked else None
        if st.button("Remove…", key="query_remove", disabled=blocked is not None, help=help_text):
            dialogs.open_dialog(_REMOVE, query)


def _save(asked: _Unsaved) -> None:
    with errors.boundary():
        st.markdown("Everybody finds it by its name, and `weir query --saved NAME` runs it.")
        st.caption("Its chart is saved with it." if asked.chart else "Without a chart it is no tile: choose *Chart*.")

        def boxes() -> None:
            title = "query_save_title"
            st.text_input("Name", key=title, max_chars=LONGEST_NAME, placeholder="Revenue by status")

        reason = dialogs.reason(_SAVE, label="Save", boxes=boxes)
        if reason is None:
            return
        name = st.session_state["query_save_title"] or ""
        query = services.store().saved.save(
            name, asked.text, asked.chart, actor=viewer.actor(), reason=reason, now=services.now()
        )
        dialogs.asked(_SAVE, f"{query.name} is saved")


def _remove(query: SavedQuery) -> None:
    with errors.boundary():
        st.markdown(f"{markdown_safe(query.owner)} saved it. Links that hold its statement work as before.")
        reason = dialogs.reason(_REMOVE, label="Remove")
        if reason is None:
            return
        services.store().saved.remove(query.name, actor=viewer.actor(), reason=reason, now=services.now())
        dialogs.asked(_REMOVE, f"{query.name} is removed")
