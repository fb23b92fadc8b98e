"""Reading a log keeps its distance to `deltalake`: a slip that no test of answers sees is seen before a release.

Rule: ratios of medians of one run, each measurement in a process of its own; half of what bench/README.md tells is the
least, for a busy machine weighs on both.
"""

import statistics
from collections.abc import Callable
from pathlib import Path

import pytest

from bench import lake_tasks
from bench.harness import Run, fresh
from tests.worlds.lake.large_logs import make_tables, shapes

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1_800)]

SCALE, REPEATS = 0.3, 5  # T1: 300 commits, T2: 3,000
LEAST_HISTORY, LEAST_TIMELINE = 5.0, 100.0


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tables(tmp_path_factory.mktemp("ratios"), SCALE)


def median_s(measure: Callable[[], Run]) -> float:
    return statistics.median(measure().seconds for _ in range(REPEATS))


def test_the_newest_hundred_commits(tables: Path) -> None:
    asked = {"uri": str(tables / "T1"), "limit": 100}
    ours = median_s(lambda: fresh(lake_tasks.our_history, **asked))
    theirs = median_s(lambda: fresh(lake_tasks.their_history, **asked))
    assert theirs / ours >= LEAST_HISTORY, f"{ours * 1_000:.1f} ms, deltalake {theirs * 1_000:.1f} ms"


def test_totals_of_every_version(tables: Path) -> None:
    count = shapes(SCALE)["T2"].commits
    asked = {"uri": str(tables / "T2"), "chosen": list(range(0, count, count // 20))}
    ours = median_s(lambda: fresh(lake_tasks.our_timeline, **asked))
    each = statistics.mean(lap.seconds for lap in fresh(lake_tasks.their_versions, **asked).laps)
    assert count * each / ours >= LEAST_TIMELINE, f"{ours:.2f} s, deltalake {count} × {each:.3f} s"
