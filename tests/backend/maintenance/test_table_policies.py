"""Policies as settings hold them: what is refused at load, whom a pattern names, when a window is open."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from backend.errors import SettingsError
from backend.settings import Settings, load_settings
from backend.table_policies import TablePolicy, Window


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


@pytest.mark.parametrize(
    ("pattern", "is_for"),
    [("bronze/clicks", True), ("bronze/*", True), ("/data/lake/*", True), ("/data/lake/bronze/clicks/", True),
     ("s3://b/*", False), ("clicks", False), ("BRONZE/*", False)],
)  # fmt: skip
def test_a_pattern_names_tables_by_name_or_uri(pattern: str, is_for: bool) -> None:
    assert TablePolicy(tables=pattern, vacuum={}).is_for("bronze/clicks", "/data/lake/bronze/clicks") is is_for


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("now", "opens_at"),
    [
        ("2026-03-06T01:59:59.999999", "2026-03-06T02:00"),
        ("2026-03-06T02:00", "2026-03-06T02:00"),
        ("2026-03-06T03:29:59.999999", "2026-03-06T03:29:59.999999"),
        ("2026-03-06T03:30", "2026-03-07T02:00"),
    ],
)
def test_a_window_opens_with_its_firing_and_ends_after_its_minutes(now: str, opens_at: str) -> None:
    assert Window("0 2 * * *", 90).opens_at(at(now)) == at(opens_at)


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
