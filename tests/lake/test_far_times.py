"""Times far from ours: Spark's INT96 beyond nanoseconds, days beyond Python's calendar. Each value is one that Spark
shows for the same file."""

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from backend.changes.model import DiffMethod, NetCounts
from backend.errors import UnsupportedFeatureError
from backend.lake.lake import Lake
from backend.lake.table.schema import fields
from backend.search.key_history import key_history
from backend.settings import load_settings
from backend.sql.filters import parse_filter
from tests.builders import CHANGE_FEED, HandLog, add, commit_info, metadata, protocol, remove
from tests.diffs import diff
from tests.object_store import client, make_bucket, server_url, storage_options

END = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
FIRST = datetime(1, 1, 1, tzinfo=UTC)
OURS = datetime(2024, 6, 1, 12, tzinfo=UTC)
MOMENT = pa.timestamp("us", "UTC")
NESTED = pa.struct([("at", MOMENT), ("all", pa.list_(MOMENT)), ("by", pa.map_(pa.string(), MOMENT))])
COLUMNS = {"id": "long", "at": "timestamp", "p": "string"}
OpenLake = Callable[..., Lake]


def spans(*ends: datetime | None) -> pa.Table:
    """Rows with a moment at the top and in all that holds others."""
    nested = [{"at": end, "all": [end, OURS], "by": [("x", end)]} for end in ends]
    columns = {"id": pa.array(range(len(ends)), pa.int64()), "at": pa.array(ends, MOMENT)}
    return pa.table(columns | {"n": pa.array(nested, NESTED)})


def put(table: Path, name: str, rows: pa.Table, *, kind: str = "add", **more: Any) -> dict[str, Any]:
    """A data file as Spark's default encoding has it, and its action."""
    table.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, table / name, use_deprecated_int96_timestamps=True, store_schema=False)
    size = (table / name).stat().st_size
    if kind == "cdc":
        return {"cdc": {"path": name, "partitionValues": {}, "size": size, "dataChange": False} | more}
    return add(name, size=size, rows=len(rows), **more)


def spans_schema() -> str:
    moment = {"type": "array", "elementType": "timestamp", "containsNull": True}
    by = {"type": "map", "keyType": "string", "valueType": "timestamp", "valueContainsNull": True}
    inner = [("at", "timestamp"), ("all", moment), ("by", by)]
    nested = {"type": "struct", "fields": [_field(name, kind) for name, kind in inner]}
    outer = [("id", "long"), ("at", "timestamp"), ("n", nested), ("p", "string")]
    return json.dumps({"type": "struct", "fields": [_field(name, kind) for name, kind in outer]})


def _field(name: str, kind: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": True, "metadata": {}}


def spans_table(table: Path, *versions: Sequence[datetime | None], **options: Any) -> HandLog:
    """Each version takes the file of the one before away and adds one of such rows."""
    described = metadata(COLUMNS, partition_by=["p"], **options)
    described["metaData"]["schemaString"] = spans_schema()
    log = HandLog(table).commit(protocol(1, 4), described, commit_info())
    values = {"partitionValues": {"p": "a"}}
    for number, ends in enumerate(versions):
        gone = [remove(f"{number - 1}.parquet", partitionValues={"p": "a"})] if number else []
        log.commit(*gone, put(table, f"{number}.parquet", spans(*ends), **values), commit_info())
    return log


def test_every_reader_of_rows_gives_int96_as_it_was_written(open_lake: OpenLake, root: Path) -> None:
    spans_table(root / "t", [END, FIRST, OURS])
    lake = open_lake(root)
    snapshot = lake.snapshot(lake.find("t"))
    rows = lake.read_files(snapshot).read_all().sort_by("id")
    assert rows.select(["id", "at", "n"]).to_pylist() == spans(END, FIRST, OURS).to_pylist()
    assert rows["p"].to_pylist() == ["a", "a", "a"]
    where = parse_filter("at > '2030-01-01'", fields(snapshot.metadata))
    assert lake.read_files(snapshot, columns=["id"], where=where).read_all()["id"].to_pylist() == [0]


def test_int96_that_changed_is_one_update_whoever_reads_it(open_lake: OpenLake, root: Path) -> None:
    later = FIRST + timedelta(days=1)
    spans_table(root / "t", [END, FIRST, OURS], [END, later, OURS])
    lake = open_lake(root)
    for columns in (("id", "at"), None):  # by DuckDB, and with nested columns by deltalake
        answer = diff(lake, lake.find("t"), 1, 2, key=("id",), columns=columns)
        assert answer.changes.net == NetCounts(0, 1, 0)
        (row,) = answer.changes.rows
        assert row.before is not None and row.after is not None
        assert (row.before["at"], row.after["at"]) == (FIRST, later)


def test_a_feed_that_its_reader_would_misread_is_not_read(open_lake: OpenLake, root: Path) -> None:
    spans_table(root / "t", [OURS], configuration=CHANGE_FEED)
    log = HandLog(root / "t", next_version=2)
    for kind, end in ((0, OURS + timedelta(days=1)), (1, END)):
        rows = spans(OURS, end).append_column("_change_type", [["update_preimage", "update_postimage"]])
        values = {"partitionValues": {"p": "a"}}
        change = put(root / "t", f"{kind}.cdc", rows, kind="cdc", **values)
        fresh = put(root / "t", f"{kind + 1}.parquet", spans(end), **values)
        log.commit(change, remove(f"{kind}.parquet", partitionValues={"p": "a"}), fresh, commit_info("UPDATE"))
    lake = open_lake(root)
    assert lake.changes(lake.find("t"), 1, 2, columns=["at"]).read_all()["at"].to_pylist()
    with pytest.raises(UnsupportedFeatureError, match=r"1\.cdc holds times before 1677 or after 2262 as INT96"):
        lake.changes(lake.find("t"), 2, 3)
    answer = diff(lake, lake.find("t"), 2, 3, key=("id",))
    assert (answer.method, answer.changes.net) == (DiffMethod.KEY_JOIN, NetCounts(0, 1, 0))
    assert any("misreads" in reason for reason in answer.reasons)
    *_, last = key_history(lake, lake.find("t"), (2, 3), {"id": 0})
    assert last.result is not None and not last.result.by_feed
    assert [(step.change.before or {})["at"] for step in last.result.steps] == [OURS + timedelta(days=1)]


def test_int96_on_an_object_store(tmp_path: Path) -> None:
    options = storage_options(server_url())
    make_bucket("far")
    spans_table(tmp_path / "t", [END, FIRST, OURS], [END, FIRST + timedelta(days=1), OURS])
    for path in (tmp_path / "t").rglob("*.*"):
        client().upload_file(str(path), "far", f"root/t/{path.relative_to(tmp_path / 't')}")
    given = {"roots": ["s3://far/root"], "storage_options": {"s3://far/root/": options}}
    lake = Lake(load_settings(home=tmp_path, lake=given))
    (ref,) = lake.tables()
    rows = lake.read_files(lake.snapshot(ref, 1)).read_all().sort_by("id")
    assert rows.select(["id", "at", "n"]).to_pylist() == spans(END, FIRST, OURS).to_pylist()
    assert diff(lake, ref, 1, 2, key=("id",)).changes.net == NetCounts(0, 1, 0)
