"""Every row of what a page shows as a file.

Rule: the file is sent by our own server while it is read, and this page shows how far it is.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import partial

import streamlit as st

from app import cache, errors, viewer
from app.ui import export_link
from app.ui.view import export as view
from app.ui.view.words import markdown_safe
from backend.sql.export import FORMATS, Export, Exported, ExportState, Format

LOOK_S = 1.0
_EXPORTS = "_exports"


@dataclass(frozen=True, slots=True)
class ExportOffer:
    """Rows to be had as a file, without the limit of the page.

    `key` stands for the rows among those that this viewer exports; `note`: what the dialog says of the rows; `command`:
    the same in a terminal, by the file's name.
    """

    title: str
    rows: Callable[[Format], Exported]
    key: Hashable
    note: str
    command: Callable[[str], str]


def export_button(offer: ExportOffer) -> None:
    """Opens the dialog of the export."""
    if st.button("Export", key="export_rows", icon=":material/download:", help="Every row, as a file"):
        st.dialog(f"Export {markdown_safe(offer.title)}", width="medium")(_dialog)(offer)


def _dialog(offer: ExportOffer) -> None:
    with errors.boundary():
        suffix = st.segmented_control(
            "Format", list(FORMATS), default="csv", required=True, key="export_format", format_func=_label
        )
        form = FORMATS[suffix]
        with st.container():  # of one place, so that what follows keeps its own
            if offer.note:
                st.caption(markdown_safe(offer.note))
            if form.suffix == "csv":
                st.caption(
                    "An apostrophe stands before texts that a spreadsheet would run as formulas. "
                    "Parquet and Arrow keep texts as they are."
                )
        _live(offer, form)


def _label(suffix: str) -> str:
    return FORMATS[suffix].label


@st.fragment(run_every=LOOK_S)
def _live(offer: ExportOffer, form: Format) -> None:
    """The link, how far the file is, or what came of it."""
    rows = offer.rows(form)
    if export_link.is_served():
        last, export = _of_viewer(rows, (offer.key, form.suffix))
        if export.state is ExportState.RUNNING:
            with st.container(horizontal=True, vertical_alignment="center", key="export_work"):
                st.markdown(markdown_safe(view.progress_sentence(export)))
                st.button("Cancel", key="export_cancel", icon=":material/cancel:", on_click=export.stop)
            st.caption("The browser saves the file; this window may be closed.")
        else:
            _ended(last)
            label = f"Download {rows.file_name}"
            export_link.export_link(export.ticket, label, name=rows.file_name, key="export_link")
    st.caption("The same in a terminal")
    st.code(offer.command(rows.file_name), language="bash", wrap_lines=True)


def _ended(export: Export | None) -> None:
    if export is not None and export.problem is not None:
        errors.show(export.problem)
    elif export is not None:
        st.markdown(markdown_safe(view.ended_sentence(export)))


def _of_viewer(rows: Exported, key: Hashable) -> tuple[Export | None, Export]:
    """This viewer's last export of these rows that ended, and the one that runs or is offered."""
    kept: dict[object, tuple[Export | None, Export]] = st.session_state.setdefault(_EXPORTS, {})
    exports = cache.exports()
    offer = partial(exports.offer, rows, viewer.actor().name)
    last, export = kept.get(key) or (None, offer())
    if export.state is ExportState.OFFERED and not exports.is_valid(export):
        export = offer()
    elif export.state not in (ExportState.OFFERED, ExportState.RUNNING):
        last, export = export, offer()
    kept[key] = last, export
    return last, export
