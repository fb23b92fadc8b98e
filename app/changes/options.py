"""How two versions are compared: key, columns, tolerance, method and another table, in a popover bound to the URL.

Rule: what the URL asks for stays visible even where it is not possible; the answer then says why.
"""

import streamlit as st

from app import cache, services, state
from app.changes.text import impossible_lines
from app.changes.view.frames import method_choices
from app.ui.frame import OpenTable
from app.ui.version_range import VersionRange
from app.ui.view.words import markdown_safe, sentence
from backend.changes.cache import LogPart
from backend.changes.key import key_memory
from backend.changes.model import DiffMethod, Question
from backend.lake.history.history import example_condition
from backend.lake.table.schema import column_names

HERE, HOST = "Here", "On the stream host"
METHOD_LABELS = {
    DiffMethod.CHANGE_FEED: "Change feed",
    DiffMethod.ROW_ID: "Row ids",
    DiffMethod.KEY_JOIN: "Join by key",
    DiffMethod.MULTISET: "Whole rows",
    DiffMethod.LOG_ONLY: "Log alone",
}


def other_table(opened: OpenTable) -> OpenTable | None:
    """The other table that the URL names; raises `TableNotFoundError` when it is not there."""
    name = state.text(state.AGAINST)
    if not name or name == opened.ref.name:
        return None
    lake = services.lake()
    ref = lake.find(name)
    return OpenTable(ref, lake.snapshot(ref), lake.latest_version(ref))


def options_popover(opened: OpenTable) -> "OptionsPopover":
    """The popover with what does not depend on the two versions; `show_methods` adds the methods."""
    box = st.popover("How to compare", icon=":material/tune:", key="how")
    names = list(column_names(opened.snapshot.metadata))
    with box:
        _table_picker(opened)
        st.multiselect(
            "Key: columns that name a row", names, key=state.KEY, bind="query-params", accept_new_options=True,
            placeholder="Declared, as MERGE finds its rows, or as given last",
        )  # fmt: skip
        st.multiselect("Leave out columns", names, key=state.WITHOUT, bind="query-params", placeholder="None")
        st.number_input(
            "Floats are equal within", min_value=0.0, value=0.0, step=0.001, format="%g", key=state.TOLERANCE,
            bind="query-params", help="Only where rows are paired by a key; NaN equals NaN, null equals null.",
        )  # fmt: skip
        st.toggle(
            "Across a CREATE OR REPLACE", key=state.ACROSS_REPLACE, bind="query-params",
            help="Where the table was replaced between the two versions, they are compared as two tables.",
        )  # fmt: skip
        _host_picker()
    return OptionsPopover(box.container(key="methods"))


class OptionsPopover:
    """The part of the popover that needs the plan."""

    def __init__(self, slot: "st.delta_generator.DeltaGenerator") -> None:
        self._slot = slot

    def show_methods(self, part: LogPart | None) -> None:
        """The possible methods, and why the others are not possible. Without a plan only the way back to the best
        one."""
        asked = _asked_method()
        choices = list(method_choices(part)) if part else []
        if asked and asked not in choices:
            choices.append(asked)
        st.session_state["pick_method"] = asked
        with self._slot:
            st.selectbox(
                "Method", choices, index=None, key="pick_method", format_func=METHOD_LABELS.__getitem__,
                placeholder="The best that is possible", on_change=_picked_method,
            )  # fmt: skip
            lines = impossible_lines(part) if part else []
            if lines:
                st.caption("\n".join(f"- {markdown_safe(sentence(line))}" for line in lines))


def where_input(opened: OpenTable) -> None:
    """The condition on rows, above them."""
    st.text_input(
        "Only rows with", key=state.ROWS_WHERE, bind="query-params", max_chars=2_000,
        placeholder=example_condition(opened.snapshot.metadata, is_good=False),
        help="SQL over one row, in DuckDB's dialect: kept are changes whose row satisfies it before or after.",
    )  # fmt: skip


def asked_question(opened: OpenTable, against: OpenTable | None, versions: VersionRange) -> Question:
    """What the URL asks for; the widgets must be drawn before. `left_out` names the columns left out."""
    limits = services.settings().lake
    key = tuple(st.session_state.get(state.KEY) or ()) or None
    return Question(
        opened.ref,
        versions.from_version,
        versions.to_version,
        key=key,
        remembered_key=None if key else _remembered_key(opened),
        row_limit=limits.diff_rows,
        method=_asked_method(),
        max_bytes=limits.diff_max_bytes,
        tolerance=float(st.session_state.get(state.TOLERANCE) or 0.0),
        against=against.ref if against else None,
        where=str(st.session_state.get(state.ROWS_WHERE) or "").strip() or None,
        on_host=is_on_host(),
        across_replace=bool(st.session_state.get(state.ACROSS_REPLACE)),
        table_ids=tuple(each.snapshot.metadata.id for each in (opened, against) if each),
    )


def is_on_host() -> bool:
    """Whether the URL asks for Spark on the stream host."""
    return state.text(state.ON) == "host"


def compare_on_host() -> None:
    """Callback: from now on there."""
    state.put({state.ON: "host"})


def _remembered_key(opened: OpenTable) -> tuple[str, ...] | None:
    """The key last given for this table, as it was when this viewer first looked.

    It is read once a session: another viewer's key must not change this page.
    """
    name = f"remembered_key:{opened.ref.uri}"
    if name not in st.session_state:
        st.session_state[name] = key_memory(services.settings().home).known(opened.ref)
    found: tuple[str, ...] | None = st.session_state[name]
    return found


def left_out() -> tuple[str, ...]:
    """Columns that are not compared."""
    return tuple(st.session_state.get(state.WITHOUT) or ())


def choose_method(method: DiffMethod | None) -> None:
    """Callback: this method, or the best one."""
    state.put({state.METHOD: method.value if method else None})


def _asked_method() -> DiffMethod | None:
    """A method that the URL names; anything else is as if it named none."""
    asked = state.text(state.METHOD)
    return DiffMethod(asked) if asked in {method.value for method in METHOD_LABELS} else None


def _picked_method() -> None:
    choose_method(st.session_state["pick_method"])


def _table_picker(opened: OpenTable) -> None:
    chosen = state.text(state.AGAINST)
    names = [name for name in cache.lake_reading().names if name != opened.ref.name]
    if chosen and chosen not in names:
        names.append(chosen)
    st.session_state["pick_against"] = chosen
    st.selectbox(
        "Compare with another table", names, index=None, key="pick_against", placeholder="This table",
        on_change=_picked_table, help="A clone, a backup, or the layer below: by key, or as whole rows.",
    )  # fmt: skip


def _host_picker() -> None:
    st.session_state["pick_on"] = HOST if is_on_host() else HERE
    st.segmented_control(
        "Compare rows", (HERE, HOST), key="pick_on", required=True, on_change=_picked_host,
        help="On the stream host Spark compares any amount of data, as a job; the answer is kept for all.",
    )  # fmt: skip


def _picked_host() -> None:
    state.put({state.ON: "host" if st.session_state["pick_on"] == HOST else None})


def _picked_table() -> None:
    forgotten = dict.fromkeys((state.FROM, state.TO, state.METHOD, state.ON))
    state.put({state.AGAINST: st.session_state["pick_against"], **forgotten})
