"""One server of the pages for all files here that only ask it: behind a trusted proxy, with a name of its own."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.worlds.lake import builders
from tests.worlds.pages.serving import Served, served
from tests.worlds.store import stream_store

PROXY = "127.0.0.2"  # on Linux all of 127.0.0.0/8 is this machine: the proxy is told from others by its address
NAME = "weir.example.com"
STREAM = "silver_orders"


@pytest.fixture(scope="session")
def served_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake of three tables, one of them broken, and a store with one flowing stream."""
    home = tmp_path_factory.mktemp("served")
    builders.orders_table(home / "lake" / "silver" / "orders")
    builders.write(home / "lake" / "gold" / "sums", {"id": [1]})
    builders.HandLog(home / "lake" / "broken").raw("00000000000000000000.json", "{\n")
    now, store = datetime.now(UTC), stream_store.open_store(home)
    stream_store.flowing(store, STREAM, now)
    stream_store.beat(store, now)
    store.close()
    return home


@pytest.fixture(scope="session")
def server(served_home: Path) -> Iterator[Served]:
    settings = {
        "WEIR_UI__ALLOWED_HOSTS": f'["{NAME}"]',
        "WEIR_UI__TRUSTED_PROXIES": f'["{PROXY}"]',
        "WEIR_UI__USER_HEADER": "X-User",
        "WEIR_HOST__HEARTBEAT_STALE_S": "6000",
    }
    with served(served_home, **settings) as running:
        yield running
