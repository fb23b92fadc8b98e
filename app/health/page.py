"""Health of the whole lake as a list, and of one table in depth.

Rule: every judgement shows the rule it was made by and the next step; one unreadable table hides no other.
"""

from collections.abc import Mapping, Sequence

import streamlit as st

from app import cache, navigation, services, state, viewer
from app.errors import boundary
from app.health import view
from app.health.text import lake_columns, log_sentence, offender_columns, trend_finding, with_names
from app.ui.figures import chart, key_figures, state_mark
from app.ui.lake import LakeReading, OpenTable
from app.ui.lists import choose, paged, show
from app.ui.live import empty_lake, live, live_lake, reading_progress
from app.ui.table_acts import act_button
from app.ui.view.words import markdown_safe
from app.ui.work import spinner
from backend.format import count_text, things
from backend.health.health import table_health as judge_table
from backend.health.model import Offender, TableHealth
from backend.lake.model import TableCard, TableRef
from backend.maintenance.model import Optimize, Vacuum

HEALTH_TTL_S = 30.0  # its sentences hold ages


def lake_health() -> None:
    """Every table, most urgent first, as far as it is judged; kept fresh, a click opens one."""
    st.title("Health of the lake", anchor=False)

    def region() -> None:
        with boundary():
            _lake_list()

    def is_judging(reading: LakeReading) -> bool:
        cards = sum(isinstance(table, TableCard) for table in reading.tables)
        return len(cache.judged(reading)) < cards

    live_lake(region, awaits=is_judging)


def _lake_list() -> None:
    reading, now = cache.lake_reading(), services.now()
    if reading.is_complete and not reading.tables:
        empty_lake()
        return
    reading_progress(reading)
    rows = view.lake_rows(reading.tables, cache.judged(reading))
    slot, pending = st.empty(), view.num_pending(rows)  # always there, so that those below keep their place
    if pending:
        done, num_tables = len(reading.tables) - pending, len(reading.tables)
        slot.progress(done / num_tables, f"{count_text(done)} of {things(num_tables, 'table')} judged …")
    sentence = view.lake_sentence(rows)
    st.markdown(f"**{sentence}**" if reading.is_complete else f"**So far: {sentence}**")
    slot, shown, which = paged(rows, key="health_list")
    with slot:
        names = [row.table.ref.name for row in shown]
        alt = "Health of every table, most urgent first"
        name = choose(lake_columns(now), shown, key="lake_health", names=names, alt=alt)
        st.caption(f"{which} Click a row for the table's trend, offenders and every recommendation.".strip())
    if name is not None:
        navigation.go("health", {state.TABLE: name})


def table_health(opened: OpenTable) -> None:
    """One table as it is now, and the way to all of them."""
    st.button("Whole lake", icon=":material/arrow_back:", key="whole_lake", on_click=state.choose_table, args=(None,))
    live(lambda: _table(opened.ref), key="health_live")


def _table(ref: TableRef) -> None:
    """Recommendations, figures, trend, offenders, log."""
    now, snapshot = services.now(), services.lake().snapshot(ref)
    with spinner("Reading the history …", of=f"health {ref.uri}"):
        health = _judged(ref, snapshot.version)
    streams, evidence = cache.stream_names(), health.evidence
    for number, item in enumerate(health.recommendations):
        finding, next_step = (markdown_safe(with_names(text, streams)) for text in (item.finding, item.next_step))
        with st.container(border=True, key=f"advice_{number}", gap=None):
            st.markdown(f"{state_mark(item.severity.value)} **{item.subject.capitalize()}.** {finding}")
            st.markdown(f":material/arrow_forward: {next_step}")
    with st.container(horizontal=True, key="acts"):
        act_button(ref, snapshot.version, Optimize(), key="optimize")
        if snapshot.num_deletion_vectors:
            act_button(ref, snapshot.version, Optimize(purge=True), key="purge", label="Purge deleted rows")
        act_button(ref, snapshot.version, Vacuum(), key="vacuum")
    key_figures(view.key_figures(evidence, now=now), key="health_figures")
    st.caption(f"{markdown_safe(evidence.rule.text)} {log_sentence(evidence.log, now=now)}")
    chart(view.build_trend_figure(health, mode=viewer.mode()), key="trend", alt=trend_finding(health))
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
    show(offender_columns(streams), worst, key="offenders", alt="Who or where small files come from")
    st.caption("For a partition: its small files now. For a stream or engine: what its commits in the log wrote.")


@st.cache_data(show_spinner=False, ttl=HEALTH_TTL_S, max_entries=512, hash_funcs=cache.BY_URI)
def _judged(ref: TableRef, version: int) -> TableHealth:
    """The health of a table whose latest version is `version`; its ages are at most `HEALTH_TTL_S` old."""
    del version  # a part of the key alone
    return judge_table(services.lake(), ref, now=services.now(), settings=services.settings().health)
