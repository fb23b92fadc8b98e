"""What one commit did, on tables that deltalake wrote and as a recount in pandas finds it: the branches of a condition,
what its filter implies, rows loaded twice, and what changed rows share in another table."""

import json
import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from deltalake import CommitProperties, DeltaTable

from app.cli.diff import SHAPES
from app.cli.output import encoded
from app.ui.view.explanation import explained, looked_in, stands_out
from backend.changes.model import DiffMethod, Limits, RowKind
from backend.errors import DiffError
from tests.worlds.lake import builders
from tests.worlds.lake.diffs import asked, compare, diff, lake_at

ROWS = 2_000
BY: dict[str, Any] = {
    "row by row": asked(key=("id",), method=DiffMethod.KEY_JOIN),
    "change feed": asked(key=("id",), method=DiffMethod.CHANGE_FEED),
    "whole rows": asked(method=DiffMethod.MULTISET),
}


def customers(path: Path) -> Path:
    """Every row without email came by the app, and so did most that are closed in Spain; nothing else is special."""
    chance, rows = random.Random(4), list[dict[str, Any]]()
    for number in range(ROWS):
        status, country = chance.choice(["new", "open", "closed"]), chance.choice(["ES", "FR", "DE", "IT", "PT"])
        email = None if chance.random() < 0.07 else f"c{number}@example.com"
        is_app = email is None or (status, country) == ("closed", "ES")
        source = "APP" if is_app else chance.choice(["WEB", "POS", "MAIL"])
        rows.append({"id": number, "status": status, "email": email, "country": country, "source": source})
    for half in (rows[::2], rows[1::2]):
        columns = {name: [row[name] for row in half] for name in half[0]}
        builders.write(path, columns, configuration=builders.CHANGE_FEED)
    return path


def read(path: Path, version: int) -> pd.DataFrame:
    return DeltaTable(str(path), version=version).to_pandas()


def rewrite_predicate(path: Path, version: int, predicate: str) -> None:
    """As another writer would have logged the condition."""
    log = path / "_delta_log" / f"{version:020}.json"
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    for action in actions:
        if "commitInfo" in action:
            action["commitInfo"]["operationParameters"]["predicate"] = predicate
    log.write_text("\n".join(map(json.dumps, actions)))


@pytest.mark.parametrize("way", BY)
@pytest.mark.parametrize("operation", ["DELETE", "UPDATE"])
def test_each_branch_of_a_condition_is_counted_with_the_overlap(tmp_path: Path, way: str, operation: str) -> None:
    path = customers(tmp_path / "customers")
    condition = "(status = 'closed' AND country = 'ES') OR email IS NULL"
    if operation == "DELETE":
        DeltaTable(str(path)).delete(condition)
    else:
        DeltaTable(str(path)).update(predicate=condition, updates={"source": "'gone'"})
    before = read(path, 1)
    closed, no_email = (before["status"] == "closed") & (before["country"] == "ES"), before["email"].isna()
    explanation = compare(tmp_path, 1, 2, **BY[way]).explanation
    hit = explanation.hit
    assert hit is not None and (hit.operation, hit.of) == (operation, int((closed | no_email).sum()))
    assert [rows for _, rows in hit.branches] == [int(closed.sum()), int(no_email.sum())]
    assert hit.overlap == int((closed & no_email).sum()) > 0
    (text,) = [each for each in explained(explanation) if each.startswith(f"The {operation} ")]
    assert f"`email IS NULL` {int(no_email.sum()):,}, both {hit.overlap:,}." in text
    assert encoded(hit, SHAPES)["branches"][1] == {"condition": "email IS NULL", "rows": int(no_email.sum())}
    told = {each.column for common in explanation.common for each in common.traits if common.kind.value != "insert"}
    assert told == {"source"}, "what they share, without what the condition asks for"


@pytest.mark.parametrize(
    ("written", "is_told"),
    [
        ('["((status#12 = closed) OR isnull(email#13))"]', True),
        ('["((status#12 IN (closed,shut)) OR NOT isnotnull(`email`#13))"]', True),
        ('["((status#12 = it\'s) OR isnull(email#13))"]', False),  # not to be read
        ('["((status#12 = open) OR isnull(email#13))"]', False),  # not what hit these rows
        ("status = 'closed'", False),
        ("[", False),
    ],
)
def test_a_condition_as_spark_writes_it_is_read_or_nothing_is_said(tmp_path: Path, written: str, is_told: bool) -> None:
    path = customers(tmp_path / "customers")
    DeltaTable(str(path)).delete("status = 'closed' OR email IS NULL")
    rewrite_predicate(path, 2, written)
    before = read(path, 1)
    closed, no_email = before["status"] == "closed", before["email"].isna()
    hit = compare(tmp_path, 1, 2).explanation.hit
    assert (hit is not None) is is_told
    if hit:
        assert [rows for _, rows in hit.branches] == [int(closed.sum()), int(no_email.sum())]
        assert (hit.of, hit.overlap) == (int((closed | no_email).sum()), int((closed & no_email).sum()))


def test_what_a_filter_or_the_condition_asks_for_is_no_finding(tmp_path: Path) -> None:
    path = customers(tmp_path / "customers")
    DeltaTable(str(path)).delete("email IS NULL")
    DeltaTable(str(path)).optimize.z_order(["id"])
    for wanted in (asked(where="email IS NULL"), asked(), asked(where="coalesce(email, '') = ''")):
        for last in (2, 3):  # OPTIMIZE changes no row
            found = compare(tmp_path, 1, last, **wanted).explanation
            assert [trait.column for common in found.common for trait in common.traits] == ["source"]
            assert found.hit is None
    back = compare(tmp_path, 2, 1).explanation
    assert [trait.column for common in back.common for trait in common.traits] == ["source"]
    (all_of_them,) = explained(compare(tmp_path, 1, 2).explanation)
    count = int(read(path, 1)["email"].isna().sum())
    assert all_of_them.startswith(f"All {count} deleted rows have `source` = APP: 100 % against ")


# rows that were loaded twice ------------------------------------------------------------------------------------------


def batch(load: int, numbers: range, *, shift: int = 0) -> dict[str, list[Any]]:
    """Readings as one load writes them: `load_no`, `loaded_at` and each row's `row_id` are its own."""
    return {
        "row_id": [f"r{load}-{number}" for number in numbers],
        "load_no": [load] * len(numbers),
        "loaded_at": [datetime(2026, 11, load, tzinfo=UTC)] * len(numbers),
        "sensor": [f"s{number % 7}" for number in numbers],
        "minute": list(numbers),
        "value": [number * 31 % 101 + shift for number in numbers],
    }


@pytest.mark.parametrize("key", [None, ("sensor", "minute")])
def test_a_batch_loaded_twice_is_named_with_its_version_and_what_differs(tmp_path: Path, key: Any) -> None:
    path = tmp_path / "readings"
    for load, numbers in ((1, range(300)), (2, range(300, 500)), (3, range(500, 640))):
        builders.write(path, batch(load, numbers))
    again = pd.concat([pd.DataFrame(batch(9, range(300, 500))), pd.DataFrame(batch(9, range(900, 940)))])
    again.loc[again["minute"].isin(range(310, 315)), "value"] += 1 if key else 0
    builders.write(path, again.to_dict("list"), commit_properties=CommitProperties(custom_metadata={"job": "reload"}))
    found = compare(tmp_path, 2, 3, key=key).explanation
    assert found.repeats is not None and (found.repeats.of, found.repeats.rows, found.repeats.copies) == (240, 200, 0)
    before, own = read(path, 2), ["row_id", "load_no", "loaded_at"]
    both = again.merge(before, on=["sensor", "minute"], suffixes=("", " before"))
    differs = {name: int((both[name] != both[f"{name} before"]).sum()) for name in [*own, "value"]}
    assert found.repeats.differs == {name: count for name, count in differs.items() if count}
    assert [commit.version for commit in found.repeats.written_by] == [1]
    text, *more = stands_out(found)
    assert not any("load_no" in each for each in more), "once is enough"
    if key is None:
        by = "in every column but `row_id`, `load_no`, `loaded_at`, in files of v1 (WRITE)"
        assert text == f"200 of the 240 inserted rows were there already at v2 {by}."
    else:
        assert text.startswith(
            "200 of the 240 inserted rows were there already at v2 by `sensor`, `minute`, in files of v1"
        )
        assert text.endswith(
            "; `row_id` differs in 200, `load_no` differs in 200, `loaded_at` differs in 200, `value` differs in 5."
        )


def test_rows_that_look_alike_by_chance_are_no_copies(tmp_path: Path) -> None:
    chance = random.Random(1)
    for load in range(1, 5):
        rows = batch(load, range(200))
        rows["minute"], rows["value"] = ([chance.randrange(most) for _ in range(200)] for most in (12, 9))
        builders.write(tmp_path / "few values", rows)
        new = batch(load, range(load * 1_000, load * 1_000 + 200))
        builders.write(tmp_path / "new", new)
    for name in ("few values", "new"):
        lake = lake_at(tmp_path)
        assert diff(lake, lake.find(name), 2, 3).explanation.repeats is None, name


# what changed rows share in another table -----------------------------------------------------------------------------


def rates(root: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Amounts of invoices, of which those that came by the app in USD were inverted at v1; where they came from, and
    in which currency, stands in `invoices` alone. Three of its invoices are there twice."""
    chance = random.Random(7)
    invoices = pd.DataFrame({
        "invoice_id": [f"i{number}" for number in range(ROWS)],
        "source": [chance.choice(["APP", "POS", "WEB", "MAIL"]) for _ in range(ROWS)],
        "currency": [chance.choice(["USD", "EUR", "JPY"]) for _ in range(ROWS)],
        "note": [f"n{chance.randrange(ROWS)}" for _ in range(ROWS)],
    })  # fmt: skip
    amounts = pd.DataFrame(
        {"invoice_id": invoices["invoice_id"], "rate": [chance.uniform(0.2, 3) for _ in range(ROWS)]}
    )
    builders.write(root / "amounts", amounts.to_dict("list"))
    hit = (invoices["source"] == "APP") & (invoices["currency"] == "USD")
    after = amounts.assign(rate=amounts["rate"].where(~hit, 1 / amounts["rate"]))
    builders.write(root / "amounts", after.to_dict("list"), mode="overwrite")
    twice = invoices[hit].tail(3)
    builders.write(root / "invoices", pd.concat([invoices[ROWS // 10 :], twice]).to_dict("list"))
    return invoices, invoices[hit]


def test_what_changed_rows_share_in_the_table_that_they_name_rows_of(tmp_path: Path) -> None:
    invoices, hit = rates(tmp_path)
    lake = lake_at(tmp_path)
    wanted = asked(key=("invoice_id",), look_in=lake.find("invoices"))
    found = diff(lake, lake.find("amounts"), 0, 1, **wanted).explanation.look_in
    there = invoices[ROWS // 10 :]
    there = there[~there["invoice_id"].isin(hit.tail(3)["invoice_id"])]  # what is there twice names no row
    inside = hit[hit["invoice_id"].isin(there["invoice_id"])]
    assert found is not None and not found.reason and (found.by, found.of) == ("invoice_id", len(hit))
    assert found.found == len(inside) and found.population is not None and found.population.rows == len(there)
    (common,) = found.common
    assert (common.kind, common.of, common.rows, common.others) == (RowKind.UPDATE, *3 * (len(inside),))
    counts = {trait.column: (trait.values, trait.others) for trait in common.traits}
    assert counts == {
        "invoices.source": (("APP",), int((there["source"] == "APP").sum())),
        "invoices.currency": (("USD",), int((there["currency"] == "USD").sum())),
    }
    first, second = looked_in(found)
    assert first == f"{len(inside)} of {len(hit)} changed rows have one row in `invoices` v0 by `invoice_id`."
    assert second.startswith(f"All {len(inside)} updated rows found there have ") and "No other row has all" in second
    assert diff(lake, lake.find("amounts"), 0, 1, key=("invoice_id",)).explanation.look_in is None, "only if asked"


def test_where_nothing_can_be_looked_up_the_reason_is_given(tmp_path: Path) -> None:
    rates(tmp_path)
    builders.write(tmp_path / "others", {"invoice_id": ["x"], "a": [1]})
    builders.write(tmp_path / "typed", {"invoice_id": [1], "source": ["APP"]})
    lake, amounts = lake_at(tmp_path), asked(key=("invoice_id",))
    wanted = {
        "others": asked(look_in=lake.find("others")),
        "large": asked(look_in=lake.find("invoices"), limits=Limits(values_beside=10)),
        "few": asked(look_in=lake.find("invoices"), where="invoice_id = 'i0'"),
    }
    texts = {}
    for name, options in wanted.items():
        found = diff(lake, lake.find("amounts"), 0, 1, **amounts, **options).explanation.look_in
        assert found is not None and found.common == ()
        (texts[name],) = looked_in(found)
    assert "no row there has the invoice_id of a changed row for itself" in texts["others"]
    assert "that is too much to read" in texts["large"] and "fewer than 6 rows" in texts["few"]
    with pytest.raises(DiffError, match="no column of amounts names rows of typed"):
        diff(lake, lake.find("amounts"), 0, 1, look_in=lake.find("typed"))
