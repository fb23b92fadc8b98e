"""`python -m pipelines.demo.topics`: what the generator landed, line by line, into the topics `events` and `orders`.

Rule: each record says in a header which file it ends or continues, so a start goes on where the topic ends. A topic
has one partition: its order is that of the files.
"""

import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from backend.settings import load_settings
from pipelines.stop_signals import stop_signals

TOPICS = ("events", "orders")
_LOOK_S, _LEADER_S = 0.5, 60
_NO_LEADER_YET = (
    KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE, KafkaError.UNKNOWN_TOPIC_OR_PART,
)  # fmt: skip
_PLACE = "line"  # header: number of the file and of the line in it


def forward(home: Path, servers: str, *, stop: threading.Event, once: bool = False) -> None:
    """Send what is landed and not in the topics yet; go on until stopped, or (`once`) until all of it is there."""
    make_topics(servers)
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 20})
    places = {topic: _end_of(servers, topic) for topic in TOPICS}
    while not stop.is_set():
        for topic in TOPICS:
            places[topic] = _send(producer, home / "landing" / topic, places[topic])
        if producer.flush() == 0 and once:
            return
        stop.wait(_LOOK_S)


def make_topics(servers: str) -> None:
    """Make the topics unless they are there; waits for a broker that is starting."""
    admin = AdminClient({"bootstrap.servers": servers})
    for made in admin.create_topics([NewTopic(topic, 1, 1) for topic in TOPICS], operation_timeout=60).values():
        try:
            made.result()
        except KafkaException as exc:
            if exc.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise


def _send(producer: Producer, folder: Path, place: tuple[int, int]) -> tuple[int, int]:
    """Lines after this place; the place of the last of them."""
    while (path := folder / f"{folder.name}-{place[0]:08d}.jsonl").exists():
        landed_ms = round(path.stat().st_mtime * 1_000)
        for number, line in _lines_after(path, place[1]):
            header = {_PLACE: f"{place[0]}:{number}"}
            producer.produce(folder.name, value=line, timestamp=landed_ms, headers=header)
            if not number % 1_000:
                producer.flush()
        producer.flush()
        place = (place[0] + 1, 0)
    return place


def _lines_after(path: Path, number: int) -> Iterator[tuple[int, bytes]]:
    lines = path.read_bytes().splitlines()
    return ((place, line) for place, line in enumerate(lines, start=1) if place > number)


def _end_of(servers: str, topic: str) -> tuple[int, int]:
    """File and line of the topic's last record."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "weir-demo", "enable.auto.commit": False})
    try:
        place = TopicPartition(topic, 0)
        end = _end_offset(consumer, place)
        if not end:
            return 1, 0
        place.offset = end - 1
        consumer.assign([place])
        last = consumer.poll(60)
        if last is None or last.error():
            raise KafkaException(last and last.error())
        file, line = dict(last.headers())[_PLACE].decode().split(":")
        return int(file), int(line)
    finally:
        consumer.close()


def _end_offset(consumer: Consumer, place: TopicPartition) -> int:
    """Waits for the leader of a topic that was just made."""
    deadline = time.monotonic() + _LEADER_S
    while True:
        try:
            return int(consumer.get_watermark_offsets(place, timeout=_LEADER_S)[1])
        except KafkaException as exc:
            if exc.args[0].code() not in _NO_LEADER_YET or time.monotonic() > deadline:
                raise
        time.sleep(_LOOK_S)


def main() -> int:
    settings = load_settings()
    try:
        forward(settings.home, settings.demo.kafka, stop=stop_signals())
    except KafkaException as exc:
        sys.stderr.write(f"error: Kafka at {settings.demo.kafka}: {exc}\nhint: see logs/broker.log\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
