"""Connections that strangers leave half open, answers that they do not read, messages that swell: a real server bears
them, and answers others meanwhile."""

import json
import resource
import socket
import threading
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit.runtime.forward_msg_queue import ForwardMsgQueue
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from app.server import asgi
from app.server.asgi import MESSAGE_BYTES, MOST, REQUEST_S, BrowserConnection
from tests.worlds.pages.serving import Served, got, serving
from tests.worlds.processes import wait_until

HEAD = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
BODY = b"POST /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n"


def is_healthy(server: Served) -> bool:
    return bool(json.loads(got(f"{server.url}/healthz"))["status"] == "ok")


@contextmanager
def opened(server: Served, *beginnings: bytes) -> Iterator[list[socket.socket]]:
    """Connections that begin so and then say nothing."""
    address = "127.0.0.1", int(server.url.rpartition(":")[2])
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_connection(address, timeout=60)) for _ in beginnings]
        for connection, beginning in zip(sockets, beginnings, strict=True):
            connection.sendall(beginning)
        yield sockets


def is_ended(connection: socket.socket) -> bool:
    """Whether the server has ended it; what it answered before is read away."""
    connection.setblocking(False)
    try:
        while connection.recv(65_536):
            pass
    except BlockingIOError:
        return False
    except ConnectionError:
        pass
    return True


def num_connections(server: Served) -> int:
    count = 0
    for descriptor in Path(f"/proc/{server.process.pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            count += descriptor.readlink().name.startswith("socket:")
    return count


@pytest.mark.ci  # it takes the ten seconds that a request may
def test_half_open_connections_end_and_hurt_nobody(server: Served) -> None:
    whole = HEAD + b"\r\n"
    before = num_connections(server)
    with opened(server, *[b""] * 40, *[HEAD] * 40, *[BODY] * 40, *[whole + HEAD] * 40) as sockets:
        dripping = threading.Event()

        def drip() -> None:  # a line now and then does not keep one open
            while not dripping.wait(0.5):
                for connection in sockets[40:80]:
                    with suppress(OSError):
                        connection.send(b"A: b\r\n")

        thread = threading.Thread(target=drip)
        thread.start()
        try:
            assert is_healthy(server)
            wait_until(lambda: all(map(is_ended, sockets)), "all are ended", limit_s=12 * REQUEST_S)
        finally:
            dripping.set()
            thread.join()
    assert is_healthy(server)
    wait_until(lambda: num_connections(server) <= before + 1, "the server has let go of all")


def test_where_there_are_too_many_those_that_wait_make_room(server: Served) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with page_of(server) as viewer:
        with opened(server, *[HEAD] * (MOST + 200)) as sockets:
            assert is_healthy(server)
            wait_until(lambda: sum(map(is_ended, sockets)) >= 200, "the longest waiting made room")
        assert viewer.ping().wait(60)  # who is at work stays


def page_of(server: Served) -> ClientConnection:
    address = f"{server.url.replace('http', 'ws', 1)}/_stcore/stream"
    return connect(address, origin=server.url, subprotocols=["streamlit"])  # type: ignore[arg-type]


@pytest.mark.parametrize("fragments", [1, 30])
def test_a_message_that_swells_ends_its_connection_alone(server: Served, fragments: int) -> None:
    packer = zlib.compressobj(9, zlib.DEFLATED, -12)
    bomb = (packer.compress(bytes(MESSAGE_BYTES)) + packer.flush(zlib.Z_FULL_FLUSH)) * 300
    size = -(-len(bomb) // fragments)
    pieces = [bomb[at : at + size] for at in range(0, len(bomb), size)]
    head = (
        "GET /_stcore/stream HTTP/1.1\r\nHost: HERE\r\nOrigin: http://HERE\r\nUpgrade: websocket\r\n"
        "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        "Sec-WebSocket-Protocol: streamlit\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n"
    ).replace("HERE", server.url.removeprefix("http://"))
    before = _peak_kb(server)
    with opened(server, head.encode()) as (connection,):
        answer = connection.recv(65_536)
        assert answer.startswith(b"HTTP/1.1 101") and b"permessage-deflate" in answer
        with suppress(ConnectionError):
            for place, piece in enumerate(pieces):
                connection.sendall(_frame(piece, is_first=place == 0, is_last=place == len(pieces) - 1))
        wait_until(lambda: is_ended(connection), "the server ends it")
    assert is_healthy(server)
    assert _peak_kb(server) - before < 50_000  # of 300 MB


def _frame(payload: bytes, *, is_first: bool, is_last: bool) -> bytes:
    """A client's frame; masked with zeros, which changes nothing."""
    head = (0x80 if is_last else 0) | (0x42 if is_first else 0)
    return bytes((head, 0x80 | 127)) + len(payload).to_bytes(8, "big") + bytes(4) + payload


def _peak_kb(server: Served) -> int:
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1])


@pytest.mark.parametrize(
    "message",
    [bytes(MESSAGE_BYTES + 1), "a text where bytes are spoken", b"\xff" * 99],
    ids=["large", "text", "no protocol"],
)
def test_a_message_that_is_none_ends_its_connection_alone(server: Served, message: bytes | str) -> None:
    with page_of(server) as other, page_of(server) as one:
        with pytest.raises(ConnectionClosed):
            one.send(message)
            while True:
                one.recv(60)
        assert other.ping().wait(60)
    assert is_healthy(server)


class Impatient(BrowserConnection):
    unread_s = 1.0


async def _much(scope: Scope, receive: Receive, send: Send) -> None:
    await Response(bytes(30_000_000))(scope, receive, send)


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="this kernel knows no such limit")
def test_an_answer_that_nobody_reads_is_given_up() -> None:
    with (
        serving(_much, http=Impatient, lifespan="off") as port,
        socket.create_connection(("127.0.0.1", port), timeout=60) as connection,
    ):
        connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        wait_until(lambda: has_end_of(connection), "it is connected")
        wait_until(lambda: not has_end_of(connection), "it is given up")


def has_end_of(connection: socket.socket) -> bool:
    """Whether the server's end of it is there. Ours does not hear of it: what is unread lies before it."""
    ends = (connection.getpeername()[1], connection.getsockname()[1])
    rows = [row.split() for row in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return ends in {(int(row[1].rpartition(":")[2], 16), int(row[2].rpartition(":")[2], 16)) for row in rows}


def test_what_a_live_region_drew_is_sent_also_where_it_is_drawn_again_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the browser takes it away: the run that drew it says that it is complete."""
    monkeypatch.setattr(ForwardMsgQueue, "clear", ForwardMsgQueue.clear)
    asgi.keep_what_is_unsent()
    queue, drawn, finished = ForwardMsgQueue(), ForwardMsg(), ForwardMsg()
    drawn.delta.fragment_id, drawn.metadata.delta_path[:] = "region", [0, 3]
    drawn.delta.new_element.markdown.body = "first"
    finished.script_finished = ForwardMsg.FINISHED_SUCCESSFULLY
    again = ForwardMsg()
    again.CopyFrom(drawn)
    again.delta.new_element.markdown.body = "again"

    queue.enqueue(drawn)
    queue.enqueue(finished)
    queue.clear(retain_lifecycle_msgs=True, fragment_ids_this_run=["region"])  # as Streamlit does before it draws it
    queue.enqueue(again)
    assert queue.flush() == [drawn, finished, again]
    assert queue.is_empty()

    queue.enqueue(drawn)
    queue.clear(retain_lifecycle_msgs=True)  # the whole page is drawn anew
    assert queue.is_empty()
