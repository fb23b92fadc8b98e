"""Each fault of a stream, injected: a preflight names it before the start, Spark's own error is recognised after it.

All cases are copies of one small stream that has read two of its source's commits in two batches.
"""

import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from backend.lake.lake import Lake
from backend.settings import load_settings
from backend.store.leases import stream_resource
from backend.store.store import ControlStore
from backend.stream_model.progress import parse_progress
from backend.stream_model.stream import DesiredState, HostHeartbeat, StreamDeclaration, StreamFailure, StreamInput
from backend.streams import faults
from backend.streams.faults import Check, Fault, Outcome, recognise
from backend.streams.preflight import preflight
from pipelines.jvm.failures import describe, describe_java
from tests.worlds.lake.builders import write
from tests.worlds.processes import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]
NAME = "copies"
SOURCE = "source"


@dataclass
class Stream:
    """lake/source → lake/sink under a home of its own."""

    spark: SparkSession
    home: Path
    function: Callable[[DataFrame], DataFrame] = lambda rows: rows

    @property
    def source(self) -> Path:
        return self.home / "lake" / "source"

    @property
    def sink(self) -> Path:
        return self.home / "lake" / "sink"

    @property
    def checkpoint(self) -> Path:
        return self.home / "checkpoint"

    def append(self, first: int) -> None:
        write(self.source, {"id": [first, first + 1], "name": ["a", "b"]})

    def start(self, *, now: bool = True, also: Path | None = None, **options: str) -> StreamingQuery:
        reader = self.spark.readStream.format("delta").options(**{"maxFilesPerTrigger": "1", **options})
        rows = reader.load(str(self.source))
        rows = rows.union(reader.load(str(also))) if also else rows
        writer = self.function(rows).writeStream.format("delta")
        writer = writer.option("checkpointLocation", str(self.checkpoint)).option("mergeSchema", "true")
        return writer.trigger(**({"availableNow": True} if now else {"processingTime": "0 seconds"})).start(
            str(self.sink)
        )

    def run(self, *, also: Path | None = None, **options: str) -> StreamFailure | None:
        """Until it has read all, or failed: as a host would observe it."""
        try:
            query = self.start(also=also, **options)
        except Exception as exc:  # noqa: BLE001 - whatever a start raises is what a host describes
            return StreamFailure(*describe(exc), None, datetime.now(UTC))
        return ended(query)

    def ids(self) -> list[int]:
        return sorted(DeltaTable(str(self.sink)).to_pyarrow_table(columns=["id"])["id"].to_pylist())


def ended(query: StreamingQuery) -> StreamFailure | None:
    with suppress(StreamingQueryException):
        assert query.awaitTermination(120), "it neither ended nor failed"
    raised = query._jsq.exception()
    return StreamFailure(*describe_java(raised.get()), None, datetime.now(UTC)) if raised.isDefined() else None


@pytest.fixture(scope="module")
def made(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Stream:
    stream = Stream(spark, tmp_path_factory.mktemp("made"))
    stream.append(0)
    stream.append(10)
    assert stream.run() is None
    assert stream.ids() == [0, 1, 10, 11]
    stream.append(20)
    return stream


@pytest.fixture
def stream(made: Stream, tmp_path: Path) -> Stream:
    shutil.copytree(made.home, tmp_path, dirs_exist_ok=True)
    return Stream(made.spark, tmp_path)


@pytest.fixture
def store(stream: Stream) -> Iterator[ControlStore]:
    (stream.home / "store").mkdir()
    store = ControlStore(f"sqlite:///{stream.home / 'store' / 'weir.db'}")
    store.declare([declaration(stream, NAME)], now=datetime.now(UTC))
    yield store
    store.close()


def declaration(stream: Stream, name: str, *, sink: str = "sink", place: str = "checkpoint") -> StreamDeclaration:
    source = StreamInput("table", SOURCE, str(stream.source))
    written = str(stream.home / "lake" / sink)
    return StreamDeclaration(name, "", "", written, sink, (), None, 0, str(stream.home / place), inputs=(source,))


def before(stream: Stream, store: ControlStore) -> list[Check]:
    """The checks that are not ok, while a host is alive."""
    settings, now = load_settings(home=stream.home), datetime.now(UTC)
    store.beat(HostHeartbeat("host-1", "box", 1, now, now))
    found = preflight(settings, Lake(settings), store, NAME, now=now)
    return [check for check in found.checks if check.outcome is not Outcome.OK]


def test_a_sound_stream_passes_and_goes_on(stream: Stream, store: ControlStore) -> None:
    assert before(stream, store) == []
    assert stream.run() is None
    assert stream.ids() == [0, 1, 10, 11, 20, 21]
    assert before(stream, store) == []


# faults that end the query -------------------------------------------------------------------------------------------


def damage(folder: str, back: int = 0, text: str | None = "") -> Callable[[Stream], None]:
    """Another text in the file of a batch, so many before the last; None: the file is gone."""

    def inject(stream: Stream) -> None:
        last = max(int(file.name) for file in (stream.checkpoint / "offsets").glob("[0-9]*"))
        name = f"{folder}/{last - back}" if folder in ("offsets", "commits") else folder
        if text is None:
            (stream.checkpoint / name).unlink()
        else:
            (stream.checkpoint / name).write_text(text)

    inject.__name__ = f"{folder}-{back}: {'gone' if text is None else text!r}"
    return inject


def empty_last_offsets(stream: Stream) -> None:
    damage("offsets")(stream)
    damage("commits", text=None)(stream)


def clean_log(stream: Stream) -> None:
    """All that is unread stays: what goes is where the last batch began."""
    assert stream.run() is None
    stream.append(30)
    forget_versions(stream, DeltaTable(str(stream.source)).version())


def forget_versions(stream: Stream, before: int) -> None:
    DeltaTable(str(stream.source)).create_checkpoint()
    for version in range(before):
        (stream.source / "_delta_log" / f"{version:020d}.json").unlink()


def clean_first_snapshot(stream: Stream) -> None:
    forget_versions(stream, 2)


def vacuum(stream: Stream) -> None:
    DeltaTable(str(stream.source)).optimize.compact()
    DeltaTable(str(stream.source)).vacuum(0, dry_run=False, enforce_retention_duration=False)


def rename_column(stream: Stream) -> None:
    table = f"delta.`{stream.source}`"
    stream.spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")
    stream.spark.sql(f"ALTER TABLE {table} RENAME COLUMN name TO title")


def recreate(stream: Stream) -> None:
    shutil.rmtree(stream.source)
    for first in (0, 10, 20):
        stream.append(first)


def change_type(stream: Stream) -> None:
    write(stream.source, {"id": ["x"], "name": ["y"]}, mode="overwrite", schema_mode="overwrite")


def delete_rows(stream: Stream) -> None:
    DeltaTable(str(stream.source)).delete("id = 0")


def ci(inject: Callable[[Stream], None], fault: Fault) -> Any:
    return pytest.param(inject, fault, marks=pytest.mark.ci)


@pytest.mark.parametrize(
    ("inject", "fault"),
    [
        (empty_last_offsets, faults.OFFSETS_DAMAGED),
        ci(damage("offsets", text='v1\n{"batch'), faults.OFFSETS_DAMAGED),
        ci(damage("offsets", back=1, text=None), faults.OFFSETS_DAMAGED),
        ci(damage("commits"), faults.OFFSETS_DAMAGED),
        ci(damage("metadata"), faults.METADATA_GARBAGE),
        ci(damage("metadata", text="no json"), faults.METADATA_GARBAGE),
        ci(damage("metadata", text=None), faults.METADATA_MISSING),
        ci(damage("offsets", text=None), faults.OFFSETS_MISSING),
        ci(clean_log, faults.LOG_CLEANED),
        ci(clean_first_snapshot, faults.LOG_CLEANED),
        (vacuum, faults.FILE_VACUUMED),
        ci(rename_column, faults.SCHEMA_CHANGED),
        ci(change_type, faults.SCHEMA_CHANGED),
        ci(recreate, faults.SOURCE_RECREATED),
        (delete_rows, faults.ROWS_CHANGED),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_a_preflight_names_the_fault_and_the_error_is_recognised(
    stream: Stream,
    store: ControlStore,
    inject: Callable[[Stream], None],
    fault: Fault,
) -> None:
    inject(stream)
    found = before(stream, store)
    failure = stream.run()
    assert (fault.check, fault.remedy) in {(check.name.removesuffix(f" of {SOURCE}"), check.remedy) for check in found}
    assert {check.outcome for check in found} <= {Outcome.FAILED, Outcome.UNKNOWN}
    assert failure is not None, "the fault did not fire"
    assert fault in recognise(failure), failure


# faults that end nothing, or end another query -----------------------------------------------------------------------


@pytest.mark.ci
def test_without_commits_the_last_batch_runs_again_and_changes_nothing(stream: Stream, store: ControlStore) -> None:
    shutil.rmtree(stream.checkpoint / "commits")
    (check,) = before(stream, store)
    assert (check.name, check.outcome) == (faults.COMMITS_GONE.check, Outcome.WARNING)
    assert "batch 1 runs again" in check.detail
    assert stream.run() is None
    assert stream.ids() == [0, 1, 10, 11, 20, 21]


@pytest.mark.soak
def test_an_older_checkpoint_lets_rows_go_missing_without_a_word(stream: Stream, store: ControlStore) -> None:
    shutil.copytree(stream.checkpoint, stream.home / "older")
    assert stream.run() is None
    shutil.rmtree(stream.checkpoint)
    shutil.copytree(stream.home / "older", stream.checkpoint)
    (check,) = before(stream, store)
    assert (check.name, check.remedy) == (faults.SINK, faults.OLD_CHECKPOINT.remedy)
    assert check.detail == "The table has batch 2 of this query, the checkpoint ends with batch 1"
    stream.append(60)
    assert stream.run(maxFilesPerTrigger="10") is None
    assert stream.ids() == [0, 1, 10, 11, 20, 21], "60 and 61 were in a batch that the sink took for one it had"


@pytest.mark.ci
def test_another_number_of_sources_is_told_before_spark_refuses_it(stream: Stream, store: ControlStore) -> None:
    side = stream.home / "lake" / "side"
    write(side, {"id": [7], "name": ["s"]})
    declared = declaration(stream, NAME)
    inputs = (*declared.inputs, StreamInput("table", "side", str(side)))
    store.declare([replace(declared, inputs=inputs)], now=datetime.now(UTC))
    (check,) = before(stream, store)
    assert (check.name, check.remedy) == (faults.DEFINITION, faults.SOURCES_CHANGED.remedy)
    failure = stream.run(also=side)
    assert failure is not None
    assert recognise(failure) == (faults.SOURCES_CHANGED,), failure


@pytest.mark.soak
def test_deletes_of_whole_files_are_passed_over_by_the_option_that_the_remedy_names(
    stream: Stream, store: ControlStore
) -> None:
    DeltaTable(str(stream.source)).delete("id < 2")  # every row of a file, so nothing is written instead
    (check,) = before(stream, store)
    assert (check.outcome, check.remedy) == (Outcome.FAILED, faults.ROWS_DELETED.remedy)
    failure = stream.run()
    assert failure is not None and recognise(failure) == (faults.ROWS_DELETED,), failure
    assert stream.run(ignoreDeletes="true") is None
    assert stream.ids() == [0, 1, 10, 11, 20, 21]


@pytest.mark.ci
def test_a_state_that_is_gone_or_has_another_shape_is_told(stream: Stream, store: ControlStore) -> None:
    shutil.rmtree(stream.checkpoint)
    stream.function = lambda rows: rows.dropDuplicates(["id"])
    query = stream.start()
    assert ended(query) is None
    assert query.lastProgress is not None
    store.add_progress([replace(parse_progress(query.lastProgress.json), stream=NAME)])
    assert before(stream, store) == []
    stream.append(30)
    stream.function = lambda rows: rows.dropDuplicates(["id", "name"])
    changed = stream.run()
    assert changed is not None and recognise(changed) == (faults.STATE_CHANGED,), changed
    stream.function = lambda rows: rows.dropDuplicates(["id"])
    shutil.rmtree(stream.checkpoint / "state")
    (check,) = before(stream, store)
    assert (check.name, check.outcome, check.remedy) == (faults.CHECKPOINT, Outcome.FAILED, faults.STATE_LOST.remedy)
    lost = stream.run()
    assert lost is not None and recognise(lost) == (faults.STATE_LOST,), lost


@pytest.fixture
def running(stream: Stream) -> Iterator[StreamingQuery]:
    """It has read all, and looks for more."""
    query = stream.start(now=False)
    try:
        wait_until((stream.checkpoint / "commits" / "2").exists, "it has read all")
        yield query
    finally:
        query.stop()


@pytest.mark.ci
def test_a_second_start_is_refused_and_the_first_lives(
    stream: Stream, store: ControlStore, running: StreamingQuery
) -> None:
    now = datetime.now(UTC)
    store.declare([declaration(stream, NAME), declaration(stream, "twin", sink="other")], now=now)
    store.ensure_all_desired(["twin"], DesiredState.RUNNING, now=now)
    (check,) = before(stream, store)
    assert (check.name, check.remedy) == (faults.OTHERS, faults.SECOND_START.remedy)
    assert "twin" in check.detail
    failure = stream.run()
    assert failure is not None
    assert recognise(failure) == (faults.SECOND_START,)
    assert running.isActive


@pytest.mark.ci
def test_another_driver_ends_the_query_and_the_lease_says_who_owns_it(
    stream: Stream, store: ControlStore, running: StreamingQuery
) -> None:
    now = datetime.now(UTC)
    store.beat(HostHeartbeat("host-2", "other", 2, now, now))
    assert store.acquire(stream_resource(NAME), "host-2", ttl_s=60)
    settings = load_settings(home=stream.home)
    found = preflight(settings, Lake(settings), store, NAME, now=now).checks
    assert "Host host-2 holds the lease" in next(check.detail for check in found if check.name == faults.OWNER)
    shutil.copy(stream.checkpoint / "offsets" / "2", stream.checkpoint / "offsets" / "3")  # as another driver plans
    stream.append(50)
    failure = ended(running)
    assert failure is not None
    assert faults.OTHER_DRIVER in recognise(failure)


@pytest.mark.ci
def test_added_columns_end_a_query_that_runs_and_its_next_start_takes_them(
    stream: Stream, store: ControlStore, running: StreamingQuery
) -> None:
    write(stream.source, {"id": [40], "name": ["q"], "x": [1.0]}, schema_mode="merge")
    failure = ended(running)
    assert failure is not None
    assert recognise(failure) == (faults.SCHEMA_CHANGED,)
    (check,) = before(stream, store)
    assert (check.name, check.outcome) == (f"{faults.SCHEMA} of {SOURCE}", Outcome.WARNING)
    assert "adds x (double)" in check.detail
    assert stream.run() is None
    assert stream.ids()[-1] == 40


def test_every_fault_is_injected() -> None:
    """But a sink under another host's lease, which is no error of Spark's: `test_preflight`."""
    text = Path(__file__).read_text()
    names = {name for name, value in vars(faults).items() if value in faults.TWELVE}
    assert len(names) == 12
    assert {name for name in names if f"faults.{name}" not in text} == {"SINK_LEASED"}
