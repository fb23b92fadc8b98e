"""Health of the whole lake as a list, and of one table in depth.

Rule: every judgement shows the rule it was made by and the next step; one unreadable table hides no other.
"""

from collections.abc import Mapping

import streamlit as st

from app import cache, context, state
from app.health import view
from app.ui.badges import state_mark
from app.ui.figures import chart, key_figures
from app.ui.frame import OpenTable, empty_lake
from app.ui.lists import Look, choose, show
from app.ui.words import markdown_safe
from backend.errors import LakehouseError
from backend.health.model import Recommendation, TableHealth
from backend.lake.model import UnreadableTable

_SHARE = st.column_config.ProgressColumn("Small share", format="percent", min_value=0, max_value=1)
LAKE = Look(
    formats={
        "Small files": "count", "Files": "count", "Size": "bytes", "Last OPTIMIZE": "ago", "Last VACUUM": "ago",
        "Since checkpoint": "count",
    },
    config={
        "Table": st.column_config.TextColumn(pinned=True),
        "Finding": st.column_config.TextColumn(width="large"),
        "Next step": st.column_config.TextColumn(width="large"),
        "Small share": _SHARE,
        "Since checkpoint": st.column_config.TextColumn(help="Commits that readers replay one by one"),
    },
    layer_column="Layer",
    alt="Health of every table, most urgent first",
)  # fmt: skip
OFFENDERS = Look(
    formats={"Small files": "count", "Files": "count", "Average file": "bytes"},
    config={"Small share": _SHARE},
    alt="Who or where small files come from",
)


def lake_health() -> None:
    """Every table, most urgent first; a click opens one."""
    tables, now = cache.lake_reading().tables, context.now()
    if not tables:
        empty_lake()
        return
    healths, unjudged = _judge(tables)
    healths = view.by_urgency(healths)
    st.markdown(f"**{view.lake_sentence(healths, unjudged)}**")
    names = [*(health.ref.name for health in healths), *(table.name for table in unjudged)]
    name = choose(view.build_lake_frame(healths, unjudged, now=now), LAKE, key="lake_health", names=names)
    if name is not None:
        state.choose_table(name)
        st.rerun()
    st.caption("Click a row for the table's trend, offenders and every recommendation.")


def _judge(tables: tuple) -> tuple[list[TableHealth], list[view.UnjudgedTable]]:  # type: ignore[type-arg]
    """The health of each table; says how far it is, as a big lake takes a while the first time."""
    healths, unjudged, bar = [], [], st.empty()
    for number, table in enumerate(tables):
        bar.progress(number / len(tables), f"Judging {table.ref.name} ({number + 1} of {len(tables)}) …")
        if isinstance(table, UnreadableTable):
            unjudged.append(view.UnjudgedTable(table.ref.name, table.reason))
            continue
        try:
            healths.append(cache.health(table.ref, table.version))
        except LakehouseError as exc:
            unjudged.append(view.UnjudgedTable(table.ref.name, exc.message))
    bar.empty()
    return healths, unjudged


def table_health(opened: OpenTable) -> None:
    """One table: recommendations, figures, trend, offenders, log."""
    now = context.now()
    with st.spinner("Reading the history …", show_time=True):
        health = cache.health(opened.ref, opened.latest_version)
    streams = cache.stream_names()
    for number, item in enumerate(health.recommendations):
        _recommendation(item, streams, key=f"advice_{number}")
    key_figures(view.key_figures(health, now=now), key="health_figures")
    st.caption(f"{markdown_safe(health.rule.text)} {view.log_sentence(health, now=now)}")
    chart(view.build_trend_figure(health, mode=context.mode()), key="trend", alt=view.trend_finding(health))
    if health.trend_truncated:
        st.caption(f"Older versions than v{health.log.first_version} are no longer in the log.")
    _offenders(health, streams)


def _recommendation(item: Recommendation, streams: Mapping[str, str], *, key: str) -> None:
    finding, next_step = (markdown_safe(view.with_names(text, streams)) for text in (item.finding, item.next_step))
    with st.container(border=True, key=key, gap=None):
        st.markdown(f"{state_mark(item.severity.value)} **{item.subject.capitalize()}.** {finding}")
        st.markdown(f":material/arrow_forward: {next_step}")


def _offenders(health: TableHealth, streams: Mapping[str, str]) -> None:
    st.subheader("Where small files come from", anchor=False)
    if not health.offenders:
        st.info(
            "**No writer or partition stands out.** No commit in the log wrote small files.", icon=":material/check:"
        )
        return
    show(view.build_offender_frame(health.offenders, streams), OFFENDERS, key="offenders")
    st.caption("For a partition: its small files now. For a stream or engine: what its commits in the log wrote.")
