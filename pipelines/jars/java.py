"""Which Java runs Spark, and whether it can.

Rule: a missing or too old Java is reported in one sentence with its remedy, before a JVM is started.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

from backend.errors import LakehouseError

OLDEST_JAVA = 17
_REMEDY = (
    f"install a Java {OLDEST_JAVA} runtime (Debian: apt install openjdk-17-jre-headless) or point JAVA_HOME at one"
)


class JavaError(LakehouseError):
    """Java is missing or of a version that Spark cannot run on."""


def find_java() -> Path:
    """The `java` that Spark will use (`JAVA_HOME`, then `PATH`), at least version 17; raises `JavaError`."""
    java = _java_path()
    version = _major_version(java)
    if version < OLDEST_JAVA:
        raise JavaError(f"Java at {java} is version {version}; Spark needs {OLDEST_JAVA} or newer", hint=_REMEDY)
    return java


def _java_path() -> Path:
    home = os.environ.get("JAVA_HOME")
    if home:
        java = Path(home) / "bin" / "java"
        if not java.is_file():
            raise JavaError(f"JAVA_HOME is {home}, but there is no bin/java in it", hint=_REMEDY)
        return java
    java_on_path = shutil.which("java")
    if java_on_path is None:
        raise JavaError("Java is missing: Spark runs on a JVM", hint=_REMEDY)
    return Path(java_on_path)


def _major_version(java: Path) -> int:
    try:
        output = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=True).stderr
    except (OSError, subprocess.SubprocessError) as exc:
        raise JavaError(f"Java at {java} does not start", hint=_REMEDY) from exc
    match = re.search(r'version "(?:1\.)?(\d+)', output)  # "1.8.0_392" is Java 8, "17.0.15" is Java 17
    if match is None:
        first_line = output.strip().partition("\n")[0]
        raise JavaError(f"Java at {java} does not print its version: {first_line}", hint=_REMEDY)
    return int(match.group(1))
