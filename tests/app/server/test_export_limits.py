"""Exports to browsers that are slow, stand still or stay too long, on a real server at real sockets: each gives its
place back, and the log says whose and why."""

import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from starlette.applications import Starlette
from starlette.routing import Route
from structlog.testing import capture_logs

from app import services
from app.ui.export import export, exports
from backend.errors import ExportError
from backend.sql.export import FORMATS, Export, ExportState, exported_rows
from tests.worlds.lake import builders
from tests.worlds.pages.opened import home
from tests.worlds.pages.serving import serving
from tests.worlds.processes import wait_until

__all__ = ["home"]

ROWS = 30_000  # of a kilobyte: no socket's buffers hold them all
Serve = Callable[..., int]


@pytest.fixture
def serve(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    """Starts the route on a port of its own, with these settings of `ui`."""
    text = pa.array([f"{number:01000d}" for number in range(1_000)] * (ROWS // 1_000))
    builders.write(home / "lake" / "t", pa.table({"text": text}))
    with ExitStack() as stack:

        def start(**settings: object) -> int:
            for key, value in settings.items():
                monkeypatch.setenv(f"WEIR_UI__{key.upper()}", str(value))
            return stack.enter_context(serving(Starlette(routes=[Route("/export/{ticket}", export)])))

        yield start


def offer(viewer: str) -> Export:
    lake = services.lake()
    rows = exported_rows(lake, lake.snapshot(lake.find("t")), ("text",), None, FORMATS["csv"])
    return exports().offer(rows, viewer)


def ask(port: int, asked: Export) -> socket.socket:
    """A connection that asked for the file, and takes no more of it by itself than fits into small buffers."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
    connection.settimeout(120)
    connection.connect(("127.0.0.1", port))
    connection.sendall(f"GET /export/{asked.ticket} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
    return connection


def whole(connection: socket.socket) -> bytes:
    with connection:
        return b"".join(iter(lambda: connection.recv(1 << 20), b""))


def ended(logs: Sequence[Any], viewers: Sequence[str]) -> dict[str, tuple[str, str | None]]:
    ends = [entry for entry in list(logs) if entry["event"] == "export ended"]
    return {entry["viewer"]: (entry["state"], entry["reason"]) for entry in ends if entry["viewer"] in viewers}


def test_readers_that_stand_still_give_their_places_to_others(serve: Serve) -> None:
    port, viewers = serve(export_min_bytes_per_s=1_000_000), ["ann", "bob", "cem", "dan"]
    with capture_logs() as logs, ExitStack() as stack:
        dead = [stack.enter_context(ask(port, offer(viewer))) for viewer in viewers]
        assert [connection.recv(12) for connection in dead] == [b"HTTP/1.1 200"] * 4
        wait_until(lambda: len(ended(logs, viewers)) == 4, lambda: f"four ended: {logs}")
        why = ("cancelled", "the browser took less than 1,000,000 bytes a second")
        assert ended(logs, viewers) == dict.fromkeys(viewers, why)
        fifth = whole(ask(port, offer("eve")))
        assert fifth.startswith(b"HTTP/1.1 200") and fifth.endswith(b"\r\n0\r\n\r\n")
        assert sum(fifth.count(f"{number:01000d}".encode()) for number in (0, 7, 999)) == 3 * ROWS // 1_000
        assert not whole(dead[0]).endswith(b"\r\n0\r\n\r\n"), "half a file must not look like a whole one"


def test_a_reader_that_is_fast_enough_for_the_rate_ends_at_the_total_time(serve: Serve) -> None:
    port = serve(export_min_bytes_per_s=1, export_time_limit_s=0.5)
    asked = offer("ann")
    with capture_logs() as logs, ask(port, asked) as connection:
        assert connection.recv(1) == b"H"
        wait_until(lambda: ended(logs, ["ann"]), "it ended")
        assert ended(logs, ["ann"]) == {"ann": ("cancelled", "it took longer than 0.5 s")}
        assert asked.state is ExportState.CANCELLED


def test_a_reader_that_leaves_is_told_from_one_that_is_slow(serve: Serve) -> None:
    port = serve()
    with capture_logs() as logs:
        with ask(port, offer("ann")) as connection:
            assert connection.recv(1) == b"H"
        wait_until(lambda: ended(logs, ["ann"]), "it ended")
        assert ended(logs, ["ann"]) == {"ann": ("cancelled", "the browser left")}


def test_one_viewer_has_no_more_than_their_places(serve: Serve) -> None:
    port = serve()
    with ExitStack() as stack:
        for _ in range(2):
            assert stack.enter_context(ask(port, offer("ann"))).recv(12) == b"HTTP/1.1 200"
        refused = whole(ask(port, offer("ann")))
        assert refused.startswith(b"HTTP/1.1 410") and b"2 exports of yours run already" in refused
        with pytest.raises(ExportError):
            exports().take(offer("ann").ticket)
        assert stack.enter_context(ask(port, offer("bob"))).recv(12) == b"HTTP/1.1 200"
