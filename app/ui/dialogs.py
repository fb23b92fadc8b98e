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

# Once for each dialog: it takes the focus for itself some frames after it is drawn.
_FIRST_FIELD = """
export default function () {
  const dialog = document.querySelector('[role="dialog"]'), began = performance.now()
  const take = () => {
    const isDrawn = !dialog.querySelector("[data-testid=stSkeleton]")  // a text area's code may come late
    const field = isDrawn && dialog.querySelector('textarea, input[type="text"]:not([role="combobox"])')
    if (field && !dialog.querySelector("input:focus, textarea:focus")) field.focus()
    if (performance.now() - began < 3000) requestAnimationFrame(take)
  }
  if (!dialog || dialog.dataset.focused) return
  dialog.dataset.focused = "once"
  take()
}
"""
_focus = st.components.v2.component("weir_first_field", js=_FIRST_FIELD)


def open_dialog(kind: str, subject: object) -> NoReturn:
    """For a click, in another dialog too, which closes: the page's next full run opens the dialog."""
    for key in [key for key in st.session_state if str(key).startswith(_pending(""))]:
        del st.session_state[key]
    st.session_state[_pending(kind)] = subject
    st.rerun()


def button(
    kind: str, subject: object, label: str, *, key: str, icon: str, effect: str, blocked: str | None,
    is_destructive: bool = False,
) -> None:  # fmt: skip
    """Opens the dialog of the subject on the next full run; `blocked`: why it is off."""
    help_text, shown = markdown_safe(blocked or effect), markdown_safe(label)
    shown = f":red[{shown}]" if is_destructive and not blocked else shown
    if st.button(shown, key=key, icon=icon, disabled=bool(blocked), help=help_text):
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

        def drawn(subject: Subject) -> None:
            body(subject)
            _focus(key=f"{kind}_focus", height=1)

        st.dialog(markdown_safe(title(subject)), width=width, on_dismiss=lambda: close(kind))(drawn)(subject)


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
    missing = "A reason and the name are needed." if typed else "A reason is needed: it goes into the audit trail."
    st.error(missing, icon=":material/edit:")
    return None


def ask(
    kind: str, refused: str, *, label: str, typed: str, job: Callable[[str], JobRequest], done: str,
    file: Callable[[str], str] | None = None,
) -> None:  # fmt: skip
    """The end of a dialog that has said what will happen: why it cannot be, or the form, and once that was sent the
    `job` of its reason, which a host does next. `file`: what it is as a file, by its reason, where no host is there."""
    wanted = job("")
    refused = refused or sentence(viewer.why_not(f"{wanted.kind} job", wanted.subject) or "")
    if refused:
        st.warning(markdown_safe(refused), icon=":material/block:")
    elif silent := viewer.why_no_job(f"{wanted.kind} job", wanted.subject):
        st.warning(f"{markdown_safe(sentence(silent))} Start one in a terminal:", icon=":material/cloud_off:")
        st.code("weir host", language=None)
        st.button("Look again", key=f"{kind}_again", icon=":material/refresh:")
        why = file and st.text_input("Reason", key=f"{kind}_file_reason", help="For whoever reviews the file").strip()
        if file and why:
            st.download_button(
                "Save to a file…", file(why), f"{label.lower().replace(' ', '_')}.intent", key=f"{kind}_file",
                icon=":material/download:",
                help="`weir apply FILE` does it once a host is there, as long as it would do the same",
            )  # fmt: skip
    elif why := reason(kind, label=label, typed=typed):
        submitted = services.store().jobs.submit(job(why), now=services.now())
        st.session_state[last_job(kind)] = submitted.job_id
        asked(kind, done)


def last_job(kind: str) -> str:
    """Where the session keeps the job that this viewer asked for last."""
    return f"_{kind}_job"


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
