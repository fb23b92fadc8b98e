"""The verdicts of the demo's six streams over a recording of a busy machine, on which Spark was frozen near the end.

What was known is recorded (`tests.recording`), and no verdict: a rule that changes is judged by the same minutes.
"""

from collections import defaultdict
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from backend.streams.verdict import StreamJudgement, Verdict, judge
from tests.worlds.streams.recording import Moment, replay

STALE_S = 15.0
STARTED_AT = datetime(2026, 11, 24, 11, 0, 54, tzinfo=UTC)
FROZEN_AT = datetime(2026, 11, 24, 11, 36, 26, tzinfo=UTC)
THAWED_AT = datetime(2026, 11, 24, 11, 39, 14, tzinfo=UTC)
FIRST_BATCH = timedelta(seconds=15)
STREAMS = 6

Told = dict[str, dict[datetime, StreamJudgement]]


@pytest.fixture(scope="module")
def told() -> Told:
    """What each stream is said to be, by moment."""
    found: Told = defaultdict(dict)
    for moment in replay("demo.jsonl.xz"):
        for name, judgement in judged(moment).items():
            found[name][moment.at] = judgement
    assert len(found) == STREAMS
    return found


def judged(moment: Moment) -> dict[str, StreamJudgement]:
    return {each.declaration.name: judge(each, now=moment.at, heartbeat_stale_s=STALE_S) for each in moment.streams}


def between(judgements: dict[datetime, StreamJudgement], first: datetime, last: datetime) -> set[Verdict]:
    verdicts = {found.verdict for at, found in judgements.items() if first <= at < last}
    assert verdicts, "nothing was recorded then"
    return verdicts


def test_no_alarm_is_raised_while_nothing_is_wrong(told: Told) -> None:
    for judgements in told.values():
        assert sum(at < FROZEN_AT for at in judgements) > 200
        assert between(judgements, STARTED_AT, STARTED_AT + FIRST_BATCH) <= {Verdict.CATCHING_UP, Verdict.OK}
        assert between(judgements, STARTED_AT + FIRST_BATCH, FROZEN_AT) == {Verdict.OK}
        assert between(judgements, THAWED_AT + FIRST_BATCH, datetime.max.replace(tzinfo=UTC)) == {Verdict.OK}


def test_a_frozen_spark_is_an_alarm_as_long_as_it_is_frozen(told: Told) -> None:
    for judgements in told.values():
        seen_from = FROZEN_AT + timedelta(seconds=STALE_S + 5)
        assert between(judgements, seen_from, THAWED_AT) == {Verdict.UNKNOWN}


def test_no_verdict_goes_back_and_forth(told: Told) -> None:
    for name, judgements in told.items():
        verdicts = [judgements[at].verdict for at in sorted(judgements)]
        changes = [(a, b) for a, b in pairwise(verdicts) if a is not b]
        assert len(changes) <= 4, f"{name}: {changes}"
