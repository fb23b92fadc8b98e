"""Dialogs of acts: each says what will happen and asks for a reason, those that weigh for a name as well.

Rule: the page opens a dialog, outside every live region, whose next run would close it. The dialog stays open over
reruns until it is sent or dismissed; then the page says what was asked. `kind` tells dialogs apart.
"""

from collections.abc import Callable
from typing import Literal, NoReturn, TypeVar

import streamlit as st

from app import cache, services, viewer
from app.ui.view.words import markdown_safe, sentence
from backend.jobs.model import JobRequest

Subject = TypeVar("Subject")
_MISSING = {  # by whether a name must be typed
    False: "A reason is needed: it goes into the operation log.",
    True: "A reason and the name are needed.",
}


def open_dialog(kind: str, subject: object) -> NoReturn:
    """For a click, in another dialog too, which closes: the page's next full run opens the dialog."""
    for key in [key for key in st.session_state if str(key).startswith(_pending(""))]:
        del st.session_state[key]
    st.session_state[_pending(kind)] = subject
    st.rerun()


def button(kind: str, subject: object, label: str, *, key: str, icon: str, effect: str, blocked: str | None) -> None:
    """Opens the dialog of the subject on the next full run; `blocked`: why it is off."""
    help_text = markdown_safe(blocked or effect)
    if st.button(markdown_safe(label), key=key, icon=icon, disabled=bool(blocked), help=help_text):
        open_dialog(kind, subject)


def dialog(
    kind: str,
    body: Callable[[Subject], None],
    *,
    title: Callable[[Subject], str],
    width: Literal["small", "medium", "large"],
) -> None:
    """Called once by the page: says what was just asked, and opens the dialog that is due."""
    if message := st.session_state.pop(f"_{kind}_asked", None):
        st.toast(message, icon=":material/check:")
    subject: Subject | None = st.session_state.get(_pending(kind))
    if subject is not None:
        st.dialog(markdown_safe(title(subject)), width=width, on_dismiss=lambda: close(kind))(body)(subject)


def reason(
    kind: str, *, label: str, typed: str = "", boxes: Callable[[], None] | None = None, disabled: bool = False
) -> str | None:
    """The form: its reason, once it was sent with one; else None. `typed`: the name that must be typed as well;
    `boxes` draws what else is to be chosen."""
    with st.form(f"{kind}_form", border=False):
        if boxes:
            boxes()
        why = st.text_area("Reason", key=f"{kind}_reason", max_chars=500, placeholder="Kept in the audit trail")
        name = st.text_input(f"Type {markdown_safe(typed)} to confirm", key=f"{kind}_name") if typed else ""
        with st.container(horizontal=True, key=f"{kind}_buttons"):
            sent = st.form_submit_button(label, type="primary", key=f"{kind}_send", disabled=disabled)
            cancelled = st.form_submit_button("Cancel", key=f"{kind}_cancel")
    if cancelled:
        close(kind)
        st.rerun()
    if not sent:
        return None
    if why and why.strip() and (name or "").strip() == typed:
        return why.strip()
    st.error(_MISSING[bool(typed)], icon=":material/edit:")
    return None


def ask(kind: str, refused: str, *, label: str, typed: str, job: Callable[[str], JobRequest], done: str) -> None:
    """The end of a dialog that has said what will happen: why it cannot be, or the form, and once that was sent the
    `job` of its reason, which a host does next."""
    if refused:
        st.warning(markdown_safe(refused), icon=":material/block:")
    elif silent := viewer.why_no_job():
        st.warning(markdown_safe(sentence(silent)), icon=":material/cloud_off:")
    elif why := reason(kind, label=label, typed=typed):
        services.store().jobs.submit(job(why), now=services.now())
        asked(kind, done)


def asked(kind: str, message: str) -> NoReturn:
    """Closes the dialog; the page shows the message."""
    st.session_state[f"_{kind}_asked"] = markdown_safe(message)
    close(kind)
    cache.forget_streams()
    st.rerun()


def close(kind: str) -> None:
    st.session_state.pop(_pending(kind), None)


def _pending(kind: str) -> str:
    return f"_pending_{kind}"
