"""The diff's databases: opened ahead or not, each computation has one of its own, and nothing of it stays."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import duckdb
import pytest

from backend.errors import DiffError
from backend.sql.session import (
    DIFF_BYTES,
    THREADS,
    CancelToken,
    Databases,
    close_doors,
    ended_within,
    pairs_joined,
    session,
)
from backend.work import Stopped
from tests.worlds.processes import wait_until

SETTINGS = ("threads", "async_threads", "memory_limit", "autoload_known_extensions", "preserve_insertion_order")
ENDLESS = "SELECT count(*) FROM range(10000000000) a(i) WHERE hash(i) = 1"


def set_up(connection: Any) -> list[Any]:
    names = ", ".join(f"current_setting('{name}')" for name in (*SETTINGS, "TimeZone"))
    return list(connection.execute(f"SELECT {names}").fetchone())


def spill_of(connection: Any) -> Path:
    return Path(connection.execute("SELECT current_setting('temp_directory')").fetchone()[0])


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
            threads, background, limit, loads, keeps_order, zone = set_up(connection)
            assert (threads, background, loads, keeps_order, zone) == (THREADS, 0, False, False, "UTC")
            assert abs(float(limit.removesuffix(" MiB")) - memory / 2**20) < 0.11
            assert connection.execute("SELECT count(*) FROM duckdb_tables()").fetchone() == (0,)
            connection.execute("CREATE TEMP TABLE net AS SELECT 1 AS c0; CREATE TABLE kept AS SELECT 2 AS c0")
            spills.append(spill_of(connection))
            assert spills[-1].is_dir()
    assert len(set(spills)) == 3
    for closed in databases.closed:
        closed.result(timeout=60)
    assert not any(spill.exists() for spill in spills)


def test_however_often_one_is_asked_for_one_is_opened_and_only_one_computation_has_it() -> None:
    opened: list[Any] = []

    def counting() -> Any:
        opened.append(duckdb.connect(":memory:"))
        return opened[-1]

    databases = Databases(counting)
    with ThreadPoolExecutor(8) as many:
        list(many.map(lambda _: databases.open_ahead(), range(50)))
    with session(CancelToken(), databases=databases) as first, session(CancelToken(), databases=databases) as second:
        assert first is opened[0] and second is opened[1] and first is not second
    assert len(opened) == 2


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


def test_behind_closed_doors_no_file_is_opened_and_no_setting_changed() -> None:
    for sql in ("SELECT * FROM read_text('/etc/hostname')", "SET memory_limit = '64GB'", "ATTACH '/tmp/weir.db'"):
        with pytest.raises(DiffError), session(CancelToken()) as connection:
            close_doors(connection)
            connection.execute(sql)


@pytest.mark.parametrize(("rows", "most", "pairs"), [(5_000, 20_000, 5_003), (5_000, 700, 700), (2, 700, 5), (0, 9, 3)])
def test_how_many_pairs_a_join_made_is_told(rows: int, most: int, pairs: int) -> None:
    """Whether DuckDB keeps the LIMIT or proves that none is needed."""
    sides = f"(FROM range({rows}) t(i)) b FULL JOIN (SELECT i + 0.5 AS i FROM range(3) t(i)) a ON a.i = b.i"
    with session(CancelToken()) as connection:
        connection.execute(f"CREATE TABLE t AS SELECT * FROM (SELECT b.i AS x FROM {sides} LIMIT {most}) WHERE x < 3")
        assert pairs_joined(connection) == pairs
        connection.execute("SELECT 1")
        assert pairs_joined(connection) is None


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
