"""An operator at live pages: a reset and its undo, a chain stopped, a host killed, a foreign application watched.

Each effect is looked up outside the page.
"""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from backend.stream_model.stream import StreamState
from tests.browser.conftest import RUNNING, STREAMS, Viewer, Weir, states
from tests.worlds.browser.server import pages_over
from tests.worlds.processes import wait_until
from tests.worlds.store import stream_store

pytestmark = [pytest.mark.browser, pytest.mark.ci]

LAST = "gold_orders_by_status"
CHAIN = ("bronze_events", "silver_events", "gold_events_hourly")
ROOT = Path(__file__).parents[2]


def observed(viewer: Viewer, state: str) -> Locator:
    return viewer.page.locator(".st-key-state_row").filter(has_text=re.compile(rf"observed\s*\S*\s*{state}"))


def dialog_of(viewer: Viewer, button: str) -> Locator:
    viewer.main.get_by_role("button", name=button, exact=True).click()
    return viewer.page.get_by_role("dialog")


def stop(viewer: Viewer) -> None:
    dialog = dialog_of(viewer, "Stop")
    dialog.get_by_label("Reason").fill("browser test: a reset")
    dialog.get_by_role("button", name="Stop", exact=True).click()
    expect(observed(viewer, "Stopped")).to_be_visible(timeout=120_000)


def start_over(viewer: Viewer, level: str) -> str:
    """Send the dialog at this level; what it said before."""
    dialog = dialog_of(viewer, "Reset…")
    dialog.get_by_role("radio", name=level, exact=True).or_(
        dialog.get_by_role("button", name=level, exact=True)
    ).first.click()
    viewer.settle()
    told = dialog.inner_text()
    viewer.picture(f"start-over-{level.split()[0].lower()}")
    dialog.get_by_label("Reason").fill("browser test")
    dialog.get_by_label(f"Type {LAST} to confirm").fill(LAST)
    dialog.locator(".st-key-reset_send button").click()
    expect(dialog).to_have_count(0)
    return told


def offsets(weir: Weir) -> dict[str, str]:
    """What the stream's checkpoint holds; nothing where there is none."""
    folder = weir.home / "checkpoints" / LAST / "offsets"
    return {path.name: path.read_text() for path in folder.glob("[0-9]*")}


@pytest.mark.usefixtures("flowing")
def test_a_stream_is_started_over_and_that_is_taken_back(viewer: Viewer, weir: Weir) -> None:
    viewer.open("stream", stream=LAST)
    stop(viewer)
    before = offsets(weir)
    assert before

    told = start_over(viewer, "Read all again")
    assert re.search(r"\d[\d,]* rows", told), told
    wait_until(lambda: not offsets(weir), "the checkpoint is set aside", pause_s=0.5)
    viewer.open("stream", stream=LAST)

    start_over(viewer, "Undo the last reset")
    wait_until(lambda: offsets(weir) == before, "the checkpoint is as it was", pause_s=0.5)
    viewer.open("stream", stream=LAST, view="Operation log")
    wait_until(lambda: viewer.rows("Operation log").count() > 3, "the log tells of it")
    viewer.picture("stream-taken-back")

    batch = weir.streams()[LAST]["batch_id"]
    dialog = dialog_of(viewer, "Start")
    dialog.get_by_label("Reason").fill("browser test: on again")
    dialog.get_by_role("button", name="Start", exact=True).click()
    expect(observed(viewer, "Running")).to_be_visible(timeout=120_000)
    wait_until(lambda: weir.streams()[LAST]["batch_id"] > batch, "it goes on where it was", pause_s=2)


@pytest.mark.usefixtures("flowing")
def test_a_chain_is_stopped_from_its_first_stream_and_the_others_go_on(viewer: Viewer, weir: Weir) -> None:
    viewer.open("stream", stream=CHAIN[0])
    dialog = dialog_of(viewer, "Stop")
    dialog.get_by_text(f"Stop {CHAIN[1]}, {CHAIN[2]} too").click()
    dialog.get_by_label("Reason").fill("browser test: the whole chain")
    dialog.get_by_role("button", name="Stop", exact=True).click()
    wanted = {name: StreamState.STOPPED if name in CHAIN else RUNNING for name in STREAMS}
    with weir.store() as store:
        wait_until(lambda: states(store) == wanted, lambda: str(states(store)), pause_s=0.5)
        asked = [entry.subject for entry in store.audit_entries() if entry.reason == "browser test: the whole chain"]
    assert sorted(asked) == sorted(CHAIN)
    viewer.open("streams")
    viewer.sees(re.compile("3 of 6|3 stopped|three", re.IGNORECASE))


@pytest.mark.usefixtures("flowing")
def test_a_killed_host_is_said_and_its_successor_takes_over(viewer: Viewer, weir: Weir) -> None:
    with weir.store() as store:
        host = max(store.hosts(), key=lambda each: each.beat_at)
        runs = {name: seen.run_id for name, seen in store.observed().items()}
    viewer.open("stream", stream=LAST)
    expect(observed(viewer, "Running")).to_be_visible()
    weir.process.send_signal(signal.SIGSTOP)  # it would start a successor before the silence is told
    try:
        os.kill(host.pid, signal.SIGKILL)
        expect(observed(viewer, "Unknown")).to_be_visible(timeout=60_000)
        viewer.sees(re.compile("unwatched"))
        viewer.picture("stream-host-killed")
    finally:
        weir.process.send_signal(signal.SIGCONT)
    expect(observed(viewer, "Running")).to_be_visible(timeout=180_000)
    with weir.store() as store:
        wait_until(lambda: states(store) == dict.fromkeys(STREAMS, RUNNING), lambda: str(states(store)), pause_s=1)
        assert all(seen.run_id != runs[name] for name, seen in store.observed().items())
    assert not viewer.page.get_by_text("Traceback").count()


@contextmanager
def application(folder: Path, store_url: str) -> Iterator[None]:
    """A Spark application that attaches its queries to this store."""
    (folder / "landing").mkdir(parents=True)
    (folder / "landing" / "1.json").write_text('{"id": 1, "amount": 2.5}\n' * 7)
    argv = [sys.executable, str(ROOT / "tests" / "attach" / "application.py"), str(folder), store_url]
    with (folder / "log").open("wb") as log:
        env = {**os.environ, "PYTHONPATH": str(ROOT / "attach")}
        process = subprocess.Popen(argv, env=env, stdout=log, stderr=log, start_new_session=True)
    try:
        yield
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(120)


def test_a_foreign_application_is_watched_and_cannot_be_acted_on(page: Page, tmp_path: Path) -> None:
    stream_store.open_store(tmp_path).close()
    with pages_over(tmp_path) as weir, application(tmp_path / "etl", f"sqlite:///{tmp_path}/store/weir.db"):
        wait_until(lambda: "shop etl.files" in weir.streams(), "it tells of its queries", pause_s=1)
        wait_until(lambda: weir.streams()["shop etl.files"]["batch_id"] is not None, "a batch", pause_s=1)
        viewer = Viewer(page, weir)
        viewer.open("stream", stream="shop etl.files")
        viewer.sees("The Spark application shop etl runs it: start and stop it there.")
        expect(viewer.main.get_by_role("button", name="Stop", exact=True)).to_have_count(0)
        assert weir.json("stream", "shop etl.files")["progress"]["num_input_rows"] == 7
        viewer.picture("stream-attached")
        assert viewer.complaints == []
