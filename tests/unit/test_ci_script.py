"""`.ci/run`: what it looks for on a machine."""

import subprocess
from pathlib import Path

SCRIPT = (Path(__file__).parents[2] / ".ci" / "run").read_text()


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
