"""How the suite is shared out over workers: whole files, and together what uses one dear thing; and its random seed.

Rule: a unit runs on one worker, in the order of its files. Units with a process of many seconds begin first.
"""

import secrets

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

# What is started once and shared: a Spark session, a whole Weir with a browser, an S3 server. Longest first.
# Two Spark sessions, since each waits more than it computes.
TOGETHER = {
    "comparisons": ("tests/spark/test_diff_", "tests/spark/test_reader_agreement.py"),
    "streams": ("tests/spark/",),
    "browser": ("tests/browser/",),
    "s3": ("tests/lake/test_s3_", "tests/lake/test_object_store.py", "tests/lake/test_catalog_requests.py"),
}
# These files are of a folder above and do not use what it shares.
ALONE = (
    "tests/spark/test_act_kills.py",
    "tests/spark/test_attach.py",
    "tests/spark/test_bring_your_own.py",
    "tests/spark/test_declaring.py",
    "tests/spark/test_files_on_s3.py",
    "tests/spark/test_host_faults.py",
    "tests/spark/test_jars.py",
    "tests/spark/test_export_kill.py",
    "tests/spark/test_sample_project.py",
    "tests/browser/test_behind_proxy.py",
    "tests/browser/test_door.py",
    "tests/browser/test_export.py",
    "tests/browser/test_find.py",
    "tests/browser/test_first_bad_version.py",
    "tests/browser/test_keyboard.py",
    "tests/browser/test_lists.py",
    "tests/browser/test_pipeline.py",
    "tests/browser/test_rewind.py",
    "tests/browser/test_live_charts.py",
)
FIRST = ("comparisons", "streams", "browser", "s3")
# The demo's streams run when it has started; the tests that need them at rest come after these.
EARLY = "tests/browser/test_streams.py"


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
    """Units that begin first, then the others as they were collected."""
    name = unit(item.nodeid)
    return FIRST.index(name) if name in FIRST else len(FIRST), not item.nodeid.startswith(EARLY)


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
