"""Secrets among Spark's settings reach the session, and stand in no process's arguments."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

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


@pytest.mark.spark
def test_no_secret_is_among_the_arguments_of_a_process(tmp_path: Path) -> None:
    conf = {
        "spark.hadoop.fs.s3a.secret.key": f"{HUSH}-s3",
        "spark.ssl.keyPassword": f"{HUSH}-ssl",
        "spark.weir.jdbc": f"jdbc:postgresql://db/shop?user=weir&password={HUSH}-jdbc",
    }
    env = {**os.environ, "WEIR_HOME": str(tmp_path), "WEIR_CONFIG": os.devnull, "WEIR_SPARK__CONF": json.dumps(conf)}
    run = subprocess.run([sys.executable, "-c", START], env=env, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines() == [
        f"{HUSH}-s3 UTC",
        "in the JVM's arguments: True",
        "secrets in arguments: 0",
    ]
    assert [file.name for file in (tmp_path / "logs").iterdir() if file.stat().st_mode & 0o077] == []
    assert HUSH not in "".join(file.read_text() for file in (tmp_path / "logs").iterdir())
