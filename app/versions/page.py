"""The versions page: the strip over all versions, what can be done with the chosen one, which are pinned, and numbers
over versions.

Rule: what is chosen is in the URL. Files are looked for on request, and only what was looked at is said; what opens
data files or many versions starts with a click and can be cancelled. A pin is the wish of a named person with a
reason; it takes effect at once, no host is needed.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import streamlit as st

from app import errors, navigation, services, state, viewer
from app.services import once
from app.ui import dialogs, lists, work
from app.ui.figures import chart
from app.ui.frame import version_input
from app.ui.lake import OpenTable
from app.ui.table_acts import act_button, way_back
from app.ui.view.figures import TABLE_NUMBERS, TABLE_SERIES, Series, notes, series_figure, table_points
from app.ui.view.words import markdown_safe, sentence
from app.ui.work import spinner
from app.versions import text, view
from app.versions.text import pin_words
from backend.errors import LakehouseError, QueryError
from backend.format import ago, moment_help, things
from backend.lake.files.stats import columns_with_stats
from backend.lake.model import Pin, TableRef, VersionTotals
from backend.lake.retention.answers import Reach, VersionAnswer, judge_version, missing_words
from backend.lake.retention.file_check import SAMPLE, LogSeen
from backend.lake.retention.runs import FilesSeen, RetentionRuns, judge
from backend.maintenance.model import Clone
from backend.sql import numbers
from backend.sql.numbers import NumbersProgress, VersionValue, spread
from backend.times import parse_time

aggregates = once(numbers.aggregates)  # what SQL aggregates came to
column_numbers = once(numbers.column_numbers)  # what columns came to by their statistics
NUMBERS, COLUMN, SQL = "Numbers over versions", "One column", "SQL aggregate"
MEASURES = {"Nulls": "nulls", "Lowest": "lowest", "Highest": "highest"}
COUNTS = (10, 25, 50, 100, 200)
AT_ONCE_FILES = 500_000  # versions × files of statistics that are read without a click
_CHART = "versions_strip"
_SEEN = "_files_seen"  # by table, version: what looking found in this session
_LOG = "_log_seen"


def versions(opened: OpenTable) -> None:
    """Each version, or a number over them; a link that names a number leads there."""
    default = NUMBERS if state.get_str(state.NUMBER) or state.get_str(state.SQL) else "Each version"
    shown = st.segmented_control(
        "Show", ["Each version", NUMBERS], default=default, required=True, key=state.VIEW, bind="query-params"
    )
    with errors.boundary():
        retention = _judged(opened.ref)
        if shown == NUMBERS:
            _numbers(opened, retention)
        else:
            pins = _pins_of(opened.ref)
            chosen = _strip(opened.ref, retention, pins)
            for problem in retention.facts.problems[:3]:  # what the log could not say
                st.warning(markdown_safe(sentence(problem)), icon=":material/warning:")
            _answers(opened.ref, retention, chosen, pins)
    dialogs.dialog(
        _PIN,
        _pin_dialog,
        width="small",
        title=lambda asked: f"{'Unpin' if asked.pin else 'Pin'} v{asked.version} of {asked.ref.name}?",
    )


def _judged(ref: TableRef) -> RetentionRuns:
    """What is known of every version now, with the files that this viewer had looked for."""
    with spinner("Reading the log …", of=f"retention {ref.uri}"):
        facts = viewer.lake().retention_facts(ref)
        seen = st.session_state.get(_LOG, {}).get((ref.uri, facts.latest))
        return judge(facts, services.now(), seen.runs if seen else None)


def of_broken(ref: TableRef) -> None:
    """Of a table whose latest version cannot be rebuilt: which versions can be."""
    retention = _judged(ref)
    if retention.facts.spans and not retention.facts.is_reconstructable(retention.facts.latest):
        st.markdown("**Older versions can still be read:**")
        pins = _pins_of(ref)
        _answers(ref, retention, _strip(ref, retention, pins), pins)


def _strip(ref: TableRef, retention: RetentionRuns, pins: Sequence[Pin] | None) -> int:
    """The strip, the pins below it, and the choice of a version; returns the chosen one."""
    chosen = _chosen(ref, retention)
    pinned = [pin.version for pin in pins or () if pin.version <= retention.facts.latest]
    figure = view.strip_figure(retention, chosen=chosen, pinned=pinned, mode=viewer.mode())
    legend = view.legend_sentence(retention)
    chart(figure, key=_CHART, alt=f"{figure.layout.title.text}. {legend}", on_select=_on_chart)
    st.caption("Click a bar for its last version.", help=markdown_safe(legend))
    for pin in (pins or ())[:_MOST_LISTED]:
        with st.container(horizontal=True, key=f"pin_{pin.version}"):
            st.markdown(f":material/keep: {markdown_safe(sentence(pin_words(pin, services.now())))}")
            navigation.table_link(ref.name, f"Show v{pin.version}", {state.AT: pin.version}, page="versions")
    if len(pins or ()) > _MOST_LISTED:
        more = len(pins or ()) - _MOST_LISTED
        st.caption(f"{more} more are pinned: `weir versions {markdown_safe(ref.name)}` lists all.")
    return chosen


def _chosen(ref: TableRef, retention: RetentionRuns) -> int:
    latest = retention.facts.latest
    asked = state.get_int(state.AT)
    pinned = state.version()
    newest = (
        latest
        if retention.facts.is_reconstructable(latest) or not retention.facts.spans
        else retention.facts.spans[-1][1]
    )
    at = next((v for v in (asked, pinned) if v is not None and v <= latest), newest)
    version_input(ref, at, latest, key="at_input", choose=lambda version: state.set_params({state.AT: version}))
    return at


def _on_chart() -> None:
    points = st.session_state[_CHART].selection.points
    if points:
        state.set_params({state.AT: int(points[0]["customdata"][1])})


# the chosen version ----------------------------------------------------------------------------------------------


def _answers(ref: TableRef, retention: RetentionRuns, version: int, pins: Sequence[Pin] | None) -> None:
    """What can be done with a version in one line, where it leads, and folded why."""
    now, zone = services.now(), viewer.timezone()
    answer = judge_version(retention, version, st.session_state.get(_SEEN, {}).get((ref.uri, version)))
    with st.container(border=True, key="verdict"):
        st.markdown(text.verdict_text(answer, retention.facts.latest, zone, now))
        made = "Its commit is not in the log" if answer.at is None else f"Written to the log {ago(answer.at, now)}"
        st.caption(made, help=moment_help(answer.at, zone) if answer.at else None)
        latest, is_readable = retention.facts.latest, retention.facts.is_reconstructable
        can_be_read = answer.run is not None and answer.run.reconstructable
        if can_be_read:
            with st.container(horizontal=True, key="version_links"):
                navigation.table_link(ref.name, f"Open v{version}", {state.VERSION: version})
                if version != latest and is_readable(latest):
                    label = f"Changes from v{version} to v{latest}"
                    navigation.table_link(ref.name, label, {state.FROM: version, state.TO: latest}, page="changes")
        with st.container(horizontal=True, key="version_acts"):
            if can_be_read and answer.time_travel.verdict is not Reach.NO:
                act_button(ref, latest, Clone(version=version), key="clone")
            if pins is not None and (can_be_read or any(pin.version == version for pin in pins)):
                _pin_button(ref, version, pins)
    if version != latest and is_readable(version) and is_readable(latest) and answer.restore.verdict is not Reach.NO:
        way_back(ref, latest, version)
    with st.expander("Why, and what else can be done with it", key="why"):
        for label, part, reasons in text.answers_once(answer, zone, now):
            help_text = " · ".join(t for t in (text.kind_sentence(part), moment_help(part.until, zone)) if t)
            st.markdown(text.headline(label, part, zone, now), help=help_text if part.until else None)
            if reasons:
                st.caption(markdown_safe(reasons))
        st.caption(markdown_safe(text.log_sentence(answer, zone, now)))
        st.caption(markdown_safe(text.vacuum_sentence(retention.facts, now)))
    _files(ref, retention, answer)


# files -----------------------------------------------------------------------------------------------------------


def _files(ref: TableRef, retention: RetentionRuns, answer: VersionAnswer) -> None:
    """What is known of the version's files, and buttons that look for them."""
    run = answer.run
    if run is None or not run.reconstructable:
        return
    seen = answer.files
    known = missing_words(seen) if seen else text.file_words(run)
    st.markdown(f":material/folder_open: **Data files**: {markdown_safe(known)}")
    if seen and seen.examples:
        st.caption("Gone: " + ", ".join(markdown_safe(path) for path in seen.examples))
    everything = f"all_{ref.uri}"
    sample, exact = (f"{kind}_{ref.uri}_{answer.version}" for kind in ("sample", "exact"))
    with st.container(horizontal=True, key="look"):
        is_whole = seen is not None and seen.checked >= seen.total
        if seen is None:
            _look(f"Look for its files (at most {SAMPLE})", sample, "Removed files first")
        elif not is_whole:
            _look(f"Look for all {things(seen.total, 'file')}", exact, "Asks the storage for each file")
        _look("Look for the files of every version", everything, "Asks the storage for each file; fills the strip")
    lake, most = viewer.lake(), None if work.is_asked(exact) else SAMPLE
    if work.is_asked(sample) or work.is_asked(exact):
        files = work.run(lambda: lake.see_files(ref, answer.version, sample=most), key="files",
                         tell=lambda step: _looked_text(step, most, ""))  # fmt: skip
        if files is not None:
            st.session_state.setdefault(_SEEN, {})[ref.uri, answer.version] = files
            st.rerun()
    elif work.is_asked(everything):
        log = work.run(lambda: lake.see_log(ref), key="log",
                       tell=lambda step: _looked_text(step, None, " of every version"))  # fmt: skip
        if log is not None and log.is_done:
            st.session_state.setdefault(_LOG, {})[ref.uri, retention.facts.latest] = log
            st.rerun()


def _look(label: str, name: str, help_text: str) -> None:
    st.button(label, key=f"look_{name.partition('_')[0]}", icon=":material/search:", help=help_text,
              on_click=work.ask, args=(name,))  # fmt: skip


def _looked_text(step: FilesSeen | LogSeen, most: int | None, where: str) -> tuple[float, str]:
    of = min(step.total, most or step.total)
    return step.checked / max(1, of), f"{step.checked:,} of {things(of, 'file')}{where} · {step.missing:,} missing"


# pins -----------------------------------------------------------------------------------------------------------------


_PIN = "pin"
_CALLED, _UNTIL = "pin_called", "pin_until"
_MOST_LISTED = 20


@dataclass(frozen=True, slots=True)
class _PinAsked:
    """`pin`: the one that is to go; None: the version is to be pinned."""

    ref: TableRef
    version: int
    pin: Pin | None


def _pins_of(ref: TableRef) -> list[Pin] | None:
    """The table's pins by version; None where the store does not answer, which is shown."""
    with errors.boundary():
        store = services.existing_store()
        return store.pins.of_table(ref) if store else []
    return None  # type: ignore[unreachable]  # `boundary` shows what was raised, and goes on


def _pin_button(ref: TableRef, version: int, pins: Sequence[Pin]) -> None:
    """Opens the dialog on the next full run; off where nobody may act here."""
    pin = next((pin for pin in pins if pin.version == version), None)
    effect = "VACUUM may take its files again" if pin else "Weir's VACUUM then leaves its files alone"
    icon, label = (":material/keep_off:", "Unpin…") if pin else (":material/keep:", "Pin…")
    asked, blocked = _PinAsked(ref, version, pin), viewer.why_not("unpin" if pin else "pin", ref.name)
    dialogs.button(_PIN, asked, label, key="pin", icon=icon, effect=effect, blocked=blocked)


def _pin_dialog(asked: _PinAsked) -> None:
    with errors.boundary():
        if asked.pin:
            st.markdown(markdown_safe(sentence(pin_words(asked.pin, services.now()))))
            st.markdown("Without the pin, VACUUM deletes its files once the table's retention allows it.")
        else:
            st.markdown("VACUUM by Weir is refused while it would delete a file of this version.")
            st.caption("VACUUM by other engines ignores pins. How long Delta allows reading it does not change.")
        label, boxes = ("Unpin", None) if asked.pin else ("Pin", _boxes)
        reason = dialogs.reason(_PIN, label=label, boxes=boxes)
        if reason is None:
            return
        pins, actor, now = services.store().pins, viewer.actor(), services.now()
        if asked.pin:
            pins.remove(asked.ref, asked.version, actor=actor, reason=reason, now=now)
        else:
            name, until = (str(st.session_state[key] or "") for key in (_CALLED, _UNTIL))
            ends = parse_time(until, viewer.clock(), end_of_day=True) if until else None
            pins.add(asked.ref, asked.version, actor=actor, reason=reason, now=now, name=name, until=ends)
        dialogs.asked(_PIN, f"v{asked.version} is {'not pinned any more' if asked.pin else 'pinned'}")


def _boxes() -> None:
    means = "Stands for this version wherever a version is asked for, also in SQL: VERSION AS OF 'features-2026-11'"
    st.text_input("Name (optional)", key=_CALLED, placeholder="features-2026-11", help=means)
    st.text_input("Until (optional)", key=_UNTIL, placeholder="2026-12-31", help="The end of that day, UTC")


# numbers over versions: the table's own, a column's by statistics, or any SQL aggregate -------------------------------


Values = tuple[Sequence[VersionValue[Any]], Series, tuple[int, int]]  # the last: of so many of so many versions


def _numbers(opened: OpenTable, retention: RetentionRuns) -> None:
    """The choice of a number, the number over versions, and of one that was computed every value as a list."""
    names = [*TABLE_NUMBERS, COLUMN, SQL]
    name = st.segmented_control("Number", names, default="Rows", required=True, key=state.NUMBER, bind="query-params")
    over = st.segmented_control(
        "Over", ["Time", "Versions"], default="Time", required=True, key=state.OVER, bind="query-params"
    )
    totals, computed = _totals(opened), None
    if name in (COLUMN, SQL):
        computed = _column(opened, retention) if name == COLUMN else _sql(opened, retention)
        if computed is None:
            return
        values, series, (chosen, of) = computed
        points = view.value_points(values, totals)
    else:
        series, points = TABLE_SERIES[TABLE_NUMBERS[name]], table_points(totals, TABLE_NUMBERS[name])
        chosen = of = len(points)
    if not points:
        return
    can_be_drawn = view.can_be_drawn(points)
    if can_be_drawn:
        mode, zone = viewer.mode(), viewer.timezone()
        figure = series_figure(points, totals, series, by_time=over == "Time", mode=mode, zone=zone)
        chart(figure, key="number_chart")
    if note := notes(points, chosen, of):
        st.caption(markdown_safe(note))
    if computed:
        with st.expander("Values", expanded=not can_be_drawn):
            lists.show(view.value_columns(series), points[::-1], key="values", alt="Values, newest version first")


def _totals(opened: OpenTable) -> tuple[VersionTotals, ...]:
    """The timeline's versions; a broken one is said once and hides nothing else."""
    try:
        with spinner("Reading every version …", of=f"timeline {opened.ref.uri}"):
            return viewer.lake().timeline(opened.ref).totals
    except LakehouseError as exc:
        st.warning(markdown_safe(sentence(exc.message)), icon=":material/warning:")
        return ()


# a column --------------------------------------------------------------------------------------------------------


def _column(opened: OpenTable, retention: RetentionRuns) -> Values | None:
    names = columns_with_stats(opened.snapshot.metadata)
    if not names:
        st.info("**No column has statistics.**", icon=":material/view_column:")
        return None
    with st.container(horizontal=True, key="column_choice"):
        column = st.selectbox("Column", names, key=state.COLUMN, bind="query-params")
        measure = st.segmented_control(
            "Measure", list(MEASURES), default="Nulls", required=True, key=state.MEASURE, bind="query-params"
        )
    st.caption("From the log's statistics: texts may be cut, and deleted rows count until their file is rewritten.")
    wanted, known_of = spread(retention.facts.spans, COUNTS[-1]), column_numbers()
    known: Sequence[VersionValue[Any]] = known_of.known(opened.snapshot, column, wanted)
    name = f"column_{opened.ref.uri}_{column}"
    cheap = len(wanted) * opened.snapshot.num_files <= AT_ONCE_FILES
    if len(known) < len(wanted) and not cheap and not work.is_asked(name):
        st.button(f"Read the statistics of {things(len(wanted), 'version')}", key="read_column", type="primary",
                  icon=":material/play_arrow:", on_click=work.ask, args=(name,))  # fmt: skip
    elif len(known) < len(wanted):
        known = _compute(lambda: known_of.over(viewer.lake(), opened.ref, column, wanted), "column") or known
    series = Series(f"{measure} {column}", column, from_zero=False)
    if measure == "Nulls":
        series = Series(f"Nulls of {column}", "rows")
    values = [replace(v, value=getattr(v.value, MEASURES[measure]) if v.value is not None else None) for v in known]
    return values, series, (len(wanted), sum(last - first + 1 for first, last in retention.facts.spans))


def _sql(opened: OpenTable, retention: RetentionRuns) -> Values | None:
    latest = retention.facts.latest
    typed = st.text_input(
        "Aggregate", key=state.SQL, bind="query-params", placeholder="sum(amount)", max_chars=2_000,
        help="One SQL aggregate over the rows, such as count(*) FILTER (WHERE status = 'open') or "
        "count(DISTINCT customer_id). DuckDB's dialect; it sees the table's columns and nothing else.",
    )  # fmt: skip
    aggregate = (typed or "").strip()
    with st.container(horizontal=True, vertical_alignment="bottom", key="sql_versions"):
        first = st.number_input("From version", 0, latest, 0, key=state.FIRST, bind="query-params", width=150)
        last = st.number_input("To version", 0, latest, latest, key=state.LAST, bind="query-params", width=150)
        count = st.selectbox("At most", COUNTS, key=state.POINTS, bind="query-params", width=120)
        wanted = spread(retention.facts.spans, count, within=(min(first, last), max(first, last)))
        name = f"sql_{opened.ref.uri}_{aggregate}"
        label, ready = f"Compute at {things(len(wanted), 'version')}", bool(aggregate and wanted)
        st.button(label, key="compute", type="primary", icon=":material/play_arrow:", disabled=not ready,
                  on_click=work.ask, args=(name,))  # fmt: skip
    if not aggregate:
        teaching = "**Write an aggregate**, for instance `count(*)`. The rows of each version are read once."
        st.info(teaching, icon=":material/functions:")
        return None
    known: Sequence[VersionValue[Any]] = aggregates().known(opened.snapshot, aggregate, wanted)
    if work.is_asked(name):
        try:
            begun = aggregates()
            known = _compute(lambda: begun.over(viewer.lake(), opened.ref, aggregate, wanted), "sql") or known
        except QueryError as exc:
            if exc.position is not None:
                st.code(f"{aggregate}\n{' ' * exc.position}^", language=None)
            raise
    if not known:
        return None
    of = sum(max(0, min(last, wanted[-1]) - max(first, wanted[0]) + 1) for first, last in retention.facts.spans)
    return known, Series(aggregate, aggregate, from_zero=False), (len(known), of)


def _compute(begin: Callable[[], Iterator[NumbersProgress[Any]]], key: str) -> Sequence[VersionValue[Any]]:
    def tell(step: NumbersProgress[Any]) -> tuple[float, str]:
        rows = f" · {step.rows_read:,} rows read" if step.rows_read else ""
        at = "" if step.version is None else f" · now v{step.version}"
        return len(step.values) / max(1, step.total), f"{len(step.values)} of {things(step.total, 'version')}{at}{rows}"

    last = work.run(begin, key=key, tell=tell)
    return last.values if last else ()
