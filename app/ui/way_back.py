"""Back to a former version, in one card: what goes and comes back, which commits that undoes, until when it can be.

Rule: the card says what the preview of a restore says, and no button stands where that is refused. Rows are compared
where that is little work.
"""

import streamlit as st

from app import cache, services, state
from app.navigation import table_link
from app.ui.table_acts import act_button, is_written_here
from app.ui.view.acts import loss_text, preview_lines
from app.ui.view.words import markdown_safe, sentence
from backend.changes.key import key_memory
from backend.changes.model import Question, VersionDiff
from backend.errors import LakehouseError
from backend.lake.model import TableRef
from backend.maintenance.model import Restore, Rewind, TableAct

_COMPARE_S = 5.0  # so long a viewer waits for rows that nobody asked to compare


def way_back(ref: TableRef, latest: int, to_version: int) -> None:
    """Back to `to_version`: the table alone, or with the stream that writes it."""
    is_streamed = is_written_here(ref.uri)
    with st.container(border=True, key="way_back"):
        st.markdown(f"**Back to v{to_version}**")
        asked = Restore(to_version, keeps_properties=True, stops_writers=is_streamed)
        try:
            planned = cache.act_preview(TableAct(ref.uri, ref.name, latest, asked).text())
        except LakehouseError as exc:
            st.caption(markdown_safe(f"{sentence(exc.message)} {sentence(exc.hint)}"))
            return
        lost = loss_text(difference(ref, to_version, latest))
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


def difference(ref: TableRef, first: int, second: int, where: str | None = None) -> VersionDiff | None:
    """Two versions compared, where that is little work and soon done. `where`: which rows, by SQL over one."""
    limits, lake, differences = services.settings().lake, services.lake(), cache.differences()
    question = Question(
        ref,
        first,
        second,
        remembered_key=key_memory(services.settings().home).known(ref),
        row_limit=limits.diff_rows,
        max_bytes=limits.diff_max_bytes,
        across_replace=True,
        where=where,
    )
    try:
        if not differences.log_part(lake, question).is_small:
            return None
        return differences.soon(lake, question, _COMPARE_S)
    except LakehouseError:
        return None  # Changes says why, where the link leads
