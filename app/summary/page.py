"""A table's summary: notices, what it is, key figures, whether to trust it, and its schema, rows, profile or details.

Rule: figures are those of the version looked at; only growth and age speak of now. A notice leads to what that commit
changed and to the first bad version; a reason ends it for everybody. Of thousands of columns one page is shown;
statistics of many files are read only when asked for.
"""

from datetime import timedelta
from functools import lru_cache

import streamlit as st

from app import cache, errors, navigation, services, state, viewer
from app.summary.data import profile, rows
from app.summary.text import carried_sentence, carried_text
from app.summary.view import summary as view
from app.ui import dialogs, figures, lists, work
from app.ui.lake import OpenTable
from app.ui.live import live, newest
from app.ui.table_acts import repair_button
from app.ui.view.words import PAGE_ROWS, KeyFigure, linked, markdown_safe, sentence
from app.ui.work import spinner
from backend.expectations.looks import Looks, hindsight_text, judged_now
from backend.expectations.model import ExpectationKind, Judgement, TableExpectation, expected_text, found_text
from backend.format import ago, ago_short, duration_text, moment_help, things, utc_text
from backend.health.attention import finding_text, most_hurt, severity_of_notice
from backend.health.rules import gain_in
from backend.lake.files.stats import ColumnTotals, columns_with_stats
from backend.lake.history.timeline import rhythm
from backend.lake.lake import MOST_VIEWS
from backend.lake.model import TableRef
from backend.lake.table.properties import ownership
from backend.lake.table.schema import columns, constraints
from backend.search.carried import is_of_values, load_carried
from backend.search.condition import check_condition
from backend.search.notice import Measure, Notice, notice_text
from backend.streams.graph import build_graph, lineage, streams_reached

EXPECT = "expect"  # the dialog
RECENT_COMMITS = 20
_looks = lru_cache(MOST_VIEWS)(Looks)  # by what one may see of the lake


def summary(opened: OpenTable) -> None:
    """What is noticed of the table and what it is; below, the view that the URL names."""
    dialogs.dialog(EXPECT, _expect, title=lambda asked: f"{_label(asked)} of {asked.table}?", width="small")
    dialogs.dialog(_SEEN, _seen, title=lambda told: f"Seen: v{told.version} of {told.table}?", width="small")
    dialogs.dialog(_CARRIED, _carried, title=lambda told: f"Rows of v{told.version} in other tables", width="small")
    ref, version = opened.ref, opened.snapshot.version
    live(lambda: _notices(newest(ref, version)), key="notices")
    with errors.boundary():
        _about(opened)
    live(lambda: _figures(newest(ref, version)), key="summary_figures")
    shown = st.segmented_control(
        "Show", ["Schema", "Data", "Profile", "Details"], default="Schema", required=True, key=state.VIEW,
        bind="query-params",
    )  # fmt: skip
    with errors.boundary():
        if shown == "Data":
            rows(opened, limit=services.settings().lake.preview_rows)
        elif shown == "Profile":
            profile(opened)
        elif shown == "Details":  # what the log says of the table itself
            created = moment_help(opened.snapshot.metadata.created_at)
            lists.facts(view.facts(opened.snapshot) | {"Created": created})
        else:
            _schema(opened)
    if shown == "Schema" and opened.is_latest:
        _around(ref)
        live(lambda: _expectations(ref), key="expected")


def _about(opened: OpenTable) -> None:
    """What the table says of itself: its description, whom to ask, and the properties that matter; and oddities."""
    if opened.snapshot.metadata.description:
        st.markdown(markdown_safe(opened.snapshot.metadata.description))
    badges = [f":gray-badge[{markdown_safe(each)}]" for each in view.traits(opened.snapshot)]
    owner = ownership(opened.snapshot.metadata)
    badges += [f":small[{linked(each)}]" for each in (owner.email, owner.slack) if each]
    if badges:
        st.markdown(" \u2002 ".join(badges))
    for finding in opened.snapshot.findings:
        st.warning(markdown_safe(sentence(finding)), icon=":material/warning:")


def _figures(opened: OpenTable) -> None:
    """Rows, files, size, small files and age in one line; below, how often it is written, how it grew and by whom."""
    snapshot, version, now, lines = opened.snapshot, opened.snapshot.version, services.now(), []
    with st.container():  # what is waited for is said in a place of its own: those below keep theirs
        commits = viewer.lake().history(opened.ref, limit=RECENT_COMMITS, ending_version=version)
        gain = gain_in(cache.distribution(snapshot))
        if opened.is_latest:
            with spinner("Reading every version …", of=f"timeline {opened.ref.uri}"):
                growth = view.growth_sentence(viewer.lake().timeline(opened.ref), now)
            lines = [view.rhythm_sentence(rhythm((commit.committed_at for commit in commits), now)), growth]
    committed = KeyFigure(
        "Last commit" if opened.is_latest else "Committed",
        ago_short(snapshot.committed_at, now),
        moment_help(snapshot.committed_at, viewer.timezone()),
        note=markdown_safe(commits[0].operation or "") if commits and commits[0].version == version else "",
    )
    figures.key_line([*view.key_figures(snapshot, gain), committed])
    lines.append(view.writers_sentence(commits, cache.stream_names()))
    expected = view.expectation_lines(_judgements(opened.ref), cache.silent_judgements(), now)
    if expected and opened.is_latest:
        lines.append(f"{view.expectations_sentence(expected)}.")
    st.markdown(markdown_safe(" ".join(line for line in lines if line)))


def _around(ref: TableRef) -> None:
    """The streams that write and read the table, each a link."""
    names = {ref.name, ref.uri, ref.name.rpartition("/")[2]}
    related = lineage(build_graph(cache.streams_reading().streams, {}, now=services.now()), names)
    if related.written_by or related.read_by:
        with st.container(horizontal=True, vertical_alignment="center", gap="small", key="lineage"):
            for words, streams in (("Written by stream", related.written_by), ("Read by", related.read_by)):
                if streams:
                    st.markdown(words, width="content")
                for name in streams:
                    navigation.page_link("stream", name, {state.STREAM: name})


def _judgements(ref: TableRef) -> list[Judgement]:
    """Of what is expected of the table."""
    return [each for each in cache.judgements() if each.expectation.uri == ref.uri]


def _expectations(ref: TableRef) -> None:
    """What pipelines and people expect of the table, as the stream host judged its latest version."""
    ours, silent, now = _judgements(ref), cache.silent_judgements(), services.now()
    if not (lines := view.expectation_lines(ours, silent, now)):
        return
    with st.container(border=True, key="expectations", gap="small"):
        st.markdown("**Expected of this table**")
        if away := view.away_sentence([judgement for judgement in ours if judgement in silent], now):
            st.warning(away, icon=":material/warning:")
        for line in lines:
            st.markdown(
                f"{figures.state_mark(line.state)} **{markdown_safe(line.expected)}** · {markdown_safe(line.found)} · "
                f":small[:gray[{markdown_safe(line.when)}]]",
                help=moment_help(line.since, viewer.timezone()) if line.since else None,
            )
            if expected := line.of_person:
                label, why = f"{_label(expected)}…", viewer.why_not("expect no more", ref.name)
                key = f"expect_no_more_{expected.name}"
                if st.button(label, key=key, type="tertiary", disabled=bool(why), help=why and markdown_safe(why)):
                    dialogs.open_dialog(EXPECT, expected)


def _label(expected: TableExpectation) -> str:
    """What the dialog does: a person's own is taken back."""
    return "Expect no more" if expected.by else "Expect this from now on"


def _expect(expected: TableExpectation) -> None:
    with errors.boundary():
        st.code(expected_text(expected), language="sql", wrap_lines=True)
        host, now = services.settings().host, services.now()
        if not expected.by:
            lake = viewer.lake()
            check_condition(expected.condition, lake.snapshot(lake.find(expected.table)))
            with st.spinner("Judging it at the latest version …"):
                judgement, past = judged_now(_looks(lake, host.keys_max_bytes), expected, now=now)
            st.markdown(f"{figures.state_mark(judgement.state)} {markdown_safe(sentence(found_text(judgement, now)))}")
            st.markdown(f"**{sentence(hindsight_text(past, now))}**")
            st.caption(f"A host judges it again every {duration_text(host.expectations_interval_s)}.")
        if reason := dialogs.reason(EXPECT, label=_label(expected)):
            store = services.store()
            act = store.expect_no_more if expected.by else store.expect_by_hand
            act(expected, actor=viewer.actor(), reason=reason, now=now)
            dialogs.asked(EXPECT, "No longer expected" if expected.by else "Hosts check it from now on")


# what commits of the table did that none before them did --------------------------------------------------------------


_SEEN, _CARRIED = "seen", "carried"
_AROUND = timedelta(minutes=30)


def _notices(opened: OpenTable) -> None:
    """Those that are open, what hurt most first; nothing where there is none."""
    noticed = cache.noticed(streams := cache.streams_reading())
    notices = sorted(noticed.of(opened.ref.uri), key=most_hurt)
    if not notices:
        return
    with st.container(border=True, gap="xsmall"):
        for notice in notices:
            _notice(opened, notice, opened.latest_version if noticed.is_current else None)
        if below := streams_reached(opened.ref.uri, streams.streams):
            st.caption(markdown_safe(f"Downstream: {', '.join(below)}."))


def _notice(opened: OpenTable, notice: Notice, latest: int | None) -> None:
    ref, now, version = opened.ref, services.now(), notice.version
    never = "never silent for nearly as long" if notice.kind is Measure.SILENCE else "no commit before did that"
    when = f"{ago(notice.committed_at, now)}; {never}" if notice.committed_at else never
    key = f"{version}_{notice.kind}_{notice.subject}"
    st.markdown(
        f"{figures.state_mark(severity_of_notice(notice))} **{markdown_safe(sentence(finding_text(notice, latest)))}** "
        f":small[:gray[{markdown_safe(sentence(when))}]]"
    )
    with st.container(horizontal=True, vertical_alignment="center", key=f"notice_{key}"):
        between = {state.FROM: version - 1, state.TO: version}
        navigation.table_link(ref.name, "What changed", between, page="changes")
        if notice.condition:
            search: navigation.Params = {state.GOOD: version - 1, state.CONDITION: notice.condition}
            navigation.table_link(ref.name, "First bad version", search, page="bisect")
        navigation.incident_link(ref.name, version - 1, version)
        repair_button(ref, opened.latest_version, notice, key=f"repair_{key}")
        if is_of_values(notice, opened.snapshot):
            dialogs.button(
                _CARRIED, notice, "In other tables…", key=f"carried_{key}", icon=":material/alt_route:",
                effect="Looks for these values in every table that has the column", blocked=None,
            )  # fmt: skip
        ends = (utc_text((notice.committed_at or now) + each) for each in (-_AROUND, _AROUND))
        time = dict(zip((state.SINCE, state.UNTIL), ends, strict=True))
        navigation.table_link(ref.name, "Timeline", time, page="timeline")
        if notice.condition:
            expected = TableExpectation(ref.uri, ref.name, ExpectationKind.HOLDS, condition=notice.condition)
            dialogs.button(
                EXPECT, expected, f"{_label(expected)}…", key=f"expect_{key}", icon=":material/rule:",
                effect="Hosts check it after every commit", blocked=viewer.why_not("expect", ref.name),
            )  # fmt: skip
        dialogs.button(
            _SEEN, notice, "Seen…", key=f"seen_{key}", icon=":material/visibility:",
            effect="Hides this finding for everybody; the reason goes into the operation log",
            blocked=viewer.why_not("seen", ref.name),
        )  # fmt: skip


def _carried(notice: Notice) -> None:
    """Where the finding's values went, found by looking."""
    with errors.boundary():
        st.markdown(markdown_safe(sentence(finding_text(notice))))
        result = work.run(
            lambda: load_carried(viewer.lake(), notice), key="carried",
            tell=lambda step: (step.share, f"Looking in {markdown_safe(step.table)} …"),
        )  # fmt: skip
        if result is None:
            return
        for each in result.found:
            ends: navigation.Params = {state.FROM: each.first - 1, state.TO: each.last} if each.first else {}
            navigation.table_link(each.ref.name, carried_text(each), ends, page="changes" if ends else "table")
        if not result.found:
            st.markdown("**No other table carries these values.**")
        st.caption(markdown_safe(carried_sentence(result)))


def _seen(notice: Notice) -> None:
    with errors.boundary():
        st.markdown(markdown_safe(sentence(notice_text(notice))))
        if reason := dialogs.reason(_SEEN, label="Seen"):
            told = {each.key: each for each in cache.kept([notice])}
            services.store().noticed.seen(
                notice.uri, notice.version, lambda other: other.key in told, actor=viewer.actor(), reason=reason,
                now=services.now(), told=[*told.values()], hidden_at=services.public_lake().hidden_at,
            )  # fmt: skip
            dialogs.asked(_SEEN, f"This finding of v{notice.version} is marked as seen")


# the schema: a tree with search, statistics from the log, constraints -------------------------------------------------


AUTO_FILES = 20_000  # up to here statistics come unasked


def _schema(opened: OpenTable) -> None:
    """The tree, and what must hold for every row; raises `TableCorruptError` for a schema that cannot be read."""
    listed = columns(opened.snapshot.metadata)
    if not listed:
        st.info("**The table has no columns yet.** Its schema is empty at this version.", icon=":material/view_column:")
        return
    st.caption(f"{view.schema_sentence(listed)}.")
    many = opened.snapshot.num_files > AUTO_FILES
    with st.container(horizontal=True, vertical_alignment="bottom", key="schema_controls"):
        words = st.text_input(
            "Search columns", key=state.FIND, bind="query-params", icon=":material/search:", width=320,
            placeholder=f"Name, type or comment among {len(listed):,}",
        )  # fmt: skip
        files = things(opened.snapshot.num_files, "file")
        with_statistics = st.toggle(
            "Statistics", value=not many, key=state.STATISTICS, bind="query-params",
            help=f"Lowest and highest value, and nulls, as the log says of {files}."
            + (" Takes some seconds for so many files." if many else ""),
        )  # fmt: skip
    fitting = view.matching_columns(listed, words or "")
    if not fitting:
        st.info("**No column matches.** Clear the search.", icon=":material/search_off:")
        return
    above = st.container(key="schema_list")
    start = (lists.chosen_page(len(fitting), key=state.SCHEMA_PAGE) - 1) * PAGE_ROWS
    shown = fitting[start : start + PAGE_ROWS]
    with above:
        if part := view.shown_sentence(len(shown), start, len(fitting), len(listed)):
            st.caption(part)
        totals: tuple[ColumnTotals, ...] = ()
        if with_statistics:
            known = set(columns_with_stats(opened.snapshot.metadata))
            names = tuple(dict.fromkeys(column.path for column in shown if column.path in known))
            totals = cache.column_totals(opened.snapshot, names) if names else ()
            st.caption(view.statistics_sentence(totals))
        schema = view.schema_columns({each.column: each for each in totals})
        lists.show(schema, shown, key="schema", alt="The columns of the table")
    if checks := constraints(opened.snapshot.metadata):
        st.markdown(f"**Check constraints** · {things(len(checks), 'condition')} that every row satisfies")
        lists.show(view.CONSTRAINTS, checks, key="constraints", alt="Check constraints of the table")
