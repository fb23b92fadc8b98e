"""What the demo's generator landed, and what the lake must therefore hold, computed without Spark."""

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import Any

from pipelines.demo.landing import LandedFile, temporary_name
from pipelines.demo.producers import LandedRecord, RecordKind

_IN_SILVER = (RecordKind.GOOD, RecordKind.LATE)
_QUARANTINED = (RecordKind.MALFORMED, RecordKind.UNTYPED, RecordKind.NOT_POSITIVE)


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
        self._folder = home / "ledger"
        self._landing = home / "landing"

    def files(self, topic: str) -> Iterator[LandedFile]:
        """Landed files of `events` or `orders`, oldest first."""
        for line in _whole_lines(self._folder / f"{topic}.jsonl"):
            file = LandedFile.of_entry(line)
            if not (self._landing / topic / temporary_name(file.name)).exists():
                yield file

    def records(self, topic: str) -> Iterator[LandedRecord]:
        for file in self.files(topic):
            yield from file.records

    def expected_silver_event_ids(self) -> set[str]:
        """Every event that passes the rules and the watermark, each once, however often it landed."""
        return {event["event_id"] for event in self._silver_events()}

    def expected_beyond_event_ids(self) -> set[str]:
        """Events that came too late for the watermark."""
        return {json.loads(r.line)["event_id"] for r in self.records("events") if r.kind is RecordKind.BEYOND}

    def expected_quarantined(self) -> dict[RecordKind, int]:
        """Rows in quarantine by what is wrong with them."""
        kinds = [record.kind for record in self.records("events")]
        return {kind: kinds.count(kind) for kind in _QUARANTINED}

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
        for record in self.records("orders"):
            envelope = _parse(record.line)
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
        return (_parse(record.line) for record in self.records("events") if record.kind in _IN_SILVER)


def _whole_lines(path: Path) -> Iterator[bytes]:
    """Complete lines. A last line that a crash cut off was never an entry."""
    if not path.exists():
        return
    with path.open("rb") as lines:
        yield from (line for line in lines if line.endswith(b"\n"))


def _parse(line: str) -> Any:
    return json.loads(line, parse_float=Decimal)  # as Spark does; a float would not add up to the cent


def _order(row: dict[str, Any], lsn: int) -> Order:
    return Order(row["order_id"], row["customer_id"], row.get("country"), row["status"], _cents(row["amount"]), lsn)


def _gold(amounts: list[Decimal]) -> GoldEvents:
    total = _cents(sum(amounts, Decimal(0)))
    average = (total / len(amounts)).quantize(Decimal("0.000001"), ROUND_HALF_UP)
    return GoldEvents(len(amounts), total, average)


def _cents(amount: Decimal | int) -> Decimal:
    return Decimal(amount).quantize(Decimal("0.01"))
