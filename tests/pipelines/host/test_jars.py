"""The JARs: fetched once, whole or not at all, and one sentence when that cannot be."""

import shutil
import zipfile
from pathlib import Path
from xml.etree import ElementTree

import pyspark
import pytest

from pipelines.jars import BROKER, FOLDERS, HERE, HOST, S3, JarError, jar_paths, missing_files, pinned_files, resolve
from pipelines.jars.java import JavaError, find_java

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


@pytest.mark.ci
@pytest.mark.spark
def test_the_broker_s_files_have_a_folder_of_their_own(tmp_path: Path, repository: str) -> None:
    assert resolve(tmp_path, BROKER, repository=repository) is True
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(pinned_files(BROKER))
    assert "kafka_2.13-4.1.1.jar" in pinned_files(BROKER)
    assert not set(pinned_files()) & set(pinned_files(BROKER))
    with pytest.raises(JarError, match="missing") as refused:
        jar_paths(tmp_path / "none", BROKER)
    assert refused.value.hint.endswith("python -m pipelines.jars broker")


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


def test_missing_jars_name_the_command(tmp_path: Path) -> None:
    with pytest.raises(JarError, match="delta-storage") as refused:
        jar_paths(tmp_path)
    assert "python -m pipelines.jars" in refused.value.hint


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
