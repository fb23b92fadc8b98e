"""The measurements of the diff still run, on a small table: what they compare is equal."""

from pathlib import Path

import pytest

from backend.lake.lake import Lake
from backend.settings import load_settings
from bench import diff_ours as ours
from bench import diff_peer as peer
from bench.diff import SUITE
from bench.diff_table import make_table
from bench.harness import Watch, run_suite

SCALE = 0.0002


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_table(tmp_path_factory.mktemp("bench"), SCALE)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEIR_HOME", str(tmp_path))


@pytest.mark.parametrize(("first", "second"), [(0, 4), (5, 6)])
def test_what_is_measured_is_equal(table: Path, first: int, second: int) -> None:
    watch, pair = Watch(), {"uri": str(table), "first": first, "second": second}
    found = ours.our_diff(watch, **pair)
    assert found == peer.their_diff(watch, **pair, page=ours.PAGE_ROWS)
    assert found["rows"] == peer.their_counts(watch, **pair)
    expected = {(0, 4): [30, 30, 10, 960], (5, 6): [0, 2, 0, 1018]}[first, second]
    assert list(found["rows"].values()) == expected
    assert found["changed_cells"] == {"state": expected[1], "amount": expected[1]}
    assert len(found["page"]) == sum(expected[:3])


def test_the_feed_is_counted_as_its_reader_does(table: Path) -> None:
    watch, pair = Watch(), {"uri": str(table), "first": 6, "second": 7}
    found = ours.our_feed(watch, **pair)
    assert found == peer.their_feed(watch, **pair) == {"update_postimage": 1020, "update_preimage": 1020}


def test_a_compaction_changes_files_alone(table: Path) -> None:
    lake = Lake(load_settings(lake={"roots": [str(table.parent)]}))
    ref = lake.find("orders")
    files = [lake.snapshot(ref, version).num_files for version in (0, 4, 5, 6)]
    assert files == [50, 52, 25, 25]
    same = ours.our_diff(Watch(), uri=str(table), first=4, second=5)
    assert same["rows"] == {"inserted": 0, "updated": 0, "deleted": 0, "unchanged": 1020}


def test_a_part_runs_in_fresh_processes(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--scale", str(SCALE), "--repeats", "1", "--tables", str(table.parents[1]), "--only", "feed"]
    assert run_suite(SUITE, words) == 0
    assert "| change feed by type, 2,040 changes | ≥ 10× faster |" in capsys.readouterr().out
