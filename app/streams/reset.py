"""Reset a stopped stream, or undo the last reset: what it does and risks is said first, the name is typed.

Rule: a click asks the stream host, which does it; nobody can start the stream until it has.
"""

import streamlit as st

from app import cache, errors, services, viewer
from app.streams.text import RESET_LABELS, reset_lines
from app.ui import dialogs
from app.ui.view.words import markdown_safe, sentence
from backend.errors import LakehouseError
from backend.streams.checkpoint import Starts
from backend.streams.reset import ResetLevel, ResetPreview, ResetRequest, parse_starts, reset_job
from backend.streams.verdict import StreamStatus, why_not_stopped

_RESET, _LEVEL = "reset", "reset_level"


def reset_button(status: StreamStatus) -> None:
    """Opens the dialog on the next full run; off while the stream runs."""
    blocked = viewer.read_only_reason()
    if blocked is None and (why := why_not_stopped(status)):
        blocked = sentence(why)
    effect = markdown_safe(blocked or "Read everything again, with its tables or without, or undo the last reset")
    if st.button("Reset…", key="one_reset", icon=":material/replay:", disabled=blocked is not None, help=effect):
        dialogs.open_dialog(_RESET, status.declaration.name)


def reset_dialog() -> None:
    """Called once by the page: says what was just asked, and opens the dialog that is due."""
    dialogs.dialog(_RESET, _dialog, title="Reset {}?".format, width="medium")


def _dialog(name: str) -> None:
    with errors.boundary():
        level = st.segmented_control(
            "What",
            list(ResetLevel),
            default=ResetLevel.REPROCESS,
            required=True,
            key=_LEVEL,
            format_func=RESET_LABELS.__getitem__,
        )
        starts = _starts(name) if level is ResetLevel.FROM else {}
        if starts is None:
            return
        preview = cache.reset_preview(name, level, starts)
        st.markdown(f"**{markdown_safe(sentence(preview.effect))}**")
        st.markdown("\n".join(f"- {markdown_safe(line)}" for line in reset_lines(preview)))
        if refused := preview.refused or viewer.why_no_job():
            st.warning(f"It cannot be done now: {markdown_safe(refused)}.", icon=":material/block:")
        else:
            _ask(preview, starts)


def _starts(name: str) -> Starts | None:
    """Where each source begins; None, with the reason said, until that can be told."""
    declared = next(stream.declaration for stream in cache.streams_reading().streams if stream.declaration.name == name)
    wheres = []
    for source in declared.inputs:
        example = "a version, 2026-01-31T10:00Z or latest" if source.is_table else "a time, latest or offsets as JSON"
        label = f"Begin {markdown_safe(source.name)} at"
        if where := st.text_input(label, key=f"reset_from_{source.name}", placeholder=example):
            wheres.append(f"{source.name}={where}")
    if len(wheres) < len(declared.inputs):
        st.caption("Say where to begin, and press Enter.")
        return None
    try:
        return parse_starts(services.lake(), declared, wheres, viewer.clock())
    except LakehouseError as exc:
        errors.show(exc)
        return None


def _ask(preview: ResetPreview, starts: Starts) -> None:
    stream, level = preview.stream, preview.level
    if reason := dialogs.reason(_RESET, label=RESET_LABELS[level], typed=stream):
        job = reset_job(ResetRequest(stream, level, starts), actor=viewer.actor(), reason=reason)
        services.store().jobs.submit(job, now=services.now())
        dialogs.asked(_RESET, f"{RESET_LABELS[level]}: asked for {stream}; its host does it next.")
