"""What the pages of the recorded demo show is what the commands print; of lists and tables, `test_one_truth` says it.

Rule: the page is read as its viewer reads it, the command as a script does; nothing of one is used for the other.
"""

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from backend.format import count_text, things
from tests.worlds.pages.frames import frame_with
from tests.worlds.pages.opened import forget_caches, metrics, open_page, printed_json, words

pytestmark = pytest.mark.xdist_group("browser")  # whose demo it reads

ORDERS = "silver/silver_orders"
Ask = Callable[..., Any]


@pytest.fixture
def ask(recorded_home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Ask]:
    """What a command on the recorded demo prints; pages of this process show the same home."""
    monkeypatch.setenv("WEIR_HOME", str(recorded_home))
    monkeypatch.setenv("WEIR_CONFIG", os.devnull)
    monkeypatch.setenv("WEIR_HOST__HEARTBEAT_STALE_S", "86400")
    forget_caches()
    yield lambda *command: printed_json(capsys, *command)
    forget_caches()


def test_history_and_versions(ask: Ask) -> None:
    commits = ask("history", ORDERS, "--limit", "100")
    shown = frame_with(open_page("history", table=ORDERS), "Version", "Operation")
    assert list(shown["Version"]) == [commit["version"] for commit in commits]
    assert [text.split(maxsplit=1)[1] for text in shown["Operation"]] == [commit["operation"] for commit in commits]

    answer = ask("versions", ORDERS)
    latest, oldest = answer["latest"], answer["spans"][0]["from_version"]
    assert f"v{latest} is the latest version" in words(open_page("versions", table=ORDERS))
    [run] = [run for run in answer["runs"] if run["from_version"] <= oldest <= run["to_version"]]
    verdict = next(line for line in words(open_page("versions", table=ORDERS, at=oldest)).splitlines() if "**v" in line)
    assert ("can be read" in verdict) is (run["reconstructable"] and run["in_retention"])


def test_properties(ask: Ask) -> None:
    properties = ask("properties", ORDERS)["properties"]
    num_set = sum(prop["is_set"] for prop in properties)
    text = words(open_page("properties", table=ORDERS))
    assert re.search(rf"\b{num_set} of {len(properties)} properties set here", text), (num_set, text[:300])


def test_changes_and_the_first_bad_version(ask: Ask) -> None:
    table = ask("table", ORDERS)
    latest, condition = table["version"], f"count(*) < {table['num_rows']}"
    net = ask("diff", ORDERS, "--from", "1", "--to", str(latest))["net"]
    shown = metrics(open_page("changes", table=ORDERS, **{"from": 1, "to": latest}))
    assert shown["Inserted (net)"] == signed("+", net["inserted"])
    assert shown["Updated (net)"] == signed("", net["updated"])
    assert shown["Deleted (net)"] == signed("−", net["deleted"])

    bisected = ask("bisect", ORDERS, "--assert", condition, "--good", "0", "--bad", str(latest))
    app = open_page("bisect", table=ORDERS, condition=condition, good=0, bad=latest)
    app.button(key="find").click().run()
    assert f"v{bisected['first_bad_version']}" in words(app)


def signed(sign: str, count: int | None) -> str:
    return "–" if count is None else f"{sign if count else ''}{count_text(count)}"


def test_streams(ask: Ask) -> None:
    streams = ask("streams")
    shown = frame_with(open_page("streams"), "Stream", "Observed").set_index("Stream")
    assert set(shown.index) == {stream["name"] for stream in streams}
    for stream in streams:
        assert shown.loc[stream["name"], "Observed"].upper().endswith(stream["state"])
    running = sum(stream["state"] == "RUNNING" for stream in streams)
    assert metrics(open_page("overview"))["Streams running"] == f"{running} of {len(streams)}"
    last = ask("stream", "silver_orders")["progress"]
    rows = f"{things(last['num_input_rows'], 'row')} in batch {last['batch_id']}"
    assert rows in [metric.delta for metric in open_page("stream", stream="silver_orders").metric]
