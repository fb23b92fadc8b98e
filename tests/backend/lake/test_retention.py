"""What can be reached, judged from facts alone: a table of states and what each must answer."""

from datetime import UTC, datetime, timedelta

import pytest

from backend.lake.retention.answers import Reach, judge_version, missing_words
from backend.lake.retention.runs import (
    DELETED_FILES,
    LOG_RETENTION,
    DataFiles,
    FilesSeen,
    LogFacts,
    VacuumRun,
    judge,
    retention_of,
    with_missing,
)
from backend.lake.table.property_values import interval_text, parse_interval

T0 = datetime(2026, 11, 1, 10, 30, tzinfo=UTC)
DAY = timedelta(days=1)


def facts(latest: int = 20, **changes: object) -> LogFacts:
    """A table with a commit a day from version 0 on, checkpoints at 10 and 20, nothing missing."""
    properties = {str(k): str(v) for k, v in dict(changes.pop("properties", {})).items()}  # type: ignore[call-overload]
    whole: dict[str, object] = {
        "latest": latest,
        "listed": ((0, latest),),
        "spans": ((0, latest),),
        "checkpoints": (10, 20),
        "times": {version: T0 + version * DAY for version in range(latest + 1)},
        "feed": ((0, 4, False), (5, latest, True)),
        "deleted_files": retention_of(properties, DELETED_FILES),
        "log_retention": retention_of(properties, LOG_RETENTION),
        "cleanup": True,
    }
    return LogFacts(**(whole | changes))  # type: ignore[arg-type]


NOW = T0 + 20 * DAY + timedelta(hours=1)


@pytest.mark.parametrize(
    ("text", "duration"),
    [
        ("interval 1 week", timedelta(days=7)),
        ("INTERVAL 2 Days 3 hours", timedelta(days=2, hours=3)),
        ("30 days", timedelta(days=30)),
        ("interval 1.5 seconds", timedelta(seconds=1.5)),
        ("interval 2 days -3 hours", timedelta(days=1, hours=21)),
        (" interval  90 minutes ", timedelta(minutes=90)),
        ("interval 0 hours", timedelta()),
        ("interval 1 month", None),
        ("interval 1.5 days", None),
        ("interval -1 days", None),
        ("banana", None),
        ("interval", None),
        ("", None),
        ("interval 999999999999 weeks", timedelta.max / 4),
    ],
)
def test_intervals_are_read_as_delta_reads_them(text: str, duration: timedelta | None) -> None:
    assert parse_interval(text) == duration


def test_intervals_in_words() -> None:
    assert interval_text(timedelta(days=7)) == "7 days"
    assert interval_text(timedelta(days=1, hours=3, minutes=5)) == "1 day 3 hours"
    assert interval_text(timedelta()) == "0 seconds"


def test_runs_cover_every_version_once_and_change_where_an_answer_changes() -> None:
    runs = judge(facts(), NOW).runs
    assert [(r.from_version, r.to_version) for r in runs] == [(0, 4), (5, 13), (14, 20)]
    assert [r.in_retention for r in runs] == [False, False, True]
    assert [r.change_feed for r in runs] == [False, True, True]
    assert [r.data_files for r in runs] == [DataFiles.UNKNOWN, DataFiles.UNKNOWN, DataFiles.EXPECTED]


def test_the_last_instant_of_the_retention_is_inside_it() -> None:
    """Delta refuses `timestamp < now - retention`: equality passes."""
    at_limit = T0 + 5 * DAY + 7 * DAY
    assert judge_version(judge(facts(), at_limit), 5).time_travel.verdict is Reach.YES
    late = judge_version(judge(facts(), at_limit + timedelta(milliseconds=1)), 5).time_travel
    assert late.verdict is Reach.NO and late.until == at_limit


def test_the_latest_version_is_never_refused() -> None:
    answer = judge_version(judge(facts(), NOW + 400 * DAY), 20)
    assert answer.time_travel.verdict is Reach.YES and answer.time_travel.until is None
    assert answer.change_feed.verdict is Reach.YES and answer.restore.verdict is Reach.YES


def test_a_version_of_today_has_its_end_as_a_promise_and_what_would_move_it() -> None:
    travel = judge_version(judge(facts(), NOW), 15).time_travel
    assert (travel.verdict, travel.until, travel.is_promise) == (Reach.YES, T0 + 22 * DAY, True)
    assert "7 days (the default)" in travel.reasons[0]
    assert travel.extension is not None
    assert (travel.extension.key, travel.extension.suggested, travel.extension.until) == (
        DELETED_FILES,
        14 * DAY,
        T0 + 29 * DAY,
    )


def test_a_refused_version_says_what_would_open_it_again() -> None:
    answer = judge_version(judge(facts(), NOW), 2)
    assert answer.time_travel.verdict is Reach.NO and answer.elsewhere.verdict is Reach.UNKNOWN
    extension = answer.time_travel.extension
    assert extension is not None and extension.suggested == 30 * DAY and "have to be there still" in extension.note


def test_a_longer_retention_needs_a_log_as_long() -> None:
    found = judge(facts(properties={LOG_RETENTION: "interval 10 days"}), NOW)
    extension = judge_version(found, 15).time_travel.extension
    assert extension is not None and "has to be at least as long" in extension.note


def test_a_log_cleaned_before_the_retention_ends_is_an_estimate() -> None:
    found = judge(facts(properties={DELETED_FILES: "interval 60 days", LOG_RETENTION: "interval 25 days"}), NOW)
    travel = judge_version(found, 5).time_travel
    midnight = datetime(2026, 11, 2, tzinfo=UTC)  # version 0's file, then whole days
    assert travel.verdict is Reach.YES and travel.until == midnight + 25 * DAY and not travel.is_promise
    # the newest checkpoint is kept whatever its age
    newest = judge_version(found, 20)
    assert newest.log_kept_until is not None and "until a newer checkpoint" in newest.log_words


def test_a_log_that_is_never_cleaned() -> None:
    answer = judge_version(judge(facts(cleanup=False), NOW), 5)
    assert answer.log_kept_until is None and "never cleaned" in answer.log_words


@pytest.mark.parametrize("text", ["banana", "interval 1 month"])
def test_a_retention_that_delta_cannot_read_is_unknown(text: str) -> None:
    found = judge(facts(properties={DELETED_FILES: text}), NOW)
    assert judge_version(found, 15).time_travel.verdict is Reach.UNKNOWN
    assert found.runs[0].in_retention is None
    assert judge_version(found, 20).time_travel.verdict is Reach.YES


def test_gaps_and_a_cleaned_beginning() -> None:
    broken = facts(listed=((6, 12), (14, 20)), spans=((10, 12), (20, 20)), times=dict.fromkeys(range(6, 21), T0))
    found = judge(broken, T0)
    assert (found.runs[0].from_version, found.runs[0].to_version, found.runs[0].listed) == (0, 5, False)
    words = {v: judge_version(found, v).time_travel for v in (2, 8, 11, 13, 16, 20, 99)}
    assert [a.verdict.value for a in words.values()] == ["no", "no", "yes", "no", "no", "yes", "no"]
    assert "oldest version that can be rebuilt is 10" in words[2].reasons[0]
    assert "is missing from the log" in words[13].reasons[0]
    assert "builds on is missing" in words[16].reasons[0]
    assert "there is no version 99" in words[99].reasons[0]


def test_a_checkpoint_without_its_commit_opens_elsewhere_and_not_in_spark() -> None:
    found = judge(facts(listed=((11, 20),), spans=((10, 20),)), NOW)
    answer = judge_version(found, 10)
    assert answer.time_travel.verdict is Reach.NO and "also needs its commit file" in answer.time_travel.reasons[0]
    assert answer.elsewhere.verdict is Reach.UNKNOWN


@pytest.mark.parametrize(
    ("vacuum", "at_risk"),
    [
        (VacuumRun(18, T0 + 18 * DAY, timedelta(), 5), range(17)),  # RETAIN 0 HOURS
        (VacuumRun(18, T0 + 18 * DAY, 3 * DAY, 5), range(14)),  # removed before day 15
        (VacuumRun(18, T0 + 18 * DAY, None, 5), range(10)),  # the table's own 7 days
        (VacuumRun(18, T0 + 18 * DAY, timedelta(), 0), range(0)),  # it deleted nothing
        (VacuumRun(18, None, timedelta(), 5), range(0)),
    ],
)
def test_which_versions_a_vacuum_may_have_touched(vacuum: VacuumRun, at_risk: range) -> None:
    found = judge(facts(vacuums=(vacuum,)), NOW)
    hit = [v for v in range(21) if found.run_of(v).data_files is DataFiles.AT_RISK]  # type: ignore[union-attr]
    assert hit == list(at_risk)


def test_a_vacuum_with_a_shorter_retention_takes_the_promise_away() -> None:
    found = judge(facts(vacuums=(VacuumRun(18, T0 + 18 * DAY, timedelta(), 5),)), NOW)
    assert judge_version(found, 15).time_travel.verdict is Reach.UNKNOWN
    looked = judge_version(found, 15, FilesSeen(15, 10, 10, 0))
    assert looked.time_travel.verdict is Reach.YES and looked.elsewhere.verdict is Reach.YES
    gone = judge_version(found, 15, FilesSeen(15, 10, 10, 3, ("a",)))
    assert gone.restore.verdict is Reach.NO and "3 files are gone, of 10" in gone.restore.reasons[0]


def test_a_sample_claims_no_more_than_it_saw() -> None:
    seen = FilesSeen(3, 12_000, 200, 0)
    assert seen.state is DataFiles.SAMPLED and missing_words(seen) == "no file of 200 sampled (of 12,000) is missing"
    assert missing_words(FilesSeen(3, 12, 12, 0)) == "no file of 12 is missing"


@pytest.mark.parametrize(("version", "feed"), [(4, Reach.NO), (5, Reach.NO), (14, Reach.YES), (20, Reach.YES)])
def test_the_change_feed_has_to_be_on_and_inside_the_retention(version: int, feed: Reach) -> None:
    assert judge_version(judge(facts(), NOW), version).change_feed.verdict is feed


def test_missing_files_cut_the_runs() -> None:
    found = with_missing(judge(facts(), NOW), ((3, 6),))
    states = {run.from_version: run.data_files for run in found.runs}
    assert states == {0: "present", 3: "missing", 5: "missing", 7: "present", 14: "present"}
