"""The demo generator: each file is landed whole and once, whatever was killed when, and so are topics and bronze."""

import json
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from backend.settings import Settings, load_settings
from pipelines.demo.generator import (
    BACKFILL_RECORDS,
    Delivery,
    EventProducer,
    LandingError,
    OrderProducer,
    generate,
    sole_generator,
    topics,
)
from pipelines.demo.kafka import TOPICS, forward
from tests.worlds.processes import let_pass, wait_until
from tests.worlds.spark.lakes import demo_lake
from tests.worlds.streams.demo_ledger import Ledger
from tests.worlds.streams.kafka_broker import KafkaBroker

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
RECORDS = {"events": 20, "orders": 10}  # of a file that `land` lands
ONE_EACH = {"events": 1, "orders": 1}  # of one that `running` lands


def settings_of(home: Path) -> Settings:
    return load_settings(home=home, demo={"landing_interval_s": 0.005, "events_per_s": 4_000, "orders_per_s": 2_000})


def land(home: Path, files: int) -> None:
    generate(settings_of(home), files=files, stop=threading.Event())


def assert_landed_without_gap_or_double(home: Path, records: Mapping[str, int] = RECORDS) -> None:
    """Each file is what producers that were never stopped send at its number and time."""
    for producer in (EventProducer(), OrderProducer()):
        files = list(Ledger(home).files(producer.topic))
        assert [file.number for file in files] == list(range(1, len(files) + 1))
        for file in files:
            written_s = (home / "landing" / producer.topic / file.name).stat().st_ctime
            is_past = written_s - file.landed_at.timestamp() > 600
            count = BACKFILL_RECORDS if is_past else records[producer.topic]
            sent = producer.produce(Delivery(file.number, file.landed_at, count, seed=7, backfill=is_past))
            assert list(file.lines) == sent, file.name


@contextmanager
def running(home: Path) -> Iterator["subprocess.Popen[str]"]:
    env = {"WEIR_HOME": str(home), "WEIR_DEMO__LANDING_INTERVAL_S": "0.001", "PATH": "/usr/bin:/bin"}
    command = [sys.executable, "-m", "pipelines.demo.generator"]
    process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def wait_for_files(home: Path, count: int) -> None:
    landed = home / "landing" / "orders"
    wait_until(lambda: len(list(landed.glob("[!.]*"))) >= count, "files land", pause_s=0.005)


def orders_for(producer: OrderProducer, minutes: int, *, since: datetime) -> list[list[dict[str, Any]]]:
    """A live file every ten seconds; in the middle the producer is made anew from its state, as a start does it."""
    files = []
    for number in range(minutes * 6):
        if number == minutes * 3:
            producer = OrderProducer(**json.loads(json.dumps(asdict(producer))))
        landed_at = since + timedelta(seconds=10 * number)
        files.append([json.loads(line) for line in producer.produce(Delivery(number + 1, landed_at, 50, seed=7))])
    return files


def is_inflated(change: Mapping[str, Any]) -> bool:
    before, after = change["before"], change["after"]
    return bool(before and after and after["amount"] != before["amount"])


@pytest.mark.parametrize("minutes", [14, 30])  # restarted before and after it
def test_a_bad_batch_of_amounts_comes_once_ten_minutes_after_the_first_start(minutes: int) -> None:
    producer = OrderProducer()
    producer.produce(Delivery(1, NOW - timedelta(hours=1), 300, seed=7, backfill=True))
    files = orders_for(producer, minutes, since=NOW)
    (at,) = (number for number, file in enumerate(files) if any(map(is_inflated, file)))
    assert at == 60
    bad = [change for change in files[at] if is_inflated(change)]
    assert len(bad) > 10
    assert {change["after"]["country"] for change in bad} == {"ES"}
    assert all(change["after"] == {**change["before"], "amount": change["after"]["amount"]} for change in bad)
    assert all(change["after"]["amount"] == pytest.approx(100 * change["before"]["amount"]) for change in bad)
    changes = sorted((change for file in files for change in file), key=lambda change: change["source"]["lsn"])
    held = {(change["after"] or change["before"])["order_id"]: change["after"] for change in changes}
    assert {id_ for id_, order in held.items() if order and order["amount"] > 500} == {
        change["after"]["order_id"] for change in bad
    }  # to the end
    sound = [change["after"] for file in files[:at] for change in file]
    assert max(order["amount"] for order in sound if order) <= 500 <= min(each["after"]["amount"] for each in bad)


def test_the_first_start_tells_of_past_hours_and_the_next_goes_on_without_gap_or_double(tmp_path: Path) -> None:
    land(tmp_path, files=2)
    assert len({start for start, _ in Ledger(tmp_path).expected_gold()}) >= 6
    land(tmp_path, files=2)
    assert len(list(Ledger(tmp_path).files("events"))) == 24 + 4
    assert_landed_without_gap_or_double(tmp_path)
    sent = [json.loads(line)["source"]["lsn"] for line in Ledger(tmp_path).lines("orders")]
    assert sent != sorted(sent), "some changes land after newer ones"


def test_what_a_kill_left_is_finished_or_made_again_by_the_next_start(tmp_path: Path) -> None:
    land(tmp_path, files=1)
    *_, last = Ledger(tmp_path).files("events")
    folder = tmp_path / "landing/events"
    (folder / last.name).rename(folder / f".{last.name}.tmp")  # killed after the state, before the rename
    stray = folder / f".events-{last.number + 1:08d}.jsonl.tmp"
    stray.write_text("half a li")  # killed before the state
    (tmp_path / "ledger/events.state.tmp").write_text('{"next_nu')
    topics(settings_of(tmp_path))  # a start finishes it
    assert (folder / last.name).exists()
    land(tmp_path, files=1)
    assert not list(folder.glob(".*"))
    assert_landed_without_gap_or_double(tmp_path)


def test_a_state_that_cannot_be_read_is_named_with_the_way_on(tmp_path: Path) -> None:
    land(tmp_path, files=1)
    (state,) = (tmp_path / "ledger").glob("events.state.*.json")
    state.write_text("{")
    with pytest.raises(LandingError, match=state.name) as refused:
        land(tmp_path, files=1)
    assert "begin the demo anew" in refused.value.hint


@pytest.mark.parametrize("kills", [2, pytest.param(30, marks=pytest.mark.soak)])
def test_killed_again_and_again_no_file_is_lost_doubled_or_cut(tmp_path: Path, kills: int) -> None:
    moments = random.Random(3)
    for _ in range(kills):
        before = len(list(Ledger(tmp_path).files("orders")))
        with running(tmp_path) as process:
            wait_for_files(tmp_path, before + 3)
            let_pass(moments, 0, 0.03)
            process.send_signal(signal.SIGKILL)
            process.wait()
        assert_landed_without_gap_or_double(tmp_path, ONE_EACH)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_stops_between_two_files(tmp_path: Path, number: signal.Signals) -> None:
    with running(tmp_path) as process:
        wait_for_files(tmp_path, 26)
        process.send_signal(number)
        printed, complaint = process.communicate(timeout=60)
    assert (process.returncode, complaint) == (0, "")
    assert printed.startswith("generator stopped after")
    assert not [*(tmp_path / "landing").rglob(".*.tmp"), *(tmp_path / "ledger").glob("*.tmp")]
    assert_landed_without_gap_or_double(tmp_path, ONE_EACH)


def test_a_second_generator_is_refused(tmp_path: Path) -> None:
    with sole_generator(tmp_path), pytest.raises(LandingError, match="another generator"):
        land(tmp_path, files=1)


@pytest.mark.spark
@pytest.mark.soak
def test_the_demo_goes_through_topics_once(spark: SparkSession, kafka_broker: KafkaBroker, tmp_path: Path) -> None:
    lake = demo_lake(tmp_path, kafka=kafka_broker.servers)
    lake.land(1)
    forward(tmp_path, kafka_broker.servers, stop=threading.Event(), once=True)
    lake.land(1)
    for _ in range(2):  # the second time it finds the end of the topics, and has nothing to send
        forward(tmp_path, kafka_broker.servers, stop=threading.Event(), once=True)
    landed = {topic: list(lake.ledger.lines(topic)) for topic in TOPICS}
    for topic in TOPICS:
        assert [message.value().decode() for message in kafka_broker.read(topic)] == landed[topic]  # type: ignore[union-attr]

    lake.process("bronze_events", "silver_events")
    assert Counter(row.raw for row in lake.rows("bronze/bronze_events")) == Counter(landed["events"])
    ids = [row.event_id for row in lake.rows("silver/silver_events")]
    assert len(ids) == len(set(ids))
    assert set(ids) == lake.ledger.expected_silver_event_ids()
