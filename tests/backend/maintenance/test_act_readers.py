"""What streams have yet to read of a table, and so what VACUUM may not delete."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from deltalake import DeltaTable

from backend.lake.lake import Lake
from backend.maintenance.model import Optimize, Vacuum
from backend.maintenance.readers import TableReader, load_users
from backend.settings import load_settings
from backend.store.store import ControlStore
from backend.stream_model.stream import InputKind, StreamInput
from tests.worlds.lake import builders
from tests.worlds.lake.vectors import write_vector
from tests.worlds.store.values import DECLARATION
from tests.worlds.streams.checkpoints import delta_offset, write_checkpoint

READER = replace(DECLARATION, sink_uri="/elsewhere", sink_table="elsewhere", source_tables=())
FEATURES = {"reader": 3, "writer": 7, "features": ("deletionVectors",)}


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., TableReader]:
    """What is told of a stream that reads the table with these options, from that offset on; None: it has not begun."""
    settings = load_settings(home=tmp_path, lake={"roots": [str(tmp_path / "lake")]})
    (tmp_path / "store").mkdir()
    table = tmp_path / "lake" / "orders"

    def of(offset: str | None = None, *, kind: InputKind = InputKind.TABLE, **options: str) -> TableReader:
        store, place = ControlStore.open(settings), tmp_path / "checkpoints" / READER.name
        if offset:
            write_checkpoint(place, {0: [offset]})
        source = StreamInput(name="orders", kind=kind, uri=str(table), options=options)
        declared = replace(READER, inputs=(source,), checkpoint_location=str(place))
        store.declare([declared], now=datetime.now(UTC))
        lake = Lake(settings)
        (reader,) = load_users(settings, lake, store, lake.find("orders"), Vacuum(), now=datetime.now(UTC)).readers
        store.close()
        return reader

    return of


def added(table: Path, version: int) -> set[str]:
    return set(DeltaTable(table, version).file_uris()) - (
        set(DeltaTable(table, version - 1).file_uris()) if version else set()
    )


def names(table: Path, *versions: int) -> set[str]:
    return {uri.removeprefix(f"{table}/") for version in versions for uri in added(table, version)}


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    """Four appends, into a partition whose name is not written as it is read; the last version is a compaction."""
    table = tmp_path / "lake" / "orders"
    for number in range(4):
        builders.write(table, {"id": [number], "city": ["São Paulo 100%"]}, partition_by=["city"])
    DeltaTable(table).optimize.compact()
    return table


def test_of_one_that_begins_with_the_first_version_nothing_is_read(
    orders: Path, read: Callable[..., TableReader]
) -> None:
    assert read(startingVersion="0").unread == names(orders, 0, 1, 2, 3)


def test_of_one_that_stands_in_the_middle_the_rest(orders: Path, read: Callable[..., TableReader]) -> None:
    table_id = str(DeltaTable(orders).metadata().id)
    assert read(delta_offset(table_id, 2)).unread == names(orders, 2, 3)


def test_of_one_within_its_first_read_that_version_and_what_followed(
    orders: Path, read: Callable[..., TableReader]
) -> None:
    table_id = str(DeltaTable(orders).metadata().id)
    assert read(delta_offset(table_id, 1, is_initial=True)).unread == names(orders, 0, 1, 2, 3)


def test_of_one_that_reads_by_event_time_it_is_not_known(orders: Path, read: Callable[..., TableReader]) -> None:
    table_id = str(DeltaTable(orders).metadata().id)
    offset = json.loads(delta_offset(table_id, 1, is_initial=True)) | {"eventTimeMillis": 1_700_000_000_000}
    reader = read(json.dumps(offset))
    assert (reader.unread, reader.unknown) == (frozenset(), "the snapshot of v1 is read in order of event time")


def test_one_that_reads_the_latest_version_alone_needs_no_other(orders: Path, read: Callable[..., TableReader]) -> None:
    reader = read(kind=InputKind.PRESENT_ROWS)
    assert (reader.unread, reader.unknown) == (frozenset(), "")


def test_the_deletion_vectors_of_unread_files_are_unread(tmp_path: Path, read: Callable[..., TableReader]) -> None:
    table = tmp_path / "lake" / "orders"
    log = builders.HandLog(table)
    log.commit(builders.protocol(**FEATURES), builders.metadata(), builders.commit_info("CREATE TABLE"))
    log.commit(builders.add("a.parquet", dv=write_vector(table, [1, 2])))
    (vector,) = table.glob("deletion_vector_*.bin")
    log.commit(builders.remove("a.parquet"))
    assert read(startingVersion="0").unread == {"a.parquet", vector.name}


def test_other_acts_do_not_ask_for_them(orders: Path, read: Callable[..., TableReader], tmp_path: Path) -> None:
    """Reading the log and the checkpoint of every reader takes longer than the rest of an OPTIMIZE's preview."""
    assert read(startingVersion="0").unread
    settings = load_settings(home=tmp_path, lake={"roots": [str(tmp_path / "lake")]})
    store, lake = ControlStore.open(settings), Lake(settings)
    (reader,) = load_users(settings, lake, store, lake.find("orders"), Optimize(), now=datetime.now(UTC)).readers
    assert (reader.stream, reader.unread, reader.unknown) == (READER.name, frozenset(), "")
    store.close()
