"""What a log line holds, and what it must never hold."""

import json
import logging
import subprocess
import sys
from pathlib import Path

import pytest
import structlog

from backend import logs
from backend.settings import load_settings


@pytest.fixture
def log_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("WEIR_HOME", str(tmp_path))
    before = logging.getLogger().handlers[:]
    logging.getLogger().handlers = []
    logs.configure("host", load_settings())
    yield tmp_path / "logs" / "host.log"
    for handler in logging.getLogger().handlers:
        handler.close()
    logging.getLogger().handlers = before
    structlog.reset_defaults()


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_line_is_one_json_object_with_time_level_and_service(log_file: Path) -> None:
    structlog.get_logger().info("stream_started", stream="silver", batch=3)
    (line,) = lines(log_file)
    assert {"event": "stream_started", "stream": "silver", "batch": 3, "level": "info", "service": "host"}.items() <= (
        line.items()
    )
    assert line["timestamp"].endswith("Z")


@pytest.mark.parametrize(
    ("fields", "gone"),
    [
        ({"url": "postgresql://weir:hunter2@db/weir"}, "hunter2"),
        ({"url": "postgresql://weir:p@ss/word@db/weir"}, "word"),
        ({"password": "hunter2"}, "hunter2"),
        ({"conf": {"fs.s3a.secret.key": "hunter2"}}, "hunter2"),
        ({"options": [{"aws_secret_access_key": "hunter2"}]}, "hunter2"),
        ({"api_token": "hunter2"}, "hunter2"),
        ({"text": "connect failed: host=db password=hunter2 user=weir"}, "hunter2"),
        ({"text": "GET https://blob/x?sv=1&sig=hunter2&se=2"}, "hunter2"),
        ({"text": "{'account_key': 'hunter2'}"}, "hunter2"),
    ],
)
def test_secrets_are_masked(log_file: Path, fields: dict, gone: str) -> None:
    structlog.get_logger().info("event", **fields)
    assert gone not in log_file.read_text()
    assert logs.MASK in log_file.read_text()


def test_libraries_and_tracebacks_are_redacted_too(log_file: Path) -> None:
    logging.getLogger("some.library").warning("cannot reach %s", "postgresql://weir:hunter2@db/weir")
    try:
        raise RuntimeError("postgresql://weir:hunter2@db/weir")
    except RuntimeError:
        structlog.get_logger().exception("failed")
    text = log_file.read_text()
    assert "hunter2" not in text
    assert "RuntimeError" in text
    assert len(lines(log_file)) == 2


def test_plain_words_are_left_alone(log_file: Path) -> None:
    structlog.get_logger().info("event", monkey="banana", url="http://127.0.0.1:4040", keyed=1, name="sink: bronze")
    (line,) = lines(log_file)
    assert (line["monkey"], line["url"], line["keyed"], line["name"]) == (
        "banana",
        "http://127.0.0.1:4040",
        1,
        "sink: bronze",
    )


WRITE = """
import sys, structlog
from backend import logs
from backend.settings import load_settings
logs.MAX_BYTES = 20_000
logs.configure("host", load_settings())
for number in range(400):
    structlog.get_logger().info("line", number=number, filler="x" * 100)
print("last words", file=sys.stderr)
"""


def test_the_log_rotates_and_a_redirected_stderr_follows(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    with (folder / "host.log").open("ab") as log:
        subprocess.run([sys.executable, "-c", WRITE], stderr=log, check=True, env={"WEIR_HOME": str(tmp_path)})
    text = (folder / "host.log").read_text()
    assert text.endswith("last words\n")
    assert text.count('"number": 399') == 1
    assert sum(path.stat().st_size for path in folder.iterdir()) < 20_000 * 4 + 1_000
