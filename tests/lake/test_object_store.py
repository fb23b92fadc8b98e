"""The lake on an S3 server: listed, read and contained as on a disk."""

import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import boto3
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from backend.errors import DataFileMissingError, PathRefusedError, TableNotFoundError
from backend.lake.lake import Lake
from backend.lake.model import UnreadableTable
from backend.settings import load_settings

ROOT = "s3://lake/root"


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """A server process of its own: deltalake holds the interpreter while it waits for an answer."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-c", f"from moto.server import main; main(['-H', '127.0.0.1', '-p', '{port}'])"]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(port, server)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(10)


def wait_for(port: int, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and server.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise AssertionError("the S3 server did not start")


@pytest.fixture(scope="module")
def options(endpoint) -> dict[str, str]:
    made = {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "hidden-secret",
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
        "AWS_S3_ALLOW_UNSAFE_RENAME": "true",
    }
    client(made).create_bucket(Bucket="lake")
    uri = f"{ROOT}/silver/events"
    feed = {"delta.enableChangeDataFeed": "true"}
    for number in range(3):
        rows = pa.table({"id": [number, number + 10], "p": ["a", "b"]})
        write_deltalake(uri, rows, mode="append", partition_by=["p"], storage_options=made, configuration=feed)
    return made


def client(options):
    return boto3.client(
        "s3",
        endpoint_url=options["AWS_ENDPOINT_URL"],
        aws_access_key_id="key",
        aws_secret_access_key="hidden-secret",
        region_name="us-east-1",
    )


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
    assert lake.rows(ref, limit=10).rows.num_rows == 6
    assert lake.changes(ref, 0, 2).read_all().num_rows == 4
    assert [t.num_rows for t in lake.timeline(ref).totals] == [2, 4, 6]


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
    delete(options, "root/grows/_delta_log/", ".json")
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
    delete(options, "root/torn/", ".parquet")
    lake = open_lake(options, tmp_path)
    with pytest.raises(DataFileMissingError):
        lake.rows(lake.find("torn"), limit=1)


def test_wrong_options_are_a_reason_without_the_secret(options, tmp_path):
    (problem,) = open_lake(options | {"AWS_BANANA": "hidden-secret"}, tmp_path).cards()
    assert isinstance(problem, UnreadableTable)
    assert "aws_banana" in problem.reason
    assert "hidden-secret" not in problem.reason + problem.hint


def delete(options, prefix: str, suffix: str) -> None:
    s3 = client(options)
    for item in s3.list_objects_v2(Bucket="lake", Prefix=prefix)["Contents"]:
        if item["Key"].endswith(suffix):
            s3.delete_object(Bucket="lake", Key=item["Key"])
