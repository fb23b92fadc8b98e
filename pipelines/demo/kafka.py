"""The demo on Kafka. `python -m pipelines.demo.kafka broker FOLDER PORT`: a broker of one process, for tests and for
`make run-kafka`. `… topics`: what the generator landed, line by line, into the topics `events` and `orders`.

Rule: the same folder is the same broker again, whatever ended it. It listens on this machine alone. A topic has one
partition, its records are the lines of the files in their order, each once. So its end says how many lines are sent,
and a start goes on behind them.
"""

import os
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from backend.errors import LakehouseError
from backend.private_files import private_folder
from backend.settings import load_settings
from pipelines.jars import BROKER, BROKER_LIB, find_java, jar_paths
from pipelines.stop_signals import stop_signals

TOPICS = ("events", "orders")
_LOOK_S, _LEADER_S = 0.5, 60
_NO_LEADER_YET = (
    KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE, KafkaError.UNKNOWN_TOPIC_OR_PART,
)  # fmt: skip
_CLUSTER = "weirweirweirweirweirwA"  # 16 bytes in base64
_SERVER = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller_port}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT
log.dirs={folder}/data
auto.create.topics.enable=false
num.partitions=2
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
log.cleaner.enable=false
controlled.shutdown.enable=false
message.max.bytes=10485760
replica.fetch.max.bytes=10485760
"""
_JVM = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData")


def broker_command(folder: Path, *, port: int, controller_port: int, settings: str = "") -> tuple[str, ...]:
    """The command that runs the broker on this folder, formatted on first use. Raises `JarError` or `JavaError`.

    `settings` are further lines of server.properties; a name that comes again wins.
    """
    java = (str(find_java()), *_JVM, "-cp", ":".join(str(path) for path in jar_paths(BROKER_LIB, BROKER)))
    private_folder(folder)
    properties = folder / "server.properties"
    written = _SERVER.format(port=port, controller_port=controller_port, folder=folder)
    properties.write_text(written + settings, encoding="utf-8")
    if not (folder / "data" / "meta.properties").exists():
        storage = ("kafka.tools.StorageTool", "format", f"--cluster-id={_CLUSTER}", "--config", str(properties))
        done = subprocess.run((*java, *storage), capture_output=True, text=True, check=False)
        if done.returncode:
            raise LakehouseError(
                f"the broker's folder cannot be made: {(done.stdout + done.stderr).strip().splitlines()[-1]}",
                hint=f"delete {folder} and start again",
            )
    return (*java, "kafka.Kafka", str(properties))


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


def main(what: str, *at: str) -> int:
    settings = load_settings()
    try:
        if what == "broker":
            folder, port = Path(at[0]).resolve(), int(at[1])
            command = broker_command(folder, port=port, controller_port=port + 1)
            return os.execv(command[0], command)
        forward(settings.home, settings.demo.kafka, stop=stop_signals())
    except LakehouseError as exc:
        sys.stderr.write(f"error: {exc.message}\nhint: {exc.hint}\n")
        return exc.exit_code
    except KafkaException as exc:
        sys.stderr.write(f"error: Kafka at {settings.demo.kafka}: {exc}\nhint: see logs/broker.log\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
