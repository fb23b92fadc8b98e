"""Makes `.venv` and the JARs ready: what `make` runs before everything else.

Rule: standard library only, run by the system's Python. A step is done again unless its stamp, written last, names
these very inputs. Whatever goes wrong ends as one sentence with the remedy.
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
READY = VENV / ".weir-ready"  # written last: where and for what everything is installed
LOG = VENV / "setup.log"
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
    """The Java that Spark would start: JAVA_HOME's, else the first on the PATH."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which(str(Path(home, "bin", "java")) if home else "java")
    if java is None:
        place = f"in JAVA_HOME ({home})" if home else "on the PATH"
        raise SetupError(f"There is no Java {place}, and the streams need {OLDEST_JAVA} or newer: {java_remedy()}.")
    version = java_version(java)
    if version is None or version < OLDEST_JAVA:
        have = f"Java {version}" if version else "no Java that starts"
        raise SetupError(f"{java} is {have}, and the streams need {OLDEST_JAVA} or newer: {java_remedy()}.")


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
    place, key = f"{ROOT} {sys.version_info}", fingerprint(*REQUIREMENTS["test"])
    ready = READY.read_text().splitlines() if READY.is_file() and VENV_PYTHON.exists() else []
    if place in ready and f"{purpose} {key}" in ready:
        return
    if place not in ready:  # half done, of another Python, or moved: its scripts point nowhere
        shutil.rmtree(VENV, ignore_errors=True)
        VENV.mkdir(exist_ok=True)
        try:
            step("virtual environment", ["-m", "venv", str(VENV)], python=sys.executable)
        except SetupError as exc:
            if "ensurepip" not in log_text():
                raise
            remedy = "apt-get install python3.11-venv"
            raise SetupError(f"This Python cannot make virtual environments: {remedy}.") from exc
    READY.unlink(missing_ok=True)
    pinned = ["--quiet", "--no-deps", "--require-hashes"]  # a file with another digest than is kept here is refused
    step("uv, the installer", ["-m", "pip", "install", "--retries", "1", *pinned, "-r", SETUP])
    uv_install = ["-m", "uv", "pip", "install", "--python", str(VENV_PYTHON)]
    files = [word for name in REQUIREMENTS[purpose] for word in ("-r", name)]
    step("packages (a minute or two the first time)", [*uv_install, *pinned, *files])
    step("package of Weir", [*uv_install, "--quiet", "--no-deps", "--no-build-isolation", "-e", "."])
    READY.write_text("\n".join([place, *(f"{name} {key}" for name in REQUIREMENTS if purpose in (name, "test"))]))


def resolve_jars(purpose: str) -> None:
    pins = fingerprint("pipelines/jars/ivy.xml", "pipelines/jars/sha256.txt", "pipelines/jars/__init__.py")
    for jars in JAR_SETS[purpose]:
        done = JAR_FOLDER / f".weir-resolved-{jars}"
        if not (done.is_file() and done.read_text() == pins and any(JAR_FOLDER.glob("*.jar"))):
            step("JARs", ["-m", "pipelines.jars", jars])
            done.write_text(pins)
    key, done = fingerprint("requirements.txt", "pipelines/spark/session.py"), JAR_FOLDER / ".weir-classes"
    if not (done.is_file() and done.read_text() == key):
        try:
            step("classes of Spark", ["-m", "pipelines.spark.session"])
            done.write_text(key)
        except SetupError as exc:
            tell(f"{exc} Without them each stream host starts later.")


def fingerprint(*files: str) -> str:
    """Changes with the contents of these files, the place of the clone, Python and uv."""
    digest = hashlib.sha256(f"{ROOT} {sys.version}".encode())
    for name in (*files, SETUP, "pyproject.toml"):
        digest.update(name.encode() + b"\0" + (ROOT / name).read_bytes())
    return digest.hexdigest()


def log_text() -> str:
    return LOG.read_text(errors="replace") if LOG.is_file() else ""


def step(what: str, arguments: list[str], *, python: str = str(VENV_PYTHON)) -> None:
    """Run one Python program with its output in the log; raises `SetupError` with the likely reason."""
    tell(f"{what} …")
    started = time.monotonic()
    env = dict(os.environ)
    if "PIP_INDEX_URL" in env:
        env.setdefault("UV_DEFAULT_INDEX", env["PIP_INDEX_URL"])
    with LOG.open("w") as log:
        run = subprocess.run([python, *arguments], cwd=ROOT, env=env, stdout=log, stderr=subprocess.STDOUT)
    if run.returncode:
        raise SetupError(failure_sentence(what))
    tell(f"{what.partition(' (')[0]} ready after {time.monotonic() - started:.0f} s")


def failure_sentence(what: str) -> str:
    what, log = what.partition(" (")[0], LOG.relative_to(ROOT)
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
