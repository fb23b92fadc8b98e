"""Dashboards: files that say what is wrong with them; tiles that run again when a version moved, once for all."""

import re
import threading
import tomllib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

from backend.errors import QueryError, TableNotFoundError
from backend.lake.model import TableRef
from backend.query.plan import QueryPlan, TableRead
from backend.query.statement import read_statement
from backend.query.tiles import AGAIN_S, AT_ONCE, EVERY_S, LOOK_S, REST, TileRows, Tiles, TileState
from backend.settings import load_settings
from backend.sql.saved import Chart, Dashboard, Tile, read_dashboards, toml_text
from tests.worlds.processes import wait_until
from tests.worlds.store.values import NOW

ROOT = Path(__file__).parents[3]
DEMO = ROOT / "pipelines" / "demo" / "dashboards"
SALES = """
title = "Sales of the day"
[[tile]]
title = "Orders / hour"
sql = "SELECT hour, n FROM orders"
chart = { kind = "Line", x = "hour", y = "n", colour = "shop" }
width = 2
[[tile]]
title = "By status"
sql = "SELECT 1"
chart = { kind = "Bar", x = "status", y = "n" }
"""


def test_a_file_is_a_dashboard_with_its_tiles_in_order(tmp_path: Path) -> None:
    (tmp_path / "sales.toml").write_text(SALES)
    (board,), problems = read_dashboards([tmp_path])
    first = Tile("Orders / hour", "SELECT hour, n FROM orders", Chart("Line", "hour", "n", "shop"), 2, "sales")
    second = Tile("By status", "SELECT 1", Chart("Bar", "status", "n"), board="sales")
    assert board == Dashboard(name="sales", title="Sales of the day", tile=(first, second)) and problems == []
    assert [tile.name for tile in board.tile] == ["sales/Orders / hour", "sales/By status"]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (('"Line"', '"Pie"'), "tile.0.chart.kind: Input should be 'Line', 'Bar', 'Area', 'Scatter' or 'Figure'"),
        (("width = 2", "width = 4"), "tile.0.width"),
        (("colour", "color"), "tile.0.chart.color: Unexpected keyword argument"),
        (("width = 2", "wide = 2"), "tile.0.wide: Unexpected keyword argument"),
        (('y = "n", ', ""), "a Line needs y"),
        (('title = "Sales', 'titel = "Sales'), "titel: Extra inputs are not permitted"),
        (("By status", "Orders / hour"), "two tiles have one title"),
        (("[[tile]]", "[[tile"), "cannot be read"),
    ],
)
def test_a_wrong_file_says_what_is_wrong_and_hides_no_other(tmp_path: Path, change: tuple[str, str], why: str) -> None:
    (tmp_path / "sales.toml").write_text(SALES)
    (tmp_path / "wrong.toml").write_text(SALES.replace(*change))
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    boards, problems = read_dashboards([tmp_path])
    assert [board.name for board in boards] == ["sales"]
    binary, wrong = sorted(problems, key=lambda problem: problem.message)
    assert "binary.toml cannot be read" in binary.message
    assert "wrong.toml" in wrong.message and why in wrong.message


def test_dashboards_lie_beside_weir_toml_and_hide_the_demo_s_of_their_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "weir.toml").write_text("")
    (tmp_path / "dashboards").mkdir()
    (tmp_path / "dashboards" / "gold.toml").write_text(SALES)
    monkeypatch.setenv("WEIR_CONFIG", str(tmp_path / "weir.toml"))
    assert load_settings().dashboard_folders == (tmp_path / "dashboards", DEMO)
    boards, problems = read_dashboards(load_settings().dashboard_folders)
    assert [board.title for board in boards] == ["Sales of the day"] and problems == []
    other_lake = load_settings(lake={"roots": [str(tmp_path)]})
    assert other_lake.dashboard_folders == (tmp_path / "dashboards",), "nothing shows the demo's tables"
    monkeypatch.setenv("WEIR_DEMO__ENABLED", "false")
    assert load_settings().dashboard_folders == (tmp_path / "dashboards",)
    assert read_dashboards([tmp_path / "nowhere"]) == ([], [])


def test_the_demo_s_statements_can_be_read() -> None:
    (board,), problems = read_dashboards([DEMO])
    assert problems == [] and board.title == "Gold" and len(board.tile) == 6
    named = {source.written for tile in board.tile for source in read_statement(tile.sql, most_rows=9).sources}
    assert {"gold_orders_by_status", "gold_events_hourly", "silver_events_quarantine", "weir.tables"} <= named


def test_the_file_that_the_docs_show_is_one(tmp_path: Path) -> None:
    (example,) = re.findall(r"```toml\n(.*?)```", (ROOT / "docs" / "query.md").read_text(), re.DOTALL)
    (tmp_path / "sales.toml").write_text(example)
    (board,), problems = read_dashboards([tmp_path])
    assert problems == [] and board.tile[0].width == 2
    assert [source.written for source in read_statement(board.tile[0].sql).sources] == ["silver.silver_orders"]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 1",
        "SELECT 'a' AS \"b\"\nFROM t\n",
        "SELECT '''quoted'''\nFROM t",
        "SELECT 1 -- \\n is no line\nFROM t WHERE a = 'ä☃'",
        "ends in a quote\n'",
        "tab\tand\x7f\x01\r\ncontrols",
    ],
)
def test_what_is_arranged_is_the_same_once_it_is_a_file(tmp_path: Path, text: str) -> None:
    shown = [
        Tile("Totals", text, Chart("Area", 'x "1"', "y", "c"), 3),
        Tile("N", text, Chart("Bar", "a\nb", "ä😀"), board="sales"),
    ]
    written = toml_text('Mine "two"', shown)
    assert tomllib.loads(written)["title"] == 'Mine "two"'
    (tmp_path / "mine.toml").write_text(written, newline="")
    (board,), problems = read_dashboards([tmp_path])
    assert problems == []
    for tile, arranged in zip(board.tile, shown, strict=True):
        assert replace(tile, board=arranged.board) == arranged


# tiles ----------------------------------------------------------------------------------------------------------------


@dataclass
class World:
    """Tables at versions, statements that name them, a clock, and work that begins when a test says so."""

    versions: dict[str, int] = field(default_factory=lambda: {"orders": 1, "events": 7})
    now: float = 100.0
    takes_s: float = 0.5
    runs: Counter[str] = field(default_factory=Counter)
    looks: Counter[str] = field(default_factory=Counter)
    work: list[Callable[[], None]] = field(default_factory=list)
    fails: Exception | None = None

    def __post_init__(self) -> None:
        self.tiles = Tiles(self.plan, self.run, self.latest, elapsed=lambda: self.now, begin=self.work.append)

    def plan(self, text: str) -> QueryPlan:
        """ "orders events@3 weir": a table at its latest version, one at a named version, one without."""
        return QueryPlan(cast(Any, text), tuple(map(self.read, text.split())))

    def read(self, word: str) -> TableRead:
        name, _, version = word.partition("@")
        if name == "weir":
            return TableRead("t", "weir.tables", cast(Any, None))
        if name not in self.versions:
            raise TableNotFoundError(f"no table {name!r}")
        return TableRead("t", name, cast(Any, None), int(version or self.versions[name]), NOW, ref=ref(name))

    def run(self, plan: QueryPlan) -> TileRows:
        text = str(plan.statement)
        self.runs[text] += 1
        self.now += self.takes_s
        if self.fails:
            raise self.fails
        return TileRows(pa.table({"n": [self.runs[text]]}), is_cut=False, pins=plan.pins, seen=(), read_at=NOW)

    def latest(self, table: TableRef) -> int:
        self.looks[table.name] += 1
        if table.name not in self.versions:
            raise TableNotFoundError(f"no table {table.name!r}")
        return self.versions[table.name]

    def seen(self, *texts: str, after_s: float = 0.0) -> list[TileState]:
        """What a viewer sees who looks, once all that this began is done, and looks again."""
        self.now += after_s
        self.look(*texts)
        while self.work:
            self.work.pop(0)()
        return [self.tiles._tiles.get_or_make(text, pytest.fail).state for text in texts]

    def look(self, *texts: str) -> list[TileState]:
        return [self.tiles.state(text) for text in texts]


def ref(name: str) -> TableRef:
    return TableRef(f"/lake/{name}", name, "/lake")


def number(state: TileState) -> int:
    """Of which run the rows are."""
    assert state.rows is not None
    return cast(int, state.rows.rows["n"][0].as_py())


@pytest.fixture
def world() -> World:
    return World()


def test_it_runs_again_when_a_version_moved_and_only_then(world: World) -> None:
    assert world.look("orders") == [TileState()] and world.runs.total() == 0, "nobody waits for the first rows"
    (first,) = world.seen("orders")
    for _ in range(40):
        world.seen("orders", after_s=1.0)
    assert world.runs["orders"] == 1 and world.seen("orders") == [first]
    world.versions["events"] += 1
    world.seen("orders", after_s=EVERY_S)
    assert world.runs["orders"] == 1, "that is another table"
    world.versions["orders"] += 1
    (moved,) = world.seen("orders", after_s=EVERY_S)
    assert world.runs["orders"] == 2 and number(moved) == 2 and moved.rows is not None and moved.rows.pins == ("2",)
    world.seen("orders events")
    for runs, table in enumerate(("orders", "events"), 2):
        world.versions[table] += 1
        world.seen("orders events", after_s=EVERY_S)
        assert world.runs["orders events"] == runs, "any of its tables moves it"


def test_fifty_viewers_of_twenty_tiles_cost_one_look_at_each_and_one_run_a_version(world: World) -> None:
    texts, world.takes_s = [f"orders events@{n}" for n in range(20)], 0.0
    world.seen(*texts)
    world.seen(*texts, after_s=EVERY_S)
    assert set(world.runs.values()) == {1}
    world.versions["orders"] += 1
    world.now += EVERY_S
    world.looks.clear()
    for _ in range(50):
        world.look(*texts)
    assert len(world.work) == 20
    while world.work:
        world.work.pop(0)()
        world.look(*texts)
    assert set(world.runs.values()) == {2} and world.looks == {"orders": 20, "events": 20}


def test_few_run_at_once_and_all_run_in_the_end(world: World) -> None:
    lock, ends, running, most = threading.Lock(), threading.Event(), [0], [0]

    def run(plan: QueryPlan) -> TileRows:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        assert ends.wait(60)
        with lock:
            running[0] -= 1
        return TileRows(pa.table({"n": [1]}), is_cut=False, pins=plan.pins, seen=(), read_at=NOW)

    tiles, texts = Tiles(world.plan, run, world.latest), [f"orders events@{n}" for n in range(6)]
    for text in texts:
        tiles.state(text)
    wait_until(lambda: running[0] == AT_ONCE, "as many run as may")
    ends.set()
    wait_until(lambda: all(tiles.state(text).rows for text in texts), "all have run")
    assert most == [AT_ONCE]


def test_it_runs_at_most_every_few_seconds_and_more_rarely_when_it_takes_long(world: World) -> None:
    for took_s, pause_s in ((0.1, EVERY_S), (10.0, REST * 10.0)):
        world = World(takes_s=took_s)
        world.seen("orders")
        began, before = world.now - took_s, world.runs["orders"]
        while world.runs["orders"] == before:
            world.versions["orders"] += 1
            world.seen("orders", after_s=LOOK_S)
        again = world.now - took_s - began
        assert pause_s <= again <= pause_s + 2 * LOOK_S, took_s


def test_a_named_version_does_not_move_and_costs_no_run(world: World) -> None:
    world.seen("orders@1")
    for _ in range(10):
        world.versions["orders"] += 1
        world.seen("orders@1", after_s=EVERY_S)
    assert world.runs["orders@1"] == 1


def test_what_has_no_version_is_read_again_now_and_then(world: World) -> None:
    world.seen("weir")
    world.seen("weir", after_s=AGAIN_S - 1.0)
    assert world.runs["weir"] == 1
    world.seen("weir", after_s=1.0)
    assert world.runs["weir"] == 2


@pytest.mark.parametrize(
    ("fault", "reason"),
    [(QueryError("it needs more memory"), "it needs more memory"), (KeyError(), "Weir failed on a tile: KeyError")],
    ids=["of the query", "of Weir"],
)
def test_what_fails_says_why_over_the_rows_before_and_is_tried_again(
    world: World, fault: Exception, reason: str
) -> None:
    world.seen("orders")
    world.fails, world.versions["orders"] = fault, 2
    (state,) = world.seen("orders", after_s=EVERY_S)
    assert number(state) == 1 and state.problem is not None and reason in state.problem.message
    world.fails = None
    (state,) = world.seen("orders", after_s=AGAIN_S)
    assert state.problem is None and state.rows is not None and state.rows.pins == ("2",)


def test_a_table_that_is_not_there_is_told_and_found_once_it_is(world: World) -> None:
    del world.versions["events"]
    (state,) = world.seen("events")
    assert state.rows is None and state.problem is not None and "no table 'events'" in state.problem.message
    world.versions["events"] = 0
    (state,) = world.seen("events", after_s=AGAIN_S)
    assert state.problem is None and number(state) == 1
