"""The Acts page: what was done to tables, what runs, and whether each act kept its promise.

Rule: newest first; the list is the store's, the proof is what the host wrote down.
"""

import streamlit as st

from app import cache, errors, navigation, services, state, viewer
from app.ui.lists import TWO_LINES_PX, choose, show
from app.ui.table_acts import act_button, act_dialog
from app.ui.view.acts import act_columns, act_title, act_words, dropped_columns, policy_columns, result_lines
from app.ui.view.words import job_words, markdown_safe
from app.ui.work import follow_job
from backend.jobs.model import Job, JobState
from backend.maintenance.clone_and_drop import dropped_tables
from backend.maintenance.model import ActResult, Purge, TableAct, Undrop

MOST_ACTS = 100


def acts() -> None:
    """Acts on tables, tables that were dropped, and what policies do next."""
    act_dialog()
    for part in (_acts_list, _dropped_list, _planned_by_policies):
        with errors.boundary():
            part()


def _planned_by_policies() -> None:
    """What ran, what is next, and why it waits; nothing where no policy is declared."""
    plans = cache.policy_plans() if services.settings().table_policies else []
    if not plans:
        return
    st.subheader("Planned by policies", anchor=False)
    st.caption("What the stream host does by itself, as `policies` of the settings say. A host looks every 15 seconds.")
    columns = policy_columns(services.now(), viewer.timezone())
    show(columns, plans, key="policy_plans", row_px=TWO_LINES_PX, alt="What policies do next")


def _dropped_list() -> None:
    """Tables that lie aside; a click offers to bring one back, or to delete it for good."""
    tables = dropped_tables(services.settings())
    if not tables:
        return
    st.subheader("Dropped tables", anchor=False)
    names, alt = [table.job_id for table in tables], "Dropped tables, newest first"
    chosen = choose(dropped_columns(services.now()), tables, key="dropped", names=names, alt=alt)
    st.caption("They are kept aside, complete. Click a row to bring one back or to delete it.")
    if table := next((table for table in tables if table.job_id == chosen), None):
        with st.container(horizontal=True, key="dropped_acts"):
            act_button(table.ref, table.version, Undrop(table.job_id), key="undrop", label=f"Undrop {table.name}")
            act_button(table.ref, table.version, Purge(table.job_id), key="purge_dropped", label=f"Purge {table.name}")


def _acts_list() -> None:
    """Every act on a table that the store keeps; a click opens one."""
    store = services.store()
    jobs = store.jobs.newest(MOST_ACTS, of_tables=True)
    if not jobs:
        st.info(
            "**Nobody has acted on a table yet.** Health offers *Optimize…*, Versions *Restore…*, Properties *Edit "
            "properties…*; in a terminal: `weir optimize T --dry-run`.",
            icon=":material/build:",
        )
        return
    names, alt = [job.job_id for job in jobs], "Acts on tables, newest first"
    opened = choose(act_columns(services.now()), jobs, key="acts", names=names, row_px=TWO_LINES_PX, alt=alt)
    chosen = opened or state.get_str(state.ACT)
    st.caption("Click a row for what it did and the proof.")
    if chosen is None:
        return
    if job := store.jobs.get(chosen):
        _one(job)
    else:
        st.info("**This act is no longer kept.** The table's history has its commit.", icon=":material/history:")


def _one(job: Job) -> None:
    act = TableAct.parse(job.request)
    with st.container(border=True, key="one_act"), errors.boundary():
        st.markdown(f"**{markdown_safe(act_title(job.kind, act.name))}** · {markdown_safe(act_words(act))}")
        st.caption(markdown_safe(f"{job.actor}: {job.reason}"))
        if not job.state.is_over:
            follow_job(job.job_id, page="the Acts page", every_s=1.0)
        elif job.state is JobState.DONE:
            result = ActResult.of(job)
            st.markdown("\n".join(f"- {markdown_safe(line)}" for line in result_lines(result)))
            if result.version is not None:
                navigation.table_link(act.name, "History", {state.VERSION: None}, page="history")
        else:
            words = f"{job.error} {job.hint}".strip() or job_words(job, now=services.now())
            st.error(markdown_safe(words), icon=":material/error:")
