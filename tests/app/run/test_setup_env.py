"""The set-up refuses in one sentence with the remedy, and takes up what an earlier run left half done."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
NOWHERE = "http://127.0.0.1:9"  # the discard port: nobody listens


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A checkout as the set-up sees it: itself and what it reads."""
    folder = tmp_path / "clone"
    (folder / "app" / "run").mkdir(parents=True)
    shutil.copy(ROOT / "app" / "run" / "setup_env.py", folder / "app" / "run")
    for name in ("Makefile", "pyproject.toml", "requirements.txt", "requirements-dev.txt", "requirements-setup.txt"):
        shutil.copy(ROOT / name, folder)
    return folder


def make(folder: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["make", "--no-print-directory", *words],
        cwd=folder,
        env={**os.environ, "PYTHON": sys.executable, **env},
        capture_output=True,
        text=True,
        timeout=120,
    )


def errors(run: subprocess.CompletedProcess[str]) -> list[str]:
    return [line for line in run.stderr.splitlines() if line.startswith("error:")]


@pytest.mark.parametrize(
    ("variable", "value", "says"),
    [
        ("JAVA_HOME", "java11", "java11/bin/java is Java 11, and the streams need 17 or newer"),
        ("JAVA_HOME", "/nothing", "There is no Java in JAVA_HOME (/nothing)"),
        ("PYTHON", "python3.11-none", "there is no python3.11-none on this machine: install Python 3.11"),
    ],
)
def test_what_is_missing_or_too_old_is_named_before_anything_is_installed(
    clone: Path, variable: str, value: str, says: str
) -> None:
    java = clone / "java11" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n")
    java.chmod(0o755)
    run = make(clone, "run", **{variable: str(clone / value) if value == "java11" else value})
    assert run.returncode != 0
    (error,) = errors(run)
    assert says in error
    assert not (clone / ".venv").exists()


@pytest.mark.ci
def test_without_network_the_first_install_says_so_and_a_half_done_one_starts_over(clone: Path) -> None:
    """A killed installation left a package half unpacked: nothing of it may be trusted."""
    torn = clone / ".venv" / "lib" / "torn.py"
    torn.parent.mkdir(parents=True)
    torn.write_text("half a pack")
    offline = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "PIP_INDEX_URL"), NOWHERE)

    run = make(clone, "run", **offline, PIP_NO_CACHE_DIR="1", PIP_FIND_LINKS="", PIP_CONFIG_FILE=os.devnull)

    assert run.returncode != 0
    assert len(errors(run)) == 1
    assert "could not be downloaded: check the network" in errors(run)[0]
    assert "Traceback" not in run.stderr
    assert not torn.exists()
    assert not (clone / ".venv" / ".weir-ready").exists()  # so the next run starts over as well


@pytest.mark.parametrize("name", ["requirements.txt", "requirements-dev.txt", "requirements-setup.txt"])
def test_every_package_has_the_digests_of_its_files_and_no_registry_is_named(name: str) -> None:
    text = (ROOT / name).read_text()
    packages = text.replace("\\\n", " ").splitlines()
    pinned = [line for line in packages if line and not line.lstrip().startswith("#")]
    assert len(pinned) > 1
    assert [line for line in pinned if not re.fullmatch(r"\S+==\S+( +--hash=sha256:[0-9a-f]{64})+ *", line)] == []
    assert "://" not in text


def test_nothing_is_installed_past_the_digests() -> None:
    """Each `pip install` of a file asks for them, and Weir itself is built with what is there."""
    dockerfile = (ROOT / "Dockerfile").read_text()
    installs = [line for line in dockerfile.splitlines() if "pip install" in line]
    assert len(installs) == 3
    assert all("--require-hashes" in line or "--no-build-isolation -e ." in line for line in installs)
    assert (ROOT / "app" / "run" / "setup_env.py").read_text().count('"--require-hashes"') == 1
