"""The Incidents page: every incident, the one that the URL names, or a new one about the commit that it names.

Rule: what is known and done is read anew each time; what a person says of it is an act in the audit trail.
"""

import streamlit as st

from app import cache, errors, navigation, services, state, viewer
from app.incidents.text import incident_markdown, incident_text, proposed, report_lines
from app.timeline.text import event_columns
from app.ui import lists
from app.ui.view.words import markdown_safe, sentence
from backend.search.notice import notice_text
from backend.store.incidents import IncidentAct
from backend.streams.timeline import load_incident


def incidents() -> None:
    table, number, bad = state.get_str(state.TABLE), state.get_int(state.INCIDENT), state.get_int(state.TO)
    with errors.boundary():
        if number is not None:
            _one(number)
        elif table and bad is not None:
            _new(table, state.get_int(state.FROM), bad)
        else:
            _all()


def _all() -> None:
    """Each a link, those that are not over first."""
    st.title(navigation.title("incident"), anchor=False)
    every = services.store().incidents.all()
    if not every:
        st.info("**No incident yet.** *Open an incident…* stands beside each finding.", icon=":material/emergency:")
    for incident in every:
        navigation.page_link("incident", incident_text(incident), {state.INCIDENT: incident.id}, icon="")


def _new(name: str, good: int | None, bad: int) -> None:
    """The form that opens one, or adds the commit to one; leads on where one is about it already."""
    store, ref = services.store().incidents, viewer.lake().find(name)
    others = {each.id: incident_text(each) for each in store.all() if each.state != "over"}
    if there := next((each.id for each in store.all() if each.is_about(ref.uri, bad)), None):
        navigation.go("incident", {state.INCIDENT: there})
    st.title(markdown_safe(f"Open an incident of {ref.name}"), anchor=False)
    noticed = cache.noticed(cache.streams_reading()).of(ref.uri)
    notices = [notice for notice in noticed if notice.version == bad]
    st.markdown("\n".join(f"- {markdown_safe(notice_text(notice))}" for notice in notices))
    number = st.selectbox(
        "Where to", [0, *others], format_func=lambda number: others.get(number, "A new incident"), key="incident_into"
    )
    title, table = proposed(services.public_lake(), ref, good, bad, notices, services.now())
    pinned, act = f"v{bad}" if good is None else f"v{good} and v{bad}", "add to incident" if number else "open incident"
    names = [table.name for each in store.all() if each.id == number for table in each.tables]
    blocked, no_pins = viewer.why_not(act, ref.name, *names), viewer.why_not("pin", ref.name)
    help_text = markdown_safe(blocked) if blocked else None
    with st.form("incident_form", border=False):
        cause = st.text_input("Cause", title, max_chars=200, key="incident_title", disabled=bool(number))
        label = f"Pin {pinned}: no VACUUM of Weir deletes their files"
        pins = st.checkbox(label, value=not no_pins, key="incident_pins", disabled=bool(no_pins), help=no_pins)
        why = st.text_area("Reason", key="incident_reason", max_chars=500, placeholder="Kept in the audit trail")
        label = "Add to the incident" if number else "Open the incident"
        sent = st.form_submit_button(label, type="primary", key="incident_send", disabled=bool(blocked), help=help_text)
    if sent:
        made = store.act(
            "add to incident" if number else "open incident", why or "", number=number, title=cause or title,
            table=table, notices=cache.kept(notices), pins=pins, actor=viewer.actor(), now=services.now(),
        )  # fmt: skip
        navigation.go("incident", {state.INCIDENT: made.id})


def _one(number: int) -> None:
    """What is known, where to look, a note, and what happened, newest first."""
    navigation.page_link("incident", "All incidents", icon=":material/arrow_back:")
    lake, store, now = viewer.lake(), services.store(), services.now()
    report = load_incident(lake, store, cache.streams_reading().streams, number, now=now)
    incident = report.incident
    st.title(markdown_safe(f"Incident {number}: {incident.title}"), anchor=False)
    st.markdown("\n".join(f"- {markdown_safe(line)}" for line in report_lines(report)))
    with st.container(horizontal=True, vertical_alignment="center", key="incident_links"):
        for table in incident.tables:
            ends: navigation.Params = {state.FROM: table.good, state.TO: table.bad}
            navigation.table_link(table.name, f"What v{table.bad} of {table.name} changed", ends, page="changes")
            navigation.table_link(table.name, "Way back", {state.AT: table.good}, page="versions")
        navigation.page_link("acts", "Acts and their proof", {state.SEARCH: incident.tables[0].name})
        st.download_button(
            "Markdown", lambda: incident_markdown(report, lake).encode(), f"incident_{number}.md", "text/markdown",
            key="export_md", icon=":material/download:", on_click="ignore",
        )  # fmt: skip
    alt = "What was noticed, done and noted, newest first"
    when, _, kind, where, what = event_columns(now)
    shown = (when, kind, what, where)  # what was said fits a telephone
    lists.show(shown, report.events[::-1], key="incident_events", alt=alt, row_px=lists.TWO_LINES_PX)
    blocked = viewer.why_not("note on incident", *(table.name for table in incident.tables))
    if incident.state != "over" and blocked:
        st.caption(markdown_safe(sentence(blocked)))
    elif incident.state != "over":
        with st.form("incident_note", clear_on_submit=True, border=False):
            said = st.text_area("Note", key="incident_said", max_chars=2_000, placeholder="Kept with your name")
            closes = st.checkbox("The incident is over", key="incident_over")
            sent = st.form_submit_button("Add the note", key="incident_send")
        if sent and said:
            act: IncidentAct = "close incident" if closes else "note on incident"
            store.incidents.act(act, said, number=number, actor=viewer.actor(), now=services.now())
            st.rerun()
