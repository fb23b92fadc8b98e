"""A table's summary: notices, what it is, key figures, whether to trust it, and its schema, rows, profile or details.

Rule: figures are those of the version looked at; only growth and age speak of now. A notice leads to what that commit
changed and to the first bad version; a reason ends it for everybody. Of thousands of columns one page is shown;
statistics of many files are read only when asked for.
"""

from collections.abc import Sequence
from datetime import timedelta

import streamlit as st

from app import cache, errors, navigation, services, state, viewer
from app.summary.data import rows
from app.summary.profile import profile
from app.summary.view import summary as view
from app.ui import dialogs, figures, lists
from app.ui.lake import OpenTable
from app.ui.view.words import PAGE_ROWS, KeyFigure, linked, markdown_safe, sentence
from app.ui.work import spinner
from backend.expectations.looks import judged_now
from backend.expectations.model import ExpectationKind, TableExpectation, expected_text, found_text
from backend.format import ago, ago_short, duration_text, moment_help, things, utc_text
from backend.health.rules import gain_in
from backend.lake.files.stats import ColumnTotals, columns_with_stats
from backend.lake.history.timeline import rhythm
from backend.lake.model import Snapshot, TableRef
from backend.lake.table.properties import ownership
from backend.lake.table.schema import Column, columns, constraints
from backend.search.notice import Measure, Notice, notice_text
from backend.streams.graph import build_graph, lineage, streams_reached

EXPECT = "expect"  # the dialog
RECENT_COMMITS = 20


def summary(opened: OpenTable) -> None:
    """What is noticed of the table and what it is; below, the view that the URL names."""
    with errors.boundary():
        _notices(opened)
    with errors.boundary():
        _about(opened)
        _key_figures(opened)
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
            _trust(opened)
            _expectations(opened)
            _schema(opened)


def _key_figures(opened: OpenTable) -> None:
    """Rows, files, size, small files and the age of the version, in one line: the rows themselves are near."""
    snapshot, version = opened.snapshot, opened.snapshot.version
    commits = services.lake().history(opened.ref, limit=1, starting_version=version, ending_version=version)
    committed = KeyFigure(
        "Last commit" if opened.is_latest else "Committed",
        ago_short(snapshot.committed_at, services.now()),
        moment_help(snapshot.committed_at, viewer.timezone()),
        note=markdown_safe(commits[0].operation or "") if commits else "",
    )
    figures.key_line([*view.key_figures(snapshot, gain_in(cache.distribution(snapshot))), committed])


def _about(opened: OpenTable) -> None:
    """What the table says of itself: its description, whom to ask, and the properties that matter."""
    if opened.snapshot.metadata.description:
        st.markdown(markdown_safe(opened.snapshot.metadata.description))
    badges = [f":gray-badge[{markdown_safe(each)}]" for each in view.traits(opened.snapshot)]
    owner = ownership(opened.snapshot.metadata)
    badges += [f":small[{linked(each)}]" for each in (owner.email, owner.slack) if each]
    if badges:
        st.markdown(" \u2002 ".join(badges))


def _trust(opened: OpenTable) -> None:
    """How often the table is written and by whom, how it grew, its streams, and what was odd about its log."""
    version, now = opened.snapshot.version, services.now()
    commits = services.lake().history(opened.ref, limit=RECENT_COMMITS, ending_version=version)
    lines = [view.writers_sentence(commits, cache.stream_names())]
    if opened.is_latest:
        with spinner("Reading every version …", of=f"timeline {opened.ref.uri}"):
            growth = view.growth_sentence(services.lake().timeline(opened.ref), now)
        lines = [view.rhythm_sentence(rhythm((commit.committed_at for commit in commits), now)), growth, *lines]
    st.markdown(markdown_safe(" ".join(line for line in lines if line)))
    names = {opened.ref.name, opened.ref.uri, opened.ref.name.rpartition("/")[2]}
    related = lineage(build_graph(cache.streams_reading().streams, {}, now=now), names)
    beside = ", with what is up- and downstream" if related.written_by or related.read_by else ""
    navigation.table_link(opened.ref.name, f"Timeline{beside}", page="timeline")
    if opened.is_latest and (related.written_by or related.read_by):  # the streams, each a link
        with st.container(horizontal=True, vertical_alignment="center", gap="small", key="lineage"):
            for words, streams in (("Written by stream", related.written_by), ("Read by", related.read_by)):
                if streams:
                    st.markdown(words, width="content")
                for name in streams:
                    navigation.page_link("stream", name, {state.STREAM: name})
    for finding in opened.snapshot.findings:
        st.warning(markdown_safe(sentence(finding)), icon=":material/warning:")


def _expectations(opened: OpenTable) -> None:
    """What pipelines and people expect of the table, as the stream host judged it at its latest version."""
    dialogs.dialog(EXPECT, _expect, title=lambda asked: f"{_label(asked)} of {asked.table}?", width="small")
    silent, now = cache.silent_judgements(), services.now()
    ours = [
        judgement for judgement in cache.streams_reading().judgements if judgement.expectation.uri == opened.ref.uri
    ]
    if not ours or not opened.is_latest:
        return
    lines = view.expectation_lines(ours, silent, now)
    with st.container(border=True, key="expectations", gap="small"):
        st.markdown(f"**{view.expectations_sentence(lines)}**")
        if away := view.away_sentence([judgement for judgement in ours if judgement in silent], now):
            st.warning(away, icon=":material/warning:")
        for line in lines:
            st.markdown(
                f"{figures.state_mark(line.state)} **{markdown_safe(line.expected)}** · {markdown_safe(line.found)} · "
                f":small[:gray[{markdown_safe(line.when)}]]",
                help=moment_help(line.since, viewer.timezone()) if line.since else None,
            )
            if line.of_person and viewer.read_only_reason() is None:
                name = line.of_person.name
                if st.button(f"{_label(line.of_person)}…", key=f"expect_no_more_{name}", type="tertiary"):
                    dialogs.open_dialog(EXPECT, line.of_person)


def _label(expected: TableExpectation) -> str:
    """What the dialog does: a person's own is taken back."""
    return "Expect no more" if expected.by else "Expect this from now on"


def _expect(expected: TableExpectation) -> None:
    with errors.boundary():
        st.code(expected_text(expected), language="sql", wrap_lines=True)
        host, now = services.settings().host, services.now()
        if not expected.by:
            with st.spinner("Judging it at the latest version …"):
                judgement = judged_now(services.lake(), expected, max_bytes=host.keys_max_bytes, now=now)
            st.markdown(f"{figures.state_mark(judgement.state)} {markdown_safe(sentence(found_text(judgement, now)))}")
            st.caption(f"A host judges it again every {duration_text(host.expectations_interval_s)}.")
        if reason := dialogs.reason(EXPECT, label=_label(expected)):
            store = services.store()
            act = store.expect_no_more if expected.by else store.expect_by_hand
            act(expected, actor=viewer.actor(), reason=reason, now=now)
            dialogs.asked(EXPECT, "No longer expected" if expected.by else "Hosts check it from now on")


# what commits of the table did that none before them did --------------------------------------------------------------


_SEEN = "seen"
_AROUND = timedelta(minutes=30)


def _notices(opened: OpenTable) -> None:
    """Those that are open, the newest commit first; nothing where there is none."""
    dialogs.dialog(
        _SEEN, _seen_dialog, title=lambda told: f"Seen: v{told[0].version} of {told[0].table}?", width="small"
    )
    streams = cache.streams_reading()
    of_table = [notice for notice in cache.noticed(streams).notices if notice.uri == opened.ref.uri]
    below = streams_reached(opened.ref.uri, streams.streams) if of_table else ()
    for version in sorted({notice.version for notice in of_table}, reverse=True):
        _notice(opened.ref, tuple(notice for notice in of_table if notice.version == version), below)


def _notice(ref: TableRef, of_commit: tuple[Notice, ...], below: Sequence[str]) -> None:
    first, now = of_commit[0], services.now()
    lines = [f"**{markdown_safe(sentence(notice_text(notice)))}**" for notice in of_commit]
    when = f"{ago(first.committed_at, now)}; " if first.committed_at else ""
    downstream = f" Downstream: {', '.join(below)}." if below else ""
    is_silence = first.kind is Measure.SILENCE
    never = "it has never been silent for nearly as long" if is_silence else "no commit before it did that"
    lines.append(markdown_safe(f"{sentence(f'{when}{never}')}{downstream}"))
    with st.container(key=f"notice_{first.version}", gap="small"):
        st.warning("  \n".join(lines), icon=":material/notifications_active:")
        with st.container(horizontal=True, vertical_alignment="center", key=f"notice_acts_{first.version}"):
            between = {state.FROM: first.version - 1, state.TO: first.version}
            navigation.table_link(ref.name, "What changed", between, page="changes")
            condition = next((notice.condition for notice in of_commit if notice.condition), "")
            if condition:
                search: navigation.Params = {state.GOOD: first.version - 1, state.CONDITION: condition}
                navigation.table_link(ref.name, "First bad version", search, page="bisect")
            ends = (utc_text((first.committed_at or now) + each) for each in (-_AROUND, _AROUND))
            time = dict(zip((state.SINCE, state.UNTIL), ends, strict=True))
            navigation.table_link(ref.name, "Timeline", time, page="timeline")
            blocked = viewer.read_only_reason()
            effect = blocked or "Hides this finding for everybody; the reason goes into the operation log"
            expects, is_off = "Expect this from now on…", blocked is not None
            if condition and st.button(expects, key=f"expect_{first.version}", disabled=is_off, help=blocked):
                expected = TableExpectation(ref.uri, ref.name, ExpectationKind.HOLDS, condition=condition)
                dialogs.open_dialog(EXPECT, expected)
            if st.button(
                "Seen…", key=f"seen_{first.version}", disabled=blocked is not None, help=markdown_safe(effect)
            ):
                dialogs.open_dialog(_SEEN, of_commit)


def _seen_dialog(told: tuple[Notice, ...]) -> None:
    with errors.boundary():
        st.markdown("\n".join(f"- {markdown_safe(sentence(notice_text(notice)))}" for notice in told))
        if reason := dialogs.reason(_SEEN, label="Seen"):
            uri, version, now = told[0].uri, told[0].version, services.now()
            services.store().noticed.seen(uri, version, actor=viewer.actor(), reason=reason, now=now, told=told)
            dialogs.asked(_SEEN, f"v{version} is marked as seen")


# the schema: a tree with search, statistics from the log, constraints -------------------------------------------------


AUTO_FILES = 20_000  # up to here statistics come unasked


def _schema(opened: OpenTable) -> None:
    """The tree, and what must hold for every row; raises `TableCorruptError` for a schema that cannot be read."""
    listed = columns(opened.snapshot.metadata)
    if not listed:
        st.info("**The table has no columns yet.** Its schema is empty at this version.", icon=":material/view_column:")
        return
    st.caption(f"{view.schema_sentence(listed)}.")
    words, with_statistics = _controls(opened.snapshot, listed)
    fitting = view.matching_columns(listed, words)
    if not fitting:
        st.info("**No column matches.** Clear the search.", icon=":material/search_off:")
        return
    above = st.container(key="schema_list")
    start = (lists.chosen_page(len(fitting), key=state.SCHEMA_PAGE) - 1) * PAGE_ROWS
    shown = fitting[start : start + PAGE_ROWS]
    with above:
        part = view.shown_sentence(len(shown), start, len(fitting), len(listed))
        if part:
            st.caption(part)
        totals = _totals(opened.snapshot, shown) if with_statistics else {}
        lists.show(view.schema_columns(totals), shown, key="schema", alt="The columns of the table")
    if checks := constraints(opened.snapshot.metadata):
        st.markdown(f"**Check constraints** · {things(len(checks), 'condition')} that every row satisfies")
        lists.show(view.CONSTRAINTS, checks, key="constraints", alt="Check constraints of the table")


def _controls(snapshot: Snapshot, listed: Sequence[Column]) -> tuple[str, bool]:
    with st.container(horizontal=True, vertical_alignment="bottom", key="schema_controls"):
        words = st.text_input(
            "Search columns",
            key=state.FIND,
            bind="query-params",
            placeholder=f"Name, type or comment among {len(listed):,}",
            icon=":material/search:",
            width=320,
        )
        many = snapshot.num_files > AUTO_FILES
        shown = st.toggle(
            "Statistics",
            value=not many,
            key=state.STATISTICS,
            bind="query-params",
            help=f"Least and greatest value and nulls, from the log of {things(snapshot.num_files, 'file')}."
            + (" Takes some seconds for so many files." if many else ""),
        )
    return words or "", bool(shown)


def _totals(snapshot: Snapshot, shown: Sequence[Column]) -> dict[str, ColumnTotals]:
    """Of the columns shown that have statistics."""
    with_statistics = set(columns_with_stats(snapshot.metadata))
    names = tuple(dict.fromkeys(column.path for column in shown if column.path in with_statistics))
    totals_of_columns = cache.column_totals(snapshot, names) if names else ()
    st.caption(view.statistics_sentence(totals_of_columns))
    return {totals.column: totals for totals in totals_of_columns}
