"""A viewer of a page, without a browser: Streamlit's own protocol over a websocket.

Rule: what is timed is what a viewer waits for, from the request to the message that its script has ended.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ClientState_pb2 import ClientState
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from websockets.asyncio.client import ClientConnection, connect

ANSWER_LIMIT_S = 120.0


class Viewer:
    """`regions`: the live ones of the page, and how often each wants to be asked for, in seconds."""

    def __init__(self, socket: ClientConnection, page: str, query: str) -> None:
        self._socket, self._page, self._query = socket, page, query
        self.regions: dict[str, float] = {}
        self._kept: set[str] = set()

    async def run(self, region: str = "") -> float:
        """Runs the page, or one of its regions; seconds until it has ended."""
        state = ClientState(page_name=self._page, query_string=self._query, cached_message_hashes=self._kept)
        if region:
            state.fragment_id, state.is_auto_rerun = region, True
        began = time.perf_counter()
        await self._socket.send(BackMsg(rerun_script=state).SerializeToString())
        async with asyncio.timeout(ANSWER_LIMIT_S):
            while True:
                told = ForwardMsg.FromString(await self._socket.recv())
                if told.metadata.cacheable:
                    self._kept.add(told.hash)
                if told.WhichOneof("type") == "auto_rerun":
                    self.regions[told.auto_rerun.fragment_id] = told.auto_rerun.interval
                elif told.WhichOneof("type") == "script_finished":
                    return time.perf_counter() - began


@asynccontextmanager
async def viewers_of(url: str, count: int, *, page: str, query: str) -> AsyncIterator[list[Viewer]]:
    """So many, each with a session of its own."""
    address = f"{url.replace('http', 'ws', 1)}/_stcore/stream"
    own = {"origin": url, "subprotocols": ["streamlit"], "max_size": None}
    sockets = [await connect(address, **own) for _ in range(count)]  # type: ignore[arg-type]
    try:
        yield [Viewer(socket, page, query) for socket in sockets]
    finally:
        for socket in sockets:
            await socket.close()
