"""The Acts page: what was done to tables and streams, what runs, and whether each act kept its promise.

Rule: newest first; the list is the store's, the proof is what the host wrote down.
"""

import streamlit as st

from app import cache, errors, navigation, services, state, viewer
from app.ui.lists import TWO_LINES_PX, choose, show
from app.ui.table_acts import act_button, act_dialog, show_act
from app.ui.view.acts import act_columns, dropped_columns, listed_acts, policy_columns
from app.ui.view.words import markdown_safe
from backend.format import utc_text
from backend.maintenance.clone_and_drop import dropped_tables
from backend.maintenance.model import Purge, Undrop

MOST_ACTS = 100
_OF = {True: "Streams", False: "Tables"}


def acts() -> None:
    """Acts on tables and streams, tables that were dropped, and what policies do next."""
    act_dialog()
    for part in (_acts_list, _dropped_list, _planned_by_policies):
        with errors.boundary():
            part()
    navigation.page_link("audit", "The audit trail: who asked for what, and why")


def _planned_by_policies() -> None:
    """What ran, what is next, and why it waits; nothing where no policy is declared."""
    plans = cache.policy_plans() if services.settings().table_policies else []
    if not plans:
        return
    st.subheader("Planned by policies", anchor=False)
    st.caption("What the stream host does by itself. It looks every 15 seconds; the settings' `policies` say when.")
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
    """Acts on tables and streams as the store keeps them; a click opens one, which the URL then names."""
    store, roots = services.store(), services.settings().roots
    jobs = store.jobs.newest(MOST_ACTS, of_tables=True)
    entries = store.audit_entries(limit=MOST_ACTS, acts_only=True)
    rows, streams = listed_acts(jobs, entries, roots), store.declarations()
    if not rows:
        st.info(
            "**Nobody has acted yet.** Health offers *Optimize…*, Versions *Restore…*, Properties *Edit properties…*, "
            "Streams *Start…*.",
            icon=":material/build:",
        )
        return
    with st.container(horizontal=True, key="act_filters"):
        words = st.text_input(
            "Search", key=state.SEARCH, bind="query-params", live="200ms", width=280, type="search",
            placeholder="Table, stream, act, person, reason", icon=":material/search:",
        )  # fmt: skip
        of = st.segmented_control(
            "Of", ["All", "Tables", "Streams"], default="All", required=True, key=state.ACTS_OF, bind="query-params"
        )
    rows = [row for row in rows if row.holds(words or "") and of in ("All", _OF[row.subject in streams])]
    if not rows:
        st.info("**No act matches.** Remove a word or the filter.", icon=":material/search_off:")
        return
    names, alt = [row.address for row in rows], "Acts on tables and streams, newest first"
    opened = choose(act_columns(services.now()), rows, key="acts", names=names, row_px=TWO_LINES_PX, alt=alt)
    if opened:
        state.set_params({state.ACT: opened})
    chosen = state.get_str(state.ACT)
    st.caption("Click a row for what it did and the proof. Its address can be shared.")
    row = next((row for row in rows if row.address == chosen), None)
    if chosen and (job := store.jobs.get(chosen)):
        show_act(job, page="the Acts page")
    elif row:
        with st.container(border=True, key="one_act"):
            st.markdown(f"**{markdown_safe(f'{row.act} {row.subject}')}** · {markdown_safe(row.what)}")
            st.caption(markdown_safe(f"{row.actor}: {row.reason} · {utc_text(row.at)}"))
            if row.subject in streams:
                navigation.page_link("stream", f"Open stream {row.subject}", {state.STREAM: row.subject})
    elif chosen:
        st.info("**This act is no longer kept.** The table's history has its commit.", icon=":material/history:")
