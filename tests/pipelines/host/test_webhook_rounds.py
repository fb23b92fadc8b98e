"""What a webhook is told by hosts: a real server hears what needs attention and what is over, each once."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from structlog.testing import capture_logs

from backend.access import Actor
from backend.errors import SettingsError
from backend.lake.lake import Lake
from backend.settings import Settings, load_settings
from backend.store.annotations import FAILS_FOR
from backend.store.store import ControlStore
from pipelines.host.webhook import LONGEST_WAIT_S, NEW_AFTER, OVER_AFTER, Webhook
from tests.worlds.hosts.rounds import led
from tests.worlds.store.values import JUMP, NOW

KEY = "/services/T0/B0/k3yOfTheHook"


@dataclass
class Receiver:
    """What came, and what is answered next: a status, or the bytes of no HTTP; 200 once there is nothing left."""

    url: str = ""
    paths: list[str] = field(default_factory=list)
    messages: list[dict[str, Any]] = field(default_factory=list)
    answers: list[int | bytes] = field(default_factory=list)

    @property
    def told(self) -> list[tuple[str, str, list[str]]]:
        return [(each["status"], each["cause"], each["subjects"]) for each in self.messages]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    came = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            came.paths.append(self.path)
            message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            answer = came.answers.pop(0) if came.answers else 200
            if isinstance(answer, bytes):
                self.wfile.write(answer)
                return
            if answer == 200:
                came.messages.append(message)
            self.send_response(answer, f"no hook {self.path}")
            self.send_header("Location", "/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_GET = do_POST  # what a followed redirect would ask

        def log_message(self, *_: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    came.url = f"http://127.0.0.1:{server.server_port}{KEY}"
    yield came
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def settings(tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> Settings:
    (tmp_path / "store").mkdir()
    monkeypatch.setenv("WEIR_NOTIFY__WEBHOOK", receiver.url)
    return load_settings(home=tmp_path, lake={"refresh_s": 0.01})


@pytest.fixture
def store(settings: Settings) -> Iterator[ControlStore]:
    opened = ControlStore.open(settings)
    yield opened
    opened.close()


class Host:
    """One host's rounds, by a clock of the test."""

    def __init__(self, settings: Settings, store: ControlStore, name: str = "host-a", at: datetime = NOW) -> None:
        self.at = at
        self._webhook = led("webhook", Webhook(settings, Lake(settings), store, lambda: self.at).tell, store, name)

    def after(self, pause: timedelta) -> None:
        """A round now and one after the pause."""
        self._webhook.once()
        self.at += pause
        self._webhook.once()


def broken_table(settings: Settings, name: str = "torn") -> Path:
    table = settings.home / "lake" / name
    (table / "_delta_log").mkdir(parents=True)
    (table / "_delta_log" / f"{0:020d}.json").write_text("garbage\n")
    return table


def test_what_is_new_and_what_is_over_are_told_once_whoever_begins_anew(
    settings: Settings, store: ControlStore, receiver: Receiver
) -> None:
    table = broken_table(settings)
    store.noticed.keep([replace(JUMP, table="a<b")], now=NOW)
    host = Host(settings, store)
    host.after(NEW_AFTER / 2)
    assert receiver.told == [], "what lasts no longer is no news"
    host.after(NEW_AFTER)
    both = [("new", "unreadable", ["torn"]), ("new", "unusual_commit", ["a<b"])]
    assert receiver.told == both and set(receiver.paths) == {KEY}
    first, second = receiver.messages
    assert first["text"].startswith("critical: table torn: Cannot be read: ") and "\n→ " in first["text"]
    assert second["text"].startswith("warning: table a&lt;b: 28 rows: highest amount 498.2 → 47,189 where")
    assert (first["severity"], second["severity"]) == ("critical", "warning")

    later = Host(settings, store, at=host.at)  # a host that was started anew
    later.after(NEW_AFTER * 4)
    assert receiver.told == both
    shutil.rmtree(table)
    store.noticed.seen(JUMP.uri, 31, actor=Actor("ana"), reason="agreed", now=NOW)
    later.after(OVER_AFTER / 2)
    assert receiver.told == both, "it may come back"
    later.after(OVER_AFTER)
    later.after(OVER_AFTER)
    assert receiver.told == [*both, ("ended", "unreadable", ["torn"]), ("ended", "unusual_commit", ["a<b"])]
    assert receiver.messages[-1]["text"] == "over: unusual commit: a&lt;b"
    assert store.told.items() == frozenset()


def test_a_second_table_and_a_second_commit_of_the_same_group_are_told(
    settings: Settings, store: ControlStore, receiver: Receiver
) -> None:
    store.noticed.keep([JUMP], now=NOW)
    host = Host(settings, store)
    host.after(NEW_AFTER)
    store.noticed.keep([replace(JUMP, version=32, committed_at=NOW + timedelta(minutes=1))], now=NOW)
    host.after(NEW_AFTER)
    store.noticed.keep([replace(JUMP, uri="s3://lake/other", table="other")], now=NOW)
    host.after(NEW_AFTER)
    assert [each["subjects"] for each in receiver.messages] == [["orders"], ["orders"], ["orders", "other"]]
    store.noticed.keep([replace(JUMP, mended_at=40)], now=NOW)
    host.after(OVER_AFTER)
    assert len(receiver.messages) == 3, "the group is still there"


def test_of_two_hosts_one_tells(settings: Settings, store: ControlStore, receiver: Receiver) -> None:
    broken_table(settings)
    assert store.acquire("webhook", "host-a", ttl_s=60)
    Host(settings, store, "host-b").after(NEW_AFTER)
    assert receiver.told == []
    Host(settings, store, "host-a").after(NEW_AFTER)
    assert receiver.told == [("new", "unreadable", ["torn"])]


@pytest.mark.parametrize(
    ("severity", "causes"),
    [("critical", {"unreadable"}), ("warning", {"unreadable", "unusual_commit"})],
)
def test_what_is_less_severe_is_not_told_nor_its_end(
    settings: Settings, store: ControlStore, receiver: Receiver, severity: str, causes: set[str]
) -> None:
    broken_table(settings)
    store.noticed.keep([JUMP], now=NOW)
    chosen = load_settings(home=settings.home, lake={"refresh_s": 0.01}, notify={"severity": severity})
    Host(chosen, store).after(NEW_AFTER)
    assert {cause for _, cause, _ in receiver.told} == causes
    receiver.messages.clear()
    store.noticed.keep([replace(JUMP, mended_at=32)], now=NOW)
    fewer = load_settings(home=settings.home, lake={"refresh_s": 0.01}, notify={"severity": "critical"})
    Host(fewer, store, at=NOW + timedelta(hours=1)).after(OVER_AFTER)
    assert receiver.told == []


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (500, "the webhook answers HTTP 500"),
        (302, "the webhook answers HTTP 302"),
        (f"no hook {KEY}\r\n".encode(), "the webhook does not answer in HTTP"),
    ],
)
def test_what_fails_is_told_later_and_known_meanwhile(
    settings: Settings, store: ControlStore, receiver: Receiver, answer: int | bytes, why: str
) -> None:
    broken_table(settings)
    receiver.answers = [answer] * 3
    host = Host(settings, store)
    with capture_logs() as logs:
        host.after(NEW_AFTER)
        assert store.told.error(now=host.at) == why
        assert store.told.error(now=host.at + FAILS_FOR * 2) == "", "nobody tries any more"
        pauses = [each["next_try_in_s"] for each in logs if each["event"] == "webhook_failed"]
        for _ in range(2):
            tried = len(receiver.paths)
            host.after(timedelta(seconds=pauses[-1] / 2))
            assert len(receiver.paths) == tried, "not before its time"
            host.after(timedelta(seconds=pauses[-1]))
            pauses = [each["next_try_in_s"] for each in logs if each["event"] == "webhook_failed"]
        assert pauses == [15, 30, 60] and receiver.messages == []
        host.after(timedelta(seconds=60))
        assert receiver.told == [("new", "unreadable", ["torn"])] and store.told.error(now=host.at) == ""
    assert set(receiver.paths) == {KEY}, "no redirect is followed"
    assert KEY not in str(logs) and KEY not in repr(settings)
    assert KEY.encode() not in b"".join(each.read_bytes() for each in (settings.home / "store").iterdir())


def test_a_receiver_that_is_away_is_tried_less_and_less(
    settings: Settings, store: ControlStore, tmp_path: Path
) -> None:
    broken_table(settings)
    away = load_settings(home=tmp_path, lake={"refresh_s": 0.01}, notify={"webhook": f"http://127.0.0.1:9{KEY}"})
    host = Host(away, store)
    with capture_logs() as logs:
        for _ in range(12):
            host.after(timedelta(seconds=LONGEST_WAIT_S))
    failed = [each for each in logs if each["event"] == "webhook_failed"]
    assert max(each["next_try_in_s"] for each in failed) == LONGEST_WAIT_S
    assert "the webhook does not answer: " in store.told.error(now=host.at) and KEY not in str(logs)


@pytest.mark.parametrize(
    "url", ["ftp://x/hook", "file:///etc/passwd", "http://ana:s3cret@x/", "https:///hook", "http://x:s3cret"]
)
def test_an_address_of_another_kind_is_refused_and_not_echoed(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEIR_NOTIFY__WEBHOOK", url)
    with pytest.raises(SettingsError, match=r"notify\.webhook") as refused:
        load_settings()
    assert url not in str(refused.value) and "s3cret" not in str(refused.value)
