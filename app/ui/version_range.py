"""Two version pickers bound to the URL: `from` and `to`, the second perhaps of another table.

Rule: the URL holds what the viewer wrote (`118`, `latest`, `-5`, a time), so that a link keeps its meaning. Without it
the range is the last ten commits.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import streamlit as st

from app import services, state
from app.ui.frame import OpenTable
from app.ui.view.theme import operation_text
from app.ui.view.words import markdown_safe
from backend.changes.versions import resolve_version
from backend.format import utc_text
from backend.lake.model import Commit

CHOICES = 200
DEFAULT_COMMITS = 10
_HELP = "A version, `latest`, an offset such as `-5`, or a time such as `2026-11-20T10:00Z`. Times are UTC."


@dataclass(frozen=True, slots=True)
class VersionRange:
    """The two versions to compare; `from_version` may be the newer one."""

    from_version: int
    to_version: int


def version_range(opened: OpenTable, against: OpenTable | None = None) -> VersionRange:
    """Draws the pickers and returns the range; raises what `resolve_version` raises.

    With `against` the second version is one of that table.
    """
    second = against or opened
    commits = [_offered(opened), _offered(second)]
    oldest = min((int(version) for version in commits[0]), default=0)
    first = opened.latest_version if against else max(oldest, opened.latest_version - DEFAULT_COMMITS)
    defaults = {state.FROM: str(first), state.TO: str(second.latest_version)}
    labels = ("From version", f"To version of {markdown_safe(against.ref.name)}" if against else "To version")
    with st.container(horizontal=True, vertical_alignment="bottom", key="range"):
        for place, key in enumerate(defaults):
            picker(key, labels[place], defaults[key], commits[place])
        if not against:
            st.button("Swap", icon=":material/swap_horiz:", key="swap", on_click=_swap, args=(defaults,))
    asked = [state.text(key) or defaults[key] for key in (state.FROM, state.TO)]
    refs = (opened.ref, second.ref)
    return VersionRange(*(resolve_version(services.lake(), ref, text) for ref, text in zip(refs, asked, strict=True)))


def _offered(opened: OpenTable) -> dict[str, Commit]:
    return {str(each.version): each for each in services.lake().history(opened.ref, limit=CHOICES)}


def choose_range(from_version: int, to_version: int) -> None:
    """Callback of buttons that lead to another range."""
    state.put({state.FROM: from_version, state.TO: to_version, state.KEY_OF: None, state.ROWS_PAGE: None})
    st.session_state[state.ROWS_WHERE] = ""  # a filter of this comparison would hide rows of the next one unasked


def pin_range(from_version: int, to_version: int) -> None:
    """Callback: the same comparison, with its versions in the link."""
    state.put({state.FROM: from_version, state.TO: to_version})


def picker(key: str, label: str, default: str, commits: Mapping[str, Commit]) -> None:
    """A version in the URL under `key`. `commits` are offered; any text that names a version can be typed."""
    chosen, widget = state.text(key) or default, f"pick_{key}"
    options = list(commits) if chosen in commits else [chosen, *commits]
    st.session_state[widget] = chosen  # links and the back button change the URL behind the widget
    st.selectbox(
        label,
        options,
        key=widget,
        format_func=lambda version: _label(version, commits),
        accept_new_options=True,
        on_change=_picked,
        args=(key,),
        help=_HELP,
    )


def _label(version: str, commits: Mapping[str, Commit]) -> str:
    """The label of an offered version; what was typed stands as it is."""
    # The same in every run: the browser sends the label back, and an unknown one would be taken for typed text.
    commit = commits.get(version)
    if commit is None:
        return version
    # What is cut in a narrow picker is the operation, not the time.
    at = f" · {utc_text(commit.committed_at)}" if commit.committed_at else ""
    return f"v{version}{at} · {operation_text(commit.operation)}"


def _picked(key: str) -> None:
    state.put({key: st.session_state[f"pick_{key}"]})


def _swap(defaults: Mapping[str, str]) -> None:
    first, second = (state.text(key) or defaults[key] for key in (state.FROM, state.TO))
    state.put({state.FROM: second, state.TO: first})
