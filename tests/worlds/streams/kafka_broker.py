"""A real Kafka broker for tests: KRaft, one process, on ports and a folder of its own.

Rule: what is in a topic is asked of an independent client, never of Spark.
"""

import subprocess
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from pipelines.demo.kafka import broker_command
from tests.worlds.processes import end, free_port, kill_hard, wait_until

USER, PASSWORD = "weir", 'pass"word of the broker'
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
_ESCAPED = PASSWORD.replace('"', '\\\\"')  # once for the properties, once for JAAS
_SETTINGS = """
listeners=PLAINTEXT://127.0.0.1:{port},SASL_PLAINTEXT://127.0.0.1:{sasl_port},CONTROLLER://127.0.0.1:{controller_port}
sasl.enabled.mechanisms=PLAIN
listener.name.sasl_plaintext.plain.sasl.jaas.config={plain} user_{user}="{password}";
"""
Record = tuple[bytes | None, bytes | None]  # key, value


@dataclass
class KafkaBroker:
    """`kill` is kill -9; `start` on the same data goes on where the log ends."""

    folder: Path
    port: int = field(default_factory=free_port)
    sasl_port: int = field(default_factory=free_port)
    controller_port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    @property
    def servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def sasl_servers(self) -> str:
        return f"127.0.0.1:{self.sasl_port}"

    @property
    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.servers, "log_level": 0})

    def start(self) -> "KafkaBroker":
        ports = {"port": self.port, "controller_port": self.controller_port}
        settings = _SETTINGS.format(plain=_PLAIN, user=USER, password=_ESCAPED, sasl_port=self.sasl_port, **ports)
        command = broker_command(self.folder, **ports, settings=settings)
        with (self.folder / "broker.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder)
        wait_until(self.answers, self._describe, pause_s=0.1)
        return self

    def answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self._describe()
        try:
            return bool(self.admin.list_topics(timeout=1).brokers)
        except KafkaException:
            return False

    def kill(self) -> None:
        kill_hard(self.process)

    def close(self) -> None:
        end(self.process)

    def create(self, topic: str, *, partitions: int = 2, **config: str) -> str:
        """Make a topic and wait until it can be written; its name."""
        wanted = {key.replace("_", "."): value for key, value in config.items()}
        admin = self.admin  # a client that nobody holds ends, and its requests with it
        admin.create_topics([NewTopic(topic, partitions, 1, config=wanted)])[topic].result(120)
        wait_until(lambda: len(self._partitions(topic)) == partitions, f"topic {topic}")
        return topic

    def delete(self, topic: str) -> None:
        admin = self.admin
        admin.delete_topics([topic])[topic].result(120)
        wait_until(lambda: topic not in self.admin.list_topics(timeout=5).topics, f"{topic} is gone")

    def widen(self, topic: str, partitions: int) -> None:
        """Give a topic more partitions."""
        admin = self.admin
        admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(120)
        wait_until(lambda: len(self._partitions(topic)) == partitions, f"topic {topic}")

    def produce(
        self, topic: str, records: Iterable[Record], *, partition: int = -1, timestamp: datetime | None = None
    ) -> list[Message]:
        """Send records, each acknowledged; returns them with partition and offset. Waits for a broker that is away."""
        config = {"bootstrap.servers": self.servers, "enable.idempotence": True, "message.max.bytes": 10_000_000}
        producer, sent = Producer({**config, "linger.ms": 5, "log_level": 0}), []

        def delivered(error: object, message: Message) -> None:
            assert error is None, error
            sent.append(message)

        stamp = {"timestamp": round(timestamp.timestamp() * 1_000)} if timestamp else {}
        for key, value in records:
            producer.produce(topic, key=key, value=value, partition=partition, on_delivery=delivered, **stamp)
            producer.poll(0)
        assert producer.flush(120) == 0
        return sent

    def read(self, topic: str) -> list[Message]:
        """Everything that the topic holds, by partition and offset."""
        settings = {"bootstrap.servers": self.servers, "group.id": "test", "enable.auto.commit": False}
        consumer = Consumer({**settings, "isolation.level": "read_committed", "log_level": 0})
        try:
            partitions = [TopicPartition(topic, number) for number in self._partitions(topic)]
            ends = {part.partition: consumer.get_watermark_offsets(part, timeout=30)[1] for part in partitions}
            for part in partitions:
                part.offset = 0
            consumer.assign(partitions)
            found: list[Message] = []
            wait_until(lambda: self._drained(consumer, partitions, ends, found), f"all of {topic}", pause_s=0)
            return sorted(found, key=lambda message: (message.partition(), message.offset()))
        finally:
            consumer.close()

    @staticmethod
    def _drained(
        consumer: Consumer, partitions: list[TopicPartition], ends: dict[int, int], found: list[Message]
    ) -> bool:
        found += [message for message in consumer.consume(1_000, timeout=0.1) if message.error() is None]
        at = {part.partition: part.offset for part in consumer.position(partitions)}
        return all(end == 0 or at[number] >= end for number, end in ends.items())

    def _partitions(self, topic: str) -> list[int]:
        return sorted(self.admin.list_topics(topic, timeout=10).topics[topic].partitions)

    def _describe(self) -> str:
        return f"the broker answers; it says: …{(self.folder / 'broker.log').read_text(errors='replace')[-1000:]}"
