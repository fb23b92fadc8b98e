"""The server: Streamlit's pages, `/healthz`, `/metrics`, exports and the scripts of pages in one ASGI application.

Rule: the routes only read; they answer from the same services as the pages, and a service that is down is an answer.
"""

import sys
from contextlib import nullcontext
from pathlib import Path

import structlog
import uvicorn
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send
from streamlit import config
from streamlit.logger import set_log_level
from streamlit.starlette import App

from app import errors, services, viewer
from app.server import connections
from app.server.door import Door
from app.ui.scripts import Script
from backend import logs
from backend.errors import LakehouseError

MAIN = Path(__file__).parents[1] / "main.py"
FOR_EVER = "public, max-age=31536000, immutable"  # the path names the version
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
    from app.pipeline import picture
    from app.query import sql_editor
    from app.server import metrics
    from app.server.exports import export
    from app.ui import figures
    from app.ui.export import serve

    routes = [
        Route("/healthz", metrics.healthz),
        Route("/metrics", metrics.metrics_text),
        Route("/overview", to_overview),
        Route("/{page}/_stcore/health", not_here),
        Route("/{page}/_stcore/host-config", not_here),
        script_route(figures.SCRIPT),
        script_route(picture.SCRIPT),
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


def main() -> int:
    """Serves until told to stop; returns the exit code."""
    set_log_level("error")  # Streamlit's warnings are about being called by the routes, outside of a page
    try:
        settings = services.settings()
        logs.configure("ui", settings)
    except LakehouseError as exc:
        sys.stderr.write(f"error: {exc.message}\nhint: {exc.hint}\n")
        return exc.exit_code
    reason = viewer.read_only_reason()
    _log.info("serving", address=settings.ui.address, port=settings.port, read_only=reason)
    connections.allow_files()
    app = build_app()  # which tells Streamlit where our settings lie
    config.get_config_options(force_reparse=True)
    viewer.believe_header(settings.ui)
    uvicorn.run(
        Door(counting_viewers(app), settings),
        host=settings.ui.address,
        port=settings.port,
        proxy_headers=False,  # the door knows whom to believe
        http=connections.BrowserConnection,
        ws="websockets-sansio",
        ws_max_size=connections.MESSAGE_BYTES,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=SHUTDOWN_S,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
