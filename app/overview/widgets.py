"""Widgets of the overview: the looks of its lists, and what needs attention.

Rule: every item of the list leads to the page that helps.
"""

from collections.abc import Sequence
from datetime import datetime

import streamlit as st

from app import cache, navigation, viewer
from app.overview.view import destinations, group_words, news
from app.overview.visit import remembered
from app.ui.badges import state_mark
from app.ui.lists import Look
from app.ui.view.words import markdown_safe, sentence
from backend.format import ago, moment_help
from backend.health.model import AttentionGroup

SMALL_FILES_PX = 89
TABLES = Look(
    formats={"Rows": "count", "Files": "count", "Size": "bytes", "Last commit": "ago_short"},
    config={
        "Table": st.column_config.TextColumn(width=195),
        "Version": st.column_config.TextColumn(width=84, help="The latest version, or that the table cannot be read."),
    },
    alt="Every table with its version, rows, files, size, small files and last commit",
)
STREAMS = Look(
    formats={"Rows in": "rate", "Last batch": "ago_short"},
    config={
        "Verdict": st.column_config.TextColumn(width=108),
    },
    state_columns=("Verdict",),
    alt="Every stream with its verdict, state and rate",
)


def since_last_visit(tables: int, groups: Sequence[AttentionGroup], now: datetime) -> None:
    """What is new since this browser looked last; nothing at its first visit."""
    visit = remembered(tables, now)
    if visit is None:
        return
    links, when = news(visit.ended_at, tables - visit.tables, groups, cache.acts()), ago(visit.ended_at, now)
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="since_last_visit"):
        st.caption(f"{'Since' if links else 'Nothing new since'} you last looked, {when}", width="content")
        for link in links:
            navigation.page_link(link.page, link.label, link.params)


def attention_list(groups: Sequence[AttentionGroup], now: datetime, *, judged: str) -> None:
    """What needs a person by cause, most urgent first, each with its next step and a link. `judged`: what was looked
    at."""
    if not groups:
        if judged:
            st.success(judged, icon=":material/check_circle:")
        return
    with st.container(border=True, key="attention", gap="small"):
        for group in groups:
            _group(group, now)


def _group(group: AttentionGroup, now: datetime) -> None:
    (bold, rest), item = group_words(group, now), group.only
    key = f"attention_{group.cause.value}_{group.severity.value}"
    grid = st.grid(6, min_column_width=120, vertical_alignment="center", key=key)  # in a narrow window the link wraps
    with grid.cell(column_span=5):
        st.markdown(
            f"{state_mark(group.severity.value)} **{markdown_safe(bold)}** {markdown_safe(rest)}  \n"
            f":small[:gray[{markdown_safe(sentence(group.next_step))}]]",
            help=moment_help(item.since, viewer.timezone()) if item and item.since else None,
        )
    links = destinations(group)
    with grid.cell(column_span=6 if links[1:] else 1), st.container(horizontal=True):
        for link in links:
            navigation.page_link(link.page, link.label, link.params)
