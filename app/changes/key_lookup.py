"""The history of one key over the range of a difference, with the key in the URL.

Rule: a link does not start the search, for it may read much; a button does. What was found stays for this session, as
long as the same is asked.
"""

from collections.abc import Sequence

import orjson
import streamlit as st

from app import context, state
from app.changes.view.rows import RowTable, build_step_table, style
from app.errors import boundary
from app.ui import work
from app.ui.words import markdown_safe, sentence
from backend.diff.key_history import Key, KeyHistory, KeyProgress, key_history
from backend.diff.model import RowChange, VersionDiff
from backend.diff.values import json_value
from backend.errors import LakehouseError
from backend.format import UNKNOWN

_FOUND = "_key_history"


def offer(diff: VersionDiff, row: RowChange | None) -> None:
    """A button for the history of a row's key, where the key names this row alone."""
    if row is None or diff.against is not None:
        return
    if row.key is None or row.set_apart is not None:
        st.caption("This row has no key of its own: its history cannot be told.")
        return
    key = {name: json_value(value) for name, value in row.key.items()}
    st.button(
        f"History of {markdown_safe(_text(key))}", key="key_history", icon=":material/history:",
        on_click=_look_up, args=(diff, key),
    )  # fmt: skip


def lookup(diff: VersionDiff) -> None:
    """The history that the URL names, or a button that looks it up."""
    key = _asked()
    if not key or diff.against is not None:
        return
    with st.container(border=True, key="key_panel"):
        low, high = sorted((diff.from_version, diff.to_version))
        with st.container(horizontal=True, vertical_alignment="center", key="key_head"):
            st.markdown(f"**History of {markdown_safe(_text(key))}**, v{low} → v{high}", width="content")
            st.space("stretch")
            st.button("Close", key="key_close", icon=":material/close:", type="tertiary", on_click=_close)
        with boundary():
            _answer(diff, key)


def _answer(diff: VersionDiff, key: Key) -> None:
    mark = _mark(diff, key)
    known: dict[str, KeyHistory] = st.session_state.setdefault(_FOUND, {})
    if work.is_asked(mark):
        found = _read(diff, key)
        if found is not None:
            known.clear()
            known[mark] = found
    if mark in known:
        _show(diff, known[mark])
    else:
        st.button("Look it up", key="key_look", icon=":material/search:", on_click=work.ask, args=(mark,))


def _read(diff: VersionDiff, key: Key) -> KeyHistory | None:
    try:
        steps = key_history(context.lake(), diff.ref, (diff.from_version, diff.to_version), key)
        last = work.run(steps, key="key", tell=_progress)
    except LakehouseError:
        work.cancel()
        raise
    return last.result if last else None


def _show(diff: VersionDiff, found: KeyHistory) -> None:
    if found.steps:
        commits = {each.commit.version: each.commit for each in diff.commits}
        table: RowTable = build_step_table(diff, found.steps, commits)
        st.dataframe(style(table), hide_index=True, key="key_steps", placeholder=UNKNOWN, alt="Steps of one key")
    else:
        st.info("**No commit of this range touched it**, as far as it was seen.", icon=":material/equal:")
    st.caption(" ".join(markdown_safe(sentence(note)) for note in found.notes))


def _progress(step: KeyProgress) -> tuple[float, str]:
    if step.total:
        return step.versions / step.total, f"{step.versions:,} of {step.total:,} versions looked at"
    return 0.0, f"{step.rows_read:,} rows of the change feed read"


def _look_up(diff: VersionDiff, key: Key) -> None:
    state.put({state.KEY_OF: orjson.dumps(key).decode()})
    work.ask(_mark(diff, key))


def _close() -> None:
    state.put({state.KEY_OF: None})
    work.cancel()


def _asked() -> Key:
    """The key that the URL names; empty where it names none or is no key."""
    try:
        found = orjson.loads(state.text(state.KEY_OF) or "{}")
    except orjson.JSONDecodeError:
        return {}
    is_key = isinstance(found, dict) and all(isinstance(value, str | int | float | bool) for value in found.values())
    return found if is_key else {}


def _mark(diff: VersionDiff, key: Key) -> str:
    return f"key {diff.ref.uri} {diff.from_version} {diff.to_version} {orjson.dumps(key).decode()}"


def _text(key: Key) -> str:
    parts: Sequence[str] = [f"{name} = {value}" for name, value in key.items()]
    return ", ".join(parts)[:200]
