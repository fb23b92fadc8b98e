"""`.ci/run`: what it looks for on a machine, and the second try that it gives to tests that failed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SCRIPT = (ROOT / ".ci" / "run").read_text()


def postgres_bin(installed: Path) -> str:
    """What the script's function finds below a folder of this machine's."""
    (line,) = [each for each in SCRIPT.splitlines() if each.startswith("postgres_bin()")]
    code = f"{line.replace('/usr/lib/postgresql', str(installed))}\npostgres_bin"
    return subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=True, timeout=30).stdout.strip()


def test_a_postgresql_is_the_newest_that_can_make_a_database(tmp_path: Path) -> None:
    for program in ("9.6/bin/initdb", "15/bin/initdb", "17/bin/psql"):
        (tmp_path / program).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / program).touch()
    assert postgres_bin(tmp_path) == str(tmp_path / "15" / "bin")
    assert postgres_bin(tmp_path / "17") == "" == postgres_bin(tmp_path / "none")


# Each test leaves a mark when it runs first; on the second run it finds the mark of the first.
LIVED = """
from pathlib import Path
import pytest

mark = Path(__file__).with_suffix(".lived")

@pytest.fixture
def lived():
    before = mark.exists()
    mark.touch()
    return before
"""
TESTS = {
    "passes": "def test_passes(): pass",
    "fails": "def test_fails(): assert False",
    "flaky": f"{LIVED}\ndef test_flaky(lived): assert lived",
    "skipped": f"{LIVED}\ndef test_skipped(lived): pytest.skip('not here') if lived else pytest.fail('first')",
    "errs": f"{LIVED}\n@pytest.fixture\ndef torn(lived):\n    yield\n    assert lived\ndef test_errs(torn): pass",
    "broken": "import nothing_of_this_name",
    "interrupts": "def test_interrupts(): raise KeyboardInterrupt",
}


def second_try(folder: Path, *names: str, workers: str = "-n0") -> tuple[int, list[str], str]:
    """The exit code, the tests under FLAKY, and the last line of a run over these tests, in folders of their own as in
    the suite: pytest then tells plugins apart for each."""
    for name in names:
        (folder / name).mkdir()
        (folder / name / "conftest.py").touch()
        (folder / name / f"test_{name}.py").write_text(TESTS[name])
    own = f"--basetemp={folder.with_name(f'{folder.name}-own')}"  # else it would tidy up after other runs
    words = ["-q", "-ra", "-p", "xdist", *workers.split(), "-x", own]
    argv = [sys.executable, "-m", "tests.second_try", str(folder), *words]
    env = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # they take longer than the tests
    run = subprocess.run(argv, cwd=ROOT, env=env, capture_output=True, text=True, timeout=300)
    lines = run.stdout.splitlines()
    flaky = [line.rpartition("::")[2] for line in lines if line.startswith("FLAKY ")]
    return run.returncode, flaky, lines[-1]


def test_what_passes_alone_is_flaky_and_does_not_fail_the_run(tmp_path: Path) -> None:
    code, flaky, last_line = second_try(tmp_path, "errs", "flaky", "passes", workers="-n1 --dist=loadfile")
    assert (code, flaky) == (pytest.ExitCode.OK, ["test_errs", "test_flaky"])
    assert last_line.startswith("2 passed"), "the last word is pytest's"


@pytest.mark.parametrize(
    ("names", "code", "flaky"),
    [
        (("passes",), pytest.ExitCode.OK, []),
        (("fails", "flaky", "passes"), pytest.ExitCode.TESTS_FAILED, ["test_flaky"]),
        (("passes", "skipped"), pytest.ExitCode.TESTS_FAILED, []),
        (("broken", "flaky"), pytest.ExitCode.INTERRUPTED, []),
        (("flaky", "interrupts"), pytest.ExitCode.INTERRUPTED, []),
    ],
)
def test_the_run_is_green_only_when_every_test_passed(
    tmp_path: Path, names: tuple[str, ...], code: int, flaky: list[str]
) -> None:
    assert second_try(tmp_path, *names)[:2] == (code, flaky)
