"""Rows of a table on the page, every value as it is, and all of them as a file, by a link that the browser saves.

Rule: our own server sends the file while it is read; how far it is, and to end it, is the browser's. Streamlit's
download button would hold the whole file in memory; where another server serves the pages, there is no link. Memory is
that of a piece, and a slow browser slows the reading. One that leaves, or is slower than the least rate, ends the
export, and so does the total time. A file that is not whole never looks whole: the connection is cut.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from threading import Event
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import streamlit as st
import structlog
from starlette.concurrency import iterate_in_threadpool, run_in_threadpool
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

from app import errors, services, viewer
from app.services import once
from app.ui.lists import height, opening
from app.ui.view.frames import NULL, ShownRows, cut_sentence, exact_numbers, shown_rows
from app.ui.view.words import markdown_safe
from backend.errors import ExportError, LakehouseError
from backend.sql.export import FORMATS, Export, Exported, Exports, Format
from backend.work import Stopped

_PATH = "export/"
CHUNK_BYTES = 1 << 20  # the least rate is looked at with each
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Encoding": "identity",  # it is made piece by piece: nothing on the way may gather or compress it
}
_served = Event()
_log = structlog.get_logger(__name__)


def exact_rows(rows: pa.Table, *, key: str, alt: str, **selection: Any) -> tuple[ShownRows, Mapping[str, Any]]:
    """Rows with every value as it is, and what was cut; `selection`: of cells, as `opened_cell` reads it."""
    shown = shown_rows(rows)
    if cut := cut_sentence(shown):
        st.caption(f":material/content_cut: {cut}")
    config = {
        name: st.column_config.TextColumn(help=markdown_safe(kind), alignment="right")
        if name in shown.right
        else st.column_config.Column(help=markdown_safe(kind))
        for name, kind in shown.types.items()
    }
    with opening(key):
        event = st.dataframe(
            exact_numbers(shown.frame), key=key, column_config=config, hide_index=True, placeholder=NULL,
            height=height(shown.frame), alt=alt, **selection,
        )  # fmt: skip
    return shown, event


def serve() -> str:
    """Where this process serves tickets, each below it; from now on links are offered."""
    _served.set()
    return f"/{_PATH}"


@once
def exports() -> Exports:
    """Files of rows that are offered, or on their way to a browser."""
    return Exports(per_viewer=services.settings().ui.exports_per_viewer)


@dataclass(frozen=True, slots=True)
class ExportOffer:
    """Rows to be had as a file, without the limit of the page.

    `note`: what the dialog says of the rows; `command`: the same in a terminal, by the file's name.
    """

    title: str
    rows: Callable[[Format], Exported]
    note: str
    command: Callable[[str], str]


def export_button(offer: ExportOffer) -> None:
    """Opens the dialog of the export."""
    if st.button("Export", key="export_rows", icon=":material/download:", help="Every row, as a file"):
        st.dialog(f"Export {markdown_safe(offer.title)}", width="medium")(_dialog)(offer)


def _dialog(offer: ExportOffer) -> None:
    with errors.boundary():
        suffix = st.segmented_control(
            "Format",
            list(FORMATS),
            default="csv",
            required=True,
            key="export_format",
            format_func=lambda suffix: FORMATS[suffix].label,
        )
        form = FORMATS[suffix]
        with st.container():  # of one place, so that what follows keeps its own
            if offer.note:
                st.caption(markdown_safe(offer.note))
            if form.suffix == "csv":
                st.caption(
                    "Texts that a spreadsheet would run as formulas get an apostrophe in front. "
                    "Parquet and Arrow keep texts as they are."
                )
        rows = offer.rows(form)
        if _served.is_set():  # each click is another link: a ticket is used once
            ticket = exports().offer(rows, viewer.actor().name).ticket
            label = f"Download {markdown_safe(rows.file_name)}"
            st.link_button(label, f"{_PATH}{ticket}", type="primary", key="export_link", on_click="rerun")
            st.caption("The browser saves the file and shows its progress; you may close this window.")
        st.caption("The same in a terminal")
        st.code(offer.command(rows.file_name), language="bash", wrap_lines=True)


# the file, sent --------------------------------------------------------------------------------------------------


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
