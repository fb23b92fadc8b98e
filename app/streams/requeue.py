"""Requeue rows of the quarantine: which, how repaired, what a trial on the host found, then the reason and the name.

Rule: what is requeued is what was tried, the same rows of the same version. A click asks the stream host; the operation
log says what came of it.
"""

import pandas as pd
import streamlit as st

from app import cache, errors, navigation, services, viewer
from app.streams.text import requeue_label, requeue_lines, requeue_samples
from app.ui import dialogs
from app.ui.lists import Look, show
from app.ui.live import follow_job
from app.ui.view.words import markdown_safe
from backend.jobs.model import Job, JobRequest, JobState
from backend.stream_model.stream import StreamDeclaration
from backend.streams.requeue import (
    RequeueAnswer,
    RequeueRequest,
    load_request,
    preview_job,
    quarantine_of,
    requeue_job,
    why_never,
    why_not,
)
from backend.streams.verdict import StreamStatus

_REQUEUE, _TRIED = "requeue", "_requeue_tried"
_WHERE, _SET = "requeue_where", "requeue_set"
SAMPLES = Look(alt="Some of the chosen rows, before and after the repair")


def quarantine_row(declared: StreamDeclaration) -> None:
    """One line: the way to the quarantine, and to requeue its rows. Nothing for a stream without one."""
    quarantine = quarantine_of(declared)
    if quarantine is None:
        return
    blocked = viewer.read_only_reason() or why_never(declared)
    effect = blocked or "Repair rows that broke an expectation, and let them through the stream once more, each once"
    with st.container(horizontal=True, vertical_alignment="center", key="quarantine"):
        navigation.table_link(quarantine, f"Quarantine: {quarantine}")
        clicked = st.button(
            "Requeue rows…", key="one_requeue", icon=":material/redo:", disabled=bool(blocked),
            help=markdown_safe(effect),
        )  # fmt: skip
        if clicked:
            st.session_state.pop(_TRIED, None)
            dialogs.open_dialog(_REQUEUE, declared.name)


def requeue_dialog() -> None:
    """Called once by the page: says what was just asked, and opens the dialog that is due."""
    dialogs.dialog(_REQUEUE, _dialog, title="Requeue rows of {}?".format, width="large")


def _dialog(name: str) -> None:
    with errors.boundary():
        status = next(stream for stream in cache.streams_reading().streams if stream.declaration.name == name)
        _choose(status.declaration)
        tried = st.session_state.get(_TRIED)
        if tried is not None:
            request, job_id = tried
            _outcome(status, request, services.store().jobs.get(job_id))


def _choose(declared: StreamDeclaration) -> None:
    with st.form("requeue_choice", border=False):
        where = st.text_input("Which rows", key=_WHERE, placeholder="all, or SQL over a row: amount < 0")
        repairs = st.text_area(
            "Repair", key=_SET, height=90, placeholder="amount = abs(amount)", help="One line a column: column = SQL"
        )
        tried = st.form_submit_button("Preview", key="requeue_try", icon=":material/visibility:")
    if tried:
        st.session_state.pop(_TRIED, None)
        lines = [line for line in (repairs or "").splitlines() if line.strip()]
        request = load_request(services.lake(), declared, where or "", lines)
        job = _submit(preview_job(request, actor=viewer.actor()))
        st.session_state[_TRIED] = request, job.job_id


def _submit(wanted: JobRequest) -> Job:
    return services.store().jobs.submit(wanted, now=services.now())


def _outcome(status: StreamStatus, request: RequeueRequest, job: Job | None) -> None:
    """How far the trial is; then what it gave, and what is asked for before rows are requeued."""
    if job is None:
        st.info("The trial is gone: preview it again.", icon=":material/info:")
    elif not job.state.is_over:
        follow_job(job.job_id, page="the stream's page", every_s=1.0)
    elif job.state is JobState.CANCELLED:
        st.caption("Cancelled: nothing was tried.")
    elif job.state is JobState.FAILED:
        st.error(markdown_safe(f"{job.error} {job.hint}".strip()), icon=":material/error:")
    else:
        answer = RequeueAnswer.of(job)
        lines = requeue_lines(answer, request, status.declaration)
        st.markdown("\n".join(f"- {markdown_safe(line)}" for line in lines))
        if samples := requeue_samples(answer):
            show(pd.DataFrame(samples), SAMPLES, key="requeue_samples")
        _ask(status, request, answer)


def _ask(status: StreamStatus, request: RequeueRequest, answer: RequeueAnswer) -> None:
    if refused := why_not(status) or ("" if answer.met else "no row would go"):
        st.warning(f"Nothing can be requeued now: {markdown_safe(refused)}.", icon=":material/block:")
    elif reason := dialogs.reason(_REQUEUE, label=requeue_label(answer), typed=request.stream):
        _submit(requeue_job(request, actor=viewer.actor(), reason=reason))
        done = f"Asked for {request.stream}; its host does it next. The operation log says what came of it."
        dialogs.asked(_REQUEUE, done)
