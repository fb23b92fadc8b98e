"""Lists that people scan: one way to show the columns of rows, and to learn which row was chosen.

Rule: cells hold numbers, so that sorting works, and show words; an unknown cell is a dash. A click opens a row. By
keyboard the arrows move, Enter opens and the space bar ticks.
"""

import zlib
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import pandas as pd
import pyarrow as pa
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from app import state, viewer
from app.columns import NUMBERS, TEXTS, Column, Columns, Row, shown
from app.ui.view.theme import LAYER_TEXT, SURFACES, Mode, state_style
from app.ui.view.words import PAGE_ROWS, markdown_safe, num_pages, page_sentence
from backend.format import UNKNOWN

MOST_ROWS_HIGH = 14  # beyond, the list scrolls inside
ROW_PX, TWO_LINES_PX = 35, 61  # above 4 rem, texts wrap
SCROLLING_PX = 15 * ROW_PX


def show(
    columns: Columns[Row],
    rows: Sequence[Row],
    *,
    key: str | None,
    alt: str,
    row_px: int = ROW_PX,
    muted: Sequence[int] = (),
    **selection: Any,
) -> Mapping[str, Any]:
    """The columns of the rows, those at the places `muted` faint; `selection`: of rows or cells. Returns the event."""
    columns = shown(columns, rows, "page")
    frame = list_frame(columns, rows)
    event: Mapping[str, Any] = st.dataframe(
        in_words(frame, columns, viewer.mode(), muted),
        key=key,
        column_config={column.name: _config(column) for column in columns},
        hide_index=True,
        placeholder=UNKNOWN,
        height=height(frame),
        row_height=row_px,
        alt=alt,
        **selection,
    )
    return event


def choose(
    columns: Columns[Row], rows: Sequence[Row], *, key: str, names: Sequence[str], alt: str, row_px: int = ROW_PX
) -> str | None:
    """A list whose rows lead on. Returns the name of the row that was opened, anywhere in it; None before.

    The browser sends the position of a row, and rows may have moved since it drew them. So the position counts in the
    list as it was shown, not as it is now; and the name stays as long as nobody opens another row.
    """
    opened, named = f"_{key}_opened", f"_{key}_name"
    listed, before = st.session_state.get(f"_{key}_shown", names), st.session_state.get(opened)
    st.session_state[f"_{key}_shown"] = list(names)
    with opening(key):
        event = show(columns, rows, key=key, alt=alt, row_px=row_px, on_select="rerun", selection_mode="single-cell")
    row = opened_row(event, key)
    if st.session_state.get(opened) != before:
        st.session_state[named] = listed[row] if row is not None and row < len(listed) else None
    name: str | None = st.session_state.get(named)
    return name


def paged(rows: Sequence[Row], *, key: str) -> tuple[DeltaGenerator, Sequence[Row], str]:
    """A place for one page of a long list, its rows, and which they are. The choice of the page stands below it."""
    slot, page = st.container(key=key), chosen_page(len(rows))
    return slot, rows[(page - 1) * PAGE_ROWS : page * PAGE_ROWS], page_sentence(page, len(rows))


def chosen_page(num_rows: int, *, key: str = state.PAGE) -> int:
    """The page of so many rows that is to be shown; the choice stands here, where there are several."""
    pages = num_pages(num_rows)
    if pages == 1:
        return 1
    if st.session_state.get(key, 1) > pages:  # fewer rows than when the page was chosen
        st.session_state[key] = pages
    return int(st.pagination(pages, key=key, bind="query-params"))


# by keyboard ------------------------------------------------------------------------------------------------------

# A grid tells of a cell that a click chose and of one that an arrow key came to in the same way, 150 ms late. So this
# tells which of the two people use, after the grid did, and when they press Enter.
_JS = """
const LATE_MS = 300
const MOVES = new Set(["ArrowDown", "ArrowUp", "ArrowLeft", "ArrowRight", "PageDown", "PageUp", "Home", "End", "Tab"])
const seen = (window.weirLists ??= { by: "mouse", movedAt: 0 })

export default function ({ data, setStateValue, setTriggerValue }) {
  seen.by = data.by  // another page knows nothing of what was told before
  const tell = (by) => { if (seen.by !== by) { seen.by = by; setStateValue("by", by) } }
  const listOf = (target) => target instanceof Element ? target.closest('[class*="st-key-opens_"]') : null

  function onKey(event) {
    const grid = event.target?.closest?.("[data-testid=data-grid-canvas]")
    if (!event.isTrusted || !grid) return
    const list = listOf(event.target)
    if (event.key === " " && !event.shiftKey && !list) {
      event.preventDefault(); event.stopPropagation()
      const tick = { key: " ", code: "Space", keyCode: 32, shiftKey: true, bubbles: true, cancelable: true }
      grid.dispatchEvent(new KeyboardEvent("keydown", tick))
    } else if (list && MOVES.has(event.key)) {
      seen.movedAt = Date.now()
      tell("keyboard")
    } else if (list && (event.key === "Enter" || event.key === " ")) {
      event.preventDefault(); event.stopPropagation()
      const mark = [...list.classList].find((name) => name.startsWith("st-key-opens_")).slice("st-key-".length)
      setTimeout(() => setTriggerValue("enter", mark), Math.max(0, seen.movedAt + LATE_MS - Date.now()))
    }
  }

  function onPointer(event) {
    const grid = listOf(event.target)?.querySelector("[data-testid=data-grid-canvas]")
    if (grid && event.clientY - grid.getBoundingClientRect().top > ROW_PX) setTimeout(() => tell("mouse"), LATE_MS)
  }

  document.addEventListener("keydown", onKey, true)
  document.addEventListener("pointerdown", onPointer, true)
  return () => {
    document.removeEventListener("keydown", onKey, true)
    document.removeEventListener("pointerdown", onPointer, true)
  }
}
""".replace("ROW_PX", str(ROW_PX))
_KEYS, _ENTERED = "list_keys", "_entered_list"
_list_keys = st.components.v2.component(_KEYS, js=_JS)


def listen_to_keys() -> None:
    """For the frame: makes every list of the page usable by keyboard."""
    st.html(f"<style>.st-key-{_KEYS} {{ position: absolute; height: 0; overflow: hidden }}</style>")
    said = _list_keys(
        key=_KEYS, data={"by": _by()}, default={"by": "mouse"}, on_by_change=lambda: None, on_enter_change=lambda: None
    )  # it wants a callback for each name; to run the page is enough
    st.session_state[_ENTERED] = said.enter  # the mark of the list where Enter was pressed, in this run alone


def opening(key: str) -> DeltaGenerator:
    """For a list that calls `opened_row`: a container that tells the keys pressed in it from others."""
    return st.container(key=_mark(key))


def opened_row(event: Mapping[str, Any], key: str) -> int | None:
    """The position of the row that was clicked, or where Enter was pressed; to move through a list opens nothing."""
    selection, opened = event.get("selection", {}), f"_{key}_opened"
    rows: Sequence[int] = selection.get("rows", ())
    cells: Sequence[tuple[int, str]] = selection.get("cells", ())
    row = rows[0] if rows else cells[0][0] if cells else None
    entered = st.session_state.get(_ENTERED) == _mark(key)
    if entered:
        st.session_state[_ENTERED] = None
    if row is None or _by() != "keyboard" or entered:
        # told apart: another cell of the same row, and Enter pressed there again
        st.session_state[opened] = row, repr(event.get("selection")), object() if entered else None
    number: int | None = st.session_state.get(opened, (None,))[0]
    return number


def opened_cell(event: Mapping[str, Any], key: str) -> tuple[int, str] | None:
    """The same of a list whose cells differ: the row's position, and the column."""
    row, column = opened_row(event, key), f"_{key}_column"
    cells: Sequence[tuple[int, str]] = event.get("selection", {}).get("cells", ())
    if cells and cells[0][0] == row:
        st.session_state[column] = cells[0][1]
    return None if row is None else (row, st.session_state.get(column, ""))


def _by() -> str:
    """Whether people move by "mouse" or "keyboard"."""
    return (st.session_state.get(_KEYS) or {}).get("by") or "mouse"


def _mark(key: str) -> str:
    """A list's name in the page: keys hold signs that names of classes do not."""
    return f"opens_{zlib.crc32(key.encode()):08x}"


# what they look like ------------------------------------------------------------------------------------------------


def list_frame(columns: Columns[Row], rows: Sequence[Row]) -> pd.DataFrame:
    """One row each, in the order given. Numbers stay numbers, so that sorting a column means something."""
    return pd.DataFrame({column.name: _column_cells(column, rows) for column in shown(columns, rows, "page")})


def _column_cells(column: Column[Row], rows: Sequence[Row]) -> Any:
    values = [column.value(row) for row in rows]
    if column.format in NUMBERS:
        is_whole = all(isinstance(value, int) and abs(value) < 2**63 for value in values if value is not None)
        return pd.array(values, dtype="Int64" if is_whole else "Float64")
    if column.format in TEXTS:
        values = [None if value is None else TEXTS[column.format](value) for value in values]
    return pd.Series(values, dtype=object)


def in_words(frame: pd.DataFrame, columns: Columns[Any], mode: Mode = "light", muted: Sequence[int] = ()) -> Any:
    """The frame of these columns with its words and colours; sorting still goes by the numbers underneath. `muted`:
    the places of faint rows."""
    numbers: dict[Any, Any] = {column.name: NUMBERS[column.format] for column in columns if column.format in NUMBERS}
    layers: list[Any] = [column.name for column in columns if column.format == "layer"]
    states: list[Any] = [column.name for column in columns if column.format == "state"]
    if not (numbers or layers or states or muted):
        return frame
    style = frame.style.format(numbers, na_rep=UNKNOWN)
    if layers:
        colours = LAYER_TEXT[mode]
        style = style.map(
            lambda layer: f"color: {colours[layer]}; font-weight: 600" if layer in colours else "", subset=layers
        )
    if states:
        style = style.map(lambda text: f"color: {state_style(text.partition(' ')[2], mode).colour}", subset=states)
    if muted:
        faint = f"color: {SURFACES[mode].muted}; font-style: italic"
        style = style.apply(lambda _: [faint if row in muted else "" for row in range(len(frame))], axis=0)
    return style


def _config(column: Column[Any]) -> Any:
    if column.format == "line":
        return st.column_config.LineChartColumn(width=column.width, help=column.help, y_min=0)
    if column.format == "bars":
        return st.column_config.BarChartColumn(width=column.width, help=column.help, y_min=0, y_max=1)
    right: Literal["right"] | None = "right" if column.is_right else None
    pinned = (column.name, column.format) == ("Version", "version") or None
    return st.column_config.Column(width=column.width, help=column.help, alignment=right, pinned=pinned)


def height(frame: pd.DataFrame) -> int | Literal["content"]:
    """As high as its rows; a long list scrolls inside."""
    return "content" if len(frame) <= MOST_ROWS_HIGH else SCROLLING_PX


def text_table(columns: Columns[Row], rows: Sequence[Row]) -> None:
    """A short list to read, nothing is cut: the last column, a meaning, stands below the first."""
    name, *others, meaning = columns
    cells = {column.name: [markdown_safe(column.text(row)) for row in rows] for column in (name, *others)}
    cells[name.name] = [
        f"**{cell}**  \n:gray[{markdown_safe(meaning.text(row))}]"
        for cell, row in zip(cells[name.name], rows, strict=True)
    ]
    _table(cells)


def facts(values: Mapping[str, str]) -> None:
    """Names and values in two columns, every value as it is."""
    names = [markdown_safe(name) for name in values]
    _table({"Name": names, "Value": [markdown_safe(value) for value in values.values()]}, hide_header=True)


def _table(cells: Mapping[str, Sequence[str]], *, hide_header: bool = False) -> None:
    # From Arrow: Streamlit takes a frame of pandas through three conversions.
    st.table(pa.table(dict(cells)), border="horizontal", hide_index=True, hide_header=hide_header)
