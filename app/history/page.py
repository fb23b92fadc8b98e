"""The history page: the figure over versions, filters, the list of commits, and what the chosen ones lead to.

Rule: everything chosen is in the URL; list and figure only write it there. The newest page reads its own commits and no
others; how far a filter looked back is said, and to look further is asked for. What the writer left is shown beside
what Weir makes of it, and never replaced by it.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import streamlit as st

from app import cache, errors, navigation, services, state, viewer
from app.columns import Columns
from app.history import view
from app.ui import figures, lists
from app.ui.lake import OpenTable
from app.ui.view.acts import act_of
from app.ui.view.commits import TABLE_CHANGES, changes_sentence, commit_columns, staged_sentence, stream_text
from app.ui.view.figures import HEIGHT_PX, TABLE_NUMBERS, TABLE_SERIES, jump_text, series_figure, table_points
from app.ui.view.theme import operation_style, operation_text
from app.ui.view.words import PAGE_ROWS, markdown_safe
from app.ui.work import spinner
from backend.errors import VersionFormatError
from backend.format import ago, count_text, moment_help, things
from backend.lake.history.history import HistoryFilter, LookBack, choices, look_back, stream_of
from backend.lake.history.timeline import unusual_jumps
from backend.lake.model import Commit, TableRef
from backend.lake.table.metadata_diff import load_metadata_changes
from backend.sql.values import quoted_name
from backend.times import FORMS, parse_time

# query parameter → label, and the field of `HistoryFilter` with what occurs
GROUPS = {
    state.OPERATION: ("Operation", "operations"),
    state.USER: ("User", "users"),
    state.ENGINE: ("Engine", "engines"),
    state.WRITTEN_BY: ("Stream", "streams"),
}
MOST_LOOK = 1_000_000
_LISTED = "_listed_versions"
_CHART = "history_chart"
# As high with links as without, which need two lines in a narrow window.
_BAR = """<style>.st-key-chosen_bar { min-height: 68px }
@media (max-width: 1000px) { .st-key-chosen_bar { min-height: 106px } }</style>"""


def history(opened: OpenTable) -> None:
    """The figure over versions, and the list of commits below it."""
    figure = st.container(key="history_figure")
    with errors.boundary():
        _commits(opened.ref, opened.latest_version)  # first: it reads a page of commits, the figure all
    with figure, errors.boundary():
        _chart(opened)


def commits_alone(ref: TableRef) -> None:
    """The commits of a table whose state cannot be read."""
    latest = viewer.lake().latest_version(ref)
    st.caption("Its history can still be read:")
    if staged := viewer.lake().staged_versions(ref):
        st.info(staged_sentence(staged), icon=":material/pending:")
    _commits(ref, latest)


def _chart(opened: OpenTable) -> None:
    """Rows, files or size over versions; a click on a point opens its commit."""
    chosen = st.segmented_control(
        "Over versions", list(TABLE_NUMBERS), default="Rows", required=True, key=state.FIGURE, bind="query-params"
    )
    slot = st.container(height=HEIGHT_PX, border=False)  # the list below keeps its place
    with slot, spinner("Reading every version …", of=f"timeline {opened.ref.uri}"):
        timeline = viewer.lake().timeline(opened.ref)
    name = chosen or "Rows"
    jumps = tuple(unusual_jumps(timeline.totals)) if name == "Rows" else ()
    points, series = table_points(timeline.totals, TABLE_NUMBERS[name]), TABLE_SERIES[TABLE_NUMBERS[name]]
    figure = series_figure(points, timeline.totals, series, jumps=jumps, mode=viewer.mode(), zone=viewer.timezone())

    def on_select() -> None:
        points: Sequence[Any] = st.session_state[_CHART].get("selection", {}).get("points", [])
        choose_versions([int(data[0]) for point in points if (data := point.get("customdata"))])

    with slot:
        figures.chart(figure, key=_CHART, on_select=on_select)
    for jump in jumps:  # an unusual change of rows, and the two questions that it raises
        before = jump.version - 1
        with st.container(horizontal=True, vertical_alignment="center", key=f"jump_{jump.version}"):
            operation = markdown_safe(operation_text(jump.operation))
            st.markdown(f":material/warning: **v{jump.version}** {operation}: {jump_text(jump)}.", width="content")
            params = {state.FROM: before, state.TO: jump.version}
            navigation.table_link(opened.ref.name, f"Changes v{before} → v{jump.version}", params, page="changes")
            navigation.table_link(opened.ref.name, "First bad version", {state.GOOD: before}, page="bisect")
    if note := view.drawn_sentence(timeline, points):
        st.caption(note)


def _commits(ref: TableRef, latest: int) -> None:
    """The list a page at a time, what the chosen commits lead to, and one in full. Needs the log alone: a table whose
    state cannot be read still has its history."""
    streams, chosen = cache.stream_names(), chosen_versions()
    spans = viewer.lake().versions(ref)
    first = spans[0][0] if spans else 0  # where no version can be reconstructed, all that are there
    above = st.container(key="commit_list")
    with above:
        filtering, dimmed = _switches(ref)
        if filtering:
            fitting, run = _filtered(ref, first, latest, streams)
    total = len(fitting) if filtering else latest - first + 1
    start = (lists.chosen_page(total) - 1) * PAGE_ROWS
    if filtering:
        commits = fitting[start : start + PAGE_ROWS]
    else:  # one page of all commits: nothing else of the log is read
        commits = run = viewer.lake().history(ref, limit=PAGE_ROWS, ending_version=latest - start)
    with above:
        if commits:
            words = markdown_safe(f"{view.history_sentence(commits, total)}.")
            st.caption(f"Listed: {words}" if filtering else words)
        elif filtering:
            words = "**No commit that was looked at fits.** Look further or clear a filter."
            st.info(words, icon=":material/filter_alt:")
        else:
            st.info("**No commit is left in the log.**", icon=":material/history:")
        _chosen_bar(ref, chosen, streams)
        if commits:
            changes = load_metadata_changes(viewer.lake(), ref, run)
            _list(commits, commit_columns(services.now(), streams, changes), dimmed=dimmed)
    if len(chosen) == 1:
        with errors.boundary():
            _detail(ref, chosen[0])


def _switches(ref: TableRef) -> tuple[bool, bool]:
    """Whether to filter, which a link with a filter turns on, and whether to dim; and the commits as a table to ask."""
    with st.container(horizontal=True, vertical_alignment="center", key="history_switches"):
        if state.FILTER not in st.session_state and any(map(state.get_str, (*GROUPS, state.SINCE, state.UNTIL))):
            st.session_state[state.FILTER] = True
        label = "Filter by time, operation or writer"
        filtering = st.toggle(label, key=state.FILTER, bind="query-params", on_change=state.first_page)
        help_text = "Greys out OPTIMIZE, VACUUM and the like, which change no row."
        dimmed = st.toggle("Dim maintenance", value=True, key=state.DIM, bind="query-params", help=help_text)
        st.space("stretch")
        history = quoted_name(f"{ref.name}$history")
        navigation.query_link(f"SELECT version, timestamp, operation, user_name, stream FROM {history} ORDER BY 1 DESC")
    return filtering, dimmed


def _list(commits: Sequence[Commit], columns: Columns[Commit], *, dimmed: bool) -> None:
    versions, chosen = [commit.version for commit in commits], chosen_versions()
    st.session_state[_LISTED] = versions
    muted = [row for row, commit in enumerate(commits) if dimmed and view.is_maintenance(commit.operation)]
    # The key holds what is listed: a new commit on top must not move the selection to its neighbour.
    key = f"commits_{versions[0]}_{versions[-1]}_{len(versions)}"
    rows = sorted(versions.index(version) for version in chosen if version in versions)
    if rows != sorted(st.session_state.get(key, {}).get("selection", {}).get("rows", [])):
        st.session_state[key] = {"selection": {"rows": rows}}  # a point of the figure was clicked, or the bar cleared

    def on_select() -> None:
        listed = st.session_state[_LISTED]
        ticked = st.session_state[key].get("selection", {}).get("rows", [])
        choose_versions([listed[row] for row in ticked if row < len(listed)])

    lists.show(
        columns, commits, key=key, alt="Commits, newest first", muted=muted, on_select=on_select,
        selection_mode="multi-row",
    )  # fmt: skip


# filters: only the newest commits are looked at until a person asks for more ------------------------------------------


def _filtered(
    ref: TableRef, first: int, latest: int, streams: Mapping[str, str]
) -> tuple[Sequence[Commit], Sequence[Commit]]:
    """Draws the filters; returns what fits, and the run of commits that was looked at. Raises `VersionFormatError` for
    a time that is none."""
    row = st.container(horizontal=True, vertical_alignment="bottom", key="history_filters")
    with row:
        since, until = _times()
    newest = latest if until is None else viewer.lake().version_at(ref, until)
    look, total = LookBack((), is_whole=True), 0
    if newest is not None and newest >= first:
        total = newest - first + 1
        most = min(max(state.get_int(state.LOOK) or 0, view.LOOK), MOST_LOOK)
        bar = st.empty()

        def progress(number: int) -> None:
            if number < min(most, total):
                bar.progress(number / most, f"Looked at {number:,} of {most:,} commits …")

        look = look_back(viewer.lake(), ref, newest=newest, most=most, since=since, progress=progress)
        bar.empty()
    offered = choices(look.looked_at, streams)
    with row:
        for key, (label, field) in GROUPS.items():
            _group(key, label, getattr(offered, field))
    groups: dict[str, Any] = {field: frozenset(_chosen_in(key)) for key, (_, field) in GROUPS.items()}
    wanted = HistoryFilter(since=since, until=until, names=streams, **groups)
    fitting = look.matching(wanted)
    with st.container(horizontal=True, vertical_alignment="center", key="looked"):
        st.caption(view.looked_sentence(len(fitting), look, total, wanted), width="content")
        if not look.is_whole:
            further = {state.LOOK: len(look.looked_at) + view.LOOK}
            st.button("Look further", key="look_further", type="tertiary", on_click=state.set_params, args=(further,))
        if not wanted.is_empty:
            st.button("Clear filters", key="clear_filters", type="tertiary", on_click=_clear)
    return fitting, look.looked_at


def _chosen_in(key: str) -> list[str]:
    """What the URL chooses in a group."""
    return list(dict.fromkeys(text for text in state.get_strs(key) if text))


def _times() -> tuple[datetime | None, datetime | None]:
    moments = list[datetime | None]()
    for key, label, is_end in ((state.SINCE, "Since", False), (state.UNTIL, "Until", True)):
        text = st.text_input(
            label, key=key, bind="query-params", placeholder="any time", width=150, help=f"A time is {FORMS}.",
            on_change=state.first_page,
        )  # fmt: skip
        try:
            moments.append(parse_time(text, viewer.clock(), end_of_day=is_end) if text else None)
        except VersionFormatError as exc:
            errors.show(exc)
            st.stop()
    return moments[0], moments[1]


def _group(key: str, label: str, occurring: Mapping[str, int]) -> None:
    chosen, widget = _chosen_in(key), f"pick_{key}"
    offered = [*occurring, *(name for name in chosen if name not in occurring)]  # most frequent first

    def on_change() -> None:
        state.set_params({key: st.session_state[widget]})
        state.first_page()

    st.session_state[widget] = chosen  # links and the back button change the URL behind the widget
    st.multiselect(
        label, offered, key=widget, width=220, on_change=on_change,
        format_func=lambda name: f"{name} · {count_text(occurring.get(name, 0))}",
        placeholder="any" if occurring else "none occurs", disabled=not occurring and not chosen,
    )  # fmt: skip


def _clear() -> None:
    state.set_params(dict.fromkeys(GROUPS))
    st.session_state[state.SINCE] = st.session_state[state.UNTIL] = ""
    state.first_page()


# the commits that are chosen ------------------------------------------------------------------------------------------


def chosen_versions() -> list[int]:
    """The versions in the URL, lowest first, at most two."""
    return sorted(set(state.get_ints(state.COMMIT)))[:2]


def choose_versions(versions: Sequence[int]) -> None:
    """Writes the chosen versions into the URL: the first and last of more than two."""
    state.set_params({state.COMMIT: sorted({min(versions), max(versions)}) if versions else None})


def _chosen_bar(ref: TableRef, chosen: Sequence[int], streams: Mapping[str, str]) -> None:
    """What was ticked and where it leads, in one line above the list that is there from the start: no tick moves it."""
    st.html(_BAR)
    with st.container(border=True, horizontal=True, vertical_alignment="center", key="chosen_bar"):
        if not chosen:
            st.caption("Tick a commit, or click a point above, for its detail. Tick two to compare them.")
            return
        if len(chosen) == 2:
            older, newer = chosen
            st.markdown(f"**v{older} → v{newer}** · {things(newer - older, 'commit')} apart", width="content")
            st.space("stretch")
            label = f"Changes from v{older} to v{newer}"
            navigation.table_link(ref.name, label, {state.FROM: older, state.TO: newer}, page="changes")
            params = {state.VERSION: newer, state.COMPARE: older}
            navigation.table_link(ref.name, "Properties of both", params, page="properties")
        else:
            with errors.boundary():
                _head(ref, chosen[0], streams)
        st.button(
            "Clear" if len(chosen) == 2 else "Close", key="clear_commits", icon=":material/close:", type="tertiary",
            on_click=choose_versions, args=([],),
        )  # fmt: skip


def _detail(ref: TableRef, version: int) -> None:
    """One commit in full, below the list."""
    commit = _commit(ref, version)
    if commit is None:
        return
    with st.container(border=True, key="commit_detail"):
        st.markdown(f"**v{version}** in full")
        if job := act_of(commit):
            navigation.page_link("acts", "Who asked for it, and the proof", {state.ACT: job})
        if changes := load_metadata_changes(viewer.lake(), ref, [commit]).get(version, ()):
            st.markdown(f"**Changed of the table itself** · {changes_sentence(changes)}")
            lists.show(TABLE_CHANGES, changes, key="table_changes", alt="What this commit changed of the table")
        left, right = st.columns(2)
        with left:
            lists.facts(view.commit_facts(commit))
        with right:
            lists.facts(view.metrics_facts(commit.metrics) or {"Metrics": "the commit says none"})
        folded = {"Parameters": commit.parameters, "Metrics as the writer left them": commit.raw_metrics}
        for title, values in folded.items():
            if values:
                with st.expander(f"{title} ({count_text(len(values))})", key=f"fold_{title}"):
                    lists.show(view.NAME_AND_VALUE, list(values.items()), key=f"values_{title}", alt=title)


def _commit(ref: TableRef, version: int) -> Commit | None:
    commits = viewer.lake().history(ref, limit=1, starting_version=version, ending_version=version)
    return commits[0] if commits else None


def _head(ref: TableRef, version: int, streams: Mapping[str, str]) -> None:
    commit = _commit(ref, version)
    if commit is None:
        st.markdown(f"**v{version} is not in the log** (any more).", width="content")
        st.space("stretch")
        return
    style, now = operation_style(commit.operation, viewer.mode()), services.now()
    who = stream_text(commit, streams) or commit.user
    by = f" · {markdown_safe(who)}" if who else ""
    st.markdown(
        f"{style.glyph} **v{commit.version} · {markdown_safe(commit.operation or 'operation not named')}**{by} · "
        f"{ago(commit.committed_at, now)}",
        help=moment_help(commit.committed_at, viewer.timezone()),
        width="content",
    )
    st.space("stretch")
    name = stream_of(commit, streams)
    if commit.origin and name in {status.declaration.name for status in cache.streams_reading().streams}:
        batch = commit.origin.batch_id
        label = f"Stream {name}" + (f", batch {batch}" if batch is not None else "")
        navigation.page_link("stream", label, {state.STREAM: name, state.BATCH: batch})
    navigation.table_link(ref.name, f"Table at v{commit.version}", {state.VERSION: commit.version})
    if commit.version:
        params = {state.FROM: commit.version - 1, state.TO: commit.version}
        navigation.table_link(ref.name, "What it changed", params, page="changes")
