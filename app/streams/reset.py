"""Start a stopped stream over, or take that back: what it does and risks is said first, the name is typed.

Rule: a click asks the stream host, which does it; nobody can start the stream until it has. The page opens the dialog,
outside every live region.
"""

import streamlit as st

from app import cache, errors, services, viewer
from app.streams import confirm
from app.streams.view import reset as view
from app.ui.view.words import markdown_safe, sentence
from backend.errors import LakehouseError
from backend.jobs.host_liveness import why_no_host
from backend.streams.reset.plan import ResetLevel, ResetPreview, ResetRequest, reset_job, why_it_moves
from backend.streams.reset.starts import Starts, parse_starts
from backend.streams.verdict import StreamStatus

_RESET, _LEVEL = "reset", "reset_level"


def reset_button(status: StreamStatus) -> None:
    """Opens the dialog on the next full run; off while the stream runs."""
    blocked = viewer.read_only_reason()
    if blocked is None and (moves := why_it_moves(status)):
        blocked = sentence(moves)
    what = blocked or "Read everything again, with its tables or without, or take that back"
    off, said = blocked is not None, markdown_safe(what)
    if st.button("Start over", key="one_reset", icon=":material/replay:", disabled=off, help=said):
        confirm.open_dialog(_RESET, status.declaration.name)


def reset_dialog() -> None:
    """Called once by the page: says what was just asked, and opens the dialog that is due."""
    confirm.dialog(_RESET, _dialog, title="Start {} over?", width="medium")


def _dialog(name: str) -> None:
    with errors.boundary():
        level = st.segmented_control(
            "What", list(ResetLevel), default=ResetLevel.REPROCESS, required=True, key=_LEVEL, format_func=view.label
        )
        starts = _starts(name) if level is ResetLevel.FROM else {}
        if starts is None:
            return
        found = cache.reset_preview(name, level, starts)
        st.markdown(f"**{markdown_safe(sentence(found.effect))}**")
        st.markdown("\n".join(f"- {markdown_safe(line)}" for line in view.lines(found)))
        if refused := found.refused or _no_host():
            st.warning(f"It cannot be done now: {markdown_safe(refused)}.", icon=":material/block:")
        else:
            _ask(found, starts)


def _starts(name: str) -> Starts | None:
    """Where each source begins; None, with the reason said, until that can be told."""
    declared = next(each.declaration for each in cache.streams_reading().streams if each.declaration.name == name)
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
        return parse_starts(services.lake(), declared, wheres)
    except LakehouseError as exc:
        errors.show(exc)
        return None


def _ask(found: ResetPreview, starts: Starts) -> None:
    label = view.label(found.level)
    if reason := confirm.reason(_RESET, found.stream, label=label):
        job = reset_job(ResetRequest(found.stream, found.level, starts), actor=viewer.actor(), reason=reason)
        services.store().jobs.submit(job, now=services.now())
        confirm.asked(_RESET, f"{label}: asked for {found.stream}; its host does it next.")


def _no_host() -> str:
    now, stale_s = services.now(), services.settings().host.heartbeat_stale_s
    return why_no_host(services.store().hosts(now=now), now=now, stale_s=stale_s) or ""
