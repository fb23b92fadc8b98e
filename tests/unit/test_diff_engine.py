"""The diff's databases: opened ahead or not, each computation has one of its own, and nothing of it stays."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from backend import duckdb_session as under_test
from backend.duckdb_session import MEMORY_LIMIT, THREADS, Watch, engine, open_ahead
from backend.errors import DiffError

SETTINGS = ("threads", "async_threads", "memory_limit", "autoload_known_extensions", "preserve_insertion_order")


def set_up(connection: Any) -> list[Any]:
    names = ", ".join(f"current_setting('{name}')" for name in (*SETTINGS, "TimeZone"))
    return list(connection.execute(f"SELECT {names}").fetchone())


def spill_of(connection: Any) -> Path:
    return Path(connection.execute("SELECT current_setting('temp_directory')").fetchone()[0])


def wait_for_closing() -> None:
    under_test._databases._thread.submit(lambda: None).result(timeout=10)


@pytest.mark.parametrize("is_ahead", [True, False])
def test_every_database_is_empty_bounded_and_gone_with_its_spill(is_ahead: bool) -> None:
    spills = []
    for _ in range(3):
        if is_ahead:
            open_ahead()
        with engine(Watch()) as connection:
            threads, background, memory, loads, keeps_order, zone = set_up(connection)
            assert (threads, background, loads, keeps_order, zone) == (THREADS, 0, False, False, "UTC")
            assert 0.9 < float(memory.split()[0]) / 488.2 < 1.1 and memory.endswith("MiB") and MEMORY_LIMIT == "512MB"
            assert connection.execute("SELECT count(*) FROM duckdb_tables()").fetchone() == (0,)
            connection.execute("CREATE TEMP TABLE net AS SELECT 1 AS c0; CREATE TABLE kept AS SELECT 2 AS c0")
            spills.append(spill_of(connection))
            assert spills[-1].is_dir()
    assert len(set(spills)) == 3
    wait_for_closing()
    assert not any(spill.exists() for spill in spills)


def test_however_often_one_is_asked_for_one_is_opened_and_only_one_computation_has_it() -> None:
    with engine(Watch()):
        pass  # whatever another test left open
    opened: list[Any] = []

    def counting() -> Any:
        opened.append(real())
        return opened[-1]

    real = under_test._open
    with patch.object(under_test, "_open", counting):
        with ThreadPoolExecutor(8) as many:
            list(many.map(lambda _: open_ahead(), range(50)))
        with engine(Watch()) as first, engine(Watch()) as second:
            assert first is opened[0] and second is opened[1] and first is not second
    assert len(opened) == 2


def test_one_that_cannot_be_opened_fails_the_computation_that_needs_it_and_no_other() -> None:
    with engine(Watch()):
        pass
    with patch.object(under_test, "_open", side_effect=OSError("no memory")):
        open_ahead()
        with pytest.raises(OSError, match="no memory"), engine(Watch()):
            pass
    with engine(Watch()) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_an_error_leaves_as_one_of_the_diff_and_its_database_is_closed() -> None:
    import duckdb

    with pytest.raises(DiffError, match="could not be computed"), engine(Watch()) as connection:
        connection.execute("SELECT * FROM nowhere")
    wait_for_closing()
    with pytest.raises(duckdb.ConnectionException, match="closed"):
        connection.execute("SELECT 1")
