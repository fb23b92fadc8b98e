"""Widgets of the properties page: whose table, what is wrong, every property by subject, features.

Rule: what is set here is seen first; a default is shown as such.
"""

import streamlit as st

from app import state
from app.properties import view
from app.ui import lists
from app.ui.words import markdown_safe
from backend.format import things
from backend.lake.model import Metadata, Protocol
from backend.lake.table.properties import explain_features, explain_properties, ownership


def ownership_card(metadata: Metadata) -> None:
    """Whose table this is; how to say it when nobody did."""
    facts = view.ownership_facts(ownership(metadata))
    with st.container(border=True, key="ownership"):
        st.markdown(":material/group: **Ownership**")
        if not facts:
            st.caption("No `catalog.*` tag says whose table this is. Set `catalog.team_name` to name its team.")
            return
        for column, (name, value) in zip(st.columns(max(3, min(5, len(facts)))), list(facts.items())[:5], strict=False):
            column.caption(markdown_safe(name))
            column.markdown(f"**{markdown_safe(value)}**")
        if len(facts) > 5:
            with st.expander(things(len(facts) - 5, "more tag"), key="more_tags"):
                lists.facts(dict(list(facts.items())[5:]))


def problems(metadata: Metadata) -> None:
    """Properties that do not do what their writer meant, with what to write instead."""
    for row in explain_properties(metadata):
        if row.problem:
            what, step = view.problem_sentence(row)
            lines = [f"**{markdown_safe(what)}**"] + ([markdown_safe(step)] if step else [])
            st.warning("\n\n".join(lines), icon=":material/warning:")


def table(metadata: Metadata) -> None:
    """Every property by subject; filters in the URL."""
    rows = explain_properties(metadata)
    st.subheader("Properties", anchor=False)
    st.caption(f"{view.properties_sentence(rows)}.")
    with st.container(horizontal=True, vertical_alignment="bottom", key="property_filters"):
        show = st.segmented_control(
            "Show", ["All", "Set here"], default="All", required=True, key=state.SHOW, bind="query-params"
        )
        words = st.text_input(
            "Search",
            key=state.SEARCH,
            bind="query-params",
            placeholder="Name, value or meaning",
            icon=":material/search:",
            width=320,
        )
    groups = view.grouped(view.matching(rows, words or "", set_only=show == "Set here"))
    if not groups:
        st.info("No property matches. Clear the search or show all.", icon=":material/info:")
    for group in groups:
        suffix = f" · {group.num_set} set" if group.num_set else ""
        st.markdown(f"**{group.subject}**{suffix}")
        lists.text_table(view.properties_frame(group.rows), name="Property", meaning="Meaning")


def features(protocol: Protocol) -> None:
    """The protocol version and every table feature."""
    st.subheader("Table features", anchor=False)
    st.caption(f"Protocol: reader {protocol.min_reader_version}, writer {protocol.min_writer_version}.")
    frame = view.features_frame(explain_features(protocol))
    if frame.empty:
        st.info("The protocol version implies its features; none is listed by name.", icon=":material/info:")
    else:
        lists.text_table(frame, name="Feature", meaning="Meaning")
