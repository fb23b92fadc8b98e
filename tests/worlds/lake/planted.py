"""A table of many versions with one bad MERGE: what an incident looks like to somebody who knows nothing of it."""

from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, write_deltalake

CURRENCIES = {"EUR": "EMEA", "GBP": "EMEA", "USD": "AMER", "BRL": "AMER", "JPY": "APAC", "AUD": "APAC"}
FIRST_DAY = date(2026, 11, 1)
BAD_DAYS = (date(2026, 11, 11), date(2026, 11, 12))
METADATA = {"userName": "fx-loader", "job": "fx_rates_nightly", "ticket": "OPS-4711"}


@dataclass(frozen=True, slots=True)
class Planted:
    """`changed` rows of `rows_before` by the bad version, none of which was above `highest`; `later` were appended
    after it."""

    bad_version: int
    versions: int
    changed: int
    highest: float
    rows_before: int
    later: int


def plant(path: Path, *, versions: int = 60, bad_version: int = 37, rows: int = 300, seed: int = 7) -> Planted:
    """Appends, and one MERGE that multiplies amounts in yen of two days by 100."""
    chance, made = Random(seed), []
    path.parent.mkdir(parents=True, exist_ok=True)
    counts = {"changed": 0, "rows_before": 0, "later": 0}
    highest = 0.0
    for version in range(versions):
        if version == bad_version:
            hit = [row | {"amount": row["amount"] * 100} for row in made if _is_hit(row)]
            counts |= {"changed": len(hit), "rows_before": len(made)}
            highest = max(row["amount"] for row in made)
            _merge(path, hit)
            continue
        new = [_row(len(made) + number, version, chance) for number in range(rows * (8 if version == 0 else 1))]
        made += new
        write_deltalake(str(path), _table(new), mode="append")
        counts["later"] += len(new) if version > bad_version else 0
    return Planted(bad_version, versions, highest=highest, **counts)


def _row(number: int, version: int, chance: Random) -> dict[str, Any]:
    currency = chance.choice(list(CURRENCIES))
    amount = chance.randrange(50, 200_000) / 100
    return {
        "payment_id": number,
        "currency": currency,
        "region": CURRENCIES[currency],
        "day": FIRST_DAY + timedelta(days=chance.randrange(12 if version < 12 else 14)),
        "amount": amount,
        "customer": f"c{chance.randrange(900)}",
        "status": chance.choice(["open", "settled"]),
    }


def _is_hit(row: dict[str, Any]) -> bool:
    return row["currency"] == "JPY" and row["day"] in BAD_DAYS


def _table(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows)


def _merge(path: Path, rows: list[dict[str, Any]]) -> None:
    merge = DeltaTable(str(path)).merge(
        _table(rows), "t.payment_id = s.payment_id", source_alias="s", target_alias="t",
        commit_properties=CommitProperties(custom_metadata=METADATA),
    )  # fmt: skip
    merge.when_matched_update_all().execute()
