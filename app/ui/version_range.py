"""Two version pickers bound to the URL: `from` and `to`, the second perhaps of another table.

Rule: the URL holds what the viewer wrote (`118`, `latest`, `-5`, a time), so that a link keeps its meaning. Without it
the range is the last ten commits.
"""

from collections.abc import Mapping
from datetime import timedelta

import streamlit as st

from app import cache, services, state, viewer
from app.ui.lake import OpenTable
from app.ui.view.commits import last_by_another, writer_text
from app.ui.view.theme import operation_text
from app.ui.view.words import markdown_safe
from backend.errors import LakehouseError
from backend.format import cut, utc_text
from backend.lake.history.history import VERSIONS, resolve_version
from backend.lake.model import Commit, TableRef

CHOICES = 200
DEFAULT_COMMITS = 10
DAY = timedelta(days=1)
_HELP = f"A version is {VERSIONS}. Times in this list are UTC."


def version_range(opened: OpenTable, against: OpenTable | None = None) -> tuple[int, int]:
    """Draws the pickers and returns the two versions, of which the first may be the newer one; raises what
    `resolve_version` raises.

    With `against` the second version is one of that table.
    """
    second = against or opened
    commits, names = [_offered(opened), _offered(second)], [pin_names(each.ref) for each in (opened, second)]
    oldest = min((int(version) for version in commits[0]), default=0)
    first = opened.latest_version if against else max(oldest, opened.latest_version - DEFAULT_COMMITS)
    defaults = {state.FROM: str(first), state.TO: str(second.latest_version)}
    labels = ("From version", f"To version of {markdown_safe(against.ref.name)}" if against else "To version")
    with st.container(horizontal=True, vertical_alignment="bottom", key="range"):
        for place, key in enumerate(defaults):
            picker(key, labels[place], defaults[key], commits[place], names[place])
        if not against:
            st.button("Swap", icon=":material/swap_horiz:", key="swap", on_click=_swap, args=(defaults,))
    from_text, to_text = (state.get_str(key) or defaults[key] for key in defaults)
    lake, clock = services.lake(), viewer.clock()
    return resolve_version(lake, opened.ref, from_text, clock), resolve_version(lake, second.ref, to_text, clock)


def _offered(opened: OpenTable) -> dict[str, Commit]:
    return {str(each.version): each for each in services.lake().history(opened.ref, limit=CHOICES)}


def offer_others(opened: OpenTable) -> None:
    """What people compare the latest version with: that of a day ago, and the last one by another writer."""
    streams, now, newest = cache.stream_names(), services.now(), [*_offered(opened).values()]
    is_older = len(newest) == CHOICES or any(c.committed_at and now - c.committed_at > DAY for c in newest[-1:])
    offers: list[tuple[str, int | str, str]] = [("24 h ago", "24 h ago", "As the table was then")] if is_older else []
    if other := last_by_another(newest, streams):
        by, since = (cut(writer_text(commit, streams, with_batch=False)) for commit in (other, newest[0]))
        help_text = f"v{other.version} is by {by}. All later ones are by {since}."
        offers.append(("the previous version by another writer", other.version, help_text))
    with st.container(horizontal=True, gap="medium"):
        for number, (label, version, help_text) in enumerate(offers):
            st.button(
                f"Compare with {label}", key=f"compare_with_{number}", type="tertiary", icon=":material/difference:",
                help=markdown_safe(help_text), on_click=choose_range, args=(version, opened.latest_version),
            )  # fmt: skip


def choose_range(from_version: int | str, to_version: int) -> None:
    """Callback of buttons that lead to another range."""
    state.set_params({state.FROM: from_version, state.TO: to_version, state.KEY_OF: None, state.ROWS_PAGE: None})
    st.session_state[state.ROWS_WHERE] = ""  # a filter of this comparison would hide rows of the next one unasked


def pin_range(from_version: int, to_version: int) -> None:
    """Callback: the same comparison, with its versions in the link."""
    state.set_params({state.FROM: from_version, state.TO: to_version})


def pin_names(ref: TableRef) -> Mapping[str, int]:
    """The table's versions that are pinned under a name; none where the store does not answer."""
    try:
        return services.named_versions(ref)
    except LakehouseError:  # the state line says so
        return {}


def picker(key: str, label: str, default: str, commits: Mapping[str, Commit], names: Mapping[str, int]) -> None:
    """A version in the URL under `key`. `commits` and pins' `names` are offered; any text that names a version can be
    typed."""
    chosen, widget = state.get_str(key) or default, f"pick_{key}"
    offered = [*names, *commits]
    options = offered if chosen in offered else [chosen, *offered]
    st.session_state[widget] = chosen  # links and the back button change the URL behind the widget
    st.selectbox(
        label,
        options,
        key=widget,
        format_func=lambda version: _label(version, commits, names),
        accept_new_options=True,
        on_change=lambda: state.set_params({key: st.session_state[widget]}),
        help=_HELP,
    )


def _label(version: str, commits: Mapping[str, Commit], names: Mapping[str, int]) -> str:
    """The label of an offered version; what was typed stands as it is."""
    # The same in every run: the browser sends the label back, and an unknown one would be taken for typed text.
    commit = commits.get(version)
    if commit is None:
        return f"{version} · v{names[version]}" if version in names else version
    # The operation comes first, and whole: what is cut in a narrow picker is the time.
    at = f" · {utc_text(commit.committed_at).removesuffix(' UTC')}" if commit.committed_at else ""
    return f"v{version} · {operation_text(commit.operation)}{at}"


def _swap(defaults: Mapping[str, str]) -> None:
    first, second = (state.get_str(key) or defaults[key] for key in (state.FROM, state.TO))
    state.set_params({state.FROM: second, state.TO: first})
