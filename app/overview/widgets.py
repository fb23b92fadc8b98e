"""Widgets of the overview: the looks of its lists, and what needs attention.

Rule: every item of the list leads to the page that helps.
"""

from collections.abc import Sequence
from datetime import datetime

import streamlit as st

from app import context, navigation, state
from app.overview.view import attention_destination, item_words, since_text
from app.ui.badges import state_mark
from app.ui.lists import Look
from app.ui.words import markdown_safe, sentence
from backend.format import count_text, moment_help, things
from backend.health.model import AttentionItem

MOST_ITEMS = 6
MOST_FOLDED = 24

_small = st.column_config.ProgressColumn(
    "Small files",
    format="percent",
    width=130,
    min_value=0,
    max_value=1,
    help="Share of files below half of the target size.",
)
TABLES = Look(
    formats={"Rows": "count", "Files": "count", "Size": "bytes", "Last commit": "ago"},
    config={
        "Table": st.column_config.TextColumn(pinned=True, width=210),
        "Small files": _small,
        "State": st.column_config.TextColumn(width=105, help="The latest version, or that the table cannot be read."),
        "Committed at": st.column_config.TextColumn(help="The last commit, exact."),
    },
    layer_column="Layer",
    alt="Every table with its layer, rows, files, size, small files and last commit",
)
STREAMS = Look(
    formats={"Rows in": "rate", "Last batch": "ago", "Batch": "exact"},
    config={
        "Stream": st.column_config.TextColumn(pinned=True),
        "Wanted": st.column_config.TextColumn(help="What a person asked for. State is what a host observed."),
    },
    alt="Every stream with its verdict, state and rate",
)


def attention_list(items: Sequence[AttentionItem], now: datetime, *, judged: str) -> None:
    """What needs a person, most urgent first, each with its next step and a link. `judged`: what was looked at."""
    if not items and judged:
        st.success(judged, icon=":material/check_circle:")
    for item in items[:MOST_ITEMS]:
        _item(item, now)
    rest = items[MOST_ITEMS:]
    if rest:
        with st.expander(f"{things(len(rest), 'more', 'more')}"):
            for item in rest[:MOST_FOLDED]:
                _item(item, now)
            if len(rest) > MOST_FOLDED:
                left = count_text(len(rest) - MOST_FOLDED)
                navigation.page_link(
                    "tables", f"{left} less urgent ones: all tables, stalest first", {state.SORT: "Stalest"}
                )


def _item(item: AttentionItem, now: datetime) -> None:
    destination = attention_destination(item)
    with st.container(border=True, key=f"attention_{item.kind}_{item.subject}_{item.what[:24]}"):
        text, link = st.columns([4, 1], vertical_alignment="center")  # the link keeps its words at 1,200 px
        with text.container(gap="xxsmall"):
            subject, what = item_words(item)
            st.markdown(
                f"{state_mark(item.severity.value)} **{markdown_safe(subject)}** "
                f"{markdown_safe(what)}{since_text(item, now)}",
                help=moment_help(item.since, context.timezone()) if item.since else None,
            )
            st.caption(markdown_safe(sentence(item.next_step)))
        with link:
            params = {state.TABLE: destination.table, state.STREAM: destination.stream}
            navigation.page_link(destination.page, destination.label, params)
