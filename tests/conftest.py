"""In which order the suite begins, and its random seed.

Rule: a file runs on one worker, in its own order (`--dist loadfile`): its module's fixtures are made once.
"""

import secrets

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = ["tests.worlds.lake.fixtures", "tests.worlds.programs", "tests.worlds.spark.fixtures"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Browser, Spark and torture first: what has a process of many seconds must not begin last."""
    items.sort(key=_turn)


def _turn(item: pytest.Item) -> int:
    marks = {mark.name for mark in item.iter_markers()}
    is_long = "spark" in marks or item.nodeid.startswith("tests/soak/")
    return 0 if "browser" in marks else 1 if is_long else 2


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
