"""The newest batches of a stream; a click leads to what a batch changed in its table."""

import streamlit as st

from app import cache, navigation, services, state
from app.streams.view import batches as view
from app.ui.lists import Look, choose
from backend.stream_model.stream import StreamDeclaration

MOST = 200
BATCHES = Look(
    formats={"Ended": "ago", "Rows read": "count", "Rows written": "count"},
    config={
        "Rows written": st.column_config.TextColumn(help="As the sink says it; Spark's foreachBatch does not"),
        "Commit": st.column_config.TextColumn(help="The version of its table that the batch wrote"),
    },
    alt="The newest batches of this stream",
)


def batch_list(declared: StreamDeclaration) -> None:
    """The batch of the URL, if there is one, then the newest."""
    versions = cache.batch_versions(declared)
    asked = state.whole(state.BATCH)
    if asked is not None:
        _one(declared, asked, versions)
    batches = services.store().progress(declared.name, limit=MOST, raw=False)[::-1]
    if not batches:
        st.info("No batch has been reported yet.", icon=":material/info:")
        return
    st.caption(view.list_sentence(batches, versions))
    names = [f"{batch.run_id} {batch.batch_id}" for batch in batches]
    frame = view.build_batch_frame(batches, versions, now=services.now())
    chosen = choose(frame, BATCHES, key="batches", names=names)
    found = next((batch for batch, name in zip(batches, names, strict=True) if name == chosen), None)
    version = view.version_of(found, versions) if found else None
    if version is not None:
        navigation.go("changes" if version else "table", _of_version(declared, version))


def _one(declared: StreamDeclaration, number: int, versions: view.Versions) -> None:
    batch = services.store().batch(declared.name, number)
    version = view.version_of(batch, versions) if batch else None
    with st.container(horizontal=True, vertical_alignment="center", border=True, key="one_batch"):
        st.markdown(f"**{view.batch_sentence(number, batch, versions, now=services.now())}**", width="content")
        if version:
            navigation.page_link("changes", "What it changed", _of_version(declared, version))


def _of_version(declared: StreamDeclaration, version: int) -> navigation.Params:
    """Parameters of the page Changes, of Summary for a table's first version."""
    versions = {state.FROM: version - 1, state.TO: version} if version else {state.VERSION: 0}
    return {state.TABLE: declared.sink_table, **versions}
