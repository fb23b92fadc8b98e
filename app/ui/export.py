"""Every row of what a page shows as a file, by a link that the browser saves.

Rule: our own server sends the file while it is read, and this page shows how far it is. Streamlit's download button
would hold the whole file in memory; where another server serves the pages, there is no link.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import partial
from threading import Event

import streamlit as st

from app import cache, errors, viewer
from app.ui.view.words import markdown_safe
from backend.format import bytes_text, things
from backend.sql.export import FORMATS, Export, Exported, ExportState, Format

_PATH = "/export/"
_CSS = """
a {
  display: inline-flex; align-items: center; min-height: 2.5rem; padding: 0 0.75rem; text-decoration: none;
  border-radius: var(--st-button-radius, 0.5rem); background: var(--st-primary-color); color: #fff;
  font-family: var(--st-font); font-size: var(--st-base-font-size, 1rem);
}
a:hover { filter: brightness(1.1) }
a:focus-visible { outline: 2px solid var(--st-text-color); outline-offset: 2px }
"""
# After the click the page looks again, for the link is spent then.
_JS = """
export default function ({ data, parentElement, setTriggerValue }) {
  const link = parentElement.querySelector("a") ?? parentElement.appendChild(document.createElement("a"))
  link.href = new URL(data.path.slice(1), document.baseURI)
  link.download = data.name
  link.textContent = data.label
  link.onclick = () => setTimeout(() => setTriggerValue("clicked", true), 300)
}
"""
_component = st.components.v2.component("weir.export_link", css=_CSS, js=_JS)
_served = Event()


def serve() -> str:
    """Where this process serves tickets, each below it; from now on links are offered."""
    _served.set()
    return _PATH


# words ----------------------------------------------------------------------------------------------------------------


def progress_sentence(export: Export) -> str:
    """How far a running export is."""
    return f"{things(export.num_rows, 'row')} sent, {bytes_text(export.size_bytes)}."


def ended_sentence(export: Export) -> str:
    """What came of an export that ended without a problem."""
    sent = f"{things(export.num_rows, 'row')}, {bytes_text(export.size_bytes)}"
    if export.state is ExportState.DONE:
        return f"Sent whole: {sent}."
    why = "" if export.end_reason in ("", "cancelled") else f" because {export.end_reason}"
    return f"Cancelled{why} after {sent}. What the browser saved is no whole file."


# the dialog -----------------------------------------------------------------------------------------------------------


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
        _live(offer, form)


@st.fragment(run_every=LOOK_S)
def _live(offer: ExportOffer, form: Format) -> None:
    """The link, how far the file is, or what came of it."""
    rows = offer.rows(form)
    if _served.is_set():
        last, export = _of_viewer(rows, (offer.key, form.suffix))
        if export.state is ExportState.RUNNING:
            with st.container(horizontal=True, vertical_alignment="center", key="export_work"):
                st.markdown(markdown_safe(progress_sentence(export)))
                st.button("Cancel", key="export_cancel", icon=":material/cancel:", on_click=export.stop)
            st.caption("The browser saves the file; this window may be closed.")
        else:
            if last is not None and last.problem is not None:
                errors.show(last.problem)
            elif last is not None:
                st.markdown(markdown_safe(ended_sentence(last)))
            data = {"path": f"{_PATH}{export.ticket}", "label": f"Download {rows.file_name}", "name": rows.file_name}
            # The component wants a callback for each name; to run the page is enough: it looks again.
            _component(key="export_link", data=data, on_clicked_change=lambda: None, height=44)
    st.caption("The same in a terminal")
    st.code(offer.command(rows.file_name), language="bash", wrap_lines=True)


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
