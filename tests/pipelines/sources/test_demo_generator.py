"""The demo generator: the ledger equals what was landed, whatever was killed when, and so do topics and bronze."""

import json
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from backend.settings import Settings, load_settings
from pipelines.demo.generator import generate, topics
from pipelines.demo.landing import LandingError, sole_generator, temporary_name
from pipelines.demo.producers import Delivery, LandedRecord, OrderProducer, RecordKind
from pipelines.demo.topics import TOPICS, forward
from tests.worlds.processes import let_pass, wait_until
from tests.worlds.spark.lakes import demo_lake
from tests.worlds.streams.demo_ledger import Ledger
from tests.worlds.streams.kafka_broker import KafkaBroker

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def settings_of(home: Path) -> Settings:
    return load_settings(home=home, demo={"landing_interval_s": 0.005, "events_per_s": 4_000, "orders_per_s": 2_000})


def land(home: Path, files: int) -> None:
    generate(settings_of(home), files=files, stop=threading.Event())


def landed_lines(home: Path, topic: str) -> dict[str, list[str]]:
    files = sorted((home / "landing" / topic).glob("[!.]*"))
    return {file.name: file.read_text().splitlines() for file in files}


def entered_lines(home: Path, topic: str) -> dict[str, list[str]]:
    return {file.name: [record.line for record in file.records] for file in Ledger(home).files(topic)}


def assert_ledger_is_true(home: Path) -> None:
    for topic in TOPICS:
        assert entered_lines(home, topic) == landed_lines(home, topic)


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


def orders_for(producer: OrderProducer, minutes: int, *, since: datetime) -> list[list[LandedRecord]]:
    """A live file every ten seconds; in the middle the producer is made anew from its state, as a start does it."""
    files = []
    for number in range(minutes * 6):
        if number == minutes * 3:
            producer = OrderProducer(**json.loads(json.dumps(producer.state())))
        landed_at = since + timedelta(seconds=10 * number)
        files.append(producer.produce(Delivery(number + 1, landed_at, 50, seed=7)))
    return files


@pytest.mark.parametrize("minutes", [14, 30])  # restarted before and after it
def test_a_bad_batch_of_amounts_comes_once_ten_minutes_after_the_first_start(minutes: int) -> None:
    producer = OrderProducer()
    producer.produce(Delivery(1, NOW - timedelta(hours=1), 300, seed=7, backfill=True))
    files = orders_for(producer, minutes, since=NOW)
    (at,) = (number for number, file in enumerate(files) if any(r.kind is RecordKind.INFLATED for r in file))
    assert at == 60
    bad = [json.loads(record.line) for record in files[at] if record.kind is RecordKind.INFLATED]
    assert len(bad) > 10
    assert {change["after"]["country"] for change in bad} == {"ES"}
    assert all(change["after"] == {**change["before"], "amount": change["after"]["amount"]} for change in bad)
    assert all(change["after"]["amount"] == pytest.approx(100 * change["before"]["amount"]) for change in bad)
    changes = sorted((json.loads(record.line) for file in files for record in file), key=lambda c: c["source"]["lsn"])
    held = {(change["after"] or change["before"])["order_id"]: change["after"] for change in changes}
    assert {id_ for id_, order in held.items() if order and order["amount"] > 500} == {
        change["after"]["order_id"] for change in bad
    }  # to the end
    sound = [json.loads(record.line)["after"] for file in files[:at] for record in file]
    assert max(order["amount"] for order in sound if order) <= 500 <= min(each["after"]["amount"] for each in bad)


def test_the_first_start_tells_of_past_hours_and_the_next_goes_on_without_gap_or_double(tmp_path: Path) -> None:
    land(tmp_path, files=2)
    assert len({start for start, _ in Ledger(tmp_path).expected_gold()}) >= 6
    first = next(Ledger(tmp_path).files("events"))
    modified_s = (tmp_path / "landing/events" / first.name).stat().st_mtime
    assert modified_s == pytest.approx(first.landed_at.timestamp(), abs=0.001)
    land(tmp_path, files=2)
    assert_ledger_is_true(tmp_path)
    for topic in TOPICS:
        numbers = [file.number for file in Ledger(tmp_path).files(topic)]
        assert numbers == list(range(1, len(numbers) + 1))
    originals = [r for r in Ledger(tmp_path).records("events") if r.kind in (RecordKind.GOOD, RecordKind.LATE)]
    assert len(originals) == len(Ledger(tmp_path).expected_silver_event_ids())


def test_what_a_kill_left_is_finished_or_dropped_by_the_next_start(tmp_path: Path) -> None:
    land(tmp_path, files=1)
    *_, last = Ledger(tmp_path).files("events")
    folder = tmp_path / "landing/events"
    (folder / last.name).rename(folder / temporary_name(last.name))  # killed after the entry, before the rename
    assert last.number not in {file.number for file in Ledger(tmp_path).files("events")}
    stray = folder / temporary_name("events-00000099.jsonl")
    stray.write_text("half a li")
    with (tmp_path / "ledger/events.jsonl").open("ab") as ledger:
        ledger.write(b'{"number": 99, "na')  # killed inside the write
    assert_ledger_is_true(tmp_path)
    topics(settings_of(tmp_path))  # a start finishes it
    assert (folder / last.name).exists()
    land(tmp_path, files=1)
    assert not stray.exists()
    assert_ledger_is_true(tmp_path)


@pytest.mark.parametrize("kills", [2, pytest.param(30, marks=pytest.mark.soak)])
def test_killed_again_and_again_the_ledger_stays_true(tmp_path: Path, kills: int) -> None:
    moments = random.Random(3)
    for _ in range(kills):
        before = len(landed_lines(tmp_path, "orders"))
        with running(tmp_path) as process:
            wait_for_files(tmp_path, before + 3)
            let_pass(moments, 0, 0.03)
            process.send_signal(signal.SIGKILL)
            process.wait()
        assert_ledger_is_true(tmp_path)
    numbers = [file.number for file in Ledger(tmp_path).files("orders")]
    assert numbers == list(range(1, len(numbers) + 1))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_stops_between_two_files(tmp_path: Path, number: signal.Signals) -> None:
    with running(tmp_path) as process:
        wait_for_files(tmp_path, 26)
        process.send_signal(number)
        printed, complaint = process.communicate(timeout=60)
    assert (process.returncode, complaint) == (0, "")
    assert printed.startswith("generator stopped after")
    assert_ledger_is_true(tmp_path)


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
    landed = {topic: [record.line for file in lake.ledger.files(topic) for record in file.records] for topic in TOPICS}
    for topic in TOPICS:
        assert [message.value().decode() for message in kafka_broker.read(topic)] == landed[topic]  # type: ignore[union-attr]

    lake.process("bronze_events", "silver_events")
    assert Counter(row.raw for row in lake.rows("bronze/bronze_events")) == Counter(landed["events"])
    ids = [row.event_id for row in lake.rows("silver/silver_events")]
    assert len(ids) == len(set(ids))
    assert set(ids) == lake.ledger.expected_silver_event_ids()
