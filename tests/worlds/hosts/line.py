"""A line to a server that can be cut without a word: nothing arrives and nothing is refused, until it is mended."""

import socket
import threading
from contextlib import suppress

from tests.worlds.processes import free_port


class Line:
    """Passes on what comes to `port`. A connection that was cut stays dead: its other end hears nothing any more."""

    def __init__(self, server_port: int) -> None:
        self.port, self._server_port = free_port(), server_port
        self._is_cut = threading.Event()
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._listener = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        self._is_cut.set()

    def mend(self) -> None:
        """For new connections; those of before the cut are closed, as a network does when it hears of them again."""
        self._is_cut.clear()
        for pair in self._pairs:
            _close(pair)
        self._pairs.clear()

    def close(self) -> None:
        self._listener.close()
        self.mend()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._connect, args=(client,), daemon=True).start()

    def _connect(self, client: socket.socket) -> None:
        if self._is_cut.is_set():
            self._pairs.append((client, client))  # it waits for an answer that never comes
            return
        try:
            server = socket.create_connection(("127.0.0.1", self._server_port), timeout=5)
        except OSError:
            client.close()
            return
        server.settimeout(None)
        pair = (client, server)
        self._pairs.append(pair)
        threading.Thread(target=self._pump, args=(server, client, pair), daemon=True).start()
        self._pump(client, server, pair)

    def _pump(self, source: socket.socket, sink: socket.socket, pair: tuple[socket.socket, socket.socket]) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                if self._is_cut.is_set():
                    return
                sink.sendall(data)
        if not self._is_cut.is_set():
            _close(pair)


def _close(pair: tuple[socket.socket, socket.socket]) -> None:
    for each in pair:
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
        each.close()
