"""What reading costs on an object store: requests and bytes, counted by the server's own proxy."""

import io
import threading
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from backend.errors import ObjectMissingError, StorageError
from backend.lake.storage.object_folder import PIECE_BYTES, ObjectFolder
from tests.worlds.lake.object_store import Proxy, client, make_bucket, proxy, storage_options

BUCKET = "requests"
COMMITS = 120
TEN_COLUMNS = pa.table({f"c{n}": np.random.default_rng(n).integers(0, 1 << 60, 40_000) for n in range(10)})


def parquet_bytes(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=20_000, compression="none", use_dictionary=False)
    return sink.getvalue()


@pytest.fixture(scope="module")
def data() -> bytes:
    return parquet_bytes(TEN_COLUMNS)


@pytest.fixture(scope="module")
def bucket(data) -> str:
    log = "t/_delta_log"
    objects = {f"{log}/{version:020d}.json": b"{}" for version in range(COMMITS)}
    objects |= {f"{log}/_sidecars/{number}.parquet": b"x" for number in range(60)}
    objects |= {f"{log}/_last_checkpoint": b"{}", f"{log}/.tmp": b"", f"{log}/{50:020d}.d/deeper": b""}
    objects |= {"t/wide.parquet": data, "t/empty": b"", "t/small": b"abc", "tt/other": b""}
    return make_bucket(BUCKET, objects)


@pytest.fixture
def seen() -> Iterator[Proxy]:
    with proxy() as found:
        yield found


@pytest.fixture
def folder(bucket, seen) -> ObjectFolder:
    return ObjectFolder(f"s3://{bucket}/t", f"s3://{bucket}", storage_options(seen.url))


def commit(version: int) -> str:
    return f"{version:020d}.json"


def test_names_after_a_name_cost_one_request_and_hold_size_time_and_tag(folder, seen):
    found = folder.list_after("_delta_log", commit(COMMITS - 3), digits_only=True)
    assert [entry.name for entry in found] == [commit(COMMITS - 2), commit(COMMITS - 1)]
    assert all(e.size_bytes == 2 and e.modified_at is not None and e.tag for e in found)
    assert [(r.kind, r.key) for r in seen.requests] == [("LIST", "t/_delta_log/")]


def test_nothing_new_costs_one_request(folder, seen):
    assert folder.list_after("_delta_log", commit(COMMITS - 1), digits_only=True) == []
    assert seen.count() == 1


def test_a_server_that_takes_no_notice_of_the_start_makes_no_difference(folder, seen):
    seen.forgets_start = True
    found = folder.list_after("_delta_log", commit(COMMITS - 3), digits_only=True)
    assert [entry.name for entry in found] == [commit(COMMITS - 2), commit(COMMITS - 1)]


def test_pages_behind_the_commits_are_not_asked_for(folder, seen):
    seen.page_size = 50
    assert len(folder.list_after("_delta_log", "", digits_only=True)) == COMMITS
    assert seen.count("LIST") == 3, "the fourth and fifth page hold sidecars alone"
    seen.forget()
    everything = [entry.name for entry in folder.list_after("_delta_log", "")]
    assert everything == sorted([".tmp", "_last_checkpoint", *(commit(v) for v in range(COMMITS))])
    assert seen.count("LIST") == 4, "a listing of everything reads every page"


def test_names_are_those_of_the_folder_alone(folder):
    assert [entry.name for entry in folder.list_after("", "")] == ["empty", "small", "wide.parquet"]
    assert [entry.name for entry in folder.list_after("", "small")] == ["wide.parquet"]
    assert folder.list_after("nothing", "") == []
    assert (folder.holds("_delta_log"), folder.holds("nothing")) == (True, False)


@pytest.mark.parametrize("is_size_known", [True, False])
def test_two_columns_of_ten_cost_their_bytes_and_the_footer(folder, seen, data, is_size_known):
    size = len(data) if is_size_known else None
    with pq.ParquetFile(folder.open("wide.parquet", size_bytes=size), pre_buffer=True) as file:
        wanted = [file.metadata.row_group(g).column(c).total_compressed_size for g in range(2) for c in (2, 7)]
        assert file.read(["c2", "c7"]).equals(TEN_COLUMNS.select(["c2", "c7"]))
    assert seen.sent_bytes("wide") <= sum(wanted) + 64 * 1024 + 1024
    assert seen.sent_bytes("wide") < len(data) / 3
    assert seen.count("GET", "wide") == seen.count() == 1 + 4, "the footer, and each column of each row group"


def test_all_columns_are_joined_into_few_requests(folder, seen):
    with pq.ParquetFile(folder.open("wide.parquet"), pre_buffer=True) as file:
        assert file.read().equals(TEN_COLUMNS)
    assert seen.count() <= 3


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
    failed: list[str] = []

    def read(column: str) -> None:
        with pq.ParquetFile(folder.open("wide.parquet"), pre_buffer=True) as file:
            if not file.read([column])[column].equals(TEN_COLUMNS[column]):
                failed.append(column)

    threads = [threading.Thread(target=read, args=(f"c{n}",)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert failed == []
    assert not any(thread.is_alive() for thread in threads)


def test_a_file_that_changes_while_it_is_read_is_an_error_and_no_mixture(bucket, folder, data):
    client().put_object(Bucket=bucket, Key="t/changing", Body=data)
    with folder.open("changing") as file:
        client().put_object(Bucket=bucket, Key="t/changing", Body=data[::-1])
        with pytest.raises(StorageError, match="changed while it was read"):
            file.read(100)


def test_a_large_object_is_read_piece_by_piece(bucket, folder, seen):
    content = b"0123456789abcdef" * (PIECE_BYTES // 16) + b"end"
    client().put_object(Bucket=bucket, Key="t/large", Body=content)
    assert folder.read("large") == content
    assert seen.count("GET", "large") == 3, "one to learn the size, two pieces"


def test_many_are_read_side_by_side_and_what_fails_takes_its_place(folder, seen):
    seen.gathers = 16
    paths = [f"_delta_log/{commit(v)}" for v in range(62)]
    found = folder.read_many([*paths, "none", "small"])
    assert [content.data for content in found[:62]] == [b"{}"] * 62
    assert isinstance(found[62], ObjectMissingError)
    assert found[63].data == b"abc"
    assert seen.count("GET") == 64
    # The proxy counts an answer until its thread goes on, which may be after the next request came.
    assert seen.are_gathered and seen.most_at_once <= 40
