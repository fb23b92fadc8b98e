"""Rows of a commit against those of its kind: each planted fault is found as it was planted, and nothing beside it."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from backend.lake.model import Commit, OperationMetrics, StreamOrigin
from backend.search.commit_rows import profile_rows
from backend.search.notice import Measure
from backend.search.row_findings import MOST_COMMITS, RowFinding, RowHabits

Rows = dict[str, Any]
KINDS = {
    "id": "long", "amount": "double", "country": "string", "source": "string", "email": "string", "sku": "string",
    "lat": "double", "lon": "double", "qty": "long", "load_id": "string", "issued_at": "timestamp",
    "ingested_at": "timestamp", "loaded_at": "timestamp", "is_paid": "boolean", "rate": "double",
    "net": "double",
}  # fmt: skip
SCHEMA = pa.schema(
    [
        (name, pa.timestamp("us") if kind == "timestamp" else {"long": "int64", "boolean": "bool"}.get(kind, kind))
        for name, kind in KINDS.items()
    ]
)
ROWS, BATCHES = 1_000, 14


def batch(number: int) -> Rows:
    rows = _batch(number)  # what is not taxed costs the same
    rows["net"] = np.where(rows["country"] == "ES", rows["amount"], np.round(rows["amount"] / 1.19, 2))
    return rows


def _batch(number: int) -> Rows:
    dice = np.random.default_rng(number)
    hour = np.datetime64("2026-11-01T00:00", "us") + np.timedelta64(number, "h")
    issued = hour + (dice.random(ROWS) * 3_600e6).astype("timedelta64[us]")
    return {
        "id": np.arange(ROWS) + number * ROWS,
        "amount": np.round(dice.lognormal(3, 0.6, ROWS), 2),
        "country": dice.choice(["ES", "FR", "DE", "IT"], ROWS, p=[0.1, 0.3, 0.4, 0.2]).astype(object),
        "source": dice.choice(["APP", "POS", "WEB"], ROWS).astype(object),
        "email": np.array([f"User{n}@x.com" for n in dice.integers(0, 10**6, ROWS)], object),
        "sku": np.array([f"SKU-{n:06d}" for n in dice.integers(0, 10**5, ROWS)], object),
        "lat": dice.normal(45, 3, ROWS),
        "lon": dice.normal(8, 4, ROWS),
        "qty": dice.integers(1, 9, ROWS),
        "load_id": np.array([f"L{number}"] * ROWS, object),
        "issued_at": issued,
        "ingested_at": issued + (dice.random(ROWS) * 1_800e6).astype("timedelta64[us]"),
        "loaded_at": np.full(ROWS, hour + np.timedelta64(95, "m")),
        "is_paid": dice.random(ROWS) < 0.9,
        "rate": dice.normal(0.92, 0.002, ROWS),
    }


def shown(habits: RowHabits, number: int, rows: Rows, gone: Rows | None = None, **about: Any) -> list[RowFinding]:
    commit = Commit(number, datetime(2026, 11, 1, tzinfo=UTC), "WRITE", {}, OperationMetrics(), {}, "ann", None, None)
    for name, value in about.items():
        object.__setattr__(commit, name, value)
    none = {name: column[:0] for name, column in rows.items()}
    tables = [pa.table(one).cast(SCHEMA) for one in (rows, gone or none)]
    return habits.see(commit, "ann", profile_rows(*tables, KINDS, habits.unmarked, habits.bounds(commit, "ann")))


def past() -> RowHabits:
    habits = RowHabits()
    assert [found for number in range(BATCHES) for found in shown(habits, number, batch(number))] == []
    return habits


def _where(column: str, of: str, value: str, change: Callable[[Any], Any]) -> Callable[[Rows], None]:
    def plant(rows: Rows) -> None:
        rows[column] = np.where(rows[of] == value, change(rows[column]), rows[column])

    return plant


def _texts(column: str, change: Callable[[str], Any], *, every: int = 1) -> Callable[[Rows], None]:
    def plant(rows: Rows) -> None:
        rows[column] = np.array([change(t) if n % every == 0 else t for n, t in enumerate(rows[column])], object)

    return plant


def _swapped(rows: Rows) -> None:
    hit = rows["country"] == "FR"
    rows["lat"], rows["lon"] = np.where(hit, rows["lon"], rows["lat"]), np.where(hit, rows["lat"], rows["lon"])


def _repeated(rows: Rows) -> None:
    rows["id"][100:200] = rows["id"][:100]


def _epoch(rows: Rows) -> None:
    rows["issued_at"][::20] = np.datetime64("1970-01-01", "us")


def _copied(rows: Rows) -> None:
    for name, column in batch(9).items():
        if name not in ("load_id", "ingested_at"):
            rows[name][:300] = column[:300]


def _some_of_spain(rows: Rows) -> None:
    hit = (rows["country"] == "ES") & (np.arange(ROWS) % 3 > 0)
    rows["amount"] = np.where(hit, rows["amount"] * 100, rows["amount"])


def _cut(rows: Rows) -> None:
    rows["amount"] = np.trunc(rows["amount"])


# What is planted, then: what is found, of which column, in which rows, and what takes it back.
FAULTS: dict[str, tuple[Callable[[Rows], None], Measure, str, str, str]] = {
    "a unit in one country": (
        _where("amount", "country", "ES", lambda amount: amount * 100), Measure.MEDIAN, "amount", "country = 'ES'",
        "amount = amount / 100",
    ),
    "a unit in some rows of one country": (
        _some_of_spain, Measure.HIGHEST, "amount", "country = 'ES' AND amount > 206.83", "amount = amount / 100",
    ),
    "one price for all of one source": (
        _where("qty", "source", "POS", lambda _: 1), Measure.ONE_VALUE, "qty = 1", "source = 'POS' AND qty = 1", ""
    ),
    "times after they were loaded": (
        _where("ingested_at", "source", "POS", lambda at: at + np.timedelta64(130, "m")), Measure.LATER,
        "ingested_at > loaded_at", "source = 'POS' AND ingested_at > loaded_at", "",
    ),
    "an odd factor": (
        _where("amount", "source", "POS", lambda amount: amount * 2.2), Measure.MEDIAN, "amount", "source = 'POS'",
        "",
    ),
    "an inverse": (
        _where("lat", "country", "DE", lambda lat: 1 / lat), Measure.MEDIAN, "lat", "country = 'DE'", "lat = 1 / lat"
    ),
    "an inverse of what is nearly one": (
        _where("rate", "source", "POS", lambda rate: 1 / rate), Measure.MEDIAN, "rate", "source = 'POS'",
        "rate = 1 / rate",
    ),
    "an amount that was not converted": (
        lambda rows: rows.update(net=np.where(rows["country"] == "DE", rows["amount"], rows["net"])), Measure.LATER,
        "amount = net", "country = 'DE' AND amount = net", "",
    ),
    "a sign": (
        _where("amount", "source", "WEB", lambda amount: -amount), Measure.NEGATIVE, "amount",
        "source = 'WEB' AND amount < 0", "amount = -amount",
    ),
    "columns swapped": (_swapped, Measure.SWAPPED, "lat and lon", "country = 'FR'", "lat = lon, lon = lat"),
    "nulls of one source": (
        _where("email", "source", "POS", lambda _: None), Measure.NULLS, "email", "source = 'POS' AND email IS NULL", ""
    ),
    "empty texts": (
        _where("sku", "country", "IT", lambda _: ""), Measure.EMPTY, "sku", "country = 'IT' AND trim(sku) = ''", ""
    ),
    "a time zone": (
        _where("issued_at", "source", "POS", lambda at: at - np.timedelta64(1, "h")), Measure.MEDIAN,
        "issued_at − ingested_at", "source = 'POS'", "",
    ),
    "a spelling": (
        _texts("country", lambda t: "de" if t == "DE" else t), Measure.SPELLING, "country", "country = 'de'",
        "country = 'DE'",
    ),
    "a value gone": (
        _texts("country", lambda t: "FR" if t == "IT" else t), Measure.VALUE, "country = 'IT'", "", ""
    ),
    "spaces": (
        _texts("sku", lambda t: f"{t} ", every=10), Measure.PADDED, "sku", "sku <> trim(sku) AND trim(sku) <> ''", ""
    ),
    "letters of another encoding": (_texts("email", lambda t: f"Ã©{t}", every=20), Measure.GARBLED, "email", "", ""),
    "texts cut": (_texts("sku", lambda t: t[:6]), Measure.LENGTH, "sku", "", ""),
    "fractions cut": (_cut, Measure.WHOLE, "amount", "amount = trunc(amount)", ""),
    "a key twice in a batch": (_repeated, Measure.DISTINCT, "id", "", ""),
    "a date for none": (
        _epoch, Measure.ONE_VALUE, "issued_at = '1970-01-01 00:00:00'", "issued_at = '1970-01-01 00:00:00'", ""
    ),
    "rows of an earlier batch": (_copied, Measure.COPIED, "", "", ""),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found_as_it_was_planted_and_nothing_beside_it(fault: str) -> None:
    plant, kind, subject, where, repair = FAULTS[fault]
    habits, rows = past(), batch(BATCHES)
    plant(rows)
    (found,) = shown(habits, BATCHES, rows)
    assert (found.kind, found.subject, found.where, found.repair) == (kind, subject, where, repair), found
    good, names = batch(BATCHES), set(rows)
    changed = sum(any(rows[name][n] != good[name][n] for name in names) for n in range(ROWS))
    assert abs(found.rows - changed) <= 0.05 * ROWS
    assert shown(habits, BATCHES + 1, batch(BATCHES + 1)) == [], "what came right again is no finding"


def test_a_value_that_goes_after_many_commits_is_told_with_rows_of_all_that_a_large_one_has() -> None:
    habits, more = RowHabits(), 60
    for number in range(MOST_COMMITS + 3):
        shown(habits, number, batch(number))
    rows = {name: np.tile(column, more) for name, column in batch(MOST_COMMITS + 3).items()}
    rows["id"] = np.arange(ROWS * more)
    gone = int(sum(rows["country"] == "IT"))
    rows["country"] = np.where(rows["country"] == "IT", "FR", rows["country"])
    (told,) = (found for found in shown(habits, MOST_COMMITS + 3, rows) if found.kind is Measure.VALUE)
    assert told.subject == "country = 'IT'" and abs(told.rows - gone) <= 0.05 * ROWS * more


def test_a_load_of_far_fewer_rows_than_ever_is_told_of_a_steady_writer_that_is_no_stream() -> None:
    for is_steady, origin, told in (
        (True, None, True),
        (False, None, False),
        (True, StreamOrigin("orders", None, None, None), False),
    ):
        habits = RowHabits()
        for number in range(BATCHES):
            some = batch(number) if is_steady or number % 7 else cut_to(batch(number), 300)
            shown(habits, number, some, origin=origin)
        found = shown(habits, BATCHES, cut_to(batch(BATCHES), 200), origin=origin)
        assert [(each.kind, each.after) for each in found if each.kind is Measure.ADDED] == [
            (Measure.ADDED, "200")
        ] * told, (is_steady, origin)


def cut_to(rows: Rows, num: int) -> Rows:
    return {name: column[:num] for name, column in rows.items()}


def test_what_drifts_grows_or_was_written_anew_is_no_finding() -> None:
    habits, rows = past(), batch(BATCHES)
    rows["amount"], rows["net"] = rows["amount"] * 1.2, rows["net"] * 1.2
    assert shown(habits, BATCHES, rows) == []
    anew = {name: column.copy() for name, column in rows.items()}
    assert shown(habits, BATCHES + 1, anew, gone=rows, operation="UPDATE") == []


def test_a_writer_without_a_past_is_judged_by_what_no_writer_ever_did() -> None:
    habits, rows = past(), batch(BATCHES)
    rows["country"] = np.array(["PT"] * ROWS, object)
    assert shown(habits, BATCHES, rows, operation="MERGE") == []
    rows["email"] = np.array([None] * ROWS, object)
    (found,) = shown(habits, BATCHES + 1, rows, operation="MERGE")
    assert (found.kind, found.subject, found.rows) == (Measure.NULLS, "email", ROWS)
