"""Homes for pages: an empty one, tables that are made once a worker and copied for each test, a store with a host.

Rule: what a builder made is read-only; a test writes to its copy alone.
"""

import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import pytest

from backend.store.store import ControlStore
from tests.worlds.lake import builders
from tests.worlds.pages.opened import home
from tests.worlds.store import stream_store

__all__ = ["clicks", "home", "lake", "made", "now", "orders", "place", "store"]

Build = Callable[[Path], Path]
Place = Callable[[Build, str], Path]


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Build], Path]:
    """`made(build)`: the folder that the builder filled, once a worker."""

    @cache
    def once(build: Build) -> Path:
        return build(tmp_path_factory.mktemp("made") / "table")

    return once


@pytest.fixture
def place(home: Path, made: Callable[[Build], Path]) -> Place:
    """`place(build, "silver/orders")`: a copy of what the builder makes, under that name in the lake of this home."""

    def copy(build: Build, name: str) -> Path:
        return Path(shutil.copytree(made(build), home / "lake" / name, dirs_exist_ok=True))

    return copy


@pytest.fixture
def orders(place: Place) -> Path:
    """silver/orders: 0 three orders, 1 two more, 2 order 2 updated, 3 order 1 deleted."""
    return place(builders.orders_table, "silver/orders")


@pytest.fixture
def lake(place: Place) -> Path:
    """The root of a lake of three tables: bronze/orders_raw, silver/orders, gold/orders_by_status."""
    return place(builders.medallion_lake, "")


@pytest.fixture
def clicks(place: Place) -> Path:
    """bronze/clicks: 34 small files of two rows, in two partitions, each by a commit of its own."""
    return place(_small_files, "bronze/clicks")


def _small_files(path: Path) -> Path:
    return builders.partitioned_table(path, days=2, files_per_day=17)


@pytest.fixture
def now() -> datetime:
    return datetime.now(UTC)


@pytest.fixture
def store(home: Path, now: datetime) -> Iterator[ControlStore]:
    """The control store of this home, with a host that is alive and no stream."""
    opened = stream_store.open_store(home)
    stream_store.beat(opened, now)
    yield opened
    opened.close()
