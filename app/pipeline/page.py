"""The graph of what feeds what: its picture, and the same as a list.

Rule: everything comes from the store, so the graph is still there after the host is gone.
"""

from collections.abc import Sequence

import streamlit as st

from app import cache, navigation, services, state, viewer
from app.pipeline import view
from app.pipeline.picture import graph_picture
from app.services import once
from app.ui import lists
from app.ui.figures import key_figures, live_chart, prepared
from app.ui.view.figures import FigureLook
from app.ui.view.words import markdown_safe
from backend.stream_model.stream import Progress
from backend.streams.graph import build_graph
from backend.streams.latency import LayerLatency, Trails, layer_latencies
from backend.streams.status import RecentBatches
from backend.streams.verdict import StreamStatus

ALL = "All"
LATENCY = "Age of the oldest data that has landed and is not in a layer's tables yet, over the last 30 minutes"


def pipeline_graph() -> None:
    """The whole live region."""
    reading = cache.streams_reading()
    if reading.problem:
        problem = markdown_safe(reading.problem)
        st.error(f"**The control store does not answer.** {problem}", icon=":material/error:")
    elif not reading.streams:
        st.info("**No streams: no host has declared any yet.**", icon=":material/account_tree:")
        st.markdown("Declare a pipeline as `docs/pipelines.md` shows, and start its host:")
        st.code("weir up     # UI, host and demo\nweir host   # the host alone", language="bash")
    else:
        chosen = _chosen(reading.streams)
        layers = latencies(tuple(status.declaration.name for status in chosen))
        if layers:
            key_figures(view.build_latency_figures(layers), key="latency")
        _graph(chosen)
        look = FigureLook(viewer.mode(), viewer.timezone())
        if figure := view.build_latency_figure(layers, look):
            live_chart(prepared(figure, key="latency_chart", alt=LATENCY))


def _chosen(statuses: Sequence[StreamStatus]) -> list[StreamStatus]:
    """The streams of the pipeline that the viewer chose, where there are several."""
    names = view.pipelines(statuses)
    if len(names) < 2:
        return list(statuses)
    chosen = st.segmented_control(
        "Pipeline", [ALL, *names], default=ALL, required=True, key=state.PIPELINE, bind="query-params"
    )
    return [status for status in statuses if chosen in (None, ALL, status.declaration.pipeline)]


def _graph(statuses: Sequence[StreamStatus]) -> None:
    recent = recent_batches()
    graph = build_graph(statuses, recent, now=services.now())
    shown = view.boxes(graph, statuses, recent)
    sentence = view.sentence(graph, shown)
    st.markdown(sentence)
    st.caption("Click a node to open its stream or table. Rows per minute are of the last 5 minutes; “–” is unknown.")
    opened = graph_picture(
        view.build_layout(graph, shown),
        view.build_marks(graph, shown, mode=viewer.mode()),
        alt=f"Graph: {sentence} The list below says the same.",
        key="pipeline_picture",
    )
    by_name = {box.node.name: box for box in shown}
    alt = "Sources, streams and tables, and what each reads"
    row = lists.choose(
        view.box_columns(graph), shown, key="pipeline_list", names=list(by_name), row_px=lists.TWO_LINES_PX, alt=alt
    )
    if opened is None and (box := by_name.get(row or "")) and box.page and box.chosen:
        opened = box.page, box.chosen  # the row leads where its node does
    if opened is not None:
        page, name = opened
        navigation.go(page, {state.STREAM if page == "stream" else state.TABLE: name})


@st.cache_resource(show_spinner=False, ttl=cache.RECENT_TTL_S, max_entries=1)
def recent_batches() -> dict[str, list[Progress]]:
    """Each stream's batches of the graph's window."""
    declared = [status.declaration for status in cache.streams_reading().streams]
    return _recent().read(services.store(), declared, now=services.now())


_recent = once(RecentBatches)


def latencies(streams: tuple[str, ...]) -> list[LayerLatency]:
    """How long data takes from where it lands to the layers of these streams; raises `StoreError`."""
    return _latencies(streams, cache.trails())


@st.cache_resource(
    show_spinner=False, max_entries=cache.WINDOWS_KEPT, hash_funcs={Trails: lambda trails: str(trails.read_at)}
)
def _latencies(streams: tuple[str, ...], trails: Trails) -> list[LayerLatency]:
    statuses = [status for status in cache.streams_reading().streams if status.declaration.name in streams]
    return layer_latencies(statuses, trails)
