"""The comparison of rows by the stream host: offered, followed with Cancel, and shown once it is done.

Rule: the control store says what runs and what was found. So a reload, a second viewer and the command see the same
job, and leaving the page ends nothing.
"""

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from app import cache, services, state, viewer
from app.changes import text
from app.changes.options import compare_on_host
from app.changes.view.frames import method_choices
from app.errors import show
from app.ui.live import follow_job
from app.ui.view.words import markdown_safe, sentence
from backend.changes.cache import LogPart
from backend.changes.host_job import COMPUTED, UNEXPLAINED
from backend.changes.model import DiffMethod, Question, VersionDiff
from backend.errors import DiffError, JobResultMissingError
from backend.jobs.model import Job, JobState

_NO_JOB = (DiffMethod.SAME_VERSION, DiffMethod.LOG_ONLY)
_ASKED = "_ask_host"
LABEL = "Compare on the stream host"


def known(question: Question, part: LogPart) -> VersionDiff | None:
    """The answer that a host found; else None."""
    found = part.outline if part.plan.method in _NO_JOB else _found(question)
    if found is not None:
        st.session_state.pop(_ASKED, None)  # this click asks nothing else later
    return found


def _found(question: Question) -> VersionDiff | None:
    try:
        job = _job(question)
        return cache.diff_jobs().answer(question, job) if job and job.result_uri else None
    except (DiffError, JobResultMissingError):
        return None  # `offer` says why


def offer(question: Question, part: LogPart, slot: DeltaGenerator) -> None:
    """Draws the job that runs, or the button that starts one."""
    asked = st.session_state.pop(_ASKED, False)
    with slot:
        try:
            job = _job(question)
        except DiffError as exc:
            show(exc)
            return
        if job is None or job.state.is_over:
            _offer(question, part, job, asked=asked)
        else:
            note = "The job goes on when you leave this page; its answer is kept for everyone who asks the same."
            follow_job(job.job_id, page="the Changes page", note=note)


def too_large(part: LogPart, *, view_of_rows: str) -> None:
    """A button that compares on the host, where only the size prevents it here; the page then shows the rows."""
    if part.plan.method is not DiffMethod.LOG_ONLY or part.possible.bytes_to_read is None:
        return
    if any(method is not DiffMethod.LOG_ONLY for method in method_choices(part)):
        why = viewer.why_no_job()
        st.button(
            LABEL, key="to_host", icon=":material/dns:", on_click=_go, args=(view_of_rows,),
            disabled=why is not None, help=markdown_safe(why) if why else None,
        )  # fmt: skip
        if why:
            st.caption(f"On the stream host: {markdown_safe(sentence(why))}")


def say_who(found: VersionDiff) -> None:
    """By whom and how the rows were compared."""
    said = [sentence(reason) for reason in found.reasons if reason.startswith(COMPUTED) or reason == UNEXPLAINED]
    st.caption(markdown_safe(" ".join((text.METHOD_WORDS[found.method], *said))))


def _go(view_of_rows: str) -> None:
    compare_on_host()
    st.session_state[state.VIEW] = view_of_rows  # it fell on the commits while there were none
    st.session_state[_ASKED] = True


def _job(question: Question) -> Job | None:
    """The newest job that was asked this; raises `DiffError` where none can be."""
    wanted = cache.diff_jobs().request(question, actor=viewer.actor())
    return services.store().jobs.find(wanted.fingerprint)


def _offer(question: Question, part: LogPart, before: Job | None, *, asked: bool) -> None:
    why = viewer.why_no_job()
    with st.container(horizontal=True, vertical_alignment="center", key="host_offer"):
        label = LABEL if before is None else "Compare again on the stream host"
        clicked = st.button(label, key="start_job", type="primary", icon=":material/dns:", disabled=why is not None)
        st.caption(markdown_safe(sentence(why)) if why else text.cost_words(part))
    if before is not None:
        _say_end(before)
    if why is None and (clicked or asked):
        wanted = cache.diff_jobs().request(question, actor=viewer.actor(), reason="asked for on the Changes page")
        gone = before.job_id if before and before.state is JobState.DONE else None
        services.store().jobs.submit(wanted, now=services.now(), instead_of=gone)
        st.rerun()


def _say_end(job: Job) -> None:
    words = markdown_safe(text.ended_words(job))
    if job.state is JobState.CANCELLED:
        st.caption(words)
    else:
        st.error("\n\n".join(line for line in (words, markdown_safe(job.hint)) if line), icon=":material/error:")
