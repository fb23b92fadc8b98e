"""How the suite is shared out over workers: whole files, and together what uses one dear thing; its random seed; and
until when long tests begin.

Rule: a unit runs on one worker, in the order of its files. Units with a process of many seconds begin first.
"""

import os
import secrets
import time

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

# What is started once for several files, and only by one worker. A Spark session is each worker's own.
TOGETHER = {
    "comparisons": ("tests/spark/test_diff_", "tests/spark/test_reader_agreement.py"),
    "browser": ("tests/browser/",),
    "s3": ("tests/lake/test_s3_", "tests/lake/test_object_store.py", "tests/lake/test_catalog_requests.py"),
}
# These files are of a folder above and do not use what it shares.
ALONE = (
    "tests/browser/test_behind_proxy.py",
    "tests/browser/test_dashboard.py",
    "tests/browser/test_door.py",
    "tests/browser/test_export.py",
    "tests/browser/test_find.py",
    "tests/browser/test_first_bad_version.py",
    "tests/browser/test_keyboard.py",
    "tests/browser/test_lists.py",
    "tests/browser/test_pipeline.py",
    "tests/browser/test_query.py",
    "tests/browser/test_rewind.py",
    "tests/browser/test_live_charts.py",
)
FIRST = ("tests/browser/", "tests/spark/", *TOGETHER["s3"])
# The demo's streams run when it has started; the tests that need them at rest come after these.
EARLY = "tests/browser/test_streams.py"
# Seconds since 1970, after which no test marked `long` begins: CI has an end, whatever the machine is worth that day.
LONG_UNTIL = float(os.environ.get("WEIR_TEST_LONG_UNTIL", "inf"))


def unit(nodeid: str) -> str:
    """The unit that a test belongs to."""
    file = nodeid.partition("::")[0]
    if file not in ALONE:
        for name, starts in TOGETHER.items():
            if file.startswith(starts):
                return name
    return file


class WholeUnits(LoadScopeScheduling):
    """Hands out units in the order in which they were collected."""

    def _split_scope(self, nodeid: str) -> str:
        return unit(nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> WholeUnits:
    config.option.loadscopereorder = False  # else the unit of most tests begins, which is not the longest
    return WholeUnits(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=_turn)


def _turn(item: pytest.Item) -> tuple[int, bool]:
    """Folders that begin first, then the others as they were collected."""
    folder = next((number for number, start in enumerate(FIRST) if item.nodeid.startswith(start)), len(FIRST))
    return folder, not item.nodeid.startswith(EARLY)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("long") and time.time() > LONG_UNTIL:
        pytest.skip("no time is left for long tests")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """One seed for every drawn example, which the workers get with the other options; and no example is too slow for a
    machine that does something else as well."""
    settings.register_profile(
        "any machine", settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )
    settings.load_profile("any machine")
    if config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = str(secrets.randbits(32))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if settings.default.derandomize:  # hypothesis's own profile for CI
        terminalreporter.write_line("random examples: drawn from each test's own code, the same in every run")
    else:
        terminalreporter.write_line(
            f"random examples: repeat them with --hypothesis-seed={config.option.hypothesis_seed}"
        )
