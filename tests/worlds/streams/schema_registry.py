"""A real schema registry for tests (Apicurio, by Confluent's API): one process, in memory, on a port of its own.

It is fetched once from Maven Central into a folder that the caller keeps.
"""

import hashlib
import json
import subprocess
import tarfile
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

from pipelines.jars import find_java
from tests.worlds.processes import end, free_port, kill_hard, wait_until

VERSION = "3.0.9"
ARCHIVE = f"https://repo1.maven.org/maven2/io/apicurio/apicurio-registry-app/{VERSION}/apicurio-registry-app-{VERSION}-all.tar.gz"
SHA256 = "2b28181501a20cbf6efcd77f9b7153908fc01f3d3a7c32024c0bd9e1b04c8a43"


@dataclass
class SchemaRegistry:
    """`kill` is kill -9, and forgets all schemas; the next ones get the same numbers."""

    folder: Path
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/apis/ccompat/v7"

    def start(self) -> "SchemaRegistry":
        program = _fetched(self.folder) / f"apicurio-registry-app-{VERSION}-runner.jar"
        options = ["-Xmx300m", "-XX:TieredStopAtLevel=1", "-Dquarkus.http.host=127.0.0.1"]
        command = [str(find_java()), *options, f"-Dquarkus.http.port={self.port}", "-jar", str(program)]
        with (self.folder / "registry.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder)
        wait_until(self._answers, "the schema registry answers")
        return self

    def kill(self) -> None:
        kill_hard(self.process)

    def close(self) -> None:
        end(self.process)

    def register(self, subject: str, schema: str) -> int:
        """The schema's id."""
        body = json.dumps({"schema": schema}).encode()
        request = urllib.request.Request(f"{self.url}/subjects/{subject}/versions", data=body, method="POST")
        request.add_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        with urllib.request.urlopen(request, timeout=30) as answer:
            return int(json.loads(answer.read())["id"])

    def _answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, (self.folder / "registry.log").read_text()[-2_000:]
        try:
            with urllib.request.urlopen(f"{self.url}/subjects", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


def _fetched(folder: Path) -> Path:
    program = folder / "program"
    if not program.exists():
        archive, unpacked = folder / "archive.tar.gz", folder / "unpacked"
        urllib.request.urlretrieve(ARCHIVE, archive)
        assert hashlib.sha256(archive.read_bytes()).hexdigest() == SHA256
        with tarfile.open(archive) as opened:
            opened.extractall(unpacked, filter="data")
        unpacked.rename(program)
        archive.unlink()
    return program
