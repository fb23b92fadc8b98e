"""How many requests a question about a table may cost on an object store, counted before the server."""

from collections.abc import Callable, Iterator

import pytest

from backend.lake.lake import Lake
from backend.settings import load_settings
from tests.worlds.lake.builders import HandLog, add, commit_info, metadata, protocol
from tests.worlds.lake.object_store import Proxy, client, delete_objects, list_keys, make_bucket, proxy, storage_options
from tests.worlds.processes import wait_until

BUCKET = "budgets"
ROOT = f"s3://{BUCKET}"
COMMITS = 150
POLL_S = 0.05


@pytest.fixture(scope="module")
def bucket(tmp_path_factory) -> str:
    """150 commits, a checkpoint at 100, and sidecars of old ones."""
    folder = tmp_path_factory.mktemp("budgets")
    log = HandLog(folder / "t").start()
    for number in range(1, COMMITS):
        log.commit(add(f"part-{number}.parquet"), commit_info("WRITE", timestamp=1_700_000_000_000 + number))
    log.checkpoint(100, [protocol(), metadata(), *(add(f"part-{number}.parquet") for number in range(1, 101))])
    log.raw("_last_checkpoint", '{"version": 100, "size": 102}')
    (log.log / "_sidecars").mkdir()
    for number in range(20):
        (log.log / "_sidecars" / f"{number:04d}.parquet").write_bytes(b"")
    return make_bucket(BUCKET, {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()})


@pytest.fixture
def server() -> Iterator[Proxy]:
    with proxy() as made:
        yield made


@pytest.fixture
def lake(bucket, server, tmp_path) -> Lake:
    options = {ROOT: storage_options(server.url)}
    return Lake(load_settings(home=tmp_path, lake={"roots": [ROOT], "storage_options": options, "refresh_s": POLL_S}))


def next_look(is_answered: Callable[[], object]) -> None:
    wait_until(is_answered, "the next look", pause_s=POLL_S / 5)  # many viewers ask more often than the lake looks


def test_the_counter_sees_what_the_bucket_holds(bucket):
    assert len(list_keys(bucket, "t/_delta_log/")) == COMMITS + 20 + 2


def test_the_newest_hundred_commits_cost_a_hundred_and_two_requests(lake, server):
    ref = lake.find(f"{ROOT}/t")
    server.forget()
    history = lake.history(ref, limit=100)
    assert [commit.version for commit in history] == list(range(COMMITS - 1, COMMITS - 101, -1))
    assert server.count() <= 102, sorted((r.kind, r.key) for r in server.requests)
    assert server.count("GET", ".checkpoint.") == 0


def test_a_look_that_finds_nothing_new_costs_one_request(lake, server):
    ref = lake.find(f"{ROOT}/t")
    assert lake.latest_version(ref) == COMMITS - 1
    for _ in range(3):
        server.forget()
        next_look(lambda: lake.latest_version(ref) == COMMITS - 1 and server.count())
        assert server.count() == 1


def test_one_new_commit_costs_the_look_and_the_commit(lake, server, bucket, tmp_path):
    ref = lake.find(f"{ROOT}/t")
    assert lake.snapshot(ref).num_files == 149
    new = HandLog(tmp_path / "new", next_version=COMMITS)
    new.commit(add("new.parquet"), commit_info("WRITE", timestamp=1_700_000_001_000))
    (path,) = new.log.iterdir()
    key = f"t/_delta_log/{path.name}"
    client().put_object(Bucket=bucket, Key=key, Body=path.read_bytes())
    try:
        server.forget()
        next_look(lambda: lake.snapshot(ref).num_files == 150)
        assert server.count() <= 2, sorted((r.kind, r.key) for r in server.requests)
        assert server.count("GET") == 1
    finally:
        delete_objects(bucket, [key])


def test_a_hundred_commits_are_read_side_by_side(lake, server):
    ref = lake.find(f"{ROOT}/t")
    server.gathers = 16
    assert len(lake.history(ref, limit=100)) == 100
    assert server.are_gathered
