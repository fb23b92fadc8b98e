"""A lake on an S3 server: read and contained as on a disk; what goes wrong ends soon, named, without a secret."""

import logging
import traceback
from collections.abc import Iterator

import pyarrow as pa
import pytest
import structlog
from deltalake import DeltaTable, write_deltalake

from app.summary.view.data import in_order
from backend.errors import (
    DataFileMissingError,
    ObjectMissingError,
    PathRefusedError,
    SettingsError,
    StorageError,
    TableNotFoundError,
)
from backend.lake.model import UnreadableTable
from backend.lake.rows.rows import RowQuery
from backend.lake.rows.scan import delta_errors
from backend.lake.storage.object_store import REQUEST_TIME_OUT, RETRY_TIME_OUT, ObjectFolder, connect
from backend.lake.storage.storage import Storage
from backend.settings import load_settings
from tests.worlds.cases import few, soak
from tests.worlds.lake.builders import CHANGE_FEED, first_rows
from tests.worlds.lake.object_store import (
    KEY,
    SECRET,
    Fault,
    Proxy,
    client,
    delete_objects,
    free_port,
    lake_on,
    list_keys,
    make_bucket,
    proxy,
    server_url,
    storage_options,
)

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


# faults ---------------------------------------------------------------------------------------------------------------


FEW_TRIES = {"max_retries": "1", "timeout": "20s", "connect_timeout": "20s"}  # a busy machine is no silent server
SHORT = "400ms"
BODY = b"x" * 200_000


@pytest.fixture(scope="module")
def bucket() -> str:
    objects = {f"t/_delta_log/{version:020d}.json": BODY for version in range(40)}
    return make_bucket("faults", objects | {"t/file": BODY})


@pytest.fixture
def server() -> Iterator[Proxy]:
    with proxy() as made:
        yield made


def folder_at(endpoint: str, bucket: str = "faults", **more: str) -> ObjectFolder:
    return ObjectFolder(f"s3://{bucket}/t", f"s3://{bucket}", storage_options(endpoint) | FEW_TRIES | more)


def fails(read, *words: str) -> StorageError:
    """A server that hangs does so until the test ends: a read without a limit never comes back."""
    with pytest.raises(StorageError) as caught:
        read()
    error = caught.value
    assert not isinstance(error, ObjectMissingError)
    for word in words:
        assert word in error.message
    assert error.hint
    shown = "".join(traceback.format_exception(error)) + error.message + error.hint + str(error)
    assert SECRET not in shown
    return error


@pytest.mark.ci
@pytest.mark.parametrize(
    ("fault", "words"),
    [
        *soak((Fault.HANG, "did not answer in time")),
        (Fault.UNAVAILABLE, "answered 503"),
        (Fault.CUT, "broke off"),
        (Fault.DENIED, "denied (403)"),
    ],
)
def test_each_fault_ends_each_way_of_reading(bucket, server, fault, words):
    folder = folder_at(server.url, **({"timeout": SHORT} if fault is Fault.HANG else {}))
    server.fail(fault)
    place = f"s3://{bucket}/t/file"
    fails(lambda: folder.read("file"), place, words)
    fails(lambda: folder.open("file"), place, words)
    fails(lambda: folder.list_after("_delta_log", "", digits_only=True), f"s3://{bucket}/t/_delta_log", words)
    fails(lambda: folder.list("_delta_log"), f"s3://{bucket}/t/_delta_log", words)
    if fault is not Fault.CUT:  # the answer to HEAD has no body
        fails(lambda: folder.stat("file"), place)
    server.heal()
    assert folder_at(server.url).read("file") == BODY


@pytest.mark.ci
@pytest.mark.parametrize("fault", few(2, [Fault.UNAVAILABLE, Fault.CUT, Fault.HANG]))
def test_one_fault_is_not_noticed(bucket, server, fault):
    folder = folder_at(server.url, **({"timeout": "1s"} if fault is Fault.HANG else {}))
    for read in (lambda: folder.read("file"), lambda: folder.open("file").read(), lambda: len(folder.list(""))):
        server.forget()
        server.fail(fault, times=1)
        assert read() in (BODY, 2)
        assert fault is not Fault.CUT or server.sent_bytes("file") in (0, len(BODY)), "continued, not read again"


@pytest.mark.parametrize(
    "endpoint",
    ["http://127.0.0.1:{free}", "http://no-such-host.invalid", "http://user:hidden-secret@127.0.0.1:{free}"],
)
def test_a_server_that_is_not_there_is_named_without_its_password(endpoint):
    address = endpoint.replace("{free}", str(free_port()))
    host = address.rpartition("/")[2].rpartition("@")[2]
    folder = folder_at(address)
    error = fails(lambda: folder.read("file"), "s3://faults/t/file", f"{host} cannot be reached")
    assert "endpoint" in error.hint
    fails(lambda: folder.list_after("_delta_log", ""), "s3://faults/t/_delta_log", f"{host} cannot be reached")


@pytest.mark.ci
def test_many_reads_of_a_silent_server_end_as_one_does(bucket, server):
    """2,000 reads by 32 threads, each with its own time-out, would take a minute."""
    server.fail(Fault.HANG)
    folder = folder_at(server.url, timeout=SHORT)
    contents = folder.read_many([f"_delta_log/{version % 40:020d}.json" for version in range(2_000)])
    assert len(contents) == 2_000
    assert server.count() < 100, "after the first time-outs nobody asks any more"
    assert all(isinstance(content, StorageError) for content in contents)
    assert any("did not answer" in str(content) for content in contents)


@pytest.mark.ci
def test_one_denied_object_does_not_keep_the_others_from_being_read(bucket, server):
    server.fail(Fault.DENIED, where=f"{3:020d}.json")
    folder = folder_at(server.url)
    contents = folder.read_many([f"_delta_log/{version:020d}.json" for version in range(40)])
    assert [n for n, content in enumerate(contents) if isinstance(content, StorageError) or content.data != BODY] == [3]


def test_without_settings_a_read_ends_within_thirty_seconds():
    """No attempt starts after the first limit, none lasts longer than the second."""
    assert (RETRY_TIME_OUT + REQUEST_TIME_OUT).total_seconds() <= 30
    store = connect("s3://faults", ()).store
    assert store.client_options["timeout"] == f"{REQUEST_TIME_OUT.seconds}s"
    assert store.retry_config["retry_timeout"] == RETRY_TIME_OUT


@pytest.mark.ci
def test_a_missing_bucket_is_said(server):
    fails(lambda: folder_at(server.url, "no-such-bucket").list_after("_delta_log", ""), "no such bucket")


@pytest.mark.ci
def test_the_answer_of_a_server_is_not_repeated(bucket, server):
    """Amazon's answer to a wrong signature holds the key id and what was signed."""
    server.body = f"<Error><Code>InvalidAccessKeyId</Code><AWSAccessKeyId>{SECRET}</AWSAccessKeyId></Error>".encode()
    server.fail(Fault.DENIED)
    fails(lambda: folder_at(server.url).read("file"), "denied (403 InvalidAccessKeyId)")
    server.fail(Fault.UNAVAILABLE)
    fails(lambda: folder_at(server.url).read("file"), "answered 503")


def test_what_the_reader_of_rows_says_holds_no_credential(monkeypatch):
    """deltalake repeats the address that it asked for, and what the server answered."""
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "from-the-environment")
    load_settings()
    message = f"Error performing GET http://user:{SECRET}@host:1/x?sig=abc from-the-environment: error sending request"
    with pytest.raises(StorageError) as caught, delta_errors("s3://faults/t"):
        raise OSError(message)
    assert "http://host:1/x" in caught.value.message
    assert not any(word in caught.value.message for word in (SECRET, "sig=abc", "from-the-environment"))


@pytest.mark.parametrize(
    "options",
    [
        {"timeout": SECRET},
        {"max_retries": SECRET},
        {"retry_timeout": "-1s"},
        {"aws_banana": SECRET},
        {"aws_secret_access_key": SECRET, "aws_checksum_algorithm": SECRET},
        {"aws_endpoint": f"http://user:{SECRET}@", "aws_conditional_put": "banana"},
    ],
)
def test_options_that_cannot_work_are_refused_without_their_value(options):
    with pytest.raises(SettingsError) as caught:
        ObjectFolder("s3://faults/t", "s3://faults", options)
    assert SECRET not in "".join(traceback.format_exception(caught.value)) + caught.value.hint


@pytest.mark.parametrize(("text", "taken"), [("500ms",) * 2, ("30", "30s"), ("2 min", "2m"), ("1.5s", "1s 500ms")])
def test_time_outs_are_read_as_people_write_them(text, taken):
    store = connect("s3://faults", (("AWS_TIMEOUT", text),)).store
    assert store.client_options["timeout"] == taken


@pytest.mark.parametrize(
    "root", [f"s3://{KEY}id:{SECRET}@bucket/x", f"az://container/x?sig={SECRET}", f"abfss://user:{SECRET}@host/x"]
)
def test_a_root_with_credentials_in_its_address_is_refused(root, tmp_path):
    with pytest.raises(SettingsError) as caught:
        Storage(load_settings(home=tmp_path, lake={"roots": [root]}))
    assert SECRET not in str(caught.value) + caught.value.hint
    assert "WEIR_LAKE__STORAGE_OPTIONS" in caught.value.hint


@pytest.mark.parametrize(
    ("root", "options", "kind"),
    [
        ("s3://bucket/deep/root", {"AWS_ENDPOINT_URL": "http://localhost:9000"}, "S3Store"),
        ("s3a://bucket/root", {}, "S3Store"),
        ("az://container/root", {"azure_storage_account_name": "a", "azure_storage_account_key": "a2V5"}, "AzureStore"),
        ("abfss://container@account.dfs.core.windows.net/root", {"account_key": "a2V5"}, "AzureStore"),
        ("gs://bucket/root", {"google_skip_signature": "true"}, "GCSStore"),
    ],
)
def test_every_kind_of_root_is_opened_with_its_own_options(root, options, kind, tmp_path):
    storage = Storage(load_settings(home=tmp_path, lake={"roots": [root], "storage_options": {root: options}}))
    (normal,) = storage.roots
    folder = storage.folder(f"{normal}/silver/orders")
    assert folder.uri == f"{normal}/silver/orders"
    assert storage.options(folder.uri) == options
    assert type(connect(normal, tuple(sorted(options.items()))).store).__name__ == kind


@pytest.mark.ci
def test_credentials_come_from_the_environment_too(bucket, server, monkeypatch):
    for key, value in storage_options(server.url).items():
        monkeypatch.setenv(key, value)
    assert ObjectFolder("s3://faults/t", "s3://faults", {"allow_http": "true"}).read("file") == BODY


@pytest.mark.ci
def test_an_address_without_tls_is_refused_by_name_and_the_switch_is_told(server):
    options = {key: value for key, value in storage_options(server.url).items() if key != "AWS_ALLOW_HTTP"}
    with pytest.raises(StorageError) as refused:
        ObjectFolder("s3://faults/t", "s3://faults", options).read("file")
    assert f"{server.url} is not encrypted, which is refused" in refused.value.message
    assert "AWS_ALLOW_HTTP=true" in refused.value.hint


@pytest.mark.ci
def test_a_lake_on_a_failing_server_says_so_and_logs_no_secret(bucket, server, tmp_path, caplog, capfd):
    caplog.set_level(logging.DEBUG)
    server.fail(Fault.UNAVAILABLE, where="_delta_log")
    options = storage_options(server.url) | FEW_TRIES
    lake = lake_on("s3://faults", tmp_path, options)
    cards = lake.cards()
    assert cards
    assert all(isinstance(card, UnreadableTable) for card in cards)
    assert all("503" in card.reason for card in cards if isinstance(card, UnreadableTable))
    try:
        lake.find("s3://faults/t")
    except StorageError:
        structlog.get_logger().exception("failed")
    printed = capfd.readouterr()
    assert SECRET not in caplog.text + printed.out + printed.err + repr(cards)
