"""Query: a statement, what it will read, its first rows, a chart of them, and all of them as a file.

Rule: the URL holds the statement and, once it ran, the versions that it read: a link offers it at just these. Rows are
kept for the viewer who asked alone. Nothing is read before this viewer ran it, and nothing large without a second
click. On the stream host statement and versions name the job: a reload, a second viewer and the command see the same
one, and leaving the page ends nothing.
"""

import functools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import TypeVar
from zlib import crc32

import pyarrow as pa
import streamlit as st

from app import cache, errors, navigation, services, state, viewer
from app.host_answer import HostQuestion
from app.query import view
from app.query.saved import save_button, saved, saved_dialogs
from app.query.sql_editor import sql_editor
from app.ui import figures, work
from app.ui.export import ExportOffer, exact_rows, export_button
from app.ui.view import code as words
from app.ui.view.code import TOOLS, code
from app.ui.view.words import markdown_safe, sentence
from backend.cells import distinct_names
from backend.errors import QueryError, QueryTooLargeError
from backend.format import bytes_text, cut, duration_text
from backend.jobs.results import results_lake
from backend.query.answer import answered, first_rows, job_request, kept_rows, query_limits
from backend.query.plan import QueryPlan, plan_query
from backend.sql.export import Exported, Format
from backend.sql.saved import Chart
from backend.sql.session import CancelToken
from backend.work import Interruptible, Work

Option = TypeVar("Option", bound=str)
MOST_ROWS = 1_000
MOST_DRAWN = 2_000  # of the rows that a host kept
MOST_CHARACTERS = 20_000  # that fit into a link
MOST_EARLIER = 20
POLL_S = 0.2
HOST_LABEL = "Run on the stream host"
_EDITOR, _TEXT, _RESULT, _OPENED, _EARLIER = (
    f"query_{part}" for part in ("text", "last", "result", "opened", "earlier")
)
_HELP = """One SELECT in DuckDB's SQL: joins, WITH, windows. `"silver/orders" VERSION AS OF 118`, or
`TIMESTAMP AS OF '2 h ago'`. What the log knows: `"silver/orders$history"`, `$files`, `$partitions`, `$properties`,
`"silver/orders$changes"(118, 'latest')`, and `weir.tables`, `weir.columns`, `weir.commits` …

Names and functions are offered as you type, all of them by Ctrl+Space: Enter or Tab takes one, Esc none."""


def query() -> None:
    """The editor with the answer, then what was saved and what this session asked before."""
    with errors.boundary():
        _answer(_editor())
    saved_dialogs()
    with st.container(horizontal=True, key="query_lists"):
        saved()
        _earlier()


def _editor() -> str:
    """The statement as it was last sent, "" for none."""
    linked = state.get_str(state.QUERY)
    if linked is None and _EDITOR not in st.session_state:  # back from another page: nothing is lost
        linked = st.session_state.get(_TEXT)
    if linked is not None and linked != st.session_state.get(_EDITOR):
        st.session_state[_EDITOR] = linked
    with st.form("query_form", border=False):
        text = st.text_area(
            "SQL", key=_EDITOR, height=170, help=_HELP, max_chars=MOST_CHARACTERS,
            placeholder='SELECT status, count(*) FROM "silver/orders" GROUP BY status',
        )  # fmt: skip
        sql_editor(cache.lake_reading(), st.session_state[_EDITOR] or "", most=MOST_CHARACTERS)
        with st.container(horizontal=True, vertical_alignment="bottom", key="query_buttons"):
            st.form_submit_button(
                "Run", key="query_run", type="primary", icon=":material/play_arrow:", help="Ctrl+Enter", on_click=_run
            )
            st.form_submit_button("What it reads", key="query_plan", on_click=_sent)
            why = viewer.why_no_job()
            st.form_submit_button(
                HOST_LABEL, key="query_host", icon=work.HOST_ICON, on_click=_run_on_host, disabled=why is not None,
                help=markdown_safe(sentence(why)) if why else "By Spark, for what is too large for this machine",
            )  # fmt: skip
    return text or ""


def _sent() -> None:
    """What was typed goes into the link; the versions of what was there before do not."""
    st.session_state[_TEXT] = st.session_state[_EDITOR]
    st.session_state.pop(_RESULT, None)
    work.cancel()
    state.set_params({state.QUERY: st.session_state[_EDITOR] or None, state.VERSIONS: None, state.ON: None})


def _run() -> None:
    _sent()
    work.ask(_asked(st.session_state[_EDITOR]))


def _run_on_host() -> None:
    _sent()
    work.ask_host()


def _asked(text: str, *, is_confirmed: bool = False) -> str:
    return f"query {is_confirmed} {text}"


def _earlier() -> None:
    """This session's own queries, each at the versions that it read."""
    queries: dict[tuple[str, str, str | None], str] = st.session_state.get(_EARLIER, {})
    if queries:
        with st.popover("Earlier", icon=":material/history:", key="query_earlier"):
            for (text, pins, on), caption in reversed(queries.items()):
                params = {state.QUERY: text, state.VERSIONS: pins or None, state.ON: on}
                navigation.page_link("query", cut(" ".join(text.split()), 80), params)
                st.caption(markdown_safe(caption))


# the answer -----------------------------------------------------------------------------------------------------------


def _answer(text: str) -> None:
    """The rows, or what they would cost; raises what names and versions raise that there are not."""
    if not text.strip():
        st.caption(
            "Nothing is read until you run it. Names of tables are offered as you type. Or open a table's Data, "
            "History or Files: each has a link that brings its statement here."
        )
        return
    pins = state.get_str(state.VERSIONS) or ""
    result: view.Result | None = st.session_state.get(_RESULT)
    is_on_host = state.get_str(state.ON) == work.HOST
    if result is None or (result.text, result.pins, bool(result.by)) != (text, pins, is_on_host):
        is_known = (text, pins, None) in st.session_state.get(_EARLIER, {})  # anybody may have made the link
        if is_known and not is_on_host and st.session_state.get(_OPENED) != (text, pins):
            work.ask(_asked(text))
        st.session_state[_OPENED] = (text, pins)
        try:
            result = _found_on_host(text, pins) if is_on_host else _computed(text, pins)
        except QueryError as exc:
            work.cancel()
            errors.show(exc, meaning="The statement is kept: change it, and run it again.")
            return
    if result is not None:
        _show(result)


def _plan(text: str, pins: str, most_rows: int | None) -> QueryPlan:
    given = pins.split(",") if pins else []
    return plan_query(services.world(), text, viewer.clock(), pins=given, most_rows=most_rows)


def _found_on_host(text: str, pins: str) -> view.Result | None:
    """The result that a stream host kept; None while there is none. Raises `QueryError` for what a host cannot do."""
    with st.spinner("Looking at what it reads …"):
        plan = _plan(text, pins, None)
    state.set_params({state.VERSIONS: ",".join(plan.pins)})  # of the job, whatever is committed while it runs
    settings = services.settings()
    wanted = job_request(
        plan, actor=viewer.actor(), reason="asked for on the Query page", time_limit_s=settings.jobs.time_limit_s
    )
    lake = results_lake(settings)
    reply = work.host_reply(HostQuestion(wanted, "answer", lambda job: kept_rows(lake, settings, job)))
    if (kept := reply.answer) is None or (job := reply.job) is None:
        label = "Run at these versions" if reply.job is None else "Run again at these versions"
        cost = f"The stream host reads at most {words.cost_text(plan)}."
        work.show_reply(reply, page="the Query page", label=label, cost=cost)
        return None
    rows = kept.rows.rename_columns(distinct_names(kept.rows.column_names))
    took_s = (job.ended_at - job.started_at).total_seconds() if job.ended_at and job.started_at else 0.0
    read = words.read_text(plan)
    return _kept(view.Result(text, ",".join(plan.pins), read, rows, kept.is_cut, took_s, kept.by))


def _computed(text: str, pins: str) -> view.Result | None:
    """The result if it was asked for; None before, when it is too large, or was cancelled."""
    with st.spinner("Looking at what it reads …"):
        plan = _plan(text, pins, MOST_ROWS + 1)
    is_confirmed = work.is_asked(_asked(text, is_confirmed=True))
    slot = st.empty()
    slot.caption(markdown_safe(f"Reads at most {words.cost_text(plan)}."))
    if not is_confirmed and not work.is_asked(_asked(text)):
        if pins:
            st.caption("A link brought this statement with its versions. Run it to see its rows.")
            st.button(
                "Run at these versions", key="query_run_linked", icon=":material/play_arrow:", on_click=work.ask,
                args=(_asked(text),),
            )  # fmt: skip
        return None
    if not is_confirmed and not _is_small(plan, text):
        return None
    limit_s, cost = services.settings().lake.query_time_limit_s, markdown_safe(words.cost_text(plan))

    def tell(step: _Step) -> tuple[float, str]:  # of its time: nobody knows how much is left to do
        took, of = duration_text(step.elapsed_s), duration_text(limit_s)
        return step.elapsed_s / limit_s, f"Reading {cost} · {took} of at most {of}"

    last = work.run(functools.partial(_steps, plan), key="query", tell=tell)
    if last is None or last.rows is None:
        return None
    slot.empty()
    return _kept(view.Result(text, ",".join(plan.pins), words.read_text(plan), last.rows, last.is_cut, last.elapsed_s))


def _kept(result: view.Result) -> view.Result:
    """It stays with its viewer, and its versions stand in the link."""
    asked, on = (result.text, result.pins), work.HOST if result.by else None
    st.session_state[_RESULT], st.session_state[_TEXT], st.session_state[_OPENED] = result, result.text, asked
    earlier: dict[tuple[str, str, str | None], str] = st.session_state.setdefault(_EARLIER, {})
    earlier.pop((*asked, on), None)
    earlier[*asked, on] = view.result_sentence(result)
    while len(earlier) > MOST_EARLIER:
        earlier.pop(next(iter(earlier)))
    state.set_params({state.QUERY: result.text, state.VERSIONS: result.pins})
    return result


def _is_small(plan: QueryPlan, text: str) -> bool:
    try:
        plan.require_small(services.settings().lake.query_max_bytes)
    except QueryTooLargeError as exc:
        work.cancel()
        st.warning(
            f"**{markdown_safe(sentence(exc.message))}** Nothing was read. Filter by a column with statistics or of "
            "the partition, or read it anyway.",
            icon=":material/warning:",
        )
        confirmed, pins = (_asked(text, is_confirmed=True),), ",".join(plan.pins)
        with st.container(horizontal=True, vertical_alignment="center", key="query_too_large"):
            st.button(f"Read {bytes_text(plan.size_bytes)}", key="query_confirm", on_click=work.ask, args=confirmed)
            work.host_button(
                HOST_LABEL, key="query_to_host", on_click=lambda: work.ask_host({state.VERSIONS: pins or None})
            )
        return False
    return True


@dataclass(frozen=True, slots=True)
class _Step:
    """How long it runs; with `rows`, the first ones, it is over."""

    elapsed_s: float
    rows: pa.Table | None = None
    is_cut: bool = False


def _steps(plan: QueryPlan) -> Iterator[_Step]:
    """Left early, the query's process is killed."""
    token, world, actor = Interruptible(), services.world(), viewer.actor()
    limits = query_limits(world.settings.lake)
    with Work(lambda: first_rows(world, plan, limits, actor, token), token.stop) as running:
        while not running.ended(POLL_S):
            yield _Step(running.elapsed_s)
        yield _Step(running.elapsed_s, *running.result())


def _show(result: view.Result) -> None:
    head = st.container(horizontal=True, vertical_alignment="center", key="query_head")
    with head:
        st.caption(markdown_safe(view.result_sentence(result)), width="content")
        st.space("stretch")
        shown = st.segmented_control(
            "Show", ["Rows", "Chart"], default="Rows", required=True, key=state.VIEW, bind="query-params",
            label_visibility="collapsed",
        )  # fmt: skip
        export_button(_offer(result))
        _copy(result)
    if "now" in result.pins.split(","):
        st.caption("Tables of `weir.` have no versions: the link shows them as they are when it is opened.")
    chart = _chart(result) if shown == "Chart" else None
    with head:
        save_button(result.text, chart)
    if shown != "Chart":
        exact_rows(
            result.rows, key=f"query_rows_{crc32(repr((result.text, result.pins)).encode())}", alt="Rows of the query"
        )


def _copy(result: view.Result) -> None:
    """All rows at these versions as code for other tools, made once somebody looks."""
    with st.popover("Copy as", icon=":material/content_copy:", key="query_copy", on_change="rerun") as opened:
        if not opened.open:
            return
        plan = _plan(result.text, result.pins, None)
        st.caption(f"Every row{markdown_safe(result.read)}, in UTC")
        for tool, language in TOOLS.items():
            st.markdown(f"**{tool}**")
            try:
                st.code(code(plan, tool), language=language, wrap_lines=True, height=200)
            except QueryError as exc:
                st.caption(markdown_safe(sentence(exc.message)))


def _chart(result: view.Result) -> Chart | None:
    rows = result.rows.slice(0, MOST_DRAWN)
    is_cut = result.is_cut or rows.num_rows < result.rows.num_rows
    columns = view.chart_columns(rows)
    kinds = columns.kinds()
    if not kinds or not rows.num_rows:
        st.info(
            "**Nothing to draw.** A chart needs rows with a column of numbers, such as `count(*)`, and another one "
            "beside it: a text, a time or a number. One row with a number is a figure.",
            icon=":material/bar_chart:",
        )
        return None
    with st.container(horizontal=True, vertical_alignment="bottom", key="query_chart_choices"):
        kind = _choice("Chart", kinds, state.CHART) or kinds[0]
        if kind == "Figure":
            chart = Chart(kind, y=_choice("Figure", columns.ys(""), state.CHART_Y) or columns.ys("")[0])
        else:
            x = _choice("Along", columns.xs(kind), state.CHART_X) or columns.xs(kind)[0]
            y = _choice("Height", columns.ys(x), state.CHART_Y) or columns.ys(x)[0]
            few = view.colours(rows, columns, x)
            colour = _choice("Colour", [*few, view.ONE_COLOUR] if few else [], state.CHART_COLOUR)
            chart = Chart(kind, x, y, colour if colour in few else None)
    drawn = view.figure(rows, chart, is_cut=is_cut, mode=viewer.mode(), zone=viewer.timezone())
    figures.chart(drawn, key="query_chart")
    return chart


def _choice(label: str, options: list[Option], key: str) -> Option | None:
    """One of what fits: as the link says, else the first."""
    linked = state.get_str(key)
    return st.selectbox(
        label, options, options.index(linked) if linked in options else 0, key=f"_{key}", width=165,
        disabled=len(options) < 2, placeholder="–",
        on_change=lambda: state.set_params({key: st.session_state[f"_{key}"]}),
    )  # fmt: skip


# all rows as a file ---------------------------------------------------------------------------------------------------


def _exported(form: Format, rows: Callable[[CancelToken], AbstractContextManager[pa.RecordBatchReader]]) -> Exported:
    return Exported("a query", f"query.{form.suffix}", form, rows)


def _offer(result: view.Result) -> ExportOffer:
    if result.by:
        rows = result.rows
        return ExportOffer(
            "the rows that the host kept",
            lambda form: _exported(form, lambda _: nullcontext(rows.to_reader())),
            f"Read{result.read}. There are more: filter or group earlier." if result.is_cut else f"Read{result.read}",
            lambda _: words.command(result.text, result.pins, work.HOST),
        )
    lake, time_limit_s = services.settings().lake, services.settings().ui.export_time_limit_s
    limits = replace(query_limits(lake), time_limit_s=time_limit_s)  # a browser takes it slowly
    return ExportOffer(
        "all rows of the query",
        lambda form: _exported(
            form,
            functools.partial(
                answered, services.world(), _plan(result.text, result.pins, None), limits, viewer.actor()
            ),
        ),
        f"Read{result.read}" if result.read else "",
        lambda _: words.command(result.text, result.pins),
    )
