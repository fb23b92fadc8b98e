"""Query: a statement, what it reads, its first rows, a chart of them, all of them as a file, and saved statements.

Rule: the URL holds the statement and, once it ran, the versions that it read: a link offers it at just these. Rows are
kept for the viewer who asked alone. Nothing is read before this viewer ran it, and nothing large without a second
click. On the stream host statement and versions name the job: a reload, a second viewer and the command see the same
one, and leaving the page ends nothing. A saved statement is everybody's; who saves or removes it gives a reason.
"""

import functools
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from itertools import islice
from typing import TypeVar
from zlib import crc32

import pyarrow as pa
import streamlit as st

from app import cache, errors, navigation, services, state, viewer
from app.host_answer import HostQuestion
from app.query import view
from app.query.sql_editor import sql_editor
from app.ui import dialogs, figures, work
from app.ui.export import ExportOffer, exact_rows, export_button
from app.ui.view import code as words
from app.ui.view.code import TOOLS, code
from app.ui.view.figures import FigureLook
from app.ui.view.words import markdown_safe, sentence
from backend.cells import distinct_names
from backend.errors import QueryError, QueryTooLargeError
from backend.format import ago, bytes_text, cut, duration_text, things
from backend.jobs.results import results_lake
from backend.query.answer import answered, first_rows, job_request, kept_rows, query_limits
from backend.query.plan import QueryPlan, plan_query
from backend.sql.export import Exported, Format
from backend.sql.saved import LONGEST_NAME, Chart, SavedQuery
from backend.work import Interruptible, Work

Option = TypeVar("Option", bound=str)
MOST_ROWS = 1_000
MOST_DRAWN = 2_000  # of the rows that a host kept
MOST_CHARACTERS = 20_000  # that fit into a link
MOST_LAST = 20
POLL_S = 0.2
HOST_LABEL = "Run on the stream host"
ADD_TILE = "dashboard_added"  # the name of a tile that the dashboard takes in
_EDITOR, _TEXT, _RESULT, _LAST, _SEEN = (f"query_{part}" for part in ("text", "last", "result", "earlier", "seen"))
_SAVE, _REMOVE, _SAVED = "query_save", "query_remove", "query_saved_as"
_HELP = """One SELECT in DuckDB's SQL: joins, WITH, windows. `"silver/orders" VERSION AS OF 118`, or
`TIMESTAMP AS OF '2 h ago'`. What the log knows: `"silver/orders$history"`, `$files`, `$partitions`, `$properties`,
`"silver/orders$changes"(118, 'latest')`, and `weir.tables`, `weir.columns`, `weir.commits` …

Names and functions are offered as you type, all of them by Ctrl+Space. Enter or Tab takes one, Esc none."""


def query() -> None:
    """What was asked and saved before, then the editor with the answer."""
    dialogs.dialog(_SAVE, _save, title=lambda _: "Save this query?", width="small")
    dialogs.dialog(_REMOVE, _remove, title=lambda saved: f"Remove {saved.name}?", width="small")
    before = st.container(horizontal=True, key="query_lists")
    with errors.boundary():
        _answer(_editor())
    with before:
        _last()
        with errors.boundary():
            _saved()


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
            placeholder=view.example(cache.lake_reading()),
        )  # fmt: skip
        sql_editor(cache.lake_reading(), st.session_state[_EDITOR] or "", most=MOST_CHARACTERS)
        with st.container(horizontal=True, vertical_alignment="bottom", key="query_buttons"):
            st.form_submit_button(
                "Run", key="query_run", type="primary", icon=":material/play_arrow:", shortcut="Mod+Enter",
                on_click=_run,
            )  # fmt: skip
            st.form_submit_button("What it reads", key="query_plan", on_click=_sent)
            why = viewer.why_no_job("query job", "")
            st.form_submit_button(
                HOST_LABEL, key="query_host", icon=work.HOST_ICON, on_click=_run_on_host, disabled=why is not None,
                help=markdown_safe(sentence(why)) if why else "By Spark, for what is too large for this machine",
            )  # fmt: skip
    return text or ""


def _sent() -> None:
    """What was typed goes into the link; the versions and the title of what was there before do not."""
    st.session_state[_TEXT] = st.session_state[_EDITOR]
    st.session_state.pop(_RESULT, None)
    work.cancel()
    if st.session_state[_EDITOR] != state.get_str(state.QUERY):
        st.session_state[state.CHART_TITLE] = ""
    state.set_params({state.QUERY: st.session_state[_EDITOR] or None, state.VERSIONS: None, state.ON: None})


def _run() -> None:
    _sent()
    work.ask(_asked(st.session_state[_EDITOR]))


def _run_on_host() -> None:
    _sent()
    work.ask_host()


def _asked(text: str, *, is_confirmed: bool = False) -> str:
    return f"query {is_confirmed} {text}"


# the answer -----------------------------------------------------------------------------------------------------------


def _answer(text: str) -> None:
    """The rows, or what they would cost; raises what names and versions raise that there are not."""
    if not text.strip():
        if work.is_asked(_asked(text)):
            work.cancel()
            st.warning(
                "**There is nothing to run.** Write a SELECT first, or take the example.", icon=":material/edit:"
            )
        example = view.example(cache.lake_reading())
        navigation.page_link("query", f"Example: {example}", {state.QUERY: example}, icon=":material/lightbulb:")
        st.caption(
            "Nothing is read until you run it. A table's Data, History and Files have a link that brings their "
            "statement here."
        )
        return
    pins = state.get_str(state.VERSIONS) or ""
    if st.session_state.get(_SEEN) != viewer.lake().opened:  # who may see less by now keeps no rows
        st.session_state.pop(_RESULT, None)
    result: view.Result | None = st.session_state.get(_RESULT)
    is_on_host = state.get_str(state.ON) == work.HOST
    if result is None or (result.text, result.pins, bool(result.by)) != (text, pins, is_on_host):
        if not is_on_host and st.session_state.get(_LAST, {}).pop((text, pins, None), None):
            work.ask(_asked(text))  # this viewer ran it before; anybody may have made another link
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
    return plan_query(
        services.world(viewer.lake(), viewer.actor()), text, viewer.clock(), pins=given, most_rows=most_rows
    )


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
        work.show_reply(reply, "query job", "", page="the Query page", label=label, cost=cost)
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

    def tell(step: view.Result) -> tuple[float, str]:  # of its time: nobody knows how much is left to do
        took, of = duration_text(step.duration_s), duration_text(limit_s)
        return step.duration_s / limit_s, f"Reading {cost} · {took} of at most {of}"

    def steps() -> Iterator[view.Result]:
        """Without rows until it is over; left early, the query's process is killed."""
        actor = viewer.actor()
        token, world = Interruptible(), services.world(viewer.lake(), actor)
        limits, pins = query_limits(world.settings.lake), ",".join(plan.pins)
        step = view.Result(text, pins, words.read_text(plan), pa.table({}), False, 0.0)
        with Work(lambda: first_rows(world, plan, limits, actor, token), token.stop) as running:
            while not running.ended(POLL_S):
                yield replace(step, duration_s=running.elapsed_s)
            rows, is_cut = running.result()
            yield replace(step, rows=rows, is_cut=is_cut, duration_s=running.elapsed_s)

    last = work.run(steps, key="query", tell=tell)
    if last is None or not last.rows.num_columns:
        return None
    slot.empty()
    return _kept(last)


def _kept(result: view.Result) -> view.Result:
    """It stays with its viewer, and its versions stand in the link."""
    st.session_state[_RESULT], st.session_state[_TEXT] = result, result.text
    st.session_state[_SEEN] = viewer.lake().opened
    last: dict[tuple[str, str, str | None], str] = st.session_state.get(_LAST, {})
    asked = (result.text, result.pins, work.HOST if result.by else None)
    newest = {asked: view.result_sentence(result)} | {key: last[key] for key in last if key != asked}
    st.session_state[_LAST] = dict(islice(newest.items(), MOST_LAST))
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
            ask_host = functools.partial(work.ask_host, {state.VERSIONS: pins or None})
            work.host_button(HOST_LABEL, "query job", "", key="query_to_host", on_click=ask_host)
        return False
    return True


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
        st.caption("Tables of `weir.` have no versions: the link reads them anew.")
    chart, title = _chart(result) if shown == "Chart" else (None, "")
    with head:
        asked, effect = (result.text, chart, title), "By name, for everybody; with a chart it can be a tile"
        icon, blocked = ":material/bookmark_add:", viewer.why_not("save query", "")
        dialogs.button(_SAVE, asked, "Save…", key=_SAVE, icon=icon, effect=effect, blocked=blocked)
        saved_text, name = st.session_state.get(_SAVED, ("", ""))
        if saved_text == result.text:
            _add_to_dashboard(name)
    if shown != "Chart":
        _rows(result)


def _rows(result: view.Result) -> None:
    """The rows, narrowed and sorted by the exact values: a browser would sort decimals as texts."""
    number = crc32(repr((result.text, result.pins)).encode())
    with st.container(horizontal=True, vertical_alignment="bottom", key="query_narrow"):
        wanted = st.text_input("Filter", key=f"query_filter_{number}", placeholder="Text in any column", width=260)
        names, key = result.rows.column_names, f"query_sort_{number}"
        by = st.selectbox("Sort by", names, None, key=key, width=220, placeholder="As read")
        is_descending = by is not None and st.toggle("Descending", key=f"query_descending_{number}")
        rows = view.narrowed(result.rows, wanted or "", by, is_descending=is_descending)
        if rows.num_rows < result.rows.num_rows:
            st.caption(f"{rows.num_rows:,} of {things(result.rows.num_rows, 'row')}")
    exact_rows(rows, key=f"query_rows_{number}", alt="Rows of the query")


def _copy(result: view.Result) -> None:
    """All rows at these versions as code for other tools, made once somebody looks."""
    with st.popover("Copy as", icon=":material/content_copy:", key="query_copy", on_change="rerun") as opened:
        if not opened.open:
            return
        plan = _plan(result.text, result.pins, None)
        st.caption(markdown_safe(f"Every row{result.read}, in UTC"))
        for tool, language in TOOLS.items():
            st.markdown(f"**{tool}**")
            try:
                st.code(code(plan, tool), language=language, wrap_lines=True, height=200)
            except QueryError as exc:
                st.caption(markdown_safe(sentence(exc.message)))


def _chart(result: view.Result) -> tuple[Chart | None, str]:
    """What is drawn, and the title that a person gave it."""
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
        return None, ""
    with st.container(horizontal=True, vertical_alignment="bottom", key="query_chart_choices"):
        kind = _choice("Chart", kinds, state.CHART) or kinds[0]
        if kind == "Figure":
            chart = Chart(kind, y=_choice("Figure", columns.ys(""), state.CHART_Y) or columns.ys("")[0])
        else:
            x = _choice("X axis", columns.xs(kind), state.CHART_X) or columns.xs(kind)[0]
            y = _choice("Y axis", columns.ys(x), state.CHART_Y) or columns.ys(x)[0]
            few = view.colours(rows, columns, x)
            colour = _choice("Series", [*few, view.ONE_COLOUR] if few else [], state.CHART_COLOUR)
            chart = Chart(kind, x, y, colour if colour in few else None)
        title = st.text_input(
            "Title", key=state.CHART_TITLE, bind="query-params", max_chars=LONGEST_NAME, width=260,
            placeholder=view.default_title(chart),
        ).strip()  # fmt: skip
    look = FigureLook(viewer.mode(), viewer.timezone())
    figures.chart(view.figure(rows, chart, look, is_cut=is_cut, title=title), key="query_chart")
    return chart, title


def _choice(label: str, options: list[Option], key: str) -> Option | None:
    """One of what fits: as the link says, else the first."""
    linked = state.get_str(key)
    return st.selectbox(
        label, options, options.index(linked) if linked in options else 0, key=f"_{key}", width=165,
        disabled=len(options) < 2, placeholder="–",
        on_change=lambda: state.set_params({key: st.session_state[f"_{key}"]}),
    )  # fmt: skip


# all rows as a file ---------------------------------------------------------------------------------------------------


def _offer(result: view.Result) -> ExportOffer:
    if result.by:
        kept, on, title = result.rows, work.HOST, "the rows that the host kept"
        note = f"Read{result.read}. There are more: filter or group earlier." if result.is_cut else f"Read{result.read}"
    else:
        kept, on, title, note = None, "", "all rows of the query", f"Read{result.read}" if result.read else ""

    def rows(form: Format) -> Exported:
        if kept is not None:
            return Exported("a query", f"query.{form.suffix}", form, lambda _: nullcontext(kept.to_reader()))
        settings, world = services.settings(), services.world(viewer.lake(), viewer.actor())
        limits = replace(query_limits(settings.lake), time_limit_s=settings.ui.export_time_limit_s)  # browsers are slow
        read = functools.partial(answered, world, _plan(result.text, result.pins, None), limits, viewer.actor())
        return Exported("a query", f"query.{form.suffix}", form, read)

    return ExportOffer(title, rows, note, lambda _: words.command(result.text, result.pins, on))


# asked before, and saved ----------------------------------------------------------------------------------------------


def link_params(text: str, chart: Chart | None, pins: str = "") -> navigation.Params:
    """What opens a statement on Query, at these versions and drawn like this."""
    params: dict[str, state.Value] = {state.QUERY: text, state.VERSIONS: pins or None}
    if chart is None:
        return params
    drawn = {state.CHART: chart.kind, state.CHART_X: chart.x or None, state.CHART_Y: chart.y}
    return {**params, **drawn, state.CHART_COLOUR: chart.colour or view.ONE_COLOUR, state.VIEW: "Chart"}


def saved_queries() -> list[SavedQuery]:
    """By name; raises `StoreError`."""
    store = services.existing_store()
    return store.saved.all() if store else []


def _last() -> None:
    """This session's own queries, each at the versions that it read."""
    queries: dict[tuple[str, str, str | None], str] = st.session_state.get(_LAST, {})
    with st.popover("Last queries", icon=":material/history:", key="query_earlier", disabled=not queries):
        for (text, pins, on), caption in queries.items():
            params = {state.QUERY: text, state.VERSIONS: pins or None, state.ON: on}
            navigation.page_link("query", cut(" ".join(text.split()), 80), params)
            st.caption(markdown_safe(caption))


def _saved() -> None:
    """All saved queries, to be found by name or owner."""
    by_label = {f"{saved.name} · {saved.owner}": saved for saved in saved_queries()}
    if st.session_state.get(_REMOVE):
        st.session_state["query_saved"] = False  # open, it covers the dialog
    icon = ":material/bookmark:"
    with st.popover("Saved queries", icon=icon, key="query_saved", on_change="rerun", disabled=not by_label):
        label = st.selectbox("Saved queries", list(by_label), None, key="query_saved_name", placeholder="Search")
        if label not in by_label:
            return
        saved = by_label[label]
        blocked = viewer.why_not("remove query", saved.name, owner=saved.owner)
        st.code(cut(saved.text, 2_000), language="sql")
        st.caption(markdown_safe(f"{saved.owner} saved it {ago(saved.saved_at, services.now())}."))
        with st.container(horizontal=True, vertical_alignment="center", key="query_saved_buttons"):
            navigation.page_link("query", "Open", link_params(saved.text, saved.chart), icon=":material/terminal:")
            if saved.chart:
                _add_to_dashboard(saved.name, of="saved")
            icon, effect = ":material/bookmark_remove:", "For everybody; links with its statement stay"
            dialogs.button(_REMOVE, saved, "Remove…", key="query_remove", icon=icon, effect=effect, blocked=blocked)


def _add_to_dashboard(name: str, *, of: str = "result") -> None:
    label, icon = "Add to dashboard", ":material/dashboard_customize:"
    if st.button(label, key=f"query_tile_{of}", icon=icon, help=markdown_safe(f"{name}, as a tile")):
        st.session_state[ADD_TILE] = name
        navigation.go("dashboard")


def _save(asked: tuple[str, Chart | None, str]) -> None:
    text, chart, title = asked
    with errors.boundary():
        st.markdown("Everybody finds it by its name under *Saved queries*; a terminal runs it by that name.")
        st.caption("Its chart is saved with it." if chart else "Without a chart it is no tile: choose *Chart* first.")

        def boxes() -> None:
            st.text_input(
                "Name", title, key="query_save_title", max_chars=LONGEST_NAME, placeholder="Revenue by status"
            )

        reason = dialogs.reason(_SAVE, label="Save", boxes=boxes)
        if reason is None:
            return
        name, actor = st.session_state["query_save_title"] or "", viewer.actor()
        saved = services.store().saved.save(name, text, chart, actor=actor, reason=reason, now=services.now())
        st.session_state[_SAVED] = (text, saved.name) if chart else ("", "")
        dialogs.asked(_SAVE, f"{saved.name} is saved")


def _remove(saved: SavedQuery) -> None:
    with errors.boundary():
        st.markdown(f"{markdown_safe(saved.owner)} saved it. Links that hold its statement work as before.")
        reason = dialogs.reason(_REMOVE, label="Remove")
        if reason is None:
            return
        services.store().saved.remove(saved.name, actor=viewer.actor(), reason=reason, now=services.now())
        dialogs.asked(_REMOVE, f"{saved.name} is removed")
