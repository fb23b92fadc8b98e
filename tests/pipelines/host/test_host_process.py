"""A host's process: it ends at any signal, no secret stands in its arguments, and a lost Spark is told with a hint."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

# Waits as often as it can, so that nearly every signal comes amid a wait. The pauses let in whoever sets the
# event: beside one that takes the event's lock again at once it may wait for ever.
WAITER = """
import time
from pipelines.stop_signals import stop_signals
stop = stop_signals()
print("ready", flush=True)
while not any(stop.wait(0.0) for _ in range(500)):
    time.sleep(0.0001)
print("stopped")
"""


HUSH = "hushQx7"
START = """
from pathlib import Path
from backend.settings import load_settings
from pipelines.spark.session import open_session
session = open_session(load_settings())
jvm = session.sparkContext._gateway.proc
arguments = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.parent.exists()]
conf = session.sparkContext.getConf()
print(conf.get("spark.hadoop.fs.s3a.secret.key"), conf.get("spark.sql.session.timeZone"))
print("in the JVM's arguments:", b"spark.sql.session.timeZone=UTC" in Path(f"/proc/{jvm.pid}/cmdline").read_bytes())
print("secrets in arguments:", sum(b"hush" + b"Qx7" in each for each in arguments))
session.stop()
"""
REMOVED = """
import os
from pipelines.jvm.failures import SparkLostError
from pipelines.spark.runtime import _spark_errors
from pipelines.spark.session import open_session
from backend.settings import load_settings
session = open_session(load_settings())
rows = session.readStream.format("rate").load()
session._jsc.sc().stop()  # as the scheduler's backend does when the master removes the application
for act in (lambda: session.range(3).collect(), lambda: rows.writeStream.format("noop").start()):
    try:
        with _spark_errors("nothing works"):
            act()
    except SparkLostError as exc:
        print("LOST", exc.message, "|", exc.hint, flush=True)
os._exit(0)
"""

NO_MASTER = """
import os, sys
from pipelines.host.__main__ import main
code = main()
sys.stderr.flush()
os._exit(code)
"""


def run(script: str, home: Path, **settings: str) -> "subprocess.CompletedProcess[str]":
    env = {**os.environ, "WEIR_HOME": str(home), "WEIR_CONFIG": os.devnull, **settings}
    return subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, timeout=280)


@pytest.mark.parametrize("numbers", [(signal.SIGTERM,), (signal.SIGINT, signal.SIGTERM, signal.SIGINT)])
def test_a_signal_amid_a_wait_ends_it(numbers: tuple[signal.Signals, ...]) -> None:
    for _ in range(3):
        waiter = subprocess.Popen([sys.executable, "-c", WAITER], stdout=subprocess.PIPE, text=True)
        try:
            assert waiter.stdout is not None
            assert waiter.stdout.readline() == "ready\n"
            for number in numbers:
                waiter.send_signal(number)
            said, _ = waiter.communicate(timeout=60)
        finally:
            waiter.kill()
        assert (said, waiter.returncode) == ("stopped\n", 0)


@pytest.mark.spark
@pytest.mark.ci
def test_no_secret_is_among_the_arguments_of_a_process(tmp_path: Path) -> None:
    conf = {
        "spark.hadoop.fs.s3a.secret.key": f"{HUSH}-s3",
        "spark.ssl.keyPassword": f"{HUSH}-ssl",
        "spark.weir.jdbc": f"jdbc:postgresql://db/shop?user=weir&password={HUSH}-jdbc",
    }
    ran = run(START, tmp_path, WEIR_SPARK__CONF=json.dumps(conf))
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == [
        f"{HUSH}-s3 UTC",
        "in the JVM's arguments: True",
        "secrets in arguments: 0",
    ]
    assert [file.name for file in (tmp_path / "logs").iterdir() if file.stat().st_mode & 0o077] == []
    assert HUSH not in "".join(file.read_text() for file in (tmp_path / "logs").iterdir())


@pytest.mark.spark
@pytest.mark.soak
def test_whatever_is_asked_of_it_says_that_it_has_ended(tmp_path: Path) -> None:
    told = run(REMOVED, tmp_path)
    lines = [line for line in told.stdout.splitlines() if line.startswith("LOST")]
    assert len(lines) == 2, told.stderr[-2000:]
    assert "the Spark application has ended: its master removed it | logs/spark.log says why" in lines[0]


@pytest.mark.spark
@pytest.mark.soak
def test_a_master_that_never_answers_is_an_error_with_a_hint(tmp_path: Path) -> None:
    conf = '{"spark.driver.host": "127.0.0.1", "spark.deploy.client.registrationTimeout": "1"}'
    told = run(NO_MASTER, tmp_path, WEIR_SPARK__MASTER="spark://127.0.0.1:1", WEIR_SPARK__CONF=conf)
    assert told.returncode == 1
    assert "error: " in told.stderr
    assert "hint: " in told.stderr
    assert "Traceback" not in told.stderr
