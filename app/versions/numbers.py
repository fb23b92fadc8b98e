"""Numbers over versions: the table's own, a column's by statistics, or any SQL aggregate.

Rule: what is asked for is in the URL. What opens data files or many versions starts with a click, shows how far it is
and can be cancelled. A number once computed is shown at once.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import streamlit as st

from app import services, state, viewer
from app.errors import boundary
from app.services import once
from app.ui import lists, work
from app.ui.figures import chart
from app.ui.lake import OpenTable
from app.ui.view.words import markdown_safe, sentence
from app.ui.work import spinner
from app.versions import view
from app.versions.text import Number, Point
from backend.errors import LakehouseError, QueryError
from backend.format import things
from backend.lake.files.stats import columns_with_stats
from backend.lake.model import VersionTotals
from backend.lake.retention.runs import RetentionRuns
from backend.sql import numbers as sql_numbers
from backend.sql.numbers import NumbersProgress, VersionValue, spread

aggregates = once(sql_numbers.aggregates)  # what SQL aggregates came to
column_numbers = once(sql_numbers.column_numbers)  # what columns came to by their statistics
NUMBERS, COLUMN, SQL = "Numbers over versions", "One column", "SQL aggregate"
MEASURES = {"Nulls": "nulls", "Lowest": "lowest", "Highest": "highest"}
COUNTS = (10, 25, 50, 100, 200)
AT_ONCE_FILES = 500_000  # versions × files of statistics that are read without a click
_VALUES = lists.Look(
    formats={"Version": "exact"},
    config={"Why not": st.column_config.TextColumn(width="large")},
    alt="Values, newest version first",
)


def numbers(opened: OpenTable, retention: RetentionRuns) -> None:
    """The choice of a number, and the number over versions."""
    names = [*view.TABLE_NUMBERS, COLUMN, SQL]
    chosen = st.segmented_control("Number", names, default="Rows", required=True, key=state.NUMBER, bind="query-params")
    over = st.segmented_control(
        "Over", ["Time", "Versions"], default="Time", required=True, key=state.OVER, bind="query-params"
    )
    by_time = over == "Time"
    totals = _totals(opened)
    if chosen == COLUMN:
        _column(opened, retention, totals, by_time=by_time)
    elif chosen == SQL:
        _sql(opened, retention, totals, by_time=by_time)
    elif totals:
        points = view.table_points(totals, chosen)
        _draw(points, totals, view.TABLE_NUMBERS[chosen][1], by_time=by_time)
        _note(points, len(points), len(points))


def _totals(opened: OpenTable) -> Sequence[VersionTotals]:
    """The timeline's versions; a broken one is said once and hides nothing else."""
    try:
        with spinner("Reading every version …", of=f"timeline {opened.ref.uri}"):
            return services.lake().timeline(opened.ref).totals
    except LakehouseError as exc:
        st.warning(markdown_safe(sentence(exc.message)), icon=":material/warning:")
        return ()


def _draw(points: Sequence[Point], totals: Sequence[VersionTotals], number: Number, *, by_time: bool) -> None:
    if not view.can_be_drawn(points):
        return
    figure = view.number_figure(points, totals, number, by_time=by_time, mode=viewer.mode(), zone=viewer.timezone())
    chart(figure, key="number_chart")


def _note(points: Sequence[Point], wanted: int, of: int) -> None:
    note = view.notes(points, wanted, of)
    if note:
        st.caption(markdown_safe(note))


# a column --------------------------------------------------------------------------------------------------------


def _column(opened: OpenTable, retention: RetentionRuns, totals: Sequence[VersionTotals], *, by_time: bool) -> None:
    names = columns_with_stats(opened.snapshot.metadata)
    if not names:
        st.info("**No column that statistics can speak of.**", icon=":material/view_column:")
        return
    with st.container(horizontal=True, vertical_alignment="bottom", key="column_choice"):
        column = st.selectbox("Column", names, key=state.COLUMN, bind="query-params")
        measure = st.segmented_control(
            "Measure", list(MEASURES), default="Nulls", required=True, key=state.MEASURE, bind="query-params"
        )
    wanted, known_of = spread(retention.facts.spans, COUNTS[-1]), column_numbers()
    known = known_of.known(opened.snapshot, column, wanted)
    name = f"column_{opened.ref.uri}_{column}"
    cheap = len(wanted) * opened.snapshot.num_files <= AT_ONCE_FILES
    if len(known) < len(wanted) and not cheap and not work.is_asked(name):
        st.button(f"Read the statistics of {things(len(wanted), 'version')}", key="read_column", type="primary",
                  icon=":material/play_arrow:", on_click=work.ask, args=(name,))  # fmt: skip
    elif len(known) < len(wanted):
        known = _run(lambda: known_of.over(services.lake(), opened.ref, column, wanted), "column") or known
    number = Number(f"{measure} {column}", column, from_zero=False)
    if measure == "Nulls":
        number = Number(f"Nulls of {column}", "rows")
    values = [replace(v, value=getattr(v.value, MEASURES[measure]) if v.value is not None else None) for v in known]
    _show(view.value_points(values, totals), totals, number, by_time=by_time,
          chosen=(len(wanted), sum(last - first + 1 for first, last in retention.facts.spans)))  # fmt: skip
    st.caption(
        "From the log's statistics alone: texts may be cut, and deleted rows count until their file is rewritten."
    )


# SQL -------------------------------------------------------------------------------------------------------------


def _sql(opened: OpenTable, retention: RetentionRuns, totals: Sequence[VersionTotals], *, by_time: bool) -> None:
    latest = retention.facts.latest
    typed = st.text_input(
        "Aggregate", key=state.SQL, bind="query-params", placeholder="sum(amount)", max_chars=2_000,
        help="One SQL aggregate over the rows, such as count(*) FILTER (WHERE status = 'open') or "
        "count(DISTINCT customer_id). DuckDB's dialect; it sees the table's columns and nothing else.",
    )  # fmt: skip
    text = (typed or "").strip()
    with st.container(horizontal=True, vertical_alignment="bottom", key="sql_versions"):
        first = st.number_input("From version", 0, latest, 0, key=state.FIRST, bind="query-params", width=150)
        last = st.number_input("To version", 0, latest, latest, key=state.LAST, bind="query-params", width=150)
        count = st.selectbox("At most", COUNTS, key=state.POINTS, bind="query-params", width=120)
        wanted = spread(retention.facts.spans, count, within=(min(first, last), max(first, last)))
        name = f"sql_{opened.ref.uri}_{text}"
        label, ready = f"Compute at {things(len(wanted), 'version')}", bool(text and wanted)
        st.button(label, key="compute", type="primary", icon=":material/play_arrow:", disabled=not ready,
                  on_click=work.ask, args=(name,))  # fmt: skip
    if not text:
        teaching = (
            "**Write an aggregate**, for instance `count(*)`. Each version's rows are read once, the result is kept."
        )
        st.info(teaching, icon=":material/functions:")
        return
    known: Sequence[VersionValue[Any]] = aggregates().known(opened.snapshot, text, wanted)
    if work.is_asked(name):
        known = _compute(opened, text, wanted) or known
    if known:
        of = sum(max(0, min(last, wanted[-1]) - max(first, wanted[0]) + 1) for first, last in retention.facts.spans)
        _show(view.value_points(known, totals), totals, Number(text, text, from_zero=False), by_time=by_time,
              chosen=(len(known), of))  # fmt: skip


def _compute(opened: OpenTable, text: str, wanted: Sequence[int]) -> Sequence[VersionValue[Any]] | None:
    try:
        return _run(lambda: aggregates().over(services.lake(), opened.ref, text, wanted), "sql")
    except QueryError as exc:
        with boundary():
            if exc.position is not None:
                st.code(f"{text}\n{' ' * exc.position}^", language=None)
            raise
    return None


def _run(begin: Callable[[], Iterator[NumbersProgress[Any]]], key: str) -> Sequence[VersionValue[Any]]:
    def tell(step: NumbersProgress[Any]) -> tuple[float, str]:
        rows = f" · {step.rows_read:,} rows read" if step.rows_read else ""
        at = "" if step.version is None else f" · now v{step.version}"
        return len(step.values) / max(1, step.total), f"{len(step.values)} of {things(step.total, 'version')}{at}{rows}"

    last = work.run(begin, key=key, tell=tell)
    return last.values if last else ()


def _show(
    points: Sequence[Point],
    totals: Sequence[VersionTotals],
    number: Number,
    *,
    by_time: bool,
    chosen: tuple[int, int],
) -> None:
    if not points:
        return
    _draw(points, totals, number, by_time=by_time)
    _note(points, *chosen)
    with st.expander("Values", expanded=not view.can_be_drawn(points)):
        lists.show(view.value_frame(points, number), _VALUES, key="values")
