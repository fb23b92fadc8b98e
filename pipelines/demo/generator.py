"""`python -m pipelines.demo.generator`: lands event and order files as a shop would send them, until stopped:
events, and order changes in Debezium's envelope.

Rule: temporary file, state, rename: each step is atomic, in this order. So a file whose state is stored will land,
whatever was killed: the next start renames it. One that has no state is made again, the same. SIGTERM and SIGINT end
it between two files. What a producer sends depends on its own fields, the file's number, time and seed alone. The
fields are stored with each landed file. So the next file is the same, whether or not the process died in between.
"""

import argparse
import fcntl
import json
import os
import random
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from pathlib import Path
from typing import Any, ClassVar

from backend.errors import LakehouseError
from backend.settings import Settings, load_settings
from pipelines.stop_signals import stop_signals

BACKFILL = timedelta(hours=6)  # so that the first look at the demo shows some hours of gold
BACKFILL_EVERY = timedelta(minutes=15)
BACKFILL_RECORDS = 40
EVENT_TYPES = ("view", "view", "view", "cart", "cart", "purchase", "refund")
STATUSES = ("placed", "paid", "shipped", "delivered")
COUNTRIES = ("NL", "DE", "FR", "ES", "IT")
FAULTS = {"malformed": 0.008, "untyped": 0.002, "not positive": 0.01, "late": 0.02, "beyond": 0.004}  # shares of events
AGES = {  # of an event when it lands, shortest and longest
    "late": (timedelta(minutes=2), timedelta(minutes=20)),  # inside the watermark's 30 minutes
    "beyond": (timedelta(hours=3), timedelta(hours=6)),
}
PROMPT = (timedelta(0), timedelta(seconds=60))
RETRIED_WITHIN = timedelta(minutes=5)  # a late event's double is still inside the watermark
BAD_BATCH_AFTER = timedelta(minutes=10)  # of live orders, once: the shop of one country sends cents as euros
BAD_BATCH_COUNTRY = "ES"
_RECENT = 100
_OPEN_ORDERS = 150


@dataclass(frozen=True, slots=True)
class Delivery:
    """One file to make: its number, when it lands, how many records, and whether it belongs to the past."""

    number: int
    landed_at: datetime
    records: int
    seed: int
    backfill: bool = False

    def random(self, topic: str) -> random.Random:
        return random.Random(f"{self.seed}:{topic}:{self.number}")


@dataclass(slots=True)
class EventProducer:
    """A shop's site: most events are sound, some have one of `FAULTS`, and some are sent twice."""

    topic: ClassVar[str] = "events"
    next_number: int = 1
    recent: list[tuple[float, str]] = field(default_factory=list)  # landed when (epoch seconds), line

    def produce(self, delivery: Delivery) -> list[str]:
        """The lines of a file."""
        rng = delivery.random(self.topic)
        oldest_s = (delivery.landed_at - RETRIED_WITHIN).timestamp()
        self.recent = [(landed_s, line) for landed_s, line in self.recent if landed_s > oldest_s]
        lines = []
        for _ in range(delivery.records):
            lines.append(self._event(rng, delivery))
            if self.recent and rng.random() < 0.02:
                lines.append(rng.choice(self.recent)[1])
        return lines

    def _event(self, rng: random.Random, delivery: Delivery) -> str:
        roll, shares = rng.random(), accumulate(FAULTS.values())
        fault = next((fault for fault, share in zip(FAULTS, shares, strict=True) if roll < share), "")
        if fault == "beyond" and delivery.backfill:
            fault = ""  # no stragglers in the past: they must meet a watermark that has moved on
        cents = rng.randint(-5_000, 0) if fault == "not positive" else rng.randint(100, 25_000)
        event = {
            "event_id": f"evt-{self.next_number:09d}",
            "user_id": f"user-{rng.randint(1, 400):04d}",
            "event_type": None if fault == "untyped" else rng.choice(EVENT_TYPES),
            "amount": cents / 100,
        }
        shortest, longest = AGES.get(fault, PROMPT)
        happened_at = delivery.landed_at - shortest - (longest - shortest) * rng.random()
        event["timestamp"] = happened_at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        self.next_number += 1
        line = json.dumps(event)
        if fault == "malformed":  # cut off, not JSON at all, or with words in place of a number
            worded = json.dumps({**event, "amount": "n/a"})
            return rng.choice((line[: len(line) // 2], f"ERROR {line[1:20]}", worded))
        if fault in ("", "late", "not positive"):
            self.recent = [*self.recent, (delivery.landed_at.timestamp(), line)][-_RECENT:]
        return line


@dataclass(slots=True)
class OrderProducer:
    """A shop database's change stream: orders move through STATUSES, some are cancelled, delivered ones are deleted.

    Some changes land after newer ones, some twice. Ten minutes after it went live, one country's shop writes its open
    orders anew with wrong amounts, and never again. Nobody pays such amounts, so these orders go no further.
    """

    topic: ClassVar[str] = "orders"
    next_order: int = 1
    next_lsn: int = 1_000
    open_orders: dict[str, dict[str, Any]] = field(default_factory=dict)
    held: list[str] = field(default_factory=list)
    recent: list[str] = field(default_factory=list)
    live_since_s: float | None = None  # epoch seconds
    has_inflated: bool = False

    def produce(self, delivery: Delivery) -> list[str]:
        """The lines of a file."""
        rng = delivery.random(self.topic)
        overdue, self.held = self.held, []
        lines: list[str] = []
        for _ in range(delivery.records):
            line = self._change(rng, delivery.landed_at)
            self.recent = [*self.recent, line][-_RECENT:]
            (self.held if rng.random() < 0.04 else lines).append(line)
            if rng.random() < 0.02:
                lines.append(rng.choice(self.recent[:-1] or self.recent))
        # Held lines land last: newer changes of the same orders stand before them, in this file or the one before.
        return [*lines, *self._bad_batch(delivery), *overdue]

    def _bad_batch(self, delivery: Delivery) -> list[str]:
        """When it is time for it: every open order of one country with its amount times 100."""
        if delivery.backfill:
            return []
        landed_s = delivery.landed_at.timestamp()
        self.live_since_s = landed_s if self.live_since_s is None else self.live_since_s
        if self.has_inflated or landed_s < self.live_since_s + BAD_BATCH_AFTER.total_seconds():
            return []
        self.has_inflated = True
        orders = [order for order in self.open_orders.values() if order.get("country") == BAD_BATCH_COUNTRY]
        for order in orders:
            del self.open_orders[order["order_id"]]
        inflated = ((order, {**order, "amount": round(order["amount"] * 100, 2)}) for order in orders)
        return [self._envelope("u", before, after, delivery.landed_at) for before, after in inflated]

    def _change(self, rng: random.Random, landed_at: datetime) -> str:
        if len(self.open_orders) < 20 or (len(self.open_orders) < _OPEN_ORDERS and rng.random() < 0.4):
            return self._envelope("c", None, self._new_order(rng), landed_at)
        order_id = rng.choice(list(self.open_orders))
        before = self.open_orders.pop(order_id)
        if before["status"] in ("delivered", "cancelled"):
            return self._envelope("d", before, None, landed_at)
        next_status = "cancelled" if rng.random() < 0.08 else STATUSES[STATUSES.index(before["status"]) + 1]
        after = self.open_orders[order_id] = {**before, "status": next_status}
        return self._envelope("u", before, after, landed_at)

    def _new_order(self, rng: random.Random) -> dict[str, Any]:
        order_id = f"ord-{self.next_order:07d}"
        self.next_order += 1
        self.open_orders[order_id] = {
            "order_id": order_id,
            "customer_id": f"user-{rng.randint(1, 400):04d}",
            "country": rng.choice(COUNTRIES),
            "status": STATUSES[0],
            "amount": rng.randint(500, 50_000) / 100,
        }
        return self.open_orders[order_id]

    def _envelope(self, op: str, before: Any, after: Any, landed_at: datetime) -> str:
        lsn, self.next_lsn = self.next_lsn, self.next_lsn + 8
        ts_ms = int(landed_at.timestamp() * 1_000)
        source = {"connector": "postgresql", "db": "shop", "schema": "public", "table": "orders", "lsn": lsn}
        return json.dumps({"op": op, "before": before, "after": after, "ts_ms": ts_ms, "source": source})


Producer = EventProducer | OrderProducer


class LandingError(LakehouseError):
    """Files cannot be landed."""


class Topic:
    """One producer and its files below `home`, resumed where it stood. Only one process may land files
    (`sole_generator`)."""

    def __init__(self, home: Path, producer: type[Producer], *, records: int, seed: int) -> None:
        """`records`: of a live file."""
        self._name, self._records, self._seed = producer.topic, records, seed
        self._folder, self._states = home / "landing" / self._name, home / "ledger"
        self._folder.mkdir(parents=True, exist_ok=True)
        self._states.mkdir(parents=True, exist_ok=True)
        numbers = (int(path.suffixes[-2][1:]) for path in self._states.glob(f"{self._name}.state.*.json"))
        self._number = max(numbers, default=0)
        self._landed_at: datetime | None = None
        state: dict[str, Any] = {}
        if self._number:
            state, self._landed_at = self._stored_state()
            if (last := self._file(temporary=True)).exists():
                last.rename(self._file())
        self._producer = producer(**state)

    def land(self, now: datetime) -> None:
        """The past hours before the very first file, as if the producer had been running; then the next file."""
        if self._landed_at is None:
            start = now - BACKFILL
            for quarter in range(BACKFILL // BACKFILL_EVERY):
                self._land(start + quarter * BACKFILL_EVERY, BACKFILL_RECORDS, backfill=True)
        self._land(now, self._records)

    def _land(self, now: datetime, records: int, *, backfill: bool = False) -> None:
        """In whole milliseconds, and later than the last file: a clock set back must not reorder them."""
        landed_at = now.replace(microsecond=now.microsecond // 1_000 * 1_000)
        if self._landed_at and landed_at <= self._landed_at:
            landed_at = self._landed_at + timedelta(milliseconds=1)
        self._number, self._landed_at = self._number + 1, landed_at
        lines = self._producer.produce(Delivery(self._number, landed_at, records, self._seed, backfill))
        temporary, landed_s = self._file(temporary=True), landed_at.timestamp()
        temporary.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        os.utime(temporary, (landed_s, landed_s))  # a reader takes the modification time for the time of landing
        draft = self._states / f"{self._name}.state.tmp"
        draft.write_text(json.dumps(asdict(self._producer)), encoding="utf-8")
        os.utime(draft, (landed_s, landed_s))
        draft.rename(self._state(self._number))
        temporary.rename(self._file())
        self._state(self._number - 1).unlink(missing_ok=True)

    def _file(self, *, temporary: bool = False) -> Path:
        """The last file. Spark reads no name that starts with a dot."""
        name = f"{self._name}-{self._number:08d}.jsonl"
        return self._folder / (f".{name}.tmp" if temporary else name)

    def _state(self, number: int) -> Path:
        return self._states / f"{self._name}.state.{number}.json"

    def _stored_state(self) -> tuple[dict[str, Any], datetime]:
        """The producer's fields after its last file, and when that landed."""
        path = self._state(self._number)
        try:
            return json.loads(path.read_bytes()), datetime.fromtimestamp(path.stat().st_mtime, UTC)
        except (OSError, ValueError) as exc:
            raise LandingError(
                f"the demo's state for {self._file().name} cannot be read: {path}",
                hint="stop Weir and delete its home folder to begin the demo anew",
            ) from exc


def topics(settings: Settings) -> tuple[Topic, Topic]:
    """Events and orders, each resumed from its state."""
    demo = settings.demo
    events, orders = (
        max(1, round(per_s * demo.landing_interval_s)) for per_s in (demo.events_per_s, demo.orders_per_s)
    )
    return (
        Topic(settings.home, EventProducer, records=events, seed=demo.seed),
        Topic(settings.home, OrderProducer, records=orders, seed=demo.seed),
    )


def generate(settings: Settings, *, files: int | None, stop: threading.Event) -> int:
    """Land the past once, then a file of each topic per interval. Returns how many of each, at most `files`."""
    landed = 0
    with sole_generator(settings.home):
        lines = topics(settings)
        while landed != files and not stop.is_set():
            for topic in lines:
                topic.land(datetime.now(UTC))
            landed += 1
            if landed != files:
                stop.wait(settings.demo.landing_interval_s)
    return landed


@contextmanager
def sole_generator(home: Path) -> Iterator[None]:
    """Hold the lock that lets one process land files. The kernel frees it however the process ends."""
    folder = home / "ledger"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as exc:
            raise LandingError(f"another generator lands files in {home}", hint="stop it, or set WEIR_HOME") from exc
        yield


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m pipelines.demo.generator", description=__doc__)
    parser.add_argument("--files", type=int, help="land so many more files of each kind, then stop")
    files = parser.parse_args(argv).files
    try:
        landed = generate(load_settings(), files=files, stop=stop_signals())
    except LakehouseError as exc:
        sys.stderr.write(f"error: {exc.message}\nhint: {exc.hint}\n")
        return exc.exit_code
    sys.stdout.write(f"generator stopped after {landed} files of each kind\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
