"""`weir` as a person or a script calls it, in this process; and what its commands are asked of."""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from app import services
from app.cli import main
from backend.jobs.model import Job, JobEnd, JobProgress
from backend.settings import Settings, load_settings
from backend.store.leases import stream_resource
from backend.store.store import ControlStore
from backend.stream_model.stream import Observed, StreamDeclaration
from pipelines.host.job_host import JobHost


@dataclass(frozen=True)
class Answer:
    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out, parse_constant=_no_constant)

    @property
    def last_document(self) -> Any:
        """Where a host of this process logs to the same terminal."""
        return json.loads(self.out[self.out.index("\n{") :])


def _no_constant(text: str) -> None:
    raise AssertionError(f"{text} is not JSON")


Weir = Callable[..., Answer]
Copied = Callable[[str, Path], Path]  # a lake or table that is made once, copied to a place


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty WEIR_HOME, and no setting of the person who runs the tests."""
    for name in list(os.environ):
        if name.startswith("WEIR_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("WEIR_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    services.forget()
    yield tmp_path
    services.forget()


@pytest.fixture
def weir(home: Path, capsys: pytest.CaptureFixture[str]) -> Weir:
    def run(*args: str) -> Answer:
        services.forget()
        capsys.readouterr()
        with pytest.raises(SystemExit) as left:
            main(args)
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        return Answer(int(left.value.code or 0), out, err)

    return run


def declaration(name: str) -> StreamDeclaration:
    return StreamDeclaration(name, f"{name} of a test", "files", f"/lake/{name}", name, (), "bronze", 5_000, "/cp")


def observe(store: ControlStore, seen: Observed) -> None:
    """Written under a lease, as its host does."""
    lease = store.acquire(stream_resource(seen.name), seen.host_id, ttl_s=60)
    assert lease is not None
    store.observe(seen, token=lease.token)


@dataclass
class Answering:
    """A host's runner without Spark: each job ends at once, as `ends` says."""

    ends: Callable[[Job], JobEnd]
    asked: list[Job] = field(default_factory=list)
    settings: Settings = field(default_factory=load_settings)

    def run(self, job: Job) -> JobEnd:
        self.asked.append(job)
        return self.ends(job)

    def stops_short(self, job_id: str) -> bool:
        return False

    def cancel(self, job_id: str) -> None:
        pass

    def progress(self, job_id: str) -> JobProgress:
        return JobProgress()

    def result_uri(self, job: Job) -> str:
        return f"/results/{job.job_id}"

    def forget(self, result_uri: str) -> None:
        pass


@contextmanager
def answering(store: ControlStore, ends: Callable[[Job], JobEnd]) -> Iterator[Answering]:
    """A host that answers."""
    runner = Answering(ends)
    host = JobHost(load_settings(), store, runner, "host-a", poll_s=0.02)
    host.start()
    try:
        yield runner
    finally:
        host.stop(10)
