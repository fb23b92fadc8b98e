"""pytest, and once more for what failed, alone and in one process: `python -m tests.second_try ARGUMENTS OF PYTEST`.

Rule: only a whole run whose tests failed gets a second try. A run that was interrupted, could not collect, or never
began has failed, and so has a test that is skipped the second time. What passes then is named under `FLAKY`.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest


@dataclass(slots=True, eq=False)  # pluggy keeps plugins in sets
class SecondTry:
    """A pytest plugin: tells what passed this time, just above pytest's closing line."""

    failed_before: frozenset[str]
    passed: set[str] = field(default_factory=set)
    not_passed: set[str] = field(default_factory=set)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.passed:
            self.not_passed.add(report.nodeid)
        elif report.when == "call":
            self.passed.add(report.nodeid)

    @property
    def flaky(self) -> set[str]:
        return self.passed - self.not_passed

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.flaky:
            terminalreporter.section("FLAKY", sep="=", bold=True)
            terminalreporter.write_line("failed in the whole run, passed alone: mend them before the next commit")
            for test in sorted(self.flaky):
                terminalreporter.write_line(f"FLAKY {test}")

    def exit_code(self, second_run: int) -> int:
        if second_run == pytest.ExitCode.OK and self.flaky != self.failed_before:
            return pytest.ExitCode.TESTS_FAILED
        return second_run


def main(arguments: Sequence[str]) -> int:
    """The exit code: pytest's of the first run, or of the second where the first one ended with failed tests."""
    with tempfile.TemporaryDirectory(prefix="weir-second-try-") as folder:
        # A cache of this run alone: the checkout's remembers what failed in other runs.
        # The last --maxfail counts: a run that stops at its first failure says nothing of the tests after it.
        whole = [*arguments, "-o", f"cache_dir={folder}", "--maxfail=0"]
        first_run = subprocess.run([sys.executable, "-m", "pytest", *whole]).returncode
        failed = failed_tests(Path(folder))
        if first_run != pytest.ExitCode.TESTS_FAILED or not failed:
            return first_run
        print(f"\n{len(failed)} failed: once more, alone, in one process", flush=True)  # noqa: T201
        second_try = SecondTry(failed)
        second_run = pytest.main([*whole, "--lf", "--lfnf=none", "-n", "0"], plugins=[second_try])
        return int(second_try.exit_code(second_run))


def failed_tests(cache: Path) -> frozenset[str]:
    """The node ids that pytest keeps as the last failed."""
    last_failed = cache / "v" / "cache" / "lastfailed"
    return frozenset(json.loads(last_failed.read_text()) if last_failed.is_file() else ())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
