"""Streams: which flow and which do not; start, stop and restart them."""

from datetime import timedelta

import streamlit as st

from app import cache, context, navigation
from app.components.lists import Look, height, styled
from app.components.live import live
from app.components.stream_controls import act_buttons, act_dialog, blocked_caption, operation_log
from app.errors import boundary
from app.view.format import UNKNOWN
from app.view.streams import build_stream_frame, by_urgency, cell_colour, host_sentence, summary_sentence

RECENT_S = 300
STREAMS = Look(
    formats={"Rows in": "rate", "Last batch": "ago"},
    config={
        "Stream": st.column_config.TextColumn(pinned=True),
        "Wanted": st.column_config.TextColumn(help="What a person asked for"),
        "Observed": st.column_config.TextColumn(help="What the host last saw"),
        "Rows in": st.column_config.TextColumn(help="Rows per second in the last batch, while it runs"),
        "Last 5 min": st.column_config.LineChartColumn(help="Rows read per batch", y_min=0),
        "Last batch at": st.column_config.TextColumn(help="End of the last batch, exact"),
    },
    layer_column="Layer",
)


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
    frame = build_stream_frame(statuses, now=reading.read_at, recent_rows=recent)
    picked = st.dataframe(
        styled(frame, STREAMS).map(cell_colour, mode=context.mode(), subset=["Verdict", "Wanted", "Observed"]),
        column_config=dict(STREAMS.config),
        hide_index=True,
        placeholder=UNKNOWN,
        height=height(frame),
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
