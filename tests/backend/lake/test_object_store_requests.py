"""What reading costs on an object store: requests and bytes, counted by a proxy before the server."""

import io
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from backend.errors import ObjectMissingError, StorageError
from backend.lake.lake import Lake
from backend.lake.storage.object_store import PIECE_BYTES, ObjectFolder
from tests.worlds.lake.builders import HandLog, add, commit_info, metadata, protocol, put
from tests.worlds.lake.object_store import (
    Proxy,
    bucket_of,
    client,
    delete_objects,
    lake_on,
    list_keys,
    make_bucket,
    proxy,
    storage_options,
)
from tests.worlds.processes import wait_until

pytestmark = [pytest.mark.ci]


@pytest.fixture
def server() -> Iterator[Proxy]:
    with proxy() as made:
        yield made


# a folder and its files -----------------------------------------------------------------------------------------------

COMMITS = 120
TEN_COLUMNS = pa.table({f"c{n}": np.random.default_rng(n).integers(0, 1 << 60, 40_000) for n in range(10)})


@pytest.fixture(scope="module")
def data() -> bytes:
    sink = io.BytesIO()
    pq.write_table(TEN_COLUMNS, sink, row_group_size=20_000, compression="none", use_dictionary=False)
    return sink.getvalue()


@pytest.fixture(scope="module")
def file_bucket(data) -> str:
    log = "t/_delta_log"
    objects = {f"{log}/{version:020d}.json": b"{}" for version in range(COMMITS)}
    objects |= {f"{log}/_sidecars/{number}.parquet": b"x" for number in range(60)}
    objects |= {f"{log}/_last_checkpoint": b"{}", f"{log}/.tmp": b"", f"{log}/{50:020d}.d/deeper": b""}
    objects |= {"t/wide.parquet": data, "t/empty": b"", "t/small": b"abc", "tt/other": b""}
    return make_bucket("requests", objects)


@pytest.fixture
def folder(file_bucket, server) -> ObjectFolder:
    return ObjectFolder(f"s3://{file_bucket}/t", f"s3://{file_bucket}", storage_options(server.url))


def commit(version: int) -> str:
    return f"{version:020d}.json"


def test_names_after_a_name_cost_one_request_and_hold_size_time_and_tag(folder, server):
    entries = folder.list_after("_delta_log", commit(COMMITS - 3), digits_only=True)
    assert [entry.name for entry in entries] == [commit(COMMITS - 2), commit(COMMITS - 1)]
    assert all(e.size_bytes == 2 and e.modified_at is not None and e.tag for e in entries)
    assert [(r.kind, r.key) for r in server.requests] == [("LIST", "t/_delta_log/")]
    assert folder.list_after("_delta_log", commit(COMMITS - 1), digits_only=True) == []
    assert server.count() == 2


def test_a_server_that_takes_no_notice_of_the_start_makes_no_difference(folder, server):
    server.forgets_start = True
    entries = folder.list_after("_delta_log", commit(COMMITS - 3), digits_only=True)
    assert [entry.name for entry in entries] == [commit(COMMITS - 2), commit(COMMITS - 1)]


def test_pages_behind_the_commits_are_not_asked_for(folder, server):
    server.page_size = 50
    assert len(folder.list_after("_delta_log", "", digits_only=True)) == COMMITS
    assert server.count("LIST") == 3, "the fourth and fifth page hold sidecars alone"
    server.forget()
    everything = [entry.name for entry in folder.list_after("_delta_log", "")]
    assert everything == sorted([".tmp", "_last_checkpoint", *(commit(v) for v in range(COMMITS))])
    assert server.count("LIST") == 4, "a listing of everything reads every page"


def test_names_are_those_of_the_folder_alone(folder):
    assert [entry.name for entry in folder.list_after("", "")] == ["empty", "small", "wide.parquet"]
    assert [entry.name for entry in folder.list_after("", "small")] == ["wide.parquet"]
    assert folder.list_after("nothing", "") == []
    assert (folder.holds("_delta_log"), folder.holds("nothing")) == (True, False)


@pytest.mark.parametrize("is_size_known", [True, False])
def test_two_columns_of_ten_cost_their_bytes_and_the_footer(folder, server, data, is_size_known):
    size = len(data) if is_size_known else None
    with pq.ParquetFile(folder.open("wide.parquet", size_bytes=size), pre_buffer=True) as file:
        wanted = [file.metadata.row_group(g).column(c).total_compressed_size for g in range(2) for c in (2, 7)]
        assert file.read(["c2", "c7"]).equals(TEN_COLUMNS.select(["c2", "c7"]))
    assert server.sent_bytes("wide") <= sum(wanted) + 64 * 1024 + 1024
    assert server.sent_bytes("wide") < len(data) / 3
    assert server.count("GET", "wide") == server.count() == 1 + 4, "the footer, and each column of each row group"


def test_all_columns_are_joined_into_few_requests(folder, server):
    with pq.ParquetFile(folder.open("wide.parquet"), pre_buffer=True) as file:
        assert file.read().equals(TEN_COLUMNS)
    assert server.count() <= 3


def test_a_file_is_read_at_any_place(folder, data):
    with folder.open("wide.parquet") as file:
        assert file.size() == len(data)
        for start, length in ((0, 10), (len(data) - 70_000, 20_000), (len(data) - 5, 50), (len(data), 3)):
            file.seek(start)
            assert file.read(length) == data[start : start + length]
    assert folder.open("small").read() == b"abc"
    assert folder.open("small", size_bytes=3).read() == b"abc"
    assert folder.open("empty").read() == b""
    with pytest.raises(ObjectMissingError):
        folder.open("none")


def test_readers_of_their_own_run_side_by_side(folder):
    def is_right(column: str) -> bool:
        with pq.ParquetFile(folder.open("wide.parquet"), pre_buffer=True) as file:
            return file.read([column])[column].equals(TEN_COLUMNS[column])

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(is_right, TEN_COLUMNS.column_names))


def test_a_file_that_changes_while_it_is_read_is_an_error_and_no_mixture(file_bucket, folder, data):
    client().put_object(Bucket=file_bucket, Key="t/changing", Body=data)
    with folder.open("changing") as file:
        client().put_object(Bucket=file_bucket, Key="t/changing", Body=data[::-1])
        with pytest.raises(StorageError, match="changed while it was read"):
            file.read(100)


def test_a_large_object_is_read_piece_by_piece(file_bucket, folder, server):
    content = b"0123456789abcdef" * (PIECE_BYTES // 16) + b"end"
    client().put_object(Bucket=file_bucket, Key="t/large", Body=content)
    assert folder.read("large") == content
    assert server.count("GET", "large") == 3, "one to learn the size, two pieces"


def test_many_are_read_side_by_side_and_what_fails_takes_its_place(folder, server):
    server.gathers = 16
    paths = [f"_delta_log/{commit(v)}" for v in range(62)]
    contents = folder.read_many([*paths, "none", "small"])
    assert [content.data for content in contents[:62]] == [b"{}"] * 62
    assert isinstance(contents[62], ObjectMissingError)
    assert contents[63].data == b"abc"
    assert server.count("GET") == 64
    # The proxy counts an answer until its thread goes on, which may be after the next request came.
    assert server.are_gathered and server.most_at_once <= 40


# a table --------------------------------------------------------------------------------------------------------------

VERSIONS = 150
POLL_S = 0.05
TABLE = "s3://budgets/t"


@pytest.fixture(scope="module")
def log_bucket(tmp_path_factory) -> str:
    """150 commits, a checkpoint at 100, and sidecars of old ones."""
    folder = tmp_path_factory.mktemp("budgets")
    log = HandLog(folder / "t").start()
    for number in range(1, VERSIONS):
        log.commit(add(f"part-{number}.parquet"), commit_info("WRITE", timestamp=1_700_000_000_000 + number))
    log.checkpoint(100, [protocol(), metadata(), *(add(f"part-{number}.parquet") for number in range(1, 101))])
    log.raw("_last_checkpoint", '{"version": 100, "size": 102}')
    for number in range(20):
        put(log.log, f"_sidecars/{number:04d}.parquet", {})
    bucket = bucket_of("budgets", folder)
    assert len(list_keys(bucket, "t/_delta_log/")) == VERSIONS + 20 + 2
    return bucket


@pytest.fixture
def lake(log_bucket, server, tmp_path) -> Lake:
    return lake_on(f"s3://{log_bucket}", tmp_path, storage_options(server.url), POLL_S)


def next_look(is_answered: Callable[[], object]) -> None:
    wait_until(is_answered, "the next look", pause_s=POLL_S / 5)  # many viewers ask more often than the lake looks


def test_the_newest_hundred_commits_cost_a_hundred_and_two_requests(lake, server):
    ref = lake.find(TABLE)
    server.forget()
    server.gathers = 16
    history = lake.history(ref, limit=100)
    assert [commit.version for commit in history] == list(range(VERSIONS - 1, VERSIONS - 101, -1))
    assert server.count() <= 102, sorted((r.kind, r.key) for r in server.requests)
    assert server.count("GET", ".checkpoint.") == 0
    assert server.are_gathered, "read side by side"


def test_a_look_that_finds_nothing_new_costs_one_request(lake, server):
    ref = lake.find(TABLE)
    assert lake.latest_version(ref) == VERSIONS - 1
    for _ in range(3):
        server.forget()
        next_look(lambda: lake.latest_version(ref) == VERSIONS - 1 and server.count())
        assert server.count() == 1


def test_one_new_commit_costs_the_look_and_the_commit(lake, server, log_bucket, tmp_path):
    ref = lake.find(TABLE)
    assert lake.snapshot(ref).num_files == 149
    new = HandLog(tmp_path / "new", next_version=VERSIONS)
    new.commit(add("new.parquet"), commit_info("WRITE", timestamp=1_700_000_001_000))
    (path,) = new.log.iterdir()
    key = f"t/_delta_log/{path.name}"
    client().put_object(Bucket=log_bucket, Key=key, Body=path.read_bytes())
    try:
        server.forget()
        next_look(lambda: lake.snapshot(ref).num_files == 150)
        assert server.count() <= 2, sorted((r.kind, r.key) for r in server.requests)
        assert server.count("GET") == 1
    finally:
        delete_objects(log_bucket, [key])


# the catalog ----------------------------------------------------------------------------------------------------------

FOLDERS, TABLES = 3, 24


@pytest.fixture(scope="module")
def catalog_bucket(tmp_path_factory) -> str:
    """Tables in three folders, each with data files that nobody needs to list."""
    folder = tmp_path_factory.mktemp("catalog")
    for number in range(TABLES):
        log = HandLog(folder / f"layer{number % FOLDERS}" / f"t{number:02d}").start()
        log.commit(*(put(log.table, f"day={day}/a", {}, rows=10, size=100) for day in range(5)))
    return bucket_of("catalog", folder)


@pytest.fixture
def catalog(catalog_bucket, server, tmp_path) -> Lake:
    return lake_on(f"s3://{catalog_bucket}", tmp_path, storage_options(server.url))


def test_a_walk_asks_once_for_a_table_and_never_lists_one(catalog, server):
    assert len(catalog.tables()) == TABLES
    assert server.count() == TABLES + 2 * (FOLDERS + 1)
    assert not [request.key for request in server.requests if "day=" in request.key]
    server.forget()
    assert len(catalog.tables()) == TABLES
    assert server.count() == 2 * (FOLDERS + 1)  # known tables are not asked for again


def test_the_next_process_asks_once_for_an_unchanged_table_and_keeps_no_secret(catalog, server, tmp_path):
    first = {card.ref.name: card for card in catalog.read_cards(catalog.tables())}
    later = lake_on("s3://catalog", tmp_path, storage_options(server.url))
    refs = later.tables()
    server.forget()
    assert {card.ref.name: card for card in later.read_cards(refs)} == first
    assert server.count() == TABLES
    (kept,) = (tmp_path / "cache" / "cards").iterdir()
    secrets = [value for name, value in storage_options(server.url).items() if "secret" in name.lower()]
    assert secrets and not any(secret in kept.read_text() for secret in secrets)


def test_an_unchanged_table_costs_one_request_and_a_changed_one_is_noticed(catalog, server, catalog_bucket, tmp_path):
    refs = catalog.tables()
    list(catalog.read_cards(refs))
    server.forget()
    cards = list(catalog.read_cards(refs))
    assert server.count() == TABLES and {card.num_files for card in cards} == {5}
    new = HandLog(tmp_path / "new", next_version=2)
    new.commit(add("b"))
    (path,) = new.log.iterdir()
    key = f"layer0/t00/_delta_log/{path.name}"
    client().put_object(Bucket=catalog_bucket, Key=key, Body=path.read_bytes())
    try:
        found = {card.ref.name: (card.version, card.num_files) for card in catalog.read_cards(refs)}
    finally:
        client().delete_object(Bucket=catalog_bucket, Key=key)
    assert found.pop("layer0/t00") == (2, 6) and set(found.values()) == {(1, 5)}
