"""Connections to the server: how long one may keep its request or an answer back, and how many there may be.

Rule: who opens connections and says nothing, or asks and does not read, costs viewers nothing: such connections end by
themselves, and where there are too many, the one that has waited longest makes room.
"""

import asyncio
import resource
import socket

import h11
import structlog
from streamlit.runtime.forward_msg_queue import ForwardMsgQueue
from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_S = 10.0  # from the connection, or the first byte of a further request, until all of it has come
UNREAD_S = 120.0  # that the other side may leave unread what was sent: a download may pause
MOST = 1_000  # of requests and websockets together
MESSAGE_BYTES = 1_000_000  # of a browser's message, unpacked: it says what was clicked and typed

_log = structlog.get_logger(__name__)


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
