"""Widgets of the properties page: what is wrong, what was different before, every property, features.

Rule: what is wrong is seen first, then what is set here; the defaults are folded. A comparison reads from the older
version to the newer, whichever the page is of.
"""

import streamlit as st

from app import errors, navigation, state, viewer
from app.properties import view
from app.ui import lists
from app.ui.lake import OpenTable
from app.ui.table_acts import act_button
from app.ui.view.commits import TABLE_CHANGES, changes_sentence
from app.ui.view.words import markdown_safe
from backend.format import things
from backend.lake.history.history import VERSIONS, resolve_version
from backend.lake.model import Metadata, Protocol
from backend.lake.table.metadata_diff import ChangeKind, InForce, compare
from backend.lake.table.properties import explain_features, explain_properties
from backend.maintenance.model import Alter, Drop


def properties(opened: OpenTable) -> None:
    """What is wrong, every property, what was different before, and features."""
    with errors.boundary():
        _problems(opened)
        _table(opened.snapshot.metadata)
    with errors.boundary():
        _comparison(opened)
    with errors.boundary():
        _features(opened.snapshot.protocol)


def _problems(opened: OpenTable) -> None:
    """Properties that do not do what their writer meant, with what to write instead; and the way to edit them."""
    for row in explain_properties(opened.snapshot.metadata):
        if row.problem:
            what, step = view.problem_sentence(row)
            lines = [f"**{markdown_safe(what)}**"] + ([markdown_safe(step)] if step else [])
            st.warning("\n\n".join(lines), icon=":material/warning:")
            if row.suggestion and opened.is_latest:
                corrected = Alter({row.suggestion: row.value or ""}, (row.key,))
                label = f"Rename it to {row.suggestion}"
                act_button(opened.ref, opened.latest_version, corrected, key=f"fix_{row.key}", label=label)
    if opened.is_latest:
        with st.container(horizontal=True, key="property_acts"):
            act_button(opened.ref, opened.latest_version, Alter(), key="alter")
            st.space("stretch")
            act_button(opened.ref, opened.latest_version, Drop(), key="drop", label="Drop the table")


# another version -----------------------------------------------------------------------------------------------------


def _comparison(opened: OpenTable) -> None:
    """The field for the other version, and what differs; raises what `resolve_version` and the lake raise."""
    text = st.text_input(
        "Compare with version", key=state.COMPARE, bind="query-params", placeholder="118, -5, yesterday", width=320,
        help=f"A version is {VERSIONS}.", icon=":material/compare_arrows:",
    )  # fmt: skip
    if not (text or "").strip():
        return
    lake = viewer.lake()
    other = lake.snapshot(opened.ref, resolve_version(lake, opened.ref, text, viewer.clock()))
    old, new = sorted((other, opened.snapshot), key=lambda snapshot: snapshot.version)
    range_text = f"v{old.version} → v{new.version}"
    if old.version == new.version:
        st.info(f"**Both are v{old.version}.** Name another version to compare with.", icon=":material/equal:")
        return
    changes = compare(InForce(old.metadata, old.protocol), InForce(new.metadata, new.protocol))
    rest = [change for change in changes if change.kind is not ChangeKind.COLUMN]
    with st.container(border=True, key="property_comparison"):
        if rest:
            st.markdown(f"**{range_text}** · {changes_sentence(rest)}")
            alt = "Properties, protocol and features that differ between the two versions"
            lists.show(TABLE_CHANGES, rest, key="property_changes", alt=alt)
        else:
            st.info(f"**{range_text}**: properties, protocol and features are the same.", icon=":material/equal:")
        if len(changes) > len(rest):
            st.caption(f"{things(len(changes) - len(rest), 'change')} of columns beside.")
        ends: navigation.Params = {state.FROM: old.version, state.TO: new.version, state.VIEW: "Schema and properties"}
        navigation.table_link(opened.ref.name, f"All that changed {range_text}", ends, page="changes")


# every property ------------------------------------------------------------------------------------------------------


def _table(metadata: Metadata) -> None:
    """What is set here, and folded below it every default by subject; a search looks through both."""
    rows = explain_properties(metadata)
    st.subheader(view.properties_sentence(rows), anchor=False)
    words = st.text_input(
        "Search", key=state.SEARCH, bind="query-params", placeholder="Name, value or meaning",
        icon=":material/search:", width=320,
    )  # fmt: skip
    matching = view.matching(rows, words or "")
    here, defaults = [row for row in matching if row.is_set], [row for row in matching if not row.is_set]
    if not matching:
        st.info("No property matches. Clear the search.", icon=":material/info:")
    elif not here:
        st.caption("No property that is set here matches." if words else "Every property has its default.")
    else:
        lists.text_table(view.PROPERTIES, here)
    if defaults:
        label = things(len(defaults), "property with its default", "properties with their defaults")
        # a search opens the fold: its key is another one then
        with st.expander(label, expanded=bool(words), key=f"defaults_{bool(words)}", icon=":material/tune:"):
            for subject, group in view.grouped(defaults).items():
                st.markdown(f"**{subject}**")
                lists.text_table([column for column in view.PROPERTIES if column.name != "Value"], group)


def _features(protocol: Protocol) -> None:
    """The protocol version and every table feature."""
    st.subheader("Table features", anchor=False)
    st.caption(f"Protocol: reader {protocol.min_reader_version}, writer {protocol.min_writer_version}.")
    features = explain_features(protocol)
    if not features:
        st.info("The protocol version implies its features; none is listed by name.", icon=":material/info:")
    else:
        lists.text_table(view.FEATURES, features)
