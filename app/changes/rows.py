"""Changed rows: which columns updates touch, filters, before and after side by side, and exports.

Rule: counts are of all changed rows, lists are of the rows fetched, and each says which.
"""

import shlex
import zlib
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import streamlit as st

from app import services, state
from app.changes import key_lookup, text
from app.changes.view.frames import build_cell_frame
from app.changes.view.rows import PAGE_ROWS, build_row_table, filter_rows, style
from app.ui import lists
from app.ui.view.words import markdown_safe
from backend.changes.answer import diff as compare
from backend.changes.changed_rows import ChangedBatches, exported, file_of
from backend.changes.model import DiffMethod, RowChange, RowKind, VersionDiff
from backend.format import UNKNOWN, count_text
from backend.sql.export import FORMATS, Format

MOST_EXPORTED = 1_000_000  # rows of a file that a page holds as a whole
CELLS = lists.Look(
    formats={"Updates": "count"},
    config={
        "Commonest changes": st.column_config.TextColumn(width="large", help="That two or more updates share"),
    },
    alt="Columns that updates touch, with their commonest changes",
)


def changed_rows(diff: VersionDiff) -> None:
    """The rows that differ, or why there are none to show."""
    if not diff.is_available:
        st.info("**No rows to show here.** Files and commits are under Commits.", icon=":material/table_rows:")
    elif diff.method is DiffMethod.SAME_VERSION:
        st.info("**Choose two different versions above.**", icon=":material/equal:")
    elif not diff.changes.rows:
        nothing = "**No row differs between the two states.**" + (
            "" if diff.question.against else " What the commits did is under Commits."
        )
        st.info(nothing, icon=":material/equal:")
    else:
        _rows(diff)


def _rows(diff: VersionDiff) -> None:
    if diff.changes.changed_cells:
        st.markdown("**What updates touch**")
        lists.show(build_cell_frame(diff), CELLS, key="cells")
    found, page = _filtered(diff)
    st.caption(text.shown_text(diff, found))
    if page:
        key_lookup.offer(diff, _table(diff, page))
    key_lookup.lookup(diff)
    _exports(diff)


def _table(diff: VersionDiff, page: Sequence[RowChange]) -> RowChange | None:
    """The rows side by side; returns the one that was clicked."""
    table = build_row_table(diff, page)
    if table.note:
        st.caption(table.note)
    # Other rows are another list: a position chosen in the old one means nothing in it.
    key = f"changed_rows_{zlib.crc32(repr([(row.kind, row.key) for row in page]).encode()):08x}"
    with lists.opening(key):
        event = st.dataframe(
            style(table), hide_index=True, key=key, placeholder=UNKNOWN,
            column_config={each: st.column_config.Column(alignment="right") for each in table.numbers},
            on_select="rerun", selection_mode="single-cell", alt="Changed rows, before and after",
        )  # fmt: skip
    chosen = lists.opened_row(event, key)
    return page[chosen] if chosen is not None and chosen < len(page) else None


def _filtered(diff: VersionDiff) -> tuple[list[RowChange], list[RowChange]]:
    """The rows that the filters let through, and the page of them to show."""
    touched = ", ".join(f"{name}: {count_text(count)}" for name, count in diff.changes.changed_cells.items())
    with st.container(horizontal=True, vertical_alignment="bottom", key="filters"):
        # No `format_func` on widgets bound to the URL: their link would carry the label.
        kinds = st.pills(
            "Kind of change",
            [kind.value for kind in RowKind],
            selection_mode="multi",
            key=state.KIND,
            bind="query-params",
        )
        columns = st.multiselect(
            "Changed column",
            list(diff.changes.changed_cells),
            key=state.COLUMN,
            bind="query-params",
            placeholder="Any" if touched else "No update changes a column",
            disabled=not touched,
            help=f"Updates that touch each column: {markdown_safe(touched)}" if touched else None,
        )
        found = filter_rows(diff.changes.rows, kinds=[RowKind(kind) for kind in kinds], columns=columns)
        return found, _page(found)


def _page(found: list[RowChange]) -> list[RowChange]:
    pages = -(-len(found) // PAGE_ROWS)
    if pages <= 1:
        return found
    number = min(max(1, state.whole(state.ROWS_PAGE) or 1), pages)
    st.session_state["pick_rows_page"] = number
    st.number_input(f"Page (1 – {pages})", 1, pages, key="pick_rows_page", width=160, on_change=_paged)
    return found[(number - 1) * PAGE_ROWS : number * PAGE_ROWS]


def _paged() -> None:
    state.put({state.ROWS_PAGE: st.session_state["pick_rows_page"]})


def _exports(diff: VersionDiff) -> None:
    with st.container(horizontal=True, vertical_alignment="center", key="exports"):
        is_whole = _can_be_whole(diff)
        cut = "all" if is_whole else f"the first {count_text(len(diff.changes.rows))} of"
        st.markdown(f"Export {cut} {text.rows_known_text(diff)}:", width="content")
        for form in (FORMATS["csv"], FORMATS["json"], FORMATS["parquet"]):
            st.download_button(
                form.label,
                data=partial(every_row if is_whole else exported, diff, form),
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


def _can_be_whole(diff: VersionDiff) -> bool:
    here = not diff.question.on_host
    return not diff.changes.truncated or (here and (diff.changes.net.total or MOST_EXPORTED + 1) <= MOST_EXPORTED)


def every_row(diff: VersionDiff, form: Format) -> bytes:
    """The file of all changed rows, which are compared anew where the answer holds the first ones alone."""
    if not diff.changes.truncated:
        return exported(diff, form)
    pieces: list[bytes] = []

    def take(changed: ChangedBatches) -> None:
        pieces[:] = [piece for _, piece in file_of(changed, form)]

    compare(services.lake(), replace(diff.question, row_limit=0), take=take)
    return b"".join(pieces)
