"""What the browser tests share: Debian's Chromium, the recorded demo behind one server, and the demo that runs.

Without a browser these tests skip and say so; with CI=true a missing browser is a failure.
"""

import os
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from playwright.sync_api import Browser, BrowserContext, Page, expect

from backend.stream_model.stream import ATTACHED, StreamState
from tests.worlds.browser.viewer import PATIENCE_MS, Viewer
from tests.worlds.browser.weir import RUNNING, Weir, chromium, demo, pages_over, states
from tests.worlds.lake import builders
from tests.worlds.lake.planted import Planted, plant
from tests.worlds.pages.recorded_demo import record_demo
from tests.worlds.pages.serving import answering
from tests.worlds.store import stream_store

__all__ = ["chromium"]

STEADY = {"WEIR_HOST__HEARTBEAT_STALE_S": "86400"}  # nobody beats for the recorded host
# A name that is a picture to HTML and ends a script to a browser; as long as a folder's may be.
HOSTILE = "we\"ird <img src=x onerror=document.title='bad'> \\ ñ'; " + "x" * 100
EXPORT_ROWS, EXPORT_FILES = 400_000, 10  # about 1.2 GB of CSV, which takes seconds to make


@pytest.fixture(scope="session")
def browser_type_launch_args() -> dict[str, Any]:
    path = chromium()
    if path is None:
        reason = "no Chromium on this machine (Debian: apt-get install chromium)"
        if os.environ.get("CI", "").lower() in ("true", "1"):
            pytest.fail(f"{reason}, and in CI the browser tests must run", pytrace=False)
        pytest.skip(reason)
    return {"executable_path": path, "args": ["--no-sandbox", "--disable-dev-shm-usage"]}


@pytest.fixture(scope="session")
def browser_context_args() -> dict[str, Any]:
    return {"viewport": {"width": 1440, "height": 900}, "timezone_id": "Europe/Amsterdam", "locale": "en-GB"}


@pytest.fixture(scope="session")
def warm(browser: Browser, browser_context_args: dict[str, Any]) -> Iterator[BrowserContext]:
    """One profile for all tests: the client's five megabytes of code are fetched and compiled once."""
    context = browser.new_context(**browser_context_args)
    yield context
    context.close()


@pytest.fixture
def page(warm: BrowserContext) -> Iterator[Page]:
    page = warm.new_page()
    page.set_default_timeout(PATIENCE_MS)
    expect.set_options(timeout=PATIENCE_MS)
    yield page
    page.close()


# the recorded demo ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record_demo(tmp_path_factory.mktemp("recorded"))


@pytest.fixture(scope="session")
def payments(recording: Path) -> Planted:
    """The table shop/payments, with one bad MERGE."""
    return plant(recording / "lake" / "shop" / "payments")


@pytest.fixture(scope="session")
def recorded_home(recording: Path, payments: Planted) -> Path:
    """The demo's tables and streams, an attached stream, and tables for one subject each. `onward` alone is written."""
    lake = recording / "lake"
    for layer in ("small", "onward"):
        builders.orders_table(lake / layer / "orders")
    _incident(lake / "incident" / "refunds")
    builders.write(lake / "odd", {"a </script> b": [1]}).rename(lake / HOSTILE)
    _long_history(lake / "long" / "history")
    _large(lake / "large" / "texts")
    store, now = stream_store.open_store(recording), datetime.now(UTC)
    stream_store.declare(store, "shop etl.files", now)
    foreign = replace(store.declarations()["shop etl.files"], kind=ATTACHED, pipeline="shop etl", reset_allowed=False)
    store.declare([foreign], now=now)
    store.close()
    return recording


def _incident(path: Path) -> None:
    """v0 six rows · v1 two more · v2 one settled · v3 a MERGE turns two amounts negative · v4 a row · v5 compaction."""

    def rows(ids: list[int], amounts: list[float]) -> pa.Table:
        return pa.table({"id": ids, "amount": amounts, "status": ["open"] * len(ids)})

    builders.write(path, rows([1, 2, 3, 4, 5, 6], [10.0, 20.0, 30.0, 40.0, 50.0, 60.0]))
    builders.write(path, rows([7, 8], [70.0, 80.0]))
    DeltaTable(path).update(updates={"status": "'settled'"}, predicate="id = 2")
    merge = DeltaTable(path).merge(rows([3, 5], [-30.0, -50.0]), "t.id = s.id", source_alias="s", target_alias="t")
    merge.when_matched_update_all().execute()
    builders.write(path, rows([9], [90.0]))
    DeltaTable(path).optimize.compact()


def _long_history(path: Path) -> None:
    """A hundred commits, twelve seconds apart."""
    log = builders.HandLog(path)
    log.commit(builders.protocol(), builders.metadata(), builders.commit_info(timestamp=1_763_700_000_000))
    for number in range(1, 100):
        info = builders.commit_info(timestamp=1_763_700_000_000 + number * 12_000, userName="ann")
        log.commit(info, builders.add(f"{number}.parquet"))


def _large(path: Path) -> None:
    text = pa.array([f"{number:0300d}" for number in range(1_000)] * (EXPORT_ROWS // 1_000))
    builders.write(path, pa.table({"id": list(range(EXPORT_ROWS)), "text": text}))
    (file,) = path.glob("*.parquet")
    names = [f"{number}.parquet" for number in range(1, EXPORT_FILES)]
    for name in names:
        os.link(file, path / name)
    size = file.stat().st_size
    copies = [builders.add(name, size=size, rows=EXPORT_ROWS) for name in names]
    builders.HandLog(path, next_version=1).commit(builders.commit_info(), *copies)


@pytest.fixture(scope="session")
def portal() -> Iterator[int]:
    """The port where pages that are not Weir's are served."""
    page = 200, {"Content-Type": "text/html"}, b"<!doctype html><title>Portal</title><p>Not Weir</p>"
    with answering(lambda _: page) as port:
        yield port


@pytest.fixture(scope="session")
def recorded(browser_type_launch_args: dict[str, Any], recorded_home: Path, portal: int) -> Iterator[Weir]:
    """Its pages. The portal may show them in a frame under the name `localhost`, under `127.0.0.1` it may not."""
    with pages_over(recorded_home, **STEADY, WEIR_UI__FRAME_ANCESTORS=f'["http://localhost:{portal}"]') as weir:
        yield weir


@pytest.fixture
def viewer(page: Page, recorded: Weir) -> Iterator[Viewer]:
    """Before the recorded demo."""
    viewer = Viewer(page, recorded)
    yield viewer
    assert_nothing_failed(viewer)


# the demo that runs ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def weir(browser_type_launch_args: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Weir]:
    """The demo, with Spark. A test says whether its streams are `flowing` or `resting`."""
    # Fewer files than people see: what streams do takes the processor from the browser. No act but those of a test.
    calm = {"WEIR_DEMO__LANDING_INTERVAL_S": "5", "WEIR_DEMO__POLICY": "false"}
    with demo(tmp_path_factory.mktemp("browser") / "weir", **calm) as running:
        yield running


@pytest.fixture
def flowing(weir: Weir) -> None:
    """All six streams run."""
    weir.ask_all("start", RUNNING)


@pytest.fixture
def resting(weir: Weir) -> None:
    """All six streams have stopped, each after two micro-batches at least."""
    with weir.store() as store:
        is_at_rest = set(states(store).values()) == {StreamState.STOPPED}
    if not is_at_rest:
        weir.ask_all("start", RUNNING)
        weir.until_flowing(1)
        weir.ask_all("stop", StreamState.STOPPED)


@pytest.fixture
def operator(page: Page, weir: Weir) -> Iterator[Viewer]:
    """Before the demo that runs."""
    viewer = Viewer(page, weir)
    yield viewer
    assert_nothing_failed(viewer)


def assert_nothing_failed(viewer: Viewer) -> None:
    assert viewer.complaints == []
    assert [line for line in viewer.weir.log("ui").splitlines() if '"page failed"' in line] == []
