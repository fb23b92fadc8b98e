"""Overview: is anything wrong, and where? What needs attention, then tables by layer, then streams; kept fresh."""

import streamlit as st

from app import cache, context, errors, navigation
from app.components import lists, overview
from app.components.frame import empty_lake
from app.view import overview as view
from backend.errors import LakehouseError
from backend.health.attention import AttentionRules, attention

EVERY_S = 5


def region() -> None:
    now, streams = context.now(), cache.streams_reading()
    try:
        tables = view.by_layer(cache.lake_reading().tables)
        lake_error = None
    except LakehouseError as exc:
        tables, lake_error = [], exc
    rules = AttentionRules.of(context.settings())
    items = attention(tables, streams.streams, streams.hosts, now=now, rules=rules)
    overview.key_figures(view.lake_totals(tables), streams.streams)
    if lake_error:
        errors.show(lake_error)
    unknown = [name for name, bad in (("tables", lake_error), ("streams", streams.problem)) if bad]
    st.subheader(view.attention_sentence(items, unknown), anchor=False)
    judged = "" if unknown else view.judged_sentence(len(tables), len(streams.streams))
    overview.attention_list(items, now, judged=judged)
    st.subheader("Tables", anchor=False)
    if tables:
        table_list(tables)
    elif not lake_error:
        empty_lake()
    st.subheader("Streams", anchor=False)
    stream_list(streams)


def table_list(tables: list[view.Table]) -> None:
    st.caption(f"{view.totals_sentence(view.lake_totals(tables))}. Click a row to open the table.")
    names = [table.ref.name for table in tables]
    name = lists.choose(view.tables_frame(tables, context.now()), overview.TABLES, key="overview_tables", names=names)
    if name is not None:
        navigation.go("table", table=name)


def stream_list(reading: cache.StreamsReading) -> None:
    if reading.problem:
        what = "**The control store does not answer, so streams are not known.**"
        st.error(f"{what} {reading.problem}", icon=":material/error:")
    elif reading.streams:
        st.caption(f"{view.streams_sentence(reading.streams)}. Click a row to open the stream.")
        frame = view.streams_frame(reading.streams, context.now())
        names = [status.declaration.name for status in reading.streams]
        name = lists.choose(frame, overview.STREAMS, key="overview_streams", names=names)
        if name is not None:
            navigation.go("stream", stream=name)
    else:
        what = "**No stream is declared yet.** A stream host declares the streams it can run:"
        st.info(what, icon=":material/water:")
        st.code("weir host", language="bash")


st.title("Overview", anchor=False)
st.fragment(region, run_every=EVERY_S)()
