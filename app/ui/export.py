"""Every row of what a page shows as a file, by a link that the browser saves.

Rule: our own server sends the file while it is read; how far it is, and to end it, is the browser's. Streamlit's
download button would hold the whole file in memory; where another server serves the pages, there is no link.
"""

from collections.abc import Callable
from dataclasses import dataclass
from threading import Event

import streamlit as st

from app import errors, services, viewer
from app.services import once
from app.ui.view.words import markdown_safe
from backend.sql.export import FORMATS, Exported, Exports, Format

_PATH = "export/"
_served = Event()


def serve() -> str:
    """Where this process serves tickets, each below it; from now on links are offered."""
    _served.set()
    return f"/{_PATH}"


@once
def exports() -> Exports:
    """Files of rows that are offered, or on their way to a browser."""
    return Exports(per_viewer=services.settings().ui.exports_per_viewer)


@dataclass(frozen=True, slots=True)
class ExportOffer:
    """Rows to be had as a file, without the limit of the page.

    `note`: what the dialog says of the rows; `command`: the same in a terminal, by the file's name.
    """

    title: str
    rows: Callable[[Format], Exported]
    note: str
    command: Callable[[str], str]


def export_button(offer: ExportOffer) -> None:
    """Opens the dialog of the export."""
    if st.button("Export", key="export_rows", icon=":material/download:", help="Every row, as a file"):
        st.dialog(f"Export {markdown_safe(offer.title)}", width="medium")(_dialog)(offer)


def _dialog(offer: ExportOffer) -> None:
    with errors.boundary():
        suffix = st.segmented_control(
            "Format",
            list(FORMATS),
            default="csv",
            required=True,
            key="export_format",
            format_func=lambda suffix: FORMATS[suffix].label,
        )
        form = FORMATS[suffix]
        with st.container():  # of one place, so that what follows keeps its own
            if offer.note:
                st.caption(markdown_safe(offer.note))
            if form.suffix == "csv":
                st.caption(
                    "Texts that a spreadsheet would run as formulas begin with an apostrophe. "
                    "Parquet and Arrow keep them as they are."
                )
        rows = offer.rows(form)
        if _served.is_set():  # each click is another link: a ticket is used once
            ticket = exports().offer(rows, viewer.actor().name).ticket
            label = f"Download {markdown_safe(rows.file_name)}"
            st.link_button(label, f"{_PATH}{ticket}", type="primary", key="export_link", on_click="rerun")
            st.caption("The browser saves the file and shows how far it is. You may close this window.")
        st.caption("The same in a terminal")
        st.code(offer.command(rows.file_name), language="bash", wrap_lines=True)
