"""Every row of a version as a file, with the filter and the columns of the page.

Rule: the size is said before; the file is sent by our own server while it is read, and this page shows how far it is.
"""

from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import streamlit as st

from app import cache, errors, viewer
from app.summary import export_link
from app.summary.view import export as view
from app.ui.view.words import markdown_safe
from backend.lake.model import Snapshot
from backend.lake.rows.filters import RowFilter
from backend.sql.export import FORMATS, Format
from backend.sql.exports import Export, ExportedRows, ExportState, SizeEstimate

LOOK_S = 1.0
_EXPORTS = "_exports"


@dataclass(frozen=True, slots=True)
class Wanted:
    """The rows of the page without its limit. `named`: the columns as chosen, None for all; `seen`: rows it read."""

    snapshot: Snapshot
    columns: tuple[str, ...]
    named: tuple[str, ...] | None
    where: RowFilter | None
    text: str
    seen: pa.Table


def export_button(wanted: Wanted) -> None:
    """Opens the dialog of the export."""
    if st.button("Export", key="export_rows", icon=":material/download:", help="Every row, as a file"):
        name = markdown_safe(wanted.snapshot.ref.name)
        st.dialog(f"Export {name} v{wanted.snapshot.version}", width="medium")(_dialog)(wanted)


def _dialog(wanted: Wanted) -> None:
    with errors.boundary():
        size = cache.export_size(wanted.snapshot, wanted.columns, wanted.text, seen=wanted.seen)
        suffix = st.segmented_control(
            "Format", list(FORMATS), default="csv", required=True, key="export_format", format_func=_label
        )
        form = FORMATS[suffix]
        st.markdown(markdown_safe(view.size_sentence(size, form, len(wanted.columns))))
        if wanted.where is not None:
            st.caption(f"Filter: {markdown_safe(wanted.text.strip())}")
        if form.suffix == "csv":
            st.caption(
                "An apostrophe stands before texts that a spreadsheet would run as formulas. "
                "Parquet and Arrow keep texts as they are."
            )
        _live(wanted, form, size)


def _label(suffix: str) -> str:
    return FORMATS[suffix].label


@st.fragment(run_every=LOOK_S)
def _live(wanted: Wanted, form: Format, size: SizeEstimate) -> None:
    """The link, how far the file is, or what came of it."""
    rows = ExportedRows(wanted.snapshot, wanted.columns, wanted.where, form)
    if export_link.is_served():
        last, export = _of_viewer(rows, wanted.text)
        if export.state is ExportState.RUNNING:
            _running(export, size)
        else:
            _ended(last)
            label = f"Download {rows.file_name}"
            export_link.export_link(export.ticket, label, name=rows.file_name, key="export_link")
    st.caption("The same in a terminal")
    code = view.command(
        wanted.snapshot.ref.name, wanted.snapshot.version, columns=wanted.named, where=wanted.text.strip(),
        file_name=rows.file_name,
    )  # fmt: skip
    st.code(code, language="bash", wrap_lines=True)


def _running(export: Export, size: SizeEstimate) -> None:
    share, words = view.progress(export, size.rows)
    with st.container(horizontal=True, vertical_alignment="center", key="export_work"):
        st.progress(share, words, width="stretch")
        st.button("Cancel", key="export_cancel", icon=":material/cancel:", on_click=export.stop)
    st.caption("The browser saves the file; this window may be closed.")


def _ended(export: Export | None) -> None:
    if export is not None and export.problem is not None:
        errors.show(export.problem)
    elif export is not None:
        st.markdown(markdown_safe(view.ended_sentence(export)))


def _of_viewer(rows: ExportedRows, text: str) -> tuple[Export | None, Export]:
    """This viewer's last export of these rows that ended, and the one that runs or is offered."""
    kept: dict[object, tuple[Export | None, Export]] = st.session_state.setdefault(_EXPORTS, {})
    exports, snapshot = cache.exports(), rows.snapshot
    key = snapshot.ref.uri, snapshot.metadata.id, snapshot.version, rows.columns, text, rows.form.suffix
    offer = partial(exports.offer, rows, viewer.actor().name)
    last, export = kept.get(key) or (None, offer())
    if export.state is ExportState.OFFERED and not exports.is_valid(export):
        export = offer()
    elif export.state not in (ExportState.OFFERED, ExportState.RUNNING):
        last, export = export, offer()
    kept[key] = last, export
    return last, export
