"""Statements that run again when a table that they read moved: once, for all who look and may see the same.

Rule: nothing runs that nobody looks at. One look at the logs of a statement serves every viewer; it never runs twice at
once, nor more often than every few seconds. Nobody waits: what is known is shown, and how fresh it is.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import NamedTuple

import pyarrow as pa

from backend.caches import Lru
from backend.errors import LakehouseError, QueryError, RowsRefusedError, fault
from backend.format import bytes_text
from backend.lake.model import TableRef
from backend.query.answer import first_rows, query_limits
from backend.query.plan import QueryPlan, plan_query
from backend.query.views import World
from backend.times import Clock

MOST_ROWS, MOST_BYTES = 1_000, 4_000_000  # of a tile, kept for all who look
AT_ONCE = 2  # processes of queries, each with its memory
MOST_TILES = 100
LOOK_S = 0.5  # at the logs of the tables that a statement reads
EVERY_S = 3.0  # of one statement, from its beginning; longer for one that takes long
REST = 4  # times as long as it took
AGAIN_S = 15.0  # what failed, and what no version tells: tables of weir., versions named by times
_log = logging.getLogger(__name__)


class TileTable(NamedTuple):
    """A table as a tile read it; None for one without versions."""

    table: str
    version: int | None
    committed_at: datetime | None


@dataclass(frozen=True, slots=True, eq=False)
class TileRows:
    """The first rows of a statement, and of which versions. Each run's are a value of their own."""

    rows: pa.Table
    is_cut: bool
    pins: tuple[str, ...]
    seen: tuple[TileTable, ...]
    read_at: datetime


@dataclass(frozen=True, slots=True)
class TileState:
    """`rows`: of the last run that gave some; `problem`: why the newest gave none. Neither: it has not run yet."""

    rows: TileRows | None = None
    problem: LakehouseError | None = None


@dataclass(slots=True)
class _Tile:
    """A statement, for all who look at it. `latest`: the versions that were there before it ran."""

    state: TileState = TileState()
    latest: Mapping[TableRef, int | None] = field(default_factory=dict)
    began: float | None = None
    took_s: float = 0.0
    looked_at: float | None = None
    is_busy: bool = False


def is_due(tile: _Tile, latest: Mapping[TableRef, int | None], now: float) -> bool:
    """Whether a statement runs again, where these are the latest versions now."""
    if tile.began is None:
        return True
    waited_s = now - tile.began
    if waited_s < max(EVERY_S, REST * tile.took_s):
        return False
    return waited_s >= AGAIN_S or latest != tile.latest


def _in_a_thread(work: Callable[[], None]) -> None:
    threading.Thread(target=work, name="tile", daemon=True).start()


class Tiles:
    """Thread-safe. `state` is what pages ask; `begin` starts work that nobody waits for."""

    def __init__(
        self,
        plan: Callable[[str], QueryPlan],
        run: Callable[[QueryPlan], TileRows],
        latest: Callable[[TableRef], int],
        *,
        elapsed: Callable[[], float] = time.monotonic,
        begin: Callable[[Callable[[], None]], None] = _in_a_thread,
    ) -> None:
        self._plan, self._run, self._latest, self._elapsed, self._begin = plan, run, latest, elapsed, begin
        self._tiles: Lru[str, _Tile] = Lru(MOST_TILES)
        self._lock, self._slots = threading.Lock(), threading.Semaphore(AT_ONCE)

    def state(self, text: str) -> TileState:
        """What is known of a statement now; where nobody looked for a while, a look begins."""
        tile, now = self._tiles.get_or_make(text, _Tile), self._elapsed()
        with self._lock:
            begins = not tile.is_busy and (tile.looked_at is None or now - tile.looked_at >= LOOK_S)
            if begins:
                tile.is_busy, tile.looked_at = True, now
        if begins:
            self._begin(partial(self._look, text, tile))
        return tile.state

    def _look(self, text: str, tile: _Tile) -> None:
        try:
            latest = {ref: self._version(ref) for ref in tile.latest}
            if is_due(tile, latest, self._elapsed()):
                with self._slots:
                    self._refresh(text, tile, latest)
        finally:
            tile.is_busy = False

    def _version(self, ref: TableRef) -> int | None:
        try:
            return self._latest(ref)
        except LakehouseError:  # running it says why
            return None

    def _refresh(self, text: str, tile: _Tile, latest: Mapping[TableRef, int | None]) -> None:
        began, before, rows, problem = self._elapsed(), tile.state, tile.state.rows, None
        try:
            plan = self._plan(text)
            # A table that nobody looked at before may have moved meanwhile: the next look sees that.
            tile.latest = {read.ref: latest.get(read.ref, -1) for read in plan.reads if read.ref is not None}
            if rows is None or rows.pins != plan.pins or "now" in plan.pins or before.problem is not None:
                rows = self._run(plan)
        except LakehouseError as exc:
            rows, problem = None if isinstance(exc, RowsRefusedError) else rows, exc
        except Exception as exc:  # noqa: BLE001 - a thread's boundary: who looks is told
            _log.error("a tile failed", exc_info=exc)
            problem = fault(exc, on="a tile")
        tile.state, tile.began, tile.took_s = TileState(rows, problem), began, self._elapsed() - began


def tiles_of(world: Callable[[], World]) -> Tiles:
    """The tiles of a lake; `world` as it is now, for each run."""

    def plan(text: str) -> QueryPlan:
        now = world()
        made = plan_query(now, text, Clock(now.now, None), most_rows=MOST_ROWS + 1)
        made.require_small(now.settings.lake.query_max_bytes)
        return made

    def run(plan: QueryPlan) -> TileRows:
        now = world()
        rows, is_cut = first_rows(now, plan, query_limits(now.settings.lake), None)
        if rows.nbytes > MOST_BYTES:
            raise QueryError(f"the rows of a tile hold {bytes_text(rows.nbytes)}", hint="select what is drawn alone")
        seen = tuple(dict.fromkeys(TileTable(read.table, read.version, read.committed_at) for read in plan.reads))
        return TileRows(rows, is_cut, plan.pins, seen, now.now)

    return Tiles(plan, run, lambda ref: world().lake.latest_version(ref))
