"""Around a session: JARs and Java, options of S3, errors, checkpoints; the host's process, its signals and secrets."""

import json
import os
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import cast
from xml.etree import ElementTree

import pyspark
import pytest
from pyspark.sql import SparkSession

from backend.settings import Settings, load_settings
from pipelines.jars import (
    BROKER,
    FOLDERS,
    HERE,
    HOST,
    S3,
    JarError,
    JavaError,
    find_java,
    jar_paths,
    missing_files,
    pinned_files,
    resolve,
)
from pipelines.jvm.failures import describe, describe_traceback
from pipelines.jvm.hadoop import CheckpointFiles
from pipelines.spark.session import CLASS_ARCHIVE, hadoop_options, s3_jars, spark_conf, uses_s3
from pipelines.specs import ends
from pipelines.specs.ends import Inputs

POM = (
    "<project><modelVersion>4.0.0</modelVersion>"
    "<groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></project>"
)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Maven repository on disk that offers what ivy.xml pins."""
    root = tmp_path_factory.mktemp("maven")
    for dependency in ElementTree.parse(HERE / "ivy.xml").getroot().iter("dependency"):
        org, name, rev = (dependency.attrib[key] for key in ("org", "name", "rev"))
        folder = root / org.replace(".", "/") / name / rev
        folder.mkdir(parents=True)
        (folder / f"{name}-{rev}.pom").write_text(POM.format(org, name, rev))
        lib = FOLDERS[dependency.attrib["conf"].partition("->")[0]]
        shutil.copy(lib / f"{name}-{rev}.jar", folder)
    return f"{root.as_uri()}/"


def fake_java(folder: Path, says: str) -> Path:
    """A JAVA_HOME whose java says this about its version."""
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    java.chmod(0o755)
    return folder


@pytest.mark.ci
@pytest.mark.spark
def test_fetches_what_is_pinned_once_and_finishes_what_an_interrupted_run_left(tmp_path: Path, repository: str) -> None:
    lib = tmp_path / "lib"
    assert resolve(lib, repository=repository) is True
    assert sorted(path.name for path in lib.iterdir()) == sorted(pinned_files())
    assert resolve(lib, repository="http://127.0.0.1:9/") is False  # complete: nobody is asked

    first, second, *_ = pinned_files()
    (lib / first).write_bytes((lib / first).read_bytes()[:1_000])  # cut off
    (lib / second).unlink()
    (lib / ".resolve-left-over").mkdir()
    assert missing_files(lib) == (first, second)
    assert resolve(lib, repository=repository) is True
    assert missing_files(lib) == ()


@pytest.mark.ci
@pytest.mark.spark
def test_a_file_with_another_digest_is_refused_by_name_and_never_put_in_place(tmp_path: Path, repository: str) -> None:
    mirror, lib = tmp_path / "mirror", tmp_path / "lib"
    shutil.copytree(repository.removeprefix("file://"), mirror)
    (planted,) = mirror.rglob("delta-storage-4.4.0.jar")
    with zipfile.ZipFile(planted, "a") as jar:  # a whole JAR still
        jar.writestr("Planted.class", b"code")
    with pytest.raises(JarError, match=r"offers another delta-storage-4\.4\.0\.jar than .*sha256\.txt pins"):
        resolve(lib, repository=f"{mirror.as_uri()}/")
    assert list(lib.iterdir()) == []


def test_no_session_gets_a_jar_that_was_exchanged(tmp_path: Path) -> None:
    lib = tmp_path / "lib"
    shutil.copytree(FOLDERS[HOST], lib, ignore=shutil.ignore_patterns("s3", "jdbc", "broker"))
    assert len(jar_paths(lib)) == len(pinned_files())
    with zipfile.ZipFile(lib / "delta-storage-4.4.0.jar", "a") as jar:
        jar.writestr("Planted.class", b"code")
    with pytest.raises(JarError, match=r"not those pinned: delta-storage-4\.4\.0\.jar$"):
        jar_paths(lib)


def test_every_pinned_file_has_a_digest() -> None:
    named = {line.split()[1] for line in (HERE / "sha256.txt").read_text().splitlines() if not line.startswith("#")}
    assert named == {name for jars in FOLDERS for name in pinned_files(jars)}


@pytest.mark.soak
@pytest.mark.spark
def test_the_broker_s_files_have_a_folder_of_their_own(tmp_path: Path, repository: str) -> None:
    assert resolve(tmp_path, BROKER, repository=repository) is True
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(pinned_files(BROKER))
    assert "kafka_2.13-4.1.1.jar" in pinned_files(BROKER)
    assert not set(pinned_files()) & set(pinned_files(BROKER))


def test_what_reads_s3_is_of_pyspark_s_own_hadoop() -> None:
    (own,) = (Path(pyspark.__file__).parent / "jars").glob("hadoop-client-api-*.jar")
    assert own.name.replace("client-api", "aws") in pinned_files(S3)


@pytest.mark.ci
@pytest.mark.spark
def test_no_network_is_one_sentence_and_leaves_nothing_half(tmp_path: Path) -> None:
    with pytest.raises(JarError, match=r"http://127\.0\.0\.1:9/ cannot be reached") as refused:
        resolve(tmp_path, repository="http://127.0.0.1:9/")
    assert "\n" not in refused.value.message
    assert "network" in refused.value.hint
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("jars", "command"), [(HOST, "pipelines.jars"), (BROKER, "pipelines.jars broker")])
def test_missing_jars_name_the_command(tmp_path: Path, jars: str, command: str) -> None:
    with pytest.raises(JarError, match="missing") as refused:
        jar_paths(tmp_path / "none", jars)
    assert refused.value.hint.endswith(f"python -m {command}")


def test_no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(JavaError, match="Java is missing"):
        find_java()


@pytest.mark.parametrize(
    ("says", "complaint"),
    [('openjdk version "1.8.0_392"', "version 8"), ('openjdk version "11.0.2"', "version 11"), ("hello", "hello")],
)
def test_java_that_will_not_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, says: str, complaint: str) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path, says)))
    with pytest.raises(JavaError, match=complaint) as refused:
        find_java()
    assert "Java 17" in refused.value.hint


@pytest.mark.parametrize("says", ['openjdk version "17.0.15" 2025-04-15', 'java version "21" 2023-09-19'])
def test_java_that_will_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, says: str) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path, says)))
    assert find_java() == tmp_path / "bin" / "java"


OPTIONS = {"AWS_ENDPOINT_URL": "http://127.0.0.1:9000", "aws_access_key_id": "me", "secret_access_key": "hidden"}


def settings(tmp_path: Path, options: dict[str, str] | None = None, **conf: str) -> Settings:
    lake = {"tables_uri": "s3://shop/lake", "storage_options": {"s3a://shop": options} if options else {}}
    return load_settings(home=tmp_path, lake=lake, spark={"conf": conf})


def test_one_set_of_credentials_serves_both(tmp_path: Path) -> None:
    assert hadoop_options(settings(tmp_path, OPTIONS), {}) == {
        "fs.s3a.bucket.shop.endpoint": "http://127.0.0.1:9000",
        "fs.s3a.bucket.shop.endpoint.region": "us-east-1",
        "fs.s3a.bucket.shop.path.style.access": "true",
        "fs.s3a.bucket.shop.access.key": "me",
        "fs.s3a.bucket.shop.secret.key": "hidden",
    }


def test_the_environment_fills_in_and_credentials_are_never_mixed(tmp_path: Path) -> None:
    around = {"AWS_ACCESS_KEY_ID": "env", "AWS_SECRET_ACCESS_KEY": "e", "AWS_SESSION_TOKEN": "t", "AWS_REGION": "eu"}
    alone = hadoop_options(settings(tmp_path), around)
    assert {key.removeprefix("fs.s3a.bucket.shop."): value for key, value in alone.items()} == {
        "endpoint.region": "eu",
        "access.key": "env",
        "secret.key": "e",
        "session.token": "t",
    }
    with_options = hadoop_options(settings(tmp_path, OPTIONS), around)
    assert with_options["fs.s3a.bucket.shop.access.key"] == "me"
    assert with_options["fs.s3a.bucket.shop.endpoint.region"] == "eu"
    assert "fs.s3a.bucket.shop.session.token" not in with_options


@pytest.mark.parametrize(
    ("option", "key", "value"),
    [
        ("aws_virtual_hosted_style_request", "path.style.access", "false"),
        ("skip_signature", "aws.credentials.provider", "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider"),
    ],
)
def test_switches(tmp_path: Path, option: str, key: str, value: str) -> None:
    found = hadoop_options(settings(tmp_path, {**OPTIONS, option: "true"}), {})
    assert found[f"fs.s3a.bucket.shop.{key}"] == value


def test_the_role_of_a_kubernetes_account_is_taken_where_no_keys_are_given(tmp_path: Path) -> None:
    around = {"AWS_WEB_IDENTITY_TOKEN_FILE": "/var/run/token", "AWS_ROLE_ARN": "arn:aws:iam::1:role/weir"}
    key = "fs.s3a.bucket.shop.aws.credentials.provider"
    assert hadoop_options(settings(tmp_path), around)[key].endswith(".WebIdentityTokenFileCredentialsProvider")
    assert key not in hadoop_options(settings(tmp_path, OPTIONS), around)
    own = {"spark.hadoop.fs.s3a.aws.credentials.provider": "my.Provider"}
    assert key not in hadoop_options(settings(tmp_path, **own), around)


def test_a_folder_with_a_space_is_one_option_of_the_jvm(tmp_path: Path) -> None:
    options = shlex.split(spark_conf(load_settings(home=tmp_path / "a b"))["spark.driver.extraJavaOptions"])
    assert f"-Dlog4j2.configurationFile=file:{tmp_path}/a b/logs/log4j2.properties" in options


def test_nobody_has_spark_read_the_hosts_environment(tmp_path: Path) -> None:
    own = settings(tmp_path, **{"spark.sql.variable.substitute": "true"})
    assert spark_conf(own)["spark.sql.variable.substitute"] == "false"


def test_no_credential_is_among_sparks_settings(tmp_path: Path) -> None:
    conf = spark_conf(settings(tmp_path, OPTIONS))
    assert not any("hidden" in value for value in conf.values())
    assert "hadoop-aws-" in conf["spark.jars"]
    assert conf["spark.hadoop.fs.s3.impl"].endswith("S3AFileSystem")


def test_a_lake_elsewhere_needs_none_of_it(tmp_path: Path) -> None:
    elsewhere = load_settings(home=tmp_path, lake={"roots": [str(tmp_path), "az://shop"]})
    assert not uses_s3(elsewhere)
    assert hadoop_options(elsewhere, {"AWS_REGION": "eu"}) == {}
    assert "hadoop-aws-" not in spark_conf(elsewhere)["spark.jars"]


def test_jars_that_were_not_fetched_are_missed_only_where_streams_write_to_s3(tmp_path: Path) -> None:
    with pytest.raises(JarError, match="hadoop-aws") as refused:
        s3_jars(settings(tmp_path), tmp_path)
    assert refused.value.hint.endswith("python -m pipelines.jars s3")
    assert s3_jars(settings(tmp_path, **{"spark.jars.packages": "org.apache.hadoop:hadoop-aws:3.5.0"}), tmp_path) == ()
    assert s3_jars(load_settings(home=tmp_path, lake={"roots": ["s3://shop"]}), tmp_path) == ()


@pytest.mark.spark
def test_a_jvm_is_given_the_classes_that_were_read_once(spark: SparkSession) -> None:
    pid = spark._jvm.java.lang.ProcessHandle.current().pid()
    assert str(CLASS_ARCHIVE) in Path(f"/proc/{pid}/maps").read_text(), "make setup writes it"


UDF = """[PYTHON_EXCEPTION] An exception was thrown from the Python worker: Traceback (most recent call last):
  File "worker.py", line 1, in main
    process()
ZeroDivisionError: division by zero
"""
FOREACH_BATCH = """An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):
  File "clientserver.py", line 642, in _call_proxy
    return_value = getattr(self.pool[obj_id], method)(*params)
py4j.protocol.Py4JJavaError: An error occurred while calling o1.execute.
: org.apache.spark.sql.delta.DeltaRuntimeException: [DELTA_MERGE_SOURCE_CACHED] The MERGE operation failed
\tat org.apache.spark.sql.delta.DeltaErrorsBase.merge(DeltaErrors.scala:1629)
"""


def test_the_error_that_a_person_is_told_of_is_the_innermost() -> None:
    """Out of a traceback inside a Java message."""
    assert describe_traceback(UDF) == ("ZeroDivisionError", "division by zero")
    assert describe_traceback(FOREACH_BATCH) == ("DELTA_MERGE_SOURCE_CACHED", "The MERGE operation failed")
    assert describe_traceback("ValueError: just words") is None
    assert describe(KeyError("colour")) == ("KeyError", "'colour'")
    assert describe(ValueError("first\nsecond")) == ("ValueError", "first")


FILES = CheckpointFiles(cast(SparkSession, None))


def test_a_checkpoint_that_was_brought_back_is_not_moved_aside_by_a_second_run(tmp_path: Path) -> None:
    """An undo before any start: there is nothing to set aside, and its own checkpoint comes back."""
    checkpoint, undone, own = (tmp_path / name for name in ("silver", "job-1/checkpoint", "job-2"))
    undone.mkdir(parents=True)
    (undone / "metadata").write_text("{}")
    for _ in range(2):
        FILES.move(str(checkpoint), str(own / "checkpoint"), done=str(own / "moved"))
        FILES.move(str(undone), str(checkpoint), done=str(own / "moved_back"))
        assert (checkpoint / "metadata").exists()
        assert not (own / "checkpoint").exists() and not undone.exists()


def test_a_checkpoint_is_moved_aside_once(tmp_path: Path) -> None:
    checkpoint, own = tmp_path / "silver", tmp_path / "job-1"
    checkpoint.mkdir()
    (checkpoint / "metadata").write_text("old")
    FILES.move(str(checkpoint), str(own / "checkpoint"), done=str(own / "moved"))
    checkpoint.mkdir()  # its next start
    FILES.move(str(checkpoint), str(own / "checkpoint"), done=str(own / "moved"))
    assert checkpoint.exists() and (own / "checkpoint" / "metadata").read_text() == "old"


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A temporary folder in which another user was first, with an umask that hides nothing."""
    shared = tmp_path / "tmp"
    (shared / "weir-no-rows").mkdir(parents=True)
    (shared / "weir-no-rows" / "planted.parquet").write_bytes(b"PAR1")
    monkeypatch.setattr(tempfile, "tempdir", str(shared))
    monkeypatch.setattr(ends, "_empty", [])  # another test of this process may have made one
    before = os.umask(0)
    yield shared
    os.umask(before)


def test_the_folder_without_rows_is_private_and_made_anew(shared: Path, tmp_path: Path) -> None:
    inputs = Inputs(None, load_settings(home=tmp_path), "orders", {}, schemas={})  # type: ignore[arg-type]
    folders = []
    for _ in range(2):
        folder = Path(inputs.folder("landing"))
        folders.append(folder)
        assert folder.parent == shared and list(folder.iterdir()) == []
        status = folder.lstat()
        assert (status.st_uid, stat.S_IMODE(status.st_mode)) == (os.geteuid(), 0o700)
        assert Path(inputs.folder("landing")) == folder, "one for all sources"
        shutil.rmtree(folder)  # as a sweeper does with what is old
    assert folders[0] != folders[1]


# Waits as often as it can, so that nearly every signal comes amid a wait. The pauses let in whoever sets the
# event: beside one that takes the event's lock again at once it may wait for ever.
WAITER = """
import time
from pipelines.stop_signals import stop_signals
stop = stop_signals()
print("ready", flush=True)
while not any(stop.wait(0.0) for _ in range(500)):
    time.sleep(0.0001)
print("stopped")
"""


HUSH = "hushQx7"
START = """
from pathlib import Path
from backend.settings import load_settings
from pipelines.spark.session import open_session
session = open_session(load_settings())
jvm = session.sparkContext._gateway.proc
arguments = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.parent.exists()]
conf = session.sparkContext.getConf()
print(conf.get("spark.hadoop.fs.s3a.secret.key"), conf.get("spark.sql.session.timeZone"))
print("in the JVM's arguments:", b"spark.sql.session.timeZone=UTC" in Path(f"/proc/{jvm.pid}/cmdline").read_bytes())
print("secrets in arguments:", sum(b"hush" + b"Qx7" in each for each in arguments))
session.stop()
"""
REMOVED = """
import os
from pipelines.jvm.failures import SparkLostError
from pipelines.spark.runtime import _spark_errors
from pipelines.spark.session import open_session
from backend.settings import load_settings
session = open_session(load_settings())
rows = session.readStream.format("rate").load()
session._jsc.sc().stop()  # as the scheduler's backend does when the master removes the application
for act in (lambda: session.range(3).collect(), lambda: rows.writeStream.format("noop").start()):
    try:
        with _spark_errors("nothing works"):
            act()
    except SparkLostError as exc:
        print("LOST", exc.message, "|", exc.hint, flush=True)
os._exit(0)
"""

NO_MASTER = """
import os, sys
from pipelines.host.__main__ import main
code = main()
sys.stderr.flush()
os._exit(code)
"""


def run(script: str, home: Path, **settings: str) -> "subprocess.CompletedProcess[str]":
    env = {**os.environ, "WEIR_HOME": str(home), "WEIR_CONFIG": os.devnull, **settings}
    return subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, timeout=280)


@pytest.mark.parametrize("numbers", [(signal.SIGTERM,), (signal.SIGINT, signal.SIGTERM, signal.SIGINT)])
def test_a_signal_amid_a_wait_ends_it(numbers: tuple[signal.Signals, ...]) -> None:
    for _ in range(3):
        waiter = subprocess.Popen([sys.executable, "-c", WAITER], stdout=subprocess.PIPE, text=True)
        try:
            assert waiter.stdout is not None
            assert waiter.stdout.readline() == "ready\n"
            for number in numbers:
                waiter.send_signal(number)
            said, _ = waiter.communicate(timeout=60)
        finally:
            waiter.kill()
        assert (said, waiter.returncode) == ("stopped\n", 0)


@pytest.mark.spark
@pytest.mark.ci
def test_no_secret_is_among_the_arguments_of_a_process(tmp_path: Path) -> None:
    conf = {
        "spark.hadoop.fs.s3a.secret.key": f"{HUSH}-s3",
        "spark.ssl.keyPassword": f"{HUSH}-ssl",
        "spark.weir.jdbc": f"jdbc:postgresql://db/shop?user=weir&password={HUSH}-jdbc",
    }
    ran = run(START, tmp_path, WEIR_SPARK__CONF=json.dumps(conf))
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == [
        f"{HUSH}-s3 UTC",
        "in the JVM's arguments: True",
        "secrets in arguments: 0",
    ]
    assert [file.name for file in (tmp_path / "logs").iterdir() if file.stat().st_mode & 0o077] == []
    assert HUSH not in "".join(file.read_text() for file in (tmp_path / "logs").iterdir())


@pytest.mark.spark
@pytest.mark.soak
def test_whatever_is_asked_of_it_says_that_it_has_ended(tmp_path: Path) -> None:
    told = run(REMOVED, tmp_path)
    lines = [line for line in told.stdout.splitlines() if line.startswith("LOST")]
    assert len(lines) == 2, told.stderr[-2000:]
    assert "the Spark application has ended: its master removed it | logs/spark.log says why" in lines[0]


@pytest.mark.spark
@pytest.mark.soak
def test_a_master_that_never_answers_is_an_error_with_a_hint(tmp_path: Path) -> None:
    conf = '{"spark.driver.host": "127.0.0.1", "spark.deploy.client.registrationTimeout": "1"}'
    told = run(NO_MASTER, tmp_path, WEIR_SPARK__MASTER="spark://127.0.0.1:1", WEIR_SPARK__CONF=conf)
    assert told.returncode == 1
    assert "error: " in told.stderr
    assert "hint: " in told.stderr
    assert "Traceback" not in told.stderr
