"""Policies of tables: what settings may say, when a window is open, what is due over real tables, or why it waits."""

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from backend.errors import SettingsError
from backend.jobs.model import JobEnd, JobState, resting
from backend.lake.lake import Lake
from backend.lake.model import TableRef
from backend.maintenance.model import Optimize, Repair, Vacuum
from backend.maintenance.policies import LOOK_FACTOR, PolicyPlans
from backend.settings import Settings, load_settings
from backend.stream_model.stream import DesiredState, StreamState
from backend.table_policies import TablePolicy, Window
from pipelines.host.periodic import Rounds
from pipelines.host.tables import MOST_WAITING, submit_due
from tests.worlds.hosts.rounds import led
from tests.worlds.lake import builders
from tests.worlds.store import stream_store
from tests.worlds.store.policy_world import PolicyWorld, end
from tests.worlds.streams.values import stream


@pytest.fixture
def in_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def load(text: str) -> Settings:
        (tmp_path / "weir.toml").write_text(text)
        monkeypatch.setenv("WEIR_CONFIG", str(tmp_path / "weir.toml"))
        return load_settings(demo={"enabled": False})

    return load


def test_policies_come_from_the_file_and_none_is_on_by_default(in_file, monkeypatch: pytest.MonkeyPatch) -> None:
    assert in_file("").table_policies == ()
    settings = in_file("""
        [[policies]]
        tables = "bronze/*"
        optimize = { spares_files = 20 }
        window = "0 2 * * *"
        [[policies]]
        tables = "silver/orders"
        vacuum = {}
        [[policies]]
        tables = "/data/lake/clicks"
        expire = { column = "at", older_than_days = 90 }
    """)
    assert [policy.text for policy in settings.table_policies] == [
        "optimize bronze/*: spares_files 20, window 0 2 * * *",
        "vacuum silver/orders",
        "expire /data/lake/clicks: column at, older_than_days 90.0",
    ]
    monkeypatch.setenv("WEIR_POLICIES", json.dumps([{"tables": "t", "vacuum": {"every_hours": 1}}]))
    assert [policy.text for policy in in_file("").table_policies] == ["vacuum t: every_hours 1.0"]


def test_the_demo_has_one_while_its_streams_are_there() -> None:
    settings = load_settings()
    (policy,) = settings.table_policies
    own = f"{settings.tables_uri}/bronze/bronze_orders"
    assert policy.is_for("bronze/bronze_orders", own) and policy.optimize is not None
    assert not policy.is_for("bronze/bronze_orders", "/somebody's/bronze/bronze_orders"), "it may have another's name"
    for without in ({"demo": {"policy": False}}, {"demo": {"enabled": False}}, {"host": {"pipelines": ["mine"]}}):
        assert load_settings(**without).table_policies == ()


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ('tables = "t"', "exactly one of optimize, vacuum and expire"),
        ('tables = "t"\noptimize = {}\nvacuum = {}', "exactly one of optimize, vacuum and expire"),
        ('tables = ""\nvacuum = {}', "policies.0.tables: String should have at least 1 character"),
        ('tables = "t"\nvacuum = {}\nwindow = "at night"', "policies.0: .*'at night' is no cron expression of five"),
        ('tables = "t"\nvacuum = {}\nwindow = "0 25 * * *"', "'0 25 .*' is no cron expression: Bad hour"),
        ('tables = "t"\nvacuum = {}\nwindow = "0 0 30 2 *"', "'0 0 30 2 .*Bad day-of-month"),
        ('tables = "t"\nvacuum = {}\nwindow_minutes = 0', "policies.0.window_minutes"),
        ('tables = "t"\noptimize = {spares_share = 2}', "policies.0.optimize.spares_share"),
        ('tables = "t"\noptimize = {most_bytes = 0}', "policies.0.optimize.most_bytes"),
        ('tables = "t"\nexpire = {column = "at"}', "policies.0.expire.older_than_days: Field required"),
        ('tables = "t"\nexpire = {column = "at", older_than_days = 0}', "policies.0.expire.older_than_days"),
        ('tables = "t"\nvacuum = {evry_hours = 1}', "policies.0.vacuum.evry_hours"),
    ],
)
def test_a_policy_that_cannot_work_is_refused_at_load(in_file, lines: str, why: str) -> None:
    with pytest.raises(SettingsError, match=why):
        in_file(f"[[policies]]\n{lines}\n")


def test_a_pattern_names_tables_by_name_or_uri() -> None:
    def is_for(pattern: str) -> bool:
        return TablePolicy(tables=pattern, vacuum={}).is_for("bronze/clicks", "/data/lake/bronze/clicks")

    assert all(map(is_for, ["bronze/clicks", "bronze/*", "/data/lake/*", "/data/lake/bronze/clicks/"]))
    assert not any(map(is_for, ["s3://b/*", "clicks", "BRONZE/*"]))


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def test_a_window_opens_with_its_firing_and_ends_after_its_minutes() -> None:
    window = Window("0 2 * * *", 90)
    assert window.opens_at(at("2026-03-06T01:59:59.999999")) == at("2026-03-06T02:00")
    for within in ("2026-03-06T02:00", "2026-03-06T03:29:59.999999"):
        assert window.opens_at(at(within)) == at(within)
    assert window.opens_at(at("2026-03-06T03:30")) == at("2026-03-07T02:00")


def test_a_window_over_midnight_stays_open() -> None:
    friday = Window("0 23 * * FRI", 180)  # 2026-03-06 is a Friday
    assert friday.opens_at(at("2026-03-07T01:59")) == at("2026-03-07T01:59")
    assert friday.opens_at(at("2026-03-07T02:00")) == at("2026-03-13T23:00")
    assert friday.next_after(at("2026-03-06T23:30")) == at("2026-03-13T23:00")
    assert Window("", 60).opens_at(at("2026-03-07T01:59")) == at("2026-03-07T01:59")


def test_no_window_is_left_out_or_doubled_where_clocks_change() -> None:
    """In Europe and America clocks change on these days of 2026; UTC does not."""
    for day in ("2026-03-08", "2026-03-29", "2026-10-25", "2026-11-01"):
        opened, moment = [], at(f"{day}T00:00")
        while (moment := Window("30 * * * *", 1).next_after(moment)) < at(f"{day}T23:59"):
            opened.append(moment.hour)
        assert opened == list(range(24))


CLICKS = "bronze/clicks"
MERGE = {"tables": CLICKS, "optimize": {"spares_files": 10}}
AT_NIGHT = {"window": "0 2 * * *", "window_minutes": 60}


@pytest.fixture
def world(tmp_path: Path, clicks: Path) -> Iterator[Any]:
    worlds = list[PolicyWorld]()

    def make(*policies: dict[str, Any], **settings: Any) -> PolicyWorld:
        worlds.append(PolicyWorld(tmp_path, *policies, **settings))
        return worlds[-1]

    yield make
    for one in worlds:
        one.store.close()


def declare(world: PolicyWorld, name: str, state: StreamState) -> None:
    place = str(world.home / "checkpoints" / name)
    declared = stream(name, sink_uri=world.uri(CLICKS), sink_table=CLICKS, checkpoint_location=place)
    world.store.declare([declared], now=world.now)
    world.store.ensure_all_desired([name], DesiredState.RUNNING, now=world.now)
    stream_store.observe(world.store, name, state, world.now)


def night(world: PolicyWorld, *, hour: int, minute: int = 0) -> None:
    """On to the next time that the clock shows this."""
    later = world.now.replace(hour=hour, minute=minute, second=0, microsecond=0)
    later += timedelta(days=later <= world.now)
    world.pass_(seconds=(later - world.now).total_seconds())


def test_an_optimize_waits_until_it_is_worth_it(world) -> None:
    for when, why in (
        ({"spares_files": 10}, ""),  # of 12 files in 2 days 2 are left
        ({"spares_files": 11}, "10 files would be spared, the policy wants 11"),
        ({"spares_files": 1, "spares_share": 0.83}, ""),
        ({"spares_files": 1, "spares_share": 0.84}, "83 % of the files would be spared, the policy wants 84 %"),
        ({"spares_files": 1, "most_bytes": 10}, "merging any two files rewrites more than 10 B at once"),
    ):
        assert world({"tables": CLICKS, "optimize": when}).plan().why_not == why


def test_an_optimize_rewrites_no_more_at_once_than_it_may(world, tmp_path: Path) -> None:
    table = tmp_path / "lake" / "silver" / "sizes"
    for rows in (10, 1_000, 3_000, 9_000):
        write_deltalake(table, pa.table({"id": range(rows)}), mode="append")
    sizes = sorted(DeltaTable(table).get_add_actions()["size_bytes"].to_pylist())
    most = sum(sizes[:3])
    plan = world({"tables": "silver/sizes", "optimize": {"spares_files": 3, "most_bytes": most}}).plan()
    assert plan.state == "due" and plan.previewed is not None
    assert (plan.previewed.figures["files_in"], plan.previewed.figures["bytes_in"]) == (3, sum(sizes[:3]))


def test_nothing_is_done_outside_a_window_and_a_conflict_waits_for_the_next(world) -> None:
    one = world(MERGE | AT_NIGHT)
    night(one, hour=1, minute=59)
    plan = one.plan()
    assert plan.why_not == f"next window opens {one.now:%a} 02:00 UTC" and plan.previewed is None
    assert plan.next_at == one.now + timedelta(minutes=1)
    night(one, hour=2)
    assert one.plan().state == "due"
    night(one, hour=3)
    assert one.plan().state == "waiting"
    night(one, hour=2, minute=10)
    one.fail()
    one.pass_(minutes=40)
    plan = one.plan()
    assert plan.why_not.startswith("failed: it gave way to v7 MERGE; tried again ")
    assert plan.next_at - one.now == timedelta(hours=23, minutes=10)
    night(one, hour=2)
    assert one.plan().state == "due"


def test_after_three_failures_it_rests_until_somebody_does_the_act(world) -> None:
    one = world(MERGE)
    for number in range(3):
        assert list(resting(one.settings.table_policies, one.store.jobs.acts_on_tables())) == []
        one.fail(f"failure {number}")
        one.pass_(minutes=59)
        assert one.plan().state == ("waiting" if number < 2 else "resting")
        one.pass_(minutes=1)
    assert one.plan().why_not == "rests after 3 failures in a row: failure 2"
    (rest,) = resting(one.settings.table_policies, one.store.jobs.acts_on_tables())
    assert (rest.table, rest.error, rest.policy) == (CLICKS, "failure 2", one.plan().text)

    other = one.done(one.by_hand(CLICKS, Vacuum()))
    one.pass_(days=40)
    forgotten = one.store.jobs.prune(before=one.now)
    assert [job.job_id for job in forgotten] == [other.job_id], "what it rests for is not forgotten"
    assert one.plan().state == "resting", "that was another act"
    changed = {"tables": CLICKS, "optimize": {"spares_files": 9}}
    assert world(changed).plan().state == "due"
    one.done(one.by_hand(CLICKS, Optimize()))
    assert one.plan().state == "due"
    assert list(resting(one.settings.table_policies, one.store.jobs.acts_on_tables())) == []


def test_on_s3_it_waits_until_a_log_store_keeps_commits_apart(world) -> None:
    class Remote(Lake):
        def tables(self) -> list[TableRef]:
            return [replace(ref, uri="s3://shop/bronze/clicks") for ref in super().tables()]

    one = world(MERGE)
    (plan,) = PolicyPlans(one.settings, Remote(one.settings)).plans(one.store, now=one.now)
    assert plan.state == "waiting" and plan.why_not.startswith("on S3 a commit replaces one that another engine")


def test_a_success_ends_a_row_of_failures_and_a_cancel_is_none(world) -> None:
    one = world(MERGE)
    for number in range(4):
        one.fail()
        one.pass_(hours=2)
        one.done(one.ask()) if number % 2 else None
        one.pass_(hours=2)
    for _ in range(3):
        end(one.store, one.ask(), JobEnd(JobState.CANCELLED), now=one.now)
        assert one.plan().why_not.startswith("was cancelled; tried again ")
        one.pass_(hours=1)
    assert one.plan().state == "due"


def test_nothing_is_asked_while_an_act_is_under_way_or_a_stream_of_the_table_catches_up(world) -> None:
    one = world(MERGE)
    job = one.by_hand(CLICKS, Vacuum())
    assert (one.plan().state, one.plan().why_not) == ("waiting", "its vacuum is under way")
    one.done(job)
    declare(one, "bronze_clicks", StreamState.STARTING)
    assert one.plan().why_not == "bronze_clicks is catching up"
    declare(one, "bronze_clicks", StreamState.STOPPED)
    one.ask()
    assert (one.plan().state, one.plan().why_not) == ("running", "its optimize is under way")


def test_a_vacuum_comes_so_long_after_the_last_one_whosever_it_was(world) -> None:
    one = world({"tables": CLICKS, "vacuum": {"every_hours": 100}})
    assert one.plan().why_not == "there is no file to delete"
    table = DeltaTable(one.uri(CLICKS))
    table.alter.set_table_properties({"delta.deletedFileRetentionDuration": "interval 1 hours"})
    table.optimize.compact()
    one.pass_(hours=2)
    plan = one.plan()
    assert plan.state == "due" and plan.previewed is not None and plan.previewed.figures["files"] == 12
    one.done(one.by_hand(CLICKS, Vacuum()))
    one.pass_(hours=99)
    assert one.plan().why_not == "done 4 d 3 h ago, next after 4 d 4 h"
    assert one.plan().next_at == one.now + timedelta(hours=1)
    one.pass_(hours=1)
    assert one.plan().state == "due"


def test_expiry_deletes_what_is_older_than_the_full_hour(world, tmp_path: Path) -> None:
    one = world({"tables": "silver/*", "expire": {"column": "at", "older_than_days": 30}})
    one.now = datetime(2026, 3, 31, 12, 34, 56, tzinfo=UTC)
    moments = [datetime(2026, 3, 1, 11, 59, 59, tzinfo=UTC), datetime(2026, 3, 1, 12, tzinfo=UTC)]
    for name, values in {
        "timestamp": pa.array(moments, pa.timestamp("us", "UTC")),
        "timestamp_ntz": pa.array([moment.replace(tzinfo=None) for moment in moments], pa.timestamp("us")),
        "date": pa.array([date(2026, 2, 28), date(2026, 3, 1)]),
        "string": pa.array(["old", "new"]),
    }.items():
        write_deltalake(tmp_path / "lake" / "silver" / name, pa.table({"at": values}))
    plans = {plan.table: plan for plan in one.plans()}
    assert plans["silver/string"].why_not == "at is a string, so nothing says how old a row is"
    limit = {"silver/date": "2026-03-01", "silver/timestamp": "2026-03-01 12:00:00"}
    for name in ("silver/timestamp", "silver/timestamp_ntz", "silver/date"):
        planned = plans[name].previewed
        assert planned is not None and plans[name].state == "due", plans[name].why_not
        assert planned.figures["rows"] == 1
        assert planned.act.arguments == Repair(f"\"at\" < '{limit.get(name, limit['silver/timestamp'])}'")


def test_expiry_is_refused_while_a_stream_writes(world) -> None:
    one = world({"tables": CLICKS, "expire": {"column": "id", "older_than_days": 30}})
    assert one.plan().why_not == "id is a bigint, so nothing says how old a row is"
    table = one.home / "lake" / "bronze" / "clicks"
    rows = pa.table({"id": [1], "day": ["x"], "at": pa.array([datetime(2020, 1, 1, tzinfo=UTC)])})
    write_deltalake(table, rows, mode="append", schema_mode="merge")
    one = world({"tables": CLICKS, "expire": {"column": "at", "older_than_days": 30}})
    assert one.plan().state == "due"
    declare(one, "bronze_clicks", StreamState.RUNNING)
    one.store.add_progress(stream_store.batches("bronze_clicks", one.now))
    assert one.plan().why_not == "bronze_clicks may write it meanwhile"


def test_one_table_that_cannot_be_read_and_a_pattern_of_none_hide_no_other(world, tmp_path: Path) -> None:
    log = tmp_path / "lake" / "bronze" / "broken" / "_delta_log"
    log.mkdir(parents=True)
    (log / "00000000000000000000.json").write_text("{\n")
    one = world({"tables": "bronze/*", "optimize": {"spares_files": 1}}, {"tables": "sliver/*", "vacuum": {}})
    broken, clicks, none = one.plans()
    assert (broken.state, clicks.state) == ("waiting", "due") and broken.why_not
    assert (none.table, none.why_not) == (None, "no table is called sliver/*")
    one = world({"tables": "bronze/clicks", "vacuum": {}}, lake={"read_only_roots": [str(tmp_path / "lake")]})
    assert "is read-only (lake.read_only_roots)" in one.plan().why_not


def test_looking_takes_a_twentieth_of_the_time(world) -> None:
    """A clock on which every look takes two seconds."""
    one, ticks = world({"tables": CLICKS, "optimize": {"spares_files": 11}}), [0.0]

    def elapsed() -> float:
        ticks[0] += 1.0
        return ticks[0]

    plans = PolicyPlans(one.settings, one.lake, elapsed=elapsed)

    def previewed() -> Any:
        (plan,) = plans.plans(one.store, now=one.now)
        return plan.previewed

    first = previewed()
    builders.partitioned_table(one.home / "lake" / "bronze" / "clicks", days=1, files_per_day=1)
    assert previewed() is first
    ticks[0] += LOOK_FACTOR
    assert previewed().figures["files_in"] == 13


def test_a_host_asks_for_what_is_due_once_and_one_host_of_several(world, tmp_path: Path) -> None:
    for number in range(MOST_WAITING + 1):
        builders.partitioned_table(tmp_path / "lake" / "bronze" / f"t{number}", days=1, files_per_day=2)
    one = world({"tables": "bronze/*", "optimize": {"spares_files": 1}})

    def rounds(host: str) -> Rounds:
        plans = PolicyPlans(one.settings, one.lake)
        return led("policies", partial(submit_due, plans, one.store, lambda: one.now), one.store, host)

    first, second = rounds("host-a"), rounds("host-b")
    first.once()
    asked = one.store.jobs.unfinished()
    assert len(asked) == len({job.subject for job in asked}) == MOST_WAITING
    assert {(job.actor, job.reason) for job in asked} == {("policy", "policy: optimize bronze/*: spares_files 1")}
    one.done(asked[0])
    second.once()
    assert len(one.store.jobs.unfinished()) == MOST_WAITING - 1, "another host has the lease"
    first.once()
    assert len(one.store.jobs.unfinished()) == MOST_WAITING
