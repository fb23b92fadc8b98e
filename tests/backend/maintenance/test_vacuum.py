"""What a VACUUM may not delete: what streams have yet to read, pinned versions, comparisons, other applications."""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa
from deltalake import DeltaTable

from backend.access import Actor
from backend.changes.host_job import job_request
from backend.jobs.model import JobEnd, JobKind, JobRequest, JobState
from backend.lake.lake import Lake
from backend.maintenance.model import ActPreview, Arguments, Lift, Optimize, Vacuum
from backend.maintenance.plan import preview
from backend.maintenance.readers import TableReader, Users, load_users
from backend.query.answer import job_request as query_request
from backend.query.plan import plan_query
from backend.query.views import World
from backend.settings import Settings, load_settings
from backend.store.leases import job_resource
from backend.store.store import ControlStore
from backend.stream_model.stream import DesiredState, InputKind, StreamInput
from backend.times import Clock
from tests.worlds.lake import builders
from tests.worlds.lake.diffs import prepare
from tests.worlds.lake.vectors import write_vector
from tests.worlds.store.values import DECLARATION, leased
from tests.worlds.streams.attached import beat, progress, report, started
from tests.worlds.streams.checkpoints import delta_offset, write_checkpoint

READER = replace(DECLARATION, sink_uri="/elsewhere", sink_table="elsewhere", source_tables=())
Read = Callable[..., TableReader]


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    (tmp_path / "store").mkdir()
    return load_settings(home=tmp_path, lake={"roots": [str(tmp_path / "lake")]})


@pytest.fixture
def read(settings: Settings, tmp_path: Path) -> Read:
    """What is told of a stream that reads the table with these options, from that offset on; None: it has not begun."""
    table = tmp_path / "lake" / "compacted"

    def of(
        offset: str | None = None, *, kind: InputKind = InputKind.TABLE, act: Arguments | None = None, **options: str
    ) -> TableReader:
        store, place = ControlStore.open(settings), tmp_path / "checkpoints" / READER.name
        if offset:
            write_checkpoint(place, {0: [offset]})
        source = StreamInput(name="compacted", kind=kind, uri=str(table), options=options)
        store.declare([replace(READER, inputs=(source,), checkpoint_location=str(place))], now=datetime.now(UTC))
        lake = Lake(settings)
        (reader,) = load_users(
            settings, lake, store, lake.find("compacted"), act or Vacuum(), now=datetime.now(UTC)
        ).readers
        store.close()
        return reader

    return of


def names(table: Path, *versions: int) -> set[str]:
    """Of the files that these versions added."""
    files = {version: set(DeltaTable(table, version).file_uris()) for version in range(max(versions) + 1)}
    added = (uri for version in versions for uri in files[version] - files.get(version - 1, set()))
    return {uri.removeprefix(f"{table}/") for uri in added}


@pytest.fixture
def compacted(tmp_path: Path) -> Path:
    """Four appends, into a partition whose name is not written as it is read; the last version is a compaction."""
    table = tmp_path / "lake" / "compacted"
    for number in range(4):
        builders.write(table, {"id": [number], "city": ["São Paulo 100%"]}, partition_by=["city"])
    DeltaTable(table).optimize.compact()
    return table


def test_what_is_unread_depends_on_where_a_stream_stands(compacted: Path, read: Read) -> None:
    table_id = str(DeltaTable(compacted).metadata().id)
    assert read(startingVersion="0").unread == names(compacted, 0, 1, 2, 3)
    assert read(startingVersion="0", act=Optimize()).unread == frozenset(), "only a VACUUM asks; it takes long"
    assert read(delta_offset(table_id, 2)).unread == names(compacted, 2, 3)
    within_first_read = delta_offset(table_id, 1, is_initial=True)
    assert read(within_first_read).unread == names(compacted, 0, 1, 2, 3)
    by_event_time = read(json.dumps(json.loads(within_first_read) | {"eventTimeMillis": 1_700_000_000_000}))
    assert by_event_time.unread == frozenset()
    assert by_event_time.unknown == "the snapshot of v1 is read in order of event time"
    latest_alone = read(kind=InputKind.PRESENT_ROWS)
    assert (latest_alone.unread, latest_alone.unknown) == (frozenset(), "")


def test_the_deletion_vectors_of_unread_files_are_unread(tmp_path: Path, read: Read) -> None:
    table = tmp_path / "lake" / "compacted"
    log = builders.HandLog(table)
    log.commit(builders.protocol(3, 7, ("deletionVectors",)), builders.metadata(), builders.commit_info("CREATE TABLE"))
    log.commit(builders.add("a.parquet", dv=write_vector(table, [1, 2])))
    (vector,) = table.glob("deletion_vector_*.bin")
    log.commit(builders.remove("a.parquet"))
    assert read(startingVersion="0").unread == {"a.parquet", vector.name}


AT_ONCE = {"delta.deletedFileRetentionDuration": "interval 0 seconds"}
ANA = Actor("ana")


@dataclass
class Orders:
    """Four appends of a file each, and then all of them in one file."""

    settings: Settings
    store: ControlStore
    table: Path

    @property
    def lake(self) -> Lake:
        return Lake(self.settings)

    def users(self, now: datetime | None = None) -> Users:
        ref, now = self.lake.find("orders"), now or datetime.now(UTC)
        return load_users(self.settings, self.lake, self.store, ref, Vacuum(), now=now)

    def vacuum(self) -> ActPreview:
        lake, now = self.lake, datetime.now(UTC)
        return preview(self.settings, lake, lake.find("orders"), Vacuum(), self.users(), now=now)

    def pin(self, version: int) -> None:
        ref, now = self.lake.find("orders"), datetime.now(UTC)
        self.store.pins.add(ref, version, actor=ANA, reason="audit of May", now=now)


@pytest.fixture
def orders(settings: Settings, tmp_path: Path) -> Iterator[Orders]:
    table = tmp_path / "lake" / "orders"
    for number in range(4):
        builders.write(table, {"id": [number]}, configuration=AT_ONCE)
    DeltaTable(table).optimize.compact()
    store = ControlStore.open(settings)
    yield Orders(settings, store, table)
    store.close()


def test_a_pinned_version_keeps_its_files_until_it_is_let_go_or_ends(orders: Orders) -> None:
    assert (orders.vacuum().refused, orders.vacuum().figures["files"]) == ("", 4)
    orders.pin(4)  # all of its files stay anyway
    assert orders.vacuum().refused == ""
    orders.pin(2)
    planned = orders.vacuum()
    assert len(DeltaTable(orders.table, 2).file_uris()) == 3
    assert planned.refused == "v2 is pinned by ana: audit of May; 3 files of that version would be deleted"
    assert planned.lifts == (Lift("unpin", ("orders", "2")),)
    ref, now = orders.lake.find("orders"), datetime.now(UTC)
    for version in (2, 4):
        orders.store.pins.remove(ref, version, actor=ANA, reason="audited", now=now)
    assert orders.vacuum().refused == ""
    end = now + timedelta(days=30)
    orders.store.pins.add(ref, 2, actor=ANA, reason="the model", now=now, name="features", until=end)
    assert [kept.first for kept in orders.users(end - timedelta(seconds=1)).kept] == [2]
    assert orders.users(end).kept == () and orders.store.pins.of_table(ref), "its name is still known"


def test_some_files_are_named_and_what_their_age_goes_by(orders: Orders) -> None:
    gone, planned = sorted(names(orders.table, 0, 1, 2, 3)), orders.vacuum()
    assert planned.notes[0] == f"they are {', '.join(gone)}" and "time on disk" in planned.notes[1]
    for number in range(30):
        shutil.copy(orders.table / gone[0], orders.table / f"a{number:02}.parquet")
    assert orders.vacuum().notes[0].endswith(" a18.parquet, a19.parquet and 14 more")
    DeltaTable(orders.table).alter.set_table_properties({"delta.deletedFileRetentionDuration": "interval 7 days"})
    planned = orders.vacuum()
    assert planned.refused == "there is no file to delete" and "copied here counts from then" in planned.way_out


def test_a_pin_of_a_version_that_nobody_can_rebuild_is_a_risk(orders: Orders) -> None:
    orders.pin(1)
    DeltaTable(orders.table).create_checkpoint()
    commits = [orders.table / "_delta_log" / f"{version:020d}.json" for version in range(4)]
    long_ago = datetime.now(UTC).timestamp() - 7_200
    os.utime(commits.pop(), (long_ago, long_ago))
    for commit in commits:
        commit.unlink()
    (risk,) = (risk for risk in orders.vacuum().risks if "v1" in risk)
    assert risk.startswith("v1 is pinned by ana: audit of May; which files that needs is not known: ")


def test_a_shallow_copy_keeps_the_files_that_it_reads(orders: Orders) -> None:
    """As Spark writes one: absolute paths, and a first commit that begins with what it is."""
    adds = [builders.add(Path(uri).as_uri()) for uri in DeltaTable(orders.table, 3).file_uris()]
    copy, stranger = (builders.HandLog(orders.table.with_name(name)) for name in ("it's a copy", "stranger"))
    info = json.dumps({"commitInfo": {"timestamp": 1, "operation": "CLONE"}}, separators=(",", ":"))
    state = [builders.protocol(), builders.metadata(configuration=AT_ONCE)]
    for log, files in ((copy, [*adds[:3], builders.add("own.parquet")]), (stranger, [builders.add("file:///etc/x")])):
        log.raw(f"{0:020d}.json", "\n".join([info, *map(json.dumps, [*state, *files])]))
    planned = orders.vacuum()
    assert planned.refused == "it's a copy is a shallow copy, and reads 3 files that would be deleted"
    assert (planned.way_out, planned.lifts) == ("drop it first", (Lift("drop", ("it's a copy",)),))
    assert planned.risks[0].startswith("which files the shallow copy stranger reads is not known: ")

    copy.commit(builders.remove(adds[0]["add"]["path"]), version=1)  # which its own retention lets go at once
    assert "reads 2 files that" in orders.vacuum().refused
    for log in (copy, stranger):
        shutil.rmtree(log.table)
    assert (orders.vacuum().refused, orders.vacuum().figures["files"]) == ("", 4)


@pytest.mark.parametrize(("ends", "files"), [((1, 3), 4), ((3, 1), 4), ((0, 1), 2)])
def test_a_comparison_under_way_keeps_both_versions(orders: Orders, ends: tuple[int, int], files: int) -> None:
    strangers = JobRequest(JobKind.DIFF, "orders", "f", "[]", ANA, "a stranger's", 1.0)
    orders.store.jobs.submit(strangers, now=datetime.now(UTC))
    assert orders.vacuum().refused == ""
    prepared = prepare(orders.lake, orders.lake.find("orders"), *ends, on_host=True)
    asked = job_request(prepared, actor=Actor("bo"), reason="", time_limit_s=60.0)
    job = orders.store.jobs.submit(asked, now=datetime.now(UTC))
    names = " and ".join(f"v{version}" for version in sorted(ends))
    planned = orders.vacuum()
    assert planned.refused == f"job {job.job_id} of bo compares {names}; {files} files of that version would be deleted"
    assert planned.lifts == (Lift("cancel", (job.job_id,)),)
    orders.store.jobs.cancel(job.job_id, actor=ANA, reason="space", now=datetime.now(UTC))
    assert orders.vacuum().refused == ""


def test_a_query_under_way_keeps_each_version_that_it_reads(orders: Orders) -> None:
    builders.write(orders.table.with_name("customers"), {"id": [0]})
    twice = "orders VERSION AS OF 2 a JOIN orders VERSION AS OF 1 b USING (id)"
    text = f"SELECT count(*) FROM {twice} JOIN customers USING (id)"
    plan = plan_query(World(orders.lake, None, datetime.now(UTC), orders.settings), text, Clock())
    asked = query_request(plan, actor=Actor("bo"), reason="a report", time_limit_s=60.0)
    job = orders.store.jobs.submit(asked, now=datetime.now(UTC))
    assert sorted((kept.first, kept.last) for kept in orders.users().kept) == [(1, 1), (2, 2)]
    planned = orders.vacuum()
    assert planned.refused.startswith(f"job {job.job_id} of bo reads v")
    assert planned.lifts == (Lift("cancel", (job.job_id,)),)
    lease = leased(orders.store, job_resource(job.job_id))
    orders.store.jobs.begin(lease, job.job_id, now=datetime.now(UTC))
    orders.store.jobs.cancel(job.job_id, actor=ANA, reason="space", now=datetime.now(UTC))
    assert orders.vacuum().refused == planned.refused, "it reads on until its host has ended it"
    orders.store.jobs.end(lease, job.job_id, JobEnd(JobState.CANCELLED), now=datetime.now(UTC))
    assert orders.vacuum().refused == ""


def test_a_comparison_keeps_the_change_files_between(settings: Settings, tmp_path: Path) -> None:
    table = builders.orders_table(tmp_path / "lake" / "orders")
    kept = Lake(settings).folder_files(Lake(settings).find("orders")).between(1, 3)
    data = {uri.removeprefix(f"{table}/") for v in (1, 2, 3) for uri in DeltaTable(table, v).file_uris()}
    changes = {str(path.relative_to(table)) for path in table.glob("_change_data/*.parquet")}
    assert changes and kept == data | changes


def tell(orders: Orders, offset: str | None) -> None:
    """What another application's query leaves in the inbox; `offset`: where it stands in the table."""
    source = {"description": f"DeltaSource[file:{orders.table}]", "endOffset": json.loads(offset or "null")}
    batches = [progress(sources=[source])] if offset is not None else []
    inbox = sa.create_engine(orders.settings.store_url)
    report(inbox, beat(), started(), *batches)
    inbox.dispose()


def test_a_stream_of_another_application_keeps_what_it_has_yet_to_read(orders: Orders) -> None:
    tell(orders, delta_offset(str(DeltaTable(orders.table).metadata().id), 2))
    planned = orders.vacuum()
    assert planned.refused == "etl.orders has yet to read 2 files that would be deleted"
    assert planned.way_out == "start it in etl, and let it catch up first"


def test_and_what_its_change_feed_holds(orders: Orders, tmp_path: Path) -> None:
    """Its reports do not tell a stream of the table from one of its feed."""
    feed = builders.orders_table(tmp_path / "lake" / "feed")
    orders.table = feed
    tell(orders, delta_offset(str(DeltaTable(feed).metadata().id), 2))
    ref, now = orders.lake.find("feed"), datetime.now(UTC)
    (reader,) = load_users(orders.settings, orders.lake, orders.store, ref, Vacuum(), now=now).readers
    changes = {str(path.relative_to(feed)) for path in feed.glob("_change_data/*.parquet")}
    assert changes | names(feed, 2) <= reader.unread


@pytest.mark.parametrize("offset", [None, "null"])
def test_what_it_has_read_is_a_risk_where_it_has_not_told(orders: Orders, offset: str | None) -> None:
    tell(orders, offset)
    planned = orders.vacuum()
    assert planned.refused == ""
    assert [risk for risk in planned.risks if risk.startswith("what etl.orders has yet") or "etl.orders of" in risk]


def test_a_short_retention_is_refused_beside_a_running_writer_alone(orders: Orders) -> None:
    writer = replace(DECLARATION, name="appends", sink_uri=str(orders.table), sink_table="orders")
    orders.store.declare([writer], now=datetime.now(UTC))
    orders.store.ensure_all_desired(["appends"], DesiredState.RUNNING, now=datetime.now(UTC))
    planned = orders.vacuum()
    assert planned.refused.startswith("appends may write it meanwhile, and files that a writer has not committed")
    assert planned.way_out.startswith("stop appends first")
    orders.store.request("appends", "stop", reason="space", actor=ANA, now=datetime.now(UTC))
    assert orders.vacuum().refused == "" and "files that a writer" in orders.vacuum().risks[0]
