"""`/export/TICKET`: the file that a page offered, sent as it is made.

Rule: memory is that of a piece, and a slow browser slows the reading. One that leaves, or stands still, ends the
export. A file that is not whole never looks whole: the connection is cut.
"""

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from urllib.parse import quote

import structlog
from starlette.concurrency import iterate_in_threadpool, run_in_threadpool
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

from app import cache, services
from backend.errors import ExportError, LakehouseError
from backend.sql.exports import Export
from backend.work import Stopped

STALLED_S = 120.0  # a browser that takes no byte for so long is gone
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Encoding": "identity",  # it is made piece by piece: nothing on the way may gather or compress it
}

_log = structlog.get_logger(__name__)


async def export(request: Request) -> Response:
    """The file of a ticket, or a sentence that says why not."""
    try:
        return _Download(cache.exports().take(request.path_params["ticket"]))
    except ExportError as exc:
        return _refusal(exc, 410)


class _Download(Response):
    def __init__(self, export: Export) -> None:
        name, form = export.rows.file_name, export.rows.form
        disposition = {"Content-Disposition": f"attachment; filename*=UTF-8''{quote(name)}"}
        super().__init__(headers=_HEADERS | disposition, media_type=form.media_type)
        del self.headers["content-length"]  # nobody knows it
        self._export = export

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        pieces = self._export.pieces(services.lake())
        leaving = asyncio.create_task(self._watch(receive))
        try:
            await self._send(pieces, scope, receive, send)
        except Stopped:
            pass
        except LakehouseError as exc:
            _log.warning("export failed", error=type(exc).__name__, message=exc.message)
        except (OSError, TimeoutError):
            self._export.stop()
        finally:
            leaving.cancel()
            await asyncio.shield(run_in_threadpool(pieces.close))  # type: ignore[attr-defined]
            _log.info("export ended", state=self._export.state.value, rows=self._export.num_rows)

    async def _send(self, pieces: Iterator[bytes], scope: Scope, receive: Receive, send: Send) -> None:
        has_begun = False
        try:
            async for piece in iterate_in_threadpool(pieces):
                if not has_begun:
                    await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
                    has_begun = True
                async with asyncio.timeout(STALLED_S):
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except (LakehouseError, Stopped) as exc:
            if not has_begun:
                await _refusal(exc if isinstance(exc, LakehouseError) else None, 409)(scope, receive, send)
            raise

    async def _watch(self, receive: Receive) -> None:
        """Ends the reading as soon as the browser is gone, also while no row is found."""
        with suppress(OSError):
            while (await receive())["type"] != "http.disconnect":
                pass
        self._export.stop()


def _refusal(exc: LakehouseError | None, status: int) -> Response:
    text = f"{exc.message}; {exc.hint}" if exc else "cancelled"
    return PlainTextResponse(f"No file: {text}\n", status, headers={"Cache-Control": "no-store"})
