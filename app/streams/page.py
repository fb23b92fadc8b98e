"""The list of streams with the acts on those that are ticked; and one stream: state, key figures, charts, lists.

Rule: everything comes from the store, so the panel is still there after the host is gone. The browser names a chosen
row by its place, so nothing moves while a row is chosen. Of a live region the elements outside of containers are
always as many: a rerun beside it would miss one.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

import streamlit as st

from app import cache, errors, navigation, services, state, viewer
from app.streams.acts import (
    MOST_LOG_ENTRIES,
    act_button,
    act_buttons,
    act_dialogs,
    blocked_caption,
    checklist,
    operation_log,
    quarantine_row,
    reset_button,
)
from app.streams.text import (
    batch_sentence,
    batches_sentence,
    host_sentence,
    pace_text,
    version_of,
    window_sentence,
)
from app.streams.view import figures
from app.streams.view import lists as view
from app.ui.figures import LiveChart, key_figures, layer_badge, live_chart, prepared, state_badge
from app.ui.lists import ROW_PX, TWO_LINES_PX, chosen_page, show
from app.ui.lists import choose as choose_row
from app.ui.live import live, no_streams
from app.ui.states import by_urgency, observed_of, summary_sentence, verdict_of
from app.ui.view.figures import FigureLook
from app.ui.view.theme import FIGURES_KEPT, state_text
from app.ui.view.words import PAGE_ROWS, markdown_safe, num_pages, page_sentence, sentence
from backend.errors import LakehouseError, StreamNotFoundError
from backend.format import things, utc_text
from backend.lake.model import TableRef
from backend.stream_model.backlog import Lag
from backend.stream_model.overrides import overridden_text
from backend.stream_model.progress import MOST_METRICS, ExpectationTotal, observed_metrics, versions_of
from backend.stream_model.rollup import DAY_S, MINUTE_S, MOST_POINTS, Points, plan_grain, points_of, points_over
from backend.stream_model.stream import Progress, Run, StreamDeclaration, StreamFailure, StreamState
from backend.streams.acts import choose
from backend.streams.graph import NOT_RUNNING, build_graph, in_graph_order
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
RECENT_S = 300
LOG_EVERY_S = 5.0
SCOPE, LIST, SHOWN = "act_scope", "stream_list", "_shown_streams"


def streams() -> None:
    """The list of streams, and what was asked of them."""
    act_dialogs()
    live(_stream_list, key="streams_live")
    st.subheader("Operation log", anchor=False)
    live(operation_log, key="log_live", every_s=LOG_EVERY_S)


def _stream_list() -> None:
    """Every stream, or why there is none."""
    reading = cache.streams_reading()
    if reading.problem or not reading.streams:
        no_streams(reading)
        return
    silent = host_sentence(reading.hosts, now=reading.read_at, stale_s=services.settings().host.heartbeat_stale_s)
    with st.container(key="silent_host"):
        if silent and any(not status.declaration.is_attached for status in reading.streams):
            st.warning(silent, icon=":material/cloud_off:")
    st.markdown(summary_sentence(reading.streams))
    words = ""
    with st.container(key="search"):
        if num_pages(len(reading.streams)) > 1:
            typed = st.text_input(
                "Search", key=state.SEARCH, bind="query-params", live="200ms", width=280, on_change=state.first_page,
                type="search", placeholder="Name, layer, tag, verdict", icon=":material/search:",
            )  # fmt: skip
            words = (typed or "").strip()
    matching = view.matches(reading.streams, words)
    slot = st.container()
    with st.container(key="pages"):
        page = chosen_page(len(matching))
    # Ticks are places in a list: another page, and what else is looked for, are other lists.
    key = LIST if page == 1 and not words else f"{LIST}_{page}_{words}"
    shown = _as_shown(matching, key)[(page - 1) * PAGE_ROWS : page * PAGE_ROWS]
    with slot:
        found = f"{things(len(matching), 'stream')} found. " if words else ""
        how = (
            "Click a cell to open a stream. Tick rows, or choose a layer, a tag or all, to start, stop or restart them."
        )
        st.caption(f"{found}{page_sentence(page, len(matching))} {how}".strip())
        picked = _rows(shown, key, now=reading.read_at)
    names = [status.declaration.name for status in shown]
    with st.container(horizontal=True, vertical_alignment="bottom", key="acts"):
        chosen = _acted_on([names[row] for row in picked if row < len(names)], reading.streams, now=reading.read_at)
        act_buttons(chosen, key="many")
    blocked_caption(chosen)


def _as_shown(streams: Sequence[StreamStatus], key: str) -> list[StreamStatus]:
    """Most urgent first, or as the viewer saw them when a row was chosen."""
    selection = st.session_state.get(key, {}).get("selection", {})
    chosen = selection.get("rows") or selection.get("cells")
    statuses = by_urgency(streams)
    if chosen:
        before = {name: place for place, name in enumerate(st.session_state.get(SHOWN, ()))}
        statuses = sorted(streams, key=lambda status: before.get(status.declaration.name, len(before)))
    st.session_state[SHOWN] = [status.declaration.name for status in statuses]
    return statuses


def _rows(statuses: Sequence[StreamStatus], key: str, *, now: datetime) -> Sequence[int]:
    """A page of the list; the places of the rows that are ticked."""
    names = [status.declaration.name for status in statuses]
    recent = services.store().input_rows(names, since=services.now() - timedelta(seconds=RECENT_S))
    picked = show(
        view.build_stream_columns(now, recent), statuses, key=key, row_px=TWO_LINES_PX,
        alt="Streams with desired and observed state, verdict and rate",
        on_select="rerun", selection_mode=["multi-row", "single-cell"],
    )["selection"]  # fmt: skip
    if picked["cells"]:
        row, _ = picked["cells"][0]
        navigation.go("stream", {state.STREAM: names[row]})
    rows: Sequence[int] = picked["rows"]
    return rows


def _acted_on(ticked: Sequence[str], statuses: Sequence[StreamStatus], *, now: datetime) -> list[StreamStatus]:
    """The ticked streams, or those of the layer or tag that the viewer chose; sources first."""
    offered = view.scopes(statuses)
    if ticked:  # a tick wins, and the choice says so: nobody stops a layer when they mean a row
        st.session_state[SCOPE] = view.TICKED
    how, is_off = "Untick the rows to choose a layer, a tag or all", bool(ticked)
    scope = st.selectbox("Act on", list(offered), key=SCOPE, width=210, help=how, disabled=is_off)
    if selection := offered[scope]:
        return choose(selection, statuses, now=now)
    return [status for status in in_graph_order(statuses, now=now) if status.declaration.name in ticked]


# one stream -----------------------------------------------------------------------------------------------------------


def stream() -> None:
    """The stream that the URL names, or why there is none."""
    reading = cache.streams_reading()
    declared = {status.declaration.name: status.declaration for status in reading.streams}
    chosen = state.stream() or min(declared, default="")
    if reading.problem or not declared:
        st.title(navigation.title("stream"), anchor=False)
        no_streams(reading)
    elif chosen not in declared:
        st.title(markdown_safe(chosen), anchor=False)
        errors.show(StreamNotFoundError(f"no stream is called {chosen!r}", hint="open one of these"))
        for name in sorted(declared):
            navigation.page_link("stream", name, {state.STREAM: name})
    else:
        state.choose_stream(chosen)
        declaration = declared[chosen]
        st.set_page_config(page_title=f"{chosen} · Weir")
        with st.container(horizontal=True, vertical_alignment="center", key="stream_links"):
            navigation.page_link("streams", "All streams")
            st.session_state["stream_switch"] = chosen  # not bound to the URL: links could not set it then
            st.selectbox(
                "Stream", sorted(declared), key="stream_switch", label_visibility="collapsed", width=260,
                on_change=lambda: state.choose_stream(st.session_state["stream_switch"]),
            )  # fmt: skip
            if table := declaration.sink_table or next(iter(declaration.source_tables), None):
                navigation.table_link(table, "Timeline", page="timeline")
        with st.container(horizontal=True, vertical_alignment="center"):
            st.title(markdown_safe(chosen), anchor=False, width="content")
            layer_badge(declaration.layer)
        outside = f"Writes {declaration.writes_to}." if declaration.outside else ""
        st.caption(markdown_safe(" · ".join(filter(None, (declaration.description, outside)))))
        act_dialogs()
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
    _trouble(status, reading)
    window = st.segmented_control(
        "Window", list(WINDOWS_S), default="15 min", required=True, key=state.WINDOW, bind="query-params"
    )
    window = window or "15 min"
    points = stream_points(status.declaration, WINDOWS_S[window])
    totals = points.expectation_totals(status.declaration.expectations)
    key_figures(view.key_figures(status, totals, window=window, now=services.now()), key="flow_figures", columns=3)
    quarantine_row(status.declaration)
    runs = status.state not in NOT_RUNNING
    lags = stream_lags(status.declaration, points, WINDOWS_S[window])
    lags = status.backlog.lags_until(lags) if status.backlog else lags
    shaded = " Shaded: it did not run." if (points.bins or len(lags) > 1) and points.outages(runs=runs) else ""
    st.caption(f"{window_sentence(points, window=window)}{shaded}")
    with st.container(key="charts_or_none"):
        if points.bins or lags:
            entries = services.store().audit_entries(limit=MOST_LOG_ENTRIES, subject=name, acts_only=True)
            acts = view.marks(entries, status.observed.failures if status.observed else ())
            grid = st.grid(2, min_column_width=NARROWEST_CHART_PX, key="charts")
            for chart in _prepared(points, lags, acts, FigureLook(viewer.mode(), viewer.timezone()), runs=runs):
                with grid.cell():
                    live_chart(chart)
    _lists(status, totals)


def _state_row(status: StreamStatus) -> None:
    """What is wanted and observed, the verdict on both, and what may be asked. Nothing here acts on a stream that
    another application runs."""
    is_ours, pipeline = not status.declaration.is_attached, markdown_safe(status.declaration.pipeline)
    wish, who = status.desired, "Nobody has said what this stream should do."
    if wish is not None:
        who = f"{wish.actor}, {utc_text(wish.requested_at)}: {wish.reason}"
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute", key="state_row"):
        with st.container(horizontal=True, vertical_alignment="center", width="content", key="states"):
            host = f"host {status.observed.host_id}" if status.observed else "a host"
            told = f"What {host if is_ours else 'its application'} last reported"
            named = [("observed", observed_of(status), told), ("verdict", verdict_of(status), sentence(status.because))]
            for word, value, help_text in [("wanted", wish.state if wish else "UNKNOWN", who)] * is_ours + named:
                with st.container(horizontal=True, vertical_alignment="center", width="content", gap="xsmall"):
                    st.caption(word, width="content")
                    state_badge(value, help=markdown_safe(help_text))
        with st.container(horizontal=True, width="content", key="acts"):
            if is_ours:
                act_buttons([status], key="one")
                reset_button(status)
    failure = status.observed.last_failure if status.observed and status.state in _TROUBLED else None
    because = status.because.replace(failure_text(failure), "", 1) if failure else status.because  # it stands below
    st.markdown(f"**{markdown_safe(sentence(because))}**")
    with st.container(key="state_notes"):
        if not is_ours:
            st.caption(f"The Spark application **{pipeline}** runs it: start and stop it there.")
            return
        if status.overrides:
            difference = f"Not as declared: {overridden_text(status.overrides)}."
            st.caption(f":material/tune: {markdown_safe(difference)}", help=markdown_safe(who))
        blocked_caption([status])


def _neighbours(status: StreamStatus, reading: cache.StreamsReading) -> None:
    """What feeds it, and what it writes and feeds: each a link with its verdict; and the start of what starves it."""
    graph, name = build_graph(reading.streams, {}, now=reading.read_at), status.declaration.name
    nodes = {node.name: node for node in graph.nodes}
    streams = {each.declaration.name: each for each in reading.streams}
    upstream = [nodes[edge.source] for edge in graph.edges if edge.target == name]
    downstream = [nodes[edge.target] for edge in graph.edges if edge.source == name]
    with st.container(key="neighbours"):
        for label, beside in (("upstream", upstream), ("downstream", downstream)):
            if not beside:
                continue
            with st.container(horizontal=True, vertical_alignment="center", key=label):
                st.caption(label, width="content")
                for node in beside:
                    if stream := streams.get(node.name):
                        word = state_text(verdict_of(stream))
                        navigation.page_link("stream", f"{node.name} · {word}", {state.STREAM: node.name})
                    elif node.table:
                        navigation.table_link(node.table)
                    else:
                        st.caption(markdown_safe(node.name), width="content")
        if cause := streams.get(status.starved_by or ""):
            act_button("start", [cause], key="start_cause", of=cause.declaration.name)


def _trouble(status: StreamStatus, reading: cache.StreamsReading) -> None:
    """At most two bands, in one container, so that the rest keeps its place among the elements."""
    failure = status.observed.last_failure if status.observed else None
    stale_s = services.settings().host.heartbeat_stale_s
    silent = host_sentence(reading.hosts, now=reading.read_at, stale_s=stale_s)
    with st.container(key="trouble"):
        if silent and not status.declaration.is_attached:
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
    with st.container(key="chosen_list"):  # views have more and fewer elements
        match chosen or VIEWS[0]:
            case "Preflight":
                checklist(status.declaration.name)
            case "Batches":
                _batch_list(status.declaration, status.observed.failures if status.observed else ())
            case "Operation log":
                operation_log(stream=status.declaration.name)
            case "Declaration":
                _declaration(status)
            case rows:
                _rows_of(rows, status, totals)
    with st.expander("Last progress as Spark reported it", icon=":material/data_object:", key="raw_progress"):
        st.code((status.progress.raw_json if status.progress else "") or "No progress yet.", language="json")


def _rows_of(chosen: str, status: StreamStatus, totals: list[ExpectationTotal]) -> None:
    now, name = services.now(), status.declaration.name
    failures = status.observed.failures if status.observed else ()
    columns: Any  # of one type of rows each
    rows: Any
    match chosen:
        case "Row expectations":
            columns, rows, empty = view.build_expectation_columns(now), totals, "This stream declares none."
        case "Metrics":
            columns, rows = view.METRIC_COLUMNS, observed_metrics(status.progress)
            empty = 'Its function observes nothing: `rows.observe("name", …)`.'
            if len(rows) == MOST_METRICS:
                st.caption(f"The first {MOST_METRICS} are shown.")
        case "Runs":
            columns, rows, empty = view.build_run_columns(now), stream_runs(name), "No run has reported progress yet."
        case "Failures":  # newest first
            columns, rows, empty = view.build_failure_columns(now), failures[::-1], "No failure in the restart window."
        case _:
            columns, rows = view.build_source_columns(now), status.backlog.sources if status.backlog else ()
            empty = "This stream reads nothing that can wait."
    if rows:
        row_px = TWO_LINES_PX if chosen == "Backlog" else ROW_PX
        show(columns, rows, key="list", alt=f"{chosen} of the stream {name}", row_px=row_px)
    else:
        st.info(empty, icon=":material/info:")


def _batch_list(declared: StreamDeclaration, failures: Sequence[StreamFailure]) -> None:
    """The batch of the URL, if there is one, then those that failed and the newest."""
    versions, asked = batch_versions(declared), state.get_int(state.BATCH)
    if asked is not None:
        batch = services.store().batch(declared.name, asked)
        version = version_of(batch, versions) if batch else None
        with st.container(horizontal=True, vertical_alignment="center", border=True, key="one_batch"):
            st.markdown(f"**{batch_sentence(asked, batch, versions, now=services.now())}**", width="content")
            if version:
                navigation.page_link("changes", "What it changed", _of_version(declared, version))
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
    chosen = choose_row(columns, rows, key="batches", names=names, alt=alt)
    version = version_of(of_name[chosen], versions) if chosen in of_name else None
    if version is not None:
        navigation.go("changes" if version else "table", _of_version(declared, version))


def _of_version(declared: StreamDeclaration, version: int) -> navigation.Params:
    """Parameters of the page Changes, of Summary for a table's first version."""
    versions = {state.FROM: version - 1, state.TO: version} if version else {state.VERSION: 0}
    return {state.TABLE: declared.sink_table, **versions}


def _declaration(status: StreamStatus) -> None:
    declared = status.declaration
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
        first_at = events[0].progressed_at if events else _now
        is_whole = len(events) < MOST_EVENTS
        if is_whole and first_at - since >= timedelta(seconds=MINUTE_S):  # `store.progress_max_rows` is a limit as well
            minutes = services.store().rollups(name, grain_s=MINUTE_S, since=since)
            is_whole = all(minute.first_at >= first_at for minute in minutes)
        if is_whole:
            return replace(points_of(events, trigger_interval_ms=trigger_interval_ms), since=since, until=_now)
        grain_s = MINUTE_S
    rollups = services.store().rollups(name, grain_s=grain_s, since=since)
    points = points_over(rollups, window_s=window_s, grain_s=grain_s, trigger_interval_ms=trigger_interval_ms)
    return replace(points, since=since, until=_now)


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
        ref = viewer.lake().find(stream.sink_table)
        return _batch_versions(ref, viewer.lake().latest_version(ref))
    except LakehouseError:
        return {}  # it writes elsewhere, or its table cannot be read: no commit is known


@st.cache_data(show_spinner=False, max_entries=cache.FIXED_ENTRIES, hash_funcs=cache.BY_URI)
def _batch_versions(ref: TableRef, latest: int) -> dict[tuple[str, int], int]:
    return versions_of(viewer.lake().history(ref, limit=COMMITS_SEEN, ending_version=latest))


@st.cache_data(show_spinner=False, ttl=RUNS_TTL_S, max_entries=cache.FIXED_ENTRIES)
def stream_runs(name: str) -> list[Run]:
    """The runs of a stream, newest first; its figures per hour are added up for it."""
    return services.store().runs(name)
