"""The explanation of a planted change, by every method that finds its rows, against pandas."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from deltalake import DeltaTable

from app.cli import documents
from backend.diff.answer import diff
from backend.diff.model import DiffMethod, Effect, Limits
from backend.diff.prepare import DiffOptions
from backend.lake.lake import Lake
from backend.settings import load_settings
from tests.lake.diff_lakes import ByDeltalake
from tests.planted import BAD_DAYS, Planted, plant


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
    "files": DiffOptions(),
    "whole rows": DiffOptions(method=DiffMethod.MULTISET),
    "only files that differ": DiffOptions(limits=Limits(values_beside=10)),
}


@pytest.mark.parametrize("way", [*WAYS, "deltalake"])
def test_each_count_is_that_of_pandas(lake: Lake, planted: tuple[Path, Planted], way: str) -> None:
    path, made = planted
    before, after = states(path, 2, 3)
    hit = before.index[before["amount"] != after["amount"].reindex(before.index)]

    reader: Any = ByDeltalake(lake) if way == "deltalake" else lake
    found = diff(reader, lake.find("payments"), 2, 3, WAYS.get(way, DiffOptions())).explanation

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
    said = documents.diff(diff(lake, lake.find("payments"), 2, 3))["explanation"]

    assert said["done"][0] | {"column": "amount", "effect": "multiplied", "by": 100} == said["done"][0]
    (common,) = said["common"]
    assert common["of"] == common["rows"] == planted[1].changed
    assert {"column": "currency", "values": ["JPY"]}.items() <= next(
        trait for trait in common["traits"] if trait["column"] == "currency"
    ).items()
    assert json.loads(json.dumps(said)) == said
