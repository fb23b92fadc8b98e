"""Widgets of the history page: the figure over versions, the list of commits, the detail of one.

Rule: the chosen versions live in the URL (`commit`, once or twice); list and figure only write them there.
"""

from collections.abc import Sequence
from typing import Any

import streamlit as st

from app import context, errors, navigation, state
from app.components import lists
from app.components.frame import OpenTable
from app.view import history as view
from app.view.format import UNKNOWN, ago, count_text, markdown_safe, moment_help, things
from app.view.history_figure import FIGURES, drawn_sentence, history_figure
from app.view.theme import operation_style
from backend.lake.model import Commit

COMMIT = "commit"  # query parameter, once or twice
PAGE_SIZE = 100
_LISTED = "_listed_versions"
_CHART = "history_chart"
COMMITS = lists.Look(
    formats={"Version": "exact", "When": "ago"},
    config={
        "Version": st.column_config.NumberColumn(pinned=True),
        "Rows": st.column_config.TextColumn(help="Inserted +, updated ~, deleted −, as the commit says."),
        "Files": st.column_config.TextColumn(help="Added +, removed −."),
        "Bytes": st.column_config.TextColumn(width=150),
        "Operation": st.column_config.TextColumn(width=190),
        "Note": st.column_config.TextColumn(help="User metadata of the commit, or what is wrong with its entry."),
        "Committed at": st.column_config.TextColumn(help="Exact, UTC."),
    },
    alt="Commits, newest first",
)


def chart(opened: OpenTable) -> None:
    """Rows, files or size over versions; a click on a point opens its commit."""
    names = list(FIGURES)
    chosen = st.segmented_control(
        "Over versions",
        names,
        default="Rows",
        required=True,
        key="figure",
        bind="query-params",
    )
    with st.spinner("Reading the history …", show_time=True):
        timeline = context.lake().timeline(opened.ref)
    figure = history_figure(timeline, FIGURES[chosen or "Rows"], mode=context.mode(), zone=context.timezone())
    st.plotly_chart(
        figure,
        theme=None,
        key=_CHART,
        on_select=_on_chart,
        selection_mode="points",
        config={"displayModeBar": False},
        alt=figure.layout.title.text,
    )
    note = drawn_sentence(timeline)
    if note:
        st.caption(note)


def commits(opened: OpenTable) -> None:
    """The list of commits, a page at a time, and what the chosen ones lead to."""
    first = context.lake().versions(opened.ref)[0][0]
    pages = max(1, -(-(opened.latest_version - first + 1) // PAGE_SIZE))
    above = st.container(key="commit_list")
    page = st.pagination(pages, key="page", bind="query-params") if pages > 1 else 1
    newest = opened.latest_version - (page - 1) * PAGE_SIZE
    found = context.lake().history(opened.ref, limit=PAGE_SIZE, ending_version=newest)
    chosen = chosen_versions()
    with above:
        _chosen(opened, chosen)
        st.caption(f"{view.history_sentence(found)}. Select one for its detail, two to compare them.")
        _list(found, chosen)


def chosen_versions() -> list[int]:
    """The versions in the URL, lowest first, at most two."""
    texts = st.query_params.get_all(COMMIT)
    return sorted({int(text) for text in texts if text.isascii() and text.isdigit() and len(text) < 19})[:2]


def _list(found: Sequence[Commit], chosen: Sequence[int]) -> None:
    versions = [commit.version for commit in found]
    st.session_state[_LISTED] = versions
    frame = view.commits_frame(found, context.now())
    # The key holds what is listed: a new commit on top must not move the selection to its neighbour.
    key = f"commits_{versions[0]}_{versions[-1]}" if versions else "commits"
    rows = [versions.index(version) for version in chosen if version in versions]
    st.dataframe(
        lists.styled(frame, COMMITS),
        key=key,
        column_config=dict(COMMITS.config),
        hide_index=True,
        height=lists.height(frame),
        row_height=lists.ROW_PX,
        on_select=lambda: _on_list(key),
        selection_mode="multi-row",
        selection_default={"selection": {"rows": rows}} if rows else None,
        placeholder="",
        alt=COMMITS.alt,
    )


def _on_list(key: str) -> None:
    listed = st.session_state[_LISTED]
    rows = st.session_state[key].get("selection", {}).get("rows", [])
    choose([listed[row] for row in rows if row < len(listed)])


def _on_chart() -> None:
    points: Sequence[Any] = st.session_state[_CHART].get("selection", {}).get("points", [])
    data = [point.get("customdata") for point in points]
    choose([int(item[0]) for item in data if item])


def choose(versions: Sequence[int]) -> None:
    """Writes the chosen versions into the URL: the first and last of more than two."""
    ordered = sorted(set(versions))
    if ordered:
        st.query_params[COMMIT] = [str(version) for version in dict.fromkeys([ordered[0], ordered[-1]])]
    else:
        st.query_params.pop(COMMIT, None)


# what the chosen commits lead to ---------------------------------------------------------------------------------


def _chosen(opened: OpenTable, chosen: Sequence[int]) -> None:
    if len(chosen) == 2:
        _comparison(opened, chosen[0], chosen[1])
    elif chosen:
        with errors.boundary():
            _detail(opened, chosen[0])


def _comparison(opened: OpenTable, older: int, newer: int) -> None:
    with st.container(border=True, horizontal=True, vertical_alignment="center", key="comparison"):
        st.markdown(f"**v{older} → v{newer}**: {things(newer - older, 'commit')} apart.", width="content")
        label = f"Changes from v{older} to v{newer}"
        navigation.table_link(opened.ref.name, label, page="changes", **{state.FROM: older, state.TO: newer})
        st.button("Clear", key="clear_commits", icon=":material/close:", type="tertiary", on_click=choose, args=([],))


def _detail(opened: OpenTable, version: int) -> None:
    found = context.lake().history(opened.ref, limit=1, starting_version=version, ending_version=version)
    with st.container(border=True, key="commit_detail"):
        if not found:
            st.info(f"**v{version} is not in the log** (any more).", icon=":material/info:")
            return
        commit = found[0]
        _detail_head(opened, commit)
        left, right = st.columns(2)
        with left:
            lists.facts(view.commit_facts(commit))
        with right:
            lists.facts(view.metrics_facts(commit.metrics) or {"Metrics": "the commit says none"})
        _folded("Parameters", commit.parameters)
        _folded("Metrics as the writer left them", commit.raw_metrics)


def _detail_head(opened: OpenTable, commit: Commit) -> None:
    style, now = operation_style(commit.operation, context.mode()), context.now()
    with st.container(horizontal=True, vertical_alignment="center", key="commit_head"):
        who = view.who(commit)
        by = f" · {markdown_safe(who)}" if who != UNKNOWN else ""
        st.markdown(
            f"{style.glyph} **v{commit.version} · {markdown_safe(commit.operation or 'operation not named')}**{by} · "
            f"{ago(commit.committed_at, now)}",
            help=moment_help(commit.committed_at, context.timezone()),
            width="content",
        )
        st.space("stretch")
        name = opened.ref.name
        navigation.table_link(name, f"Table at v{commit.version}", version=commit.version)
        if commit.version:
            params = {state.FROM: commit.version - 1, state.TO: commit.version}
            navigation.table_link(name, "What it changed", page="changes", **params)
        st.button("Close", key="clear_commits", icon=":material/close:", type="tertiary", on_click=choose, args=([],))


def _folded(title: str, values: Any) -> None:
    if values:
        with st.expander(f"{title} ({count_text(len(values))})", key=f"fold_{title}"):
            st.dataframe(view.key_values_frame(values), hide_index=True, key=f"values_{title}")
