"""Health of one table in depth; that of the whole lake is the list of tables, most to merge first.

Rule: every judgement shows the rule it was made by and the next step.
"""

from collections.abc import Mapping, Sequence

import streamlit as st

from app import cache, navigation, services, state, viewer
from app.health import text
from app.ui.figures import chart, key_figures, state_mark
from app.ui.lake import MOST_TO_MERGE, OpenTable
from app.ui.lists import show
from app.ui.live import live
from app.ui.table_acts import act_button
from app.ui.view.figures import TABLE_SERIES, series_figure, table_points
from app.ui.view.words import markdown_safe
from app.ui.work import spinner
from backend.health.health import table_health as judge_table
from backend.health.model import Offender, TableHealth
from backend.lake.lake import Lake
from backend.lake.model import TableRef
from backend.maintenance.model import Optimize, Vacuum

HEALTH_TTL_S = 30.0  # its sentences hold ages


def table_health(opened: OpenTable) -> None:
    """One table as it is now, and the way to all of them."""
    navigation.page_link("tables", "Whole lake", {state.SORT: MOST_TO_MERGE}, icon=":material/arrow_back:")
    live(lambda: _table(opened.ref), key="health_live")


def _table(ref: TableRef) -> None:
    """Recommendations, figures, trend, offenders, log."""
    now, snapshot = services.now(), viewer.lake().snapshot(ref)
    with spinner("Reading the history …", of=f"health {ref.uri}"):
        health = _judged(viewer.lake(), ref, snapshot.version)
    streams, evidence = cache.stream_names(), health.evidence
    for number, item in enumerate(health.recommendations):
        finding, next_step = (
            markdown_safe(text.with_names(words, streams)) for words in (item.finding, item.next_step)
        )
        with st.container(border=True, key=f"advice_{number}", gap=None):
            st.markdown(f"{state_mark(item.severity.value)} **{item.subject.capitalize()}.** {finding}")
            st.markdown(f":material/arrow_forward: {next_step}")
    with st.container(horizontal=True, key="acts"):
        act_button(ref, snapshot.version, Optimize(), key="optimize")
        if snapshot.num_deletion_vectors:
            act_button(ref, snapshot.version, Optimize(purge=True), key="purge", label="Purge deleted rows")
        st.space("stretch")
        act_button(ref, snapshot.version, Vacuum(), key="vacuum")
    key_figures(text.key_figures(evidence, now=now), key="health_figures")
    st.caption(f"{markdown_safe(evidence.rule.text)} {text.log_sentence(evidence.log, now=now)}")
    names = {TABLE_SERIES[field].title: field for field in ("num_files", "small_files", "small_share", "size_bytes")}
    shown = st.segmented_control("Over versions", list(names), default="Files", required=True, key="health_number")
    points, series = table_points(health.trend, names[shown]), TABLE_SERIES[names[shown]]
    chart(series_figure(points, health.trend, series, by_time=False, mode=viewer.mode()), key="trend")
    if health.trend_truncated:
        st.caption(f"Older versions than v{evidence.log.first_version} are no longer in the log.")
    _offenders(evidence.offenders, streams)


def _offenders(offenders: Sequence[Offender], streams: Mapping[str, str]) -> None:
    st.subheader("Where small files come from", anchor=False)
    if not offenders:
        st.info(
            "**No writer or partition stands out.** No commit in the log wrote small files.", icon=":material/check:"
        )
        return
    worst = sorted(offenders, key=lambda offender: -offender.small_files)
    show(text.offender_columns(streams), worst, key="offenders", alt="Who or where small files come from")
    st.caption("For a partition: its small files now. For a stream or engine: what its commits in the log wrote.")


@st.cache_data(show_spinner=False, ttl=HEALTH_TTL_S, max_entries=512, hash_funcs=cache.BY_URI)
def _judged(lake: Lake, ref: TableRef, version: int) -> TableHealth:
    """The health of a table whose latest version is `version`; its ages are at most `HEALTH_TTL_S` old."""
    del version  # a part of the key alone
    return judge_table(lake, ref, now=services.now(), settings=services.settings().health)
