"""A table moved aside by a host, brought back, and deleted for good: whole each time, and once."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from backend.errors import StreamRefusedError, TableNotFoundError
from backend.jobs.model import JobState
from backend.lake.storage.storage import Storage
from backend.maintenance.drop import ASIDE, dropped_tables, find_dropped
from backend.maintenance.model import Drop, Purge, TableAct, Undrop
from backend.maintenance.plan import load_preview
from tests.pipelines.jobs.test_table_acts import NAME, Shelf, shelf

__all__ = ["shelf"]
pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


def of_dropped(table: Shelf, arguments: Undrop | Purge) -> TableAct:
    planned = load_preview(table.settings, table.lake, table.store, "", arguments, now=table.store.now())
    assert not planned.refused, planned.refused
    return planned.act


def test_a_dropped_table_comes_back_as_it_was(shelf: Callable[..., Shelf]) -> None:
    table = shelf()
    table.write("a", "b", **{"delta.enableDeletionVectors": "true"})
    table.sql("DELETE FROM {} WHERE id = 3")
    before, version, root = table.ids(), table.lake.latest_version(table.ref), Storage(table.settings).roots[0]
    planned = table.preview(Drop())
    assert planned.figures["rows"] == len(before) == 199 and planned.typed

    dropping = table.submit(planned.act)
    result = table.run(dropping)

    assert [proof.holds for proof in result.proofs] == [True] * 3 and result.version is None
    assert table.lake.tables() == [] and not Path(table.uri).exists()
    (dropped,) = dropped_tables(table.settings)
    assert (dropped.name, dropped.version, dropped.num_rows) == (NAME, version, 199)
    assert (dropped.job_id, dropped.actor, dropped.reason) == (dropping.job_id, "ana", "to put it right")
    aside = table.spark.read.format("delta").load(f"{root}/{ASIDE}/{dropping.job_id}/table")
    assert sorted(row.id for row in aside.collect()) == before

    result = table.run(table.submit(of_dropped(table, Undrop(NAME))))

    assert [proof.holds for proof in result.proofs] == [True] * 2 and result.version == version
    assert table.ids() == before and dropped_tables(table.settings) == []
    assert not list(Path(root, ASIDE).iterdir())
    table.write("c", start=900)  # as one that was never away
    assert table.lake.latest_version(table.ref) == version + 1


def test_a_purge_is_for_good_and_takes_one_of_two(shelf: Callable[..., Shelf]) -> None:
    table = shelf()
    table.write("a")
    first = table.submit(table.preview(Drop()).act)
    table.run(first)
    table.write("b", "c")
    second = table.submit(table.preview(Drop()).act)
    table.run(second)
    with pytest.raises(TableNotFoundError, match="was dropped 2 times"):
        find_dropped(table.settings, NAME)
    result = table.run(table.submit(of_dropped(table, Purge(first.job_id))))
    assert [(proof.what, proof.holds) for proof in result.proofs] == [("nothing is left of it", True)]
    (left,) = dropped_tables(table.settings)
    assert (left.job_id, left.num_rows) == (second.job_id, 200)
    with pytest.raises(TableNotFoundError, match="no dropped table"):
        of_dropped(table, Undrop(first.job_id))


@pytest.mark.parametrize("kind", [Drop, Undrop, Purge])
def test_what_a_host_began_another_ends_once(shelf: Callable[..., Shelf], kind: type) -> None:
    """The first dies after all was done, before it notes the end."""
    table = shelf()
    table.write("a")
    act = table.preview(Drop()).act
    if kind is not Drop:
        table.act(Drop())
        act = of_dropped(table, kind(NAME))
    job = table.submit(act)
    ends = [table.runner.run(replace(job, attempts=attempts)) for attempts in (1, 2)]
    assert [end.state for end in ends] == [JobState.DONE] * 2
    assert [word in ends[1].detail for word in ("holds", "DOES NOT HOLD")] == [True, False], ends[1].detail


def test_a_table_that_moved_on_or_is_in_the_way_is_refused(shelf: Callable[..., Shelf]) -> None:
    table = shelf()
    table.write("a")
    planned = table.preview(Drop())
    table.write("b")
    with pytest.raises(StreamRefusedError, match="moved on since the preview: v1 WRITE"):
        table.run(table.submit(planned.act))
    table.act(Drop())
    back = of_dropped(table, Undrop(NAME))
    table.write("z", start=7)
    with pytest.raises(StreamRefusedError, match="there is a table already"):
        table.run(table.submit(back))
    assert len(table.ids()) == 100 and len(dropped_tables(table.settings)) == 1
    elsewhere = TableAct(str(Path(table.uri).parent / "other"), "other", 1, Purge(back.arguments.dropped))
    with pytest.raises(StreamRefusedError, match="dropped something else"):
        table.run(table.submit(elsewhere))
    climbing = TableAct(table.uri, NAME, 1, Purge("../../sales"))
    with pytest.raises(StreamRefusedError, match="no dropped table"):
        table.run(table.submit(climbing))
    assert len(table.ids()) == 100
