"""The code that a page offers to copy, run: exactly the rows of that version, those columns and that filter."""

import ast
import os
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from app.summary.view.snippets import Asked, names, snippets
from backend.lake.lake import Lake
from backend.lake.rows.rows import RowQuery
from backend.lake.table.schema import fields
from backend.settings import load_settings
from backend.sql.filters import parse_filter
from tests.worlds.lake import builders

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
    where = parse_filter(text, fields(snapshot.metadata))
    wanted = lake.find_rows(snapshot, RowQuery(("id", "status"), where)).rows.sort_by("id")
    code = {tool: code for tool, (_, code) in snippets(Asked(ref, 0, ("id", "status"), where)).items()}

    read: dict[str, Any] = {}
    exec(code["DuckDB"], read)
    assert sorted(read["result"].fetchall()) == sorted(zip(*wanted.to_pydict().values(), strict=True))
    if text == COMPUTED:
        assert list(code) == ["DuckDB"], "no other tool reads functions of DuckDB's alike"
        return
    exec(code["pandas"], read)
    assert read["frame"].sort_values("id")["id"].tolist() == wanted["id"].to_pylist()
    assert list(read["frame"].columns) == ["id", "status"]
    ast.parse(code["Spark"])
    assert ".option('versionAsOf', 0)" in code["Spark"] and "FOR VERSION AS OF 0" in code["Trino"]


def test_each_tool_writes_values_its_own_way(lake: Lake) -> None:
    (ref,) = lake.tables()
    where = parse_filter(
        "status ILIKE 'it''s' AND amount IS NAN AND home.city = 'x'", fields(lake.snapshot(ref).metadata)
    )
    code = {tool: code for tool, (_, code) in snippets(Asked(ref, 1, None, where)).items()}
    assert "lower(\"status\") LIKE lower('it''s') AND is_nan(\"amount\")" in code["Trino"]
    assert 'FROM "delta"."silver"."it\'s" FOR VERSION AS OF 1' in code["Trino"]
    said = ast.literal_eval(code["Spark"].split(".where(")[1].split(")\n")[0])
    assert said == "(`status` ILIKE 'it\\'s' AND isnan(`amount`) AND `home`.`city` = 'x')"
    assert names(["a", "b"], ["a", "b"]) is None and names(["a", "b"], ["b"]) == ("b",)
