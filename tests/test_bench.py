"""The measurements still run, on small tables: what they compare is equal, and a difference ends them."""

import importlib
import json
from pathlib import Path

import pytest
from deltalake import DeltaTable

from backend.lake.lake import Lake
from backend.settings import load_settings
from bench import diff, diff_tasks, lake, lake_tasks, pages
from bench.__main__ import SUITES
from bench.diff_table import make_table
from bench.harness import (
    BEGIN,
    END,
    BenchError,
    Lap,
    Line,
    Run,
    Suite,
    Watch,
    fresh,
    render,
    require_equal,
    write,
)
from bench.harness import run_suite as run
from tests.worlds.cases import soak
from tests.worlds.lake.large_logs import make_tables, next_commits, shapes

SCALE, DIFF_SCALE = 0.001, 0.0002


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tables(tmp_path_factory.mktemp("bench"), SCALE)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """That whose versions are compared."""
    return make_table(tmp_path_factory.mktemp("bench"), DIFF_SCALE)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEIR_HOME", str(tmp_path))


@pytest.mark.parametrize("name", ["T1", "T2", "T3"])
def test_what_is_measured_of_a_log_is_equal(tables: Path, name: str) -> None:
    uri, watch = str(tables / name), Watch()
    newest = lake_tasks.their_history(watch, uri=uri, limit=100)
    assert len(newest) == min(100, shapes(SCALE)[name].commits)
    for task in (lake_tasks.our_history, lake_tasks.our_warm_history):
        assert task(watch, uri=uri, limit=100) == newest
    sizes = lake_tasks.their_distribution(watch, uri=uri)
    assert lake_tasks.our_distribution(watch, uri=f"{uri}-crc") == sizes == lake_tasks.our_distribution(watch, uri=uri)
    histogram = lake_tasks.our_checksum_histogram(watch, uri=f"{uri}-crc")
    assert histogram == {name: sizes[name] for name in ("files", "buckets")}
    assert len(watch.laps) == 11 and min(lap.seconds for lap in watch.laps) > 0


def test_the_tables_hold_what_they_should(tables: Path) -> None:
    for name, shape in shapes(SCALE).items():
        own = Lake(load_settings(lake={"roots": [str(tables)]}))
        snapshot = own.snapshot(own.find(f"{name}-crc"))
        removed = shape.commits // 10 * 10
        assert snapshot.num_files == shape.base_files + 11 * shape.commits - removed
        assert snapshot.findings == (), "the checksum agrees with the log"
    assert DeltaTable(str(tables / "T2")).get_add_actions().num_rows == 10 * 250
    shape = shapes(SCALE)["T1"]
    assert next_commits(shape, 2) == next_commits(shape, 2), "the same each time"
    assert list(next_commits(shape, 2)) == [str(shape.latest + 1), str(shape.latest + 2)]


@pytest.mark.parametrize(("first", "second"), [(0, 4), (5, 6)])
def test_what_is_measured_of_a_diff_is_equal(table: Path, first: int, second: int) -> None:
    watch, pair = Watch(), {"uri": str(table), "first": first, "second": second}
    ours = diff_tasks.our_diff(watch, **pair)
    assert ours == diff_tasks.their_diff(watch, **pair)
    assert ours["rows"] == diff_tasks.their_counts(watch, **pair)
    expected = {(0, 4): [30, 30, 10, 960], (5, 6): [0, 2, 0, 1018]}[first, second]
    assert list(ours["rows"].values()) == expected
    assert ours["changed_cells"] == {"state": expected[1], "amount": expected[1]}
    assert len(ours["page"]) == sum(expected[:3])


def test_the_feed_is_counted_as_its_reader_does_and_a_compaction_changes_files_alone(table: Path) -> None:
    watch, pair = Watch(), {"uri": str(table), "first": 6, "second": 7}
    changes = diff_tasks.our_feed(watch, **pair)
    assert changes == diff_tasks.their_feed(watch, **pair) == {"update_postimage": 1020, "update_preimage": 1020}
    own = Lake(load_settings(lake={"roots": [str(table.parent)]}))
    ref = own.find("orders")
    assert [own.snapshot(ref, version).num_files for version in (0, 4, 5, 6)] == [50, 52, 25, 25]
    same = diff_tasks.our_diff(watch, uri=str(table), first=4, second=5)
    assert same["rows"] == {"inserted": 0, "updated": 0, "deleted": 0, "unchanged": 1020}


@pytest.mark.parametrize(
    ("suite", "scale", "section", "line"),
    [
        (lake.SUITE, SCALE, "refresh", "| refresh after one commit, T3 / T1 | ≤ 1.5 |"),
        *soak((diff.SUITE, DIFF_SCALE, "feed", "| change feed by type, 2,040 changes | ≥ 10× faster |")),
    ],
    ids=["lake", "diff"],
)
def test_a_part_runs_in_fresh_processes(
    tables: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    suite: Suite,
    scale: float,
    section: str,
    line: str,
) -> None:
    words = ["--scale", str(scale), "--repeats", "1", "--tables", str(tables.parent), "--only", section]
    assert run(suite, words) == 0
    assert line in capsys.readouterr().out
    assert sorted(entry.name for entry in tables.iterdir())[-1] == "T3-crc", "what was appended to is gone"


def test_the_lake_of_many_pages_is_whole_for_another_reader_and_made_once(tmp_path: Path) -> None:
    made = pages.make_lake(tmp_path, 0.01)
    cards = Lake(load_settings(home=tmp_path, lake={"roots": [str(made)]})).cards()
    files = pages.FILES * pages.VERSIONS
    assert len(cards) == pages.TABLES // 100 + 1 and {card.num_files for card in cards} == {pages.FILES, files}
    assert DeltaTable(str(made / pages.LONG)).get_add_actions().num_rows == files
    at = (made / pages.LONG).stat().st_mtime_ns
    assert pages.make_lake(tmp_path, 0.01) == made and (made / pages.LONG).stat().st_mtime_ns == at


@pytest.mark.parametrize("name", SUITES)
def test_every_suite_has_a_page_with_figures_of_its_sections(name: str) -> None:
    suite = importlib.import_module(f"bench.{name}").SUITE
    page = (Path(lake.__file__).parent / suite.figures).read_text()
    titles = [(section.__doc__ or "").strip().rstrip(".") for section in suite.sections]
    assert BEGIN in page and END in page and f"make bench SUITE={name}" in page
    assert all(titles) and any(f"| **{title}**" in page for title in titles)


def test_a_task_that_fails_says_why() -> None:
    with pytest.raises(BenchError, match=r"loads failed: (.|\n)*TypeError"):
        fresh(json.loads, wrong=1)


def test_answers_that_differ_are_no_measurement() -> None:
    with pytest.raises(BenchError, match=r"differ \(T3, days, 1, 0\): 3 is not 4"):
        require_equal({"days": [[1], [3]]}, {"days": [[1], [4]]}, "T3")
    require_equal({"days": [[1]]}, {"days": [[1]]}, "T3")


def test_a_line_says_whether_its_target_is_met(tmp_path: Path) -> None:
    slow, fast = Run(0, (Lap(5.0, 10), Lap(3.0, 10), Lap(90.0, 10))), Run(0, (Lap(0.5, 1),))
    assert fast.faster("history", slow, 10) == Line("history", "≥ 10× faster", "500 ms", "5.0 s", "10×", True)
    assert fast.faster("history", slow, 11).markdown.endswith("| **falls short** |")
    page = tmp_path / "README.md"
    page.write_text("before <!-- figures -->\nold\n<!-- /figures --> after")
    write(page, render([("History", [fast.faster("history", slow)])], "By hand."))
    assert "old" not in page.read_text() and "| 500 ms | 5.0 s | 10× |  |" in page.read_text()
    assert page.read_text().startswith("before ") and page.read_text().endswith(" after")
