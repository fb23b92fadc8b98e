"""`weir bisect`: the document, the words, the exit codes, and what goes where."""

import re
import shlex
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.worlds.lake.planted import plant
from tests.worlds.terminal import Copied, Weir


@pytest.fixture
def orders(home: Path, copied: Copied) -> Path:
    return copied("broken_orders", home / "lake" / "silver" / "orders")


def test_the_document(orders: Path, weir: Weir) -> None:
    answer = weir("bisect", "silver/orders", "--assert", "amount >= 0", "--json")
    document = answer.document
    assert answer.code == 0
    assert (document["good"], document["bad"], document["direction"]) == (0, 7, "broke")
    assert (document["first_bad_version"], document["last_good_version"]) == (5, 4)
    assert (document["first_good_version"], document["last_bad_version"]) == (None, None)
    assert document["candidates"] == [5] and document["monotonic"] is True
    assert document["means"].startswith("every row has to satisfy it") and "null passes" in document["means"]
    assert document["commit"]["version"] == 5
    assert document["commit"]["stream"]["name"] == "silver_orders" and document["commit"]["stream"]["batch_id"] == 41
    assert document["examples"] == [{"id": 5, "amount": -4.0}]
    bad = next(probe for probe in document["probes"] if probe["version"] == 5)
    assert (bad["outcome"], bad["violations"], bad["nulls"], bad["rows"]) == ("bad", 1, 1, 6)
    assert bad["committed_at"].endswith("Z") and (bad["files"], bad["files_read"], bad["rows_read"]) == (2, 0, 0)
    end = next(probe for probe in document["probes"] if probe["version"] == 7)
    assert (end["files"], end["files_read"], end["rows_read"]) == (4, 4, 8) and end["bytes_read"] > 0
    assert document["diff"]["command"] == "weir diff silver/orders --from 4 --to 5"
    lines = [line for line in answer.err.splitlines() if line]
    assert len(lines) == len(document["probes"]) and "error" not in answer.err
    assert lines[0].startswith("v0  good  0 of 1 row violate it · 1 of 1 file, 1 row,") and "at most" in lines[0]


def test_people_get_a_sentence_and_the_next_step(orders: Path, weir: Weir) -> None:
    answer = weir("bisect", "orders", "--assert", "amount >= 0")
    assert "v5 (WRITE by stream silver_orders, batch 41, " in answer.out
    assert "is the first version that breaks `amount >= 0`." in answer.out
    assert "v4 is the last good version: 0 of 4 rows violate it" in answer.out
    assert "v5 is the first bad version: 1 of 6 rows violates it, 1 gives null and passes" in answer.out
    command = next(line for line in answer.out.splitlines() if line.startswith("What it changed: weir "))
    assert weir(*shlex.split(command.removeprefix("What it changed: weir "))).code == 10  # changed
    assert "v5  bad" in answer.err and "v5  bad" not in answer.out


def test_an_aggregate_shows_its_parts_and_the_way_back_is_searched_too(orders: Path, weir: Weir) -> None:
    DeltaTable(str(orders)).delete("amount < 0")
    mended = weir(
        "bisect", "orders", "--assert", "min(amount) >= 0", "--good", "latest", "--bad", "-2", "--json"
    ).document
    assert (mended["direction"], mended["first_good_version"], mended["last_bad_version"]) == ("mended", 8, 7)
    assert mended["first_bad_version"] is None and mended["last_good_version"] is None
    assert [probe["parts"] for probe in mended["probes"][:2]] == [{"min(amount)": 1.0}, {"min(amount)": -4.0}]
    words = weir("bisect", "orders", "--assert", "min(amount) >= 0", "--good", "8", "--bad", "5").out
    assert "v8 (DELETE, " in words and "is the first version that satisfies `min(amount) >= 0` again" in words
    assert "v7 is the last bad version: min(amount) is -4.0" in words


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (("--assert", "amount >="), 2, "syntax error"),
        (("--assert", "amount"), 2, "not true or false, at v0, the good end"),
        (("--assert", "amount >= 0", "--good", "99"), 3, "has no version 99"),
        (("--assert", "amount >= 0", "--good", "soon"), 2, "not a version"),
        (("--assert", "amount >= 0", "--good", "5"), 1, "v5, the good end, breaks the condition: 1 of 6 rows"),
        (("--assert", "amount >= 0", "--good", "3", "--bad", "3"), 1, "v3 was given as good and as bad"),
        (("--assert", "amount >= -9"), 1, "v7, the bad end, satisfies the condition"),
        ((), 2, "--assert"),
    ],
)
def test_what_goes_wrong_is_said_with_its_code(
    orders: Path, weir: Weir, args: tuple[str, ...], code: int, said: str
) -> None:
    answer = weir("bisect", "orders", *args)
    assert (answer.code, answer.out) == (code, "") and said in answer.err


def test_what_the_commit_changed_as_a_whole_and_what_the_way_back_loses(home: Path, weir: Weir) -> None:
    made = plant(home / "lake" / "payments", versions=6, bad_version=3)

    answer = weir("bisect", "payments", "--assert", "amount <= 2200")
    document = weir("bisect", "payments", "--assert", "amount <= 2200", "--json").document

    assert f"What it changed: {made.changed} rows (0 inserted, {made.changed} updated, 0 deleted)" in answer.out
    assert f"All {made.changed} updates multiplied `amount` by 100." in answer.out
    assert (
        f"{made.later:,} rows go (0 bad, {made.later} good), 0 come back, {made.changed} rows get older" in answer.out
    )
    assert re.search(r"older values \((\d+) bad, (\d+) good\); bad is what breaks `amount <= 2200`", answer.out)
    assert "It undoes 3 commits." in answer.out
    undone = answer.out.index("It undoes v4 WRITE (300 rows)"), answer.out.index("It undoes v3 MERGE")
    assert undone == tuple(sorted(undone)) and made.changed < 300, "in order of rows"
    assert document["changed"]["net"] == {"inserted": 0, "updated": made.changed, "deleted": 0}
    assert document["changed"]["explanation"]["done"][0]["by"] == 100
    net = {"inserted": 0, "updated": made.changed, "deleted": made.later}
    assert document["way_back"] == {"version": 2, "commits": [5, 4, 3], "net": net}
