"""Conditions to choose from where none is written yet, and what the columns hold at both ends.

Rule: a click fills the condition and searches nothing. What cannot be told leaves the page as it was.
"""

import streamlit as st

from app import cache, services, state
from app.search.view import suggestions as view
from app.ui import lists
from app.ui.frame import OpenTable
from app.ui.view.words import markdown_safe
from backend.errors import LakehouseError
from backend.search.ends import named_version
from backend.search.model import BisectRequest
from backend.search.suggest import suggest

_WIDE_PX, _ENDS_PX = 140, 205  # "890.91 → 83,137.07", "2026-11-20 10:04:31.522 UTC"
_HELD = lists.Look(
    config={"Column": st.column_config.TextColumn(pinned=True)}
    | {name: st.column_config.TextColumn(width=_WIDE_PX) for name in view.HEADS[1:-2]}
    | {name: st.column_config.TextColumn(width=_ENDS_PX) for name in (view.HEADS[0], view.HEADS[-2])},
    alt="What columns hold at the good and the bad end",
)


def suggestions(opened: OpenTable, asked: BisectRequest) -> None:
    """What jumped between the two ends, as buttons; and what each column holds there."""
    try:
        with st.spinner("Looking for what jumped …"):
            held = cache.bisects().held(services.lake(), opened.snapshot, _ends(opened, asked))
    except LakehouseError:
        return  # the search itself says what is wrong with an end
    if len(held) < 2:
        return
    low, high = held[0].version, held[-1].version
    found = suggest(held)
    with st.container(key="suggestions"):
        said = f"**What jumped between v{low} and v{high}**" if found else f"Nothing jumped between v{low} and v{high}."
        st.markdown(said + (" · a click fills the condition" if found else ""))
        for number, each in enumerate(found):
            with st.container(horizontal=True, vertical_alignment="center", key=f"suggested_{number}"):
                st.button(
                    markdown_safe(f"`{each.condition}`"), key=f"suggestion_{number}", icon=":material/arrow_upward:",
                    on_click=_fill, args=(each.condition,),
                )  # fmt: skip
                st.markdown(markdown_safe(view.suggestion_text(each)), width="content")
        quantiles = "" if held[-1].quantiles else ", which have no quantiles: the table is not read for them"
        st.caption(f"What the columns hold, v{low} → v{high}, by the log's statistics{quantiles}")
        lists.show(view.held_frame(held), _HELD, key="held")


def _ends(opened: OpenTable, asked: BisectRequest) -> tuple[int, int]:
    lake, ref = services.lake(), opened.ref
    good, bad = (named_version(lake, ref, end) for end in (asked.good, asked.bad))
    oldest = min((first for first, _ in lake.versions(ref)), default=0)
    ends = (oldest if good is None else good, opened.latest_version if bad is None else bad)
    return min(ends), max(ends)


def _fill(condition: str) -> None:
    st.session_state[state.CONDITION] = condition
