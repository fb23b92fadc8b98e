"""What the catalog costs on an object store, counted before the server: one look for each table, none into it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from backend.lake.lake import Lake
from backend.settings import load_settings
from tests.worlds.lake.builders import HandLog, add
from tests.worlds.lake.object_store import Proxy, client, make_bucket, proxy, storage_options

ROOT = "s3://catalog"
FOLDERS, TABLES = 3, 24


@pytest.fixture(scope="module")
def bucket(tmp_path_factory) -> str:
    """Tables in three folders, each with data files that nobody needs to list."""
    folder = tmp_path_factory.mktemp("catalog")
    for number in range(TABLES):
        table = folder / f"layer{number % FOLDERS}" / f"t{number:02d}"
        HandLog(table).start().commit(*(add(f"day={n}/a") for n in range(5)))
        for day in range(5):
            (table / f"day={day}").mkdir()
            (table / f"day={day}" / "a").write_bytes(b"x")
    return make_bucket(
        "catalog", {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    )


@pytest.fixture
def server() -> Iterator[Proxy]:
    with proxy() as made:
        yield made


@pytest.fixture
def lake(bucket, server, tmp_path) -> Lake:
    return opened(server, tmp_path)


def opened(server: Proxy, home: Path) -> Lake:
    options = {ROOT: storage_options(server.url)}
    return Lake(load_settings(home=home, lake={"roots": [ROOT], "storage_options": options, "refresh_s": 0.001}))


def test_a_walk_asks_once_for_a_table_and_never_lists_one(lake, server):
    assert len(lake.tables()) == TABLES
    assert server.count() == TABLES + 2 * (FOLDERS + 1)
    assert not [request.key for request in server.requests if "day=" in request.key]
    server.forget()
    assert len(lake.tables()) == TABLES
    assert server.count() == 2 * (FOLDERS + 1)  # known tables are not asked for again


def test_the_next_process_asks_once_for_an_unchanged_table_and_keeps_no_secret(lake, server, tmp_path):
    first = {card.ref.name: card for card in lake.read_cards(lake.tables())}
    later = opened(server, tmp_path)
    refs = later.tables()
    server.forget()
    assert {card.ref.name: card for card in later.read_cards(refs)} == first
    assert server.count() == TABLES
    (kept,) = (tmp_path / "cache" / "cards").iterdir()
    secrets = [value for name, value in storage_options(server.url).items() if "secret" in name.lower()]
    assert secrets and not any(secret in kept.read_text() for secret in secrets)


def test_an_unchanged_table_costs_one_request_and_a_changed_one_is_noticed(lake, server, bucket, tmp_path):
    refs = lake.tables()
    list(lake.read_cards(refs))
    server.forget()
    cards = list(lake.read_cards(refs))
    assert server.count() == TABLES and {card.num_files for card in cards} == {5}
    new = HandLog(tmp_path / "new", next_version=2)
    new.commit(add("b"))
    (path,) = new.log.iterdir()
    key = f"layer0/t00/_delta_log/{path.name}"
    client().put_object(Bucket=bucket, Key=key, Body=path.read_bytes())
    try:
        found = {card.ref.name: (card.version, card.num_files) for card in lake.read_cards(refs)}
    finally:
        client().delete_object(Bucket=bucket, Key=key)
    assert found.pop("layer0/t00") == (2, 6) and set(found.values()) == {(1, 5)}
