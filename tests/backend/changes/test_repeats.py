"""Inserted rows that were there already, by every method that finds them, against pandas."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from deltalake import CommitProperties, DeltaTable

from app.ui.view.explanation import explained
from backend.changes.model import DiffMethod, Limits, Repeats
from backend.lake.lake import Lake
from tests.worlds.lake import builders
from tests.worlds.lake.diff_lakes import ByDeltalake
from tests.worlds.lake.diffs import asked, diff

KEY = ("sku", "site")


def rows(numbers: range, *, more: int = 0) -> dict[str, list[Any]]:
    return {
        "sku": [f"s{number // 4}" for number in numbers],
        "site": [number % 4 for number in numbers],
        "stock": [number * 10 + more for number in numbers],
    }


def counted(path: Path, *, change_feed: bool) -> Path:
    """v1 counts 40 keys, v2 another 20, v3 is v1 loaded a second time with ten new keys and three of v2 counted anew;
    v4 and v5 take four of the repeated ones back."""
    configuration = builders.CHANGE_FEED if change_feed else None
    builders.write(path, rows(range(1000, 1010)), configuration=configuration)
    for version, numbers in ((1, range(40)), (2, range(40, 60))):
        job = CommitProperties(custom_metadata={"job": f"hourly count {version}"})
        builders.write(path, rows(numbers), commit_properties=job)
    new = [pd.DataFrame(rows(range(40))), pd.DataFrame(rows(range(60, 70))), pd.DataFrame(rows(range(50, 53), more=1))]
    builders.write(path, pd.concat(new).to_dict("list"))
    DeltaTable(str(path)).delete("sku = 's0'")
    builders.write(path, rows(range(4)))
    return path


def recount(path: Path, first: int, second: int) -> tuple[int, int, int, dict[Any, int]]:
    """Inserted rows, those whose key was there, those that are copies, and the keys in more than one row."""
    before, after = (
        [tuple(row) for row in DeltaTable(str(path), version=v).to_pandas().itertuples(index=False)]
        for v in (first, second)
    )
    came = Counter(after)
    came.subtract(Counter(before))
    inserted = [row for row in came for _ in range(max(0, came[row]))]
    keys, whole = {row[:2] for row in before}, set(before)
    holding = Counter(row[:2] for row in after)
    new = {row[:2] for row in inserted}
    repeated = {key: holding[key] for key in new if holding[key] > 1}
    return len(inserted), sum(row[:2] in keys for row in inserted), sum(row in whole for row in inserted), repeated


WAYS: dict[str, Any] = {
    "key join": asked(key=KEY, method=DiffMethod.KEY_JOIN),
    "deltalake": asked(key=KEY, method=DiffMethod.KEY_JOIN),
    "change feed": asked(key=KEY, method=DiffMethod.CHANGE_FEED),
    "whole rows": asked(method=DiffMethod.MULTISET),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("versions", [(2, 3), (1, 2), (2, 5)])
def test_rows_that_were_there_are_counted_as_pandas_counts_them(
    tmp_path: Path, open_lake: Callable[..., Lake], way: str, versions: tuple[int, int]
) -> None:
    path = counted(tmp_path / "t", change_feed=way == "change feed")
    lake = open_lake(tmp_path)
    reader: Any = ByDeltalake(lake) if way == "deltalake" else lake

    found = diff(reader, lake.find("t"), *versions, **WAYS[way]).explanation.repeats

    inserted, known, copies, repeated = recount(path, *versions)
    if versions == (1, 2):
        assert known == 0 and found is None
        return
    assert found is not None and found.version == versions[0] and found.of == inserted
    if way == "whole rows":
        assert (found.key, found.rows, found.copies) == ((), copies, copies)
        return
    assert (found.key, found.rows, found.copies, found.keys) == (KEY, known, copies, len(repeated))
    assert len(found.listed) == 10
    assert all(repeated[tuple(key.values())] == held for key, held in found.listed)
    assert [(commit.version, commit.job) for commit in found.written_by] == [
        (1, "job hourly count 1"), (2, "job hourly count 2"),
    ]  # fmt: skip


def test_the_sentences(tmp_path: Path, open_lake: Callable[..., Lake]) -> None:
    counted(tmp_path / "t", change_feed=False)
    lake = open_lake(tmp_path)

    who, by, repeated, *_ = explained(diff(lake, lake.find("t"), 2, 3, key=KEY).explanation)

    assert who == "43 of the 53 inserted rows were there already at v2 by `sku`, `site`; 40 of them exact copies."
    writers = "v1 (WRITE, job hourly count 1) and v2 (WRITE, job hourly count 2)"
    assert by == f"The files that hold them there were written by {writers}."
    assert repeated.startswith("43 keys are there more than once afterwards: `sku` = s0, `site` = 0 in 2 rows; ")
    assert repeated.endswith("; and 33 more.")


def test_what_is_too_much_to_read_is_not_known(tmp_path: Path, open_lake: Callable[..., Lake]) -> None:
    counted(tmp_path / "t", change_feed=False)
    lake = open_lake(tmp_path)

    found = diff(lake, lake.find("t"), 2, 3, **asked(key=KEY, limits=Limits(values_beside=10))).explanation

    assert found.repeats == Repeats(2, 53, key=KEY)
    assert "not known" in explained(found)[0]
