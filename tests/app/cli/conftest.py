"""The lakes and the store that commands are asked of: built once, each test gets a copy of its own."""

import json
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable

from backend.settings import load_settings
from backend.store.store import ControlStore
from backend.stream_model.stream import (
    DesiredState,
    HostHeartbeat,
    Observed,
    Progress,
    StreamFailure,
    StreamState,
)
from tests.worlds.lake import builders
from tests.worlds.terminal import Copied, declaration, home, observe, weir

__all__ = ["home", "weir"]


def _lake(path: Path) -> None:
    """`silver/orders` with a feed and five commits, `bronze/broken` that cannot be read."""
    orders = path / "silver" / "orders"
    rows = pa.table({"id": [1, 2, 3], "amount": [1.5, float("nan"), None]})
    builders.write(orders, rows, configuration=builders.CHANGE_FEED)
    builders.write(orders, {"id": [4], "amount": [4.0]})
    DeltaTable(orders).update(updates={"amount": "9.0"}, predicate="id = 1")
    DeltaTable(orders).delete("id = 3")
    DeltaTable(orders).optimize.compact()
    builders.HandLog(path / "bronze" / "broken").raw(f"{0:020d}.json", "{not json\n")


def _broken_orders(path: Path) -> None:
    """v0 – v3 good, v4 compacts, v5 a bad row by a stream's batch, v6 – v7 good appends."""
    stamp = json.dumps({"stream": "silver_orders", "batch_id": 41})
    builders.broken_orders(path, stamp=CommitProperties(custom_metadata={"userMetadata": stamp}))


def _clicks(path: Path) -> None:
    """34 small files in two partitions."""
    builders.partitioned_table(path, days=2, files_per_day=17)


def _risen(path: Path) -> None:
    """After eight usual commits an amount that is not."""
    for amount in (100.0, 310.0, 220.0, 300.0, 120.0, 280.0, 150.0, 305.0, 47_189.0):
        builders.write(path, {"amount": [amount] * 20})


MADE = {
    "lake": _lake,
    "orders": builders.orders_table,
    "broken_orders": _broken_orders,
    "clicks": _clicks,
    "risen": _risen,
}


@pytest.fixture(scope="session")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Copied:
    """`copied(name, place)`: a copy of what is made once."""
    folder = tmp_path_factory.mktemp("made")

    def copy(name: str, place: Path) -> Path:
        if not (folder / name).exists():
            MADE[name](folder / name)
        return Path(shutil.copytree(folder / name, place))

    return copy


@pytest.fixture
def lake(home: Path, copied: Copied) -> Path:
    return copied("lake", home / "lake")


@pytest.fixture
def orders(home: Path, copied: Copied) -> Path:
    """The one table of a lake, as `builders.orders_table` says."""
    return copied("orders", home / "lake" / "orders")


@pytest.fixture
def empty_store(home: Path) -> Iterator[ControlStore]:
    opened = ControlStore.open(load_settings())
    yield opened
    opened.close()


@pytest.fixture
def store(empty_store: ControlStore) -> ControlStore:
    """`flows` runs with progress, `fails` has failed, `waits` was only declared; one live host."""
    now = datetime.now(UTC)
    empty_store.declare([declaration(name) for name in ("flows", "fails", "waits")], now=now)
    empty_store.beat(HostHeartbeat("host-1", "box", 1, now - timedelta(hours=1), now))
    poisoned = StreamFailure("ValueError", "poisoned\nby a test", 7, now)
    for name, state, failures in (("flows", StreamState.RUNNING, ()), ("fails", StreamState.FAILED, (poisoned,))):
        empty_store.ensure_all_desired([name], DesiredState.RUNNING, now=now)
        seen = Observed(name, state, "host-1", 1, now, query_id="q-1", run_id="r-1", started_at=now, failures=failures)
        observe(empty_store, seen)
    empty_store.add_progress([Progress("flows", "q-1", "r-1", 3, now, 10, 2.5, None, 100)])
    return empty_store
