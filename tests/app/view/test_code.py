"""What a page offers to copy for other tools, run: the rows of those versions and that filter, or why there is none.

Spark runs its own elsewhere (tests/pipelines/jobs/test_query_on_spark.py).
"""

import ast
import os
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
import sqlglot
from deltalake import DeltaTable
from sqlglot import exp

from app.summary.view.data import Asked, names, snippets
from app.ui.view.code import TOOLS, code
from backend.errors import QueryError
from backend.lake.lake import Lake
from backend.lake.rows.rows import RowQuery
from backend.lake.table.schema import columns
from backend.query.plan import plan_query
from backend.query.views import World
from backend.settings import load_settings
from backend.sql.filters import parse_filter
from backend.times import Clock
from tests.worlds.lake import builders
from tests.worlds.lake.questions import open_world

Code = Callable[[str, str], str]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setenv("WEIR_CONFIG", os.devnull)
    builders.orders_table(tmp_path / "lake" / "silver" / "orders")
    builders.orders_table(tmp_path / "lake" / "silver" / "it's `odd`")
    return open_world(load_settings(home=tmp_path, lake={"roots": [str(tmp_path / "lake")]}))


@pytest.fixture
def code_of(world: World) -> Code:
    return lambda text, tool: code(plan_query(world, text, Clock()), tool)


def test_pandas_code_runs_at_the_versions_that_were_read(code_of: Code, tmp_path: Path) -> None:
    text = 'SELECT count(*) AS n, \'a"""\\b\' AS t FROM orders VERSION AS OF 0 a JOIN "it\'s `odd`" b USING (order_id)'
    defined: dict[str, Any] = {}
    made = code_of(text, "pandas")
    exec(made, defined)
    (row,) = defined["frame"].to_dict("records")
    exec(code_of(text, "Arrow"), defined)
    assert [row] == defined["rows"].to_pylist() and defined["rows"].schema.types == [pa.int64(), pa.string()]
    table = tmp_path / "lake" / "silver" / "orders"
    before, after = (set(DeltaTable(table, version=v).to_pandas()["order_id"]) for v in (0, 3))
    assert row == {"n": len(before & after), "t": 'a"""\\b'}
    assert "version=0)" in made and "version=3)" in made


def test_trino_code_names_schema_table_and_version(code_of: Code) -> None:
    text = "SELECT o.status, count(*) FROM silver.orders VERSION AS OF 1 o WHERE o.status LIKE 'n%' GROUP BY o.status"
    note, sql = code_of(text, "Trino").split("\n", 1)
    (table,) = sqlglot.parse_one(sql, read="trino").find_all(exp.Table)
    assert note.startswith("--") and (table.db, table.name, table.alias) == ("silver", "orders", "o")
    assert '"delta"."silver"."orders" FOR VERSION AS OF 1 AS o' in sql


def test_spark_code_names_the_path_with_its_version(code_of: Code) -> None:
    made = code_of('SELECT status FROM "it\'s `odd`" ORDER BY status DESC', "Spark")
    assert "it's ``odd``` VERSION AS OF 3 AS `it's ``odd```" in made and "ORDER BY" in made


def test_no_login_of_an_address_is_copied(world: World) -> None:
    plan = plan_query(world, "SELECT status FROM orders", Clock())
    (read,) = plan.reads
    assert read.ref is not None
    secret = replace(read, ref=replace(read.ref, uri="s3://key:topsecret@bucket/orders"))
    for tool in TOOLS:
        assert "topsecret" not in code(replace(plan, reads=(secret,)), tool)


@pytest.mark.parametrize(
    ("text", "tools", "reason"),
    [
        ('SELECT * FROM "orders$history"', "pandas Arrow Spark Trino", "has no silver/orders$history with these rows"),
        ('SELECT * FROM "orders$changes"(0, 1)', "pandas Arrow Spark Trino", "has no silver/orders$changes(0, 1)"),
        ("SELECT * FROM weir.tables", "pandas Arrow Spark Trino", "has no weir.tables with these rows"),
        ("SELECT median(amount) FROM orders", "Trino", "the function median cannot be said in Trino's SQL"),
        ("SELECT dayofweek(current_date)", "Spark Trino", "the function day_of_week cannot be said"),
        ("SELECT hash(status) FROM orders", "Spark Trino", "the function hash cannot be said"),
        ("SELECT CAST(amount AS INT) FROM orders", "Spark Trino", "a cast to whole numbers"),
        ("SELECT extract(dow FROM current_date)", "Spark Trino", "extract(DAYOFWEEK …)"),
        ("SELECT status FROM orders WHERE status LIKE 'a\\_b'", "Spark Trino", "LIKE with a backslash"),
        ("SELECT * EXCLUDE (status) FROM orders", "Trino", "SELECT * with other columns"),
        ("SELECT * REPLACE (1 AS status) FROM orders", "Spark Trino", "SELECT * with other columns"),
        ("SELECT status, count(*) FROM orders GROUP BY ALL", "Trino", "GROUP BY ALL"),
        ("SELECT 1 AS a UNION BY NAME SELECT 2 AS a", "Spark Trino", "BY NAME"),
        ("SELECT '${env:HOME}'", "Spark Trino", "${ cannot be said"),  # which Spark would fill in
    ],
)
def test_what_means_something_else_is_refused_with_the_reason(
    code_of: Code, text: str, tools: str, reason: str
) -> None:
    for tool in TOOLS:
        if tool not in tools.split():
            assert code_of(text, tool)
            continue
        with pytest.raises(QueryError) as refused:
            code_of(text, tool)
        assert reason in refused.value.message


# Rows of one table ----------------------------------------------------------------

COMPUTED = "length(status) = 3 AND id < 4 -- as DuckDB counts"

FILTERS = (
    "",
    COMPUTED,
    "id > 1 AND status IN ('it''s', 'new')",
    "NOT (amount BETWEEN 5 AND 25.5) OR note IS NOT NULL",
    "day >= DATE '2026-01-02' AND price < 300.25",
    "at <= TIMESTAMP '2026-01-03 00:00:00' AND status LIKE 'n%'",
    "status ILIKE 'NE%' AND ok AND home.city <> 'x\\y'",
    "raw = X'01ff' OR amount IS NAN",
)


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    monkeypatch.setenv("WEIR_CONFIG", os.devnull)
    rows = pa.table(
        {
            "id": [1, 2, 3, 4],
            "status": ["new", "it's", "NEW", None],
            "amount": [1.0, 20.5, float("nan"), 30.0],
            "price": pa.array([Decimal("1.25"), Decimal("300.25"), None, Decimal(7)], pa.decimal128(10, 2)),
            "day": [date(2026, 1, number) for number in (1, 2, 3, 4)],
            "at": [datetime(2026, 1, number, tzinfo=UTC) for number in (1, 2, 3, 4)],
            "ok": [True, False, True, None],
            "note": [None, "a", None, "b"],
            "raw": [b"\x01\xff", b"", None, b"x"],
            "home": [{"city": "x\\y"}, {"city": "z"}, {"city": None}, None],
        }
    )
    builders.write(tmp_path / "lake" / "silver" / "it's", rows)
    DeltaTable(str(tmp_path / "lake" / "silver" / "it's")).delete("id = 1")  # what is pinned is the version before
    return Lake(load_settings(home=tmp_path, lake={"roots": [str(tmp_path / "lake")]}))


@pytest.mark.parametrize("text", FILTERS)
def test_the_code_reads_the_same_rows(lake: Lake, text: str) -> None:
    (ref,) = lake.tables()
    snapshot = lake.snapshot(ref, 0)
    where = parse_filter(text, columns(snapshot.metadata))
    wanted = lake.find_rows(snapshot, RowQuery(("id", "status"), where)).rows.sort_by("id")
    code = {tool: code for tool, (_, code) in snippets(Asked(ref, 0, ("id", "status"), where)).items()}

    read: dict[str, Any] = {}
    exec(code["DuckDB"], read)
    assert sorted(read["result"].fetchall()) == sorted(zip(*wanted.to_pydict().values(), strict=True))
    if text == COMPUTED:
        assert list(code) == ["DuckDB", "Spark", "Trino"], "deltalake's reader knows no functions of DuckDB's"
        return
    exec(code["pandas"], read)
    assert read["frame"].sort_values("id")["id"].tolist() == wanted["id"].to_pylist()
    assert list(read["frame"].columns) == ["id", "status"]
    exec(code["Arrow"], read)
    assert read["dataset"].to_table().sort_by("id") == wanted
    dataset = read["dataset"].to_table(filter=pc.field("status") == "new")  # as no view can be asked
    assert dataset["id"].to_pylist() == [row["id"] for row in wanted.to_pylist() if row["status"] == "new"]
    ast.parse(code["Spark"])
    assert f"delta.`{ref.uri}` VERSION AS OF 0" in code["Spark"] and "FOR VERSION AS OF 0" in code["Trino"]


def test_no_other_engine_is_told_a_function_that_it_reads_otherwise(lake: Lake) -> None:
    (ref,) = lake.tables()
    where = parse_filter("regexp_matches(status, 'n.*')", columns(lake.snapshot(ref).metadata))
    assert list(snippets(Asked(ref, 0, None, where))) == ["DuckDB"]


def test_arrow_code_gives_each_column_as_the_page_has_it(lake: Lake) -> None:
    (ref,) = lake.tables()
    snapshot, read = lake.snapshot(ref, 0), dict[str, Any]()
    exec(snippets(Asked(ref, 0))["Arrow"][1], read)
    rows, wanted = read["dataset"].to_table(), lake.find_rows(snapshot, RowQuery(limit=9)).rows
    assert rows.schema.equals(wanted.schema)
    assert str(rows.sort_by("id").to_pylist()) == str(wanted.sort_by("id").to_pylist()), "NaN is no NaN's equal"


def test_each_tool_writes_values_its_own_way(lake: Lake) -> None:
    (ref,) = lake.tables()
    where = parse_filter(
        "status ILIKE 'it''s' AND amount IS NAN AND home.city = 'x'", columns(lake.snapshot(ref).metadata)
    )
    code = {tool: code for tool, (_, code) in snippets(Asked(ref, 1, None, where)).items()}
    said = {engine: " ".join(code[engine].split()) for engine in ("Spark", "Trino")}
    assert 'LOWER("status") LIKE LOWER(\'it\'\'s\') AND IS_NAN("amount") AND ( "home" )."city" = \'x\'' in said["Trino"]
    assert 'FROM "delta"."silver"."it\'s" FOR VERSION AS OF 1' in said["Trino"]
    (sql,) = ast.parse(code["Spark"]).body[-1].value.args  # type: ignore[attr-defined]
    assert "`status` ILIKE 'it\\'s' AND ( `amount` = CAST('NaN' AS DOUBLE) ) AND ( `home` ).`city` = 'x'" in " ".join(
        ast.literal_eval(sql).split()
    )
    assert names(["a", "b"], ["a", "b"]) is None and names(["a", "b"], ["b"]) == ("b",)
