"""Widgets of a table's summary: what it is, key figures, whether to trust it, details.

Rule: figures are those of the version looked at; only growth and age speak of now.
"""

import streamlit as st

from app import cache, errors, navigation, services, state, viewer
from app.summary.view import expectations as expected
from app.summary.view import summary as view
from app.ui import dialogs, figures, lists
from app.ui.badges import state_mark
from app.ui.lake import OpenTable
from app.ui.view.words import KeyFigure, linked, markdown_safe, sentence
from app.ui.work import spinner
from backend.expectations.model import TableExpectation, expected_text
from backend.format import ago_short, moment_help
from backend.health.rules import gain_in
from backend.lake.history.timeline import rhythm
from backend.lake.table.properties import ownership
from backend.streams.graph import Lineage

EXPECT = "expect"  # the dialog
RECENT_COMMITS = 20


def key_figures(opened: OpenTable) -> None:
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


def about(opened: OpenTable) -> None:
    """What the table says of itself: its description, whom to ask, and the properties that matter."""
    if opened.snapshot.metadata.description:
        st.markdown(markdown_safe(opened.snapshot.metadata.description))
    badges = [f":gray-badge[{markdown_safe(each)}]" for each in view.traits(opened.snapshot)]
    owner = ownership(opened.snapshot.metadata)
    badges += [f":small[{linked(each)}]" for each in (owner.email, owner.slack) if each]
    if badges:
        st.markdown(" \u2002 ".join(badges))


def trust(opened: OpenTable) -> None:
    """How often the table is written and by whom, how it grew, its streams, and what was odd about its log."""
    version, now = opened.snapshot.version, services.now()
    commits = services.lake().history(opened.ref, limit=RECENT_COMMITS, ending_version=version)
    lines = [view.writers_sentence(commits, cache.stream_names())]
    if opened.is_latest:
        with spinner("Reading every version …", of=f"timeline {opened.ref.uri}"):
            growth = view.growth_sentence(services.lake().timeline(opened.ref), now)
        lines = [view.rhythm_sentence(rhythm((commit.committed_at for commit in commits), now)), growth, *lines]
    st.markdown(markdown_safe(" ".join(line for line in lines if line)))
    lineage = view.lineage_of(opened.ref, cache.streams_reading().streams, now)
    beside = ", with what is up- and downstream" if lineage.written_by or lineage.read_by else ""
    navigation.table_link(opened.ref.name, f"Timeline{beside}", page="timeline")
    if opened.is_latest:
        _lineage(lineage)
    for finding in opened.snapshot.findings:
        st.warning(markdown_safe(sentence(finding)), icon=":material/warning:")


def _lineage(lineage: Lineage) -> None:
    """The streams that write and read the table, each a link."""
    if not lineage.written_by and not lineage.read_by:
        return
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="lineage"):
        for words, names in (("Written by stream", lineage.written_by), ("Read by", lineage.read_by)):
            if names:
                st.markdown(words, width="content")
            for name in names:
                navigation.page_link("stream", name, {state.STREAM: name})


def expectations(opened: OpenTable) -> None:
    """What pipelines and people expect of the table, as the stream host judged it at its latest version."""
    dialogs.dialog(EXPECT, _expect, title=lambda asked: f"{_label(asked)} of {asked.table}?", width="small")
    silent, now = cache.silent_judgements(), services.now()
    ours = [
        judgement for judgement in cache.streams_reading().judgements if judgement.expectation.uri == opened.ref.uri
    ]
    if not ours or not opened.is_latest:
        return
    lines = expected.lines(ours, silent, now)
    with st.container(border=True, key="expectations", gap="small"):
        st.markdown(f"**{expected.summary_sentence(lines)}**")
        if away := expected.away_sentence([judgement for judgement in ours if judgement in silent], now):
            st.warning(away, icon=":material/warning:")
        for line in lines:
            st.markdown(
                f"{state_mark(line.state)} **{markdown_safe(line.expected)}** · {markdown_safe(line.found)} · "
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
        if reason := dialogs.reason(EXPECT, label=_label(expected)):
            store = services.store()
            act = store.expect_no_more if expected.by else store.expect_by_hand
            act(expected, actor=viewer.actor(), reason=reason, now=services.now())
            dialogs.asked(EXPECT, "It is expected no more" if expected.by else "Hosts judge it from now on")


def details(opened: OpenTable) -> None:
    """What the log says of the table itself."""
    lists.facts(view.facts(opened.snapshot) | {"Created": moment_help(opened.snapshot.metadata.created_at)})
