"""The lake on an S3 server: listed, read and contained as on a disk."""

import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from app.summary.view.data import in_order
from backend.errors import DataFileMissingError, PathRefusedError, TableNotFoundError
from backend.lake.lake import Lake
from backend.lake.model import UnreadableTable
from backend.lake.rows.rows import RowQuery
from backend.lake.storage.storage import Storage
from backend.lake.table.schema import fields
from backend.settings import load_settings
from backend.sql.export import FORMATS, encoded
from backend.sql.filters import parse_filter
from tests.worlds.lake.builders import first_rows
from tests.worlds.lake.object_store import (
    SECRET,
    client,
    delete_objects,
    list_keys,
    make_bucket,
    server_url,
    storage_options,
)

ROOT = "s3://lake/root"


@pytest.fixture(scope="module")
def options() -> dict[str, str]:
    made = storage_options(server_url())
    make_bucket("lake")
    uri = f"{ROOT}/silver/events"
    feed = {"delta.enableChangeDataFeed": "true"}
    for number in range(3):
        rows = pa.table({"id": [number, number + 10], "p": ["a", "b"]})
        write_deltalake(uri, rows, mode="append", partition_by=["p"], storage_options=made, configuration=feed)
    return made


def open_lake(options, tmp_path) -> Lake:
    lake = {"roots": [ROOT], "storage_options": {ROOT + "/": options}, "refresh_s": 0.001}
    return Lake(load_settings(home=tmp_path, lake=lake))


def test_tables_on_s3_are_found_and_read(options, tmp_path):
    lake = open_lake(options, tmp_path)
    (ref,) = [ref for ref in lake.tables() if ref.name == "silver/events"]
    assert (ref.uri, ref.layer) == (f"{ROOT}/silver/events", "silver")
    assert lake.find("s3a://lake/root/silver/events/") == ref
    card = lake.card(ref)
    assert (card.version, card.num_files, card.num_rows) == (2, 6, 6)
    assert len(lake.history(ref)) == 3
    assert first_rows(lake, ref, limit=10).rows.num_rows == 6
    assert lake.changes(ref, 0, 2).read_all().num_rows == 4
    assert [t.num_rows for t in lake.timeline(ref).totals] == [2, 4, 6]


@pytest.mark.parametrize("form", ["csv", "parquet", "arrow"])
def test_an_export_holds_every_row_that_deltalake_reads(options, tmp_path, form):
    lake = open_lake(options, tmp_path)
    uri, where = f"{ROOT}/silver/events", "id > 0"
    snapshot = lake.snapshot(lake.find(uri), 1)
    where_filter = parse_filter(where, fields(snapshot.metadata))
    rows = lake.read_files(snapshot, columns=("id", "p"), where=where_filter)
    pieces = list(encoded(rows, FORMATS[form]))
    kept = b"".join(piece for _, piece in pieces)
    opener = {
        "csv": lambda file: pc.read_csv(file),
        "parquet": pq.read_table,
        "arrow": lambda file: pa.ipc.open_file(file).read_all(),
    }[form]
    wanted = scanned(uri, options, version=1, predicate=where)
    assert sorted(map(repr, opener(pa.BufferReader(kept)).to_pylist())) == sorted(map(repr, wanted.to_pylist()))
    assert sum(number for number, _ in pieces) == wanted.num_rows == 3


@pytest.mark.parametrize(("order", "is_falling"), [("id, rising", False), ("id, falling", True)])
def test_rows_of_the_data_page_are_sorted(options, tmp_path, order, is_falling):
    lake = open_lake(options, tmp_path)
    uri = f"{ROOT}/silver/events"
    page = lake.find_rows(lake.snapshot(lake.find(uri)), RowQuery(("id", "p"), limit=100))
    wanted = sorted(scanned(uri, options).to_pylist(), key=lambda row: row["id"], reverse=is_falling)
    assert in_order(page.rows, order).to_pylist() == wanted and len(wanted) == 6


def scanned(uri: str, options: dict[str, str], version: int | None = None, predicate: str | None = None) -> pa.Table:
    reader = DeltaTable(uri, version=version, storage_options=options).scan(predicate=predicate)
    return pa.RecordBatchReader.from_stream(reader).read_all()


def test_a_new_commit_and_a_checkpoint_are_seen(options, tmp_path):
    uri = f"{ROOT}/grows"
    rows = pa.table({"id": [1]})
    write_deltalake(uri, rows, storage_options=options)
    lake = open_lake(options, tmp_path)
    ref = lake.find("grows")
    assert lake.latest_version(ref) == 0
    write_deltalake(uri, rows, mode="append", storage_options=options)
    assert lake.card(ref).num_rows == 2
    DeltaTable(uri, storage_options=options).create_checkpoint()
    delete("root/grows/_delta_log/", ".json")
    assert open_lake(options, tmp_path).card(ref).num_rows == 2


def test_places_outside_the_root_are_refused(options, tmp_path):
    lake = open_lake(options, tmp_path)
    for uri in ("s3://lake/rootless", "s3://lake/root/../other", "s3://other/root", "gs://lake/root"):
        with pytest.raises(PathRefusedError):
            lake.find(uri)
    with pytest.raises(TableNotFoundError):
        lake.find(f"{ROOT}/nothing")


def test_a_deleted_data_file_is_named(options, tmp_path):
    write_deltalake(f"{ROOT}/torn", pa.table({"id": [1]}), storage_options=options)
    delete("root/torn/", ".parquet")
    lake = open_lake(options, tmp_path)
    with pytest.raises(DataFileMissingError):
        first_rows(lake, lake.find("torn"), limit=1)


def test_wrong_options_are_a_reason_without_the_secret(options, tmp_path):
    (problem,) = open_lake(options | {"AWS_BANANA": SECRET}, tmp_path).cards()
    assert isinstance(problem, UnreadableTable)
    assert "aws_banana" in problem.reason
    assert SECRET not in problem.reason + problem.hint


def delete(prefix: str, suffix: str) -> None:
    delete_objects("lake", [key for key in list_keys("lake", prefix) if key.endswith(suffix)])


def test_the_markers_that_hadoop_leaves_for_folders_are_no_files(options, tmp_path):
    names = ("root/marked/", "root/marked/offsets/", "root/marked/offsets/0", "root/marked/offsets/1")
    for name in names:
        client().put_object(Bucket="lake", Key=name, Body=b"" if name.endswith("/") else b"v1")
    settings = load_settings(home=tmp_path, lake={"roots": [ROOT], "storage_options": {ROOT: options}})
    folder = Storage(settings).folder(f"{ROOT}/marked")
    assert [each.name for each in folder.list_after("offsets", "", digits_only=True)] == ["0", "1"]
    assert [each.name for each in folder.list_after("offsets", "0", digits_only=True)] == ["1"]
    assert [each.name for each in folder.list("offsets")] == ["0", "1"]
    assert [(each.name, each.is_folder) for each in folder.list("")] == [("offsets", True)]


def test_options_of_a_bucket_are_those_of_every_root_in_it(options, tmp_path):
    lake = {"roots": [ROOT], "storage_options": {"s3://lake": options}}
    opened = Lake(load_settings(home=tmp_path, lake=lake))
    assert opened.card(opened.find("silver/events")).num_rows == 6
