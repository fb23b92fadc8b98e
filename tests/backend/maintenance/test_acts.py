"""Acts on tables: what a preview says of them, columns as people type them, and streams that are stopped meanwhile."""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake

from app.ui.view.acts import loss_text, preview_lines
from app.ui.view.explanation import explained
from backend.access import Actor
from backend.errors import QueryError
from backend.jobs.model import Job, JobEnd, JobState
from backend.lake.lake import Lake
from backend.lake.model import Snapshot, TableRef
from backend.lake.storage.folder import normal_uri
from backend.maintenance.alter import read_column, read_name, read_pair
from backend.maintenance.model import (
    ActPreview,
    ActResult,
    Alter,
    Arguments,
    Clone,
    Optimize,
    Repair,
    Restore,
    TableAct,
    act_job,
)
from backend.maintenance.plan import load_preview, preview
from backend.maintenance.readers import TableReader, TableWriter, Users
from backend.maintenance.restore import preview_restore
from backend.search.notice import Measure, Notice
from backend.settings import load_settings
from backend.store.leases import job_resource
from backend.store.store import ControlStore
from backend.stream_model.stream import DesiredState
from pipelines.jobs.table_acts import stopped_writers
from tests.worlds.lake import builders
from tests.worlds.lake.diffs import diff
from tests.worlds.store.policy_world import PolicyWorld
from tests.worlds.store.stream_store import open_store
from tests.worlds.store.values import DECLARATION, NOW, leased

MAPPED = {"delta.columnMapping.mode": "name"}
WRITER = TableWriter("clicks_stream", "append", stopped=True)
READER = TableReader("hourly", stopped=True)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    builders.partitioned_table(tmp_path / "lake" / "clicks", days=1, files_per_day=1)
    return tmp_path


def planned(home: Path, name: str, asked: Arguments, users: Users) -> ActPreview:
    settings = load_settings(home=home)
    lake = Lake(settings)
    return preview(settings, lake, lake.find(name), asked, users, now=datetime.now(UTC))


def test_no_column_goes_from_under_a_declared_stream(home: Path) -> None:
    for asked in (Alter(MAPPED, rename_columns={"id": "key"}), Alter(MAPPED, drop_columns=("id",))):
        refused = planned(home, "clicks", asked, Users((WRITER,)))
        assert "clicks_stream writes the table" in refused.refused and "host.pipelines" in refused.way_out
        assert planned(home, "clicks", asked, Users(readers=(READER,))).refused == ""


def test_what_is_kept_for_a_shorter_time_is_a_risk(home: Path) -> None:
    feed, kept, log = "delta.enableChangeDataFeed", "delta.deletedFileRetentionDuration", "delta.logRetentionDuration"
    fed = Users(readers=(replace(READER, reads_feed=True),))
    DeltaTable(home / "lake" / "clicks").alter.set_table_properties({feed: "true", log: "interval 90 days"})
    for asked, risk in (
        (Alter({kept: "interval 0 seconds"}), f"{kept} of 0 seconds: versions replaced longer ago can be neither read"),
        (Alter({"delta.setTransactionRetentionDuration": "interval 1 days"}), "may write a batch twice"),
        (Alter(unset_properties=(log,)), f"{log} of 30 days (the default): older commits leave the log"),
        (Alter({feed: "false"}), "changes from here on are in no feed, and hourly stops"),
        (Alter(unset_properties=(feed,)), "changes from here on are in no feed, and hourly stops"),
    ):
        (said,) = planned(home, "clicks", asked, fed).risks
        assert risk in said
    assert planned(home, "clicks", Alter({kept: "interval 8 days", log: "interval 91 days"}), fed).risks == ()
    fallen = planned(home, "clicks", Restore(0), fed).risks
    assert any("are in no feed" in risk for risk in fallen) and any(f"{log} of 30 days" in risk for risk in fallen)


@pytest.mark.parametrize(
    ("place", "conf", "refused", "risks"),
    [
        ("s3://shop", {}, "", 1),
        ("s3://shop", {"spark.delta.logStore.s3a.impl": "io.delta.storage.S3DynamoDBLogStore"}, "", 0),
        ("gs://shop", {}, "Spark has no file system for gs://", 0),
        ("gs://shop", {"spark.hadoop.fs.gs.impl": "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFileSystem"}, "", 0),
        ("abfs://shop@me", {}, "Spark has no file system for abfss://", 0),
    ],
)
def test_what_spark_lacks_in_an_object_store_is_said_before(
    home: Path, place: str, conf: dict[str, str], refused: str, risks: int
) -> None:
    class Elsewhere(Lake):
        """The table of a disk under another address."""

        def snapshot(self, ref: TableRef, version: int | None = None) -> Snapshot:
            return replace(super().snapshot(ref, version), ref=replace(ref, uri=normal_uri(f"{place}/clicks")))

    settings = load_settings(home=home, spark={"conf": conf})
    lake = Elsewhere(settings)
    asked = Alter(comment="clicks")
    said = preview(settings, lake, lake.find("clicks"), asked, Users(), now=datetime.now(UTC))
    assert (said.refused, len(said.risks)) == (refused, risks)
    assert ("spark.hadoop.fs." in said.way_out) == bool(refused)


def test_what_a_stream_meets_is_said(home: Path) -> None:
    users = Users((WRITER,), (READER,))
    added = planned(home, "clicks", Alter(add_columns={"shop": "string"}), users)
    assert added.refused == ""
    assert added.risks == ("hourly reads the table: it stops once at the new column, and goes on when it is started",)
    checked = planned(home, "clicks", Alter(add_constraints={"known": "id >= 0"}), users)
    assert "clicks_stream writes the table: a row that violates the constraint stops it" in checked.risks
    renamed = planned(home, "clicks", Alter(MAPPED, rename_columns={"id": "key"}), Users((), (READER,)))
    assert "hourly reads the table: it stops at this change, and goes on after a reset alone" in renamed.risks
    assert any(risk.startswith("delta.columnMapping.mode raises") for risk in renamed.risks)
    assert renamed.way_back == "the inverse: --rename-column key=id"


def test_both_sides_are_counted_and_a_running_writer_refuses(tmp_path: Path) -> None:
    uri = tmp_path / "lake" / "orders"
    write_deltalake(uri, pa.table({"id": [1, 2, 3, 4, None]}))
    DeltaTable(uri).delete("id = 2")
    write_deltalake(uri, pa.table({"id": [3]}), mode="append")
    asked = Repair("id < 4", from_version=0)
    counted = planned(tmp_path, "orders", asked, Users())
    assert (counted.figures["rows"], counted.figures["rows_in"], counted.refused) == (3, 3, "")
    assert counted.effect == "rows that go: 3; rows of v0 that come: 3" and counted.typed
    stopped, running = (TableWriter("load", "append", stopped=is_stopped) for is_stopped in (True, False))
    assert planned(tmp_path, "orders", asked, Users((stopped,))).refused == ""
    assert planned(tmp_path, "orders", asked, Users((running,))).refused == "load may write it meanwhile"
    stops = replace(asked, stops_writers=True)
    let = planned(tmp_path, "orders", stops, Users((running,)))
    assert let.refused == "" and "load is stopped first, and started again after" in let.notes
    elsewhere = replace(running, application="etl")
    assert (
        planned(tmp_path, "orders", stops, Users((elsewhere,))).refused
        == "load of another application may write it meanwhile"
    )
    write_deltalake(uri, pa.table({"id": ["x"]}), mode="overwrite", schema_mode="overwrite")
    others = planned(tmp_path, "orders", Repair("id < '4'", {}, 0), Users())
    assert "the columns of v0 are others: id bigint, here string" in others.refused


def amounts(numbers: range, factor: float = 1.0) -> dict[str, list[object]]:
    return {"id": [*numbers], "country": ["ES"] * len(numbers), "amount": [factor * n for n in numbers]}


def test_of_a_commit_only_what_it_did_is_repaired_and_the_innocent_are_counted(tmp_path: Path) -> None:
    uri = tmp_path / "lake" / "orders"
    builders.write(uri, amounts(range(100)))
    builders.write(uri, amounts(range(100, 150), 100.0))  # v1, in cents
    builders.write(uri, amounts(range(150, 160)))
    DeltaTable(uri).update(updates={"amount": "amount + 1"}, predicate="id IN (100, 101)")
    DeltaTable(uri).delete("id < 20")  # v4
    builders.write(uri, amounts(range(5)))  # v5: five of them again
    builders.write(uri, amounts(range(30, 60)))  # v6: exact copies
    cents = planned(tmp_path, "orders", Repair("country = 'ES'", {"amount": "amount / 100"}, of_commit=1), Users())
    assert (cents.effect, cents.figures["rows"]) == ("rows of v1 that get another amount: 48", 48)
    assert cents.notes[0].startswith("innocent and left as they are") and "127 of 175 rows" in cents.notes[0]
    assert cents.notes[1] == "2 rows of v1 were changed or deleted since, and stay so"
    assert any("amount becomes 10" in note for note in cents.notes)
    back = planned(tmp_path, "orders", Repair("id < 20", of_commit=4), Users())
    assert back.effect.endswith("that go: 0; that it took away and that come: 15"), "what is there again is enough"
    assert planned(tmp_path, "orders", Repair("", of_commit=4), Users()).figures["rows_in"] == 15
    copies = planned(tmp_path, "orders", Repair("", of_commit=6), Users())
    assert (copies.figures["rows"], copies.figures["rows_in"]) == (60, 30) and "that go: 30; " in copies.effect
    updated = planned(tmp_path, "orders", Repair("amount > 10000", of_commit=3), Users())
    assert "that go: 2; that it took away and that come: 1" in updated.effect
    assert any(note.startswith("not as many come as go") for note in updated.notes)
    nothing = planned(tmp_path, "orders", Repair("id > 1000", of_commit=6), Users())
    assert nothing.refused == "nothing that v6 did to these rows is left"
    for wrong in (Repair("id > 1", of_commit=0), Repair("id > 1", from_version=1, of_commit=3), Repair("")):
        with pytest.raises(QueryError):
            planned(tmp_path, "orders", wrong, Users())


CLICKS = "bronze/clicks"
UNKNOWN = "how long it takes is not known: nothing like it, of about this size, was done here yet"


@pytest.fixture
def world(tmp_path: Path, clicks: Path) -> Iterator[PolicyWorld]:
    world = PolicyWorld(tmp_path)
    yield world
    world.store.close()


def did(world: PolicyWorld, asked: Arguments, size_bytes: int, seconds: float, *, attempts: int = 1) -> None:
    """An act that a host did, or at least began so often."""
    world.pass_(minutes=1)
    act = TableAct("/elsewhere", "elsewhere", 1, asked)
    job = world.store.jobs.submit(act_job(act, actor=Actor("bo"), reason="x"), now=world.now)
    lease = leased(world.store, job_resource(job.job_id))
    for _ in range(attempts):
        world.store.jobs.begin(lease, job.job_id, now=world.now)
    figures = {"bytes_in" if isinstance(asked, Optimize) else "bytes_written": size_bytes}
    end = JobEnd(JobState.DONE, answer=ActResult("done", 2, figures).text())
    world.store.jobs.end(lease, job.job_id, end, now=world.now + timedelta(seconds=seconds))


def notes(world: PolicyWorld, asked: Arguments) -> tuple[str, ...]:
    return load_preview(world.settings, world.lake, world.store, CLICKS, asked, now=world.now).notes


def test_the_last_three_of_its_kind_and_size_say_how_long(world: PolicyWorld) -> None:
    assert UNKNOWN in notes(world, Optimize())
    size = load_preview(world.settings, world.lake, None, CLICKS, Optimize(), now=world.now).figures["bytes_in"]
    assert size
    for other in (Optimize(zorder_by=("id",)), Optimize(purge=True), Optimize(prove_rows=True), Clone("x", 1)):
        did(world, other, size, 1)
    did(world, Optimize(), size * 11, 1)  # what it takes beside its bytes counts too little
    did(world, Optimize(), size // 11, 1)  # and here too much
    did(world, Optimize(), size, 1, attempts=2)
    did(world, Optimize(), 0, 1)
    world.done(world.by_hand(CLICKS, Optimize()))  # with no answer that this Weir reads
    assert UNKNOWN in notes(world, Optimize())
    did(world, Optimize(partition={"day": "x"}), size, 600)
    assert "takes about 10 min, by the last one like it here: " in "".join(notes(world, Optimize()))
    for factor, seconds in ((2, 20), (1, 30), (3, 10)):
        did(world, Optimize(), size * factor, seconds)
    assert notes(world, Optimize())[-1].startswith("takes about 10 s, by the last 3 like it here: ")  # 6 sizes in 60 s


def test_the_pace_is_said_with_its_unit(world: PolicyWorld) -> None:
    planned = load_preview(world.settings, world.lake, None, CLICKS, Clone("bronze/copy"), now=world.now)
    size = planned.figures["bytes_written"]
    assert size
    did(world, Clone("elsewhere/copy"), 10 * size, 10 * size / 250)
    assert notes(world, Clone("bronze/copy"))[-1].endswith(", by the last one like it here: 250 B/s")
    shallow = notes(world, Clone("bronze/copy", shallow=True))
    assert not any("takes" in note for note in (*shallow, *planned.notes)), "it rewrites nothing; without a store"


NAMED = "customer = 'c3' AND site IN ('north', 'south', 'east', 'west', 'centre', 'harbour', 'airport', 'station')"


def visits(numbers: range) -> dict[str, list[object]]:
    return {
        "visit_id": list(numbers),
        "customer": [f"c{n % 7}" for n in numbers],
        "site": ["north"] * len(numbers),
        "paid": [float(n) for n in numbers],
    }


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """v0 and v1 load, v2 loads v1 a second time and 10 more, v3 forgets a customer, v4 doubles three, v5 sets a
    property."""
    path = tmp_path / "lake" / "visits"
    builders.write(path, visits(range(60)))
    builders.write(path, visits(range(60, 100)))
    twice = pd.concat([pd.DataFrame(visits(range(60, 100))), pd.DataFrame(visits(range(100, 110)))])
    late = CommitProperties(custom_metadata={"userName": "loader", "job": "late visits"})
    builders.write(path, twice.to_dict("list"), commit_properties=late)
    DeltaTable(str(path)).delete(NAMED, commit_properties=CommitProperties(custom_metadata={"userName": "dpo"}))
    DeltaTable(str(path)).update(updates={"paid": "paid * 2"}, predicate="visit_id < 3")
    DeltaTable(str(path)).alter.set_table_properties({"catalog.team_name": "desk"}, raise_if_not_exists=False)
    return path


def rows(path: Path, version: int) -> Counter[tuple[object, ...]]:
    return Counter(DeltaTable(str(path), version=version).to_pandas().itertuples(index=False, name=None))


def going_back(lake: Lake, version: int) -> ActPreview:
    return preview_restore(lake, lake.snapshot(lake.find("visits")), Restore(version), Users(), datetime.now(UTC))


def test_deletions_come_first_then_what_changed_most_rows_and_what_stays_wrong(
    path: Path, tmp_path: Path, open_lake: Callable[..., Lake]
) -> None:
    now, lake, store = datetime.now(UTC), open_lake(), ControlStore.open(load_settings(home=tmp_path))
    ref, asked = lake.find("visits"), Restore(1, keeps_properties=True)
    stays = Notice(ref.uri, ref.name, 1, Measure.HIGHEST, "paid", "59", "99", "paid <= 59", "WRITE", now)
    store.noticed.keep([stays, replace(stays, version=2, before="99"), replace(stays, uri=f"{ref.uri}_2")], now=now)
    planned = load_preview(load_settings(home=tmp_path), lake, store, ref.uri, asked, now=now)
    store.close()

    first, loss, *lines = preview_lines(planned, "50 rows go")
    deleted = sum(n for row, n in rows(path, 2).items() if row[1] == "c3")
    v3 = f"v3 DELETE {NAMED} by dpo ({deleted} rows)"
    assert (first, loss) == (f"Risk: rows come back that these took away: {v3}.", "50 rows go.")
    assert re.search(
        r"becomes v1 again: 2 files \(.* kB\) come back, \d files? \(.* kB\) goe?s?; it then has", lines[0]
    )
    assert lines[1:7] == [
        "It undoes 4 commits, 3 of which changed rows.",
        "It undoes v2 WRITE by loader, job late visits (50 rows).",
        f"It undoes {v3}.",
        "It undoes v4 UPDATE visit_id < 3 (3 rows).",
        "Stays as it is: highest paid 59 → 99 at v1, WRITE.",
        "Is mended: highest paid 99 → 99 at v2, WRITE.",
    ]
    assert lines[7] == "No file of v1 is missing." and lines[8].startswith("Possible until ") and len(lines) == 10


def test_a_deletion_that_was_found_wrong_is_no_duty(path: Path, tmp_path: Path, open_lake: Callable[..., Lake]) -> None:
    now, lake, store = datetime.now(UTC), open_lake(), ControlStore.open(load_settings(home=tmp_path))
    ref = lake.find("visits")
    store.noticed.keep([Notice(ref.uri, ref.name, 3, Measure.DELETED, "DELETE", "3", "21", "", "DELETE", now)], now=now)
    planned = load_preview(load_settings(home=tmp_path), lake, store, ref.uri, Restore(1), now=now)
    store.close()
    lines = preview_lines(planned)
    assert not any("took away" in line for line in lines) and any("It undoes v3 DELETE" in line for line in lines)
    assert "Is mended: deleted rows DELETE 3 → 21 at v3, DELETE." in lines


def test_good_and_bad_rows_that_are_lost_are_told_apart(path: Path, open_lake: Callable[..., Lake]) -> None:
    lake = open_lake()
    ref = lake.find("visits")
    since, bad = (diff(lake, ref, 1, 2, where=where) for where in (None, "NOT (paid < 95)"))
    go = rows(path, 2) - rows(path, 1)
    broken = sum(n for row, n in go.items() if float(str(row[3])) >= 95)
    assert 0 < broken < go.total()
    said = loss_text(since, bad, "paid < 95")
    assert said.startswith(f"{go.total()} rows go ({broken} bad, {go.total() - broken} good)"), said
    assert said.endswith("0 come back, 0 rows get older values; bad is what breaks `paid < 95`")


def test_a_second_copy_of_a_row_that_stays_is_no_loss(path: Path, open_lake: Callable[..., Lake]) -> None:
    now, then = rows(path, 2), rows(path, 1)
    go = now - then
    copies = sum(n for row, n in go.items() if then[row])
    assert (go.total(), copies) == (50, 40)
    lake = open_lake()
    shown = loss_text(diff(lake, lake.find("visits"), 1, 2, key=("visit_id",)))
    assert shown == "50 rows go (40 exact copies of rows that stay: no loss), 0 come back, 0 rows get older values"

    builders.write(path, visits(range(200, 300)))  # without a key few copies are no finding, and no loss either
    go, latest = rows(path, 6) - then, lake.latest_version(lake.find("visits"))
    copies = sum(n for row, n in go.items() if then[row])
    late = diff(lake, lake.find("visits"), 1, latest)
    assert 2 * copies < go.total() and not any("there already" in each for each in explained(late.explanation))
    assert f"{go.total()} rows go ({copies} exact copies of rows that stay: no loss)" in loss_text(late)


def test_of_many_deletions_the_largest_are_named(path: Path, open_lake: Callable[..., Lake]) -> None:
    for most in (4, 6, 9, 13, 18, 24):
        DeltaTable(str(path)).delete(f"visit_id < {most}")
    planned = going_back(open_lake(), 5)
    named = [f"v{version}" for version in (11, 10, 9, 8, 6)]
    gone = {v: (rows(path, v - 1) - rows(path, v)).total() for v in range(6, 12)}
    assert named == [f"v{v}" for v in sorted(gone, key=lambda v: (-gone[v], -v))][:5]
    *took, more = planned.risks[0].removeprefix("rows come back that these took away: ").split("; ")
    assert [text.split()[0] for text in took] == named and more == "1 more commit"


def test_all_that_is_undone_is_named_in_order_of_rows(path: Path, open_lake: Callable[..., Lake]) -> None:
    for number in range(8):
        builders.write(path, visits(range(300 + 10 * number, 310 + 10 * number - (number == 0))))  # the first is less
    planned = going_back(open_lake(), 5)
    undone = [note.split()[2] for note in planned.notes if note.startswith("it undoes v")]
    assert undone == ["v13", "v12", "v11", "v10", "v9"]
    assert "it undoes 3 more commits (29 rows): v8, v7, v6" in planned.notes
    assert re.search(r"becomes v5 again: 8 files \([^)]*\) go; it then has", planned.effect)
    one = going_back(open_lake(), 12)
    assert re.search(r"becomes v12 again: 1 file \([^)]*\) goes; it then has", one.effect)


def test_a_column_is_read() -> None:
    for text, column in (
        ("discount decimal(10, 2)", ("discount", "decimal(10,2)", "")),
        ("`a ``b` LONG COMMENT 'it''s; new'", ("a `b", "bigint", "it's; new")),
        ('"a ""b" array<map<string, Integer>>', ('a "b', "array<map<string,int>>", "")),
        ("x string comment ''", ("x", "string", "")),
        ("x map<decimal(3,1),array<date>>", ("x", "map<decimal(3,1),array<date>>", "")),
    ):
        assert read_column(text) == column


@pytest.mark.parametrize(
    "text",
    [
        "", "x", "= int", "x int NOT NULL", "x int, y int", "x int) COMMENT 'a'", "x int COMMENT 'a' 'b'",
        "x decimal(39,2)", "x decimal(2,3)", "x decimal(0,0)", "x struct<a:int>", "x array<>", "x map<array<int>,int>",
        "x int; DROP TABLE t", "x " + "array<" * 60 + "int" + ">" * 60,
    ],
)  # fmt: skip
def test_what_is_no_column_is_refused(text: str) -> None:
    with pytest.raises(QueryError):
        read_column(text)


def test_a_pair_is_cut_behind_its_name() -> None:
    assert read_pair("`a=b` = c=d ", such_as="") == ("a=b", "c=d")
    assert read_name("amount >= 0", such_as="") == ("amount", ">= 0")
    for text in ("a", "a=", "a b=c", "=c"):
        with pytest.raises(QueryError):
            read_pair(text, such_as="")


ACT = TableAct("/lake/silver/orders", "silver/orders", 7, Restore(3, stops_writers=True))
STREAM, OTHER = "silver_orders", "late_orders"
BO = Actor("bo")


@dataclass
class Host:
    """Streams that write the table: one asked to stop still runs while it is looked at once more."""

    store: ControlStore
    job: Job
    told: list[str] = field(default_factory=list)
    stopping: set[str] = field(default_factory=set)

    def users(self) -> Users:
        wanted = self.store.desired()
        writers = tuple(TableWriter(name, "append", stopped=name in self.stopping) for name in sorted(wanted))
        self.stopping |= {name for name, desired in wanted.items() if desired.wants_stop}
        return Users(writers)

    def tell(self, phase: str) -> None:
        self.told.append(phase)

    def changes(self, phase: str) -> None:
        self.tell(phase)

    def stopped(self) -> AbstractContextManager[frozenset[str]]:
        return stopped_writers(self.store, self.job, ACT, self.users, self)

    def wanted(self, name: str = STREAM) -> DesiredState:
        return self.store.desired()[name].state

    def ask(self, action: str, name: str = STREAM) -> None:
        self.store.request(name, action, reason="of my own", actor=BO, now=NOW)  # type: ignore[arg-type]


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    store = open_store(tmp_path)
    store.declare([DECLARATION, replace(DECLARATION, name=OTHER)], now=NOW)
    opened = Host(store, store.jobs.submit(act_job(ACT, actor=Actor("ann"), reason="a bad load"), now=NOW))
    for name in (STREAM, OTHER):
        opened.ask("start", name)
    yield opened
    store.close()


def test_streams_stand_still_meanwhile_and_run_again_after(host: Host) -> None:
    with host.stopped() as stopped:
        assert stopped == {STREAM, OTHER}
        assert (host.wanted(), host.wanted(OTHER)) == (DesiredState.STOPPED, DesiredState.STOPPED)
    assert (host.wanted(), host.wanted(OTHER)) == (DesiredState.RUNNING, DesiredState.RUNNING)
    assert host.told == [f"waiting for {OTHER}, {STREAM} to stop"]
    (started, *_) = host.store.audit_entries(subject=STREAM)
    assert (started.action, started.actor, host.job.job_id in started.reason) == ("start", "ann", True)


def test_an_act_that_fails_leaves_none_of_them_stopped(host: Host) -> None:
    with pytest.raises(OSError, match="disk"), host.stopped():
        raise OSError("disk")
    assert (host.wanted(), host.wanted(OTHER)) == (DesiredState.RUNNING, DesiredState.RUNNING)


def test_what_a_person_drained_before_or_stops_meanwhile_stays_so(host: Host) -> None:
    host.ask("drain", OTHER)
    with host.stopped() as stopped:
        assert stopped == {STREAM}
    assert (host.wanted(), host.wanted(OTHER)) == (DesiredState.RUNNING, DesiredState.DRAINED)
    host.stopping.clear()
    with host.stopped():
        host.ask("stop")
    assert (host.wanted(), host.wanted(OTHER)) == (DesiredState.STOPPED, DesiredState.DRAINED)


def test_a_host_that_takes_the_job_over_starts_what_the_first_one_stopped(host: Host) -> None:
    first = host.stopped()
    first.__enter__()  # and is killed
    assert host.wanted() is DesiredState.STOPPED
    with host.stopped() as stopped:
        assert stopped == {STREAM, OTHER}
    assert (host.wanted(), host.wanted(OTHER)) == (DesiredState.RUNNING, DesiredState.RUNNING)
    first.gen.close()  # type: ignore[attr-defined]
