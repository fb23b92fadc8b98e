"""The measurements still run, on small tables: what they compare is equal, and a difference ends them."""

import json
from pathlib import Path

import pytest
from deltalake import DeltaTable

from backend.lake.lake import Lake
from backend.settings import load_settings
from bench import ours, peer
from bench.harness import (
    BenchError,
    Lap,
    Line,
    Run,
    Watch,
    faster,
    fresh,
    render,
    require_equal,
    run_suite,
    write,
)
from bench.lake import SUITE
from bench.tables import make_tables, next_commits, shapes

SCALE = 0.001


@pytest.fixture(scope="module")
def tables(tmp_path_factory) -> Path:
    return make_tables(tmp_path_factory.mktemp("bench"), SCALE)


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("WEIR_HOME", str(tmp_path))


@pytest.mark.parametrize("name", ["T1", "T2", "T3"])
def test_what_is_measured_is_equal(tables, name):
    uri, watch = str(tables / name), Watch()
    newest = peer.history(watch, uri=uri, limit=100)
    assert len(newest) == min(100, shapes(SCALE)[name].commits)
    assert ours.history(watch, uri=uri, limit=100) == newest == ours.warm_history(watch, uri=uri, limit=100)
    found = peer.distribution(watch, uri=uri)
    assert ours.distribution(watch, uri=f"{uri}-crc") == found == ours.distribution(watch, uri=uri)
    assert ours.checksum_histogram(watch, uri=f"{uri}-crc") == {k: found[k] for k in ("files", "buckets")}
    assert len(watch.laps) == 11 and min(lap.seconds for lap in watch.laps) > 0


def test_the_tables_hold_what_they_should(tables):
    for name, shape in shapes(SCALE).items():
        lake = Lake(load_settings(lake={"roots": [str(tables)]}))
        snapshot = lake.snapshot(lake.find(f"{name}-crc"))
        removed = shape.commits // 10 * 10
        assert snapshot.num_files == shape.base_files + 11 * shape.commits - removed
        assert snapshot.findings == (), "the checksum agrees with the log"
    assert DeltaTable(str(tables / "T2")).get_add_actions().num_rows == 10 * 250


def test_a_part_runs_in_fresh_processes(tables, capsys):
    words = ["--scale", str(SCALE), "--repeats", "1", "--tables", str(tables.parent), "--only", "refresh"]
    assert run_suite(SUITE, words) == 0
    assert "| refresh after one commit, T3 / T1 | ≤ 1.5 |" in capsys.readouterr().out
    assert sorted(entry.name for entry in tables.iterdir())[-1] == "T3-crc", "what was appended to is gone"


def test_a_task_that_fails_says_why():
    with pytest.raises(BenchError, match=r"loads failed: (.|\n)*TypeError"):
        fresh(json.loads, wrong=1)


def test_answers_that_differ_are_no_measurement():
    with pytest.raises(BenchError, match=r"differ \(T3, days, 1, 0\): 3 is not 4"):
        require_equal({"days": [[1], [3]]}, {"days": [[1], [4]]}, "T3")
    require_equal({"days": [[1]]}, {"days": [[1]]}, "T3")


def test_a_line_says_whether_its_target_is_met(tmp_path):
    slow, fast = Run(0, (Lap(5.0, 10), Lap(3.0, 10), Lap(90.0, 10))), Run(0, (Lap(0.5, 1),))
    assert faster("history", fast, slow, 10) == Line("history", "≥ 10× faster", "500 ms", "5.0 s", "10×", True)
    assert faster("history", fast, slow, 11).markdown.endswith("| **falls short** |")
    page = tmp_path / "README.md"
    page.write_text("before <!-- figures -->\nold\n<!-- /figures --> after")
    write(page, render([("History", [faster("history", fast, slow)])], "By hand."))
    assert "old" not in page.read_text() and "| 500 ms | 5.0 s | 10× |  |" in page.read_text()
    assert page.read_text().startswith("before ") and page.read_text().endswith(" after")


def test_new_commits_are_the_same_each_time():
    shape = shapes(SCALE)["T1"]
    assert next_commits(shape, 2) == next_commits(shape, 2)
    assert list(next_commits(shape, 2)) == [str(shape.latest + 1), str(shape.latest + 2)]
