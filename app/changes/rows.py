"""Changed rows: which columns updates touch, filters, before and after side by side, the history of a key, and exports.

Rule: counts are of all changed rows, lists are of the rows fetched, and each says which. Of a key's history, what is
little to read is looked up at once, the rest by a button; what was found stays for this session.
"""

import shlex
import zlib
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import orjson
import streamlit as st

from app import cache, state, viewer
from app.changes import text
from app.changes.view import build_row_table, build_step_table, cell_columns, style
from app.errors import boundary
from app.ui import lists, work
from app.ui.view.words import PAGE_ROWS, markdown_safe, sentence
from backend.changes.answer import diff as compare
from backend.changes.changed_rows import ChangedBatches, exported, file_of
from backend.changes.model import DiffMethod, RowChange, RowKind, SetApart, VersionDiff
from backend.format import UNKNOWN, count_text, things
from backend.lake.lake import Lake
from backend.search.key_history import Key, KeyHistory, KeyProgress, key_history, whole_life
from backend.sql.export import FORMATS, Format
from backend.sql.values import json_value

MOST_EXPORTED = 1_000_000  # rows of a file that a page holds as a whole


def changed_rows(diff: VersionDiff) -> None:
    """The rows that differ, or why there are none to show."""
    if not diff.is_available:
        st.info("**No rows to show here.** Files and commits are under Commits.", icon=":material/table_rows:")
    elif diff.method is DiffMethod.SAME_VERSION:
        st.info("**Choose two different versions above.**", icon=":material/equal:")
    elif not diff.changes.rows:
        others = "" if diff.question.against else " What the commits did is under Commits."
        st.info(f"**No row differs between the two states.**{others}", icon=":material/equal:")
    else:
        if touched := sorted(diff.changes.changed_cells.items(), key=lambda item: -item[1]):
            st.markdown("**What updates touch**")
            alt = "Columns that updates touch, with their commonest changes"
            lists.show(cell_columns(diff), touched, key="cells", alt=alt)
        rows = _filtered(diff)
        st.caption(text.shown_text(diff, rows))
        slot, page = st.container(key="changed_rows"), lists.chosen_page(len(rows), key=state.ROWS_PAGE)
        if rows:
            with slot:
                offer_history(diff, _table(diff, rows[(page - 1) * PAGE_ROWS : page * PAGE_ROWS]))
        key_history_panel(diff)
        _exports(diff)


def _table(diff: VersionDiff, page: Sequence[RowChange]) -> RowChange | None:
    """The rows side by side; returns the one that was clicked."""
    table = build_row_table(diff, page)
    if left_out := table.num_left_out:
        columns = "column is" if left_out == 1 else "columns are"
        st.caption(f"{left_out:,} more {columns} not shown; exports have them")
    # Other rows are another list: a position chosen in the old one means nothing in it.
    key = f"changed_rows_{zlib.crc32(repr([(row.kind, row.key) for row in page]).encode()):08x}"
    with lists.opening(key):
        event = st.dataframe(
            style(table), hide_index=True, key=key, placeholder=UNKNOWN,
            column_config={each: st.column_config.Column(alignment="right") for each in table.right},
            on_select="rerun", selection_mode="single-cell", alt="Changed rows, before and after",
        )  # fmt: skip
    chosen = lists.opened_row(event, key)
    return page[chosen] if chosen is not None and chosen < len(page) else None


def _filtered(diff: VersionDiff) -> list[RowChange]:
    """The rows that the filters let through; one by columns leaves the updates that touch one of them."""
    touched = ", ".join(f"{name}: {count_text(count)}" for name, count in diff.changes.changed_cells.items())
    with st.container(horizontal=True, vertical_alignment="bottom", key="filters"):
        # No `format_func` on widgets bound to the URL: their link would carry the label.
        kinds = st.pills(
            "Kind of change", [kind.value for kind in RowKind], selection_mode="multi", key=state.KIND,
            bind="query-params",
        )  # fmt: skip
        columns = st.multiselect(
            "Changed column", list(diff.changes.changed_cells), key=state.COLUMN, bind="query-params",
            placeholder="Any" if touched else "No update changes a column", disabled=not touched,
            help=f"Updates that touch each column: {markdown_safe(touched)}" if touched else None,
        )  # fmt: skip
    rows = [row for row in diff.changes.rows if not kinds or row.kind in kinds]
    return [row for row in rows if not columns or set(columns) & set(row.changed)]


def _exports(diff: VersionDiff) -> None:
    with st.container(horizontal=True, vertical_alignment="center", key="exports"):
        total = diff.changes.net.total or MOST_EXPORTED + 1
        is_whole = not diff.changes.truncated or (not diff.question.on_host and total <= MOST_EXPORTED)
        cut = "all" if is_whole else f"the first {count_text(len(diff.changes.rows))} of"
        st.markdown(f"Export {cut} {things(diff.changes.net.total, 'changed row')}:", width="content")
        for form in (FORMATS["csv"], FORMATS["json"], FORMATS["parquet"]):
            st.download_button(
                form.label,
                data=partial(every_row, viewer.lake(), diff, form) if is_whole else partial(exported, diff, form),
                file_name=f"{text.file_stem(diff)}.{form.suffix}",
                mime=form.media_type,
                key=f"export_{form.suffix}",
                icon=":material/download:",
                on_click="ignore",
            )
        if not is_whole and diff.question.against is None:
            versions = f"--from {diff.question.from_version} --to {diff.question.to_version}"
            command = f"weir diff {shlex.quote(diff.question.ref.name)} {versions} --output changes.parquet"
            st.caption(f"All of them: {markdown_safe(f'`{command}`')}")


def every_row(lake: Lake, diff: VersionDiff, form: Format) -> bytes:
    """The file of all changed rows, which are compared anew where the answer holds the first ones alone."""
    if not diff.changes.truncated:
        return exported(diff, form)
    pieces: list[bytes] = []

    def take(changed: ChangedBatches) -> None:
        pieces[:] = [piece for _, piece in file_of(changed, form)]

    compare(lake, replace(diff.question, row_limit=0), take=take)
    return b"".join(pieces)


# the history of one key over the range, or over its whole life, with the key in the URL -------------------------------


_SMALL_VERSIONS, _SMALL_BYTES = 100, 50_000_000  # up to here nobody needs to ask for it
Versions = tuple[int, int]


def offer_history(diff: VersionDiff, row: RowChange | None) -> None:
    """A button for the history of a row's key."""
    if row is None or diff.question.against is not None:
        return
    if row.key is None or row.set_apart is SetApart.NULL_KEY:
        st.caption("This row has no key, so no history can be shown.")
        return
    key = {name: json_value(value) for name, value in row.key.items()}

    def look_up() -> None:
        state.set_params({state.KEY_OF: orjson.dumps(key).decode()})
        work.ask(_work(diff, key, _versions(diff)))

    st.button(
        f"History of {markdown_safe(_key_text(key))}", key="key_history", icon=":material/history:",
        on_click=look_up,
    )  # fmt: skip


def key_history_panel(diff: VersionDiff) -> None:
    """The history that the URL names, or a button that looks it up."""
    key = _asked_key()
    if not key or diff.question.against is not None:
        return
    with st.container(border=True, key="key_panel"), boundary():
        versions = _versions(diff)
        low, high = versions
        with st.container(horizontal=True, vertical_alignment="center", key="key_head"):
            st.markdown(f"**History of {markdown_safe(_key_text(key))}**, v{low} → v{high}", width="content")
            st.space("stretch")
            is_life = bool(state.get_str(state.LIFE))
            label = "Show only this range" if is_life else "Show its whole life"
            st.button(label, key="key_life", icon=":material/timeline:", on_click=state.set_params,
                      args=({state.LIFE: None if is_life else 1},))  # fmt: skip
            st.button("Close", key="key_close", icon=":material/close:", type="tertiary", on_click=_close)
        _answer(diff, key, versions)


def _versions(diff: VersionDiff) -> Versions:
    """The range of the difference, or all versions that can be read."""
    if not state.get_str(state.LIFE):
        ends = (diff.question.from_version, diff.question.to_version)
        return min(ends), max(ends)
    lake, ref = viewer.lake(), diff.question.ref
    return min((first for first, _ in lake.versions(ref)), default=0), lake.latest_version(ref)


def _answer(diff: VersionDiff, key: Key, versions: Versions) -> None:
    asked = _work(diff, key, versions)
    histories: dict[tuple[object, ...], KeyHistory] = st.session_state.setdefault("_key_histories", {})
    if work.is_asked(asked, at_once=asked not in histories and _is_small(diff, versions)):
        ask = whole_life if state.get_str(state.LIFE) else key_history
        last = work.run(lambda: ask(viewer.lake(), diff.question.ref, versions, key), key="key", tell=_progress)
        if last and last.result is not None:
            histories.clear()
            histories[asked] = last.result
    if asked in histories:
        _show(diff, histories[asked])
    else:
        st.button("Look up its history", key="key_look", icon=":material/search:", on_click=work.ask, args=(asked,))


def _is_small(diff: VersionDiff, versions: Versions) -> bool:
    low, high = versions
    return high - low <= _SMALL_VERSIONS and viewer.lake().snapshot(diff.question.ref, high).size_bytes <= _SMALL_BYTES


def _show(diff: VersionDiff, history: KeyHistory) -> None:
    if history.steps:
        if repeated := text.repeated_texts(history.steps):
            st.warning(" ".join(sentence(each) for each in repeated), icon=":material/content_copy:")
        seen = [step.version for step in history.steps]
        read = viewer.lake().history(diff.question.ref, starting_version=min(seen), ending_version=max(seen))
        commits = {commit.version: commit for commit in read}
        table = build_step_table(diff, history.steps, commits, cache.stream_names())
        st.dataframe(style(table), hide_index=True, key="key_steps", placeholder=UNKNOWN, alt="Steps of one key")
    elif history.is_whole:
        st.info("**No commit of this range touched it.**", icon=":material/equal:")
    else:
        st.info(
            "**Not known**: no change was seen, but some versions could not be read.", icon=":material/question_mark:"
        )
    st.caption(" ".join(markdown_safe(sentence(note)) for note in history.notes))


def _progress(step: KeyProgress) -> tuple[float, str]:
    if step.total:
        return step.versions / step.total, f"{step.versions:,} of {step.total:,} versions looked at"
    return 0.0, f"{step.rows_read:,} rows of the change feed read"


def _close() -> None:
    state.set_params({state.KEY_OF: None, state.LIFE: None})
    work.cancel()


def _asked_key() -> Key:
    """The key that the URL names; empty where it names none or is no key."""
    try:
        key = orjson.loads(state.get_str(state.KEY_OF) or "{}")
    except orjson.JSONDecodeError:
        return {}
    is_key = isinstance(key, dict) and all(isinstance(value, str | int | float | bool) for value in key.values())
    return key if is_key else {}


def _work(diff: VersionDiff, key: Key, versions: Versions) -> tuple[object, ...]:
    return bool(state.get_str(state.LIFE)), diff.question.ref.uri, versions, orjson.dumps(key)


def _key_text(key: Key) -> str:
    return ", ".join(f"{name} = {value}" for name, value in key.items())[:200]
