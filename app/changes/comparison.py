"""The comparison of rows, on this machine or by the stream host: offered, followed with Cancel, shown once done.

Rule: here a small comparison starts by itself, once in a session. A larger one waits for a button that says how much it
reads. Of the host the control store says what runs and what was found: so a reload, a second viewer and the command see
the same job, and leaving the page ends nothing. An answer that anybody found is shown at once.
"""

import zlib

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from app import cache, services, state, viewer
from app.changes import text
from app.changes.view import method_choices
from app.errors import show
from app.services import once
from app.ui import work
from app.ui.live import follow_job
from app.ui.view.words import markdown_safe, sentence
from backend.changes.cache import LogPart
from backend.changes.host_job import COMPUTED, UNEXPLAINED, DiffJobs
from backend.changes.model import DiffMethod, Question, VersionDiff
from backend.errors import DiffError, JobResultMissingError, LakehouseError
from backend.jobs.model import Job, JobState

_NO_JOB = (DiffMethod.SAME_VERSION, DiffMethod.LOG_ONLY)
_BEGUN, _FAILED, _ASKED = "_begun_diffs", "_failed_diffs", "_ask_host"
HOST_LABEL = "Compare on the stream host"
_SOON_S = 0.15  # a wait that nobody notices, instead of a page that is drawn twice


@once
def diff_jobs() -> DiffJobs:
    """Differences that stream hosts find."""
    return DiffJobs(services.settings(), services.lake())


def known_here(question: Question, part: LogPart) -> VersionDiff | None:
    """The answer, where it is there or comes soon; else None.

    Where it is missing and was asked for, it is computed while the page is drawn.
    """
    if part.plan.method in _NO_JOB:
        return part.outline
    mark = _mark(question)
    if work.is_asked(mark) or _starts_alone(mark, part):
        return cache.differences().soon(services.lake(), question, _SOON_S)
    cache.differences().abandon(question)  # Cancel, not a page that reruns
    return cache.differences().known(question)


def offer_here(question: Question, part: LogPart, slot: DeltaGenerator) -> bool:
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
    begun: set[str] = st.session_state.setdefault(_BEGUN, set())
    return begun


def _failed() -> dict[str, LakehouseError]:
    """The errors by which this session's comparisons ended."""
    failed: dict[str, LakehouseError] = st.session_state.setdefault(_FAILED, {})
    return failed


def _starts_alone(mark: str, part: LogPart) -> bool:
    return mark not in _begun() and part.is_small


def offer_anyway(part: LogPart) -> None:
    """A button that reads the rows although they are more than the limit, where nothing else prevents it."""
    best = next((m for m in method_choices(part) if m is not DiffMethod.LOG_ONLY), None)
    if part.plan.method is not DiffMethod.LOG_ONLY or best is None or part.possible.bytes_to_read is None:
        return
    st.button(
        text.anyway_label(part), key="anyway", icon=":material/difference:", on_click=state.set_params,
        args=({state.METHOD: best.value},),
    )  # fmt: skip


def _mark(question: Question) -> str:
    """A short name of the question."""
    return f"diff {zlib.crc32(repr(question).encode()):08x}"


# by the stream host ---------------------------------------------------------------------------------------------------


def known_on_host(question: Question, part: LogPart) -> VersionDiff | None:
    """The answer that a host found; else None."""
    if part.plan.method in _NO_JOB:
        answer: VersionDiff | None = part.outline
    else:
        try:
            job = _job(question)
            answer = diff_jobs().answer(question, job) if job and job.result_uri else None
        except (DiffError, JobResultMissingError):
            answer = None  # `offer_on_host` says why
    if answer is not None:
        st.session_state.pop(_ASKED, None)  # this click asks nothing else later
    return answer


def offer_on_host(question: Question, part: LogPart, slot: DeltaGenerator) -> None:
    """Draws the job that runs, or the button that starts one."""
    asked = st.session_state.pop(_ASKED, False)
    with slot:
        try:
            job = _job(question)
        except DiffError as exc:
            show(exc)
            return
        if job is None or job.state.is_over:
            _offer_job(question, part, job, asked=asked)
        else:
            note = "The job goes on when you leave this page; its answer is kept for everyone who asks the same."
            follow_job(job.job_id, page="the Changes page", note=note)


def offer_host(part: LogPart, *, view_of_rows: str) -> None:
    """A button that compares on the host, where only the size prevents it here; the page then shows the rows."""
    if part.plan.method is not DiffMethod.LOG_ONLY or part.possible.bytes_to_read is None:
        return
    if any(method is not DiffMethod.LOG_ONLY for method in method_choices(part)):

        def go() -> None:
            state.set_params({state.ON: "host"})
            st.session_state[state.VIEW] = view_of_rows  # it fell on the commits while there were none
            st.session_state[_ASKED] = True

        why = viewer.why_no_job()
        st.button(
            HOST_LABEL, key="to_host", icon=":material/dns:", on_click=go,
            disabled=why is not None, help=markdown_safe(why) if why else None,
        )  # fmt: skip
        if why:
            st.caption(f"On the stream host: {markdown_safe(sentence(why))}")


def say_who(found: VersionDiff) -> None:
    """By whom and how the rows were compared."""
    said = [sentence(reason) for reason in found.reasons if reason.startswith(COMPUTED) or reason == UNEXPLAINED]
    st.caption(markdown_safe(" ".join((text.METHOD_WORDS[found.method], *said))))


def _job(question: Question) -> Job | None:
    """The newest job that was asked this; raises `DiffError` where none can be."""
    wanted = diff_jobs().request(question, actor=viewer.actor())
    return services.store().jobs.find(wanted.fingerprint)


def _offer_job(question: Question, part: LogPart, before: Job | None, *, asked: bool) -> None:
    why = viewer.why_no_job()
    with st.container(horizontal=True, vertical_alignment="center", key="host_offer"):
        label = HOST_LABEL if before is None else "Compare again on the stream host"
        clicked = st.button(label, key="start_job", type="primary", icon=":material/dns:", disabled=why is not None)
        st.caption(markdown_safe(sentence(why)) if why else text.cost_words(part))
    if before is not None and before.state is JobState.CANCELLED:
        st.caption(markdown_safe(text.ended_words(before)))
    elif before is not None:
        lines = (markdown_safe(words) for words in (text.ended_words(before), before.hint) if words)
        st.error("\n\n".join(lines), icon=":material/error:")
    if why is None and (clicked or asked):
        wanted = diff_jobs().request(question, actor=viewer.actor(), reason="asked for on the Changes page")
        gone = before.job_id if before and before.state is JobState.DONE else None
        services.store().jobs.submit(wanted, now=services.now(), instead_of=gone)
        st.rerun()
