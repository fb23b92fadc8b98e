"""Which commits are chosen, and what they lead to: the detail of one, the comparison of two.

Rule: the choice lives in the URL, list and figure only write it there. What the writer left is shown beside what Weir
makes of it, and never replaced by it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from app import cache, errors, navigation, services, state, viewer
from app.history.view import commits as view
from app.ui import lists
from app.ui.view.acts import act_of
from app.ui.view.commits import changes_sentence, stream_text
from app.ui.view.frames import changes_frame
from app.ui.view.theme import operation_style
from app.ui.view.words import markdown_safe
from backend.format import ago, count_text, moment_help, things
from backend.lake.history.history import stream_of
from backend.lake.model import Commit, TableRef
from backend.lake.table.metadata_diff import TableChange, load_metadata_changes

# As high with links as without, which need two lines in a narrow window.
_BAR = """<style>.st-key-chosen_bar { min-height: 68px }
@media (max-width: 1000px) { .st-key-chosen_bar { min-height: 106px } }</style>"""
CHANGES = lists.Look(
    config={"Meaning": st.column_config.TextColumn(width="large")},
    alt="What this commit changed of the table",
)


def chosen_versions() -> list[int]:
    """The versions in the URL, lowest first, at most two."""
    return sorted(set(state.wholes(state.COMMIT)))[:2]


def choose(versions: Sequence[int]) -> None:
    """Writes the chosen versions into the URL: the first and last of more than two."""
    state.put({state.COMMIT: sorted({min(versions), max(versions)}) if versions else None})


def chosen_bar(ref: TableRef, chosen: Sequence[int], streams: Mapping[str, str]) -> None:
    """What was ticked and where it leads, in one line above the list that is there from the start: no tick moves it."""
    st.html(_BAR)
    with st.container(border=True, horizontal=True, vertical_alignment="center", key="chosen_bar"):
        if len(chosen) == 2:
            _comparison(ref, chosen[0], chosen[1])
        elif chosen:
            with errors.boundary():
                _head(ref, chosen[0], streams)
        else:
            st.caption("Tick a commit, or click a point above, for its detail. Tick two to compare them.")


def _comparison(ref: TableRef, older: int, newer: int) -> None:
    st.markdown(f"**v{older} → v{newer}** · {things(newer - older, 'commit')} apart", width="content")
    st.space("stretch")
    label = f"Changes from v{older} to v{newer}"
    navigation.table_link(ref.name, label, {state.FROM: older, state.TO: newer}, page="changes")
    params = {state.VERSION: newer, state.COMPARE: older}
    navigation.table_link(ref.name, "Properties of both", params, page="properties")
    _close("Clear")


def detail(ref: TableRef, version: int) -> None:
    """One commit in full, below the list."""
    commit = _commit(ref, version)
    if commit is None:
        return
    with st.container(border=True, key="commit_detail"):
        st.markdown(f"**v{version}** in full")
        if job := act_of(commit):
            navigation.page_link("acts", "Who asked for it, and the proof", {state.ACT: job})
        _changes(load_metadata_changes(services.lake(), ref, [commit]).get(version, ()))
        left, right = st.columns(2)
        with left:
            lists.facts(view.commit_facts(commit))
        with right:
            lists.facts(view.metrics_facts(commit.metrics) or {"Metrics": "the commit says none"})
        _folded("Parameters", commit.parameters)
        _folded("Metrics as the writer left them", commit.raw_metrics)


def _commit(ref: TableRef, version: int) -> Commit | None:
    commits = services.lake().history(ref, limit=1, starting_version=version, ending_version=version)
    return commits[0] if commits else None


def _head(ref: TableRef, version: int, streams: Mapping[str, str]) -> None:
    commit = _commit(ref, version)
    if commit is None:
        st.markdown(f"**v{version} is not in the log** (any more).", width="content")
        st.space("stretch")
        _close("Close")
        return
    style, now = operation_style(commit.operation, viewer.mode()), services.now()
    who = stream_text(commit, streams) or commit.user
    by = f" · {markdown_safe(who)}" if who else ""
    st.markdown(
        f"{style.glyph} **v{commit.version} · {markdown_safe(commit.operation or 'operation not named')}**{by} · "
        f"{ago(commit.committed_at, now)}",
        help=moment_help(commit.committed_at, viewer.timezone()),
        width="content",
    )
    st.space("stretch")
    _stream_link(commit, streams)
    navigation.table_link(ref.name, f"Table at v{commit.version}", {state.VERSION: commit.version})
    if commit.version:
        params = {state.FROM: commit.version - 1, state.TO: commit.version}
        navigation.table_link(ref.name, "What it changed", params, page="changes")
    _close("Close")


def _stream_link(commit: Commit, streams: Mapping[str, str]) -> None:
    """To the stream that wrote the commit and its batch, when a host has declared it."""
    name = stream_of(commit, streams)
    declared = {status.declaration.name for status in cache.streams_reading().streams}
    if commit.origin and name in declared:
        batch = commit.origin.batch_id
        label = f"Stream {name}" + (f", batch {batch}" if batch is not None else "")
        navigation.page_link("stream", label, {state.STREAM: name, state.BATCH: batch})


def _changes(changes: Sequence[TableChange]) -> None:
    if changes:
        st.markdown(f"**Changed of the table itself** · {changes_sentence(changes)}")
        lists.show(changes_frame(changes), CHANGES, key="table_changes")


def _close(label: str) -> None:
    st.button(label, key="clear_commits", icon=":material/close:", type="tertiary", on_click=choose, args=([],))


def _folded(title: str, values: Any) -> None:
    if values:
        with st.expander(f"{title} ({count_text(len(values))})", key=f"fold_{title}"):
            st.dataframe(view.key_values_frame(values), hide_index=True, key=f"values_{title}")
