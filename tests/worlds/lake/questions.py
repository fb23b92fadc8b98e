"""Questions that analysts ask of orders, customers and events, in SQL that DuckDB and Spark both read, with what
pandas says to each of the same rows.

Rule: `{orders}`, `{orders_v1}` stand for a table and a table at a version, as the engine names them. What pandas says
is computed from the rows that were written, without any SQL.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pandas as pd

from backend.lake.lake import Lake
from backend.query.views import World
from backend.settings import Settings

Frames = Mapping[str, pd.DataFrame]
START = datetime(2026, 3, 1, tzinfo=UTC)
VERSIONS = {"orders": 3, "orders_v1": 1, "orders_v2": 2}


def open_world(settings: Settings) -> World:
    """A lake without a store."""
    return World(Lake(settings), None, datetime.now(UTC), settings)


@dataclass(frozen=True)
class Question:
    name: str
    sql: str
    by_pandas: Callable[[Frames], Sequence[tuple[Any, ...]]]


def orders() -> pd.DataFrame:
    """120 orders over ten days, every ninth without an amount."""
    numbers = range(120)
    return pd.DataFrame({
        "order_id": list(numbers),
        "customer_id": [n * 7 % 25 for n in numbers],
        "status": [("new", "paid", "sent", "lost")[n % 4] for n in numbers],
        "amount": [None if n % 9 == 4 else round((n * 37 % 101) + n / 8, 3) for n in numbers],
        "day": [(START + timedelta(days=n % 10)).date().isoformat() for n in numbers],
        "created": [START + timedelta(hours=5 * n, minutes=n) for n in numbers],
    })  # fmt: skip


def customers() -> pd.DataFrame:
    numbers = range(20)
    return pd.DataFrame({
        "customer_id": list(numbers),
        "name": [f"customer {n}" for n in numbers],
        "country": [("NL", "ES", "DE", None)[n % 4] for n in numbers],
    })  # fmt: skip


def events() -> pd.DataFrame:
    numbers = range(200)
    return pd.DataFrame({
        "event_id": list(numbers),
        "order_id": [n * 3 % 130 for n in numbers],
        "type": [("view", "click", "buy")[n % 3] for n in numbers],
        "at": [START + timedelta(minutes=37 * n) for n in numbers],
    })  # fmt: skip


def appended() -> pd.DataFrame:
    """What version 1 adds."""
    more = orders().head(30).copy()
    more["order_id"] += 120
    more["status"] = "new"
    return more


def states() -> Frames:
    """Each table as it is after its commits: 1 appends thirty, 2 pays those of customer 3, 3 deletes the lost ones."""
    first = pd.concat([orders(), appended()], ignore_index=True)
    second = first.copy()
    second.loc[second.customer_id == 3, "status"] = "paid"
    third = second[second.status != "lost"].reset_index(drop=True)
    return {"orders": third, "orders_v1": first, "orders_v2": second, "customers": customers(), "events": events()}


def comparable(rows: Sequence[Sequence[Any]]) -> list[tuple[str, ...]]:
    """Rows of any engine in one order, each value as one text."""
    return sorted(tuple(map(_plain, row)) for row in rows)


def _plain(value: Any) -> str:
    if value is None or value is pd.NaT or (isinstance(value, float) and value != value):
        return "null"
    if isinstance(value, bool) or type(value).__name__ == "bool_":
        return str(bool(value))
    if isinstance(value, pd.Timestamp):
        value = value.to_pydatetime()
    if isinstance(value, datetime):
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).astimezone(UTC).isoformat()
    if isinstance(value, date | str):
        return str(value)
    return f"{float(value):.6f}"


def _tuples(frame: pd.DataFrame) -> list[tuple[Any, ...]]:
    return list(frame.itertuples(index=False, name=None))


def _grouped(frame: pd.DataFrame, by: Any, **named: tuple[str, Any]) -> list[tuple[Any, ...]]:
    return _tuples(frame.groupby(by, dropna=False).agg(**named).reset_index())


def _ranked(f: Frames) -> list[tuple[Any, ...]]:
    priced = f["orders"].dropna(subset=["amount"]).sort_values(["amount", "order_id"], ascending=[False, True])
    return _tuples(priced.groupby("status").head(2)[["status", "order_id", "amount"]])


def _funnel(f: Frames) -> list[tuple[Any, ...]]:
    seen = f["events"].groupby("order_id").type.agg(set)
    has = [{"view"}, {"view", "click"}, {"view", "click", "buy"}]
    return [tuple(sum(steps <= of_order for of_order in seen) for steps in has)]


def _status_changes(f: Frames) -> list[tuple[Any, ...]]:
    both = f["orders_v1"].merge(f["orders_v2"], on="order_id", suffixes=("_old", "_new"))
    return _grouped(both[both.status_old != both.status_new], ["status_old", "status_new"], n=("order_id", "count"))


def _gone(f: Frames) -> list[tuple[Any, ...]]:
    lost = f["orders_v1"][~f["orders_v1"].order_id.isin(f["orders"].order_id)]
    return [(len(lost), lost.amount.sum())]


def _totals(f: Frames) -> list[tuple[Any, ...]]:
    o = f["orders"]
    return [*_grouped(o, ["status"], n=("order_id", "count")), (None, len(o))]


def _full(f: Frames) -> list[tuple[Any, ...]]:
    a, b = set(f["orders"].order_id), set(f["events"].order_id)
    return [(len(a - b), len(b - a), len(a & b))]


QUESTIONS = (
    Question(
        "orders and revenue by status",
        "SELECT status, count(*), count(amount), sum(amount), avg(amount) FROM {orders} GROUP BY status",
        lambda f: _grouped(f["orders"], "status", n=("order_id", "count"), priced=("amount", "count"),
                           total=("amount", "sum"), mean=("amount", "mean")),
    ),
    Question(
        "orders of nobody we know",
        "SELECT o.order_id FROM {orders} o LEFT JOIN {customers} c ON o.customer_id = c.customer_id "
        "WHERE c.customer_id IS NULL",
        lambda f: [(n,) for n in f["orders"][~f["orders"].customer_id.isin(f["customers"].customer_id)].order_id],
    ),
    Question(
        "customers without an order",
        "SELECT name FROM {customers} c WHERE NOT EXISTS (SELECT 1 FROM {orders} o "
        "WHERE o.customer_id = c.customer_id AND o.status = 'sent')",
        lambda f: [(n,) for n in f["customers"][~f["customers"].customer_id.isin(
            f["orders"][f["orders"].status == "sent"].customer_id)].name],
    ),
    Question(
        "events by hour and type",
        "SELECT date_trunc('hour', at) AS hour, type, count(*) FROM {events} GROUP BY date_trunc('hour', at), type",
        lambda f: _grouped(f["events"], [f["events"]["at"].dt.floor("h"), "type"], n=("event_id", "count")),
    ),
    Question(
        "the two largest orders of each status",
        "SELECT status, order_id, amount FROM (SELECT *, row_number() OVER (PARTITION BY status ORDER BY amount DESC, "
        "order_id) AS place FROM {orders} WHERE amount IS NOT NULL) ranked WHERE place <= 2",
        _ranked,
    ),
    Question(
        "how many orders were viewed, clicked, bought",
        "WITH steps AS (SELECT order_id, max(CASE WHEN type = 'view' THEN 1 ELSE 0 END) v, "
        "max(CASE WHEN type = 'click' THEN 1 ELSE 0 END) c, max(CASE WHEN type = 'buy' THEN 1 ELSE 0 END) b "
        "FROM {events} GROUP BY order_id) SELECT sum(v), sum(v * c), sum(v * c * b) FROM steps",
        _funnel,
    ),
    Question(
        "which status became which",
        "SELECT a.status, b.status, count(*) FROM {orders_v1} a JOIN {orders_v2} b ON a.order_id = b.order_id "
        "WHERE a.status <> b.status GROUP BY a.status, b.status",
        _status_changes,
    ),
    Question(
        "what was deleted since, and its worth",
        "SELECT count(*), sum(amount) FROM {orders_v1} WHERE order_id NOT IN (SELECT order_id FROM {orders})",
        _gone,
    ),
    Question(
        "orders by status with the total",
        "SELECT status, count(*) FROM {orders} GROUP BY ROLLUP (status)",
        _totals,
    ),
    Question(
        "orders with events, without, and events without orders",
        "SELECT sum(CASE WHEN e.order_id IS NULL THEN 1 ELSE 0 END), "
        "sum(CASE WHEN o.order_id IS NULL THEN 1 ELSE 0 END), "
        "sum(CASE WHEN o.order_id = e.order_id THEN 1 ELSE 0 END) FROM {orders} o FULL OUTER JOIN "
        "(SELECT DISTINCT order_id FROM {events}) e ON o.order_id = e.order_id",
        _full,
    ),
    Question(
        "one day's orders, dear ones",
        "SELECT order_id, amount FROM {orders} WHERE day = '2026-03-04' AND amount > 50",
        lambda f: _tuples(f["orders"].query("day == '2026-03-04' and amount > 50")[["order_id", "amount"]]),
    ),
    Question(
        "customers of both weeks",
        "SELECT customer_id FROM {orders} WHERE day < '2026-03-04' INTERSECT "
        "SELECT customer_id FROM {orders} WHERE day >= '2026-03-08'",
        lambda f: [(n,) for n in set(f["orders"].query("day < '2026-03-04'").customer_id)
                   & set(f["orders"].query("day >= '2026-03-08'").customer_id)],
    ),
    Question(
        "the share of orders without an amount",
        "SELECT status, count(*) FILTER (WHERE amount IS NULL) / count(*) FROM {orders} GROUP BY status",
        lambda f: [(s, part.amount.isna().mean()) for s, part in f["orders"].groupby("status")],
    ),
    Question(
        "orders and events in one list by day",
        "SELECT day, 'order' AS what, count(*) FROM {orders} GROUP BY day UNION ALL "
        "SELECT CAST(CAST(at AS DATE) AS STRING), 'event', count(*) FROM {events} GROUP BY CAST(at AS DATE)",
        lambda f: [*((d, "order", len(p)) for d, p in f["orders"].groupby("day")),
                   *((str(d), "event", len(p)) for d, p in f["events"].groupby(f["events"]["at"].dt.date))],
    ),
)  # fmt: skip
