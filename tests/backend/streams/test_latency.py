"""Until when a layer is complete, beside a recount that follows each landed file through the tables."""

import json
import random
from bisect import bisect_right
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.lake.history.arrivals import Arrival
from backend.stream_model.stream import Progress, StreamInput, TopicEnds
from backend.streams.backlog.lags import UNREAD, BatchEnd, batch_end
from backend.streams.backlog.trail import Trail, Trails, topic_trail, trail_of

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
FILES, TOPIC = StreamInput("files", "landing", "/landing"), StreamInput("kafka", "orders")
COMMIT_S = 0.2  # a commit is written this long before its batch ends


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


@dataclass
class Table:
    """What a simulated stream wrote: when each commit and its batch ended, and the landed files that it brought."""

    commits: list[tuple[float, float, list[int]]] = field(default_factory=list)

    def arrivals(self) -> list[Arrival]:
        return [Arrival(number, at(when), 1, 1, 1) for number, (when, _, _) in enumerate(self.commits)]

    def holds(self, when: float) -> set[int]:
        return {landed for _, ended, brought in self.commits if ended <= when for landed in brought}


def ended(seconds: float, offset: dict[str, object]) -> BatchEnd:
    raw = json.dumps({"sources": [{"endOffset": offset}]})
    return batch_end(Progress("s", "q", "r", 1, at(seconds - 1), 1, None, None, 1_000, raw_json=raw))


def simulate(dice: random.Random, landed: list[float], lives_s: int) -> tuple[list[Table], Trails]:
    """Bronze reads the landed files, silver bronze, gold silver: as much as each likes, when it likes."""
    tables = [Table() for _ in range(3)]
    names, uris = ("bronze", "silver", "gold"), ("/b", "/s", "/g")
    read, ends = [0, 0, 0], [[ended(0, {"logOffset": -1})], *([ended(0, delta(0, -1))] for _ in range(2))]
    entry = [UNREAD] * len(landed)
    times = sorted(dice.sample(range(1, lives_s), lives_s // 4))
    for number, when in enumerate(times):
        level = dice.randrange(3)
        source = landed if level == 0 else [commit for commit, _, _ in tables[level - 1].commits]
        there = bisect_right(source, when - 0.5)
        to = dice.randint(read[level], max(read[level], there))
        if to == read[level]:
            continue
        taken = range(read[level], to)
        brought = list(taken) if level == 0 else [each for v in taken for each in tables[level - 1].commits[v][2]]
        tables[level].commits.append((when - COMMIT_S, when, brought))
        if level == 0:
            entry[read[0] : to] = [number] * len(taken)
            ends[0].append(ended(when, {"logOffset": number}))
        else:
            ends[level].append(ended(when, delta(to, -1) if dice.random() < 0.5 else delta(to - 1, 0)))
        read[level] = to
    files = [Arrival(of, at(when), 1, 1, None) for of, when in zip(entry, landed, strict=True)]
    trails = {"bronze": (trail_of(FILES, 0, ends[0], files),)}
    for level in (1, 2):
        source = StreamInput("table", names[level - 1], uris[level - 1])
        trails[names[level]] = (trail_of(source, 0, ends[level], tables[level - 1].arrivals()),)
    return tables, Trails(trails, {uri: (name,) for uri, name in zip(uris, names, strict=True)}, at(400))


def delta(version: int, index: int) -> dict[str, object]:
    return {"reservoirId": "t", "reservoirVersion": version, "index": index, "isStartingVersion": False}


@given(st.integers(0, 2**32))
def test_each_layer_is_complete_until_the_oldest_file_that_it_lacks(seed: int) -> None:
    dice = random.Random(seed)
    landed = sorted({round(dice.uniform(0, 300), 1) + 0.05 for _ in range(40)})
    tables, trails = simulate(dice, landed, lives_s=320)
    moments = [round(dice.uniform(1, 400), 1) + 0.01 for _ in range(20)]
    for name, table in zip(("bronze", "silver", "gold"), tables, strict=True):
        for when in moments:
            lacking = set(range(len(landed))) - table.holds(when)
            wanted = min([when, *(landed[each] for each in lacking)])
            found = trails.horizon(name, at(when))
            assert found is not None
            said = (found - NOON).total_seconds()
            assert said <= wanted + 1e-6, "more is never said than is there"
            if not any(c < when < e for each in tables for c, e, _ in each.commits):
                assert said == pytest.approx(wanted), (name, when)


def planned(ends_s: float, offset: int, latest: int, run: str = "r") -> BatchEnd:
    said = [{"endOffset": {"orders": {"0": offset}}, "latestOffset": {"orders": {"0": latest}}}]
    raw = json.dumps({"sources": said})
    return batch_end(Progress("s", "q", run, 1, at(ends_s - 2), 1, None, None, 2_000, raw_json=raw))


def test_a_topic_is_read_while_triggers_find_no_more_than_the_batch_that_reached_its_end() -> None:
    five = timedelta(seconds=5)
    ends = [planned(10, 5, 9), planned(20, 9, 9), planned(60, 12, 40)]
    trail = topic_trail(TOPIC, 0, ends, None, trigger=five)
    # The third batch was planned at 58, so the trigger at 53 had found nothing new.
    assert [trail.until(at(s)) for s in (9, 15, 25, 57, 99)] == [None, None, at(25), at(53), at(53)]
    busy = topic_trail(TOPIC, 0, [planned(20, 9, 9), planned(24, 12, 12)], None, trigger=five)
    assert busy.until(at(23)) == at(18), "the next batch was planned as soon as this one had ended"
    restarted = topic_trail(TOPIC, 0, [*ends[:2], planned(60, 12, 40, run="later")], None, trigger=five)
    assert restarted.until(at(57)) == at(18), "nobody looked while it stood still"


def test_a_quiet_topic_is_read_until_its_broker_was_asked() -> None:
    def heard(end: int) -> TopicEnds:
        return TopicEnds("s", TOPIC.name, at(80), ends={"orders": {0: end}})

    ends, trigger = [planned(20, 9, 9)], timedelta(seconds=5)
    assert topic_trail(TOPIC, 0, ends, heard(9), trigger=trigger).until(at(90)) == at(80)
    assert topic_trail(TOPIC, 0, ends, heard(11), trigger=trigger).until(at(90)) == at(18)


def test_what_is_not_known_above_is_not_known_below() -> None:
    first = ended(5, {**delta(3, -1), "isStartingVersion": True})
    bronze, silver = StreamInput("table", "b", "/b"), StreamInput("table", "s", "/s")
    commits = [Arrival(version, at(version), 1, 1, 1) for version in range(4)]
    halfway = Trails({"silver": (trail_of(bronze, 0, [first], commits),)}, {}, at(9))
    assert halfway.horizon("silver", at(9)) is None, "it still reads the snapshot that it began with"
    caught = trail_of(silver, 0, [ended(5, delta(4, -1))], commits)
    assert Trails({"gold": (caught,)}, {}, at(9)).horizon("gold", at(9)) == at(9), "a table that no stream writes"
    assert (
        Trails({"gold": (caught,), "silver": (Trail(bronze),)}, {"/s": ("silver",)}, at(9)).horizon("gold", at(9))
        is None
    )
    both = Trails({"gold": (caught, Trail(bronze))}, {}, at(9))
    assert both.horizon("gold", at(9)) is None, "one of two sources"
    assert both.horizon("nobody", at(9)) is None


def test_a_circle_of_streams_ends() -> None:
    commits = [Arrival(0, at(1), 1, 1, 1)]
    a = trail_of(StreamInput("table", "a", "/a"), 0, [ended(5, delta(1, -1))], commits)
    b = trail_of(StreamInput("table", "b", "/b"), 0, [ended(5, delta(1, -1))], commits)
    circle = Trails({"one": (a,), "two": (b,)}, {"/a": ("two",), "/b": ("one",)}, at(9))
    assert circle.horizon("one", at(9)) is None
