"""The comparison of rows on this machine: started, followed with Cancel, and shown once it is done.

Rule: a small comparison starts by itself, once in a session. A larger one waits for a button that says how much it
reads. An answer that anybody found is shown at once.
"""

import zlib

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from app import cache, services
from app.changes import text
from app.changes.options import choose_method
from app.changes.view.frames import method_choices
from app.errors import show
from app.ui import work
from backend.changes.cache import LogPart
from backend.changes.model import DiffMethod, Question, VersionDiff
from backend.errors import LakehouseError

_BEGUN, _FAILED = "_begun_diffs", "_failed_diffs"
_SOON_S = 0.15  # a wait that nobody notices, instead of a page that is drawn twice


def known(question: Question, part: LogPart) -> VersionDiff | None:
    """The answer, where it is there or comes soon; else None.

    Where it is missing and was asked for, it is computed while the page is drawn.
    """
    if part.plan.method in (DiffMethod.SAME_VERSION, DiffMethod.LOG_ONLY):
        return part.outline
    mark = _mark(question)
    if work.is_asked(mark) or _starts_alone(mark, part):
        return cache.differences().soon(services.lake(), question, _SOON_S)
    cache.differences().abandon(question)  # Cancel, not a page that reruns
    return cache.differences().known(question)


def offer(question: Question, part: LogPart, slot: DeltaGenerator) -> bool:
    """Draws the button that starts the comparison, and what became of an ended one.

    Returns whether there is something to wait for: the page calls `compare` once the rest is drawn.
    """
    mark = _mark(question)
    if _starts_alone(mark, part):
        work.ask(mark)
    if work.is_asked(mark):
        return True
    with slot, st.container(horizontal=True, vertical_alignment="center", key="offer"):
        st.button(
            text.start_label(part), key="start", type="primary", icon=":material/difference:",
            on_click=work.ask, args=(mark,),
        )  # fmt: skip
        st.caption(text.offer_text(was_begun=mark in _begun()))
    if (failure := _failed().get(mark)) is not None:
        with slot:
            show(failure)
    return False


def compare(question: Question, slot: DeltaGenerator) -> None:
    """Computes the rows and shows the progress in `slot`, then draws the page anew."""
    mark, differences = _mark(question), cache.differences()
    _begun().add(mark)
    _failed().pop(mark, None)
    try:
        with slot:
            last = work.run(lambda: differences.over(services.lake(), question), key="diff", tell=text.progress_text)
    except LakehouseError as exc:
        _failed()[mark] = exc  # told where it is offered anew, not below a bar that stands still
        st.rerun()
    if last is not None and last.result is not None:
        st.rerun()


def _begun() -> set[str]:
    """What this session compared; after a Cancel or a failure it does not start again by itself."""
    found: set[str] = st.session_state.setdefault(_BEGUN, set())
    return found


def _failed() -> dict[str, LakehouseError]:
    """The errors by which this session's comparisons ended."""
    found: dict[str, LakehouseError] = st.session_state.setdefault(_FAILED, {})
    return found


def _starts_alone(mark: str, part: LogPart) -> bool:
    return mark not in _begun() and part.is_small


def too_large(part: LogPart) -> None:
    """A button that reads the rows although they are more than the limit, where nothing else prevents it."""
    best = next((m for m in method_choices(part) if m is not DiffMethod.LOG_ONLY), None)
    if part.plan.method is not DiffMethod.LOG_ONLY or best is None or part.possible.bytes_to_read is None:
        return
    st.button(
        text.anyway_label(part), key="anyway", icon=":material/difference:", on_click=choose_method, args=(best,),
    )  # fmt: skip


def _mark(question: Question) -> str:
    """A short name of the question."""
    return f"diff {zlib.crc32(repr(question).encode()):08x}"
