"""Dialogs of acts that weigh: they ask for a reason and the typed name of the stream, and the page says what was asked.

Rule: the page opens the dialog, outside every live region; it stays open over reruns until it is sent or dismissed.
`kind` tells the dialogs apart.
"""

from collections.abc import Callable
from typing import Literal, NoReturn

import streamlit as st

from app import cache
from app.ui.view.words import markdown_safe


def open_dialog(kind: str, stream: str) -> NoReturn:
    """For a click: the page's next full run opens the dialog."""
    st.session_state[f"_pending_{kind}"] = stream
    st.rerun()


def dialog(kind: str, body: Callable[[str], None], *, title: str, width: Literal["medium", "large"]) -> None:
    """Called once by the page: says what was just asked, and opens the dialog that is due. `title` has a {} for the
    stream."""
    if said := st.session_state.pop(f"_{kind}_said", None):
        st.toast(said, icon=":material/check:")
    if stream := st.session_state.get(f"_pending_{kind}"):
        words = title.format(markdown_safe(stream))
        st.dialog(words, width=width, on_dismiss=lambda: _forget(kind))(body)(stream)


def reason(kind: str, stream: str, *, label: str) -> str | None:
    """The form: the reason, once it and the stream's name were given and sent; else None."""
    with st.form(f"{kind}_form", border=False):
        why = st.text_area("Reason", key=f"{kind}_reason", max_chars=500, placeholder="For those who come after you")
        typed = st.text_input(f"Type {markdown_safe(stream)} to confirm", key=f"{kind}_name")
        with st.container(horizontal=True, key=f"{kind}_buttons"):
            sent = st.form_submit_button(label, type="primary", key=f"{kind}_send")
            cancelled = st.form_submit_button("Cancel", key=f"{kind}_cancel")
    if cancelled:
        _forget(kind)
        st.rerun()
    if sent and why and why.strip() and (typed or "").strip() == stream:
        return why.strip()
    if sent:
        st.error("A reason and the stream's name are needed.", icon=":material/edit:")
    return None


def asked(kind: str, said: str) -> NoReturn:
    """Closes the dialog; the page says `said`."""
    st.session_state[f"_{kind}_said"] = markdown_safe(said)
    _forget(kind)
    cache.forget_streams()
    st.rerun()


def _forget(kind: str) -> None:
    st.session_state.pop(f"_pending_{kind}", None)
