"""What commits of the table did that none before them did, as it was noticed, and the way to say that it was seen.

Rule: each leads to what that commit changed and to the first bad version; a reason ends it for everybody.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

import streamlit as st

from app import cache, errors, navigation, services, state, viewer
from app.summary.widgets import EXPECT
from app.ui import dialogs
from app.ui.lake import OpenTable
from app.ui.view.words import markdown_safe, sentence
from backend.expectations.model import ExpectationKind, TableExpectation
from backend.format import ago, utc_text
from backend.lake.model import TableRef
from backend.search.notice import Measure, Notice, notice_text
from backend.streams.graph import streams_reached

_SEEN = "seen"
_AROUND = timedelta(minutes=30)


@dataclass(frozen=True, slots=True)
class _Asked:
    ref: TableRef
    notices: tuple[Notice, ...]

    @property
    def version(self) -> int:
        return self.notices[0].version


def notices(opened: OpenTable) -> None:
    """Those that are open, the newest commit first; nothing where there is none."""
    dialogs.dialog(_SEEN, _dialog, title=lambda asked: f"Seen: v{asked.version} of {asked.ref.name}?", width="small")
    streams = cache.streams_reading()
    of_table = [notice for notice in cache.noticed(streams).notices if notice.uri == opened.ref.uri]
    below = streams_reached(opened.ref.uri, streams.streams) if of_table else ()
    for version in sorted({notice.version for notice in of_table}, reverse=True):
        _commit(opened.ref, tuple(notice for notice in of_table if notice.version == version), below)


def _commit(ref: TableRef, of_commit: tuple[Notice, ...], below: Sequence[str]) -> None:
    first, now = of_commit[0], services.now()
    lines = [f"**{markdown_safe(sentence(notice_text(notice)))}**" for notice in of_commit]
    when = f"{ago(first.committed_at, now)}; " if first.committed_at else ""
    downstream = f" Downstream: {', '.join(below)}." if below else ""
    is_silence = first.kind is Measure.SILENCE
    never = "never was it silent for nearly as long" if is_silence else "no commit before it did that"
    lines.append(markdown_safe(f"{sentence(f'{when}{never}')}{downstream}"))
    with st.container(key=f"notice_{first.version}", gap="small"):
        st.warning("  \n".join(lines), icon=":material/notifications_active:")
        with st.container(horizontal=True, vertical_alignment="center", key=f"notice_acts_{first.version}"):
            between = {state.FROM: first.version - 1, state.TO: first.version}
            navigation.table_link(ref.name, "What changed", between, page="changes")
            condition = next((notice.condition for notice in of_commit if notice.condition), "")
            if condition:
                search = {state.GOOD: first.version - 1, state.CONDITION: condition}
                navigation.table_link(ref.name, "First bad version", search, page="bisect")
            ends = (utc_text((first.committed_at or now) + each) for each in (-_AROUND, _AROUND))
            time = dict(zip((state.SINCE, state.UNTIL), ends, strict=True))
            navigation.table_link(ref.name, "Timeline", time, page="timeline")
            blocked = viewer.read_only_reason()
            effect = blocked or "It is told no more, to anybody; says why in the operation log"
            expects, is_off = "Expect this from now on…", blocked is not None
            if condition and st.button(expects, key=f"expect_{first.version}", disabled=is_off, help=blocked):
                expected = TableExpectation(ref.uri, ref.name, ExpectationKind.HOLDS, condition=condition)
                dialogs.open_dialog(EXPECT, expected)
            if st.button(
                "Seen…", key=f"seen_{first.version}", disabled=blocked is not None, help=markdown_safe(effect)
            ):
                dialogs.open_dialog(_SEEN, _Asked(ref, of_commit))


def _dialog(asked: _Asked) -> None:
    with errors.boundary():
        st.markdown("\n".join(f"- {markdown_safe(sentence(notice_text(notice)))}" for notice in asked.notices))
        if reason := dialogs.reason(_SEEN, label="Seen"):
            noticed, now = services.store().noticed, services.now()
            actor, told = viewer.actor(), asked.notices
            noticed.seen(asked.ref.uri, asked.version, actor=actor, reason=reason, now=now, told=told)
            cache.forget_streams()
            dialogs.asked(_SEEN, f"v{asked.version} is told no more")
