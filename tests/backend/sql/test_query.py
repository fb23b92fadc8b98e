"""SQL that a stranger typed: what is read as one aggregate, what is refused and where, and that it can be stopped."""

import gc
import threading
import weakref
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from backend.errors import DataFileMissingError, QueryError
from backend.sql import session as duckdb_session
from backend.sql.expression import check_expression
from backend.sql.numbers import spread
from backend.sql.session import Computation
from backend.work import Stopped
from tests.worlds.processes import wait_until

COLUMNS = ["id", "amount", "status", "Customer", "odd name", "address", "ts", "body"]
ROWS = pa.table(
    {
        "id": [1, 2, 3, 4],
        "amount": pa.array([Decimal("1.10"), Decimal("2.20"), None, Decimal("4.00")], pa.decimal128(10, 2)),
        "status": ["open", "open", "paid", None],
        "Customer": ["a", "b", "a", "a"],
        "odd name": [2**62, 2**62, 2**62, 5],
        "address": [{"city": "x"}, {"city": "y"}, None, {"city": "x"}],
        "ts": pa.array([datetime(2026, 1, day, tzinfo=UTC) for day in (1, 2, 3, 4)], pa.timestamp("us", "UTC")),
        "body": ['{"n": 1}', '{"n": 2}', "{}", "null"],
    }
)


def compute(text: str) -> object:
    expression = check_expression(text, COLUMNS)
    rows = ROWS.select(list(expression.columns) or ["id"])
    return Computation().run(expression.sql, rows.to_reader(max_chunksize=1))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("sum(amount)", Decimal("7.30")),
        ("count(*)", 4),
        ("count(*) filter (where status = 'open')", 2),
        ("count(DISTINCT customer)", 2),
        ('sum("odd name")', 3 * 2**62 + 5),
        ("max(address.city)", "y"),
        ("max(rows.id)", 4),
        ("min(ts)", datetime(2026, 1, 1, tzinfo=UTC)),
        ("avg(id) -- of all", 2.5),
        ("round(100.0 * count(*) FILTER (WHERE amount IS NULL) / count(*), 1)", 25.0),
        ("sum(CASE WHEN status IN ('open', 'paid') THEN 1 ELSE 0 END)", 3),
        ("sum(TRY_CAST(body->>'$.n' AS INTEGER))", 3),
        ("max(date_trunc('month', ts))", datetime(2026, 1, 1, tzinfo=UTC)),
        ("count(*) FILTER (WHERE ts >= TIMESTAMPTZ '2026-01-03 00:00:00+00')", 2),
        ("count(*) FILTER (WHERE status LIKE 'op%' AND NOT id BETWEEN 2 AND 3)", 1),
        ("quantile_cont(id, 0.5)", 2.5),
        ("max(coalesce(status, '–'))", "–"),
        ("sum(id)::VARCHAR || ' rows'", "10 rows"),
    ],
)
def test_an_aggregate_is_computed_exactly(text: str, value: object) -> None:
    assert compute(text) == value


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "there is no expression"),
        ("amount", "no aggregate"),
        ("1", "no aggregate"),
        ("sum(amount", "syntax error"),
        ("sum(amount); SELECT 1", "syntax error"),
        ("sum(amount)) AS value FROM rows; DROP TABLE rows; SELECT (1", "only one expression"),
        ("sum(amount)) AS value FROM rows UNION ALL SELECT (1", "only one expression"),
        ("sum(amount)) AS a, (2", "only one expression"),
        ("sum(amount)) AS value FROM read_csv('/etc/passwd') --", "syntax error"),
        ("(SELECT count(*) FROM duckdb_settings())", "a subquery is not allowed"),
        ("sum(id) + (SELECT 1)", "a subquery is not allowed"),
        ("max(id) FILTER (WHERE EXISTS (SELECT 1))", "a subquery is not allowed"),
        ("sum(amount) OVER ()", "a window (OVER) is not allowed"),
        ("max(COLUMNS(*))", "a star outside count(*) is not allowed"),
        ("sum($1)", "a parameter is not allowed"),
        ("max(getenv('HOME'))", "'getenv' is not allowed"),
        ("max(current_setting('temp_directory'))", "'current_setting' is not allowed"),
        ("max(read_text('/etc/passwd'))", "'read_text' is not allowed"),
        ("max(nextval('s'))", "'nextval' is not allowed"),
        ("max(main.lower(status))", "'lower' is not allowed"),
        ("max(repeat(status, 1000000000))", "'repeat' is not allowed"),
        ("max(len(range(1000000000)))", "'range' is not allowed"),
        ("max(random())", "'random' is not allowed"),
        ("max(now())", "'now' is not allowed"),
        ("list(id)", "'list' is not allowed"),
        ("max(list_transform([id], x -> x + 1))", "not allowed"),
        ("sum(amuont)", "no column 'amuont'"),
        ("sum(status)", "cannot be computed"),
        ("sum(amount) + id", "cannot be computed"),
        ("(" * 900 + "sum(id)" + ")" * 900, ""),
        ("sum(" + "1+" * 950 + "1)", ""),
        ("x" * 10_001, "more than 10,000"),
        ("sum(id)\x00", "null character"),
        ("max(" + "||".join(["status"] * 40) + ")", "more than 8 texts"),
    ],
)
def test_what_is_no_aggregate_over_the_rows_is_refused_in_words(text: str, says: str) -> None:
    try:
        compute(text)
    except QueryError as exc:
        assert says in exc.message and "\n" not in exc.message
    else:
        assert not says  # deep nesting may be read or refused, but never crash


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("sum(amuont)", 4),
        ("sum(id) + summ(id)", 10),
        ("max('é') || sum(nope)", 16),
        ("sum(id) +", 9),
        ("sum(id) + (SELECT 1)", 10),
        ("  sum(status)  ", 0),
    ],
)
def test_an_error_names_its_place(text: str, position: int) -> None:
    with pytest.raises(QueryError) as error:
        compute(text)
    assert error.value.position == position


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("sum(status::INTEGER)", "TRY_CAST"),
        ('sum("odd name" * 4)', "wider type"),
        ("sum(address)", "look at the types"),
        ("max(ts > 5)", "look at the types"),
    ],
)
def test_what_the_rows_make_impossible_has_a_way_on(text: str, hint: str) -> None:
    with pytest.raises(QueryError) as error:
        compute(text)
    assert hint in error.value.hint and "cannot be computed" in error.value.message


def test_a_near_name_is_offered() -> None:
    with pytest.raises(QueryError) as error:
        compute("sum(amuont)")
    assert error.value.hint == "did you mean amount?" and "(character 5)" in error.value.message


def test_the_connection_opens_no_file_and_changes_no_setting() -> None:
    """The second fence: even a statement that no check saw."""
    for sql in (
        "SELECT count(*) FROM read_text('/etc/hostname')",
        "SELECT count(*) FROM '/etc/hostname'",
        "COPY (SELECT 1) TO '/tmp/weir-must-not-be.csv'",
        "SET memory_limit = '64GB'",
        "SET enable_external_access = true",
        "INSTALL httpfs",
        "ATTACH '/tmp/weir-must-not-be.db'",
    ):
        with pytest.raises(QueryError):
            Computation().run(sql, ROWS.to_reader())


def test_a_connection_that_ended_well_serves_the_next_and_holds_nothing_of_the_last() -> None:
    idle = duckdb_session._idle
    idle.clear()
    compute("sum(id)")
    (kept,) = idle
    assert kept.execute("SELECT count(*) FROM duckdb_views() WHERE NOT internal").fetchall() == [(0,)]
    held, ended = weakref.ref(compute_over_a_stream()), idle == [kept]
    gc.collect()
    assert ended and held() is None  # the stream is let go
    with pytest.raises(QueryError):
        Computation().run("SELECT error('no') FROM rows", ROWS.to_reader())
    assert not idle  # what failed is not used again
    compute("count(*)")
    Computation("20MB").run("SELECT count(*) FROM rows", ROWS.to_reader())
    assert len(idle) == 1  # nor one with a limit of its own


def test_rows_of_many_small_files_are_handed_on_together_and_large_ones_in_pieces() -> None:
    small = [pa.record_batch({"id": [number]}) for number in range(1_000)]
    large = pa.record_batch({"id": list(range(3 << 20))})
    handed = list(duckdb_session._handed(large.schema, iter([*small, large.slice(0, 0), large])))
    assert [batch.num_rows for batch in handed] == [1_000, *[duckdb_session.SLICE_BYTES // 8] * 6]
    assert pa.Table.from_batches(handed).column("id").to_pylist() == [*range(1_000), *range(3 << 20)]


class _Held:
    """Something that a stream of rows holds."""


def compute_over_a_stream() -> _Held:
    held = _Held()

    def batches() -> Iterator[pa.RecordBatch]:
        yield ROWS.to_batches()[0]
        assert held

    reader = pa.RecordBatchReader.from_batches(ROWS.schema, batches())
    Computation().run("SELECT id FROM rows LIMIT 1", reader)
    return held


def test_memory_is_bounded() -> None:
    distinct = pa.table({"id": pa.array([f"{number:0200d}" for number in range(200_000)])})
    with pytest.raises(QueryError, match="more than 20MB of memory"):
        Computation("20MB").run(check_expression("count(DISTINCT id)", ["id"]).sql, distinct.to_reader())


def test_a_failing_stream_keeps_its_own_error() -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield ROWS.to_batches()[0]
        raise DataFileMissingError("x.parquet is gone")

    reader = pa.RecordBatchReader.from_batches(ROWS.schema, batches())
    with pytest.raises(DataFileMissingError, match="is gone"):
        Computation().run(check_expression("sum(id)", COLUMNS).sql, reader)


def test_it_stops_at_once() -> None:
    def endless() -> Iterator[pa.RecordBatch]:
        while True:
            yield ROWS.to_batches()[0]

    job, ended = Computation(), threading.Event()

    def run() -> None:
        with pytest.raises(Stopped):
            job.run(check_expression("sum(id)", COLUMNS).sql, pa.RecordBatchReader.from_batches(ROWS.schema, endless()))
        ended.set()

    threading.Thread(target=run, daemon=True).start()
    wait_until(lambda: job.rows_read, "the first rows are read")
    job.stop()
    assert ended.wait(120)


@pytest.mark.parametrize(
    ("spans", "most", "within", "chosen"),
    [
        ([(0, 9)], 20, None, tuple(range(10))),
        ([(0, 9)], 4, None, (0, 3, 6, 9)),
        ([(0, 2), (10, 12)], 3, None, (0, 2, 12)),
        ([(5, 5), (8, 20)], 3, (6, 12), (8, 10, 12)),
        ([(0, 10_000)], 1, None, (10_000,)),
        ([], 5, None, ()),
    ],
)
def test_versions_are_chosen_evenly(
    spans: list[tuple[int, int]], most: int, within: tuple[int, int] | None, chosen: tuple[int, ...]
) -> None:
    assert spread(spans, most, within=within) == chosen
