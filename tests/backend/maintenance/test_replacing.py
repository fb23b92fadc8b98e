"""Rows from a former version, planned: counted on both sides, and not under a stream that writes."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from backend.lake.lake import Lake
from backend.maintenance.model import ActPreview, Repair
from backend.maintenance.plan import preview
from backend.maintenance.readers import TableWriter, Users
from backend.settings import load_settings


def planned(home: Path, asked: Repair, *writers: TableWriter) -> ActPreview:
    settings = load_settings(home=home)
    lake = Lake(settings)
    return preview(settings, lake, lake.find("orders"), asked, Users(writers), now=datetime.now(UTC))


def test_both_sides_are_counted_and_a_running_writer_refuses(tmp_path: Path) -> None:
    uri = tmp_path / "lake" / "orders"
    write_deltalake(uri, pa.table({"id": [1, 2, 3, 4, None]}))
    DeltaTable(uri).delete("id = 2")
    write_deltalake(uri, pa.table({"id": [3]}), mode="append")
    asked = Repair("id < 4", from_version=0)
    counted = planned(tmp_path, asked)
    assert (counted.figures["rows"], counted.figures["rows_in"], counted.refused) == (3, 3, "")
    assert counted.effect == "rows that go: 3; rows of v0 that come: 3" and counted.typed
    stopped, running = (TableWriter("load", "append", stopped=is_stopped) for is_stopped in (True, False))
    assert planned(tmp_path, asked, stopped).refused == ""
    assert planned(tmp_path, asked, running).refused == "load may write it meanwhile"
    stops = replace(asked, stops_writers=True)
    let = planned(tmp_path, stops, running)
    assert let.refused == "" and "load is stopped first, and started again after" in let.notes
    elsewhere = replace(running, application="etl")
    assert planned(tmp_path, stops, elsewhere).refused == "load of another application may write it meanwhile"
    write_deltalake(uri, pa.table({"id": ["x"]}), mode="overwrite", schema_mode="overwrite")
    assert (
        "the columns of v0 are others: id bigint, here string" in planned(tmp_path, Repair("id < '4'", {}, 0)).refused
    )
