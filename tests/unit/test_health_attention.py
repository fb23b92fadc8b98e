"""What needs attention, drawn from values alone; the clock is a parameter."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from backend.health.attention import AttentionRules, attention
from backend.health.model import AttentionItem, Severity
from backend.lake.model import TableCard, TableRef, UnreadableTable
from backend.streams.model import (
    Desired,
    DesiredState,
    HostHeartbeat,
    Observed,
    StreamDeclaration,
    StreamFailure,
    StreamState,
    StreamStatus,
    Verdict,
)

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
RULES = AttentionRules(stale_after_s=86_400, min_files=16, heartbeat_stale_s=15)
REF = TableRef("/lake/silver/orders", "silver/orders", "/lake", "silver")
FRESH = TableCard(REF, 5, 100, 1_000, 10, 0, NOW - HOUR, "WRITE")
ALIVE = HostHeartbeat("host-1", "box", 1, NOW - HOUR, NOW)
ERROR = StreamFailure("ValueError", "poisoned", 7, NOW - HOUR)


def stream(
    state: StreamState, verdict: Verdict = Verdict.OK, *, desired: DesiredState = DesiredState.RUNNING
) -> StreamStatus:
    declaration = StreamDeclaration(
        "silver_orders", "", "", "file:///lake/silver/orders/", "silver/orders", (), "silver", 5_000, "/cp"
    )
    wish = Desired("silver_orders", desired, 1, "", "", NOW)
    failures = (ERROR,) if state in (StreamState.FAILED, StreamState.BACKOFF) else ()
    seen = Observed("silver_orders", state, "host-1", 1, NOW, failures=failures)
    return StreamStatus(declaration, wish, seen, state, None, verdict, "because")


RUNNING = stream(StreamState.RUNNING)


def of(
    *tables: TableCard | UnreadableTable,
    streams: tuple[StreamStatus, ...] = (RUNNING,),
    hosts: tuple[HostHeartbeat, ...] = (ALIVE,),
) -> list[AttentionItem]:
    found = attention(tables, streams, hosts, now=NOW, rules=RULES)
    assert all(item.what and item.next_step for item in found), "every item says what and what next"
    return list(found)


def test_all_well_needs_nobody() -> None:
    assert of(FRESH) == []


@pytest.mark.parametrize(
    ("status", "severity", "words"),
    [
        (stream(StreamState.FAILED), Severity.CRITICAL, "ValueError: poisoned"),
        (stream(StreamState.BACKOFF), Severity.WARNING, "ValueError"),
        (stream(StreamState.RUNNING, Verdict.STALLED), Severity.WARNING, "stalled"),
        (stream(StreamState.RUNNING, Verdict.SLOW), Severity.WARNING, "slow"),
    ],
)
def test_streams_in_trouble(status: StreamStatus, severity: Severity, words: str) -> None:
    (item,) = of(streams=(status,))
    assert (item.kind, item.subject, item.severity) == ("stream", "silver_orders", severity)
    assert words in item.what


def test_a_stream_that_was_stopped_on_purpose_is_no_trouble() -> None:
    assert of(streams=(stream(StreamState.STOPPED, Verdict.STOPPED, desired=DesiredState.STOPPED),)) == []


def test_a_dead_host_is_critical_only_while_its_streams_should_run() -> None:
    dead = replace(ALIVE, beat_at=NOW - HOUR)
    (item,) = of(hosts=(dead,))
    assert (item.kind, item.severity, item.since) == ("host", Severity.CRITICAL, NOW - HOUR)
    stopped = stream(StreamState.STOPPED, desired=DesiredState.STOPPED)
    (item,) = of(streams=(stopped,), hosts=(dead,))
    assert item.severity is Severity.NOTE
    assert of(hosts=(dead, replace(ALIVE, host_id="host-2"))) == [], "another host took over"


def test_a_stream_that_nobody_took_over_is_named_while_another_host_lives() -> None:
    (item,) = of(streams=(stream(StreamState.UNKNOWN, Verdict.UNKNOWN),))
    assert (item.kind, item.subject, item.severity) == ("stream", "silver_orders", Severity.WARNING)
    unwanted = stream(StreamState.UNKNOWN, Verdict.UNKNOWN, desired=DesiredState.STOPPED)
    assert of(streams=(unwanted,)) == []
    (only,) = of(streams=(stream(StreamState.UNKNOWN, Verdict.UNKNOWN),), hosts=(replace(ALIVE, beat_at=NOW - HOUR),))
    assert only.kind == "host", "one line for the dead host, not one for each of its streams"


def test_a_lake_without_streams_misses_no_host() -> None:
    assert of(FRESH, streams=(), hosts=()) == []


def test_an_unreadable_table_says_why_and_what_next() -> None:
    (item,) = of(UnreadableTable(REF, "commit 3 is missing", "restore it"))
    assert (item.severity, item.next_step) == (Severity.CRITICAL, "restore it")
    assert "commit 3 is missing" in item.what
    (item,) = of(UnreadableTable(REF, "odd", ""))
    assert "_delta_log" in item.next_step


def test_a_stale_table_matters_when_a_stream_should_write_it() -> None:
    old = replace(FRESH, last_commit_at=NOW - timedelta(days=3))
    (fed,) = of(old)
    assert (fed.severity, "silver_orders" in fed.what, "3 days" in fed.what) == (Severity.WARNING, True, True)
    (quiet,) = of(old, streams=())
    assert quiet.severity is Severity.NOTE
    assert of(replace(FRESH, last_commit_at=None)) == [], "unknown is not stale"


def test_many_small_files_need_both_a_number_and_a_share() -> None:
    (item,) = of(replace(FRESH, small_files=92))
    assert (item.severity, "92 of 100 files (92 %)" in item.what) == (Severity.WARNING, True)
    assert of(replace(FRESH, small_files=20)) == []
    assert of(replace(FRESH, num_files=10, small_files=10)) == []
    assert of(replace(FRESH, num_files=0)) == []


def test_the_most_urgent_comes_first() -> None:
    found = of(
        replace(FRESH, small_files=92),
        UnreadableTable(replace(REF, name="b", uri="/lake/b"), "x", "y"),
        replace(FRESH, ref=replace(REF, name="c", uri="/lake/c"), last_commit_at=NOW - timedelta(days=9)),
        streams=(stream(StreamState.FAILED),),
    )
    assert [item.severity for item in found] == [Severity.CRITICAL, Severity.CRITICAL, Severity.WARNING, Severity.NOTE]
