"""What Spark's JVM needs before it starts: a Java that can run it, and the JARs that Weir adds to pyspark.

The JARs are pinned in ivy.xml and sha256.txt, fetched once with the Ivy that pyspark ships. A set is a configuration
there: `host` for streams, `s3` for streams whose tables or checkpoints lie on S3, `jdbc` for those that read
PostgreSQL, `broker` for the Kafka of tests and of the demo.
Why not `spark.jars.packages`: it resolves at every start, and fails where a local Maven repository is incomplete.
Rule: a set's folder is complete only when every pinned file is there with its digest. The next run finishes a broken
one. A JVM gets no other file: the digests are compared each time, which takes a tenth of a second. A missing or too old
Java is reported in one sentence with its remedy, before a JVM is started.
"""

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import xml.etree.ElementTree as ET
from pathlib import Path

import pyspark

from backend.errors import LakehouseError

OLDEST_JAVA = 17
HERE = Path(__file__).parent
LIB = HERE / "lib"
BROKER_LIB = LIB / "broker"  # apart: what a broker needs must not meet Spark's classes
S3_LIB = LIB / "s3"
JDBC_LIB = LIB / "jdbc"
HOST, S3, JDBC, BROKER = "host", "s3", "jdbc", "broker"
FOLDERS = {HOST: LIB, S3: S3_LIB, JDBC: JDBC_LIB, BROKER: BROKER_LIB}
CENTRAL = "Maven Central"  # Ivy knows where that is
RESOLVE_TIMEOUT_S = 600


class JarError(LakehouseError):
    """The JARs are not there or cannot be fetched."""


def pinned_files(jars: str = HOST) -> tuple[str, ...]:
    """File names that ivy.xml asks for in this set."""
    dependencies = ET.parse(HERE / "ivy.xml").getroot().iter("dependency")
    wanted = (d.attrib for d in dependencies if d.attrib["conf"] == f"{jars}->default")
    return tuple(f"{dependency['name']}-{dependency['rev']}.jar" for dependency in wanted)


def missing_files(lib: Path = LIB, jars: str = HOST) -> tuple[str, ...]:
    """Pinned files that are absent from `lib`, damaged or others."""
    lines = (HERE / "sha256.txt").read_text("utf-8").splitlines()
    digests = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
    missing = []
    for name in pinned_files(jars):
        file = lib / name
        if not file.is_file() or hashlib.sha256(file.read_bytes()).hexdigest() != digests.get(name):
            missing.append(name)
    return tuple(missing)


def jar_paths(lib: Path = LIB, jars: str = HOST) -> tuple[Path, ...]:
    """The JARs of a set, for `spark.jars` or a class path; raises `JarError` naming what is missing."""
    if missing := missing_files(lib, jars):
        command = "python -m pipelines.jars" + ("" if jars == HOST else f" {jars}")
        raise JarError(
            f"JARs are missing, or not those pinned: {', '.join(missing)}", hint=f"fetch them with: {command}"
        )
    return tuple(lib / name for name in pinned_files(jars))


def resolve(lib: Path = LIB, jars: str = HOST, *, repository: str | None = None) -> bool:
    """Fetch the missing files into `lib`, from Maven Central or a mirror's URL. False when nothing was missing.

    Raises `JavaError` or `JarError`.
    """
    if not missing_files(lib, jars):
        return False
    java = find_java()
    lib.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".resolve-", dir=lib) as folder:
        _run_ivy(java, jars, Path(folder), repository)
        for name in pinned_files(jars):
            fetched = Path(folder) / "retrieved" / name
            fetched.replace(lib / name)  # a rename on one disk: no file is ever half there
    return True


def _run_ivy(java: Path, jars: str, folder: Path, repository: str | None) -> None:
    command = [
        str(java),
        f"-Dweir.ivy.cache={folder / 'cache'}",
        f"-Dweir.ivy.resolver={'mirror' if repository else 'central'}",
        f"-Dweir.ivy.mirror={repository or ''}",
        *("-cp", f"{Path(pyspark.__file__).parent / 'jars'}/*", "org.apache.ivy.Main"),
        *("-settings", str(HERE / "ivysettings.xml"), "-ivy", str(HERE / "ivy.xml"), "-confs", jars),
        *("-retrieve", f"{folder}/retrieved/[artifact]-[revision].[ext]"),
    ]
    try:
        ivy = subprocess.run(command, capture_output=True, text=True, timeout=RESOLVE_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as exc:
        raise JarError(
            f"fetching JARs from {repository or CENTRAL} took over {RESOLVE_TIMEOUT_S} s", hint=_HINT
        ) from exc
    wrong = missing_files(folder / "retrieved", jars)
    absent = [name for name in wrong if not (folder / "retrieved" / name).exists()]
    if ivy.returncode != 0 or absent:  # for a dead network, too, Ivy says "module not found"
        names = ", ".join(absent) or "the JARs"
        raise JarError(f"{repository or CENTRAL} cannot be reached or does not offer {names}", hint=_HINT)
    if wrong:
        message = f"{repository or CENTRAL} offers another {', '.join(wrong)} than pipelines/jars/sha256.txt pins"
        raise JarError(message, hint="do not use it: ask who runs that repository, or fetch from another")


_HINT = (
    "check the network and start again; "
    "with a mirror: python -m pipelines.jars --repository URL; with a proxy: JAVA_TOOL_OPTIONS=-Dhttps.proxyHost=…"
)


_REMEDY = (
    f"install a Java {OLDEST_JAVA} runtime (Debian: apt install openjdk-17-jre-headless) or point JAVA_HOME at one"
)


class JavaError(LakehouseError):
    """Java is missing or of a version that Spark cannot run on."""


def find_java() -> Path:
    """The `java` that Spark will use (`JAVA_HOME`, then `PATH`), at least version 17; raises `JavaError`."""
    home, on_path = os.environ.get("JAVA_HOME"), shutil.which("java")
    if not home and on_path is None:
        raise JavaError("Java is missing: Spark runs on a JVM", hint=_REMEDY)
    java = Path(home) / "bin" / "java" if home else Path(on_path or "")
    if not java.is_file():
        raise JavaError(f"JAVA_HOME is {home}, but there is no bin/java in it", hint=_REMEDY)
    try:
        output = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=True).stderr
    except (OSError, subprocess.SubprocessError) as exc:
        raise JavaError(f"Java at {java} does not start", hint=_REMEDY) from exc
    match = re.search(r'version "(?:1\.)?(\d+)', output)  # "1.8.0_392" is Java 8, "17.0.15" is Java 17
    if match is None:
        first_line = output.strip().partition("\n")[0]
        raise JavaError(f"Java at {java} does not print its version: {first_line}", hint=_REMEDY)
    version = int(match.group(1))
    if version < OLDEST_JAVA:
        raise JavaError(f"Java at {java} is version {version}; Spark needs {OLDEST_JAVA} or newer", hint=_REMEDY)
    return java
