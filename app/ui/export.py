"""Rows of a table on the page, every value as it is, and all of them as a file, by a link that the browser saves.

Rule: our own server sends the file while it is read; how far it is, and to end it, is the browser's. Streamlit's
download button would hold the whole file in memory; where another server serves the pages, there is no link.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from threading import Event
from typing import Any

import pyarrow as pa
import streamlit as st

from app import errors, services, viewer
from app.services import once
from app.ui.lists import height, opening
from app.ui.view.frames import NULL, ShownRows, cut_sentence, exact_numbers, shown_rows
from app.ui.view.words import markdown_safe
from backend.sql.export import FORMATS, Exported, Exports, Format

_PATH = "export/"
_served = Event()


def exact_rows(rows: pa.Table, *, key: str, alt: str, **selection: Any) -> tuple[ShownRows, Mapping[str, Any]]:
    """Rows with every value as it is, and what was cut; `selection`: of cells, as `opened_cell` reads it."""
    shown = shown_rows(rows)
    if cut := cut_sentence(shown):
        st.caption(f":material/content_cut: {cut}")
    config = {
        name: st.column_config.TextColumn(help=markdown_safe(kind), alignment="right")
        if name in shown.right
        else st.column_config.Column(help=markdown_safe(kind))
        for name, kind in shown.types.items()
    }
    with opening(key):
        event = st.dataframe(
            exact_numbers(shown.frame), key=key, column_config=config, hide_index=True, placeholder=NULL,
            height=height(shown.frame), alt=alt, **selection,
        )  # fmt: skip
    return shown, event


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
                    "An apostrophe stands before texts that a spreadsheet would run as formulas. "
                    "Parquet and Arrow keep texts as they are."
                )
        rows = offer.rows(form)
        if _served.is_set():  # each click is another link: a ticket is used once
            ticket = exports().offer(rows, viewer.actor().name).ticket
            label = f"Download {markdown_safe(rows.file_name)}"
            st.link_button(label, f"{_PATH}{ticket}", type="primary", key="export_link", on_click="rerun")
            st.caption("The browser saves the file, and tells how far it is; this window may be closed.")
        st.caption("The same in a terminal")
        st.code(offer.command(rows.file_name), language="bash", wrap_lines=True)
