"""Widgets of the history page: the figure over versions and the list of commits.

Rule: the newest page reads its own commits and no others; how far a filter looked back is said, and to look further
is asked for.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import streamlit as st

from app import cache, errors, navigation, services, state, viewer
from app.history import filters as history_filters
from app.history.commit_detail import choose, chosen_bar, chosen_versions, detail
from app.history.filters import LogRange
from app.history.view import commits as view
from app.history.view.figure import FIGURES, drawn_sentence, history_figure, jump_text
from app.ui import figures, lists
from app.ui.lake import OpenTable
from app.ui.view.commits import staged_sentence
from app.ui.view.figures import HEIGHT_PX
from app.ui.view.theme import SURFACES, operation_text
from app.ui.view.words import PAGE_ROWS, markdown_safe
from app.ui.work import spinner
from backend.lake.history.timeline import Jump, unusual_jumps
from backend.lake.model import Commit, TableRef
from backend.lake.table.metadata_diff import load_metadata_changes
from backend.sql.values import quoted_name

_LISTED = "_listed_versions"
_CHART = "history_chart"
COMMITS = lists.Look(
    formats={"Version": "exact", "When": "ago"},
    config={
        "Version": st.column_config.NumberColumn(format="v%d", pinned=True),
        "Who": st.column_config.TextColumn(width=170, help="The stream and its batch, else the user."),
        "Rows": st.column_config.TextColumn(width=110, help="Inserted +, updated ~, deleted −, as the commit says."),
        "Files": st.column_config.TextColumn(width=125, help="Added +, removed −."),
        "Bytes": st.column_config.TextColumn(width=125),
        "Operation": st.column_config.TextColumn(width=165),
        "Changed": st.column_config.TextColumn(
            width="medium", help="What the commit changed of the table itself: columns, properties, protocol."
        ),
        "Note": st.column_config.TextColumn(help="User metadata of the commit, or what is wrong with its entry."),
        "Committed at": st.column_config.TextColumn(help="Exact, UTC."),
    },
    alt="Commits, newest first",
)


@dataclass(frozen=True, slots=True)
class Listed:
    """The commits of a page, the unbroken run they were taken from, and how many there are on all pages."""

    commits: Sequence[Commit]
    run: Sequence[Commit]
    total: int


def chart(opened: OpenTable) -> None:
    """Rows, files or size over versions; a click on a point opens its commit."""
    names = list(FIGURES)
    chosen = st.segmented_control(
        "Over versions",
        names,
        default="Rows",
        required=True,
        key=state.FIGURE,
        bind="query-params",
    )
    slot = st.container(height=HEIGHT_PX, border=False)  # the list below keeps its place
    with slot, spinner("Reading every version …", of=f"timeline {opened.ref.uri}"):
        timeline = services.lake().timeline(opened.ref)
    name = chosen or "Rows"
    jumps = unusual_jumps(timeline.totals) if name == "Rows" else []
    figure = history_figure(timeline, FIGURES[name], jumps=jumps, mode=viewer.mode(), zone=viewer.timezone())
    with slot:
        figures.chart(figure, key=_CHART, on_select=_on_chart)
    for jump in jumps:
        _jump(opened.ref, jump)
    note = drawn_sentence(timeline)
    if note:
        st.caption(note)


def _jump(ref: TableRef, jump: Jump) -> None:
    """An unusual change of rows, and the two questions that it raises."""
    before = jump.version - 1
    with st.container(horizontal=True, vertical_alignment="center", key=f"jump_{jump.version}"):
        st.markdown(
            f":material/warning: **v{jump.version}** {markdown_safe(operation_text(jump.operation))}: "
            f"{jump_text(jump)}.",
            width="content",
        )
        params = {state.FROM: before, state.TO: jump.version}
        navigation.table_link(ref.name, f"Changes v{before} → v{jump.version}", params, page="changes")
        navigation.table_link(ref.name, "First bad version", {state.GOOD: before}, page="bisect")


def commits(opened: OpenTable) -> None:
    """The list of commits, a page at a time, what the chosen ones lead to, and one of them in full."""
    list_commits(log_range(opened.ref, opened.latest_version))


def commits_alone(ref: TableRef) -> None:
    """The commits of a table whose state cannot be read."""
    log = log_range(ref, services.lake().latest_version(ref))
    st.caption("Its history, which needs no state:")
    if staged := services.lake().staged_versions(ref):
        st.info(staged_sentence(staged), icon=":material/pending:")
    list_commits(log)


def log_range(ref: TableRef, latest: int) -> LogRange:
    """The commits of a table; where no version can be reconstructed all that are there."""
    spans = services.lake().versions(ref)
    return LogRange(ref, spans[0][0] if spans else 0, latest)


def list_commits(log: LogRange) -> None:
    """Needs the log alone: a table whose state cannot be read still has its history."""
    streams, chosen = cache.stream_names(), chosen_versions()
    above = st.container(key="commit_list")
    with above:
        filtering, dimmed = _switches(log.ref)
        listed = _filtered(log, streams) if filtering else None
    listed = listed or _newest(log)
    with above:
        _say(listed, filtering=filtering)
        chosen_bar(log.ref, chosen, streams)
        if listed.commits:
            beside = view.Known(streams, load_metadata_changes(services.lake(), log.ref, listed.run))
            _list(listed.commits, beside, dimmed=dimmed)
    if len(chosen) == 1:
        with errors.boundary():
            detail(log.ref, chosen[0])


def _switches(ref: TableRef) -> tuple[bool, bool]:
    """Whether to filter, and whether to dim; and the commits as a table to ask."""
    with st.container(horizontal=True, vertical_alignment="center", key="history_switches"):
        filtering = history_filters.is_on()
        dimmed = st.toggle(
            "Dim maintenance",
            value=True,
            key=state.DIM,
            bind="query-params",
            help="OPTIMIZE, VACUUM and the like step back: they change no row.",
        )
        st.space("stretch")
        history = quoted_name(f"{ref.name}$history")
        navigation.query_link(f"SELECT version, timestamp, operation, user_name, stream FROM {history} ORDER BY 1 DESC")
    return filtering, dimmed


def _newest(log: LogRange) -> Listed:
    """One page of all commits: nothing else of the log is read."""
    page = lists.chosen_page(log.total)
    commits = services.lake().history(log.ref, limit=PAGE_ROWS, ending_version=log.latest - (page - 1) * PAGE_ROWS)
    return Listed(commits, commits, log.total)


def _filtered(log: LogRange, streams: Mapping[str, str]) -> Listed:
    fitting = history_filters.filtered(log, streams)
    start = (lists.chosen_page(len(fitting.found)) - 1) * PAGE_ROWS
    return Listed(fitting.found[start : start + PAGE_ROWS], fitting.run, len(fitting.found))


def _say(listed: Listed, *, filtering: bool) -> None:
    if listed.commits:
        words = markdown_safe(f"{view.history_sentence(listed.commits, listed.total)}.")
        st.caption(f"Listed: {words}" if filtering else words)
    elif filtering:
        st.info("**No commit that was looked at fits.** Look further or clear a filter.", icon=":material/filter_alt:")
    else:
        st.info("**No commit is left in the log.**", icon=":material/history:")


def _list(commits: Sequence[Commit], beside: view.Known, *, dimmed: bool) -> None:
    versions, chosen = [commit.version for commit in commits], chosen_versions()
    st.session_state[_LISTED] = versions
    frame = view.commits_frame(commits, services.now(), beside)
    styled = lists.styled(frame, COMMITS)
    if dimmed:
        dim = f"color: {SURFACES[viewer.mode()].muted}; font-style: italic"
        quiet = [dim if view.is_maintenance(commit.operation) else "" for commit in commits]
        styled = styled.apply(lambda _: quiet, axis=0)
    # The key holds what is listed: a new commit on top must not move the selection to its neighbour.
    key = f"commits_{versions[0]}_{versions[-1]}_{len(versions)}"
    rows = sorted(versions.index(version) for version in chosen if version in versions)
    if rows != sorted(st.session_state.get(key, {}).get("selection", {}).get("rows", [])):
        st.session_state[key] = {"selection": {"rows": rows}}  # a point of the figure was clicked, or the bar cleared
    st.dataframe(
        styled,
        key=key,
        on_select=lambda: _on_list(key),
        selection_mode="multi-row",
        placeholder="",
        **lists.shape(frame, COMMITS),
    )


def _on_list(key: str) -> None:
    listed = st.session_state[_LISTED]
    rows = st.session_state[key].get("selection", {}).get("rows", [])
    choose([listed[row] for row in rows if row < len(listed)])


def _on_chart() -> None:
    points: Sequence[Any] = st.session_state[_CHART].get("selection", {}).get("points", [])
    data = [point.get("customdata") for point in points]
    choose([int(item[0]) for item in data if item])
