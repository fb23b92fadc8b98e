"""A Spark application of someone else shows its queries here by one line, and notices nothing of it.

Within one application: a store that cannot be attached to, and an attachment that is closed.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path

import pyarrow as pa
import pytest
import sqlalchemy as sa
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from backend.lake.lake import Lake
from backend.settings import Settings, load_settings
from backend.store.store import ControlStore
from backend.stream_model.stream import Progress, StreamState
from backend.streams.backlog import BacklogReader
from backend.streams.status import statuses
from backend.streams.verdict import StreamStatus, Verdict
from pipelines.jars import jar_paths
from tests.worlds.processes import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

ATTACH = Path(__file__).parents[3] / "attach"
APPLICATION = Path(__file__).parents[2] / "worlds" / "spark" / "application.py"
OLDER = "pyspark==3.5.8"
Seen = Callable[[StreamStatus], bool]
FILES, ROWS = 12, 10  # of the Delta table that is read


@dataclass(slots=True)
class Application:
    """One in a process of its own, and Weir beside it."""

    home: Path
    settings: Settings
    store: ControlStore
    python: str = sys.executable
    jars: str = ""
    process: "subprocess.Popen[bytes] | None" = None
    _backlogs: BacklogReader = field(init=False)

    def __post_init__(self) -> None:
        self._backlogs = BacklogReader(self.settings, Lake(self.settings), keep_s=0)

    def start(self, *, path: Path | None = ATTACH) -> None:
        command = [
            self.python,
            str(APPLICATION),
            str(self.home),
            self.settings.store_url,
            *([self.jars] * bool(self.jars)),
        ]
        env = {**os.environ, "PYTHONPATH": str(path) if path else ""}
        with (self.home / "log").open("wb") as log:
            self.process = subprocess.Popen(command, env=env, stdout=log, stderr=log, start_new_session=True)
        wait_until(lambda: (self.home / "ready").exists(), "the application runs")

    def see(self, name: str) -> StreamStatus | None:
        self.store.take_in(self.settings.roots)
        found = statuses(self.store, self._backlogs, now=datetime.now(UTC), heartbeat_stale_s=15)
        return next((each for each in found if each.declaration.name == f"shop etl.{name}"), None)

    def until(self, name: str, seen: Seen, what: str) -> StreamStatus:
        wait_until(lambda: (status := self.see(name)) is not None and seen(status), what)
        status = self.see(name)
        assert status is not None
        return status

    def batches(self, name: str) -> list[Progress]:
        self.store.take_in(self.settings.roots)
        return self.store.progress(f"shop etl.{name}")

    def end(self) -> None:
        assert self.process is not None
        (self.home / "stop").touch()
        assert self.process.wait(60) == 0

    def kill(self) -> None:
        if self.process and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(30)


def land(home: Path, name: str, *ids: int) -> None:
    (home / "landing").mkdir(exist_ok=True)
    text = "".join(json.dumps({"id": each, "amount": 1.5}) + "\n" for each in ids)
    hidden = home / "landing" / f".{name}"
    hidden.write_text(text)
    hidden.rename(home / "landing" / name)


@pytest.fixture
def application(tmp_path: Path) -> Iterator[Application]:
    settings = load_settings(home=tmp_path, lake={"roots": [str(tmp_path / "lake")]})
    table = pa.table({"id": pa.array(range(ROWS), pa.int64()), "amount": [1.5] * ROWS})
    for _ in range(FILES):
        write_deltalake(tmp_path / "lake" / "bronze" / "orders", table, mode="append")
    land(tmp_path, "first.json", 1, 2)
    opened = Application(tmp_path, settings, ControlStore.open(settings))
    yield opened
    opened.kill()
    opened.store.close()


@pytest.mark.soak
def test_its_queries_are_seen_with_progress_backlog_and_verdict(application: Application) -> None:
    application.jars = ",".join(map(str, jar_paths()))
    application.start()

    # One file of ten rows in each batch: what waits is the table's rows without those of its batches.
    halfway = application.until("table", lambda s: len(application.batches("table")) >= 2, "two batches")
    read = sum(batch.num_input_rows for batch in application.batches("table"))
    again = application.see("table")
    assert halfway.backlog is not None and again is not None and again.backlog is not None
    assert again.backlog.rows in (FILES * ROWS - read, FILES * ROWS - read - ROWS)
    assert again.verdict is Verdict.CATCHING_UP
    assert (again.declaration.source_tables, again.declaration.sink_table) == (("bronze/orders",), "silver/orders")
    assert again.declaration.trigger_interval_ms == 5_000

    (unnamed,) = application.store.declarations().keys() - {f"shop etl.{name}" for name in ("files", "table", "broken")}
    assert application.store.declarations()[unnamed].source == "made-up rows"

    land(application.home, "second.json", 13)
    broken = application.until("broken", lambda s: s.state is StreamState.FAILED, "the row that fails it")
    failure = broken.observed.last_failure if broken.observed else None
    assert failure is not None
    assert (failure.error_class, failure.message) == ("USER_RAISED_EXCEPTION", "[USER_RAISED_EXCEPTION] thirteen")

    _the_store_is_away(application)
    application.end()
    for name in ("files", "table"):
        assert application.until(name, lambda s: s.state is StreamState.STOPPED, "it says that it ends")
    told = application.batches("table")
    assert sum(batch.num_input_rows for batch in told) == _rows_after(application, told[-1].batch_id)


def _rows_after(application: Application, batch_id: int) -> int:
    """Rows of the sink once that batch was written: the application's end may cut one that is written but not told."""
    sink = DeltaTable(application.home / "lake" / "silver" / "orders")
    epochs = {commit["operationParameters"]["epochId"]: commit["version"] for commit in sink.history()}
    sink.load_as_version(epochs[str(batch_id)])
    return sink.to_pyarrow_dataset().count_rows()


def _the_store_is_away(application: Application) -> None:
    """Locked, as a database in trouble is: batches go on meanwhile, and are all told afterwards."""
    engine = sa.create_engine(application.settings.store_url)
    commits = application.home / "checkpoints" / "copied" / "commits"
    with engine.connect() as connection:
        connection.exec_driver_sql("BEGIN EXCLUSIVE")
        before = len(list(commits.glob("[0-9]*")))
        for number in range(3):
            land(application.home, f"away-{number}.json", 100 + number)
            wait_until(lambda n=before + number: len(list(commits.glob("[0-9]*"))) > n, "its batch")
        connection.exec_driver_sql("ROLLBACK")
    engine.dispose()
    application.until("files", lambda s: len(_ids(application, "files")) >= before + 3, "what waited is told")
    ids = _ids(application, "files")
    assert ids == list(range(ids[-1] + 1))


def _ids(application: Application, name: str) -> list[int]:
    return [batch.batch_id for batch in application.batches(name)]


@pytest.mark.soak
def test_on_an_older_spark_it_needs_pyspark_and_sqlalchemy_alone(application: Application, tmp_path: Path) -> None:
    source, own = tmp_path / "package", tmp_path / "venv"
    shutil.copytree(ATTACH, source)
    uv = str(Path(sys.executable).with_name("uv"))
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, str(own)], check=True)
    application.python = str(own / "bin" / "python")
    install = [uv, "pip", "install", "--quiet", "--python", application.python, OLDER, str(source)]
    subprocess.run(install, check=True, timeout=300)
    application.start(path=None)

    seen = application.until("files", lambda s: s.progress is not None, "its first batch")
    assert seen.progress is not None and seen.progress.num_input_rows == 2
    assert application.store.apps()[seen.observed.host_id if seen.observed else ""].host.spark_version == "3.5.8"
    assert seen.declaration.trigger_interval_ms == 1_000

    land(application.home, "second.json", 13)
    broken = application.until("broken", lambda s: s.state is StreamState.FAILED, "the row that fails it")
    assert broken.observed is not None and broken.observed.last_failure is not None
    assert "thirteen" in broken.observed.last_failure.message

    application.kill()
    silent = application.until("files", lambda s: s.state is StreamState.UNKNOWN, "nobody hears it any more")
    assert "its application has been silent" in silent.because


def test_no_word_of_an_address_that_cannot_be_read_is_logged(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.syspath_prepend(ATTACH)
    for store in ("postgresql://orders:pa@ss:s3cret@db/weir", "orders:s3cret"):
        assert import_module("weir_attach").attach(spark, store) is None
    assert "not attached to Weir: the store's URL cannot be read" in caplog.text
    assert "s3cret" not in caplog.text


@pytest.mark.ci
def test_after_close_nothing_is_reported_and_a_new_attachment_begins(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.syspath_prepend(ATTACH)
    attach = import_module("weir_attach").attach
    url = f"sqlite:///{tmp_path}/weir.db"
    ControlStore(url).close()
    before = spark._jsparkSession.streams().listListeners()
    first = attach(spark, url, "first")
    assert attach(spark, url) is first
    first.close()
    assert len(spark._jsparkSession.streams().listListeners()) == len(before), "its listener is off"
    second = attach(spark, url, "second")
    assert second is not first
    query = spark.readStream.format("rate").load().writeStream.queryName("later").format("memory").start()
    try:
        # Not processAllAvailable(): a rate goes on, so it need never return.
        wait_until(lambda: query.lastProgress is not None, "a micro-batch is done")
    finally:
        query.stop()
        first.close()  # once more: it does nothing, to the second one neither
        assert attach(spark, url) is second
        second.close()
    told: dict[str, list[str]] = {}
    with sa.create_engine(url).connect() as connection:
        for app_id, body in connection.execute(sa.text("SELECT app_id, body FROM attached_event ORDER BY id")):
            told.setdefault(app_id, []).append(json.loads(body)["event"])
    ended, after = told.values()
    assert "started" not in ended
    assert ended[-1] == "ended"
    assert "started" in after
    assert after[-1] == "ended"
