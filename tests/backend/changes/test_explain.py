"""The explanation of a planted change, by every method that finds its rows, against pandas."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from app.cli.output import encoded
from app.cli.tables.changes import SHAPES
from backend.changes.answer import compare_rows
from backend.changes.changed_rows import RowBucket
from backend.changes.host_job import SUMMARY, UNEXPLAINED, DiffSummary, read_answer, to_json
from backend.changes.model import DiffMethod, Effect, Limits, VersionDiff
from backend.changes.prepare import PreparedDiff
from backend.jobs.model import Job, JobKind, JobState
from backend.jobs.results import results_lake
from backend.lake.lake import Lake
from backend.settings import load_settings
from backend.sql.session import CancelToken
from tests.worlds.lake.diff_lakes import ByDeltalake
from tests.worlds.lake.diffs import asked, diff, prepare
from tests.worlds.lake.planted import BAD_DAYS, Planted, plant

NOW = datetime(2026, 11, 20, tzinfo=UTC)


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Planted]:
    path = tmp_path_factory.mktemp("planted") / "lake" / "payments"
    return path, plant(path, versions=5, bad_version=3)


@pytest.fixture
def lake(planted: tuple[Path, Planted], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    monkeypatch.setenv("WEIR_HOME", str(tmp_path))
    monkeypatch.setenv("WEIR_LAKE__ROOTS", json.dumps([str(planted[0].parent)]))
    return Lake(load_settings())


def states(path: Path, *versions: int) -> list[pd.DataFrame]:
    return [DeltaTable(str(path), version=version).to_pandas().set_index("payment_id") for version in versions]


WAYS: dict[str, Any] = {
    "files": asked(),
    "whole rows": asked(method=DiffMethod.MULTISET),
    "only files that differ": asked(limits=Limits(values_beside=10)),
}


@pytest.mark.parametrize("way", [*WAYS, "deltalake"])
def test_each_count_is_that_of_pandas(lake: Lake, planted: tuple[Path, Planted], way: str) -> None:
    path, made = planted
    before, after = states(path, 2, 3)
    hit = before.index[before["amount"] != after["amount"].reindex(before.index)]

    reader: Any = ByDeltalake(lake) if way == "deltalake" else lake
    found = diff(reader, lake.find("payments"), 2, 3, **WAYS.get(way, {})).explanation

    assert len(hit) == made.changed
    kinds = ["insert", "delete"] if way == "whole rows" else ["update"]
    assert [(each.kind.value, each.of, each.rows) for each in found.common] == [(k, len(hit), len(hit)) for k in kinds]
    if way != "whole rows":
        (done,) = found.done
        assert (done.column, done.effect, done.by, done.rows) == ("amount", Effect.MULTIPLIED, 100, len(hit))
    assert found.population is not None and found.population.rows == made.rows_before == len(before)
    assert found.population.is_whole is (way != "only files that differ")
    for common in found.common:
        traits = {trait.column: trait for trait in common.traits}
        assert traits["currency"].values == ("JPY",) and traits["day"].values == BAD_DAYS
        for name in ("currency", "day", "region"):
            assert traits[name].others == int(before[name].isin(traits[name].values).sum())
        assert common.others == int(((before["currency"] == "JPY") & before["day"].isin(BAD_DAYS)).sum())


def test_an_append_of_the_usual_rows_needs_no_explanation(lake: Lake) -> None:
    found = diff(lake, lake.find("payments"), 1, 2).explanation

    assert found.done == () and found.common == ()


def test_the_document_says_the_same(lake: Lake, planted: tuple[Path, Planted]) -> None:
    said = encoded(diff(lake, lake.find("payments"), 2, 3), SHAPES)["explanation"]

    assert said["done"][0] | {"column": "amount", "effect": "multiplied", "by": 100} == said["done"][0]
    (common,) = said["common"]
    assert common["of"] == common["rows"] == planted[1].changed
    assert {"column": "currency", "values": ["JPY"]}.items() <= next(
        trait for trait in common["traits"] if trait["column"] == "currency"
    ).items()
    assert json.loads(json.dumps(said)) == said


@pytest.mark.parametrize("method", [DiffMethod.KEY_JOIN, DiffMethod.MULTISET])
def test_a_whole_answer_of_the_stream_host_is_explained_as_one_of_here(
    lake: Lake, tmp_path: Path, method: DiffMethod
) -> None:
    options = asked(key=None if method is DiffMethod.MULTISET else ("payment_id",), row_limit=10_000)
    prepared = prepare(lake, lake.find("payments"), 2, 3, **(options | asked(method=method)))
    here = compare_rows(prepared, CancelToken())

    there = as_by_host(prepared, here, tmp_path)

    assert here.explanation.common and there.explanation == here.explanation


@pytest.mark.parametrize(("rows_listed", "values_beside"), [(20, 50_000_000), (10_000, 10)])
def test_what_the_host_left_out_is_not_guessed_and_no_large_table_is_read(
    lake: Lake, tmp_path: Path, rows_listed: int, values_beside: int
) -> None:
    options = asked(key=("payment_id",), row_limit=rows_listed, limits=Limits(values_beside=values_beside))
    prepared = prepare(lake, lake.find("payments"), 2, 3, **options)

    found = as_by_host(prepared, compare_rows(prepared, CancelToken()), tmp_path)

    assert not found.explanation.common
    assert (UNEXPLAINED in found.reasons) is found.changes.truncated is (rows_listed == 20)
    assert bool(found.explanation.done) is not found.changes.truncated  # what was done needs no other row


def as_by_host(prepared: PreparedDiff, found: VersionDiff, home: Path) -> VersionDiff:
    """The same answer after a way through a result table, as a stream host writes it."""
    changes = found.changes
    cells = pa.struct([(f"c{i}", field.type) for i, field in enumerate(changes.arrow_schema)])
    inserted, updated, deleted = changes.net.inserted or 0, changes.net.updated or 0, changes.net.deleted or 0
    buckets = {
        "insert": RowBucket(inserted, inserted, inserted, 0),
        "update": RowBucket(updated, updated, updated, updated),
        "delete": RowBucket(deleted, deleted, 0, deleted),
    }
    columns, key = changes.columns, found.key.columns if found.key else ()
    summary = DiffSummary(found.method, columns, key, buckets, changes.changed_cells, by="by Spark")

    def side(values: Any) -> Any:
        return values and {f"c{i}": values[name] for i, name in enumerate(columns)}

    rows = [(SUMMARY, 0, 0, to_json(summary), None, None)]
    rows += [
        (row.kind.value, i, row.copies, None, side(row.before), side(row.after))
        for i, row in enumerate(found.changes.rows)
    ]
    names = ["what", "number", "n", "detail", "before", "after"]
    kinds = [pa.string(), pa.int64(), pa.int64(), pa.string(), cells, cells]
    settings = load_settings(home=home, jobs={"results_uri": str(home / "results")})
    uri = home / "results" / "job"
    schema = pa.schema(list(zip(names, kinds, strict=True)))
    uri.parent.mkdir()
    write_deltalake(uri, pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows], schema))
    job = Job("job", JobKind.DIFF, "payments", "", "", "me", "", 60.0, JobState.DONE, NOW, result_uri=str(uri))
    return read_answer(results_lake(settings), settings, prepared, job)


def test_what_every_batch_has_of_its_own_says_nothing_of_this_one(lake: Lake, planted: tuple[Path, Planted]) -> None:
    path = planted[0].parent / "batches"
    for day in range(1, 5):
        of_batch = {"source_file": f"part-{day}.csv", "ingested_at": datetime(2026, 11, day, tzinfo=UTC)}
        values = {**of_batch, "currency": "JPY" if day == 4 else "EUR"}
        rows = {"id": range(day * 100, day * 100 + 60)} | {name: [value] * 60 for name, value in values.items()}
        write_deltalake(path, pa.table(rows), mode="append")
    (found,) = diff(lake, lake.find("batches"), 2, 3).explanation.common
    assert [(trait.column, trait.values) for trait in found.traits] == [("currency", ("JPY",))]
