"""How far behind a stream was after each batch, from offsets and times alone; and the chart of it."""

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from app.cli.output import encoded
from app.cli.streams.listing import SHAPES
from app.streams.view.figures import build_backlog_figure
from app.ui.view.figure_json import FigureLook
from backend.lake.history.arrivals import Arrival
from backend.stream_model.backlog import Backlog, Lag, SourceBacklog
from backend.stream_model.stream import Progress, StreamInput, TopicEnds
from backend.streams.backlog.kafka import kafka_backlog
from backend.streams.backlog.lags import UNREAD, BatchEnd, batch_end, lags, lags_since
from backend.streams.backlog.positions import DeltaPosition, FilesPosition, KafkaPosition, OtherPosition, parse_position

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def delta(version: int, index: int = -1, *, is_initial: bool = False) -> dict[str, object]:
    return {"reservoirId": "t", "reservoirVersion": version, "index": index, "isStartingVersion": is_initial}


def batch(ends_s: float, *sources: dict[str, object] | None, latest: Sequence[object] = ()) -> BatchEnd:
    said = [{"endOffset": end} for end in sources]
    for each, newest in zip(said, latest, strict=False):
        each["latestOffset"] = newest  # type: ignore[assignment]
    raw = json.dumps({"sources": said})
    return batch_end(Progress("s", "q", "r", 1, at(ends_s - 1), 10, None, None, 1_000, raw_json=raw))


COMMITS = [Arrival(version, at(10 * version), 2, 100, 20) for version in range(5)]


def test_what_lay_behind_an_offset_when_a_batch_ended() -> None:
    found = lags(
        [batch(25, delta(1)), batch(26, delta(3)), batch(45, delta(4, 0)), batch(46, delta(4, 1))], {0: COMMITS}
    )
    assert [(lag.behind_s, lag.rows) for lag in found] == [
        (15.0, 40),  # versions 1 and 2 were there
        (0.0, 0),  # version 3 was not yet
        (5.0, 20),  # one of its two files was read: it counts whole
        (0.0, 0),
    ]


def test_a_batch_without_known_offsets_has_no_lag() -> None:
    assert lags([batch(25, delta(1, is_initial=True)), batch(26, None), batch(27)], {0: COMMITS}) == ()
    broken = batch_end(Progress("s", "q", "r", 1, NOW, 1, None, None, 1, raw_json="{"))
    assert broken.positions == () and lags([broken], {0: COMMITS}) == ()


def test_files_wait_until_an_entry_of_the_log_that_was_read_names_them() -> None:
    files = [Arrival(0, at(0), 1, 10, None), Arrival(1, at(5), 1, 10, None), Arrival(UNREAD, at(8), 1, 10, None)]
    found = lags([batch(6, {"logOffset": 0}), batch(9, {"logOffset": 1})], {0: files})
    assert [(lag.behind_s, lag.rows) for lag in found] == [(1.0, None), (1.0, None)]


def test_after_the_last_batch_the_backlog_grows_with_each_arrival() -> None:
    found = lags_since(batch(5, delta(1)), {0: COMMITS}, at(35))
    assert [(lag.at, lag.rows) for lag in found] == [(at(5), 0), (at(10), 20), (at(20), 40), (at(30), 60), (at(35), 60)]
    many = [Arrival(version, at(version), 1, 1, 1) for version in range(5_000)]
    assert len(lags_since(batch(-1, delta(0)), {0: many}, at(6_000))) <= 260


def test_topics_tell_their_ends_and_no_times() -> None:
    (found,) = lags([batch(1, {"orders": {"0": 4, "1": 6}}, latest=[{"orders": {"0": 10, "1": 6}}])], {})
    assert (found.rows, found.behind_s) == (6, None)
    (done,) = lags([batch(1, {"orders": {"0": 10}}, latest=[{"orders": {"0": 10}}])], {})
    assert (done.rows, done.behind_s) == (0, 0.0)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ('{"logOffset":7}', FilesPosition(7)),
        ('{"orders":{"0":4}}', KafkaPosition({"orders": {0: 4}})),
        (json.dumps(delta(3, 2)), DeltaPosition("t", 3, 2, is_initial=False)),
        ("7", OtherPosition("7")),
        ("{", OtherPosition("{")),
        ('{"reservoirId":"t"}', OtherPosition('{"reservoirId":"t"}')),
        ('{"orders":{"x":4}}', OtherPosition('{"orders":{"x":4}}')),
    ],
)
def test_an_offset_is_known_by_its_shape(text: str, wanted: object) -> None:
    assert parse_position(text) == wanted


def test_a_topic_is_counted_by_partition() -> None:
    source = StreamInput("kafka", "orders at broker")
    heard = TopicEnds(
        "s", source.name, NOW, firsts={"o": {0: 2, 1: 0}}, ends={"o": {0: 10, 1: 5}}, starts={"o": {0: 2, 1: 0}},
        unread={"o": {0: (4, at(-60))}}, retention_ms={"o": 120_000},
    )  # fmt: skip
    found = kafka_backlog(source, KafkaPosition({"o": {0: 4, 1: 5}}), heard, now=NOW)
    assert (found.rows, found.lost, found.oldest_unread_at) == (6, 0, at(-60))
    assert found.data_loss is not None and found.data_loss.at == at(60)
    begun = kafka_backlog(source, None, heard, now=NOW)
    assert (begun.rows, begun.oldest_unread_at) == (13, None), "times are those of another offset"
    assert kafka_backlog(source, KafkaPosition({"o": {0: 0, 1: 5}}), heard, now=NOW).lost == 2


def test_a_stream_that_read_on_since_the_host_asked_is_not_told_of_another_topic() -> None:
    source, there = StreamInput("kafka", "orders at broker"), {"o": {0: 0, 1: 0}}
    heard = TopicEnds("s", source.name, NOW, there, {"o": {0: 10, 1: 5}}, there, read={"o": {0: 4, 1: 5}})
    ahead = kafka_backlog(source, KafkaPosition({"o": {0: 13, 1: 5}}), heard, now=NOW)
    assert (ahead.rows, ahead.is_caught_up, ahead.unknown) == (0, True, "")
    anew = replace(heard, read={"o": {0: 11, 1: 5}})
    found = kafka_backlog(source, KafkaPosition({"o": {0: 11, 1: 5}}), anew, now=NOW)
    assert found.rows is None and "o-0 lies beyond its end: the topic was made anew" in found.unknown
    begun = kafka_backlog(source, KafkaPosition({"o": {0: 3, 1: 0}}), anew, now=NOW)
    assert (begun.rows, begun.unknown) == (12, ""), "the stream started over since"


def test_the_chart_says_what_waits() -> None:
    assert build_backlog_figure([], FigureLook()) is None
    rows = build_backlog_figure([Lag(at(0), 0.0, 0), Lag(at(10), 10.0, 445)], FigureLook())
    assert rows is not None
    assert rows["layout"]["title"]["text"] == "Backlog: 445 rows unread"
    assert rows["data"][0]["y"] == [0, 445]
    ages = build_backlog_figure([Lag(at(0), 90.0, None)], FigureLook())
    assert ages is not None
    assert (ages["layout"]["title"]["text"], ages["data"][0]["y"]) == ("Backlog: 1 min behind", [1.5])
    done = build_backlog_figure([Lag(at(0), 0.0, 0)], FigureLook())
    assert done is not None and done["layout"]["title"]["text"] == "Backlog: caught up"


def test_the_chart_ends_with_what_the_look_beside_it_saw() -> None:
    source = SourceBacklog("bronze", "table", rows=205, oldest_unread_at=at(-4))
    ran = (Lag(at(-20), 8.0, 300), Lag(at(-10), 9.0, 190), Lag(at(2), 5.0, 408))
    assert Backlog((source,), NOW).lags_until(ran) == (*ran[:2], Lag(NOW, 4.0, 205))
    assert Backlog((source,), NOW).lags_until(()) == ()
    unknown = Backlog((replace(source, rows=None, oldest_unread_at=None, unknown="gone"),), NOW)
    assert unknown.lags_until(ran) == ran


@pytest.mark.parametrize(
    ("rows", "drain_s"),
    [
        ([900, 700, 500, 300], 45.0),  # 600 in 30 s, and 900 wait now
        ([300, 500, 700, 900], None),
        ([103, 108, 99, 104, 101], None),  # it keeps up: what waits goes up and down
        ([103, 102, 102, 101, 101], None),
        ([900, 300], None),  # too few to tell
    ],
)
def test_a_drain_is_foretold_where_what_waits_surely_shrinks(rows: list[int], drain_s: float | None) -> None:
    found = tuple(Lag(at(10 * place), None, each) for place, each in enumerate(rows))
    source = SourceBacklog("bronze", "table", rows=900)
    assert Backlog((source,), NOW, found).drain_s == drain_s


def test_json_has_zeros_where_a_stream_is_caught_up_and_null_where_nobody_knows() -> None:
    source = StreamInput("kafka", "orders at broker")
    heard = TopicEnds("s", source.name, NOW, firsts={"o": {0: 0}}, ends={"o": {0: 5}}, starts={"o": {0: 0}})
    done = Backlog((kafka_backlog(source, KafkaPosition({"o": {0: 5}}), heard, now=NOW),), NOW)
    zeros = dict.fromkeys(("versions", "files", "bytes", "rows"), 0)
    assert encoded(done, SHAPES) == {**zeros, "oldest_unread_at": None, "drain_s": 0.0}
    waits = Backlog((kafka_backlog(source, KafkaPosition({"o": {0: 2}}), heard, now=NOW),), NOW)
    assert encoded(waits, SHAPES) == {**dict.fromkeys(zeros), "rows": 3, "oldest_unread_at": None, "drain_s": None}
    unknown = Backlog((kafka_backlog(source, None, None, now=NOW),), NOW)
    assert set(encoded(unknown, SHAPES).values()) == {None}
