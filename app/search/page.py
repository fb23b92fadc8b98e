"""First bad version: the form, conditions to choose from, probes as they run, the answer and the commit behind it.

Rule: everything asked is in the URL. A search runs after a click, as anybody may have made the link; that of a finding
runs at once. A finished search is shown at once. Rows of the commit are compared unasked where that is little work;
else a link leads there.
"""

import shlex
from collections.abc import Mapping

import streamlit as st

from app import cache, errors, navigation, services, state, viewer
from app.search import text
from app.services import once
from app.ui import lists, work
from app.ui.figures import key_line
from app.ui.frame import CHOICES, pin_names, version_picker
from app.ui.lake import OpenTable
from app.ui.table_acts import compared_soon, repair_button, way_back
from app.ui.view.words import markdown_safe, sentence
from backend.changes.key import choose_key, key_memory
from backend.errors import LakehouseError, NothingBrokenError, QueryError
from backend.format import duration_text, things
from backend.health.attention import finding_text
from backend.health.health import BACK
from backend.lake.history.history import example_condition
from backend.search.notice import Notice
from backend.search.search import OLDEST, Bisection, BisectProgress, BisectRequest, Bisects, named_version
from backend.search.suggest import held_numbers, load_held, suggest
from backend.sql.expression import MOST_CHARACTERS

MOST_CHECKS = 20
bisects = once(Bisects)  # searches that ended, by what was asked
held_columns = once(held_numbers)  # what columns hold at versions, from which conditions are suggested
_DEFAULTS = {state.GOOD: OLDEST, state.BAD: "latest"}
_PROBES = "Probes in the order they ran"


def findings(opened: OpenTable) -> None:
    """Open findings of the table, before anything is asked: each fact, what starts the search, what repairs its
    rows."""
    noticed = cache.noticed(cache.streams_reading())
    told = noticed.of(opened.ref.uri)
    if state.get_str(state.CONDITION) or st.session_state.get(state.CONDITION):
        if told:
            navigation.table_link(opened.ref.name, "Findings of the table", page="bisect")
        return
    if not told:
        what, looked = "No open finding in this table.", "Hosts look at each commit as it is made."
        if noticed.num_tables and not (noticed.by_host and noticed.is_current):
            those = f"{noticed.num_seen:,} of {things(noticed.num_tables, 'table')}"
            looked = f"Commits of the last {duration_text(BACK.total_seconds())} were looked at in {those} so far."
        if not noticed.is_current:
            what = "No open finding in this table yet."
        st.caption(f"{what} {looked}")
    latest = opened.latest_version if noticed.is_current else None
    for number, notice in enumerate(told):
        with st.container(border=True, key=f"finding_{number}"):
            st.markdown(f"**{markdown_safe(sentence(finding_text(notice, latest)))}**")
            with st.container(horizontal=True, vertical_alignment="center", key=f"finding_acts_{number}"):
                if notice.condition:
                    st.button(
                        "Find its first bad version", key=f"begin_{number}", icon=":material/search:",
                        on_click=_begin, args=(notice,),
                    )  # fmt: skip
                repair_button(opened.ref, opened.latest_version, notice, key=f"repair_{number}")
                ends = {state.FROM: notice.version - 1, state.TO: notice.version}
                navigation.table_link(opened.ref.name, f"What v{notice.version} changed", ends, page="changes")
                navigation.incident_link(opened.ref.name, notice.version - 1, notice.version)


def _begin(notice: Notice) -> None:
    st.session_state[state.CONDITION] = notice.condition  # that of a finding is searched at once
    state.set_params({state.GOOD: notice.version - 1, state.BAD: None})


def form(opened: OpenTable) -> BisectRequest:
    """The condition and the two ends, as the URL has them."""
    asking = st.form("ask", border=False)  # Enter searches
    condition = asking.text_input(
        "A good version satisfies", key=state.CONDITION, bind="query-params", max_chars=MOST_CHARACTERS,
        placeholder=example_condition(opened.snapshot.metadata, is_good=True),
        help="SQL over one version's rows, in DuckDB's dialect. Without an aggregate every row has to satisfy it; "
        "with one, such as count(*) > 0, the version as a whole. Null passes, as in a CHECK constraint. Columns alone, "
        "such as (order_id, line), have to be unique.",
    )  # fmt: skip
    with asking:
        st.form_submit_button(
            "Find first bad version", key="find", type="primary", icon=":material/search:",
            on_click=_find, args=(opened,),
        )  # fmt: skip
    commits = {str(each.version): each for each in viewer.lake().history(opened.ref, limit=CHOICES)}
    names = pin_names(opened.ref)
    with st.container(horizontal=True, vertical_alignment="bottom", key="bisect_ends"):
        version_picker(state.GOOD, "Good version", _DEFAULTS[state.GOOD], commits, names)
        version_picker(state.BAD, "Bad version", _DEFAULTS[state.BAD], commits, names)
        check = st.number_input(
            "Checks", 0, MOST_CHECKS, 2, key=state.CHECK, bind="query-params", width=120,
            help="Judges so many more versions on each side of the answer: the condition may change more than once.",
        )  # fmt: skip
    return _asked(condition.strip(), int(check))


def _find(opened: OpenTable) -> None:
    asked = _asked(str(st.session_state[state.CONDITION]).strip(), int(st.session_state[state.CHECK]))
    if asked.condition:
        work.ask(_work(opened, asked))


def _asked(condition: str, check: int) -> BisectRequest:
    good, bad = (state.get_str(end) or default for end, default in _DEFAULTS.items())
    return BisectRequest(condition, good, bad, check, viewer.clock())


def _work(opened: OpenTable, asked: BisectRequest) -> tuple[object, ...]:
    """What is asked of this table, whenever it is."""
    return opened.ref.uri, asked.condition, asked.good, asked.bad, asked.check


def answer(opened: OpenTable, asked: BisectRequest) -> None:
    """What is known of this search; runs it when asked to."""
    if not asked.condition:
        example = markdown_safe(f"`{example_condition(opened.snapshot.metadata, is_good=True)}`")
        st.info(
            f"**Write what a good version satisfies**, for instance {example} (every row) or `count(*) > 0` (the "
            "version as a whole). The search halves the versions between good and bad until it finds the commit.",
            icon=":material/search:",
        )
        _suggestions(opened, asked)
        return
    result = bisects().known(viewer.lake(), opened.ref, asked)
    found = cache.noticed(cache.streams_reading()).of(opened.ref.uri)  # what Weir asks by itself needs no click
    is_finding = any(each.condition == asked.condition for each in found)
    if work.is_asked(_work(opened, asked), at_once=result is None and is_finding):
        try:
            result = _search(opened, asked) or result
        except NothingBrokenError as exc:
            errors.show(exc)
            _suggestions(opened, asked)
            return
    if result is None:
        st.caption(
            "Nothing was read yet. Among 1,000 commits a search judges about 15 versions. It reads only the columns "
            "that the condition names, and each data file once, unless the condition is an aggregate."
        )
    else:
        _result(opened, result)


def _search(opened: OpenTable, asked: BisectRequest) -> Bisection | None:
    """Runs it and shows each probe as it ends; then the URL names the two versions that were compared."""

    num_shown, bar, slot = 0, st.container(), st.empty()

    def tell(step: BisectProgress) -> tuple[float, str]:
        nonlocal num_shown
        if len(step.probes) > num_shown:
            num_shown = len(step.probes)
            with slot:
                lists.show(text.probe_columns(services.now()), step.probes[::-1], key=None, alt=_PROBES)
        return text.progress_text(step)

    try:
        with bar:
            last = work.run(lambda: bisects().over(viewer.lake(), opened.ref, asked), key="bisect", tell=tell)
    except QueryError as exc:
        if exc.position is not None:
            st.code(f"{asked.condition}\n{' ' * exc.position}^", language=None)
        raise
    result = last.result if last else None
    if result is None:
        return None
    state.set_params({state.GOOD: result.good, state.BAD: result.bad})
    st.rerun()


# the answer ------------------------------------------------------------------------------------------------------


def _result(opened: OpenTable, result: Bisection) -> None:
    """One sentence, what stands beside it, where to go on, and every probe."""
    streams = cache.stream_names()
    st.subheader(markdown_safe(f"{text.headline(result, streams)}."), anchor=False)
    key_line(text.answer_figures(result, opened.latest_version))
    with errors.boundary():
        _culprit(opened, result)
        _links(opened, result)
        for number, notice in enumerate(cache.noticed(cache.streams_reading()).of(opened.ref.uri)):
            if notice.version == result.culprit:
                repair_button(opened.ref, opened.latest_version, notice, key=f"repair_{number}")
    warnings = text.disagreement(result)
    for warning in warnings:
        st.warning(markdown_safe(sentence(warning)), icon=":material/warning:")
    lines = [sentence(note) for note in text.notes(result) if note not in warnings]
    st.markdown("\n".join(f"- {markdown_safe(each)}" for each in lines))
    st.caption(markdown_safe(sentence(f"`{text.one_line(result.condition)}`: {text.means_text(result)}")))
    if result.culprit is None:
        _candidates(result, streams)
    if result.examples.rows:
        st.markdown(f"**Rows of v{result.bad_seen} that violate it** · the first {len(result.examples.rows)}")
        rows, alt = result.examples.rows, "Rows that violate the condition"
        lists.show(text.example_columns(result.examples), rows, key="bisect_rows", alt=alt)
    lists.show(text.probe_columns(services.now()), result.probes, key="bisect_probes", alt=_PROBES)
    with st.expander("The same in a terminal"):
        ends = ("--good", str(result.good), "--bad", str(result.bad))
        command = shlex.join(["weir", "bisect", result.ref.name, "--assert", result.condition, *ends])
        st.code(command, language="bash", wrap_lines=True)


def _links(opened: OpenTable, result: Bisection) -> None:
    name, to = opened.ref.name, result.changed_at
    with st.container(horizontal=True, key="bisect_links"):
        label = f"What v{to} changed" if to == result.last + 1 else f"What changed from v{result.last} to v{to}"
        across = None if result.older_id is None else "true"
        ends = {state.FROM: result.last, state.TO: to, state.ACROSS_REPLACE: across, state.VIEW: "Rows"}
        navigation.table_link(name, label, ends | {state.ROWS_WHERE: text.where_broken(result)}, page="changes")
        navigation.table_link(name, f"Table at v{result.good_seen}", {state.VERSION: result.good_seen})
        navigation.table_link(
            name, f"Can v{result.good_seen} be restored?", {state.AT: result.good_seen}, page="versions"
        )
        if not result.is_mended:
            navigation.incident_link(name, result.last, to)


def _candidates(result: Bisection, streams: Mapping[str, str]) -> None:
    st.markdown("**Commits that may be the first bad one**, newest first")
    lines = [
        f"- v{commit.version}: {markdown_safe(text.commit_text(commit, streams))}"
        for commit in sorted(result.commits, key=lambda each: -each.version)[:20]
    ]
    more = len(result.candidates) - len(lines)
    st.markdown("\n".join(lines + ([f"- and {more:,} more"] if more > 0 else [])))


# the commit that was found --------------------------------------------------------------------------------------------


def _culprit(opened: OpenTable, result: Bisection) -> None:
    """Who made it beside what it changed, and the way back, where there is one commit."""
    if result.culprit is None:
        return
    with st.grid(2, min_column_width=280, key="culprit"):
        who = st.container(border=True, height="stretch", key="culprit_who")
        changed = st.container(border=True, height="stretch", key="culprit_changed")
    with who:
        st.markdown(f"**v{result.culprit}: who and how**")
        if result.commit:
            lists.facts(text.commit_facts(result.commit, cache.stream_names()))
        else:
            st.caption("Its commit is not in the log any more.")
    with changed, st.spinner("Comparing rows …"):
        diff = compared_soon(opened.ref, result.culprit - 1, result.culprit)
        st.markdown(f"**What it changed**: {markdown_safe(text.changed_text(result, diff))}")
        if diff is not None:
            where = None if result.is_mended else text.where_broken(result)
            broken = compared_soon(opened.ref, result.culprit - 1, result.culprit, where) if where else None
            causes = text.cause_texts(diff, broken, by_row=bool(result.row_rule))
            st.markdown("\n".join(f"- {markdown_safe(cause)}" for cause in causes))
    if result.is_mended or result.good_seen >= opened.latest_version:
        st.caption("The latest version satisfies the condition: nothing has to go back.")
    else:
        where = text.where_broken(result) if result.row_rule else None
        way_back(opened.ref, opened.latest_version, result.good_seen, bad=(result.row_rule, where) if where else None)


# conditions to choose from --------------------------------------------------------------------------------------------


def _suggestions(opened: OpenTable, asked: BisectRequest) -> None:
    """What jumped between the two ends, as buttons; and what each column holds there."""
    try:
        with st.spinner("Looking for what jumped …"):
            commits = viewer.lake().history(opened.ref, limit=CHOICES, ending_version=opened.latest_version)
            remembered = key_memory(services.settings().home).known(opened.ref)
            chosen, _ = choose_key(None, opened.snapshot.metadata, commits, remembered)  # as Changes finds it
            key = chosen.columns if chosen else ()
            held = load_held(held_columns(), viewer.lake(), opened.ref, _ends(opened, asked), key)
    except LakehouseError:
        return  # the search itself says what is wrong with an end
    if len(held) < 2:
        return
    low, high = held[0].version, held[-1].version
    suggested = suggest(held, key)
    with st.container(key="suggestions"):
        range_text = f"between v{low} and v{high}"
        title = f"**What jumped {range_text}** · a click fills the condition" if suggested else ""
        st.markdown(title or f"Nothing jumped in the statistics of the log {range_text}.")
        for number, each in enumerate(suggested):
            with st.container(horizontal=True, vertical_alignment="center", key=f"suggested_{number}"):
                st.button(
                    markdown_safe(f"`{text.one_line(each.condition)}`"), key=f"suggestion_{number}",
                    icon=":material/arrow_upward:", on_click=st.session_state.update,
                    args=({state.CONDITION: each.condition},),
                )  # fmt: skip
                st.markdown(markdown_safe(text.suggestion_text(each)), width="content")
        st.caption(markdown_safe(text.compared_text(held)))
        names, alt = list(held[-1].columns)[: text.MOST_COLUMNS], "What columns hold at the good and the bad end"
        lists.show(text.held_columns(held), names, key="held", alt=alt)


def _ends(opened: OpenTable, asked: BisectRequest) -> tuple[int, int]:
    lake, ref = viewer.lake(), opened.ref
    good, bad = (named_version(lake, ref, end, asked.clock) for end in (asked.good, asked.bad))
    oldest = min((first for first, _ in lake.versions(ref)), default=0)
    ends = (oldest if good is None else good, opened.latest_version if bad is None else bad)
    return min(ends), max(ends)
