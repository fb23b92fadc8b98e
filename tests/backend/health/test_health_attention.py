"""What needs attention, drawn from values alone; the clock is a parameter."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from backend.expectations.model import ExpectationKind, Finding, Judgement, State, TableExpectation
from backend.health.attention import AttentionRules, attention
from backend.health.groups import grouped
from backend.health.model import AttentionItem, Cause, Severity
from backend.lake.model import TableCard, TableRef, UnreadableTable
from backend.search.notice import Measure, Notice
from backend.stream_model.backlog import Backlog, DataLoss, SourceBacklog
from backend.stream_model.stream import (
    Desired,
    DesiredState,
    HostHeartbeat,
    InputKind,
    Observed,
    StreamDeclaration,
    StreamFailure,
    StreamInput,
    StreamState,
)
from backend.streams.graph import streams_reached
from backend.streams.verdict import StreamStatus, Verdict

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
RULES = AttentionRules(stale_after_s=86_400, heartbeat_stale_s=15)
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
        (stream(StreamState.RUNNING, Verdict.STALLED), Severity.WARNING, "because"),
        (stream(StreamState.RUNNING, Verdict.SLOW), Severity.WARNING, "because"),
    ],
)
def test_streams_in_trouble(status: StreamStatus, severity: Severity, words: str) -> None:
    (item,) = of(streams=(status,))
    assert (item.kind, item.subject, item.severity) == ("stream", "silver_orders", severity)
    assert words in item.what


def test_a_stream_that_a_person_stopped_is_a_note_with_who_and_why() -> None:
    stopped = stream(StreamState.STOPPED, Verdict.STOPPED, desired=DesiredState.STOPPED)
    assert stopped.desired is not None
    by = replace(stopped, desired=replace(stopped.desired, actor="ana", reason="schema change"))
    (item,) = of(streams=(by,))
    assert (item.severity, item.what) == (Severity.NOTE, "silver_orders was stopped by ana: schema change")
    assert item.since == NOW


def test_a_dead_host_is_critical_only_while_its_streams_should_run() -> None:
    dead = replace(ALIVE, beat_at=NOW - HOUR)
    (item,) = of(hosts=(dead,))
    assert (item.kind, item.severity, item.since) == ("host", Severity.CRITICAL, NOW - HOUR)
    stopped = stream(StreamState.STOPPED, desired=DesiredState.STOPPED)
    host, note = of(streams=(stopped,), hosts=(dead,))
    assert (host.severity, note.cause) == (Severity.NOTE, Cause.STOPPED_STREAM)
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
    assert (fed.severity, "silver_orders" in fed.what, "for 3 d " in fed.what) == (Severity.WARNING, True, True)
    (quiet,) = of(old, streams=())
    assert quiet.severity is Severity.NOTE
    assert of(replace(FRESH, last_commit_at=None)) == [], "unknown is not stale"


def small(name: str, files: int, size_bytes: int, after: int) -> TableCard:
    ref = replace(REF, name=name, uri=f"/lake/{name}")
    return replace(FRESH, ref=ref, num_files=files, small_files=files, size_bytes=size_bytes, files_after_merge=after)


def test_small_files_are_urgent_by_what_merging_gains_not_by_their_share() -> None:
    (tiny,) = of(small("tiny", 30, 276_000, 1))
    assert (tiny.severity, tiny.spared, "30 of 30 files are small" in tiny.what) == (Severity.NOTE, 29, True)
    (slow,) = of(small("slow", 5_000, 5_000_000_000, 20))
    assert (slow.severity, "merging would spare 4,980" in slow.what) == (Severity.WARNING, True)
    assert of(replace(small("few", 100, 1_000, 80), small_files=20)) == []
    assert of(replace(small("fewer than the rule judges", 15, 1_000, 15), small_files=0)) == []
    assert of(replace(FRESH, num_files=0)) == []


def test_the_most_urgent_comes_first() -> None:
    found = of(
        small("slow", 5_000, 5_000_000_000, 20),
        UnreadableTable(replace(REF, name="b", uri="/lake/b"), "x", "y"),
        replace(FRESH, ref=replace(REF, name="c", uri="/lake/c"), last_commit_at=NOW - timedelta(days=9)),
        streams=(stream(StreamState.FAILED),),
    )
    assert [item.severity for item in found] == [Severity.CRITICAL, Severity.CRITICAL, Severity.WARNING, Severity.NOTE]


def unreadable(name: str, reason: str) -> UnreadableTable:
    return UnreadableTable(replace(REF, name=name, uri=f"/lake/{name}"), reason, "")


def test_what_has_one_cause_is_one_line_with_what_it_has_in_common() -> None:
    feature = "the table needs the reader feature catalogOwned, which Weir does not know"
    gap = "version {0} cannot be read: commit {0} is missing from the log"
    tables = [
        *(unreadable(f"f{n:02d}", feature) for n in range(40)),
        *(unreadable(f"g{n}", gap.format(n)) for n in range(3)),
        *(unreadable(f"h{n}", f"the log of /lake/h{n} names '/etc/{n}', outside the table") for n in range(2)),
        unreadable("odd", "no permission to read /lake/odd/_delta_log"),
        *(small(f"s{n}", 20, 1_000, 1) for n in range(5)),
    ]
    groups = grouped(of(*tables))
    assert [(group.severity, group.cause, len(group.items)) for group in groups] == [
        (Severity.CRITICAL, Cause.UNREADABLE, 46),
        (Severity.NOTE, Cause.SMALL_FILES, 5),
    ]
    assert groups[0].what == (
        "46 tables cannot be read: reader feature catalogOwned (40), version … cannot be read: commit … is missing "
        "from the log (3), the log of … names …, outside the table (2) and 1 other reason."
    )
    assert groups[1].what == "5 tables hold mostly small files: merging would spare 95 files."


def test_a_few_names_of_very_many_tables_are_not_said_nor_where_in_its_log_each_is_broken() -> None:
    torn = [unreadable(f"t{n}", f"line {n + 1} of {n:020d}.json: not JSON (cut off or garbage)") for n in range(3)]
    assert grouped(of(*torn))[0].what == "3 tables cannot be read: not JSON (cut off or garbage)."
    quiet = [AttentionItem(Severity.NOTE, Cause.QUIET_TABLE, f"t{n}", "what", "step") for n in range(1_000)]
    assert grouped(quiet)[0].what == "1,000 tables have had no commit for long."


@pytest.mark.parametrize("cause", list(Cause))
def test_every_cause_has_words_for_one_and_for_many(cause: Cause) -> None:
    def item(name: str) -> AttentionItem:
        return AttentionItem(Severity.WARNING, cause, name, "what", "step", detail="why", spared=3)

    (one,), (many,) = grouped([item("a")]), grouped([item(f"t{n}") for n in range(6)])
    assert (one.what, one.next_step, one.only is not None, many.only) == ("what", "step", True, None)
    assert many.what.startswith(f"6 {cause.kind}s ") and many.what.endswith(".") and many.next_step.endswith(".")
    names = "t0, t1, t2, t3 and 2 more" in many.what
    assert names is (cause not in (Cause.UNREADABLE, Cause.SMALL_FILES))


def behind(age: timedelta, *, until: timedelta, lost: int = 0) -> StreamStatus:
    loss = DataLoss(NOW + until, "the log entry of v12", "delta.logRetentionDuration")
    source = SourceBacklog(
        "bronze", "table", versions=3, files=3, rows=30, oldest_unread_at=NOW - age, lost=lost, data_loss=loss
    )
    return replace(RUNNING, backlog=Backlog((source,), NOW))


def test_unread_input_that_retention_deletes_soon_is_told_with_the_setting() -> None:
    (item,) = of(streams=(behind(28 * 24 * HOUR, until=48 * HOUR),))
    assert (item.cause, item.severity) == (Cause.EXPIRING_STREAM, Severity.WARNING)
    assert item.what == (
        "silver_orders: unread input may be deleted from 2026-03-03 12:00:00 UTC on (in 2 d): "
        "the log entry of v12; delta.logRetentionDuration moves that."
    )
    assert "raise delta.logRetentionDuration" in item.next_step


def test_a_short_retention_alarms_nobody_while_the_stream_keeps_up() -> None:
    assert of(streams=(behind(timedelta(seconds=5), until=HOUR),)) == []
    assert of(streams=(behind(5 * 24 * HOUR, until=25 * 24 * HOUR),)) == []


def test_input_that_is_gone_is_critical() -> None:
    (item,) = of(streams=(behind(timedelta(seconds=5), until=HOUR, lost=2),))
    assert (item.cause, item.severity) == (Cause.EXPIRING_STREAM, Severity.CRITICAL)
    assert "2 versions were deleted before it read them" in item.what


def test_a_cause_is_told_once_and_its_victims_are_named() -> None:
    stopped = stream(StreamState.STOPPED, Verdict.STOPPED, desired=DesiredState.STOPPED)
    gold = replace(RUNNING.declaration, name="gold_orders", sink_uri="/lake/gold/orders", sink_table="gold/orders")
    starved = replace(RUNNING, declaration=gold, starved_by="silver_orders", verdict=Verdict.IDLE)
    stale = replace(
        FRESH, ref=TableRef("/lake/gold/orders", "gold/orders", "/lake", "gold"), last_commit_at=NOW - 99 * HOUR
    )
    (item,) = of(stale, streams=(stopped, starved))
    assert item.cause is Cause.STOPPED_STREAM
    assert item.what.endswith("It starves gold_orders.")


# expectations on tables --------------------------------------------------------------------------------------------

KEY = TableExpectation("/lake/silver/orders", "silver_orders", ExpectationKind.UNIQUE, columns=("id",))
DAILY = replace(KEY, kind=ExpectationKind.ROWS_PER_DAY, columns=())
TIMED = replace(KEY, kind=ExpectationKind.FRESH, columns=(), within_s=900)
BROKEN = Finding(State.BROKEN, broken_keys=1, broken_rows=2, examples=("7",))


def judged(*findings: tuple[TableExpectation, Finding], host: str = "host-1") -> list[AttentionItem]:
    said = [Judgement(expected, finding, host, NOW, NOW - HOUR) for expected, finding in findings]
    return list(attention([FRESH], (RUNNING,), (ALIVE,), judgements=said, now=NOW, rules=RULES))


def test_a_broken_expectation_is_a_warning_on_its_table() -> None:
    (item,) = judged((KEY, BROKEN), (TIMED, Finding(State.MET)))
    assert (item.severity, item.cause, item.kind) == (Severity.WARNING, Cause.BROKEN_EXPECTATION, "table")
    assert (item.subject, item.since) == ("silver/orders", NOW - HOUR)
    assert item.what == "Expected: id is unique. Found: 1 key is repeated, in 2 rows: 7."


def test_what_cannot_be_told_is_a_note_unless_the_table_is_only_young() -> None:
    (item,) = judged((KEY, Finding(State.UNKNOWN, "1.2 TB, limit 10 GB")))
    assert (item.severity, item.cause) == (Severity.NOTE, Cause.UNKNOWN_EXPECTATION)
    assert "not judged: 1.2 TB, limit 10 GB" in item.what
    assert judged((DAILY, Finding(State.UNKNOWN, "3 of 7 days", is_early=True))) == []


def test_a_host_that_is_away_leaves_what_it_found_and_says_so() -> None:
    broken, met = judged((KEY, BROKEN), (TIMED, Finding(State.MET, last_data_at=NOW)), host="gone")
    assert broken.severity is Severity.WARNING and "Last judged just now: its host is away." in broken.what
    assert met.cause is Cause.UNKNOWN_EXPECTATION and "its host is away" in met.what
    (group,) = grouped(judged((KEY, BROKEN), (DAILY, BROKEN), host="gone"))
    assert "(id is unique, last judged just now; as many new rows" in group.what


def test_a_table_whose_freshness_is_expected_is_not_stale_by_the_general_limit() -> None:
    old = replace(FRESH, last_commit_at=NOW - timedelta(days=3))
    week = Judgement(replace(TIMED, within_s=7 * 86_400), Finding(State.MET, last_data_at=NOW), "host-1", NOW)
    assert len(of(old)) == 1
    assert attention([old], (RUNNING,), (ALIVE,), judgements=[week], now=NOW, rules=RULES) == ()


def test_several_broken_expectations_are_one_line_by_tables() -> None:
    (group,) = grouped(judged((KEY, BROKEN), (TIMED, replace(BROKEN, last_data_at=NOW - HOUR))))
    assert group.what == "1 table breaks 2 table expectations: silver/orders (id is unique; new data every 15 min)."
    other = replace(KEY, uri="/lake/x", table="x")
    (both,) = grouped(judged((KEY, BROKEN), (other, BROKEN), (replace(other, columns=("b",)), BROKEN)))
    assert both.what == "2 tables break 3 table expectations: silver/orders, x."


JUMP = Notice(
    "/lake/silver/orders", "silver/orders", 31, Measure.HIGHEST, "amount", "498.2", "47,189", "amount <= 550",
    "MERGE by stream silver_orders", NOW - HOUR,
)  # fmt: skip


def reading(name: str, source: str, sink: str) -> StreamStatus:
    read = StreamInput(InputKind.TABLE, source, source)
    declared = replace(RUNNING.declaration, name=name, sink_uri=sink, inputs=(read,))
    return replace(RUNNING, declaration=declared)


def test_an_unusual_commit_says_what_it_did_and_whom_it_reaches() -> None:
    streams = (
        reading("gold", "file:///lake/silver/orders", "/lake/gold"), reading("more", "/lake/gold/", "/lake/more"),
        reading("apart", "/lake/other", "/lake/silver/orders"),
    )  # fmt: skip
    (item,) = attention([], streams, [ALIVE], notices=[JUMP], now=NOW, rules=RULES)
    assert (item.severity, item.cause, item.subject) == (Severity.WARNING, Cause.UNUSUAL_COMMIT, "silver/orders")
    assert item.what == (
        "highest amount 498.2 → 47,189 at v31, MERGE by stream silver_orders, 1 h ago. Downstream: gold, more."
    )
    (new,) = attention([], streams, [ALIVE], notices=[replace(JUMP, kind=Measure.WRITER)], now=NOW, rules=RULES)
    assert new.severity is Severity.NOTE, "it may well be meant"
    two = [JUMP, replace(JUMP, uri="/lake/b", table="b")]
    (group,) = grouped(attention([], streams, [ALIVE], notices=two, now=NOW, rules=RULES))
    assert group.what.startswith("2 tables did what was never seen before: ") and "b (highest" in group.what


def test_silence_is_told_once_by_whoever_knows_most_of_it() -> None:
    silent = replace(JUMP, uri=REF.uri, table=REF.name, kind=Measure.SILENCE, subject="", before="every 5 min")
    old = replace(FRESH, last_commit_at=NOW - timedelta(days=3))
    (item,) = attention([old], [], [ALIVE], notices=[silent], now=NOW, rules=RULES)
    assert (item.severity, item.cause) == (Severity.WARNING, Cause.UNUSUAL_COMMIT)
    (fed,) = attention([old], [RUNNING], [ALIVE], notices=[silent], now=NOW, rules=RULES)
    assert fed.cause is Cause.SILENT_TABLE
    fresh = TableExpectation(REF.uri, REF.name, ExpectationKind.FRESH, within_s=60.0)
    late = Judgement(fresh, Finding(State.BROKEN, since=NOW), ALIVE.host_id, NOW, NOW)
    (expected,) = attention([old], [], [ALIVE], judgements=[late], notices=[silent], now=NOW, rules=RULES)
    assert expected.cause is Cause.BROKEN_EXPECTATION


def test_a_webhook_that_can_be_told_nothing_is_told_here() -> None:
    (item,) = attention([], [], [ALIVE], webhook_error="the webhook answers HTTP 500", now=NOW, rules=RULES)
    assert (item.severity, item.kind, item.subject) == (Severity.WARNING, "webhook", "notify.webhook")
    assert item.what == "Nobody is told of what needs attention: the webhook answers HTTP 500."


def test_streams_that_read_each_other_end() -> None:
    streams = (reading("there", "/lake/a", "/lake/b"), reading("back", "/lake/b", "/lake/a"))
    assert streams_reached("/lake/a", streams) == ("there", "back")
