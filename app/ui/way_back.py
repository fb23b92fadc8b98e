"""Back to a former version, in one card: what goes and comes back, which commits that undoes, until when it can be.

Rule: the card says what the preview of a restore says, and no button stands where that is refused. It compares no rows.
"""

import streamlit as st

from app import cache, state
from app.navigation import table_link
from app.ui.table_acts import act_button, is_written_here
from app.ui.view.acts import loss_text, preview_lines
from app.ui.view.words import markdown_safe, sentence
from backend.changes.model import VersionDiff
from backend.errors import LakehouseError
from backend.lake.model import TableRef
from backend.maintenance.model import Restore, Rewind, TableAct


def way_back(ref: TableRef, latest: int, to_version: int, since: VersionDiff | None = None) -> None:
    """Back to `to_version`: the table alone, or with the stream that writes it. `since`: what differs between that and
    the latest version, where somebody compared them."""
    is_streamed = is_written_here(ref.uri)
    with st.container(border=True, key="way_back"):
        st.markdown(f"**Back to v{to_version}**")
        asked = Restore(to_version, keeps_properties=True, stops_writers=is_streamed)
        try:
            planned = cache.act_preview(TableAct(ref.uri, ref.name, latest, asked))
        except LakehouseError as exc:
            st.caption(markdown_safe(f"{sentence(exc.message)} {sentence(exc.hint)}"))
            return
        lost = loss_text(since)
        lines = [*([sentence(lost)] if lost else []), *preview_lines(planned)]
        st.markdown("\n".join(f"- {markdown_safe(line)}" for line in lines))
        if planned.refused:
            st.caption(markdown_safe(f"{sentence(planned.refused)} {sentence(planned.way_out)}"))
        with st.container(horizontal=True, vertical_alignment="center", key="back_buttons"):
            if not planned.refused:
                act_button(ref, latest, Restore(to_version), key="restore")
                if is_streamed:
                    act_button(ref, latest, Rewind(to_version), key="rewind")
            ends = {state.FROM: latest, state.TO: to_version, state.ACROSS_REPLACE: "true"}
            table_link(ref.name, f"What going back to v{to_version} changes", ends, page="changes")
