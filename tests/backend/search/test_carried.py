"""What a finding left in other tables of the lake, against a recount of the tables' rows with pandas."""

import random
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pandas as pd
import pytest
from deltalake import DeltaTable

from backend.lake.lake import Lake
from backend.search import carried
from backend.search.carried import Carried, CarriedRows, load_carried
from backend.search.notice import Measure, Notice
from backend.settings import load_settings
from tests.worlds.lake import builders


def last(steps: Iterator[Carried]) -> Carried:
    *_, result = steps
    return result


DAYS = [f"2026-11-{day:02d}" for day in range(1, 11)]
CURRENCIES = ("USD", "GBP", "CHF")


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """Rates of ten days, of which v6 has dollars the wrong way round; invoices, payments and notes follow each day."""
    dice, rates = random.Random(4), dict[tuple[str, str], float]()
    for number, day in enumerate(DAYS):
        for currency in CURRENCIES:
            rate = round(dice.uniform(0.8, 0.95), 6)
            rates[day, currency] = 1 / rate if (number, currency) == (6, "USD") else rate
        of_day = {"day": [day] * 3, "currency": [*CURRENCIES], "eur_rate": [rates[day, c] for c in CURRENCIES]}
        builders.write(tmp_path / "lake" / "rates", of_day)
        picked = [dice.choice(CURRENCIES) for _ in range(40)]
        invoices = {"invoice": [f"{day}-{n}" for n in range(40)], "currency": picked}
        invoices["eur_rate"] = [rates[day, c] for c in picked]  # type: ignore[assignment]
        builders.write(tmp_path / "lake" / "invoices", invoices)
        builders.write(tmp_path / "lake" / "notes", {"eur_rate": ["0.9"], "currency": ["USD"]})
    builders.write(tmp_path / "lake" / "clean", {"currency": ["USD"] * 3, "eur_rate": [0.9, 0.91, 0.92]})
    return Lake(load_settings(home=tmp_path))


def inverted(lake: Lake) -> Notice:
    ref = lake.find("rates")
    at = lake.snapshot(ref, 6).committed_at
    return Notice(ref.uri, ref.name, 6, Measure.MEDIAN, "eur_rate", "0.9", "1.1", "", "WRITE", at, rows=1,
                  where="currency = 'USD'")  # fmt: skip


def recounted(lake: Lake, table: str) -> int:
    rates, rows = (DeltaTable(lake.find(name).uri).to_pandas() for name in ("rates", table))
    bad = rates[(rates.day == DAYS[6]) & (rates.currency == "USD")]
    return len(pd.merge(rows, bad, on=["eur_rate", "currency"]))


def test_rows_that_carry_a_findings_values_are_named_with_their_versions(lake: Lake) -> None:
    *steps, result = load_carried(lake, inverted(lake))
    expected = CarriedRows(lake.find("invoices"), recounted(lake, "invoices"), 6, 6, ("eur_rate", "currency"))
    assert result.found == (expected,) and expected.rows > 3
    assert [step.table for step in steps] == ["clean", "invoices"], "notes has texts of the same name"


def test_what_was_rewritten_since_is_found_and_its_versions_are_unknown(lake: Lake) -> None:
    ref = lake.find("invoices")
    DeltaTable(ref.uri).optimize.compact()
    (found,) = last(load_carried(lake, inverted(lake))).found
    assert (found.rows, found.first, found.last) == (recounted(lake, "invoices"), None, None)


def test_missing_values_are_joined_by_what_else_names_the_row(lake: Lake, tmp_path: Path) -> None:
    for table in ("customers", "mailing"):
        builders.write(tmp_path / "lake" / table, {"customer_id": [1, 2, 3], "email": ["a", "b", "c"]})
    builders.write(tmp_path / "lake" / "customers", {"customer_id": [4, 5], "email": [None, "e"]})
    builders.write(tmp_path / "lake" / "mailing", {"customer_id": [4, 5, 6], "email": [None, "e", None]})
    ref = lake.find("customers")
    notice = replace(inverted(lake), uri=ref.uri, version=1, kind=Measure.NULLS, subject="email",
                     where="email IS NULL", committed_at=lake.snapshot(ref, 1).committed_at)  # fmt: skip
    (found,) = last(load_carried(lake, notice)).found
    assert (found.ref.name, found.rows, found.columns) == ("mailing", 1, ("customer_id",))


def test_a_table_without_anything_that_joins_and_one_too_large_are_left_out_by_name(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    builders.write(tmp_path / "lake" / "stock", {"qty": [1, -3]})
    builders.write(tmp_path / "lake" / "returns", {"qty": [-3, -4]})
    ref = lake.find("stock")
    notice = replace(inverted(lake), uri=ref.uri, version=0, subject="qty", where="qty < 0", committed_at=None)
    assert last(load_carried(lake, notice)).left_out == ("returns: no column in common joins its rows",)
    monkeypatch.setattr(carried, "MOST_BYTES", 10)
    (left_out,) = [each for each in last(load_carried(lake, inverted(lake))).left_out if "invoices" in each]
    assert left_out.endswith("written since")


def test_what_came_before_the_finding_is_not_downstream_of_it(lake: Lake) -> None:
    notice = replace(inverted(lake), committed_at=datetime.now(UTC))
    assert last(load_carried(lake, notice)).found == ()
