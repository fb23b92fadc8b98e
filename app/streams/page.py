"""One stream, live: state, key figures, charts, and one chosen list below them.

Rule: everything comes from the store, so the panel is still there after the host is gone.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import lru_cache

import streamlit as st

from app import cache, errors, navigation, services, state, viewer
from app.columns import Columns, Row
from app.streams.acts import (
    MOST_LOG_ENTRIES,
    act_buttons,
    act_dialog,
    blocked_caption,
    checklist,
    operation_log,
    quarantine_row,
    requeue_dialog,
    reset_button,
    reset_dialog,
    start_button,
)
from app.streams.stream_list import say_why_none
from app.streams.text import (
    Versions,
    batch_sentence,
    batches_sentence,
    host_sentence,
    pace_text,
    version_of,
    window_sentence,
)
from app.streams.view import figures
from app.streams.view import lists as view
from app.ui.badges import layer_badge, state_badge
from app.ui.figures import LiveChart, key_figures, live_chart, prepared
from app.ui.lists import ROW_PX, TWO_LINES_PX, choose, show
from app.ui.live import live
from app.ui.states import verdict_text
from app.ui.view.figures import FigureLook
from app.ui.view.theme import FIGURES_KEPT
from app.ui.view.words import markdown_safe, sentence
from backend.errors import LakehouseError, StreamNotFoundError
from backend.format import utc_text
from backend.lake.model import TableRef
from backend.stream_model.backlog import Lag
from backend.stream_model.overrides import overridden_text
from backend.stream_model.progress import MOST_METRICS, ExpectationTotal, observed_metrics, versions_of
from backend.stream_model.rollup import DAY_S, MINUTE_S, MOST_POINTS, Points, plan_grain, points_of, points_over
from backend.stream_model.stream import Progress, Run, StreamDeclaration, StreamFailure, StreamState
from backend.streams.graph import NOT_RUNNING, build_graph
from backend.streams.verdict import StreamStatus, failure_text

WINDOWS_S = {"15 min": 900, "1 h": 3_600, "6 h": 21_600, "24 h": 86_400, "7 d": 604_800, "30 d": 2_592_000}
NARROWEST_CHART_PX = 360  # a title and a legend fit
VIEWS = (
    *("Backlog", "Preflight", "Row expectations", "Metrics", "Batches", "Runs", "Failures", "Operation log"),
    "Declaration",
)
ATTACHED_VIEWS = ("Backlog", "Metrics", "Batches", "Runs", "Failures", "Declaration")  # nobody here starts it
MOST_BATCHES = 200
_TROUBLED = (StreamState.FAILED, StreamState.BACKOFF)


def stream() -> None:
    """The stream that the URL names, or why there is none."""
    reading = cache.streams_reading()
    declared = {status.declaration.name: status.declaration for status in reading.streams}
    chosen = state.stream() or min(declared, default="")
    if reading.problem or not declared:
        st.title(navigation.title("stream"), anchor=False)
        say_why_none(reading)
    elif chosen not in declared:
        st.title(markdown_safe(chosen), anchor=False)
        errors.show(StreamNotFoundError(f"no stream is called {chosen!r}", hint="open one of these"))
        for name in sorted(declared):
            navigation.page_link("stream", name, {state.STREAM: name})
    else:
        state.choose_stream(chosen)
        declaration = declared[chosen]
        st.set_page_config(page_title=f"{chosen} · Weir")
        with st.container(horizontal=True, key="stream_links"):
            navigation.page_link("streams", "All streams")
            st.session_state["stream_switch"] = chosen  # not bound to the URL: links could not set it then
            st.selectbox(
                "Stream",
                sorted(declared),
                key="stream_switch",
                label_visibility="collapsed",
                width=260,
                on_change=lambda: state.choose_stream(st.session_state["stream_switch"]),
            )
            if table := declaration.sink_table or next(iter(declaration.source_tables), None):
                navigation.table_link(table, "Timeline", page="timeline")
        with st.container(horizontal=True, vertical_alignment="center"):
            st.title(markdown_safe(chosen), anchor=False, width="content")
            layer_badge(declaration.layer)
        outside = f"Writes {declaration.writes_to}." if declaration.outside else ""
        st.caption(markdown_safe(" · ".join(filter(None, (declaration.description, outside)))))
        act_dialog()
        requeue_dialog()
        reset_dialog()
        live(lambda: _panel(chosen), key="stream_live")


def _panel(name: str) -> None:
    """The whole live region of one stream."""
    reading = cache.streams_reading()
    status = next((stream for stream in reading.streams if stream.declaration.name == name), None)
    if status is None:
        st.warning(f"**{markdown_safe(name)}** is not declared any more.", icon=":material/help:")
        return
    _state_row(status)
    _neighbours(status, reading)
    cause = next((each for each in reading.streams if each.declaration.name == status.starved_by), None)
    if cause is not None:
        with st.container(horizontal=True, vertical_alignment="center", key="cause"):
            navigation.page_link("stream", cause.declaration.name, {state.STREAM: cause.declaration.name})
            start_button(cause, key="start_cause")
    stale_s = services.settings().host.heartbeat_stale_s
    silent = None
    if not status.declaration.is_attached:
        silent = host_sentence(reading.hosts, now=reading.read_at, stale_s=stale_s)
    _trouble(status, silent)
    window = st.segmented_control(
        "Window", list(WINDOWS_S), default="15 min", required=True, key=state.WINDOW, bind="query-params"
    )
    window = window or "15 min"
    points = stream_points(status.declaration, WINDOWS_S[window])
    totals = points.expectation_totals(status.declaration.expectations)
    key_figures(view.key_figures(status, totals, now=services.now()), key="flow_figures", columns=3)
    quarantine_row(status.declaration)
    runs = status.state not in NOT_RUNNING
    lags = stream_lags(status.declaration, points, WINDOWS_S[window])
    lags = status.backlog.lags_until(lags) if status.backlog else lags
    shaded = " Shaded: it did not run." if (points.bins or lags) and points.outages(runs=runs) else ""
    st.caption(f"{window_sentence(points, window=window)}{shaded}")
    if points.bins or lags:
        entries = services.store().audit_entries(limit=MOST_LOG_ENTRIES, subject=name, with_queries=False)
        acts = view.marks(entries, status.observed.failures if status.observed else ())
        grid = st.grid(2, min_column_width=NARROWEST_CHART_PX, key="charts")
        for chart in _prepared(points, lags, acts, FigureLook(viewer.mode(), viewer.timezone()), runs=runs):
            with grid.cell():
                live_chart(chart)
    _lists(status, totals)


def _state_row(status: StreamStatus) -> None:
    if status.declaration.is_attached:
        _attached_row(status)
        return
    wanted = status.desired.state.value if status.desired else "UNKNOWN"
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute", key="state_row"):
        with st.container(horizontal=True, vertical_alignment="center", width="content", key="states"):
            _named("wanted", wanted, _wanted_help(status))
            host = f"host {status.observed.host_id}" if status.observed else "a host"
            _named("observed", status.state.value, f"What {host} last reported, judged by its heartbeat")
            _named("verdict", status.verdict.value, sentence(status.because))
        with st.container(horizontal=True, width="content", key="acts"):
            act_buttons([status], key="one")
            reset_button(status)
    st.markdown(f"**{markdown_safe(_because(status))}**")
    if status.overrides:
        difference = f"Not as declared: {overridden_text(status.overrides)}."
        st.caption(f":material/tune: {markdown_safe(difference)}", help=markdown_safe(_wanted_help(status)))
    blocked_caption([status])


def _because(status: StreamStatus) -> str:
    """Without the error, where that stands below."""
    failure = status.observed.last_failure if status.observed and status.state in _TROUBLED else None
    return sentence(status.because.replace(failure_text(failure), "", 1) if failure else status.because)


def _neighbours(status: StreamStatus, reading: cache.StreamsReading) -> None:
    """What feeds it, and what it writes and feeds: each a link with its verdict."""
    graph, name = build_graph(reading.streams, {}, now=reading.read_at), status.declaration.name
    nodes, of_name = (
        {node.name: node for node in graph.nodes},
        {each.declaration.name: each for each in reading.streams},
    )
    upstream = [nodes[edge.source] for edge in graph.edges if edge.target == name]
    downstream = [nodes[edge.target] for edge in graph.edges if edge.source == name]
    for label, beside in (("upstream", upstream), ("downstream", downstream)):
        if not beside:
            continue
        with st.container(horizontal=True, vertical_alignment="center", key=label):
            st.caption(label, width="content")
            for node in beside:
                stream = of_name.get(node.name)
                if stream is not None:
                    word = "◌ Starved" if stream.starved_by else verdict_text(stream.verdict)
                    navigation.page_link("stream", f"{node.name} · {word}", {state.STREAM: node.name})
                elif node.table:
                    navigation.table_link(node.table)
                else:
                    st.caption(markdown_safe(node.name), width="content")


def _attached_row(status: StreamStatus) -> None:
    """Of a stream that another application runs: nothing here acts on it."""
    with st.container(horizontal=True, vertical_alignment="center", key="states"):
        _named("observed", status.state.value, "What its application last told, judged by its sign of life")
        _named("verdict", status.verdict.value, sentence(status.because))
    st.markdown(f"**{markdown_safe(_because(status))}**")
    application = markdown_safe(status.declaration.pipeline)
    st.caption(f"The Spark application **{application}** runs it: start and stop it there.")


def _named(word: str, state: str, help_text: str) -> None:
    with st.container(horizontal=True, vertical_alignment="center", width="content", gap="xsmall"):
        st.caption(word, width="content")
        state_badge(state, help=markdown_safe(help_text))


def _wanted_help(status: StreamStatus) -> str:
    wanted = status.desired
    if wanted is None:
        return "Nobody has said what this stream should do."
    return f"{wanted.actor}, {utc_text(wanted.requested_at)}: {wanted.reason}"


def _trouble(status: StreamStatus, silent: str | None) -> None:
    """At most two bands, in one container, so that the rest keeps its place among the elements."""
    failure = status.observed.last_failure if status.observed else None
    with st.container(key="trouble"):
        if silent:
            st.warning(f"{silent} What follows is what it last reported.", icon=":material/cloud_off:")
        if failure and status.state in _TROUBLED:
            batch = f" in batch {failure.batch_id}" if failure.batch_id is not None else ""
            checks = () if status.declaration.is_attached else cache.preflight(status.declaration.name).failed
            causes = "".join(f"{line}\n\n" for line in view.cause_lines(failure, checks))
            st.error(
                f"{causes}**{markdown_safe(failure.error_class)}**{batch}, {utc_text(failure.failed_at)}\n\n"
                f"{markdown_safe(failure.message)}",
                icon=":material/error:",
            )


@lru_cache(FIGURES_KEPT)
def _prepared(
    points: Points, lags: tuple[Lag, ...], acts: figures.Marks, look: FigureLook, *, runs: bool
) -> tuple[LiveChart, ...]:
    """One reading's charts, for all who look at it."""
    drawn = (
        ("rates", "Input and processing rate over time", figures.build_rate_figure),
        ("durations", "Batch duration by phase, with the trigger interval", figures.build_duration_figure),
        ("rows", "Rows per batch over time", figures.build_rows_figure),
        ("watermark", "How far the watermark is behind the clock", figures.build_watermark_figure),
        ("state_rows", "Rows in the state store over time", figures.build_state_figure),
    )
    built = [(key, alt, build(points, look)) for key, alt, build in drawn] if points.bins else []
    waited = figures.build_waited_figure(points, look)
    if len(lags) > 1:
        waited = figures.build_backlog_figure(lags, look)
    built.insert(2, ("backlog", "What waited after each batch, over time", waited))  # beneath the rates
    outages = points.outages(runs=runs)
    return tuple(
        prepared(figures.on_one_axis(figure, points, outages, acts, look), key=key, alt=alt, group="stream")
        for key, alt, figure in built
        if figure is not None
    )


def _lists(status: StreamStatus, totals: list[ExpectationTotal]) -> None:
    lists = ATTACHED_VIEWS if status.declaration.is_attached else VIEWS
    chosen = st.segmented_control(
        "List",
        lists,
        default="Batches" if state.get_str(state.BATCH) else VIEWS[0],
        required=True,
        key=state.VIEW,
        bind="query-params",
        label_visibility="collapsed",
    )
    now = services.now()
    match chosen:
        case "Row expectations":
            alt = "Rows that met and broke each expectation"
            _table(view.build_expectation_columns(now), totals, alt, "This stream declares none.")
        case "Metrics":
            metrics = observed_metrics(status.progress)
            if len(metrics) == MOST_METRICS:
                st.caption(f"The first {MOST_METRICS} are shown.")
            alt = "What the function of this stream observed in its last batch"
            _table(view.METRIC_COLUMNS, metrics, alt, 'Its function observes nothing: `rows.observe("name", …)`.')
        case "Preflight":
            checklist(status.declaration.name)
        case "Batches":
            _batch_list(status.declaration, status.observed.failures if status.observed else ())
        case "Runs":
            runs = stream_runs(status.declaration.name)
            _table(view.build_run_columns(now), runs, "Runs of this stream", "No run has reported progress yet.")
        case "Failures":
            failures = status.observed.failures[::-1] if status.observed else ()  # newest first
            columns, alt = view.build_failure_columns(now), "Failures of this stream"
            _table(columns, failures, alt, "No failure inside the restart window.")
        case "Operation log":
            operation_log(stream=status.declaration.name)
        case "Declaration":
            _declaration(status)
        case _:
            sources, alt = status.backlog.sources if status.backlog else (), "What waits in each source of this stream"
            empty = "This stream reads nothing that can wait."
            _table(view.build_source_columns(now), sources, alt, empty, row_px=TWO_LINES_PX)
    with st.expander("Last progress as Spark reported it", icon=":material/data_object:", key="raw_progress"):
        st.code((status.progress.raw_json if status.progress else "") or "No progress yet.", language="json")


def _batch_list(declared: StreamDeclaration, failures: Sequence[StreamFailure]) -> None:
    """The batch of the URL, if there is one, then those that failed and the newest."""
    versions = batch_versions(declared)
    asked = state.get_int(state.BATCH)
    if asked is not None:
        _one_batch(declared, asked, versions)
    batches = services.store().progress(declared.name, limit=MOST_BATCHES, raw=False)[::-1]
    failed = view.unfinished(batches, failures)
    if not batches and not failed:
        st.info("No batch has been reported yet.", icon=":material/info:")
        return
    st.caption(batches_sentence(batches, versions))
    of_name = {f"{batch.run_id} {batch.batch_id}": batch for batch in batches}
    columns = view.build_batch_columns(versions, failures, services.now())
    names = [*(f"failed {failure.batch_id}" for failure in failed), *of_name]
    alt = "The newest batches of this stream"
    rows: list[Progress | StreamFailure] = [*failed, *batches]
    chosen = choose(columns, rows, key="batches", names=names, alt=alt)
    version = version_of(of_name[chosen], versions) if chosen in of_name else None
    if version is not None:
        navigation.go("changes" if version else "table", _of_version(declared, version))


def _one_batch(declared: StreamDeclaration, number: int, versions: Versions) -> None:
    batch = services.store().batch(declared.name, number)
    version = version_of(batch, versions) if batch else None
    with st.container(horizontal=True, vertical_alignment="center", border=True, key="one_batch"):
        st.markdown(f"**{batch_sentence(number, batch, versions, now=services.now())}**", width="content")
        if version:
            navigation.page_link("changes", "What it changed", _of_version(declared, version))


def _of_version(declared: StreamDeclaration, version: int) -> navigation.Params:
    """Parameters of the page Changes, of Summary for a table's first version."""
    versions = {state.FROM: version - 1, state.TO: version} if version else {state.VERSION: 0}
    return {state.TABLE: declared.sink_table, **versions}


def _declaration(status: StreamStatus) -> None:
    declared = status.declaration
    outside = f" Writes {markdown_safe(declared.writes_to)}." if declared.outside else ""
    st.markdown(f"{markdown_safe(declared.description)}{outside}")
    for table in filter(None, (declared.sink_table, *declared.side_tables)):
        navigation.table_link(table, f"Writes {table}")
    for table in declared.source_tables:
        navigation.table_link(table, f"Reads {table}")
    options = [f"{source.name}: {key}={value}" for source in declared.inputs for key, value in source.options.items()]
    lines = {
        "source": declared.source,
        "options": f"\n{'':<12}".join(options),
        "trigger": pace_text(declared),
        "sink": declared.sink_uri or declared.writes_to,
        "checkpoint": declared.checkpoint_location,
    }
    st.code("\n".join(f"{label:<11} {text}" for label, text in lines.items() if text), language=None)
    if declared.code:
        st.code(declared.code, language="python")


def _table(columns: Columns[Row], rows: Sequence[Row], alt: str, empty: str, *, row_px: int = ROW_PX) -> None:
    if rows:
        show(columns, rows, key="list", alt=alt, row_px=row_px)
    else:
        st.info(empty, icon=":material/info:")


# read of the store and the lake, once for all viewers -----------------------------------------------------------------


RUNS_TTL_S = 10.0
LAGS_TTL_S = 5.0
LONG_TTL_S = 60.0  # of charts over days
MOST_EVENTS = 20_000  # a day of five-second batches and some
COMMITS_SEEN = 400


def stream_points(stream: StreamDeclaration, window_s: int) -> Points:
    """The batches of a stream's last `window_s`, as points of its charts; no older than half a point is wide."""
    now, limits = services.now(), services.settings().store
    grain_s = plan_grain(
        window_s,
        batches_kept_s=limits.progress_retention_days * DAY_S,
        minutes_kept_s=limits.minutes_retention_days * DAY_S,
    )
    age = int(now.timestamp() / min(window_s / (2 * MOST_POINTS), LONG_TTL_S))
    return _stream_points(stream.name, window_s, grain_s, stream.trigger_interval_ms, age, now)


@st.cache_resource(show_spinner=False, max_entries=cache.WINDOWS_KEPT)
def _stream_points(
    name: str, window_s: int, grain_s: int | None, trigger_interval_ms: int, age: int, _now: datetime
) -> Points:
    del age  # a part of the key alone
    since = _now - timedelta(seconds=window_s)
    if grain_s is None:
        events = services.store().progress(name, since=since, limit=MOST_EVENTS, raw=False)
        if len(events) < MOST_EVENTS and not _are_more(name, since, events[0].progressed_at if events else _now):
            return replace(points_of(events, trigger_interval_ms=trigger_interval_ms), since=since, until=_now)
        grain_s = MINUTE_S  # what was read is not all
    rollups = services.store().rollups(name, grain_s=grain_s, since=since)
    points = points_over(rollups, window_s=window_s, grain_s=grain_s, trigger_interval_ms=trigger_interval_ms)
    return replace(points, since=since, until=_now)


def _are_more(name: str, since: datetime, first_at: datetime) -> bool:
    """Whether batches of the window began before the first one that is kept: `store.progress_max_rows` has a limit."""
    if first_at - since < timedelta(seconds=MINUTE_S):
        return False
    return any(minute.first_at < first_at for minute in services.store().rollups(name, grain_s=MINUTE_S, since=since))


def stream_lags(stream: StreamDeclaration, points: Points, window_s: int) -> tuple[Lag, ...]:
    """How far behind a stream was over its last `window_s`, at most about `MOST_POINTS` batches of it, and now; () for
    a window that is not drawn from batches."""
    if points.grain_s is not None:
        return ()
    now = services.now()
    age = int(now.timestamp() / max(LAGS_TTL_S, window_s / MOST_POINTS))
    return _stream_lags(stream.name, window_s, age, points.batches // MOST_POINTS + 1, stream, now)


@st.cache_resource(show_spinner=False, max_entries=cache.WINDOWS_KEPT)
def _stream_lags(
    name: str, window_s: int, age: int, every: int, _stream: StreamDeclaration, _now: datetime
) -> tuple[Lag, ...]:
    del age  # a part of the key alone
    since = _now - timedelta(seconds=window_s)
    batches = services.store().progress(name, since=since, limit=2 * MOST_POINTS, every=every)
    if not batches:
        batches = services.store().progress(name, limit=1)  # what has come since then
    return tuple(lag for lag in cache.backlogs().look(_stream, batches, now=_now).history() if lag.at >= since)


def batch_versions(stream: StreamDeclaration) -> dict[tuple[str, int], int]:
    """The versions that a stream's batches wrote, by query id and batch, among the newest `COMMITS_SEEN` commits."""
    try:
        ref = services.lake().find(stream.sink_table)
        return _batch_versions(ref, services.lake().latest_version(ref))
    except LakehouseError:
        return {}  # it writes elsewhere, or its table cannot be read: no commit is known


@st.cache_data(show_spinner=False, max_entries=cache.FIXED_ENTRIES, hash_funcs=cache.BY_URI)
def _batch_versions(ref: TableRef, latest: int) -> dict[tuple[str, int], int]:
    return versions_of(services.lake().history(ref, limit=COMMITS_SEEN, ending_version=latest))


@st.cache_data(show_spinner=False, ttl=RUNS_TTL_S, max_entries=cache.FIXED_ENTRIES)
def stream_runs(name: str) -> list[Run]:
    """The runs of a stream, newest first; its figures per hour are added up for it."""
    return services.store().runs(name)
