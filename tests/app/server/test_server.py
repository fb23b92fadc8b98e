"""The server's own routes, on a real server process: health, metrics, a page's first bytes; its services, once each."""

import asyncio
import gzip
import json
import os
import subprocess
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import plotly
import pytest

from app import services
from app.pipeline import page as pipeline
from app.query import sql_editor
from app.ui import figures
from app.ui.live import VIEWERS_AT_FULL_PACE, paced
from app.ui.scripts import Script
from tests.worlds.pages.serving import Served, got
from tests.worlds.pages.viewer import Viewer, viewers_of
from tests.worlds.processes import wait_until


def test_the_settings_of_streamlit_are_ours_in_any_folder(tmp_path: Path) -> None:
    """Also where a name is believed, and another program's settings lie in the folder."""
    (tmp_path / ".streamlit").mkdir()
    (tmp_path / ".streamlit" / "config.toml").write_text(
        "[client]\nshowErrorDetails = 'full'\n[server.trustedUserHeaders]\nX-Any = 'named_by_proxy'\n"
    )
    told = (
        "import uvicorn; from streamlit import config; from app.server import asgi\n"
        "uvicorn.run = lambda *_, **__: print([config.get_option(name) for name in ('client.showErrorDetails', "
        "'server.fileWatcherType', 'browser.gatherUsageStats', 'server.trustedUserHeaders')])\nasgi.main()"
    )
    root = Path(__file__).parents[3]
    for header, trusted in (("X-User", "{'X-User': 'named_by_proxy'}"), ("", "{}")):
        env = {**os.environ, "PYTHONPATH": str(root), "WEIR_HOME": str(tmp_path), "WEIR_UI__USER_HEADER": header}
        run = subprocess.run([sys.executable, "-c", told], env=env, cwd=tmp_path, capture_output=True, text=True)
        assert run.stdout.strip().endswith(f"['none', 'none', False, {trusted}]"), run.stdout + run.stderr


@pytest.mark.parametrize("query", ["", "?find=orders"])
def test_the_first_page_is_found_by_its_name(server: Served, query: str) -> None:
    with urllib.request.urlopen(f"{server.url}/overview{query}", timeout=60) as answer:
        assert answer.url == f"{server.url}/{query}" and b"<title>" in answer.read()


@pytest.mark.parametrize("asked", ["health", "host-config"])
def test_a_deep_link_sends_the_client_to_the_root_without_an_error(server: Served, asked: str) -> None:
    assert got(f"{server.url}/history/_stcore/{asked}") == "null"
    assert got(f"{server.url}/_stcore/{asked}") not in ("", "null")


def test_routes_answer_beside_the_pages(server: Served) -> None:
    def numbers_of_now() -> dict[str, str]:
        lines = got(f"{server.url}/metrics").splitlines()
        return dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))

    # Neither answer waits long for the lake and the store, which are read in the background.
    wait_until(lambda: json.loads(got(f"{server.url}/healthz"))["lake"]["tables"] == 3, "the lake is read")
    wait_until(lambda: {"weir_hosts_up", "weir_lake_tables_read"} <= numbers_of_now().keys(), "all is known")
    assert json.loads(got(f"{server.url}/healthz")) == {
        "status": "ok",
        "store": {"status": "ok"},
        "lake": {"status": "ok", "tables": 3, "tables_found": 3, "unreadable_tables": 1},
        "hosts_up": 1,
    }
    numbers = numbers_of_now()
    assert numbers[f'weir_audit_head_info{{hash="{"0" * 64}"}}'] == "0.0", "nobody has acted"
    assert numbers["weir_hosts_up"] == "1.0" and numbers["weir_lake_tables_read"] == "2.0"
    assert "<title>" in got(f"{server.url}/table?table=silver/orders")  # a deep link is served by the same application


@pytest.mark.parametrize(
    ("script", "version", "uses"),
    [
        (figures.SCRIPT, plotly.__version__, "Plotly.react("),
        (pipeline.SCRIPT, "3.31.0", "viz.renderSVGElement("),
        (sql_editor.SCRIPT, "6.43.15", "SQLDialect.define("),
    ],
)
def test_a_script_is_a_library_and_our_lines_and_kept_for_ever(
    server: Served, script: Script, version: str, uses: str
) -> None:
    with urllib.request.urlopen(f"{server.url}{script.path}", timeout=60) as answer:
        content, headers = answer.read(), answer.headers
    assert headers["Content-Type"].startswith("text/javascript")
    assert headers["Cache-Control"] == "public, max-age=31536000, immutable"
    assert headers["Content-Encoding"] == "gzip" and len(content) < 2_000_000
    text, library = gzip.decompress(content), script.library.read_bytes()
    assert text.startswith(library) and uses in text[len(library) :].decode()
    assert version in script.path


@pytest.mark.parametrize(("viewers", "pause_s"), [(0, 2), (1, 2), (25, 2), (26, 4), (50, 4), (200, 16)])
def test_the_pause_of_a_live_region_follows_the_number_of_viewers(viewers: int, pause_s: float) -> None:
    assert paced(2.0, viewers) == pause_s


def test_live_regions_are_asked_for_more_rarely_while_many_watch(server: Served) -> None:
    query = "stream=silver_orders"

    async def pauses(viewer: Viewer) -> list[float]:
        for region in tuple(viewer.regions):
            await viewer.run(region)
        return sorted(viewer.regions.values())

    async def watch() -> list[list[float]]:
        async with viewers_of(server.url, 1, page="stream", query=query) as (viewer,):
            await viewer.run()
            alone = await pauses(viewer)
            async with viewers_of(server.url, VIEWERS_AT_FULL_PACE, page="stream", query=query):
                crowded = await pauses(viewer)
            async with asyncio.timeout(120):
                while await pauses(viewer) != alone:  # a closed connection is noticed a moment later
                    pass
            return [alone, crowded, await pauses(viewer)]

    with ThreadPoolExecutor(1) as beside:  # this thread may have the loop of a browser test
        assert beside.submit(asyncio.run, watch()).result() == [[2, 5], [4, 10], [2, 5]]


def test_a_service_that_is_let_go_while_it_is_opened_is_opened_anew() -> None:
    def make() -> int:
        service.clear()  # as another thread may
        return next(numbers)

    numbers, service = count(), services.once(make)
    assert [service(), service()] == [0, 1]
