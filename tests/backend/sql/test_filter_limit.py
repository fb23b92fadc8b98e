"""A filter that takes too long ends: for who stopped waiting, at its limit, and without a traceback."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from backend.errors import QueryError
from backend.lake.rows.rows import RowPage, RowQuery
from backend.lake.table.schema import fields
from backend.sql.export import FORMATS
from backend.sql.exports import ExportedRows, Exports
from backend.sql.filters import ended_by, parse_filter
from backend.sql.session import CancelToken
from backend.work import Stopped, Work, still_runs
from tests.worlds.lake import builders

SLOW = f"lower(text) LIKE '%{'_' * 60}b%'"  # DuckDB begins anew at each character of a megabyte


@pytest.fixture
def slow(root: Path) -> Path:
    return builders.write(root / "t", pa.table({"id": list(range(40)), "text": ["a" * 1_000_000] * 40}))


def searching(lake, token: CancelToken, begun: threading.Event) -> Callable[[], RowPage]:
    snapshot = lake.snapshot(lake.find("t"))

    def check() -> None:
        begun.set()
        token.check()

    where = ended_by(token, parse_filter(SLOW, fields(snapshot.metadata)))
    return lambda: lake.find_rows(snapshot, RowQuery(("id",), where, check=check))


def test_it_ends_when_nobody_waits_any_more(slow, open_lake) -> None:
    token, begun = CancelToken(), threading.Event()
    with Work(searching(open_lake(), token, begun), token.stop) as work:
        assert begun.wait(60)
    assert work.ended(60)
    with pytest.raises(Stopped):
        work.result()


def test_it_ends_at_its_limit_in_a_sentence(slow, open_lake) -> None:
    token = CancelToken()
    with (
        pytest.raises(QueryError, match="the filter took longer than 0 s and was stopped"),
        Work(searching(open_lake(), token, threading.Event()), token.stop) as work,
    ):
        while still_runs(work, "the filter", limit_s=0.1):
            pass
    assert work.ended(60)
    with pytest.raises(Stopped):
        work.result()


def test_an_export_that_is_cancelled_ends_its_filter(slow, open_lake) -> None:
    lake, begun = open_lake(), threading.Event()
    snapshot = lake.snapshot(lake.find("t"))
    exports = Exports()
    where = parse_filter(SLOW.replace("_" * 60, "_" * 900), fields(snapshot.metadata))  # all rows take minutes
    export = exports.take(exports.offer(ExportedRows(snapshot, ("id",), where, FORMATS["csv"])).ticket)

    class Reader:
        def read_files(self, *args: Any, **options: Any) -> pa.RecordBatchReader:
            begun.set()
            return lake.read_files(*args, **options)

    with Work(lambda: list(export.pieces(Reader())), export.stop) as work:
        assert begun.wait(60) and not work.ended(0.1)
    assert work.ended(60)
    with pytest.raises(Stopped):
        work.result()


@pytest.mark.parametrize("operator", ["LIKE", "ILIKE", "NOT LIKE", "NOT ILIKE"])
def test_a_long_pattern_is_refused(slow, open_lake, operator: str) -> None:
    lake = open_lake()
    columns = fields(lake.snapshot(lake.find("t")).metadata)
    parse_filter(f"text {operator} '{'_' * 1_000}'", columns)
    with pytest.raises(QueryError, match=r"more than 1,000 characters \(character \d+\)"):
        parse_filter(f"text {operator} '{'_' * 1_001}'", columns)


@pytest.mark.parametrize("text", ['"~~"(text)', "\"~~\"(text, 'a', 'b')", '"!~~"(text)', '"~~*"()'])
def test_an_operator_called_as_a_function_is_no_crash(slow, open_lake, text: str) -> None:
    lake = open_lake()
    with pytest.raises(QueryError):
        parse_filter(text, fields(lake.snapshot(lake.find("t")).metadata))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("(" * 3_000 + "id = 1" + ")" * 3_000, "nested too deeply"),
        ("NOT " * 2_000 + "id = 1", "nested too deeply"),
        ("id" + " + 1" * 2_000 + " = 1", "nested too deeply"),
        ("[" * 500 + "1" + "]" * 500 + " = [id]", "nested too deeply"),
        (f"text = '{'a' * 1_000_000}'", "more than 10,000"),
        ("repeat(text, 1000000000) = 'a'", "not allowed"),
        ("lpad(text, 2000000000, 'x') = 'a'", "not allowed"),
        ("len(range(1000000000)) > id", "not allowed"),
        ("list(id) = [1]", "not allowed"),
        ("id IN (WITH RECURSIVE r AS (SELECT 1 UNION ALL SELECT 1 FROM r) SELECT * FROM r)", "subquery"),
        ("||".join(["text"] * 20) + " = 'a'", "more than 8 texts"),
    ],
    ids=range(11),
)
def test_what_would_take_all_memory_or_stack_is_a_sentence(slow, open_lake, text: str, said: str) -> None:
    lake = open_lake()
    with pytest.raises(QueryError, match=said) as refused:
        parse_filter(text, fields(lake.snapshot(lake.find("t")).metadata))
    assert "max_expression_depth" not in str(refused.value) and refused.value.hint
