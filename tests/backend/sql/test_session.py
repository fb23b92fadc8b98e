"""DuckDB's sessions: each computation has a clean database, bounded and behind closed doors, and can be stopped."""

import gc
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from backend.errors import DataFileMissingError, DiffError, QueryError
from backend.sql import session as duckdb_session
from backend.sql.expression import check_expression
from backend.sql.session import (
    DIFF_BYTES,
    THREADS,
    CancelToken,
    Computation,
    Databases,
    close_doors,
    ended_within,
    session,
)
from backend.work import Stopped
from tests.worlds.processes import wait_until

SETTINGS = (
    *("temp_directory", "memory_limit", "threads", "async_threads", "autoload_known_extensions"),
    *("preserve_insertion_order", "TimeZone"),
)
ENDLESS = "SELECT count(*) FROM range(10000000000) a(i) WHERE hash(i) = 1"


class Closing(Databases):
    """Remembers what is closed, so that a test can wait for it."""

    def __init__(self) -> None:
        super().__init__()
        self.closed: list[Any] = []

    def close(self, *given: Any) -> Any:
        self.closed.append(super().close(*given))
        return self.closed[-1]


@pytest.mark.parametrize("is_ahead", [True, False])
def test_every_database_is_empty_bounded_and_gone_with_its_spill(is_ahead: bool) -> None:
    spills, databases = [], Closing()
    for memory in (DIFF_BYTES, DIFF_BYTES, 300_000_000):
        if is_ahead:
            databases.open_ahead()
        with session(CancelToken(), memory_bytes=memory, databases=databases) as connection:
            names = ", ".join(f"current_setting('{name}')" for name in SETTINGS)
            spill, limit, *others = connection.execute(f"SELECT {names}").fetchone()
            assert others == [THREADS, 0, False, False, "UTC"]
            assert abs(float(limit.removesuffix(" MiB")) - memory / 2**20) < 0.11
            assert connection.execute("SELECT count(*) FROM duckdb_tables()").fetchone() == (0,)
            connection.execute("CREATE TEMP TABLE net AS SELECT 1 AS c0; CREATE TABLE kept AS SELECT 2 AS c0")
            spills.append(Path(spill))
            assert spills[-1].is_dir()
    assert len(set(spills)) == 3
    for closed in databases.closed:
        closed.result(timeout=60)
    assert not any(spill.exists() for spill in spills)


def test_one_that_cannot_be_opened_fails_the_computation_that_needs_it_and_no_other() -> None:
    def fails_once() -> Any:
        if fails.pop():
            raise OSError("no memory")
        return duckdb.connect(":memory:")

    fails, databases = [False, True], Databases(fails_once)
    databases.open_ahead()
    with pytest.raises(OSError, match="no memory"), session(CancelToken(), databases=databases):
        pass
    with session(CancelToken(), databases=databases) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_an_error_leaves_as_one_of_the_diff_and_its_database_is_closed() -> None:
    databases = Closing()
    with (
        pytest.raises(DiffError, match="could not be computed"),
        session(CancelToken(), databases=databases) as connection,
    ):
        connection.execute("SELECT * FROM nowhere")
    databases.closed[0].result(timeout=60)
    with pytest.raises(duckdb.ConnectionException, match="closed"):
        connection.execute("SELECT 1")
    with (
        pytest.raises(DiffError, match="fit into 20 MB"),
        session(CancelToken(), memory_bytes=20_000_000) as connection,
    ):
        connection.execute("SET temp_directory = ''; CREATE TABLE t AS SELECT range || 'x' FROM range(10000000)")


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT count(*) FROM read_text('/etc/hostname')",
        "SELECT count(*) FROM '/etc/hostname'",
        "COPY (SELECT 1) TO '/tmp/weir-must-not-be.csv'",
        "SET memory_limit = '64GB'",
        "SET enable_external_access = true",
        "INSTALL httpfs",
        "ATTACH '/tmp/weir-must-not-be.db'",
    ],
)
def test_behind_closed_doors_no_file_is_opened_and_no_setting_changed(sql: str) -> None:
    """The second fence: even for a statement that no check saw."""
    with pytest.raises(DiffError), session(CancelToken()) as connection:
        close_doors(connection)
        connection.execute(sql)
    with pytest.raises(QueryError):
        Computation().run(sql, ROWS.to_reader())


def test_the_time_limit_ends_a_statement_that_runs() -> None:
    with pytest.raises(DiffError, match="longer than"), session(CancelToken(time_limit_s=0.3)) as connection:
        connection.execute(ENDLESS)
    token = CancelToken(time_limit_s=0.0)
    assert ended_within(token, lambda: None)
    token.begin(None)
    with pytest.raises(duckdb.Error):
        ended_within(token, lambda: duckdb.connect(":memory:").execute("SELECT * FROM nowhere") and None)


def test_progress_is_told_while_a_statement_runs() -> None:
    token, seen = CancelToken(), list[int]()

    def look() -> None:
        def is_far() -> bool:
            seen.append(token.rows_so_far())
            return seen[-1] >= 1_000

        wait_until(is_far, "a thousand rows are told of")
        token.stop()

    token.rows_read = 7
    with pytest.raises(Stopped), session(token) as connection:
        threading.Thread(target=look, daemon=True).start()
        with token.reading(10_000_000):
            connection.execute(ENDLESS)
    assert 7 <= seen[0] <= seen[-1] and seen[-1] >= 1_000
    assert token.rows_so_far() == token.rows_read == 7


# rows handed over -----------------------------------------------------------------------------------------------------


ROWS = pa.table({"id": [1, 2, 3, 4]})
SUM = check_expression("sum(id)", ["id"]).sql


def computed_over_a_stream() -> set[int]:
    """A thing that only the stream's rows hold."""
    held = set[int]()

    def batches() -> Iterator[pa.RecordBatch]:
        yield ROWS.to_batches()[0]
        held.clear()

    Computation().run("SELECT id FROM rows LIMIT 1", streamed(batches()))
    return held


def test_a_connection_that_ended_well_serves_the_next_and_holds_nothing_of_the_last() -> None:
    idle = duckdb_session._idle
    idle.clear()
    Computation().run(SUM, ROWS.to_reader())
    (kept,) = idle
    assert kept.execute("SELECT count(*) FROM duckdb_views() WHERE NOT internal").fetchall() == [(0,)]
    held, ended = weakref.ref(computed_over_a_stream()), idle == [kept]
    gc.collect()
    assert ended and held() is None, "the stream is let go"
    with pytest.raises(QueryError):
        Computation().run("SELECT error('no') FROM rows", ROWS.to_reader())
    assert not idle, "what failed is not used again"
    Computation().run(SUM, ROWS.to_reader())
    Computation("20MB").run("SELECT count(*) FROM rows", ROWS.to_reader())
    assert len(idle) == 1, "nor one with a limit of its own"


def streamed(batches: Iterator[pa.RecordBatch]) -> pa.RecordBatchReader:
    return pa.RecordBatchReader.from_batches(ROWS.schema, batches)


def test_memory_is_bounded() -> None:
    distinct = pa.table({"id": pa.array([f"{number:0200d}" for number in range(200_000)])})
    with pytest.raises(QueryError, match="more than 20MB of memory"):
        Computation("20MB").run(check_expression("count(DISTINCT id)", ["id"]).sql, distinct.to_reader())


def test_a_failing_stream_keeps_its_own_error() -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield ROWS.to_batches()[0]
        raise DataFileMissingError("x.parquet is gone")

    with pytest.raises(DataFileMissingError, match="is gone"):
        Computation().run(SUM, streamed(batches()))


def test_it_stops_at_once() -> None:
    def endless() -> Iterator[pa.RecordBatch]:
        while True:
            yield ROWS.to_batches()[0]

    job, ended = Computation(), threading.Event()

    def run() -> None:
        with pytest.raises(Stopped):
            job.run(SUM, streamed(endless()))
        ended.set()

    threading.Thread(target=run, daemon=True).start()
    wait_until(lambda: job.rows_read, "the first rows are read")
    job.stop()
    assert ended.wait(120)
