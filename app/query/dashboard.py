"""Dashboard: tiles on a grid, each drawn again by itself when what it reads moved.

Rule: a dashboard that is kept is a file. What is chosen, ordered and sized here is in the link, and can be saved as
such a file. The live region only draws: what runs, and when, is one for all viewers (`shared_tiles`).
"""

import functools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta

import streamlit as st

from app import errors, navigation, services, state, viewer
from app.query import view
from app.query.page import ADD_TILE, link_params, saved_queries
from app.ui.figures import LiveChart, live_chart, prepared
from app.ui.live import live
from app.ui.view.figures import FigureLook
from app.ui.view.theme import FIGURES_KEPT
from app.ui.view.words import markdown_safe, sentence
from backend.errors import TableNotFoundError
from backend.lake.lake import MOST_VIEWS, Lake
from backend.query.tiles import TileRows, Tiles, TileState, tiles_of
from backend.sql.saved import WIDEST, Dashboard, SavedQuery, Tile, read_dashboards, tiles, toml_text

HEIGHT_PX = 320
# Streamlit's cell is as high as its row; the block in it that holds a tile is not.
_EQUAL_TILES = """<style>.st-key-dashboard_tiles :has(> .stVerticalBlock > div > [class*="st-key-tile_"]) { flex: 1 }
</style>"""
NARROWEST_PX = 320
EVERY_S = 1.0
RANGES = {"All": None, "1 h": timedelta(hours=1), "24 h": timedelta(days=1), "7 d": timedelta(days=7)}
_ARRANGED, _TITLE = "dashboard_arranged", "dashboard_title"


@functools.lru_cache(MOST_VIEWS)
def shared_tiles(lake: Lake) -> Tiles:
    """The tiles of dashboards: each runs once for all viewers who may see the same."""
    return tiles_of(lambda: services.world(lake))


def dashboard() -> None:
    """The chosen dashboard of a file, or the tiles that the link names."""
    boards, problems = read_dashboards(services.settings().dashboard_folders)
    for problem in problems:
        errors.show(problem, meaning="Its tiles are not shown.")
    saved: list[SavedQuery] = []
    with errors.boundary():
        saved = saved_queries()
    every = tiles(boards, saved)
    name, shown = _chosen(boards, every)
    if st.session_state.get(ADD_TILE) in every:  # on Query
        _add(shown, every)
        name, shown = _chosen(boards, every)
    title = next((board.title for board in boards if board.name == name), navigation.title("dashboard"))
    st.title(markdown_safe(title), anchor=False)
    with st.container(horizontal=True, vertical_alignment="bottom", key="dashboard_head"):
        st.html(_EQUAL_TILES)
        if boards:
            _choice(boards, name)
        if every:
            with st.popover("Arrange", icon=":material/dashboard_customize:", key="dashboard_arrange"):
                _arrange(shown, every)
    if shown:
        live(functools.partial(_grid, shown), key="dashboard_live", every_s=EVERY_S)
    else:
        st.info("**No tile is shown.**", icon=":material/space_dashboard:")
        if every:
            st.markdown("Add one under *Arrange*.")
        st.markdown(
            "A saved query with a chart is a tile: run a statement on *Query*, choose *Chart*, *Save…*, then *Add to "
            "dashboard*. A file `dashboards/NAME.toml` beside `weir.toml` is a dashboard for everybody."
        )
        navigation.page_link("query", "Query")


def _chosen(boards: Sequence[Dashboard], every: Mapping[str, Tile]) -> tuple[str | None, list[Tile]]:
    """The dashboard of a file, if it is one, and its tiles: by the link, as last arranged, else of the first file."""
    name = state.get_str(state.DASHBOARD)
    if name is None and not state.get_strs(state.TILE):
        state.set_params({state.TILE: st.session_state.get(_ARRANGED, [])})
    links = state.get_strs(state.TILE)
    st.session_state[_ARRANGED] = links
    if not links:
        board = next((board for board in boards if board.name == name), boards[0] if boards else None)
        if name and (board is None or board.name != name):
            st.warning(f"There is no dashboard {markdown_safe(name)}.", icon=":material/search_off:")
        return (board.name, list(board.tile)) if board else (None, [])
    shown, missing = view.arranged(links, every)
    if missing:
        names = markdown_safe(", ".join(missing))
        st.warning(f"There is no tile {names}: it was removed or renamed.", icon=":material/search_off:")
    return None, shown


def _choice(boards: Sequence[Dashboard], name: str | None) -> None:
    """One widget for each choice: a browser that still tells the choice before does not undo the link."""
    titles, key = {board.name: board.title for board in boards}, f"dashboard_choice_{name}"
    st.selectbox(
        "Dashboard", list(titles), list(titles).index(name) if name else None, key=key, width=300,
        format_func=lambda name: titles.get(name, name), placeholder="Arranged by the link", on_change=_open,
        args=(key,), label_visibility="collapsed",
    )  # fmt: skip


def _open(key: str) -> None:
    st.session_state.pop(_ARRANGED, None)
    state.set_params({state.DASHBOARD: st.session_state[key], state.TILE: None})


# arranged here --------------------------------------------------------------------------------------------------------


def _arrange(shown: Sequence[Tile], every: Mapping[str, Tile]) -> None:
    st.caption("The link holds what you choose here. Save it as a file to keep it.")
    for number, tile in enumerate(shown):
        before, after = list(shown[:number]), list(shown[number + 1 :])
        wider = replace(tile, width=tile.width % WIDEST + 1)
        with st.container(horizontal=True, vertical_alignment="center", key=f"tile_row_{number}"):
            st.markdown(markdown_safe(tile.title), width="stretch")
            _button("Up", f"tile_up_{number}", [*before[:-1], tile, *before[-1:], *after], can=bool(before))
            _button("Down", f"tile_down_{number}", [*before, *after[:1], tile, *after[1:]], can=bool(after))
            _button(f"{tile.width} of {WIDEST} wide", f"tile_width_{number}", [*before, wider, *after])
            _button("Remove", f"tile_remove_{number}", [*before, *after], can=len(shown) > 1)
    others = [name for name in every if name not in {tile.name for tile in shown}]
    st.selectbox(
        "Add a tile", others, None, key=ADD_TILE, placeholder="Tiles of files, and saved queries with a chart",
        on_change=_add, args=(shown, every),
    )  # fmt: skip
    with st.expander("Save as a file", key="dashboard_file"):
        title = st.text_input("Title", "My dashboard", key=_TITLE) or "My dashboard"
        name, text = "_".join(re.findall(r"\w+", title.lower())) or "dashboard", toml_text(title, shown)
        st.download_button(f"Download {name}.toml", text, f"{name}.toml", key="dashboard_save", on_click="ignore")
        st.caption("Put it into the folder `dashboards` beside `weir.toml`: then everybody has it.")
        st.code(text, language="toml")


def _button(label: str, key: str, arranged: Sequence[Tile], *, can: bool = True) -> None:
    st.button(label, key=key, type="tertiary", disabled=not can, on_click=_put, args=(arranged,))


def _add(shown: Sequence[Tile], every: Mapping[str, Tile]) -> None:
    tile, st.session_state[ADD_TILE] = every.get(st.session_state[ADD_TILE]), None
    if tile and tile.name not in {tile.name for tile in shown}:  # a browser may tell one choice twice
        _put([*shown, tile])


def _put(shown: Sequence[Tile]) -> None:
    links = [f"{tile.name}:{tile.width}" for tile in shown]  # as `view.arranged` reads them
    state.set_params({state.TILE: links, state.DASHBOARD: None})


# live -----------------------------------------------------------------------------------------------------------------


def _grid(shown: Sequence[Tile]) -> None:
    tiles = shared_tiles(viewer.lake())
    states = [tiles.state(tile.sql) for tile in shown]
    with st.container(horizontal=True, vertical_alignment="center", key="dashboard_refresh"):
        st.caption(view.refresh_text(states, services.now()), width="stretch")
        drawn = [(each.rows.rows, tile.chart) for tile, each in zip(shown, states, strict=True) if each.rows]
        span = RANGES[st.segmented_control(
            "Time range", list(RANGES), default="All", required=True, key=state.WINDOW, bind="query-params",
            label_visibility="collapsed",
        )] if any(view.has_time(*each) for each in drawn) else None  # fmt: skip
    grid = st.grid(WIDEST, min_column_width=NARROWEST_PX, key="dashboard_tiles")
    look = FigureLook(viewer.mode(), viewer.timezone())
    for number, (tile, tile_state) in enumerate(zip(shown, states, strict=True)):
        with grid.cell(column_span=tile.width), st.container(border=True, height="stretch", key=f"tile_{number}"):
            _tile(tile, tile_state, look, number, span)


def _tile(tile: Tile, tile_state: TileState, look: FigureLook, number: int, span: timedelta | None) -> None:
    """Three parts that are always there, so that each keeps its place."""
    rows, problem = tile_state.rows, tile_state.problem
    is_missing = isinstance(problem, TableNotFoundError) and not rows  # a lake begins without tables
    with st.container(key=f"tile_chart_{number}"):
        drawn = _drawn(rows, tile, f"tile_figure_{number}", look, span) if rows else ""
        if isinstance(drawn, LiveChart):
            live_chart(drawn)
        else:
            st.markdown(f"**{markdown_safe(tile.title)}**")
            words = sentence(problem.message) if problem and is_missing else "" if problem else "Reading …"
            st.caption(markdown_safe(drawn or words))
    with st.container(key=f"tile_problem_{number}"):
        if problem and not is_missing:
            meaning = "The chart shows the last result that could be read." if rows else "Nothing was read."
            errors.show(problem, meaning=meaning)
    with st.container(horizontal=True, vertical_alignment="center", key=f"tile_foot_{number}"):
        st.caption(markdown_safe(view.freshness(rows, services.now())) if rows else "–")
        pins = ",".join(rows.pins) if rows else ""
        navigation.page_link("query", "Open in Query", link_params(tile.sql, tile.chart, pins))


@functools.lru_cache(FIGURES_KEPT)
def _drawn(read: TileRows, tile: Tile, key: str, look: FigureLook, span: timedelta | None) -> LiveChart | str:
    """The chart of one run for all who look at it, or why there is none."""
    if reason := "The statement gives no rows." if not read.rows.num_rows else view.misfit(read.rows, tile.chart):
        return reason
    rows = view.newest(read.rows, tile.chart, span)
    figure = view.figure(rows, tile.chart, look, is_cut=read.is_cut, title=tile.title, height=HEIGHT_PX)
    return prepared(json.loads(figure.to_json()), key=key, alt=tile.title)
