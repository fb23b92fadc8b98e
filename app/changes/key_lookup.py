"""The history of one key over the range of a difference, or over its whole life, with the key in the URL.

Rule: what is little to read is looked up at once, the rest by a button. What was found stays for this session, as long
as the same is asked.
"""

from collections.abc import Sequence

import orjson
import streamlit as st

from app import cache, services, state
from app.changes.text import repeated_texts
from app.changes.view.rows import RowTable, build_step_table, style
from app.errors import boundary
from app.ui import work
from app.ui.view.words import markdown_safe, sentence
from backend.changes.model import RowChange, SetApart, VersionDiff
from backend.format import UNKNOWN
from backend.lake.model import Commit
from backend.search.key_history import Key, KeyHistory, KeyProgress, key_history, whole_life
from backend.sql.values import json_value

_FOUND, _BEGUN = "_key_history", "_key_histories_begun"
_SMALL_VERSIONS, _SMALL_BYTES = 100, 50_000_000  # up to here nobody needs to ask for it
Versions = tuple[int, int]


def offer(diff: VersionDiff, row: RowChange | None) -> None:
    """A button for the history of a row's key."""
    if row is None or diff.question.against is not None:
        return
    if row.key is None or row.set_apart is SetApart.NULL_KEY:
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
    if not key or diff.question.against is not None:
        return
    with st.container(border=True, key="key_panel"), boundary():
        versions = _versions(diff)
        low, high = versions
        with st.container(horizontal=True, vertical_alignment="center", key="key_head"):
            st.markdown(f"**History of {markdown_safe(_text(key))}**, v{low} → v{high}", width="content")
            st.space("stretch")
            is_life = bool(state.text(state.LIFE))
            label = "Only this range" if is_life else "Its whole life"
            st.button(label, key="key_life", icon=":material/timeline:", on_click=_turn_life, args=(is_life,))
            st.button("Close", key="key_close", icon=":material/close:", type="tertiary", on_click=_close)
        _answer(diff, key, versions)


def _versions(diff: VersionDiff) -> Versions:
    """The range of the difference, or all versions that can be read."""
    if not state.text(state.LIFE):
        return min(diff.question.from_version, diff.question.to_version), max(
            diff.question.from_version, diff.question.to_version
        )
    lake = services.lake()
    return min((first for first, _ in lake.versions(diff.question.ref)), default=0), lake.latest_version(
        diff.question.ref
    )


def _turn_life(is_life: bool) -> None:
    state.put({state.LIFE: None if is_life else 1})


def _answer(diff: VersionDiff, key: Key, versions: Versions) -> None:
    mark = _mark(diff, key, versions)
    known: dict[str, KeyHistory] = st.session_state.setdefault(_FOUND, {})
    begun: set[str] = st.session_state.setdefault(_BEGUN, set())
    if mark not in begun | known.keys() and _is_small(diff, versions):
        work.ask(mark)
    if work.is_asked(mark):
        begun.add(mark)
        found = _read(diff, key, versions)
        if found is not None:
            known.clear()
            known[mark] = found
    if mark in known:
        _show(diff, known[mark])
    else:
        st.button("Look it up", key="key_look", icon=":material/search:", on_click=work.ask, args=(mark,))


def _is_small(diff: VersionDiff, versions: Versions) -> bool:
    low, high = versions
    return (
        high - low <= _SMALL_VERSIONS and services.lake().snapshot(diff.question.ref, high).size_bytes <= _SMALL_BYTES
    )


def _read(diff: VersionDiff, key: Key, versions: Versions) -> KeyHistory | None:
    ask = whole_life if state.text(state.LIFE) else key_history
    last = work.run(lambda: ask(services.lake(), diff.question.ref, versions, key), key="key", tell=_progress)
    return last.result if last else None


def _show(diff: VersionDiff, found: KeyHistory) -> None:
    if found.steps:
        if repeated := repeated_texts(found.steps):
            st.warning(" ".join(sentence(each) for each in repeated), icon=":material/content_copy:")
        commits = _commits(diff, [step.version for step in found.steps])
        table: RowTable = build_step_table(diff, found.steps, commits, cache.stream_names())
        st.dataframe(style(table), hide_index=True, key="key_steps", placeholder=UNKNOWN, alt="Steps of one key")
    elif found.is_whole:
        st.info("**No commit of this range touched it.**", icon=":material/equal:")
    else:
        st.info("**Not known**: no change was seen, but not every version was.", icon=":material/question_mark:")
    st.caption(" ".join(markdown_safe(sentence(note)) for note in found.notes))


def _commits(diff: VersionDiff, versions: Sequence[int]) -> dict[int, Commit]:
    """The commits of some versions, those of the difference or others."""
    known = {each.commit.version: each.commit for each in diff.commits}
    if not set(versions) <= known.keys():
        read = services.lake().history(diff.question.ref, starting_version=min(versions), ending_version=max(versions))
        known |= {commit.version: commit for commit in read}
    return known


def _progress(step: KeyProgress) -> tuple[float, str]:
    if step.total:
        return step.versions / step.total, f"{step.versions:,} of {step.total:,} versions looked at"
    return 0.0, f"{step.rows_read:,} rows of the change feed read"


def _look_up(diff: VersionDiff, key: Key) -> None:
    state.put({state.KEY_OF: orjson.dumps(key).decode()})
    work.ask(_mark(diff, key, _versions(diff)))


def _close() -> None:
    state.put({state.KEY_OF: None, state.LIFE: None})
    work.cancel()


def _asked() -> Key:
    """The key that the URL names; empty where it names none or is no key."""
    try:
        found = orjson.loads(state.text(state.KEY_OF) or "{}")
    except orjson.JSONDecodeError:
        return {}
    is_key = isinstance(found, dict) and all(isinstance(value, str | int | float | bool) for value in found.values())
    return found if is_key else {}


def _mark(diff: VersionDiff, key: Key, versions: Versions) -> str:
    what = "life" if state.text(state.LIFE) else "key"
    return f"{what} {diff.question.ref.uri} {versions[0]} {versions[1]} {orjson.dumps(key).decode()}"


def _text(key: Key) -> str:
    parts: Sequence[str] = [f"{name} = {value}" for name, value in key.items()]
    return ", ".join(parts)[:200]
