"""A Spark application that its master removed: an error with a hint, and the host ends to be started anew."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

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
    env = {**os.environ, "WEIR_HOME": str(home), **settings}
    return subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=280, check=False, env=env
    )


def test_whatever_is_asked_of_it_says_that_it_has_ended(tmp_path: Path) -> None:
    told = run(REMOVED, tmp_path)
    lines = [line for line in told.stdout.splitlines() if line.startswith("LOST")]
    assert len(lines) == 2, told.stderr[-2000:]
    assert "the Spark application has ended: its master removed it | logs/spark.log says why" in lines[0]


def test_a_master_that_never_answers_is_an_error_with_a_hint(tmp_path: Path) -> None:
    conf = '{"spark.driver.host": "127.0.0.1", "spark.deploy.client.registrationTimeout": "1"}'
    told = run(NO_MASTER, tmp_path, WEIR_SPARK__MASTER="spark://127.0.0.1:1", WEIR_SPARK__CONF=conf)
    assert told.returncode == 1
    assert "error: " in told.stderr
    assert "hint: " in told.stderr
    assert "Traceback" not in told.stderr
