"""`python -m pipelines.demo.broker FOLDER PORT`: a Kafka broker of one process, for tests and for `make run-kafka`.

Rule: the same folder is the same broker again, whatever ended it. It listens on this machine alone.
"""

import os
import subprocess
import sys
from pathlib import Path

from backend.errors import LakehouseError
from backend.private_files import private_folder
from pipelines.jars import BROKER, BROKER_LIB, find_java, jar_paths

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


def main(folder: Path, port: int) -> int:
    try:
        command = broker_command(folder.resolve(), port=port, controller_port=port + 1)
    except LakehouseError as exc:
        sys.stderr.write(f"error: {exc.message}\nhint: {exc.hint}\n")
        return exc.exit_code
    return os.execv(command[0], command)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2])))
