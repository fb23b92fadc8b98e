"""A link that a browser saves as a file, looking like a button.

Rule: Streamlit's own download button holds the whole file in memory; this one leads to our own server's route, and is
not there where another server serves the pages.
"""

from threading import Event

import streamlit as st

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


def is_served() -> bool:
    return _served.is_set()


def export_link(ticket: str, label: str, *, name: str, key: str) -> None:
    """The link of a ticket; a click is seen by the page a moment later."""
    data = {"path": f"{_PATH}{ticket}", "label": label, "name": name}
    _component(key=key, data=data, on_clicked_change=_nothing, height=44)


def _nothing() -> None:
    """The component wants a callback for each name; to run the page is enough."""
