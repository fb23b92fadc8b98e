"""Properties of the version looked at against those of another.

Rule: the other version is in the URL as the viewer wrote it; it reads from the older to the newer, whichever is which.
"""

import streamlit as st

from app import context, navigation, state
from app.ui import lists
from app.ui.frame import OpenTable
from app.ui.frames import changes_frame
from app.ui.table_changes import changes_sentence
from app.ui.words import markdown_safe
from backend.diff.versions import resolve_version
from backend.format import things
from backend.lake.history.metadata_changes import ChangeKind, InForce, TableChange, compare
from backend.lake.model import Snapshot

CHANGES = lists.Look(
    config={
        "Name": st.column_config.TextColumn(pinned=True, width=300),
        "Meaning": st.column_config.TextColumn(width="large"),
    },
    alt="Properties, protocol and features that differ between the two versions",
)


def comparison(opened: OpenTable) -> None:
    """The field for the other version, and what differs; raises what `resolve_version` and the lake raise."""
    text = st.text_input(
        "Compare with version",
        key=state.COMPARE,
        bind="query-params",
        placeholder="118, -5, latest, a time",
        help="A version, `latest`, an offset such as `-5`, or a time such as `2026-11-20T10:00Z`.",
        icon=":material/compare_arrows:",
        width=320,
    )
    if not (text or "").strip():
        return
    lake = context.lake()
    other = lake.snapshot(opened.ref, resolve_version(lake, opened.ref, text.strip()))
    old, new = sorted((other, opened.snapshot), key=lambda snapshot: snapshot.version)
    with st.container(border=True, key="property_comparison"):
        _differences(opened.ref.name, old, new)


def _differences(name: str, old: Snapshot, new: Snapshot) -> None:
    range_text = f"v{old.version} → v{new.version}"
    if old.version == new.version:
        st.info(f"**Both are v{old.version}.** Name another version to compare with.", icon=":material/equal:")
        return
    found = compare(InForce(old.metadata, old.protocol), InForce(new.metadata, new.protocol))
    columns = [change for change in found if change.kind is ChangeKind.COLUMN]
    rest = [change for change in found if change.kind is not ChangeKind.COLUMN]
    _list(range_text, rest)
    if columns:
        st.caption(f"{things(len(columns), 'change')} of columns beside.")
    params = {state.FROM: old.version, state.TO: new.version, state.VIEW: "Schema and properties"}
    navigation.table_link(name, f"All that changed {markdown_safe(range_text)}", params, page="changes")


def _list(range_text: str, changes: list[TableChange]) -> None:
    if changes:
        st.markdown(f"**{range_text}** · {changes_sentence(changes)}")
        lists.show(changes_frame(changes), CHANGES, key="property_changes")
    else:
        st.info(f"**{range_text}**: properties, protocol and features are the same.", icon=":material/equal:")
