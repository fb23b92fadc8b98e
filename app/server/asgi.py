"""The server: Streamlit's pages, `/healthz`, `/metrics`, exports and the scripts of pages in one ASGI application.

Rule: the routes only read; they answer from the same services as the pages, and a service that is down is an answer.
Who opens connections and says nothing, or asks and does not read, costs viewers nothing: such connections end by
themselves, and where there are too many, the one that has waited longest makes room.
"""

import asyncio
import resource
import socket
import sys
import threading
from contextlib import nullcontext, suppress
from pathlib import Path

import h11
import structlog
import uvicorn
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send
from streamlit import config
from streamlit.logger import set_log_level
from streamlit.runtime.forward_msg_queue import ForwardMsgQueue
from streamlit.starlette import App
from uvicorn.protocols.http.h11_impl import H11Protocol

from app import errors, services, viewer
from app.server.door import Door
from app.ui.scripts import Script
from backend import logs
from backend.errors import LakehouseError

MAIN = Path(__file__).parents[1] / "main.py"
FOR_EVER = "public, max-age=31536000, immutable"  # the path names the version
REQUEST_S = 10.0  # from the connection, or the first byte of a further request, until all of it has come
UNREAD_S = 120.0  # that the other side may leave unread what was sent: a download may pause
MOST = 1_000  # of requests and websockets together
MESSAGE_BYTES = 1_000_000  # of a browser's message, unpacked: it says what was clicked and typed
SHUTDOWN_S = 3  # open websockets of viewers are closed after this; their browsers reconnect

_log = structlog.get_logger(__name__)


def script_route(script: Script) -> Route:
    """What draws in the browser, compressed once instead of at each request."""

    async def answer(_: Request) -> Response:
        content = await run_in_threadpool(script.content)
        headers = {"Content-Encoding": "gzip", "Cache-Control": FOR_EVER}
        return Response(content, media_type="text/javascript", headers=headers)

    return Route(script.serve(), answer)


async def to_overview(request: Request) -> Response:
    """The first page is at the root, where its name is typed too."""
    return RedirectResponse(f"./?{request.url.query}".removesuffix("?"))


async def not_here(_: Request) -> Response:
    """Opened at /page, Streamlit's client asks there for its server first, and at the root only once that failed. A 404
    would stand in the browser's console, an answer would make /page the root of all addresses; it cannot use `null`."""
    return JSONResponse(None, headers={"Cache-Control": "no-cache"})


def build_app() -> App:
    """The ASGI application."""
    # Here, after `main` has told Streamlit to be quiet: it warns at each import of a cache that no page runs.
    from app.pipeline import page as pipeline
    from app.query import sql_editor
    from app.server import metrics
    from app.ui import figures
    from app.ui.export import export, serve

    routes = [
        Route("/healthz", metrics.healthz),
        Route("/metrics", metrics.metrics_text),
        Route("/overview", to_overview),
        Route("/{page}/_stcore/health", not_here),
        Route("/{page}/_stcore/host-config", not_here),
        script_route(figures.SCRIPT),
        script_route(pipeline.SCRIPT),
        script_route(sql_editor.SCRIPT),
        Route(f"{serve()}{{ticket}}", export),
    ]
    return App(MAIN, routes=routes, on_script_error=errors.report_bug)


def counting_viewers(app: ASGIApp) -> ASGIApp:
    """The application, with each browser's connection counted while it is open."""
    from app.ui.live import VIEWERS

    async def counted(scope: Scope, receive: Receive, send: Send) -> None:
        with VIEWERS.one_more() if scope["type"] == "websocket" else nullcontext():
            await app(scope, receive, send)

    return counted


class BrowserConnection(H11Protocol):
    """One connection of a browser, until it becomes a websocket."""

    unread_s = UNREAD_S
    _waiting: asyncio.TimerHandle | None = None  # while a request has not come whole

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        # The kernel ends it, also while it closes or is a websocket. Where it knows no such limit, there is none.
        if limit := getattr(socket, "TCP_USER_TIMEOUT", None):
            transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, limit, int(self.unread_s * 1_000))
        self._wait()
        if len(self.connections) > MOST:
            waiting = {
                c: c._waiting.when() for c in self.connections if isinstance(c, BrowserConnection) and c._waiting
            }
            longest = min(waiting, key=waiting.__getitem__)  # this very one, where all others are at work
            _log.warning("too many connections", most=MOST, ended=longest.client and longest.client[0])
            longest._end()

    def data_received(self, data: bytes) -> None:
        if self._waiting is None:
            self._wait()
        super().data_received(data)
        if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            self._wait_no_more()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        self._wait_no_more()
        super().handle_websocket_upgrade(event)

    def connection_lost(self, exc: Exception | None) -> None:
        self._wait_no_more()
        super().connection_lost(exc)

    def _wait(self) -> None:
        self._waiting = self.loop.call_later(REQUEST_S, self._end)

    def _wait_no_more(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _end(self) -> None:
        self._wait_no_more()
        self.transport.abort()


def allow_files() -> None:
    """Lets this process hold `MOST` connections beside the files that it reads."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 4 * MOST if hard == resource.RLIM_INFINITY else min(4 * MOST, hard)
    if resource.RLIM_INFINITY != soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def keep_what_is_unsent() -> None:
    """What a run of the page has drawn reaches the browser, also where a live region is drawn again before it was sent.

    Streamlit drops what that region drew in the first run and still tells the browser that this run is complete. So the
    browser took the region away, and a list in it lost the keyboard; what stands below came to a wrong place.
    """
    clear = ForwardMsgQueue.clear

    def kept(
        self: ForwardMsgQueue, retain_lifecycle_msgs: bool = False, fragment_ids_this_run: list[str] | None = None
    ) -> None:
        if retain_lifecycle_msgs and fragment_ids_this_run:
            self._delta_index_map = {}  # what comes is sent after it, not in its place
        else:
            clear(self, retain_lifecycle_msgs, fragment_ids_this_run)

    ForwardMsgQueue.clear = kept  # type: ignore[method-assign]


def _check_grants() -> None:
    with suppress(LakehouseError):
        for problem in services.access_problems():
            _log.warning("grant_names_nothing", problem=problem)


def main() -> int:
    """Serves until told to stop; returns the exit code."""
    set_log_level("error")  # Streamlit's warnings are about being called by the routes, outside of a page
    try:
        settings = services.settings()
        logs.configure("ui", settings)
    except LakehouseError as exc:
        sys.stderr.write(f"error: {exc.message}\nhint: {exc.hint}\n")
        return exc.exit_code
    reason = viewer.own_actor().refused or None
    _log.info("serving", address=settings.ui.address, port=settings.port, read_only=reason)
    threading.Thread(target=_check_grants, name="grants", daemon=True).start()  # a big lake is listed for long
    allow_files()
    keep_what_is_unsent()
    app = build_app()  # which tells Streamlit where our settings lie
    config.get_config_options(force_reparse=True)
    viewer.believe_header(settings.ui)
    uvicorn.run(
        Door(counting_viewers(app), settings),
        host=settings.ui.address,
        port=settings.port,
        proxy_headers=False,  # the door knows whom to believe
        http=BrowserConnection,
        ws="websockets-sansio",
        ws_max_size=MESSAGE_BYTES,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=SHUTDOWN_S,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
