"""One key over a range: by feed and by states, against what was written."""

from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from app.changes.text import repeated_texts
from backend.changes.model import RowKind
from backend.errors import DiffError, QueryError
from backend.lake.lake import Lake
from backend.search.key_history import KeyHistory, key_history, whole_life
from tests.worlds.lake import builders
from tests.worlds.lake.diffs import lake_at


def made(path: Path, *, change_feed: bool) -> Path:
    """Key 2: there at v0, not touched by v1, updated by v2 and v4, compacted by v3, deleted by v5, back by v6."""
    configuration = builders.CHANGE_FEED if change_feed else None
    builders.write(path, {"id": [1, 2], "name": ["a'b", "x"], "n": [1.5, 2.5]}, configuration=configuration)
    builders.write(path, {"id": [3], "name": ["c"], "n": [3.0]})
    DeltaTable(str(path)).update(updates={"n": "7.5"}, predicate="id = 2")
    DeltaTable(str(path)).optimize.compact()
    DeltaTable(str(path)).update(updates={"name": "'z'"}, predicate="id = 2")
    DeltaTable(str(path)).delete("id = 2")
    return builders.write(path, {"id": [2], "name": ["new"], "n": [0.0]})


@pytest.fixture(scope="module")
def lakes(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, Lake]:
    """`t` as `made` makes it, with a change feed and without."""
    roots = {change_feed: tmp_path_factory.mktemp("keys") for change_feed in (True, False)}
    for change_feed, root in roots.items():
        made(root / "t", change_feed=change_feed)
    return {change_feed: lake_at(root) for change_feed, root in roots.items()}


def history(lake: Lake, versions: tuple[int, int] = (0, 6), **key: Any) -> KeyHistory:
    *_, last = key_history(lake, lake.find("t"), versions, key)
    assert last.result is not None
    return last.result


@pytest.mark.parametrize("change_feed", [True, False])
def test_each_commit_that_touched_the_key_is_a_step(lakes: dict[bool, Lake], change_feed: bool) -> None:
    lake = lakes[change_feed]
    found = history(lake, id=2)
    assert found.by_feed is change_feed
    assert [(step.version, step.change.kind, step.change.changed) for step in found.steps] == [
        (2, RowKind.UPDATE, ("n",)),
        (4, RowKind.UPDATE, ("name",)),
        (5, RowKind.DELETE, ()),
        (6, RowKind.INSERT, ()),
    ]
    assert found.steps[0].change.before == {"id": 2, "name": "x", "n": 2.5}
    assert found.steps[1].change.after == {"id": 2, "name": "z", "n": 7.5}
    assert [step.version for step in history(lake, (4, 2), id=2).steps] == [4]
    assert history(lake, id=3).steps[0].version == 1
    assert history(lake, name="a'b").steps == ()
    assert [step.version for step in history(lake, id=2, n=7.5).steps][-1] == 5


@pytest.mark.parametrize("change_feed", [True, False])
def test_a_whole_life_begins_where_the_row_was_made(lakes: dict[bool, Lake], change_feed: bool) -> None:
    lake = lakes[change_feed]
    ref = lake.find("t")
    *_, first = whole_life(lake, ref, (0, 6), {"id": 2})
    *_, later = whole_life(lake, ref, (0, 6), {"id": 3})
    *_, cut = whole_life(lake, ref, (2, 6), {"id": 3})
    assert first.result and later.result and cut.result
    assert [step.version for step in first.result.steps] == [0, 2, 4, 5, 6]
    assert first.result.steps[0].change.after == {"id": 2, "name": "x", "n": 2.5}
    assert [step.version for step in later.result.steps] == [1]
    assert cut.result.steps == () and "it was there at v2 already" in cut.result.notes[-1]


def test_versions_that_cannot_be_read_are_said_and_hide_nothing(tmp_path: Path) -> None:
    path = made(tmp_path / "t", change_feed=False)
    now = set(DeltaTable(str(path)).file_uris())
    for version in (2, 3):
        now |= set(DeltaTable(str(path), version=version).file_uris())
    for uri in DeltaTable(str(path), version=4).file_uris():
        if uri not in now:
            Path(uri).unlink()
    found = history(lake_at(tmp_path), id=2)
    assert [(step.version, step.change.kind) for step in found.steps][-1] == (6, RowKind.INSERT)
    assert any("v4 could not be read" in note for note in found.notes)


def test_a_key_that_is_none_is_refused(tmp_path: Path) -> None:
    path = made(tmp_path / "t", change_feed=False)
    lake = lake_at(tmp_path)
    with pytest.raises(DiffError, match="no column gone"):
        history(lake, gone=1)
    with pytest.raises(QueryError):
        history(lake, id="two")
    builders.write(path, {"id": [2] * 100, "name": ["often"] * 100, "n": [0.0] * 100})
    found = history(lake, (6, 7), id=2)
    assert any("more than 100 rows have this key" in note for note in found.notes)
    assert found.steps == () and not found.is_whole  # nothing was seen, so nothing is claimed


@pytest.mark.parametrize("change_feed", [True, False])
def test_a_repeated_key_is_told_row_by_row(tmp_path: Path, change_feed: bool) -> None:
    """v1 loads v0 a second time, v2 changes both rows, v3 writes one anew, v4 has a third, v5 another key, v6 none."""
    path, table = tmp_path / "t", str(tmp_path / "t")
    rows = {"id": [1, 2], "name": ["a", "x"], "n": [1.0, 2.0]}
    builders.write(path, rows, configuration=builders.CHANGE_FEED if change_feed else None)
    builders.write(path, rows)
    DeltaTable(table).update(updates={"n": "9.0"}, predicate="id = 2")
    builders.write(path, {"id": [2], "name": ["y"], "n": [3.0]})
    DeltaTable(table).update(updates={"name": "'z'"}, predicate="id = 2 AND n = 3.0")
    builders.write(path, {"id": [5], "name": ["c"], "n": [3.0]})
    DeltaTable(table).delete("id = 2 AND n = 9.0")
    lake = lake_at(tmp_path)
    found = history(lake, (0, 6), id=2)
    holding = [DeltaTable(table, version=v).to_pyarrow_table()["id"].to_pylist().count(2) for v in range(7)]
    assert holding == [1, 2, 2, 3, 3, 3, 1]
    assert {step.version: step.rows for step in found.steps} == {
        v: (holding[v - 1], holding[v]) for v in (1, 2, 3, 4, 6)
    }
    kinds = " ".join(f"{step.version} {step.change.kind}" for step in found.steps)
    assert kinds == "1 insert 2 delete 2 delete 2 insert 2 insert 3 insert 4 update 6 delete 6 delete"
    assert repeated_texts(found.steps) == [
        "v1: a second row with this key",
        "v3: 3 rows with this key, 2 before",
        "v6: one row with this key again",
    ]
    still = history(lake, (4, 5), id=2)
    assert still.steps == () and still.is_whole and "3 rows have this key at v5" in still.notes[-1]
