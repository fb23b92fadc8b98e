"""Overview: is anything wrong, and where? What needs attention, then tables by layer, then streams."""

import streamlit as st

from app import cache, context, errors, navigation
from app.components import lists, overview
from app.components.frame import empty_lake
from app.view import overview as view
from backend.errors import LakehouseError
from backend.health.attention import AttentionRules, attention

now, streams = context.now(), cache.streams_reading()
try:
    tables = view.by_layer(cache.lake_reading().tables)
    lake_error = None
except LakehouseError as exc:
    tables, lake_error = [], exc
items = attention(tables, streams.streams, streams.hosts, now=now, rules=AttentionRules.of(context.settings()))

st.title("Overview", anchor=False)
overview.key_figures(view.lake_totals(tables), streams.streams)
if lake_error:
    errors.show(lake_error)

st.subheader(view.attention_sentence(items), anchor=False)
overview.attention_list(items, now)

st.subheader("Tables", anchor=False)
if tables:
    st.caption(f"{view.totals_sentence(view.lake_totals(tables))}. Click a row to open the table.")
    row = lists.choose(view.tables_frame(tables, now), overview.TABLES, key="overview_tables")
    if row is not None:
        navigation.go("table", table=tables[row].ref.name)
elif not lake_error:
    empty_lake()

st.subheader("Streams", anchor=False)
if streams.problem:
    st.error(
        f"**The control store does not answer, so streams are not known.** {streams.problem}", icon=":material/error:"
    )
elif streams.streams:
    st.caption(f"{view.streams_sentence(streams.streams)}. Click a row to open the stream.")
    row = lists.choose(view.streams_frame(streams.streams, now), overview.STREAMS, key="overview_streams")
    if row is not None:
        navigation.go("stream", stream=streams.streams[row].declaration.name)
else:
    st.info("**No stream is declared yet.** A stream host declares the streams it can run:", icon=":material/water:")
    st.code("weir host", language="bash")
