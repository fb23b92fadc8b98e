"""The search for the first bad version: its form, its probes as they run, and the answer.

Rule: everything asked is in the URL. A search runs after a click, or where the URL says that it ran: `run` holds the
mark of what was asked, so a changed form or another table runs nothing. A finished search is shown at once.
"""

import shlex
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import replace

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from app import cache, errors, navigation, services, state, viewer
from app.search.culprit import culprit
from app.search.suggestions import suggestions
from app.search.view import probes as view
from app.search.view.words import commit_text, disagreement, headline, means_text, notes, one_line
from app.ui import lists, work
from app.ui.figures import chart
from app.ui.frame import OpenTable
from app.ui.version_range import CHOICES, picker
from app.ui.view.conditions import example_condition
from app.ui.view.words import markdown_safe, sentence
from backend.errors import NothingBrokenError, QueryError
from backend.search.model import OLDEST, Bisection, BisectProgress, BisectRequest

MOST_CHECKS = 20
_DEFAULTS = {state.GOOD: OLDEST, state.BAD: "latest"}
PROBES = lists.Look(
    formats={"When": "ago"},
    config={
        "Version": st.column_config.NumberColumn(format="v%d", pinned=True, width="small"),
        "It gave": st.column_config.TextColumn(width="large"),
        "Took": st.column_config.NumberColumn(format="%.2f s"),
    },
    alt="Probes in the order they ran",
)
_ROWS = lists.Look(alt="Rows that violate the condition")


def form(opened: OpenTable) -> BisectRequest:
    """The condition and the two ends, as the URL has them."""
    condition = st.text_input(
        "A good version satisfies", key=state.CONDITION, bind="query-params", max_chars=2_000,
        placeholder=example_condition(opened.snapshot.metadata, is_good=True),
        help="SQL over one version's rows, in DuckDB's dialect. Without an aggregate every row has to satisfy it; "
        "with one, such as count(*) > 0, the version as a whole. Null passes, as in a CHECK constraint.",
    )  # fmt: skip
    commits = {str(each.version): each for each in services.lake().history(opened.ref, limit=CHOICES)}
    with st.container(horizontal=True, vertical_alignment="bottom", key="bisect_ends"):
        picker(state.GOOD, "Good version", _DEFAULTS[state.GOOD], commits)
        picker(state.BAD, "Bad version", _DEFAULTS[state.BAD], commits)
        check = st.number_input(
            "Checks", 0, MOST_CHECKS, 2, key=state.CHECK, bind="query-params", width=120,
            help="So many versions on each side of what was found are judged as well: whether the condition changes "
            "more than once is only known where somebody looks.",
        )  # fmt: skip
        asked = _asked(condition.strip(), int(check))
        st.button(
            "Find first bad version", key="find", type="primary", icon=":material/search:",
            disabled=not asked.condition, on_click=work.ask, args=(_mark(opened, asked),),
        )  # fmt: skip
    return asked


def _asked(condition: str, check: int) -> BisectRequest:
    good, bad = (state.text(end) or default for end, default in _DEFAULTS.items())
    return BisectRequest(condition, good, bad, check)


def _mark(opened: OpenTable, asked: BisectRequest) -> str:
    """A short name of what is asked of this table."""
    parts = (opened.ref.uri, asked.condition, asked.good, asked.bad, asked.check)
    return f"{zlib.crc32(repr(parts).encode()):08x}"


def answer(opened: OpenTable, asked: BisectRequest) -> None:
    """What is known of this search; runs it when asked to."""
    if not asked.condition:
        st.info(view.empty_text(example_condition(opened.snapshot.metadata, is_good=True)), icon=":material/search:")
        suggestions(opened, asked)
        return
    mark = _mark(opened, asked)
    found = cache.bisects().known(services.lake(), opened.snapshot, asked)
    if state.text(state.RUN) == mark and found is None and not work.is_asked(mark):
        state.put({state.RUN: None})  # so that Cancel ends it
        work.ask(mark)
    if work.is_asked(mark):
        try:
            found = _search(opened, asked) or found
        except NothingBrokenError as exc:
            errors.show(exc)
            suggestions(opened, asked)
            return
    if found is None:
        st.caption(
            "Nothing was read yet. Among 1,000 commits a search judges about 15 versions. It reads only the columns "
            "that the condition names, and each data file once, unless the condition is an aggregate."
        )
    else:
        result(opened, found)


def _search(opened: OpenTable, asked: BisectRequest) -> Bisection | None:
    """Runs it and shows each probe as it ends; then the URL names the two versions that were compared."""

    def begin() -> Iterator[BisectProgress]:
        return _shown(cache.bisects().over(services.lake(), opened.ref, asked), st.empty())

    try:
        last = work.run(begin, key="bisect", tell=view.progress_text)
    except QueryError as exc:
        if exc.position is not None:
            st.code(f"{asked.condition}\n{' ' * exc.position}^", language=None)
        raise
    found = last.result if last else None
    if found is None:
        return None
    pinned = BisectRequest(asked.condition, str(found.good), str(found.bad), asked.check)
    state.put({state.GOOD: found.good, state.BAD: found.bad, state.RUN: _mark(opened, pinned)})
    st.rerun()


def _shown(steps: Iterator[BisectProgress], slot: DeltaGenerator) -> Iterator[BisectProgress]:
    """The same steps, with the probes so far in their place, newest first."""
    told = 0
    for step in steps:
        if len(step.probes) > told:
            told = len(step.probes)
            frame = view.probe_frame(step.probes[::-1], services.now())
            slot.dataframe(
                lists.styled(frame, PROBES), column_config=dict(PROBES.config), hide_index=True,
                row_height=lists.ROW_PX, height=lists.height(frame),
            )  # fmt: skip
        yield step


# the answer ------------------------------------------------------------------------------------------------------


def result(opened: OpenTable, found: Bisection) -> None:
    """One sentence, what stands beside it, where to go on, and every probe."""
    streams = cache.stream_names()
    st.subheader(markdown_safe(f"{headline(found, streams)}."), anchor=False)
    with errors.boundary():
        culprit(opened, found)
        _links(opened, found)
    warned = disagreement(found)
    for warning in warned:
        st.warning(markdown_safe(sentence(warning)), icon=":material/warning:")
    said = [sentence(note) for note in notes(found) if note not in warned]
    st.markdown("\n".join(f"- {markdown_safe(each)}" for each in said))
    st.caption(markdown_safe(sentence(f"`{one_line(found.condition)}`: {means_text(by_row=found.by_row)}")))
    if found.culprit is None:
        _candidates(found, streams)
    if found.examples.rows:
        st.markdown(f"**Rows of v{found.bad_seen} that violate it** · the first {len(found.examples.rows)}")
        right = {name: st.column_config.Column(alignment="right") for name in view.number_columns(found.examples)}
        lists.show(view.example_frame(found.examples), replace(_ROWS, config=right), key="bisect_rows")
    figure = view.strip_figure(found, mode=viewer.mode())
    chart(figure, key="bisect_strip", alt=f"{figure.layout.title.text} between v{found.good} and v{found.bad}")
    lists.show(view.probe_frame(found.probes, services.now()), PROBES, key="bisect_probes")
    with st.expander("The same in a terminal"):
        st.code(_command(opened, found), language="bash", wrap_lines=True)


def _links(opened: OpenTable, found: Bisection) -> None:
    name, to = opened.ref.name, found.first_seen if found.culprit is None else found.culprit
    with st.container(horizontal=True, key="bisect_links"):
        label = f"What v{to} changed" if to == found.last + 1 else f"What changed from v{found.last} to v{to}"
        navigation.table_link(name, label, {state.FROM: found.last, state.TO: to}, page="changes")
        navigation.table_link(name, f"Table at v{found.good_seen}", {state.VERSION: found.good_seen})
        navigation.table_link(
            name, f"Can v{found.good_seen} be restored?", {state.AT: found.good_seen}, page="versions"
        )


def _candidates(found: Bisection, streams: Mapping[str, str]) -> None:
    st.markdown("**Commits that may be it**, newest first")
    lines = [
        f"- v{commit.version}: {markdown_safe(commit_text(commit, streams))}"
        for commit in sorted(found.commits, key=lambda each: -each.version)[:20]
    ]
    more = len(found.candidates) - len(lines)
    st.markdown("\n".join(lines + ([f"- and {more:,} more"] if more > 0 else [])))


def _command(opened: OpenTable, found: Bisection) -> str:
    condition = shlex.quote(found.condition)
    return f"weir bisect {shlex.quote(opened.ref.name)} --assert {condition} --good {found.good} --bad {found.bad}"
