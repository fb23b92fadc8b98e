"""`python -m pipelines.demo.topics`: what the generator landed, line by line, into the topics `events` and `orders`.

Rule: a topic has one partition, its records are the lines of the files in their order, each once. So its end says how
many lines are sent, and a start goes on behind them.
"""

import sys
import threading
import time
from dataclasses import dataclass
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


@dataclass(slots=True)
class _Forwarded:
    """The files of a topic from the next one on; `sent` of its lines are in the topic already."""

    folder: Path
    sent: int
    next_file: int = 1

    def send(self, producer: Producer) -> None:
        """What is landed and not in the topic yet."""
        while (path := self.folder / f"{self.folder.name}-{self.next_file:08d}.jsonl").exists():
            lines, landed_ms = path.read_bytes().splitlines(), round(path.stat().st_mtime * 1_000)
            for number, line in enumerate(lines[self.sent :], start=1):
                producer.produce(self.folder.name, value=line, timestamp=landed_ms)
                if not number % 1_000:
                    producer.flush()
            producer.flush()
            self.sent, self.next_file = max(0, self.sent - len(lines)), self.next_file + 1


def forward(home: Path, servers: str, *, stop: threading.Event, once: bool = False) -> None:
    """Send what is landed and not in the topics yet; go on until stopped, or (`once`) until all of it is there."""
    make_topics(servers)
    own = {"enable.idempotence": True, "message.timeout.ms": 0, "linger.ms": 20}  # no record is ever given up
    producer = Producer({"bootstrap.servers": servers, **own})
    forwarded = [_Forwarded(home / "landing" / topic, _end_offset(servers, topic)) for topic in TOPICS]
    while not stop.is_set():
        for topic in forwarded:
            topic.send(producer)
        if once:
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


def _end_offset(servers: str, topic: str) -> int:
    """Waits for the leader of a topic that was just made."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "weir-demo", "enable.auto.commit": False})
    deadline = time.monotonic() + _LEADER_S
    try:
        while True:
            try:
                return int(consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=_LEADER_S)[1])
            except KafkaException as exc:
                if exc.args[0].code() not in _NO_LEADER_YET or time.monotonic() > deadline:
                    raise
            time.sleep(_LOOK_S)
    finally:
        consumer.close()


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
