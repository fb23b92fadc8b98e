"""The commit that was found: who made it, what it changed as a whole, and what a way back would lose.

Rule: what the log tells stands at once; rows are compared unasked where that is little work, else a link does.
"""

import streamlit as st

from app import cache, navigation, services, state
from app.search.view import culprit as view
from app.ui import lists
from app.ui.frame import OpenTable
from app.ui.view.explanation import explained
from app.ui.view.words import markdown_safe, sentence
from backend.changes.key import key_memory
from backend.changes.model import Question, VersionDiff
from backend.errors import LakehouseError
from backend.search.model import Bisection

_WAIT_S = 5.0
_NARROWEST_PX = 280
_PARTS = ("who", "changed", "back")


def culprit(opened: OpenTable, found: Bisection) -> None:
    """Three parts side by side, where there is one commit."""
    if found.culprit is None:
        return
    with st.grid(3, min_column_width=_NARROWEST_PX, key="culprit"):
        who, changed, back = (st.container(border=True, height="stretch", key=f"culprit_{part}") for part in _PARTS)
    with who:
        st.markdown(f"**v{found.culprit}: who and how**")
        if found.commit:
            lists.facts(view.commit_facts(found.commit, cache.stream_names()))
        else:
            st.caption("Its commit is not in the log any more.")
    with changed, st.spinner("Comparing rows …"):
        _changed(opened, found)
    with back, st.spinner("Comparing rows …"):
        _way_back(opened, found)


def _changed(opened: OpenTable, found: Bisection) -> None:
    diff = difference(opened, found.culprit - 1, found.culprit) if found.culprit else None
    st.markdown(f"**What it changed**: {markdown_safe(view.changed_text(found, diff))}")
    if diff is not None:
        st.markdown("\n".join(f"- {markdown_safe(each)}" for each in explained(diff.explanation)))


def _way_back(opened: OpenTable, found: Bisection) -> None:
    lake, ref, good = services.lake(), opened.ref, found.good_seen
    st.markdown(f"**Back to v{good}**")
    if found.is_mended or good >= opened.latest_version:
        st.caption("The latest version satisfies the condition: nothing has to go back.")
        return
    commits = lake.history(ref, starting_version=good + 1, ending_version=opened.latest_version)
    diff = difference(opened, opened.latest_version, good)
    said = view.restore_texts(found, commits, diff)
    st.markdown("\n".join(f"- {markdown_safe(sentence(each))}" for each in said))
    params: navigation.Params = {state.FROM: opened.latest_version, state.TO: good}
    navigation.table_link(ref.name, f"What going back to v{good} changes", params, page="changes")


def difference(opened: OpenTable, first: int, second: int) -> VersionDiff | None:
    """Two versions compared, where that is little work and soon done."""
    limits = services.settings().lake
    keys = key_memory(services.settings().home)
    question = Question(
        opened.ref,
        first,
        second,
        remembered_key=keys.known(opened.ref),
        row_limit=limits.diff_rows,
        max_bytes=limits.diff_max_bytes,
        table_ids=(opened.snapshot.metadata.id,),
    )
    lake, differences = services.lake(), cache.differences()
    try:
        if not differences.log_part(lake, question).is_small:
            return None
        return differences.soon(lake, question, _WAIT_S)
    except LakehouseError:
        return None  # Changes says why, where the link leads
