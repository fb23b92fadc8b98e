"""Overview: is anything wrong, and where? What needs attention, then tables by layer, then streams; kept fresh."""

from collections.abc import Sequence

import streamlit as st

from app import cache, errors, navigation, services, state
from app.overview import view
from app.overview import widgets as overview
from app.streams.view.streams import by_urgency
from app.ui import lists
from app.ui.figures import key_figures
from app.ui.frame import empty_lake
from app.ui.lake import Table, lake_totals
from app.ui.live import live_lake, reading_progress
from app.ui.states import summary_sentence
from app.ui.view.words import markdown_safe
from backend.errors import LakehouseError
from backend.health.model import AttentionGroup

MOST_ROWS = 50
# Side by side where both fit, else one below the other.
_LISTS = """<style>.st-key-overview_lists { display: flex; flex-wrap: wrap; }
.st-key-overview_lists > .stGridCell { flex: 3 1 500px; min-width: 0; }
.st-key-overview_lists > .stGridCell:last-child { flex: 2 1 350px; }
.st-key-visit { position: absolute; height: 0; overflow: hidden; }</style>"""


def region() -> None:
    now, streams = services.now(), cache.streams_reading()
    try:
        reading, lake_error = cache.lake_reading(), None
        reading_progress(reading)
    except LakehouseError as exc:
        reading, lake_error = None, exc
    tables = view.by_layer(reading.tables) if reading else []
    groups, noticed = cache.attention(reading, streams), cache.noticed(streams)
    partial = reading is not None and (not reading.is_complete or noticed.is_partial)
    totals = lake_totals(tables) if tables or (reading and reading.is_complete) else None
    key_figures(view.key_figures(totals, streams.streams), key="overview_figures")
    if lake_error:
        errors.show(lake_error)
    unknown = [name for name, bad in (("tables", lake_error), ("streams", streams.problem)) if bad]
    st.subheader(view.attention_sentence(groups, unknown, partial=partial), anchor=False)
    judged = "" if unknown or partial else view.judged_sentence(len(tables), len(streams.streams), streams.judgements)
    overview.attention_list(groups, now, judged=judged)
    slot = st.empty()  # always there, as that of `reading_progress`
    if looked := view.looked_sentence(noticed):
        slot.caption(looked)
    if not unknown and not partial:
        overview.since_last_visit(len(tables), groups, now)
    st.html(_LISTS)
    grid = st.grid(2, key="overview_lists")
    with grid.cell():
        st.subheader("Tables", anchor=False)
        if tables:
            table_list(tables, groups)
        elif not lake_error and not partial:
            empty_lake()
    with grid.cell():
        st.subheader("Streams", anchor=False)
        stream_list(streams)


def table_list(tables: list[Table], groups: Sequence[AttentionGroup]) -> None:
    if len(tables) > MOST_ROWS:
        cut = f"{MOST_ROWS} of {len(tables):,}: those in trouble, then the stalest. "
        tables = view.most_troubled(tables, groups, MOST_ROWS)
    else:
        cut = ""
    st.caption(f"{cut}Click a row to open the table.")
    names = [table.ref.name for table in tables]
    look = lists.with_small_files(overview.TABLES, width=overview.SMALL_FILES_PX)
    name = lists.choose(view.tables_frame(tables, services.now()), look, key="overview_tables", names=names)
    if cut:
        navigation.page_link("tables", "All tables")
    if name is not None:
        navigation.go("table", {state.TABLE: name})


def stream_list(reading: cache.StreamsReading) -> None:
    if reading.problem:
        what = "**The control store does not answer, so streams are not known.**"
        st.error(f"{what} {markdown_safe(reading.problem)}", icon=":material/error:")
    elif reading.streams:
        streams, cut = by_urgency(reading.streams), ""
        if len(streams) > MOST_ROWS:
            streams, cut = streams[:MOST_ROWS], f"{MOST_ROWS} of them: those in trouble first. "
        st.caption(f"{summary_sentence(reading.streams)}. {cut}Click a row to open the stream.")
        names = [status.declaration.name for status in streams]
        frame = view.streams_frame(streams, services.now())
        name = lists.choose(frame, overview.STREAMS, key="overview_streams", names=names)
        if cut:
            navigation.page_link("streams", "All streams")
        if name is not None:
            navigation.go("stream", {state.STREAM: name})
    else:
        what = "**No stream is declared yet.** A stream host declares the streams it can run:"
        st.info(what, icon=":material/water:")
        st.code("weir host", language="bash")


state.keep_only()
st.title("Overview", anchor=False)
live_lake(region)
