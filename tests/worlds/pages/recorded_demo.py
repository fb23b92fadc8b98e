"""The demo as it stands after a while, recorded without Spark: tables by deltalake, and a filled control store.

Rule: names, schemas, properties and declarations come from `pipelines.demo` itself, rows from its producers.
"""

import json
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, write_deltalake

from backend.expectations.model import Finding, Judgement, State
from backend.settings import load_settings
from backend.stream_model.stream import DesiredState, StreamState
from pipelines.declare.pipeline import declarations, load_registry
from pipelines.demo.generator import Delivery, EventProducer, OrderProducer, Producer
from pipelines.specs.streams import Registry
from pipelines.specs.tables import TableSpec
from tests.worlds.store import stream_store
from tests.worlds.streams.demo_ledger import IN_SILVER, Kind, kind_of

Row = dict[str, Any]
FILES, RECORDS = 18, 40  # landed of each topic, and in each of them
Landed = list[tuple[datetime, list[str]]]
BATCHES = 6  # of silver and gold: each takes three files
QUARANTINED = {
    Kind.MALFORMED: "well_formed",
    Kind.UNTYPED: "event_type_not_null",
    Kind.NOT_POSITIVE: "amount_positive",
}
_COLUMN = re.compile(r"(\w+) (\w+)(?:\((\d+),(\d+)\))? COMMENT '((?:[^']|'')*)'")
_TYPES = {"STRING": pa.string(), "BIGINT": pa.int64(), "TIMESTAMP": pa.timestamp("us", "UTC")}


def record_demo(home: Path) -> Path:
    """Six streams that run, with progress and expectations, and their seven tables, below this WEIR_HOME."""
    settings, now = load_settings(home=home), datetime.now(UTC)
    registry = load_registry(settings)
    tables = {table.name: table for stream in registry.streams for table in stream.writes}
    paths = {name: home / "lake" / table.path for name, table in tables.items()}
    for name, table in tables.items():
        _create(paths[name], table)
    _write_events(paths, _landed(EventProducer(), now))
    _write_orders(paths, _landed(OrderProducer(), now))
    _fill_store(home, registry, now)
    return home


def _create(path: Path, table: TableSpec) -> None:
    columns = _COLUMN.findall(table.schema or "")
    fields = [
        pa.field(
            name,
            pa.decimal128(int(precision), int(scale)) if precision else _TYPES[kind],
            metadata={"comment": comment.replace("''", "'")},
        )
        for name, kind, precision, scale, comment in columns
    ]
    taken_in = pa.field("ingested_at", pa.timestamp("us", "UTC"))
    quarantine = [pa.field("raw", pa.string()), taken_in, pa.field("_reason", pa.string())]
    path.parent.mkdir(parents=True, exist_ok=True)
    DeltaTable.create(
        str(path),
        pa.schema(fields or quarantine),
        description=table.comment,
        configuration=dict(table.properties),
        raise_if_key_not_exists=False,
    )


def _landed(producer: Producer, now: datetime) -> Landed:
    times = [now - timedelta(seconds=10 * (FILES - number)) for number in range(FILES)]
    return [(at, producer.produce(Delivery(number, at, RECORDS, seed=7))) for number, at in enumerate(times)]


def _append(path: Path, rows: Iterable[Row], mode: str = "append") -> None:
    schema = pa.schema(DeltaTable(str(path)).schema().to_arrow())
    write_deltalake(str(path), pa.Table.from_pylist(list(rows), schema=schema), mode=mode)


def _bronze(path: Path, landed: Landed) -> None:
    for number, (at, lines) in enumerate(landed):
        file = {"file_name": f"{number:08d}.jsonl", "file_modified_at": at, "ingested_at": at + timedelta(seconds=3)}
        _append(path, ({"raw": line} | file for line in lines))


def _in_batches(landed: Landed) -> list[Landed]:
    size = FILES // BATCHES
    return [landed[first : first + size] for first in range(0, FILES, size)]


def _write_events(paths: Mapping[str, Path], landed: Landed) -> None:
    _bronze(paths["bronze_events"], landed)
    sent = set[str]()
    for batch in _in_batches(landed):
        taken_at, new, broken = datetime.now(UTC), list[Row](), list[Row]()
        for landed_at, line in ((at, line) for at, lines in batch for line in lines):
            kind, is_double = kind_of(line, landed_at), line in sent
            if kind is Kind.MALFORMED or (kind in QUARANTINED and not is_double):
                broken.append({"raw": line, "ingested_at": taken_at, "_reason": QUARANTINED[kind]})
            elif kind in IN_SILVER and not is_double:
                event = json.loads(line, parse_float=Decimal)
                new.append(
                    event
                    | {
                        "amount": Decimal(event["amount"]).quantize(Decimal("0.01")),
                        "timestamp": datetime.fromisoformat(event["timestamp"]),
                        "ingested_at": taken_at,
                        "processed_at": taken_at,
                    }
                )
            sent.add(line)
        _append(paths["silver_events"], new)
        _append(paths["silver_events_quarantine"], broken)
        _append(paths["gold_events_hourly"], _hourly(_rows(paths["silver_events"])), "overwrite")


def _rows(path: Path) -> pa.Table:
    return DeltaTable(str(path)).to_pyarrow_table()


def _hourly(events: pa.Table) -> list[Row]:
    begins = pc.floor_temporal(events["timestamp"], unit="hour")
    groups = events.append_column("window_start", begins).group_by(["window_start", "event_type"])
    return [
        {
            **group,
            "window_end": group["window_start"] + timedelta(hours=1),
            "event_count": group["amount_count"],
            "amount_avg": (group["amount_sum"] / group["amount_count"]).quantize(Decimal("0.000001")),
        }
        for group in groups.aggregate([("amount", "sum"), ("amount", "count")]).to_pylist()
    ]


def _write_orders(paths: Mapping[str, Path], landed: Landed) -> None:
    _bronze(paths["bronze_orders"], landed)
    newest: dict[str, Row] = {}
    for batch in _in_batches(landed):
        changed = set()
        for line in chain.from_iterable(lines for _, lines in batch):
            order = _order(json.loads(line, parse_float=Decimal))
            known = newest.get(order["order_id"])
            if known is None or order["lsn"] > known["lsn"]:
                newest[order["order_id"]] = order
                changed.add(order["order_id"])
        _merge(paths["silver_orders"], [newest[order_id] for order_id in sorted(changed)])
        _append(paths["gold_orders_by_status"], _by_status(_rows(paths["silver_orders"])), "overwrite")


def _order(envelope: Row) -> Row:
    row = envelope["after"] or envelope["before"]
    return row | {
        "op": envelope["op"],
        "amount": Decimal(row["amount"]).quantize(Decimal("0.01")),
        "lsn": envelope["source"]["lsn"],
        "changed_at": datetime.fromtimestamp(envelope["ts_ms"] / 1_000, UTC),
    }


def _merge(path: Path, rows: list[Row]) -> None:
    table = DeltaTable(str(path))
    columns = pa.schema(table.schema().to_arrow())
    source = pa.Table.from_pylist(rows, schema=columns.append(pa.field("op", pa.string())))
    values = {name: f"s.{name}" for name in columns.names}
    merge = table.merge(source, "t.order_id = s.order_id", source_alias="s", target_alias="t")
    merge.when_matched_delete("s.op = 'd'").when_matched_update(values).when_not_matched_insert(
        values, "s.op <> 'd'"
    ).execute()


def _by_status(orders: pa.Table) -> list[Row]:
    groups = orders.group_by("status").aggregate([("amount", "sum"), ("amount", "count")]).to_pylist()
    return [group | {"orders": group["amount_count"], "total_amount": group["amount_sum"]} for group in groups]


def _fill_store(home: Path, registry: Registry, now: datetime) -> None:
    settings, store = load_settings(home=home), stream_store.open_store(home)
    store.declare(declarations(registry, settings), now=now)
    store.ensure_all_desired(registry.names(), DesiredState.RUNNING, now=now)
    stream_store.beat(store, now)
    for name in registry.names():
        stream_store.observe(store, name, StreamState.RUNNING, now)
        store.add_progress(stream_store.batches(name, now))
    for expectation in registry.table_expectations(settings):
        store.note_judgement(Judgement(expectation, Finding(State.MET), stream_store.HOST, now))
    store.close()
