"""A figure or a state that stands on several pages, or in the terminal, is the same everywhere: 600 tables, some of
them broken, and streams in every state.

Rule: what is expected is counted from the actions that were written; no page stands in for another.
"""

import json
from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

from app import cache
from app.ui.figures import state_mark
from app.ui.lake import MOST_TO_MERGE
from app.ui.view.words import PAGE_ROWS
from backend.access import Actor
from backend.format import bytes_text, count_text
from backend.store.store import ControlStore
from backend.stream_model.stream import StreamState
from tests.worlds.lake.builders import HandLog, add, commit_info
from tests.worlds.pages.frames import frame_with
from tests.worlds.pages.opened import metrics, open_page, words
from tests.worlds.processes import wait_until
from tests.worlds.store import stream_store
from tests.worlds.terminal import Weir, weir

__all__ = ["weir"]
MANY, LAYERS = 600, ("bronze", "silver", "gold")
LEAST_JUDGED = 16  # files


@dataclass(frozen=True)
class Written:
    """What lies in a table; `rows` is None where a file does not say its own."""

    files: int
    rows: int | None
    size_bytes: int

    @property
    def small_text(self) -> str:
        if self.files >= LEAST_JUDGED:
            return f"{self.files} of {self.files}"
        return f"OK ({self.files})" if self.files else "OK"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Written | None]]:
    """The lake, and what lies in each table by name; None for one that cannot be read."""
    root = tmp_path_factory.mktemp("lake")
    return root, {f"{LAYERS[number % 3]}/t{number:03d}": _written(root, number) for number in range(MANY)}


@pytest.fixture
def lake(
    home: Path, written: tuple[Path, dict[str, Written | None]], monkeypatch: pytest.MonkeyPatch
) -> dict[str, Written | None]:
    root, tables = written
    monkeypatch.setenv("WEIR_LAKE__ROOTS", json.dumps([str(root)]))
    return tables


def _written(root: Path, number: int) -> Written | None:
    log = HandLog(root / LAYERS[number % 3] / f"t{number:03d}")
    if number % 30 == 0:
        log.start().raw(f"{1:020d}.json", "{rubbish")
        return None
    if number % 97 == 5:
        log.raw(f"{0:020d}.json", "{rubbish")
        return None
    files, is_counted = number % 40, number % 50 != 7
    sizes = [1_000 + number + each for each in range(files)]
    rows = [10 + each for each in range(files)]
    log.start().commit(commit_info(), *(
        add(f"f{each}.parquet", size=size, rows=count if is_counted else None)
        for each, (size, count) in enumerate(zip(sizes, rows, strict=True))
    ))  # fmt: skip
    return Written(files, sum(rows) if is_counted or not files else None, sum(sizes))


def opened(page: str, **params: str | int) -> AppTest:
    open_page(page, **params)
    wait_until(lambda: cache.lake_reading().is_complete, "the lake is read")
    return open_page(page, **params)


def listed(*columns: str, **params: str) -> pd.DataFrame:
    """All pages of the list of tables, by table."""
    numbers = range(1, MANY // PAGE_ROWS + 1)
    pages = [frame_with(opened("tables", page_=number, **params), "Table", *columns) for number in numbers]
    return pd.concat(pages).set_index("Table")


def figures(row: "pd.Series[float]") -> tuple[int | None, ...]:
    return tuple(None if pd.isna(row[name]) else int(row[name]) for name in ("Rows", "Files", "Size") if name in row)


def test_every_list_and_command_says_the_same_of_every_table(lake: dict[str, Written | None], weir: Weir) -> None:
    on_tables, on_health = listed("Rows", "Files", "Size"), listed("Judgement", "Small files", sort=MOST_TO_MERGE)
    told = {table["name"]: table for table in weir("tables", "--json").document}
    health = {table["name"]: table for table in weir("health", "--json").document["tables"]}
    assert set(on_tables.index) == set(on_health.index) == set(told) == set(lake)
    for name, written in lake.items():
        row, judged = on_tables.loc[name], on_health.loc[name]
        if written is None:
            assert "unreadable" in row["Version"] and "Critical" in judged["Judgement"]
            assert judged["Finding"] == row["Problem"] == told[name]["reason"]
            assert judged["Next step"] == row["What to do"] == told[name]["hint"]
            assert name not in health
            continue
        expected = written.rows, written.files, written.size_bytes
        assert figures(row) == expected, name
        assert (told[name]["num_rows"], told[name]["num_files"], told[name]["size_bytes"]) == expected, name
        assert figures(judged) == expected and health[name]["num_files"] == written.files, name
        assert row["Small files"] == judged["Small files"] == written.small_text, name
        assert health[name]["small_files"] == written.files, name


@pytest.mark.ci
def test_every_page_says_the_same_of_the_lake(lake: dict[str, Written | None], weir: Weir) -> None:
    read = [written for written in lake.values() if written is not None]
    broken, noted = len(lake) - len(read), sum(written.files >= LEAST_JUDGED for written in read)
    shown, overview = metrics(app := opened("overview")), words(app)
    rows = sum(written.rows or 0 for written in read)
    assert (shown["Tables"], shown["Rows"]) == (count_text(MANY), count_text(rows))
    assert shown["Files"] == count_text(sum(written.files for written in read))
    assert shown["Size"] == bytes_text(sum(written.size_bytes for written in read))
    assert f"**{broken} tables** cannot be read" in overview and f"**{noted} tables** hold mostly small" in overview
    heading = words(opened("tables"))
    unknown = sum(written.rows is None for written in read)
    assert f"{count_text(rows)} rows (unknown in {unknown} tables)" in heading and f"{broken} unreadable" in heading
    judged = words(opened("tables", sort=MOST_TO_MERGE))
    spared = sum(written.files - 1 for written in read if written.files >= LEAST_JUDGED)
    assert f"merging would spare {count_text(spared)} of" in judged
    assert f"merging would spare {count_text(spared)} files" in overview
    causes = Counter(item["cause"] for item in weir("health", "--json").document["attention"])
    assert (causes["unreadable"], causes["small_files"]) == (broken, noted)


@pytest.mark.ci
def test_pages_of_one_table_say_the_same(lake: dict[str, Written | None], weir: Weir) -> None:
    for number in (3, 7, 39):  # fine, of unknown rows, with many small files
        name = f"{LAYERS[number % 3]}/t{number:03d}"
        written = lake[name]
        assert written is not None
        for page in ("table", "files", "health"):
            shown = metrics(open_page(page, table=name))
            assert shown["Small files"] == written.small_text, page
            for label, text in (("Rows", count_text(written.rows)), ("Files", count_text(written.files))):
                assert shown.get(label, text) == text, page
            assert shown.get("Size", bytes_text(written.size_bytes)) == bytes_text(written.size_bytes), page
        told = weir("files", name, "--json").document
        assert (told["num_files"], told["size_bytes"]) == (written.files, written.size_bytes)
        assert written.small_text in weir("files", name).out and written.small_text in weir("health", name).out


SHOWN = {  # by stream: its state and verdict as every page and the terminal show it; in JSON; how its sentence goes on
    "bronze_flows": ("▶ Running", "✓ OK", ("RUNNING", "OK"), " keeps up"),
    "bronze_fails": ("✕ Failed", "✕ Failed", ("FAILED", "FAILED"), " failed "),
    "bronze_stops": ("■ Stopped", "■ Stopped", ("STOPPED", "STOPPED"), " has been stopped"),
    "bronze_drains": ("◑ Draining", "✓ OK", ("RUNNING", "OK"), " keeps up"),
    "bronze_waits": ("? Unknown", "? Unknown", ("UNKNOWN", "UNKNOWN"), " has not been taken up"),
    "silver_rests": ("▶ Running", "✓ Idle", ("RUNNING", "IDLE"), " has had nothing new to read"),
    "silver_starves": ("▶ Running", "◌ Starved", ("RUNNING", "IDLE"), " is starved"),
}
RULES = ("event_type_not_null", "amount_not_negative")


@pytest.fixture
def streams(store: ControlStore, now: datetime) -> ControlStore:
    """Streams in every state, by the names of `SHOWN`."""
    for name in ("bronze_flows", "bronze_stops", "bronze_drains", "silver_rests"):
        stream_store.flowing(store, name, now, expectations=RULES)
    stream_store.flowing(store, "silver_starves", now, source_tables=("bronze/bronze_stops",))
    stream_store.failed(store, "bronze_fails", now)
    stream_store.declare(store, "bronze_waits", now)
    for name in ("silver_rests", "silver_starves"):
        stream_store.idle(store, name, now)
    for name, action in (("bronze_stops", "stop"), ("bronze_drains", "drain")):
        store.request(name, action, reason="a move", actor=Actor("ana"), now=now)
    stream_store.observe(store, "bronze_stops", StreamState.STOPPED, now)
    return store


def test_each_state_has_one_badge_one_sentence_and_one_json_on_every_page(
    streams: ControlStore, now: datetime, weir: Weir
) -> None:
    listed = frame_with(open_page("streams"), "Wanted").set_index("Stream")
    overview = frame_with(open_page("overview"), "Verdict").set_index("Stream")
    nodes = frame_with(open_page("pipeline"), "Reads").set_index("Name")
    told = {stream["name"]: stream for stream in weir("streams", "--json").document}
    assert set(listed.index) == set(overview.index) == set(told) == set(SHOWN)
    for name, (state, verdict, in_json, goes_on) in SHOWN.items():
        assert (listed.loc[name, "Observed"], listed.loc[name, "Verdict"]) == (state, verdict), name
        assert overview.loc[name, "Verdict"] == verdict, name
        assert nodes.loc[name, "State"].partition(" · ")[0] == (verdict if "Starved" in verdict else state), name
        assert (told[name]["state"], told[name]["verdict"]) == in_json, name
        assert told[name]["because"].startswith(f"{name}{goes_on}"), told[name]["because"]
        page, begins = words(app := open_page("stream", stream=name)).replace("\\", ""), goes_on.strip()
        assert f"{name}{goes_on}" in page and state_mark(state[2:]) in page and state_mark(verdict[2:]) in page, name
        assert listed.loc[name, "Why"].startswith(begins.capitalize()) and nodes.loc[name, "Why"].startswith(
            begins.capitalize()
        ), name
        assert f"{name} · {state} · {verdict}\n" in weir("stream", name).out, name
        rules = nodes.loc[name, "Row expectations, 5 min"]  # all batches are of these minutes
        assert metrics(app).get("Row expectations") == (rules and rules.removeprefix("▲ ")), name
        seen = told[name]["since"], told[name]["observed_at"], told[name]["seen_at"]
        assert seen[0] == seen[1] and (seen[2] is None) is (name == "bronze_waits"), seen
