"""What the demo's producers send: events, and order changes in Debezium's envelope. No clock, no disk, no Spark.

Rule: what a producer sends depends on its `state`, the file's number, time and seed alone. The state is stored with
each landed file. So the next file is the same, whether or not the process died in between.
"""

import json
import random
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Protocol

EVENT_TYPES = ("view", "view", "view", "cart", "cart", "purchase", "refund")
STATUSES = ("placed", "paid", "shipped", "delivered")
LATE = (timedelta(minutes=2), timedelta(minutes=20))  # inside the watermark's 30 minutes
RETRIED_WITHIN = timedelta(minutes=5)  # a late event's double is still inside the watermark
BEYOND = (timedelta(hours=3), timedelta(hours=6))
COUNTRIES = ("NL", "DE", "FR", "ES", "IT")
BAD_BATCH_AFTER = timedelta(minutes=10)  # of live orders, once: the shop of one country sends cents as euros
BAD_BATCH_COUNTRY = "ES"
_RECENT = 100
_OPEN_ORDERS = 150


class RecordKind(StrEnum):
    """What a record is, as the ledger labels it."""

    GOOD = "good"
    LATE = "late"
    BEYOND = "beyond"
    MALFORMED = "malformed"
    UNTYPED = "untyped"
    NOT_POSITIVE = "not_positive"
    DUPLICATE = "duplicate"
    CHANGE = "change"
    HELD = "held"  # an order change that lands after newer ones
    REPLAY = "replay"
    INFLATED = "inflated"  # an order change whose amount is a hundred times too high


@dataclass(frozen=True, slots=True)
class LandedRecord:
    kind: RecordKind
    line: str


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


class Producer(Protocol):
    topic: str

    def produce(self, delivery: Delivery) -> list[LandedRecord]: ...

    def state(self) -> dict[str, Any]:
        """What the producer needs to go on, as JSON."""


@dataclass(slots=True)
class EventProducer:
    next_number: int = 1
    recent: list[tuple[float, str]] = field(default_factory=list)  # landed when (epoch seconds), line
    topic: str = "events"

    def state(self) -> dict[str, Any]:
        return {"next_number": self.next_number, "recent": self.recent}

    def produce(self, delivery: Delivery) -> list[LandedRecord]:
        rng = delivery.random(self.topic)
        oldest_s = (delivery.landed_at - RETRIED_WITHIN).timestamp()
        self.recent = [(landed_s, line) for landed_s, line in self.recent if landed_s > oldest_s]
        records: list[LandedRecord] = []
        for _ in range(delivery.records):
            records.append(self._event(rng, delivery))
            if self.recent and rng.random() < 0.02:
                records.append(LandedRecord(RecordKind.DUPLICATE, rng.choice(self.recent)[1]))
        return records

    def _event(self, rng: random.Random, delivery: Delivery) -> LandedRecord:
        kind = _event_kind(rng, delivery)
        line = _event_line(rng, kind, number=self.next_number, landed_at=delivery.landed_at)
        self.next_number += 1
        if kind in (RecordKind.GOOD, RecordKind.LATE, RecordKind.NOT_POSITIVE):
            self.recent = [*self.recent, (delivery.landed_at.timestamp(), line)][-_RECENT:]
        return LandedRecord(kind, line)


def _event_kind(rng: random.Random, delivery: Delivery) -> RecordKind:
    shares = {
        RecordKind.MALFORMED: 0.008,
        RecordKind.UNTYPED: 0.002,
        RecordKind.NOT_POSITIVE: 0.01,
        RecordKind.LATE: 0.02,
        RecordKind.BEYOND: 0.004,
    }
    roll = rng.random()
    for kind, share in shares.items():
        if roll < share:
            # No stragglers in the past: they must meet a watermark that has moved on.
            return RecordKind.GOOD if kind is RecordKind.BEYOND and delivery.backfill else kind
        roll -= share
    return RecordKind.GOOD


def _event_line(rng: random.Random, kind: RecordKind, *, number: int, landed_at: datetime) -> str:
    cents = rng.randint(-5_000, 0) if kind is RecordKind.NOT_POSITIVE else rng.randint(100, 25_000)
    event = {
        "event_id": f"evt-{number:09d}",
        "user_id": f"user-{rng.randint(1, 400):04d}",
        "event_type": None if kind is RecordKind.UNTYPED else rng.choice(EVENT_TYPES),
        "amount": cents / 100,
        "timestamp": _iso(landed_at - _age(rng, kind)),
    }
    line = json.dumps(event)
    return _spoiled(rng, line) if kind is RecordKind.MALFORMED else line


def _age(rng: random.Random, kind: RecordKind) -> timedelta:
    shortest, longest = {RecordKind.LATE: LATE, RecordKind.BEYOND: BEYOND}.get(
        kind, (timedelta(0), timedelta(seconds=60))
    )
    return shortest + (longest - shortest) * rng.random()


def _spoiled(rng: random.Random, line: str) -> str:
    """A broken line: cut off, not JSON at all, or with words in place of a number."""
    worded = json.dumps({**json.loads(line), "amount": "n/a"})
    return rng.choice((line[: len(line) // 2], f"ERROR {line[1:20]}", worded))


@dataclass(slots=True)
class OrderProducer:
    """A shop database's change stream: orders move through STATUSES, some are cancelled, delivered ones are deleted.

    Ten minutes after it went live, one country's shop writes its open orders anew with wrong amounts, and never again.
    Nobody pays such amounts, so these orders go no further.
    """

    next_order: int = 1
    next_lsn: int = 1_000
    open_orders: dict[str, dict[str, Any]] = field(default_factory=dict)
    held: list[str] = field(default_factory=list)
    recent: list[str] = field(default_factory=list)
    live_since_s: float | None = None  # epoch seconds
    has_inflated: bool = False
    topic: str = "orders"

    def state(self) -> dict[str, Any]:
        return {
            "live_since_s": self.live_since_s,
            "has_inflated": self.has_inflated,
            "next_order": self.next_order,
            "next_lsn": self.next_lsn,
            "open_orders": self.open_orders,
            "held": self.held,
            "recent": self.recent,
        }

    def produce(self, delivery: Delivery) -> list[LandedRecord]:
        rng = delivery.random(self.topic)
        overdue, self.held = self.held, []
        records = []
        for _ in range(delivery.records):
            line = self._change(rng, delivery.landed_at)
            self.recent = [*self.recent, line][-_RECENT:]
            if rng.random() < 0.04:
                self.held.append(line)
            else:
                records.append(LandedRecord(RecordKind.CHANGE, line))
            if rng.random() < 0.02:
                records.append(LandedRecord(RecordKind.REPLAY, rng.choice(self.recent[:-1] or self.recent)))
        # Held lines land last: newer changes of the same orders stand before them, in this file or the one before.
        return [*records, *self._bad_batch(delivery), *(LandedRecord(RecordKind.HELD, line) for line in overdue)]

    def _bad_batch(self, delivery: Delivery) -> list[LandedRecord]:
        """When it is time for it: every open order of one country with its amount times 100."""
        if delivery.backfill:
            return []
        landed_s = delivery.landed_at.timestamp()
        self.live_since_s = landed_s if self.live_since_s is None else self.live_since_s
        if self.has_inflated or landed_s < self.live_since_s + BAD_BATCH_AFTER.total_seconds():
            return []
        self.has_inflated = True
        orders = [order for order in self.open_orders.values() if order.get("country") == BAD_BATCH_COUNTRY]
        return [LandedRecord(RecordKind.INFLATED, self._inflated(order, delivery.landed_at)) for order in orders]

    def _inflated(self, order: dict[str, Any], landed_at: datetime) -> str:
        before = self.open_orders.pop(order["order_id"])
        return self._envelope("u", before, {**before, "amount": round(before["amount"] * 100, 2)}, landed_at)

    def _change(self, rng: random.Random, landed_at: datetime) -> str:
        if len(self.open_orders) < 20 or (len(self.open_orders) < _OPEN_ORDERS and rng.random() < 0.4):
            return self._envelope("c", None, self._new_order(rng), landed_at)
        order_id = rng.choice(list(self.open_orders))
        before = self.open_orders.pop(order_id)
        if before["status"] in ("delivered", "cancelled"):
            return self._envelope("d", before, None, landed_at)
        after = {**before, "status": _next_status(rng, before["status"])}
        self.open_orders[order_id] = after
        return self._envelope("u", before, after, landed_at)

    def _new_order(self, rng: random.Random) -> dict[str, Any]:
        order = {
            "order_id": f"ord-{self.next_order:07d}",
            "customer_id": f"user-{rng.randint(1, 400):04d}",
            "country": rng.choice(COUNTRIES),
            "status": STATUSES[0],
            "amount": rng.randint(500, 50_000) / 100,
        }
        self.next_order += 1
        self.open_orders[str(order["order_id"])] = order
        return order

    def _envelope(self, op: str, before: Any, after: Any, landed_at: datetime) -> str:
        lsn, self.next_lsn = self.next_lsn, self.next_lsn + 8
        ts_ms = int(landed_at.timestamp() * 1_000)
        source = {"connector": "postgresql", "db": "shop", "schema": "public", "table": "orders", "lsn": lsn}
        return json.dumps({"op": op, "before": before, "after": after, "ts_ms": ts_ms, "source": source})


def _next_status(rng: random.Random, status: str) -> str:
    if rng.random() < 0.08:
        return "cancelled"
    return STATUSES[STATUSES.index(status) + 1]


def _iso(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
