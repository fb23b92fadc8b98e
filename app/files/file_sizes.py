"""The sizes of a version's files: at once what the writer's checksum says, then Weir's own count.

Rule: the two never stand beside each other, and where they disagree the page says so.
"""

import streamlit as st

from app import cache, context
from app.files.view import checksum as view
from app.files.view import distribution as files_view
from app.ui.figures import figure_row
from app.ui.format import bytes_exact, bytes_text, count_exact, count_text, markdown_safe
from app.ui.frame import OpenTable
from backend.lake.files.file_sizes import FileDistribution
from backend.lake.log.checksum import Checksum

MANY_FILES = 100_000  # below, counting is as fast as drawing
_COUNTED = "_files_counted"  # what this viewer saw counted last: it comes at once, and needs no preview


def counted(opened: OpenTable) -> FileDistribution:
    """The distribution of the version, exact; while it is counted the page shows what the checksum says."""
    snapshot = opened.snapshot
    said = context.lake().checksum(opened.ref, snapshot.version)
    if said is None or said.buckets is None:
        return cache.distribution(snapshot)
    key = (snapshot.ref.uri, snapshot.metadata.id, snapshot.version)
    place = st.empty()
    if said.num_files >= MANY_FILES and st.session_state.get(_COUNTED) != key:
        with place.container(key="files_preview"):
            _preview(said, opened)
    found = cache.distribution(snapshot)
    place.empty()
    st.session_state[_COUNTED] = key
    words = view.disagreement(said, found, snapshot.version)
    if words:
        st.warning(markdown_safe(words), icon=":material/warning:")
    return found


def _preview(said: Checksum, opened: OpenTable) -> None:
    with figure_row("preview_figures"):
        st.metric("Files", count_text(said.num_files), help=f"{count_exact(said.num_files)} files", border=True)
        st.metric("Size", bytes_text(said.size_bytes), help=bytes_exact(said.size_bytes), border=True)
    found = view.as_distribution(said, opened.snapshot, context.settings().health)
    title = view.preview_title(said)
    figure = files_view.distribution_figure(found, mode=context.mode(), title=title)
    st.plotly_chart(figure, theme=None, key="preview_chart", config={"displayModeBar": False}, alt=title)
    source = view.source_sentence(opened.snapshot.version)
    st.caption(f"{source} Partitions and small files come with the count of the log …")
