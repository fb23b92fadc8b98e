"""Lists that people scan: one way to show a frame with units, and to learn which row was chosen.

Rule: cells hold numbers, so that sorting works, and show words; an unknown cell is a dash.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import pandas as pd
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from app import state
from app.ui.theme import LAYER_COLOURS
from app.ui.words import PAGE_ROWS, markdown_safe, num_pages, page_sentence
from backend.format import UNKNOWN, bytes_text, count_exact, count_text, duration_text, percent, rate_text

MOST_ROWS_HIGH = 14  # beyond, the list scrolls inside
ROW_PX = 35
SCROLLING_PX = 15 * ROW_PX

Row = TypeVar("Row")

FORMATS: dict[str, Callable[[Any], str]] = {
    "bytes": bytes_text,
    "count": count_text,
    "exact": lambda number: count_exact(int(number)),
    "ago": lambda seconds: f"{duration_text(round(seconds))} ago",
    "rate": rate_text,
    "percent": percent,
}


@dataclass(frozen=True, slots=True)
class Look:
    """How a list looks: a format of `FORMATS` for each column, its configuration, and the column that holds layers."""

    formats: Mapping[str, str] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    layer_column: str | None = None
    alt: str | None = None


def show(frame: pd.DataFrame, look: Look, *, key: str) -> None:
    """A list to read."""
    st.dataframe(styled(frame, look), key=key, placeholder=UNKNOWN, **shape(frame, look))


def choose(frame: pd.DataFrame, look: Look, *, key: str, names: Sequence[str]) -> str | None:
    """A list whose rows lead on. Returns the name of the row that was clicked, anywhere in it; None before.

    The browser sends the position of a row, and rows may have moved since it drew them. So the position counts in the
    list as it was shown, not as it is now.
    """
    shown = st.session_state.get(f"_{key}_shown", names)
    st.session_state[f"_{key}_shown"] = list(names)
    event = st.dataframe(
        styled(frame, look),
        key=key,
        on_select="rerun",
        selection_mode="single-cell",
        placeholder=UNKNOWN,
        **shape(frame, look),
    )
    row = chosen_row(event)
    return shown[row] if row is not None and row < len(shown) else None


def paged(rows: Sequence[Row], *, key: str) -> tuple[DeltaGenerator, Sequence[Row], str]:
    """A place for one page of a long list, its rows, and which they are. The choice of the page stands below it."""
    slot, pages, page = st.container(key=key), num_pages(len(rows)), 1
    if pages > 1:
        if st.session_state.get(state.PAGE, 1) > pages:  # fewer rows than when the page was chosen
            st.session_state[state.PAGE] = pages
        page = st.pagination(pages, key=state.PAGE, bind="query-params")
    return slot, rows[(page - 1) * PAGE_ROWS : page * PAGE_ROWS], page_sentence(page, len(rows))


def chosen_row(event: Mapping[str, Any]) -> int | None:
    """The position of the row or cell that an event of `st.dataframe` names."""
    selection = event.get("selection", {})
    rows: Sequence[int] = selection.get("rows", ())
    cells: Sequence[tuple[int, str]] = selection.get("cells", ())
    return rows[0] if rows else cells[0][0] if cells else None


def styled(frame: pd.DataFrame, look: Look) -> Any:
    """The frame with its words; sorting still goes by the numbers underneath."""
    formats = {column: FORMATS[name] for column, name in look.formats.items() if column in frame.columns}
    style = frame.style.format(formats, na_rep=UNKNOWN)
    if look.layer_column:
        style = style.map(_layer_css, subset=[look.layer_column])
    return style


def shape(frame: pd.DataFrame, look: Look) -> dict[str, Any]:
    """What every list gives to `st.dataframe`."""
    return {
        "column_config": dict(look.config),
        "hide_index": True,
        "height": height(frame),
        "row_height": ROW_PX,
        "alt": look.alt,
    }


def height(frame: pd.DataFrame) -> int | Literal["content"]:
    """As high as its rows; a long list scrolls inside."""
    return "content" if len(frame) <= MOST_ROWS_HIGH else SCROLLING_PX


def text_table(frame: pd.DataFrame, *, name: str, meaning: str) -> None:
    """A short list to read: the meaning stands below the name, and nothing is cut."""
    cells = frame.map(markdown_safe)
    cells[name] = "**" + cells[name] + "**  \n:gray[" + cells[meaning] + "]"
    st.table(cells.drop(columns=meaning), border="horizontal", hide_index=True)


def facts(values: Mapping[str, str]) -> None:
    """Names and values in two columns, every value as it is."""
    st.table(
        pd.DataFrame({"Name": values.keys(), "Value": [markdown_safe(value) for value in values.values()]}),
        border="horizontal",
        hide_index=True,
        hide_header=True,
    )


def _layer_css(layer: str | None) -> str:
    colour = LAYER_COLOURS.get(layer or "")
    return f"color: {colour}; font-weight: 600" if colour else ""
