"""Work that takes a while, on a page: what, how far, and Cancel.

Rule: the script itself waits, so that any click (Cancel, another page, a closed window) ends the work. What was asked
for is remembered until it is done, has failed or was cancelled.
"""

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Protocol, TypeVar, cast

import streamlit as st

from app import errors, services, viewer
from app.ui.live import live
from app.ui.view.words import job_share, job_words, markdown_safe
from backend.jobs.model import Job, is_orphan, why_no_host

Step = TypeVar("Step")
_ASKED = "_asked_work"


class _Closable(Protocol):
    def close(self) -> None: ...


def ask(name: str) -> None:
    """For a button's `on_click`: the next run does this work."""
    st.session_state[_ASKED] = name


def is_asked(name: str) -> bool:
    return bool(st.session_state.get(_ASKED) == name)


def cancel() -> None:
    st.session_state.pop(_ASKED, None)


def run(begin: Callable[[], Iterator[Step]], *, key: str, tell: Callable[[Step], tuple[float, str]]) -> Step | None:
    """Does the work and shows its progress; returns the last step, None when there was none.

    `tell` gives the share done and the words for a step. Raises what the work raises: to do it again, ask again.
    """
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


def follow_job(job_id: str, *, page: str, every_s: float | None = None, note: str = "") -> None:
    """How far a job of the stream host is, with Cancel (from this `page`); its end draws the page anew."""

    def region() -> None:
        job = services.store().jobs.get(job_id)
        if job is None or job.state.is_over:
            st.rerun(scope="app")
        with st.container(horizontal=True, vertical_alignment="center", key="job_progress"):
            st.progress(job_share(job), markdown_safe(_job_line(job)), width="stretch")
            st.button(
                "Cancel", key="cancel_job", icon=":material/cancel:", on_click=_cancel_job, args=(job_id, page),
                disabled=job.cancel_requested or viewer.read_only_reason() is not None,
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


def _cancel_job(job_id: str, page: str) -> None:
    reason = f"cancelled on {page}"
    with errors.boundary():
        services.store().jobs.cancel(job_id, actor=viewer.actor(), reason=reason, now=services.now())
