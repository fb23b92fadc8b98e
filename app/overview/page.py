"""Overview: is anything wrong, and where? What needs attention, then tables by layer, then streams; kept fresh.

Rule: every item of the list leads to the page that helps. When this browser looked last, it remembers in a cookie: the
server keeps nothing of it. A visit ends when nobody has looked for half an hour, and who has the page hidden does not
look.
"""

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from urllib.parse import urlsplit

import streamlit as st

from app import cache, errors, navigation, services, state, viewer
from app.overview import view
from app.ui import lists
from app.ui.figures import key_figures, state_mark
from app.ui.lake import Table, lake_totals
from app.ui.live import empty_lake, live_lake, reading_progress
from app.ui.states import by_urgency, summary_sentence
from app.ui.view.words import markdown_safe, sentence
from backend.errors import LakehouseError
from backend.format import ago, moment_help
from backend.health.model import AttentionGroup, Cause, Severity

MOST_ROWS = 50
PADDING_PX, GROUP_PX = 15, 37  # of the attention list, and of a line in it
# Side by side where both fit, else one below the other.
_STYLE = """<style>.st-key-overview_lists {{ display: flex; flex-wrap: wrap; }}
.st-key-overview_lists > .stGridCell {{ flex: 3 1 500px; min-width: 0; }}
.st-key-overview_lists > .stGridCell:last-child {{ flex: 2 1 350px; }}
.st-key-attention {{ min-height: {attention_px}px; }}
.st-key-attention p {{ font-size: 0.9rem; }}
.st-key-attention [data-testid=stSkeleton] {{ height: 0; }}
.st-key-attention .stMarkdown p {{ position: relative; padding-right: 1.6rem; }}
.st-key-attention p > span:has(.stTooltipIcon) {{ position: absolute; right: 0; bottom: 0.15rem; }}
@media (min-width: 1200px) {{
  .st-key-attention .stHorizontalBlock {{ flex-wrap: nowrap; }}
  .st-key-attention .stHorizontalBlock > * {{ min-width: 8.2rem; }}
  .st-key-attention .stHorizontalBlock > :first-child {{ flex: 1; min-width: 0; }}
  .st-key-attention .stMarkdown p {{ overflow: hidden; text-overflow: ellipsis; }}
  .st-key-attention p, .st-key-attention p * {{ white-space: nowrap; }}
}}
.st-key-visit {{ position: absolute; height: 0; overflow: hidden; }}</style>"""


def overview() -> None:
    """The live region. Its attention list never shrinks while the page is open, so that nothing below it jumps."""
    most = 0

    def region() -> None:
        nonlocal most
        most = _overview(most)

    live_lake(region)


def _overview(most: int) -> int:
    """Draws the page, the attention list as high as for its groups or for `most`; returns the larger of both."""
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
    with st.container(border=bool(groups or judged), key="attention", gap="small"):
        _attention_list(groups, now, judged=judged)
    slot = st.empty()  # always there, as that of `reading_progress`
    if looked := view.looked_sentence(noticed):
        slot.caption(looked)
    if not unknown and not partial:
        _since_last_visit(len(tables), groups, now)
    most = max(most, len(groups), bool(judged))
    st.html(_STYLE.format(attention_px=most and PADDING_PX + most * GROUP_PX))
    grid = st.grid(2, key="overview_lists")
    with grid.cell():
        st.subheader("Tables", anchor=False)
        if tables:
            _table_list(tables, groups)
        elif not lake_error and not partial:
            empty_lake()
    with grid.cell():
        st.subheader("Streams", anchor=False)
        _stream_list(streams)
    return most


def _table_list(tables: list[Table], groups: Sequence[AttentionGroup]) -> None:
    if len(tables) > MOST_ROWS:
        cut = f"{MOST_ROWS} of {len(tables):,}: tables in trouble first, then the stalest. "
        tables = view.most_troubled(tables, groups, MOST_ROWS)
    else:
        cut = ""
    st.caption(f"{cut}Click a row to open the table.")
    names = [table.ref.name for table in tables]
    columns = view.table_list_columns(services.now(), services.settings().health.small_file_ratio)
    alt = "Every table with its version, rows, files, size, small files and last commit"
    name = lists.choose(columns, tables, key="overview_tables", names=names, alt=alt)
    if cut:
        navigation.page_link("tables", "All tables")
    if name is not None:
        navigation.go("table", {state.TABLE: name})


def _stream_list(reading: cache.StreamsReading) -> None:
    if reading.problem:
        what = "**The control store does not answer, so no stream can be shown.**"
        st.error(f"{what} {markdown_safe(reading.problem)}", icon=":material/error:")
    elif reading.streams:
        streams, cut = by_urgency(reading.streams), ""
        if len(streams) > MOST_ROWS:
            streams, cut = streams[:MOST_ROWS], f"{MOST_ROWS} of them: streams in trouble first. "
        st.caption(f"{summary_sentence(reading.streams)}. {cut}Click a row to open the stream.")
        names = [status.declaration.name for status in streams]
        columns, alt = view.stream_list_columns(services.now()), "Every stream with its verdict, state and rate"
        name = lists.choose(columns, streams, key="overview_streams", names=names, alt=alt)
        if cut:
            navigation.page_link("streams", "All streams")
        if name is not None:
            navigation.go("stream", {state.STREAM: name})
    else:
        what = "**No stream is declared yet.** A stream host declares the streams it can run:"
        st.info(what, icon=":material/water:")
        st.code("weir host", language=None)


def _since_last_visit(tables: int, groups: Sequence[AttentionGroup], now: datetime) -> None:
    """What is new since this browser looked last; nothing at its first visit."""
    visit = remembered(tables, now)
    if visit is None:
        return
    links, when = view.news(visit.ended_at, tables - visit.tables, groups, cache.acts()), ago(visit.ended_at, now)
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="since_last_visit"):
        st.caption(f"{'Since' if links else 'Nothing new since'} you last looked, {when}", width="content")
        for link in links:
            navigation.page_link(link.page, link.label, link.params)


def _attention_list(groups: Sequence[AttentionGroup], now: datetime, *, judged: str) -> None:
    """What needs a person, most urgent first, each in one line with its next step and a link (where it is cut, whole on
    hover); of nothing, what was `judged`."""
    if judged and not groups:
        st.markdown(f"{state_mark(Severity.FINE.value)} {judged}")  # as high as the line that may come
    for group in groups:
        item, words = group.only, (*view.group_words(group, now), sentence(group.next_step))
        bold, rest, step = map(markdown_safe, words)
        inline = "" if group.cause is Cause.UNUSUAL_COMMIT else f":small[:gray[{step}]]"  # what it was, needs the line
        since = f"  \n{moment_help(item.since, viewer.timezone())}" if item and item.since else ""
        key = f"attention_{group.cause.value}_{group.severity.value}_{group.items[0].origin}"
        with st.container(horizontal=True, vertical_alignment="center", gap="small", key=key):
            st.markdown(
                f"{state_mark(group.severity.value)} **{bold}** {rest} {inline}",
                help=f"**{bold}** {rest}  \n{step}{since}",
            )
            for link in view.destinations(group):
                navigation.page_link(link.page, link.label, link.params)


# the visit before -----------------------------------------------------------------------------------------------------


GAP = timedelta(minutes=30)
_BEFORE = "_visit_before"
_remember = st.components.v2.component(
    "weir.visit",
    js="""export default ({ data }) => {
  if (document.visibilityState === "visible") document.cookie = `${data}; max-age=31536000; samesite=lax`
}
""",
)


class Visit(NamedTuple):
    """When a visit ended, and how many tables there were."""

    ended_at: datetime
    tables: int


def visit_before(cookie: str, now: datetime) -> Visit | None:
    """The visit before the one that goes on, or begins, now; None for the first. `cookie`: that one and the newest."""
    if re.fullmatch(r"[0-9]{1,10}(\.[0-9]{1,10}){3}", cookie) is None:
        return None  # it is none of ours
    at, tables, last_at, last_tables = map(int, cookie.split("."))
    if now - (last := datetime.fromtimestamp(last_at, UTC)) > GAP:
        return Visit(last, last_tables)
    return Visit(datetime.fromtimestamp(at, UTC), tables) if at else None


def remembered(tables: int, now: datetime) -> Visit | None:
    """The visit before this one; the browser remembers that it looks now, and how many tables there are."""
    name = f"weir_looked_{urlsplit(st.context.url or '').port or 0}"  # ports of one machine share their cookies
    if _BEFORE not in st.session_state:
        st.session_state[_BEFORE] = visit_before(str(st.context.cookies.get(name)), now)
    visit: Visit | None = st.session_state[_BEFORE]
    before = f"{visit.ended_at.timestamp():.0f}.{visit.tables}" if visit else "0.0"
    _remember(key="visit", data=f"{name}={before}.{now.timestamp():.0f}.{tables}")
    return visit
