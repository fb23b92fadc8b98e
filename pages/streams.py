"""Streams: which flow and which do not; start, stop and restart them."""

from datetime import timedelta

import streamlit as st

from app import cache, context, navigation
from app.components.live import live
from app.components.stream_controls import act_buttons, act_dialog, blocked_caption, operation_log
from app.errors import boundary
from app.view.streams import build_stream_frame, by_urgency, host_sentence, summary_sentence

RECENT_S = 300
COLUMNS = {
    "Input": st.column_config.NumberColumn("Input", format="%.3g rows/s", help="Rows per second in the last batch"),
    "Recent input": st.column_config.LineChartColumn("Last 5 min", help="Rows read per batch", y_min=0),
    "Wanted": st.column_config.TextColumn("Wanted", help="What a person asked for"),
    "Observed": st.column_config.TextColumn("Observed", help="What the host last saw"),
    "Stream": st.column_config.TextColumn("Stream", pinned=True),
    "Why": st.column_config.TextColumn("Why", width="large"),
}


def streams_region() -> None:
    reading = cache.streams_reading()
    if reading.problem:
        st.error(f"**The control store does not answer.** {reading.problem}", icon=":material/error:")
        return
    if not reading.streams:
        st.info("**No stream is declared yet.** A stream host declares its streams when it starts:")
        st.code("weir up     # UI, host and demo\nweir host   # the host alone", language="bash")
        return
    silent = host_sentence(reading.hosts, now=reading.read_at, stale_s=context.settings().host.heartbeat_stale_s)
    if silent:
        st.warning(f"{silent} Start one with `weir host`.", icon=":material/cloud_off:")
    statuses = by_urgency(reading.streams)
    st.markdown(summary_sentence(statuses))
    since = context.now() - timedelta(seconds=RECENT_S)
    names = [status.declaration.name for status in statuses]
    recent = {name: [p.num_input_rows for p in context.store().progress(name, since=since)] for name in names}
    picked = st.dataframe(
        build_stream_frame(statuses, now=reading.read_at, recent_rows=recent),
        column_config=COLUMNS,
        hide_index=True,
        on_select="rerun",
        selection_mode=["multi-row", "single-cell"],
        key="stream_list",
        alt="Streams with desired and observed state, verdict and rate",
    ).selection
    if picked.cells:
        row, _ = picked.cells[0]
        navigation.go("stream", stream=names[row])
    chosen = [statuses[row] for row in picked.rows if row < len(statuses)]
    with st.container(horizontal=True, vertical_alignment="center", key="acts"):
        act_buttons(chosen, key="many")
    blocked_caption(chosen)


st.title(navigation.title("streams"), anchor=False)
st.caption("Click a cell to open a stream; tick rows to start, stop or restart them.")
act_dialog()
live(streams_region, key="streams_live")
with boundary():
    st.subheader("Operation log", anchor=False)
    operation_log()
