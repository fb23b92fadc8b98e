"""An S3 server for tests, and a proxy before it that counts each request and can delay, cut, hang or refuse it.

Rule: the server is a process of its own, shared by the session (its start takes seconds); the proxy is a thread here
and counts what arrives, whatever the client says. deltalake holds the interpreter while it waits for an answer, so it
must talk to the server itself, never to the proxy.
"""

import atexit
import functools
import http.client
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import boto3
from obstore.store import S3Store

from backend.lake.lake import Lake
from backend.settings import load_settings
from tests.worlds.processes import free_port, listens, wait_until

KEY, SECRET = "key", "hidden-secret"
_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length", "date", "server"}


class Fault(Enum):
    """What the proxy does instead of answering."""

    UNAVAILABLE = "503"
    CUT = "half of the body, then the connection is closed"
    HANG = "nothing until the proxy is healed"
    DENIED = "403"


@dataclass(frozen=True, slots=True)
class Request:
    """One request as it arrived. `kind` is LIST, GET or HEAD; `key` a list's prefix or the object's key."""

    kind: str
    key: str
    sent_bytes: int
    status: int


@functools.cache
def server_url() -> str:
    """The address of the session's server; started at the first call, stopped when the session ends."""
    port = free_port()
    command = [sys.executable, "-c", f"from moto.server import main; main(['-H', '127.0.0.1', '-p', '{port}'])"]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    atexit.register(_stop, server)
    wait_until(lambda: listens(port) or server.poll() is not None, "the S3 server listens")
    assert server.poll() is None, "the S3 server did not start"
    return f"http://127.0.0.1:{port}"


def _stop(server: subprocess.Popen[bytes]) -> None:
    server.terminate()
    server.wait(60)


def storage_options(endpoint: str) -> dict[str, str]:
    """What Weir and deltalake need to read (and deltalake to write) at this endpoint."""
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
        "AWS_S3_ALLOW_UNSAFE_RENAME": "true",
    }


def client() -> Any:
    """A boto3 client of the server itself."""
    return boto3.client(
        "s3",
        endpoint_url=server_url(),
        aws_access_key_id=KEY,
        aws_secret_access_key=SECRET,
        region_name="us-east-1",
    )


def make_bucket(name: str, objects: Mapping[str, bytes] | None = None) -> str:
    """A bucket of the session's server with these objects; its name."""
    client().create_bucket(Bucket=name)
    config = {key: value for key, value in storage_options(server_url()).items() if "ALLOW" not in key}
    store = S3Store(name, config=config, client_options={"allow_http": True})  # boto3 takes four times as long
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda item: store.put(*item), (objects or {}).items()))
    return name


def bucket_of(name: str, folder: Path, prefix: str = "") -> str:
    """A bucket with every file below a folder."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return make_bucket(name, {f"{prefix}{path.relative_to(folder)}": path.read_bytes() for path in files})


def lake_on(root: str, home: Path, options: Mapping[str, str] | None = None, refresh_s: float = 0.001) -> Lake:
    """A lake over one root of the session's server, or as `options` say."""
    given = {root: dict(options or storage_options(server_url()))}
    return Lake(load_settings(home=home, lake={"roots": [root], "storage_options": given, "refresh_s": refresh_s}))


def list_keys(bucket: str, prefix: str = "") -> list[str]:
    return [item["Key"] for item in client().list_objects_v2(Bucket=bucket, Prefix=prefix).get("Contents", [])]


def delete_objects(bucket: str, keys: Iterable[str]) -> None:
    s3 = client()
    for key in keys:
        s3.delete_object(Bucket=bucket, Key=key)


@dataclass
class Proxy:
    """Counts, and misbehaves as told; `delay_s`, `page_size`, `forgets_start` (of lists) and `gathers` may be set at
    any time: so many reads of commits are awaited before the first is answered."""

    target: str
    delay_s: float = 0.0
    page_size: int | None = None
    forgets_start: bool = False
    requests: list[Request] = field(default_factory=list)
    url: str = ""
    body: bytes = b""
    gathers: int = 0
    most_at_once: int = 0
    _at_once: int = 0
    _commits_at_once: int = 0
    _are_gathered: threading.Event = field(default_factory=threading.Event)
    _fault: Fault | None = None
    _where: str = ""
    _times: int = 0
    _healed: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def fail(self, fault: Fault, *, where: str = "", times: int = 1_000_000) -> None:
        """Do this to the next `times` requests whose address holds `where`."""
        self._healed.clear()
        self._fault, self._where, self._times = fault, where, times

    def heal(self) -> None:
        self._fault = None
        self._healed.set()

    def forget(self) -> None:
        with self._lock:
            self.requests.clear()

    def count(self, kind: str = "", key: str = "") -> int:
        """How many requests of a kind whose key holds `key`."""
        with self._lock:
            return sum(kind in ("", seen.kind) and key in seen.key for seen in self.requests)

    def sent_bytes(self, key: str = "") -> int:
        with self._lock:
            return sum(seen.sent_bytes for seen in self.requests if key in seen.key)

    def fault_for(self, address: str) -> Fault | None:
        with self._lock:
            if self._fault is None or self._where not in unquote(address) or self._times <= 0:
                return None
            self._times -= 1
            return self._fault

    def saw(self, request: Request) -> None:
        with self._lock:
            self.requests.append(request)

    @contextmanager
    def answering(self) -> Iterator[None]:
        with self._lock:
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            yield
        finally:
            with self._lock:
                self._at_once -= 1

    def gather(self) -> None:
        """A read of a commit waits for the others; `are_gathered` says whether they came."""
        with self._lock:
            self._commits_at_once += 1
            if self._commits_at_once >= self.gathers:
                self._are_gathered.set()
        if not self._are_gathered.wait(60):
            self.gathers = 0  # they never come: the reader asks for one after the other

    @property
    def are_gathered(self) -> bool:
        return self._are_gathered.is_set()

    def wait_until_healed(self) -> None:
        self._healed.wait()


@contextmanager
def proxy(target: str | None = None) -> Iterator[Proxy]:
    """A proxy before the session's server (or another)."""
    seen = Proxy(target or server_url())
    handler = type("Handler", (_Handler,), {"proxy": seen})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    seen.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        seen.heal()
        server.shutdown()
        server.server_close()
        thread.join(5)


class _Handler(BaseHTTPRequestHandler):
    proxy: Proxy
    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 16  # headers and body in one packet: two cost a delayed acknowledgement
    disable_nagle_algorithm = True

    def setup(self) -> None:
        super().setup()
        self._upstream = http.client.HTTPConnection(urlsplit(self.proxy.target).netloc, timeout=60)

    def finish(self) -> None:
        self._upstream.close()
        super().finish()

    def log_message(self, format: str, *args: object) -> None:
        pass

    def _answer(self) -> None:
        with self.proxy.answering():
            try:
                self._respond()
            except ConnectionError:  # the client waited no longer
                self.close_connection = True

    def _respond(self) -> None:
        if self.proxy.delay_s:
            time.sleep(self.proxy.delay_s)
        if self.proxy.gathers and self.command == "GET" and self.path.endswith(".json"):
            self.proxy.gather()
        fault = self.proxy.fault_for(self.path)
        if fault is Fault.HANG:
            self._saw(0, 0)
            self.proxy.wait_until_healed()
            self.close_connection = True
        elif fault in (Fault.UNAVAILABLE, Fault.DENIED):
            self._send(int(fault.value), {"Content-Length": str(len(self.proxy.body))}, self.proxy.body)
        else:
            status, headers, body = self._forward()
            self._send(status, headers, body, half=fault is Fault.CUT)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _answer

    def _forward(self) -> tuple[int, dict[str, str], bytes]:
        length = int(self.headers.get("Content-Length") or 0)
        headers = {name: value for name, value in self.headers.items() if name.lower() != "connection"}
        path = self.path
        if self.proxy.page_size and "list-type=2" in path:
            path += f"&max-keys={self.proxy.page_size}"
        if self.proxy.forgets_start:
            path = re.sub(r"&start-after=[^&]*", "", path)
        self._upstream.request(self.command, path, self.rfile.read(length) if length else None, headers)
        answer = self._upstream.getresponse()
        body = answer.read()
        kept = {name: value for name, value in answer.getheaders() if name.lower() not in _HOP}
        size = answer.getheader("Content-Length") if self.command == "HEAD" else None
        return answer.status, kept | {"Content-Length": size or str(len(body))}, body

    def _send(self, status: int, headers: Mapping[str, str], body: bytes, *, half: bool = False) -> None:
        sent = body[: len(body) // 2] if half else body
        self._saw(len(sent), status)
        self.send_response(status)
        for name, value in {"Content-Length": "0", **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(sent)
        self.wfile.flush()
        if half:
            self.close_connection = True

    def _saw(self, sent_bytes: int, status: int) -> None:
        address = urlsplit(self.path)
        bucket, _, key = unquote(address.path).lstrip("/").partition("/")
        query = parse_qs(address.query)
        listing = self.command == "GET" and not key and bool(bucket)
        kind = "LIST" if listing else self.command
        self.proxy.saw(Request(kind, query.get("prefix", [""])[0] if listing else key, sent_bytes, status))
