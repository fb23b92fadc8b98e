"""`/export/TICKET`: the file that a page offered, sent as it is made.

Rule: memory is that of a piece, and a slow browser slows the reading. One that leaves, or is slower than the least
rate, ends the export, and so does the total time: its place is another's then. A file that is not whole never looks
whole: the connection is cut.
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

from app import services
from app.ui.export import exports
from backend.errors import ExportError, LakehouseError
from backend.sql.export import Export
from backend.work import Stopped

CHUNK_BYTES = 1 << 20  # the least rate is looked at with each
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Encoding": "identity",  # it is made piece by piece: nothing on the way may gather or compress it
}

_log = structlog.get_logger(__name__)


async def export(request: Request) -> Response:
    """The file of a ticket, or a sentence that says why not."""
    try:
        return _Download(exports().take(request.path_params["ticket"]))
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
        pieces = self._export.pieces()
        leaving = asyncio.create_task(self._watch(receive))
        loop, limit_s = asyncio.get_running_loop(), services.settings().ui.export_time_limit_s
        self._deadline = loop.time() + limit_s
        late = loop.call_at(self._deadline, self._export.stop, f"it took longer than {limit_s:g} s")
        try:
            await self._send(pieces, scope, receive, send)
        except Stopped:
            pass
        except OSError:
            self._export.stop("the browser left")
        except LakehouseError as exc:
            _log.warning("export failed", error=type(exc).__name__, message=exc.message)
        finally:
            late.cancel()
            leaving.cancel()
            await asyncio.shield(run_in_threadpool(pieces.close))  # type: ignore[attr-defined]
            ended = self._export
            _log.info(
                "export ended", state=ended.state.value, rows=ended.num_rows, size_bytes=ended.size_bytes,
                table=ended.rows.source, viewer=ended.viewer, reason=ended.end_reason or None,
            )  # fmt: skip

    async def _send(self, pieces: Iterator[bytes], scope: Scope, receive: Receive, send: Send) -> None:
        has_begun = False
        try:
            async for piece in iterate_in_threadpool(pieces):
                if not has_begun:
                    await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
                    has_begun = True
                for start in range(0, len(piece), CHUNK_BYTES):
                    await self._send_chunk(piece[start : start + CHUNK_BYTES], send)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except (LakehouseError, Stopped) as exc:
            if not has_begun:
                await _refusal(exc if isinstance(exc, LakehouseError) else None, 409)(scope, receive, send)
            raise

    async def _send_chunk(self, chunk: bytes, send: Send) -> None:
        """Raises `Stopped` where the browser does not take it in time."""
        least = services.settings().ui.export_min_bytes_per_s
        until = asyncio.get_running_loop().time() + CHUNK_BYTES / least
        try:
            async with asyncio.timeout_at(min(until, self._deadline)):
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        except TimeoutError as exc:
            self._export.stop(f"the browser took less than {least:,} bytes a second")
            raise Stopped from exc

    async def _watch(self, receive: Receive) -> None:
        """Ends the reading as soon as the browser is gone, also while no row is found."""
        with suppress(OSError):
            while (await receive())["type"] != "http.disconnect":
                pass
        self._export.stop("the browser left")


def _refusal(exc: LakehouseError | None, status: int) -> Response:
    text = f"{exc.message}; {exc.hint}" if exc else "cancelled"
    return PlainTextResponse(f"No file: {text}\n", status, headers={"Cache-Control": "no-store"})
