"""Filters of the history page: what they offer, what fits, how far they looked.

Rule: everything chosen is in the URL; only the newest commits are looked at until a person asks for more.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import streamlit as st

from app import errors, services, state, viewer
from app.history.view import filters as view
from backend.errors import VersionFormatError
from backend.lake.history.history import Choices, HistoryFilter, LookBack, choices, look_back
from backend.lake.model import Commit, TableRef
from backend.times import FORMS, parse_time

# query parameter → label
GROUPS = {state.OPERATION: "Operation", state.USER: "User", state.ENGINE: "Engine", state.WRITTEN_BY: "Stream"}
MOST_LOOK = 1_000_000


@dataclass(frozen=True, slots=True)
class LogRange:
    """A table's commits: from the oldest left in the log to the newest."""

    ref: TableRef
    first: int
    latest: int

    @property
    def total(self) -> int:
        return self.latest - self.first + 1


@dataclass(frozen=True, slots=True)
class Filtered:
    """The commits that fit, newest first, and the unbroken run they were taken from."""

    found: list[Commit]
    run: tuple[Commit, ...]


def is_on() -> bool:
    """The switch; a link with a filter turns it on."""
    filters = (*GROUPS, state.SINCE, state.UNTIL)
    if state.FILTER not in st.session_state and any(state.text(key) for key in filters):
        st.session_state[state.FILTER] = True
    label = "Filter by time, operation or writer"
    return st.toggle(label, key=state.FILTER, bind="query-params", on_change=state.first_page)


def filtered(log: LogRange, streams: Mapping[str, str]) -> Filtered:
    """Draws the filters and returns what fits; raises `VersionFormatError` for a time that is none."""
    row = st.container(horizontal=True, vertical_alignment="bottom", key="history_filters")
    with row:
        since, until = _times()
    look, total = _look(log, since, until)
    offered = choices(look.looked_at, streams)
    with row:
        _groups(offered)
    groups: dict[str, Any] = {name: frozenset(chosen(key)) for key, name in zip(GROUPS, _FIELDS, strict=True)}
    wanted = HistoryFilter(since=since, until=until, names=streams, **groups)
    fitting = look.matching(wanted)
    _said(view.Looked(len(fitting), len(look.looked_at), total, look.is_whole), wanted)
    return Filtered(fitting, look.looked_at)


_FIELDS = ("operations", "users", "engines", "streams")


def chosen(key: str) -> list[str]:
    """What the URL chooses in a group."""
    return list(dict.fromkeys(text for text in state.texts(key) if text))


def _look(log: LogRange, since: datetime | None, until: datetime | None) -> tuple[LookBack, int]:
    """The commits to choose from, and how many there are in all up to `until`."""
    lake, newest = services.lake(), log.latest
    if until is not None:
        newest = lake.version_at(log.ref, until)
    if newest is None or newest < log.first:
        return LookBack((), is_whole=True), 0
    most = min(max(state.whole(state.LOOK) or 0, view.LOOK), MOST_LOOK)
    bar = st.empty()

    def said(number: int) -> None:
        if number < min(most, newest - log.first + 1):
            bar.progress(number / most, f"Looked at {number:,} of {most:,} commits …")

    look = look_back(lake, log.ref, newest=newest, most=most, since=since, progress=said)
    bar.empty()
    return look, newest - log.first + 1


def _times() -> tuple[datetime | None, datetime | None]:
    moments = list[datetime | None]()
    for key, label, is_end in ((state.SINCE, "Since", False), (state.UNTIL, "Until", True)):
        text = st.text_input(
            label,
            key=key,
            bind="query-params",
            placeholder="any time",
            width=150,
            help=f"A time is {FORMS}.",
            on_change=state.first_page,
        )
        try:
            moments.append(parse_time(text, viewer.clock(), end_of_day=is_end) if text else None)
        except VersionFormatError as exc:
            errors.show(exc)
            st.stop()
    return moments[0], moments[1]


def _groups(offered: Choices) -> None:
    counts = (offered.operations, offered.users, offered.engines, offered.streams)
    for (key, label), occurring in zip(GROUPS.items(), counts, strict=True):
        picked, widget = chosen(key), f"pick_{key}"
        st.session_state[widget] = picked  # links and the back button change the URL behind the widget
        st.multiselect(
            label,
            view.options(occurring, picked),
            key=widget,
            format_func=lambda name, occurring=occurring: view.option_text(name, occurring),
            placeholder="any" if occurring else "none occurs",
            disabled=not occurring and not picked,
            width=220,
            on_change=_picked,
            args=(key,),
        )


def _said(looked: view.Looked, wanted: HistoryFilter) -> None:
    with st.container(horizontal=True, vertical_alignment="center", key="looked"):
        st.caption(view.looked_sentence(looked, wanted), width="content")
        if not looked.is_whole:
            further = looked.looked_at + view.LOOK
            st.button("Look further", key="look_further", type="tertiary", on_click=_look_further, args=(further,))
        if not wanted.is_empty:
            st.button("Clear filters", key="clear_filters", type="tertiary", on_click=_clear)


def _picked(key: str) -> None:
    state.put({key: st.session_state[f"pick_{key}"]})
    state.first_page()


def _clear() -> None:
    state.put(dict.fromkeys(GROUPS))
    for key in (state.SINCE, state.UNTIL):
        st.session_state[key] = ""
    state.first_page()


def _look_further(most: int) -> None:
    state.put({state.LOOK: most})
