"""A statement that the stream host answers: asked for, followed with Cancel, and its first rows once they are there.

Rule: statement and versions, as the link has them, name the job. So a reload, a second viewer and the command see the
same one, and leaving the page ends nothing.
"""

import streamlit as st

from app import errors, services, state, viewer
from app.query import text as words
from app.query import view
from app.ui.live import follow_job
from app.ui.view.words import markdown_safe, sentence
from backend.cells import distinct_names
from backend.errors import JobError, JobResultMissingError
from backend.jobs.model import Job, JobRequest, JobState
from backend.jobs.results import results_lake
from backend.query.answer import job_request, kept_rows
from backend.query.plan import QueryPlan

LABEL, ICON, HOST = "Run on the stream host", ":material/dns:", "host"
_ASKED = "query_ask_host"
_NOTE = "The job goes on when you leave this page; its rows are kept for everyone who asks the same."


def ask(pins: str = "") -> None:
    """The statement is the host's from now on, and is run there at once: at `pins`, else at the newest versions."""
    st.session_state[_ASKED] = True
    state.put({state.ON: HOST, state.VERSIONS: pins or None})


def is_asked() -> bool:
    return state.text(state.ON) == HOST


def result(text: str, plan: QueryPlan) -> view.Result | None:
    """The rows that a job kept; None while there are none, with the job that runs or what begins one on the page.

    Raises `QueryError` for what a host cannot do.
    """
    is_new, settings = st.session_state.pop(_ASKED, False), services.settings()
    reason, limit_s = "asked for on the Query page", settings.jobs.time_limit_s
    wanted = job_request(plan, actor=viewer.actor(), reason=reason, time_limit_s=limit_s)
    store = services.existing_store()
    job = store.jobs.find(wanted.fingerprint) if store is not None else None
    if job is not None and not job.state.is_over:
        follow_job(job.job_id, page="the Query page", note=_NOTE)
        return None
    problem: JobError | JobResultMissingError | None = None
    if job is not None and job.state is JobState.DONE:
        try:
            kept = kept_rows(results_lake(settings), settings, job)
        except (JobError, JobResultMissingError) as exc:
            problem = exc
        else:
            rows = kept.rows.rename_columns(distinct_names(kept.rows.column_names))
            pins, read = ",".join(plan.pins), words.read_text(plan)
            return view.Result(text, pins, read, rows, kept.is_cut, _took_s(job), kept.by)
    _offer(wanted, plan, job, problem, is_new=is_new)
    return None


def _took_s(job: Job) -> float:
    return (job.ended_at - job.started_at).total_seconds() if job.ended_at and job.started_at else 0.0


def _offer(
    wanted: JobRequest, plan: QueryPlan, before: Job | None, problem: JobError | JobResultMissingError | None, *,
    is_new: bool,
) -> None:  # fmt: skip
    """`before`: a job of the same request that left no rows, or (`problem`) whose rows cannot be read any more."""
    why = viewer.why_no_job()
    if is_new and why is None:
        gone = before.job_id if before is not None and problem is not None else None
        services.store().jobs.submit(wanted, now=services.now(), instead_of=gone)
        st.rerun()
    if problem is not None:
        errors.show(problem, meaning="Its rows can be computed again.")
    elif before is not None and before.state is JobState.CANCELLED:
        st.caption("Cancelled: no row was kept.")
    elif before is not None:
        said = f"The stream host could not answer: {before.error}"
        lines = (sentence(said), before.hint and sentence(before.hint))
        st.error("\n\n".join(markdown_safe(line) for line in lines if line), icon=":material/error:")
    with st.container(horizontal=True, vertical_alignment="center", key="query_host_offer"):
        st.button(
            "Run at these versions" if before is None else "Run again at these versions", key="query_start_job",
            type="primary", icon=ICON, on_click=ask, args=(",".join(plan.pins),), disabled=why is not None,
        )  # fmt: skip
        cost = f"The stream host reads at most {words.cost_text(plan)}."
        st.caption(markdown_safe(sentence(why) if why else cost))
