"""What going back to a former version undoes, brings back and leaves as it is, against pandas."""

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pandas as pd
import pytest
from deltalake import CommitProperties, DeltaTable

from app.ui.view.acts import loss_text, preview_lines
from app.ui.view.explanation import explained
from backend.lake.lake import Lake
from backend.maintenance.model import Restore
from backend.maintenance.plan import load_preview
from backend.maintenance.readers import Users
from backend.maintenance.restore import load_restore, plan_restore
from backend.search.notice import Measure, Notice
from backend.settings import load_settings
from backend.store.store import ControlStore
from tests.worlds.lake import builders
from tests.worlds.lake.diffs import diff

NAMED = "customer = 'c3' AND site IN ('north', 'south', 'east', 'west', 'centre', 'harbour', 'airport', 'station')"


def visits(numbers: range) -> dict[str, list[object]]:
    return {
        "visit_id": list(numbers),
        "customer": [f"c{n % 7}" for n in numbers],
        "site": ["north"] * len(numbers),
        "paid": [float(n) for n in numbers],
    }


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """v0 and v1 load, v2 loads v1 a second time and 10 more, v3 forgets a customer, v4 doubles three, v5 sets a
    property."""
    path = tmp_path / "lake" / "visits"
    builders.write(path, visits(range(60)))
    builders.write(path, visits(range(60, 100)))
    twice = pd.concat([pd.DataFrame(visits(range(60, 100))), pd.DataFrame(visits(range(100, 110)))])
    late = CommitProperties(custom_metadata={"userName": "loader", "job": "late visits"})
    builders.write(path, twice.to_dict("list"), commit_properties=late)
    DeltaTable(str(path)).delete(NAMED, commit_properties=CommitProperties(custom_metadata={"userName": "dpo"}))
    DeltaTable(str(path)).update(updates={"paid": "paid * 2"}, predicate="visit_id < 3")
    DeltaTable(str(path)).alter.set_table_properties({"catalog.team_name": "desk"}, raise_if_not_exists=False)
    return path


def rows(path: Path, version: int) -> Counter[tuple[object, ...]]:
    return Counter(DeltaTable(str(path), version=version).to_pandas().itertuples(index=False, name=None))


def test_deletions_come_first_then_what_changed_most_rows_and_what_stays_wrong(
    path: Path, tmp_path: Path, open_lake: Callable[..., Lake]
) -> None:
    now, lake, store = datetime.now(UTC), open_lake(), ControlStore.open(load_settings(home=tmp_path))
    ref, asked = lake.find("visits"), Restore(1, keeps_properties=True)
    stays = Notice(ref.uri, ref.name, 1, Measure.HIGHEST, "paid", "59", "99", "paid <= 59", "WRITE", now)
    store.noticed.keep([stays, replace(stays, version=2, before="99"), replace(stays, uri=f"{ref.uri}_2")], now=now)
    planned = load_preview(load_settings(home=tmp_path), lake, store, ref.uri, asked, now=now)
    store.close()

    lines = preview_lines(planned)
    assert re.search(
        r"becomes v1 again: 2 files \(.* kB\) come back, \d files? \(.* kB\) goe?s?; it then has", lines[0]
    )
    deleted = sum(n for row, n in rows(path, 2).items() if row[1] == "c3")
    assert lines[1] == f"Risk: rows of a v3 DELETE {NAMED} by dpo ({deleted} rows) come back."
    assert lines[2:6] == [
        "It undoes 4 commits, 3 of which changed rows.",
        "It undoes v2 WRITE by loader, job late visits (50 rows).",
        "It undoes v4 UPDATE visit_id < 3 (3 rows).",
        "Stays as it is: highest paid 59 → 99 at v1, WRITE.",
    ]
    assert lines[6] == "No file of v1 is missing." and lines[7].startswith("Possible until ") and len(lines) == 9
    assert not any("highest paid 99" in line for line in lines), "the restore takes that away"


def test_a_second_copy_of_a_row_that_stays_is_no_loss(path: Path, open_lake: Callable[..., Lake]) -> None:
    now, then = rows(path, 2), rows(path, 1)
    go = now - then
    copies = sum(n for row, n in go.items() if then[row])
    assert (go.total(), copies) == (50, 40)
    lake = open_lake()
    shown = loss_text(diff(lake, lake.find("visits"), 1, 2, key=("visit_id",)))
    assert shown == "50 rows go (40 exact copies of rows that stay: no loss), 0 come back, 0 rows get older values"

    builders.write(path, visits(range(200, 300)))  # without a key few copies are no finding, and no loss either
    go, latest = rows(path, 6) - then, lake.latest_version(lake.find("visits"))
    copies = sum(n for row, n in go.items() if then[row])
    late = diff(lake, lake.find("visits"), 1, latest)
    assert 2 * copies < go.total() and not any("there already" in each for each in explained(late.explanation))
    assert f"{go.total()} rows go ({copies} exact copies of rows that stay: no loss)" in loss_text(late)


def test_of_many_deletions_the_largest_are_named(path: Path, open_lake: Callable[..., Lake]) -> None:
    for most in (4, 6, 9, 13, 18, 24):
        DeltaTable(str(path)).delete(f"visit_id < {most}")
    lake = open_lake()
    snapshot, asked = lake.snapshot(lake.find("visits")), Restore(5)
    planned = plan_restore(snapshot, asked, load_restore(lake, snapshot, asked, datetime.now(UTC)), Users())
    named = [f"v{version}" for version in (11, 10, 9, 8, 6)]
    gone = {v: (rows(path, v - 1) - rows(path, v)).total() for v in range(6, 12)}
    assert named == [f"v{v}" for v in sorted(gone, key=lambda v: (-gone[v], -v))][:5]
    assert [risk.split()[3] for risk in planned.risks[:5]] == named
    assert planned.risks[5] == "rows of 1 more commit that took rows away come back"


def test_the_first_commit_that_is_undone_is_named_first_and_what_does_not_move_is_not(
    path: Path, open_lake: Callable[..., Lake]
) -> None:
    for number in range(8):
        builders.write(path, visits(range(300 + 10 * number, 310 + 10 * number - (number == 0))))  # the first is less
    lake = open_lake()
    snapshot, asked = lake.snapshot(lake.find("visits")), Restore(5)
    planned = plan_restore(snapshot, asked, load_restore(lake, snapshot, asked, datetime.now(UTC)), Users())
    undone = [note.split()[2] for note in planned.notes if note.startswith("it undoes v")]
    assert undone == ["v6", "v13", "v12", "v11", "v10"]
    assert re.search(r"becomes v5 again: 8 files \([^)]*\) go; it then has", planned.effect)
    one = plan_restore(snapshot, Restore(12), load_restore(lake, snapshot, Restore(12), datetime.now(UTC)), Users())
    assert re.search(r"becomes v12 again: 1 file \([^)]*\) goes; it then has", one.effect)
