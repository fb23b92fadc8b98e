"""A database's log of many changes as Debezium sends it, and what a naive walk over the ledger says of it.

Rule: what a test expects comes from the ledger, in the log's own order: never from an envelope.
"""

import base64
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Literal

Flavour = Literal["postgresql", "mysql", "mongodb"]
ROW = (
    "id BIGINT, number BIGINT, status STRING, amount DECIMAL(12,2), at TIMESTAMP, day DATE, biography STRING,"
    " place STRUCT<city: STRING, zip: STRING>"
)
Record = tuple[str | None, str | None]  # key and value
State = dict[str, Any]
UNAVAILABLE = "__debezium_unavailable_value"
PARTITIONS = 4
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_COLUMNS = ("status", "amount", "at", "day", "biography", "place")


@dataclass(frozen=True, slots=True)
class Change:
    """`before`, `after`: the whole row. `touched`: what an update set. `within`: its place in its transaction."""

    number: int
    transaction: int
    within: int
    op: str
    before: State | None
    after: State | None
    touched: tuple[str, ...]

    @property
    def key(self) -> int:
        return int((self.after or self.before or {})["id"])


def database(dice: random.Random, changes: int, keys: int) -> Iterator[Change]:
    """What a database does: a snapshot, then transactions of one to six changes, several of one key among them."""
    there: dict[int, State] = {}
    number = transaction = 0
    while number < changes:
        transaction += 1
        some = [dice.randrange(keys) for _ in range(dice.randint(1, 3))]
        for within in range(1 if number < keys // 5 else dice.randint(1, 6)):
            key, before = dice.choice(some), None
            before = there.get(key)
            row = _row(dice, key, number)
            if before is None:
                op, touched = ("r" if number < keys // 5 else "c"), _COLUMNS
            elif dice.random() < 0.12:
                op, touched = "d", ()
            else:
                op, touched = "u", tuple(name for name in _COLUMNS if dice.random() < 0.4)
                row = {**before, "number": number, **{name: row[name] for name in touched}}
            after = None if op == "d" else row
            yield Change(number, transaction, within, op, before, after, touched)
            number += 1
            if after is None:
                del there[key]
            else:
                there[key] = after


def _row(dice: random.Random, key: int, number: int) -> State:
    return {
        "id": key,
        "number": number,
        "status": dice.choice(("placed", "paid", "sent", None)),
        "amount": dice.choice((None, Decimal(dice.randrange(-(10**8), 10**8)).scaleb(-2))),
        "at": _EPOCH + timedelta(microseconds=dice.randrange(10**13, 4 * 10**15)),
        "day": date(1970, 1, 1) + timedelta(days=dice.randrange(-9_000, 20_000)),
        "biography": dice.choice((None, "long" * 3, "short")),
        "place": dice.choice((None, {"city": dice.choice(("Bern", "Wien")), "zip": dice.choice(("3000", None))})),
    }


@dataclass
class Log:
    """The same changes as a connector writes them to a topic's partitions."""

    flavour: Flavour
    changes: list[Change]
    dice: random.Random
    partitions: list[list[Record]] = field(default_factory=lambda: [[] for _ in range(PARTITIONS)])

    def __post_init__(self) -> None:
        for change in self.changes:
            records = self.partitions[change.key % PARTITIONS]
            key = json.dumps({"id": str(change.key) if self.flavour == "mongodb" else change.key})
            records.append((key, json.dumps(self.envelope(change))))
            if change.op == "d":
                records.append((key, None))
            if self.dice.random() < 0.02:
                records.append((None, json.dumps({"ts_ms": change.number})))
            if self.dice.random() < 0.02:
                records.append((None, json.dumps({"status": "BEGIN", "id": str(change.transaction), "ts_ms": 1})))

    def batches(self, count: int) -> list[list[Record]]:
        """The partitions' records, each in its order, cut anywhere and mixed; some stretches come once more later."""
        cuts = {
            number: sorted(self.dice.choices(range(len(each) + 1), k=count - 1))
            for number, each in enumerate(self.partitions)
        }
        batches: list[list[Record]] = []
        for turn in range(count):
            mixed = []
            for number, records in enumerate(self.partitions):
                bounds = [0, *cuts[number], len(records)]
                begin = max(
                    0, bounds[turn] - self.dice.choice((0, 0, len(records) // 10))
                )  # a connector that begins anew
                mixed += [(self.dice.random(), record) for record in records[begin : bounds[turn + 1]]]
            batches.append([record for _, record in sorted(mixed, key=lambda each: each[0])])
        return [*batches, batches[count // 2]]

    def envelope(self, change: Change) -> dict[str, Any]:
        about = {"op": change.op, "source": self.source(change), "ts_ms": 1_700_000_000_000 + change.number}
        about["transaction"] = {"id": str(change.transaction), "total_order": change.within + 1}
        if self.flavour != "mongodb":
            return {
                **about,
                "before": self.row(change.before) if change.op == "d" else None,
                "after": self.row(change.after, change),
            }
        if change.op == "u":
            return {**about, "after": None, "before": None, "updateDescription": _update(change)}
        return {**about, "before": None, "after": change.after and json.dumps(_document(change.after))}

    def source(self, change: Change) -> dict[str, Any]:
        number, total = change.number, len(self.changes)
        if self.flavour == "postgresql":
            return {"lsn": 9_000_000_000 + 97 * number}
        if self.flavour == "mongodb":  # a transaction has one moment
            return {"ts_ms": 1_700_000_000_000 + change.transaction // 3 * 1_000, "ord": change.transaction % 3}
        server, file = (1, 999_998) if number < total * 2 // 3 else (2, 1)
        file += min(3, number // (total // 6)) if server == 1 else 0
        return {
            "server_id": 0 if change.op == "r" else server,
            "file": f"mysql-bin.{file:06}",
            "pos": 4 + 300 * number % 10**9,
            "row": change.within,
        }

    def row(self, row: State | None, change: Change | None = None) -> State | None:
        """As JSON without a schema: decimals as bytes, moments in microseconds, days since 1970. A large value that an
        update leaves alone is not sent."""
        if row is None:
            return None
        sent = {**row, "amount": _in_bytes(row["amount"]), "at": (row["at"] - _EPOCH) // timedelta(microseconds=1)}
        sent["day"] = (row["day"] - date(1970, 1, 1)).days
        if change and change.op == "u" and "biography" not in change.touched:
            sent["biography"] = UNAVAILABLE
        return sent


def _in_bytes(amount: Decimal | None) -> str | None:
    if amount is None:
        return None
    unscaled = int(amount.scaleb(2))
    return base64.b64encode(unscaled.to_bytes(8, "big", signed=True)).decode()


def _document(row: State) -> State:
    """Extended JSON."""
    extended = {**row, "_id": {"$numberLong": str(row["id"])}, "number": {"$numberLong": str(row["number"])}}
    extended["amount"] = row["amount"] and {"$numberDecimal": str(row["amount"])}
    extended["at"] = {"$date": row["at"].isoformat(timespec="milliseconds").replace("+00:00", "Z")}
    extended["day"] = {"$date": f"{row['day']}T00:00:00Z"}
    return extended


def _update(change: Change) -> dict[str, Any]:
    """What is set by path, what is removed; of a place that stays one, the field within."""
    before, after = change.before or {}, change.after or {}
    document = _document(after)
    fields = {name: document[name] for name in ("number", *change.touched) if after[name] is not None}
    removed = [name for name in change.touched if after[name] is None]
    if "place" in fields and before["place"]:
        place = fields.pop("place")
        fields |= {f"place.{name}": value for name, value in place.items() if value is not None}
        removed += [f"place.{name}" for name, value in place.items() if value is None]
    return {"updatedFields": json.dumps(fields), "removedFields": removed or None}


def states(changes: list[Change]) -> dict[int, list[tuple[State, int | None]]]:
    """Every state that each key had, in order, with the number of the change that ended it."""
    history: dict[int, list[tuple[State, int | None]]] = {}
    for change in changes:
        mine = history.setdefault(change.key, [])
        if mine and mine[-1][1] is None:
            mine[-1] = (mine[-1][0], change.number)
        if change.after is not None:
            mine.append((change.after, None))
    return history
