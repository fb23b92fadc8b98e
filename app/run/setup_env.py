"""Makes `.venv` and the JARs ready: what `make` runs before everything else.

Rule: standard library only and run by the system's Python; a step is done again unless its stamp, written last,
says that it finished with exactly these inputs. Whatever goes wrong ends as one sentence with the remedy.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

PYTHON = (3, 11)
OLDEST_JAVA = 17

ROOT = Path(__file__).resolve().parents[2]
VENV = ROOT / ".venv"
VENV_PYTHON = VENV / "bin" / "python"
HALF_DONE = VENV / ".weir-installing"  # exists only while an installation runs
JAR_FOLDER = ROOT / "pipelines" / "jars" / "lib"
JAR_SETS = {"run": ("host",), "test": ("host", "s3", "jdbc", "broker")}
SETUP = "requirements-setup.txt"
REQUIREMENTS = {"run": ("requirements.txt",), "test": ("requirements.txt", "requirements-dev.txt")}
NO_NETWORK = re.compile(
    r"dns error|name resolution|failed to establish|failed to fetch|connection refused|error sending request|"
    r"timed out|unreachable|no matching distribution|proxyerror|unknownhost|unresolved dep|noroutetohost",
    re.IGNORECASE,
)


class SetupError(Exception):
    """A sentence that says what is wrong and what to do."""


def main(purpose: str) -> None:
    check_python()
    check_java()
    with (ROOT / "pyproject.toml").open() as lock:  # two `make` at once: the second waits and finds the work done
        fcntl.flock(lock, fcntl.LOCK_EX)
        install_packages(purpose)
        resolve_jars(purpose)


def check_python() -> None:
    if sys.version_info[:2] != PYTHON:
        have, want = "{}.{}".format(*sys.version_info), "{}.{}".format(*PYTHON)
        raise SetupError(
            f"Weir runs on Python {want} and this is {have}: install python{want} (Debian: apt-get install "
            f"python{want} python{want}-venv) or name one with `make PYTHON=/path/to/python{want} …`."
        )


def check_java() -> None:
    java = java_command()
    if java is None:
        place = f"in JAVA_HOME ({os.environ['JAVA_HOME']})" if os.environ.get("JAVA_HOME") else "on the PATH"
        raise SetupError(f"There is no Java {place}, and the streams need {OLDEST_JAVA} or newer: {java_remedy()}.")
    version = java_version(java)
    if version is None or version < OLDEST_JAVA:
        have = f"Java {version}" if version else "no Java that starts"
        raise SetupError(f"{java} is {have}, and the streams need {OLDEST_JAVA} or newer: {java_remedy()}.")


def java_command() -> str | None:
    """The Java that Spark would start: JAVA_HOME's, else the first on the PATH."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which(str(Path(home, "bin", "java"))) if home else shutil.which("java")


def java_version(java: str) -> int | None:
    """The feature release (8, 17, 25 …), None when the program does not say."""
    try:
        run = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', run.stderr + run.stdout)
    return int(found[1]) if found else None


def java_remedy() -> str:
    for java in sorted(Path("/usr/lib/jvm").glob(f"*{OLDEST_JAVA}*/bin/java")):
        if java_version(str(java)) == OLDEST_JAVA:
            return f"one is installed here, so run again with JAVA_HOME={java.parent.parent} in front"
    return f"install it (Debian: apt-get install openjdk-{OLDEST_JAVA}-jre-headless) or point JAVA_HOME at it"


def install_packages(purpose: str) -> None:
    wanted = {name: fingerprint(files) for name, files in REQUIREMENTS.items() if purpose in (name, "test")}
    if is_sound() and all(stamp(name).is_file() and stamp(name).read_text() == key for name, key in wanted.items()):
        return
    if HALF_DONE.exists() or not is_sound():
        shutil.rmtree(VENV, ignore_errors=True)
    VENV.mkdir(exist_ok=True)
    HALF_DONE.touch()
    make_venv()
    pinned = ["--quiet", "--no-deps", "--require-hashes"]  # a file with another digest than is kept here is refused
    step("uv, the installer", [str(VENV_PYTHON), "-m", "pip", "install", "--retries", "1", *pinned, "-r", SETUP])
    uv_install = [str(VENV / "bin" / "uv"), "pip", "install", "--python", str(VENV_PYTHON)]
    files = [word for name in REQUIREMENTS[purpose] for word in ("-r", name)]
    step("packages (a minute or two the first time)", [*uv_install, *pinned, *files])
    step("package of Weir", [*uv_install, "--quiet", "--no-deps", "--no-build-isolation", "-e", "."])
    for name, key in wanted.items():
        stamp(name).write_text(key)
    HALF_DONE.unlink()


def make_venv() -> None:
    if is_sound():
        return
    try:
        step("virtual environment", [sys.executable, "-m", "venv", str(VENV)])
    except SetupError as exc:
        if "ensurepip" in str(exc) or "ensurepip" in log_text():
            raise SetupError("This Python cannot make virtual environments: apt-get install python3.11-venv.") from exc
        raise


def is_sound() -> bool:
    """Whether `.venv` holds a Python of the right version with pip."""
    code = f"import pip, sys; sys.exit(sys.version_info[:2] != {PYTHON})"
    try:
        return subprocess.run([str(VENV_PYTHON), "-I", "-c", code], capture_output=True).returncode == 0
    except OSError:
        return False


def resolve_jars(purpose: str) -> None:
    key = fingerprint(("pipelines/jars/ivy.xml", "pipelines/jars/sha256.txt", "pipelines/jars/__init__.py"))
    for jars in JAR_SETS[purpose]:
        done = JAR_FOLDER / f".weir-resolved-{jars}"
        if not (done.is_file() and done.read_text() == key and any(JAR_FOLDER.glob("*.jar"))):
            step("JARs", [str(VENV_PYTHON), "-m", "pipelines.jars", jars])
            done.write_text(key)
    key, done = fingerprint(("requirements.txt", "pipelines/spark/session.py")), JAR_FOLDER / ".weir-classes"
    if not (done.is_file() and done.read_text() == key):
        try:
            step("classes of Spark", [str(VENV_PYTHON), "-m", "pipelines.spark.session"])
            done.write_text(key)
        except SetupError as exc:
            tell(f"{exc} Without them each stream host starts later.")


def fingerprint(files: tuple[str, ...]) -> str:
    """Changes with the files' contents, Python, uv, and the folder (scripts in a moved `.venv` point nowhere)."""
    digest = hashlib.sha256(f"{ROOT} {sys.version}".encode())
    for name in (*files, SETUP, "pyproject.toml"):
        digest.update(name.encode() + b"\0" + (ROOT / name).read_bytes())
    return digest.hexdigest()


def stamp(purpose: str) -> Path:
    return VENV / f".weir-ready-for-{purpose}"


def log_path() -> Path:
    return VENV / "setup.log"


def log_text() -> str:
    return log_path().read_text(errors="replace") if log_path().is_file() else ""


def step(what: str, argv: list[str]) -> None:
    """Run one command with its output in the log; raises `SetupError` with the likely reason."""
    tell(f"{what} …")
    started = time.monotonic()
    env = dict(os.environ)
    if "PIP_INDEX_URL" in env:
        env.setdefault("UV_DEFAULT_INDEX", env["PIP_INDEX_URL"])
    with log_path().open("w") as log:
        returncode = subprocess.run(argv, cwd=ROOT, env=env, stdout=log, stderr=subprocess.STDOUT).returncode
    if returncode:
        raise SetupError(failure_sentence(what))
    tell(f"{what.partition(' (')[0]} ready after {time.monotonic() - started:.0f} s")


def failure_sentence(what: str) -> str:
    what, log = what.partition(" (")[0], log_path().relative_to(ROOT)
    own_words = re.search(r"^error: (.+)\nhint: (.+)\n\Z", log_text(), re.MULTILINE)  # pipelines.jars knows best
    if own_words:
        return f"The {what} are not complete: {own_words[1]}; {own_words[2]}."
    if NO_NETWORK.search(log_text()):
        return (
            f"The {what} could not be downloaded: check the network (behind a proxy set HTTPS_PROXY, for a mirror "
            f"PIP_INDEX_URL) and run the same command again; details in {log}."
        )
    return f"Installing the {what} failed: {log} says why; run the same command again when that is mended."


def tell(line: str) -> None:
    sys.stderr.write(f"setup: {line}\n")


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except SetupError as exc:
        sys.exit(f"error: {exc}")
    except KeyboardInterrupt:
        sys.exit("setup: interrupted; the next run takes it up again")
