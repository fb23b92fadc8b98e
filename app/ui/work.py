"""Work that takes a while, on a page: of this process with its progress and Cancel, or of a stream host as a job; and a
spinner where there is something to wait for.

Rule: the script itself waits for work of this process, so that any click (Cancel, another page, a closed window) ends
it. What was asked for is remembered until it is done, has failed or was cancelled. What was quick the last time gets no
spinner. A job of a host goes on when its page is left.
"""

import time
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import closing, contextmanager, nullcontext
from types import MappingProxyType
from typing import Protocol, TypeVar, cast

import streamlit as st

from app import errors, services, state, viewer
from app.host_answer import Answer, HostQuestion, HostReply
from app.ui.live import live
from app.ui.view.words import job_share, job_words, markdown_safe, sentence
from backend.caches import Lru
from backend.jobs.model import Job, JobState, is_orphan, why_no_host

Step = TypeVar("Step")
_ASKED, _BEGUN = "_asked_work", "_begun_work"


class _Closable(Protocol):
    def close(self) -> None: ...


def ask(question: Hashable) -> None:
    """For a button's `on_click`: the next run does the work that answers this."""
    st.session_state[_ASKED] = question


def is_asked(question: Hashable, *, at_once: bool = False) -> bool:
    """Whether this run does it; what is done `at_once` needs no click, once in a session."""
    if at_once and not was_begun(question):
        ask(question)
    return bool(st.session_state.get(_ASKED) == question)


def was_begun(question: Hashable) -> bool:
    """Whether this session did its work, or began to."""
    return question in st.session_state.get(_BEGUN, ())


def cancel() -> None:
    st.session_state.pop(_ASKED, None)


def run(begin: Callable[[], Iterator[Step]], *, key: str, tell: Callable[[Step], tuple[float, str]]) -> Step | None:
    """Does the work and shows its progress; returns the last step, None when there was none.

    `tell` gives the share done and the words for a step. Raises what the work raises: to do it again, ask again.
    """
    st.session_state.setdefault(_BEGUN, set()).add(st.session_state.get(_ASKED))
    slot = st.empty()
    with slot.container(key=f"{key}_work", horizontal=True, vertical_alignment="center"):
        bar = st.progress(0.0, "Starting …", width="stretch")
        st.button("Cancel", key=f"{key}_cancel", icon=":material/cancel:", on_click=cancel)
    last: Step | None = None
    try:
        steps = begin()
        with closing(cast(_Closable, steps)):
            for step in steps:
                share, words = tell(step)
                bar.progress(min(1.0, max(0.0, share)), words)
                last = step
    except Exception:  # whatever it is, no bar stands still above it
        cancel()
        slot.empty()
        raise
    cancel()
    slot.empty()
    return last


QUICK_S = 0.1
_KEPT = 10_000
_took: Lru[str, float] = Lru(_KEPT)  # seconds, by what was waited for


@contextmanager
def spinner(words: str, of: str, *, clock: Callable[[], float] = time.monotonic) -> Iterator[None]:
    """Says what is waited for, unless that took less than `QUICK_S` the last time; `of` names it."""
    took, began = _took.get(of), clock()
    with nullcontext() if took is not None and took < QUICK_S else st.spinner(words, show_time=True):
        yield
    _took.put(of, clock() - began)


# by a stream host -----------------------------------------------------------------------------------------------------


HOST, HOST_ICON = "host", ":material/dns:"  # as the link says
HOST_ASKED = "_asked_host"


def ask_host(params: Mapping[str, state.Value] = MappingProxyType({})) -> None:
    """For a button's `on_click`: the link's question, with these `params`, is the host's from now on, and the next run
    asks it."""
    st.session_state[HOST_ASKED] = True
    state.set_params({state.ON: HOST, **params})


def host_reply(question: HostQuestion[Answer]) -> HostReply[Answer]:
    """What a host found, or does; asks it where a click did."""
    reply = question.look(services.existing_store())
    is_asked, asks = st.session_state.pop(HOST_ASKED, False), question.request  # this click asks nothing else later
    if is_asked and reply.answer is None and viewer.why_no_job(f"{asks.kind} job", asks.subject) is None:
        reply = question.reply(question.ask(services.store(), reply, now=services.now()))
    return reply


def host_button(label: str, operation: str, resource: str, *, key: str, on_click: Callable[[], None]) -> None:
    """The way to the stream host; why it is off stands beside it."""
    why = viewer.why_no_job(operation, resource)
    help_text = markdown_safe(sentence(why)) if why else None
    st.button(label, key=key, icon=HOST_ICON, on_click=on_click, disabled=why is not None, help=help_text)
    if why:
        st.caption(f"On the stream host: {markdown_safe(sentence(why))}")


def show_reply(reply: HostReply[Answer], operation: str, resource: str, *, page: str, label: str, cost: str) -> None:
    """Of a question without an answer: the job that runs, or the button that asks with what it `cost`s, and what became
    of the last job. `page`: as a sentence calls it."""
    job = reply.job
    if job is not None and not job.state.is_over:
        note = "The job goes on when you leave this page; its answer is kept for everyone who asks the same."
        follow_job(job.job_id, page=page, note=note)
        return
    why = viewer.why_no_job(operation, resource)
    with st.container(horizontal=True, vertical_alignment="center", key="host_offer"):
        st.button(label, key="start_job", type="primary", icon=HOST_ICON, on_click=ask_host, disabled=why is not None)
        st.caption(markdown_safe(sentence(why) if why else cost))
    if job is not None and job.state is JobState.CANCELLED:
        st.caption("Cancelled: no row was kept.")
    elif reply.problem is not None:
        errors.show(reply.problem, meaning="It can be asked for again.")


def follow_job(job_id: str, *, page: str, every_s: float | None = None, note: str = "") -> None:
    """How far a job of the stream host is, with Cancel (from this `page`); its end draws the page anew."""

    def cancel_job() -> None:
        with errors.boundary():
            jobs, reason = services.store().jobs, f"cancelled on {page}"
            jobs.cancel(job_id, actor=viewer.actor(), reason=reason, now=services.now())

    def region() -> None:
        job = services.store().jobs.get(job_id)
        if job is None or job.state.is_over:
            st.rerun(scope="app")
        why = viewer.why_not(f"cancel {job.kind} job", job.subject, owner=job.actor)
        with st.container(horizontal=True, vertical_alignment="center", key="job_progress"):
            st.progress(job_share(job), markdown_safe(_job_line(job)), width="stretch")
            st.button(
                "Cancel", key="cancel_job", icon=":material/cancel:", on_click=cancel_job,
                disabled=job.cancel_requested or why is not None, help=markdown_safe(why) if why else None,
            )  # fmt: skip
        if note:
            st.caption(note)

    live(region, key="job_live", every_s=every_s)


def _job_line(job: Job) -> str:
    now, stale_s = services.now(), services.settings().host.heartbeat_stale_s
    hosts = services.store().hosts(now=now)
    words = job_words(job, now=now, is_orphan=is_orphan(job, hosts, now=now, stale_s=stale_s))
    why = why_no_host(hosts, now=now, stale_s=stale_s)
    return f"{words} · {why}" if why else words
