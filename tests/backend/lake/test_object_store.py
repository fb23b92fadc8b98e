"""The lake on an S3 server: listed, read and contained as on a disk."""

import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from app.summary.view.data import in_order
from backend.errors import DataFileMissingError, PathRefusedError, TableNotFoundError
from backend.lake.model import UnreadableTable
from backend.lake.rows.rows import RowQuery
from backend.lake.storage.storage import Storage
from backend.lake.table.schema import fields
from backend.settings import load_settings
from backend.sql.export import FORMATS, encoded
from backend.sql.filters import parse_filter
from tests.worlds.lake.builders import CHANGE_FEED, first_rows
from tests.worlds.lake.object_store import (
    SECRET,
    client,
    delete_objects,
    lake_on,
    list_keys,
    make_bucket,
    server_url,
    storage_options,
)

pytestmark = pytest.mark.xdist_group("s3")
ROOT = "s3://lake/root"
EVENTS = f"{ROOT}/silver/events"


@pytest.fixture(scope="module")
def options() -> dict[str, str]:
    made = storage_options(server_url())
    make_bucket("lake")
    for number in range(3):
        rows = pa.table({"id": [number, number + 10], "p": ["a", "b"]})
        more = {"partition_by": ["p"], "configuration": CHANGE_FEED}
        write_deltalake(EVENTS, rows, mode="append", storage_options=made, **more)
    return made


@pytest.fixture
def lake(options, tmp_path):
    return lake_on(ROOT, tmp_path, options)


def delete(prefix: str, suffix: str) -> None:
    delete_objects("lake", [key for key in list_keys("lake", prefix) if key.endswith(suffix)])


def scanned(options, version=None, predicate=None) -> list[dict]:
    table = DeltaTable(EVENTS, version=version, storage_options=options)
    return pa.RecordBatchReader.from_stream(table.scan(predicate=predicate)).read_all().to_pylist()


def test_tables_on_s3_are_found_and_read(lake, options):
    (ref,) = [ref for ref in lake.tables() if ref.name == "silver/events"]
    assert (ref.uri, ref.layer) == (EVENTS, "silver")
    assert lake.find("s3a://lake/root/silver/events/") == ref
    card = lake.card(ref)
    assert (card.version, card.num_files, card.num_rows) == (2, 6, 6)
    assert len(lake.history(ref)) == 3
    assert first_rows(lake, ref, limit=10).rows.num_rows == 6
    assert lake.changes(ref, 0, 2).read_all().num_rows == 4
    assert [t.num_rows for t in lake.timeline(ref).totals] == [2, 4, 6]
    page = lake.find_rows(lake.snapshot(ref), RowQuery(("id", "p"), limit=100))
    rows = sorted(scanned(options), key=lambda row: row["id"])
    assert in_order(page.rows, "id, rising").to_pylist() == rows
    assert in_order(page.rows, "id, falling").to_pylist() == rows[::-1]


@pytest.mark.parametrize("form", ["csv", pytest.param("parquet", marks=pytest.mark.ci), "arrow"])
def test_an_export_holds_every_row_that_deltalake_reads(lake, options, form):
    snapshot = lake.snapshot(lake.find(EVENTS), 1)
    where = parse_filter("id > 0", fields(snapshot.metadata))
    pieces = list(encoded(lake.read_files(snapshot, columns=("id", "p"), where=where), FORMATS[form]))
    opener = {"csv": pc.read_csv, "parquet": pq.read_table, "arrow": lambda file: pa.ipc.open_file(file).read_all()}
    rows = opener[form](pa.BufferReader(b"".join(piece for _, piece in pieces))).to_pylist()
    assert sorted(map(repr, rows)) == sorted(map(repr, scanned(options, version=1, predicate="id > 0")))
    assert sum(number for number, _ in pieces) == len(rows) == 3


def test_a_new_commit_and_a_checkpoint_are_seen(lake, options, tmp_path):
    uri, rows = f"{ROOT}/grows", pa.table({"id": [1]})
    write_deltalake(uri, rows, storage_options=options)
    ref = lake.find("grows")
    assert lake.latest_version(ref) == 0
    write_deltalake(uri, rows, mode="append", storage_options=options)
    assert lake.card(ref).num_rows == 2
    DeltaTable(uri, storage_options=options).create_checkpoint()
    delete("root/grows/_delta_log/", ".json")
    assert lake_on(ROOT, tmp_path, options).card(ref).num_rows == 2


def test_places_outside_the_root_are_refused(lake):
    for uri in ("s3://lake/rootless", "s3://lake/root/../other", "s3://other/root", "gs://lake/root"):
        with pytest.raises(PathRefusedError):
            lake.find(uri)
    with pytest.raises(TableNotFoundError):
        lake.find(f"{ROOT}/nothing")


def test_a_deleted_data_file_is_named(lake, options):
    write_deltalake(f"{ROOT}/torn", pa.table({"id": [1]}), storage_options=options)
    delete("root/torn/", ".parquet")
    with pytest.raises(DataFileMissingError):
        first_rows(lake, lake.find("torn"), limit=1)


def test_wrong_options_are_a_reason_without_the_secret(options, tmp_path):
    (problem,) = lake_on(ROOT, tmp_path, options | {"AWS_BANANA": SECRET}).cards()
    assert isinstance(problem, UnreadableTable)
    assert "aws_banana" in problem.reason
    assert SECRET not in problem.reason + problem.hint


def test_the_markers_that_hadoop_leaves_for_folders_are_no_files(options, tmp_path):
    for name in ("marked/", "marked/offsets/", "marked/offsets/0", "marked/offsets/1"):
        client().put_object(Bucket="lake", Key=f"root/{name}", Body=b"" if name.endswith("/") else b"v1")
    settings = load_settings(home=tmp_path, lake={"roots": [ROOT], "storage_options": {ROOT: options}})
    folder = Storage(settings).folder(f"{ROOT}/marked")
    assert [entry.name for entry in folder.list_after("offsets", "", digits_only=True)] == ["0", "1"]
    assert [entry.name for entry in folder.list_after("offsets", "0", digits_only=True)] == ["1"]
    assert [entry.name for entry in folder.list("offsets")] == ["0", "1"]
    assert [(entry.name, entry.is_folder) for entry in folder.list("")] == [("offsets", True)]


@pytest.mark.parametrize("place", ["s3://lake", f"{ROOT}/"])
def test_options_of_a_bucket_are_those_of_every_root_in_it(options, tmp_path, place):
    settings = load_settings(home=tmp_path, lake={"roots": [ROOT], "storage_options": {place: options}})
    assert len(Storage(settings).folder(f"{EVENTS}/_delta_log").list("")) == 3
