"""What the demo's generator landed, and what the lake must therefore hold, computed without Spark.

Rule: only the landed files are asked, as a reader finds them: never the producers.
"""

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from enum import StrEnum
from pathlib import Path
from typing import Any

LATENESS = timedelta(minutes=30)  # of silver's watermark and of its rule `on_time`


class Kind(StrEnum):
    """What a landed event is to silver."""

    GOOD = "good"
    LATE = "late"  # by minutes, which is in time
    BEYOND = "beyond"  # the watermark
    MALFORMED = "malformed"
    UNTYPED = "untyped"
    NOT_POSITIVE = "not positive"


IN_SILVER = (Kind.GOOD, Kind.LATE)
QUARANTINED = (Kind.MALFORMED, Kind.UNTYPED, Kind.NOT_POSITIVE)


def kind_of(line: str, landed_at: datetime) -> Kind:
    try:
        event = parse(line)
        age = landed_at - datetime.fromisoformat(event["timestamp"])
    except ValueError:
        return Kind.MALFORMED
    if not isinstance(event["amount"], Decimal | int):
        return Kind.MALFORMED
    if event["event_type"] is None:
        return Kind.UNTYPED
    if event["amount"] <= 0:
        return Kind.NOT_POSITIVE
    if age >= LATENESS:
        return Kind.BEYOND
    return Kind.LATE if age > timedelta(minutes=1) else Kind.GOOD


def parse(line: str) -> Any:
    return json.loads(line, parse_float=Decimal)  # as Spark does; a float would not add up to the cent


@dataclass(frozen=True, slots=True)
class LandedFile:
    """One file: its number in its topic, its name, when it landed, its lines."""

    number: int
    name: str
    landed_at: datetime
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LandedEvent:
    kind: Kind
    line: str


@dataclass(frozen=True, slots=True)
class GoldEvents:
    event_count: int
    amount_sum: Decimal
    amount_avg: Decimal


@dataclass(frozen=True, slots=True)
class Order:
    order_id: str
    customer_id: str
    country: str | None
    status: str
    amount: Decimal
    lsn: int


@dataclass(frozen=True, slots=True)
class OrdersOfStatus:
    orders: int
    total_amount: Decimal


class Ledger:
    """What was landed below `home` (`$WEIR_HOME`), and what follows from it. Every call reads the files again."""

    def __init__(self, home: Path) -> None:
        self._landing = home / "landing"

    def files(self, topic: str) -> Iterator[LandedFile]:
        """Landed files of `events` or `orders`, oldest first."""
        for path in sorted((self._landing / topic).glob("[!.]*")):
            landed_at = datetime.fromtimestamp(round(path.stat().st_mtime, 3), UTC)
            number = int(path.stem.rpartition("-")[2])
            yield LandedFile(number, path.name, landed_at, tuple(path.read_text().splitlines()))

    def lines(self, topic: str) -> Iterator[str]:
        for file in self.files(topic):
            yield from file.lines

    def events(self) -> Iterator[LandedEvent]:
        """Each event, once where it was sent twice. What is no event is nobody's double."""
        sent = set()
        for file in self.files("events"):
            for line in file.lines:
                kind = kind_of(line, file.landed_at)
                if kind is Kind.MALFORMED or line not in sent:
                    yield LandedEvent(kind, line)
                sent.add(line)

    def expected_silver_event_ids(self) -> set[str]:
        """Every event that passes the rules and the watermark, each once, however often it landed."""
        return {event["event_id"] for event in self._silver_events()}

    def expected_beyond_event_ids(self) -> set[str]:
        """Events that came too late for the watermark."""
        return {parse(event.line)["event_id"] for event in self.events() if event.kind is Kind.BEYOND}

    def expected_quarantined(self) -> dict[Kind, int]:
        """Rows in quarantine by what is wrong with them."""
        kinds = [event.kind for event in self.events()]
        return {kind: kinds.count(kind) for kind in QUARANTINED}

    def expected_gold(self) -> dict[tuple[datetime, str], GoldEvents]:
        """`gold_events_hourly` by (window start, event type)."""
        amounts: dict[tuple[datetime, str], list[Decimal]] = defaultdict(list)
        for event in self._silver_events():
            start = datetime.fromisoformat(event["timestamp"]).replace(minute=0, second=0, microsecond=0)
            amounts[start, event["event_type"]].append(event["amount"])
        return {key: _gold(values) for key, values in amounts.items()}

    def expected_orders(self) -> dict[str, Order]:
        """`silver_orders` by order_id: each order's change with the highest lsn, deleted ones left out."""
        newest: dict[str, tuple[int, Order | None]] = {}
        for line in self.lines("orders"):
            envelope = parse(line)
            lsn, order_id = envelope["source"]["lsn"], (envelope["after"] or envelope["before"])["order_id"]
            if order_id not in newest or lsn > newest[order_id][0]:
                newest[order_id] = (lsn, None if envelope["op"] == "d" else _order(envelope["after"], lsn))
        return {order_id: order for order_id, (_, order) in newest.items() if order is not None}

    def expected_orders_by_status(self) -> dict[str, OrdersOfStatus]:
        """`gold_orders_by_status` by status."""
        amounts: dict[str, list[Decimal]] = defaultdict(list)
        for order in self.expected_orders().values():
            amounts[order.status].append(order.amount)
        return {status: OrdersOfStatus(len(values), sum(values, Decimal(0))) for status, values in amounts.items()}

    def _silver_events(self) -> Iterator[dict[str, Any]]:
        return (parse(event.line) for event in self.events() if event.kind in IN_SILVER)


def _order(row: dict[str, Any], lsn: int) -> Order:
    return Order(row["order_id"], row["customer_id"], row.get("country"), row["status"], _cents(row["amount"]), lsn)


def _gold(amounts: list[Decimal]) -> GoldEvents:
    total = _cents(sum(amounts, Decimal(0)))
    average = (total / len(amounts)).quantize(Decimal("0.000001"), ROUND_HALF_UP)
    return GoldEvents(len(amounts), total, average)


def _cents(amount: Decimal | int) -> Decimal:
    return Decimal(amount).quantize(Decimal("0.01"))
