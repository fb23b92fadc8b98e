"""Data files page by page, and one file opened: what its footer and the log say.

Rule: the browser gets one page, never the list; page and file are in the URL.
"""

import streamlit as st

from app import cache, services, state
from app.files.view import distribution as files_view
from app.files.view import footer as view
from app.ui import lists
from app.ui.figures import key_figures
from app.ui.view.words import markdown_safe
from backend.lake.files.file_sizes import FileChoice
from backend.lake.files.footer import FileFooter
from backend.lake.model import Snapshot

PER_PAGE = 50

FILES = lists.Look(
    formats={"Size": "bytes", "Rows": "count", "Deleted rows": "count"},
    config={"Path": st.column_config.TextColumn(help="Relative to the table. A click opens the file's footer.")},
    alt="Data files",
)
COLUMNS = lists.Look(
    formats={"Compressed": "bytes", "Uncompressed": "bytes", "Share": "percent", "Nulls": "exact"},
    config={"Column": st.column_config.TextColumn(pinned=True)},
    alt="Columns of the file, the largest first",
)
GROUPS = lists.Look(
    formats={"Rows": "exact", "Compressed": "bytes", "Uncompressed": "bytes"}, alt="Row groups of the file"
)


def show(snapshot: Snapshot, choice: FileChoice, what: str) -> None:
    """One page of the chosen files; a click opens a file below the list."""
    page = cache.file_page(snapshot, choice, start(), PER_PAGE)
    pager(
        page.total,
        page.start,
        f"{files_view.shown_range(page.start, page.files.num_rows, page.total, 'file')}, {what}.",
    )
    opened = state.text(state.FILE)
    paths = page.files["path"].to_pylist()
    chosen = lists.choose(files_view.files_frame(page.files), FILES, key=f"files_{page.start}_{opened}", names=paths)
    if chosen and chosen != opened:
        state.put({state.FILE: chosen})
        opened = chosen
    if opened:
        _one(snapshot, opened)


def start() -> int:
    """Where the page in the URL begins, counted from 0."""
    return (max(1, state.whole(state.FILES_PAGE) or 1) - 1) * PER_PAGE


def pager(total: int, begin: int, words: str) -> None:
    """What part of a list this is, and buttons to the parts beside it."""
    number = begin // PER_PAGE + 1
    with st.container(horizontal=True, vertical_alignment="center", key="pager"):
        st.caption(words, width="content")
        if total > PER_PAGE:
            for label, to, is_end in (
                ("Previous", number - 1, number == 1),
                ("Next", number + 1, begin + PER_PAGE >= total),
            ):
                st.button(
                    label, key=f"page_{label}", disabled=is_end, on_click=state.put, args=({state.FILES_PAGE: to},)
                )


def _one(snapshot: Snapshot, path: str) -> None:
    with st.container(border=True, key="one_file"):
        with st.container(horizontal=True, vertical_alignment="center", key="one_file_head"):
            st.markdown(f"**{markdown_safe(path)}**", width="stretch")
            st.button(
                "Close", key="close_file", icon=":material/close:", on_click=state.put, args=({state.FILE: None},)
            )
        _footer(services.lake().footer(snapshot, path))


def _footer(footer: FileFooter) -> None:
    key_figures(view.key_figures(footer), key="one_file_figures")
    st.markdown(markdown_safe(view.footer_sentence(footer)))
    lists.show(view.columns_frame(footer), COLUMNS, key="footer_columns")
    with st.expander("Row groups"):
        lists.show(view.groups_frame(footer), GROUPS, key="footer_groups")
    with st.expander("Statistics in the log"):
        st.code(view.statistics_text(footer.logged), language="json")
