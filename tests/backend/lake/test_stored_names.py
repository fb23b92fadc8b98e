"""Columns and tables named like SQL: whatever a log calls them, DuckDB reads them as names and nothing else."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from backend.lake.rows.rows import RowQuery
from backend.lake.table.schema import fields
from backend.sql.expression import sql_name
from backend.sql.filters import condition_text, parse_filter
from backend.sql.numbers import aggregates
from tests.worlds.lake.builders import HandLog, add, commit_info, metadata, protocol

TABLE = "t\"; x\n'é"
NAMES = (
    *(
        'a"b',
        "a'b",
        'a"".b',
        "a\nb",
        "a\tb",
        "x\\",
        "ünï",
        "\u202erev",
        "日本",
        "😀",
        "a.b",
        "a`b",
        "a,b",
        "(x)",
        "{y}",
    ),
    *("rows", "row_id", "value", "c0", "batch", "select", "filename", "$$", "=", " lead", "trail ", "x" * 300),
    *('"; DROP TABLE rows; --', "'); --", "-- c", "/* c */", "\") FROM rows; ATTACH 'x'; --"),
)


@pytest.fixture
def named(root: Path) -> Path:
    """A column for each name, under column mapping; the number of a column is its only value."""
    path = root / TABLE
    path.mkdir(parents=True)
    pq.write_table(pa.table({f"col-{number}": [number, None] for number in range(len(NAMES))}), path / "f.parquet")
    mapped = [
        {"delta.columnMapping.id": number + 1, "delta.columnMapping.physicalName": f"col-{number}"}
        for number in range(len(NAMES))
    ]
    columns = [
        {"name": name, "type": "long", "nullable": True, "metadata": mapping}
        for name, mapping in zip(NAMES, mapped, strict=True)
    ]
    start = metadata(
        configuration={"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": str(len(NAMES))}
    )
    start["metaData"]["schemaString"] = json.dumps({"type": "struct", "fields": columns})
    size = (path / "f.parquet").stat().st_size
    HandLog(path).commit(protocol(2, 5), start, commit_info(), add("f.parquet", rows=2, size=size))
    return path


@pytest.mark.parametrize("number", range(len(NAMES)))
def test_a_name_is_a_name(named, open_lake, number: int) -> None:
    lake, name = open_lake(), NAMES[number]
    snapshot = lake.snapshot(lake.find(TABLE))
    for text in (condition_text(name, "=", number), f"abs({sql_name(name)}) = {number}"):
        where = parse_filter(text, fields(snapshot.metadata))
        assert lake.find_rows(snapshot, RowQuery((name,), where)).rows.to_pydict() == {name: [number]}
    (*_, last) = aggregates().over(lake, snapshot.ref, f"sum({sql_name(name)})", [0])
    assert (last.values[0].value, last.values[0].error) == (number, None)
